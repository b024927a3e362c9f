//! What came of probes, for who wants to know while the run goes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use loopscope_time::Frequency;

use crate::exchange::Exchange;
use crate::loops::Reckoning;
use crate::pairs;

/// An exchange as far as the follower knows it when nothing more of it can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The probe's number; 2n and 2n + 1 are a pair.
    pub seq: u64,
    /// Its stamps: the follower's on the follower's counter, the reference's as its replies gave
    /// them. `t3` comes with a later reply; where that is lost, it is missing.
    pub exchange: Exchange,
    /// Nominal frequency of the reference's counter.
    pub reference: Frequency,
    /// The reference's session: with another one it has been started anew, and its counter may be
    /// another.
    pub session: u64,
    /// How far the counters of two of the reference's processors may be apart, in its ticks.
    pub apart: u64,
    /// Global time at which the other side received the probe, by its own clock; `None` where its
    /// reply did not have it.
    pub reckoning: Option<Reckoning>,
}

/// Receives each outcome, in the order of their numbers, on the thread that probes.
pub type Observer = Arc<dyn Fn(&Outcome) + Send + Sync>;

/// Nothing more is expected of an exchange when the reply to one so many numbers ahead has come,
/// and it was begun so long ago.
const LATE: u64 = 8;
const LATE_TIME: Duration = Duration::from_millis(100);

/// An exchange of which more may come.
#[derive(Clone, Copy, Default)]
pub(super) struct Row {
    pub(super) exchange: Exchange,
    pub(super) reckoning: Option<Reckoning>,
}

/// Puts exchanges together.
pub(super) struct Assembly {
    /// By number, with when it was begun.
    rows: BTreeMap<u64, (Instant, Row)>,
    follower: Frequency,
    /// The reference's values in the last reply.
    reference: Option<(Frequency, u64, u64)>,
    /// The last probe that was answered or given up.
    settled: u64,
    report: Box<dyn FnMut(&Outcome) + Send>,
}

/// Number of exchanges that were reported without the stamp of their reply.
#[must_use]
pub(super) struct UnstampedReplies(pub(super) u64);

impl Assembly {
    pub(super) fn of(follower: Frequency, report: Box<dyn FnMut(&Outcome) + Send>) -> Assembly {
        Assembly { rows: BTreeMap::new(), follower, reference: None, settled: 0, report }
    }

    /// A probe goes out.
    pub(super) fn begin(&mut self, seq: u64, now: Instant) {
        self.rows.insert(seq, (now, Row::default()));
    }

    /// Drops what is not reported yet: the reference is another.
    pub(super) fn forget(&mut self) {
        self.rows.clear();
    }

    /// The exchange of a probe that was not reported yet.
    pub(super) fn row(&mut self, seq: u64) -> Option<&mut Row> {
        self.rows.get_mut(&seq).map(|(_, row)| row)
    }

    /// Reports what is complete, or so far behind the reply to `answered` that nothing more of it can
    /// be expected.
    pub(super) fn reply(
        &mut self,
        answered: u64,
        now: Instant,
        reference: Frequency,
        session: u64,
        apart: u64,
    ) -> UnstampedReplies {
        self.reference = Some((reference, session, apart));
        self.settle(answered, now)
    }

    /// Nothing of this probe will come any more. Reports as [`Self::reply`] does, so that no more is
    /// kept while the reference is silent than while it answers.
    pub(super) fn give_up(&mut self, seq: u64, now: Instant) -> UnstampedReplies {
        self.settle(seq, now)
    }

    fn settle(&mut self, seq: u64, now: Instant) -> UnstampedReplies {
        self.settled = self.settled.max(seq);
        let settled = self.settled;
        self.report_settled(|seq, begun| seq + LATE <= settled && now >= begun + LATE_TIME)
    }

    /// Reports what is left; nothing if nothing was ever answered.
    pub(super) fn end(&mut self) {
        if self.reference.is_some() {
            // Missing last stamps are no loss.
            let UnstampedReplies(_) = self.report_settled(|_, _| true);
        }
    }

