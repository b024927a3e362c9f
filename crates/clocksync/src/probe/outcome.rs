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
    /// Its stamps: the follower's on the follower's counter, the reference's as its replies told
    /// them. `t3` comes with a later reply; where that is lost, it is missing.
    pub exchange: Exchange,
    /// Nominal frequency of the reference's counter.
    pub reference: Frequency,
    /// The reference's session: with another one it has been started anew, and its counter may be
    /// another.
    pub session: u64,
    /// How far the counters of two of the reference's processors may be apart, in its ticks.
    pub apart: u64,
    /// What the other side takes global time to have been when it received the probe, if it told.
    pub reckoning: Option<Reckoning>,
}

/// Is told each outcome, in the order of their numbers, on the thread that probes.
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
    tell: Box<dyn FnMut(&Outcome) + Send>,
}

/// Exchanges that were told without the stamp of their reply.
#[must_use]
pub(super) struct Untold(pub(super) u64);

impl Assembly {
    pub(super) fn of(follower: Frequency, tell: Box<dyn FnMut(&Outcome) + Send>) -> Assembly {
        Assembly { rows: BTreeMap::new(), follower, reference: None, settled: 0, tell }
    }

    /// A probe goes out.
    pub(super) fn begin(&mut self, seq: u64, now: Instant) {
        self.rows.insert(seq, (now, Row::default()));
    }

    /// Drops what is not told yet: the reference is another.
    pub(super) fn forget(&mut self) {
        self.rows.clear();
    }

    /// The exchange of a probe that was not told yet.
    pub(super) fn row(&mut self, seq: u64) -> Option<&mut Row> {
        self.rows.get_mut(&seq).map(|(_, row)| row)
    }

    /// Tells what is complete, or so far behind the reply to `answered` that nothing more of it can
    /// be expected.
    pub(super) fn tell(
        &mut self,
        answered: u64,
        now: Instant,
        reference: Frequency,
        session: u64,
        apart: u64,
    ) -> Untold {
        self.reference = Some((reference, session, apart));
        self.settle(answered, now)
    }

    /// Nothing of this probe will come any more. Tells as [`Self::tell`] does, so that no more is
    /// kept while the reference is silent than while it answers.
    pub(super) fn give_up(&mut self, seq: u64, now: Instant) -> Untold {
        self.settle(seq, now)
    }

    fn settle(&mut self, seq: u64, now: Instant) -> Untold {
        self.settled = self.settled.max(seq);
        let settled = self.settled;
        self.told(|seq, begun| seq + LATE <= settled && now >= begun + LATE_TIME)
    }

    /// Tells what is left; nothing if nothing was ever answered.
    pub(super) fn end(&mut self) {
        if self.reference.is_some() {
            // Missing last stamps are no loss.
            let Untold(_) = self.told(|_, _| true);
        }
    }

    /// Tells pairs, in order, until one is neither complete nor `late`. Before the first answer
    /// there is nothing to tell of them, and they are only forgotten.
    fn told(&mut self, late: impl Fn(u64, Instant) -> bool) -> Untold {
        let mut untold = 0;
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
                    untold += u64::from(exchange.t3.is_none() && exchange.t4.is_some());
                    (self.tell)(&Outcome { seq, exchange, reference, session, apart, reckoning });
                }
            }
        }
        Untold(untold)
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

    struct Told {
        begun: Instant,
        assembly: Assembly,
        outcomes: Arc<Mutex<Vec<Outcome>>>,
    }

    impl Told {
        fn new() -> Told {
            let outcomes = Arc::new(Mutex::new(Vec::new()));
            let into = outcomes.clone();
            let tell = Box::new(move |outcome: &Outcome| into.lock().unwrap().push(*outcome));
            let hz = Frequency::from_hz(1_000_000_000).unwrap();
            Told { begun: Instant::now(), assembly: Assembly::of(hz, tell), outcomes }
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

        fn tell(&mut self, answered: u64, ms: u64) -> (u64, Vec<(u64, bool, Pair)>) {
            let now = self.begun + Duration::from_millis(ms);
            let hz = Frequency::from_hz(1_000_000_000).unwrap();
            let Untold(untold) = self.assembly.tell(answered, now, hz, 5, 0);
            let outcomes = std::mem::take(&mut *self.outcomes.lock().unwrap());
            let row = |o: &Outcome| (o.seq, o.exchange.t3.is_some(), o.exchange.forward);
            (untold, outcomes.iter().map(row).collect())
        }
    }

    /// A pair is told when the stamp of its second reply has come, judged, in order.
    #[test]
    fn pairs_are_told_when_all_of_them_is_known() {
        let mut told = Told::new();
        for seq in 0..4 {
            told.begin(seq);
            told.answered(seq);
        }
        told.stamped(0);
        told.stamped(2);
        told.stamped(3);
        assert_eq!(told.tell(3, 20), (0, vec![]));
        told.stamped(1);
        let all = [0, 1, 2, 3].map(|seq| (seq, true, Pair::Clean)).to_vec();
        assert_eq!(told.tell(3, 20), (0, all));
        assert!(told.assembly.row(0).is_none());
    }

    /// What is missing is waited for only so long, and costs one sample.
    #[test]
    fn what_never_comes_is_told_without() {
        let mut told = Told::new();
        for seq in 0..10 {
            told.begin(seq);
        }
        told.answered(0);
        told.answered(1);
        told.stamped(1);
        assert_eq!(told.tell(7, 100), (0, vec![]));
        assert_eq!(told.tell(8, 99), (0, vec![]));
        assert_eq!(told.tell(8, 100), (1, vec![(0, false, Pair::Clean), (1, true, Pair::Clean)]));
    }

    #[test]
    fn at_the_end_all_is_told() {
        let mut told = Told::new();
        told.begin(0);
        told.assembly.end();
        assert_eq!(told.outcomes.lock().unwrap().len(), 0);
        told.answered(0);
        assert_eq!(told.tell(0, 1), (0, vec![]));
        told.assembly.end();
        assert_eq!(told.outcomes.lock().unwrap().len(), 1);
    }

    /// A day of silence, and one before any answer, at more probes a second than there are then:
    /// what is kept does not grow.
    #[test]
    fn a_day_of_silence_takes_no_memory() {
        const GAP_MS: u64 = 100;
        const DAY: u64 = 24 * 3600 * 1000 / GAP_MS;
        for answered in [0, 4] {
            let (mut told, mut seen, mut most) = (Told::new(), 0, 0);
            for seq in 0..DAY {
                let now = told.begun + Duration::from_millis(seq * GAP_MS);
                told.assembly.begin(seq, now);
                if seq < answered {
                    told.answered(seq);
                    seen += told.tell(seq, seq * GAP_MS).1.len() as u64;
                } else if let Some(old) = seq.checked_sub(50).filter(|old| *old >= answered) {
                    let Untold(_) = told.assembly.give_up(old, now);
                    seen += std::mem::take(&mut *told.outcomes.lock().unwrap()).len() as u64;
                }
                most = most.max(told.assembly.rows.len());
            }
            assert!(most <= 64, "{most}");
            // All but the last are told, once there is a reference to tell of.
            let least = if answered > 0 { DAY - 64 } else { 0 };
            assert!(seen >= least && (answered > 0 || seen == 0), "{seen}");
        }
    }

    #[test]
    fn one_without_a_partner_is_told_alone() {
        let mut told = Told::new();
        told.begin(6);
        told.answered(6);
        told.stamped(6);
        assert_eq!(told.tell(6, 1), (0, vec![(6, true, Pair::Alone)]));
    }
}