    /// Reports pairs, in order, until one is neither complete nor `late`. Before the first answer
    /// there is nothing to tell of them, and they are only forgotten.
    fn report_settled(&mut self, late: impl Fn(u64, Instant) -> bool) -> UnstampedReplies {
        let mut unstamped = 0;
        while let Some((&seq, &(begun, _))) = self.rows.first_key_value() {
            let seqs = [seq, pairs::partner(seq)];
            let pair = seqs.map(|seq| self.rows.get(&seq).map(|(_, row)| *row));
            if !late(seq, begun) && !pair.iter().flatten().all(|row| row.exchange.is_complete()) {
                break;
            }
            let Some((reference, session, apart)) = self.reference else {
                for seq in seqs {
                    self.rows.remove(&seq);
                }
                continue;
            };
            let [mut first, mut second] = pair.map(Option::unwrap_or_default);
            pairs::judge(&mut first.exchange, &mut second.exchange, self.follower, reference);
            for (seq, Row { exchange, reckoning }) in seqs.into_iter().zip([first, second]) {
                if self.rows.remove(&seq).is_some() {
                    unstamped += u64::from(exchange.t3.is_none() && exchange.t4.is_some());
                    (self.report)(&Outcome { seq, exchange, reference, session, apart, reckoning });
                }
            }
        }
        UnstampedReplies(unstamped)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use loopscope_time::Counter;

    use super::*;
    use crate::Span;
    use crate::exchange::Pair;

    fn at(tick: u64) -> Option<Span> {
        Some(Span { lo: Counter(tick), hi: Counter(tick + 50) })
    }

    struct Rig {
        begun: Instant,
        assembly: Assembly,
        outcomes: Arc<Mutex<Vec<Outcome>>>,
    }

    impl Rig {
        fn new() -> Rig {
            let outcomes = Arc::new(Mutex::new(Vec::new()));
            let into = outcomes.clone();
            let report = Box::new(move |outcome: &Outcome| into.lock().unwrap().push(*outcome));
            let hz = Frequency::from_hz(1_000_000_000).unwrap();
            Rig { begun: Instant::now(), assembly: Assembly::of(hz, report), outcomes }
        }

        fn begin(&mut self, seq: u64) {
            self.assembly.begin(seq, self.begun);
        }

        fn answered(&mut self, seq: u64) {
            let row = &mut self.assembly.row(seq).unwrap().exchange;
            let tick = 1_000 * seq;
            (row.t1, row.t2, row.t4) = (at(tick), at(tick + 300), at(tick + 900));
        }

        fn stamped(&mut self, seq: u64) {
            self.assembly.row(seq).unwrap().exchange.t3 = at(1_000 * seq + 600);
        }

        fn reply(&mut self, answered: u64, ms: u64) -> (u64, Vec<(u64, bool, Pair)>) {
            let now = self.begun + Duration::from_millis(ms);
            let hz = Frequency::from_hz(1_000_000_000).unwrap();
            let UnstampedReplies(unstamped) = self.assembly.reply(answered, now, hz, 5, 0);
            let outcomes = std::mem::take(&mut *self.outcomes.lock().unwrap());
            let row = |o: &Outcome| (o.seq, o.exchange.t3.is_some(), o.exchange.forward);
            (unstamped, outcomes.iter().map(row).collect())
        }
    }

    /// A pair is told when the stamp of its second reply has come, judged, in order.
    #[test]
    fn pairs_are_told_when_all_of_them_is_known() {
        let mut rig = Rig::new();
        for seq in 0..4 {
            rig.begin(seq);
            rig.answered(seq);
        }
        rig.stamped(0);
        rig.stamped(2);
        rig.stamped(3);
        assert_eq!(rig.reply(3, 20), (0, vec![]));
        rig.stamped(1);
        let all = [0, 1, 2, 3].map(|seq| (seq, true, Pair::Clean)).to_vec();
        assert_eq!(rig.reply(3, 20), (0, all));
        assert!(rig.assembly.row(0).is_none());
    }

    /// What is missing is waited for only so long, and costs one sample.
    #[test]
    fn what_never_comes_is_told_without() {
        let mut rig = Rig::new();
        for seq in 0..10 {
            rig.begin(seq);
        }
        rig.answered(0);
        rig.answered(1);
        rig.stamped(1);
        assert_eq!(rig.reply(7, 100), (0, vec![]));
        assert_eq!(rig.reply(8, 99), (0, vec![]));
        assert_eq!(rig.reply(8, 100), (1, vec![(0, false, Pair::Clean), (1, true, Pair::Clean)]));
    }

    #[test]
    fn at_the_end_all_is_told() {
        let mut rig = Rig::new();
        rig.begin(0);
        rig.assembly.end();
        assert_eq!(rig.outcomes.lock().unwrap().len(), 0);
        rig.answered(0);
        assert_eq!(rig.reply(0, 1), (0, vec![]));
        rig.assembly.end();
        assert_eq!(rig.outcomes.lock().unwrap().len(), 1);
    }

    /// A day of silence, and one before any answer, at more probes a second than there are then:
    /// what is kept does not grow.
    #[test]
    fn a_day_of_silence_takes_no_memory() {
        const GAP_MS: u64 = 100;
        const DAY: u64 = 24 * 3600 * 1000 / GAP_MS;
        for answered in [0, 4] {
            let (mut rig, mut seen, mut most) = (Rig::new(), 0, 0);
            for seq in 0..DAY {
                let now = rig.begun + Duration::from_millis(seq * GAP_MS);
                rig.assembly.begin(seq, now);
                if seq < answered {
                    rig.answered(seq);
                    seen += rig.reply(seq, seq * GAP_MS).1.len() as u64;
                } else if let Some(old) = seq.checked_sub(50).filter(|old| *old >= answered) {
                    let UnstampedReplies(_) = rig.assembly.give_up(old, now);
                    seen += std::mem::take(&mut *rig.outcomes.lock().unwrap()).len() as u64;
                }
                most = most.max(rig.assembly.rows.len());
            }
            assert!(most <= 64, "{most}");
            // All but the last are told, once there is a reference to tell of.
            let least = if answered > 0 { DAY - 64 } else { 0 };
            assert!(seen >= least && (answered > 0 || seen == 0), "{seen}");
        }
    }

    #[test]
    fn one_without_a_partner_is_told_alone() {
        let mut rig = Rig::new();
        rig.begin(6);
        rig.answered(6);
        rig.stamped(6);
        assert_eq!(rig.reply(6, 1), (0, vec![(6, true, Pair::Alone)]));
    }
}
