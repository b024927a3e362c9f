//! Chooses the packets that leave at a given time, and the fate of those that a stall has made
//! late. Sans-I/O: offsets from the start of the run come in and slots go out.

use super::schedule::Slot;

/// What happens to packets that are overdue after a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AfterStall {
    /// They are not sent, and counted as skipped
    Skip,
    /// They are sent at no more than twice the rate, until the schedule is caught up with
    Spread,
    /// They are sent at once
    Burst,
}

/// Less than this a sender may be late without it being a stall: a page fault or an interrupt. One
/// and a quarter intervals are no stall either, so that none is lost to being one packet late. With
/// more than that the next one would leave close behind those two.
pub(super) const TOLERANCE_NS: u64 = 100_000;

/// Sends the slots of a schedule.
#[derive(Clone, Debug)]
pub(super) struct Pacer<S> {
    schedule: S,
    next: Option<Slot>,
    after: Option<Slot>,
    policy: AfterStall,
    /// From this lateness on it was a stall.
    stall_ns: u64,
    /// Between packets while catching up.
    spacing_ns: u64,
    /// How much ahead of its time a packet is handed over.
    lead_ns: u64,
    /// The earliest time of the next packet while catching up.
    not_before: Option<u64>,
    skipped: u64,
}

impl<S: Iterator<Item = Slot>> Pacer<S> {
    /// Slots of `schedule`, on average `interval_ns` apart, each `lead_ns` early.
    pub(super) fn new(
        mut schedule: S,
        policy: AfterStall,
        interval_ns: f64,
        lead_ns: u64,
    ) -> Pacer<S> {
        let next = schedule.next();
        let after = schedule.next();
        Pacer {
            schedule,
            next,
            after,
            policy,
            stall_ns: ((1.25 * interval_ns) as u64).max(TOLERANCE_NS),
            spacing_ns: (interval_ns / 2.0).ceil() as u64,
            lead_ns,
            not_before: None,
            skipped: 0,
        }
    }

    /// When the next packet is to leave; `None` after the last.
    pub(super) fn next(&self) -> Option<u64> {
        let due = self.next?.offset.saturating_sub(self.lead_ns);
        Some(due.max(self.not_before.unwrap_or(0)))
    }

    /// Packets skipped so far.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The packets to send at `now`, in order, at most `most` of them, into `batch`.
    pub(super) fn due(&mut self, now: u64, most: usize, batch: &mut Vec<Slot>) {
        batch.clear();
        let Some(first) = self.next else { return };
        let stalled = now >= first.offset.saturating_add(self.stall_ns);
        match self.policy {
            AfterStall::Skip if stalled => self.skip_overdue(now),
            AfterStall::Spread if stalled || self.not_before.is_some() => {
                return self.catch_up(now, most, batch);
            }
            _ => {}
        }
        let until = now.saturating_add(self.lead_ns);
        while batch.len() < most && self.next.is_some_and(|slot| slot.offset <= until) {
            batch.extend(self.take());
        }
    }

    /// Sends what the doubled rate allows. Where packets are dense it may be late by the tolerance
    /// as the plain rate may.
    fn catch_up(&mut self, now: u64, most: usize, batch: &mut Vec<Slot>) {
        let slack = TOLERANCE_NS.saturating_sub(self.spacing_ns);
        let mut earliest = self.not_before.unwrap_or(now).max(now.saturating_sub(slack));
        let until = now.saturating_add(self.lead_ns);
        while batch.len() < most
            && earliest <= now
            && let Some(slot) = self.next.filter(|slot| slot.offset <= until)
        {
            self.take();
            batch.push(slot);
            if now < slot.offset.saturating_add(self.spacing_ns) {
                self.not_before = None;
                return;
            }
            earliest += self.spacing_ns;
        }
        self.not_before = Some(earliest);
    }

    /// Goes on with the grid: the newest slot that is due, if it is not too old itself.
    fn skip_overdue(&mut self, now: u64) {
        while let Some(slot) = self.next {
            let passed = self.after.is_some_and(|after| after.offset <= now);
            if !passed && now < slot.offset.saturating_add(self.stall_ns) {
                return;
            }
            self.skipped += 1;
            self.take();
        }
    }

    fn take(&mut self) -> Option<Slot> {
        let taken = self.next;
        self.next = self.after;
        self.after = self.schedule.next();
        taken
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use proptest::prelude::*;

    use super::super::schedule::{Distribution, Interval, Plan, Schedule};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn pacer(interval_ns: u64, duration_ns: u64, policy: AfterStall) -> Pacer<Schedule> {
        let distribution = Distribution::Constant(Interval::of_ns(interval_ns));
        let plan = Plan { distribution, seed: 0, count: u64::MAX, duration_ns };
        Pacer::new(Schedule::new(&plan, 0, 1), policy, interval_ns as f64, 0)
    }

    /// Sends everything; after the wake before instant `n` the sender stalls for `stall(n)`.
    /// Returns when each packet left.
    fn run(
        pacer: &mut Pacer<Schedule>,
        mut stall: impl FnMut(u64) -> u64,
        mut sent: impl FnMut(u64, Slot),
    ) {
        let (mut now, mut wakes, mut batch) = (0, 0, Vec::new());
        while let Some(next) = pacer.next() {
            now = next.max(now) + stall(wakes);
            wakes += 1;
            pacer.due(now, 64, &mut batch);
            batch.iter().for_each(|&slot| sent(now, slot));
        }
    }

    /// Packets and when they left, of a second at 10 000 packets/s with one stall of 10 ms.
    fn one_stall(policy: AfterStall) -> (Vec<(u64, Slot)>, u64) {
        let mut pacer = pacer(100_000, SECOND, policy);
        let mut log = Vec::new();
        let stall = |wake| if wake == 1000 { 10_000_000 } else { 0 };
        run(&mut pacer, stall, |now, slot| log.push((now, slot)));
        (log, pacer.skipped())
    }

    /// Most packets within a time shorter than a quarter of the interval.
    fn burst(log: &[(u64, Slot)]) -> usize {
        let end = |from: usize| log.partition_point(|(now, _)| *now < log[from].0 + 25_000);
        (0..log.len()).map(|from| end(from) - from).max().unwrap()
    }

    #[test]
    fn skip_leaves_out_what_is_overdue_and_keeps_the_grid() {
        let (log, skipped) = one_stall(AfterStall::Skip);
        assert_eq!((log.len(), skipped), (9900, 100));
        assert!(burst(&log) <= 2);
        assert!(log.iter().all(|(now, slot)| now - slot.offset < 100_000));
        assert!(log.iter().skip(1001).all(|(now, slot)| *now == slot.offset));
    }

    #[test]
    fn spread_sends_all_at_twice_the_rate_at_most() {
        let (log, skipped) = one_stall(AfterStall::Spread);
        assert_eq!((log.len(), skipped), (10_000, 0));
        assert!(log.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 50_000), "too dense");
        assert!(log.windows(2).all(|pair| pair[1].1.number == pair[0].1.number + 1));
        // 100 packets are made up for in the time of 200.
        assert!(log[1205].0 == log[1205].1.offset && log[1190].0 > log[1190].1.offset);
    }

    /// The last overdue packet is sent, and the next one's time is not yet.
    #[test]
    fn who_has_caught_up_is_not_early() {
        let mut pacer = pacer(2438, 50_000_000, AfterStall::Spread);
        let stalls = [100_323, 0, 33_148, 65_404];
        let stall = |wake: u64| stalls.get(wake as usize).copied().unwrap_or(0);
        run(&mut pacer, stall, |now, slot| assert!(now >= slot.offset, "{now} {slot:?}"));
    }

    #[test]
    fn burst_sends_all_at_once() {
        let (log, skipped) = one_stall(AfterStall::Burst);
        assert_eq!((log.len(), skipped), (10_000, 0));
        assert_eq!(burst(&log), 101);
        assert!(log.iter().skip(1101).all(|(now, slot)| *now == slot.offset));
    }

    #[test]
    fn being_a_little_late_loses_nothing() {
        for (interval, late) in [(100_000, 120_000), (2_000, 99_000), (1_000_000, 1_200_000)] {
            let mut pacer = pacer(interval, SECOND, AfterStall::Skip);
            let mut count = 0;
            let stall = |wake| if wake % 50 == 7 { late } else { 0 };
            run(&mut pacer, stall, |_, _| count += 1);
            assert_eq!((count, pacer.skipped()), (SECOND.div_ceil(interval), 0));
        }
    }

    /// An hour at 10 000 packets/s with a stall of up to 50 ms about twice a second.
    #[test]
    fn an_hour_with_stalls_is_exact() {
        let mut rng = Rng::with_seed(1);
        let mut pacer = pacer(100_000, 3600 * SECOND, AfterStall::Skip);
        let (mut sent, mut last) = (0, 0);
        let stall = |_| match rng.u32(..5000) {
            0 => rng.u64(..50_000_000),
            1..100 => rng.u64(..120_000),
            _ => rng.u64(..3_000),
        };
        run(&mut pacer, stall, |now, slot| {
            sent += 1;
            last = slot.number;
            assert!(now - slot.offset < 125_000, "packet {} is late", slot.number);
        });
        assert!(pacer.skipped() > 100_000, "{} skipped: there were no stalls", pacer.skipped());
        assert_eq!(sent + pacer.skipped(), 36_000_000);
        assert!(last >= 36_000_000 - 500, "the last packet was {last}");
    }

    #[test]
    fn what_is_handed_over_ahead_is_not_taken_for_overdue() {
        let distribution = Distribution::Constant(Interval::of_ns(10_000));
        let plan = Plan { distribution, seed: 0, count: u64::MAX, duration_ns: SECOND };
        let mut pacer =
            Pacer::new(Schedule::new(&plan, 0, 1), AfterStall::Skip, 10_000.0, 1_000_000);
        let mut log = Vec::new();
        let stall = |wake| match wake {
            0 => 0,
            1..100 => 500_000,
            100 => 5_000_000,
            _ => 0,
        };
        run(&mut pacer, stall, |now, slot| log.push((now, slot)));
        assert_eq!(log.len() as u64 + pacer.skipped(), 100_000);
        // Ahead by 1 ms, a stall of 5 ms makes 4 ms overdue, and no packet that is still to come.
        assert!((395..=410).contains(&pacer.skipped()), "{}", pacer.skipped());
    }

    proptest! {
        /// Every slot is sent or skipped, in order, once, never early, whatever the stalls.
        #[test]
        fn nothing_is_lost_or_early(
            stalls in prop::collection::vec(prop_oneof![Just(0_u64), 0..200_000_u64, 0..20_000_000_u64], 1..40),
            interval in 1_000_u64..1_000_000,
            policy in prop_oneof![Just(AfterStall::Skip), Just(AfterStall::Spread), Just(AfterStall::Burst)],
        ) {
            let mut pacer = pacer(interval, 50_000_000, policy);
            let mut log: Vec<(u64, Slot)> = Vec::new();
            let stall = |wake| stalls.get(wake as usize).copied().unwrap_or(0);
            run(&mut pacer, stall, |now, slot| log.push((now, slot)));
            prop_assert_eq!(log.len() as u64 + pacer.skipped(), 50_000_000_u64.div_ceil(interval));
            prop_assert!(log.iter().all(|(now, slot)| *now >= slot.offset));
            prop_assert!(log.windows(2).all(|pair| pair[0].1.number < pair[1].1.number));
            prop_assert!(policy == AfterStall::Skip || pacer.skipped() == 0);
        }

        /// Whatever the stalls, here in thousandths of the interval: after two at once the next one
        /// keeps its distance.
        #[test]
        fn no_three_leave_close_together(
            stalls in prop::collection::vec(prop_oneof![0..2_000_u64, 0..200_000_u64], 1..100),
            interval in 80_000_u64..1_000_000,
        ) {
            let mut pacer = pacer(interval, SECOND / 5, AfterStall::Skip);
            let mut left = Vec::new();
            let stall = |wake| stalls.get(wake as usize).map_or(0, |share| share * interval / 1000);
            run(&mut pacer, stall, |now, _| left.push(now));
            prop_assert!(left.windows(3).all(|three| three[2] - three[0] >= interval * 3 / 4));
        }

        /// The default never makes up for a stall of 10 ms by more than two packets at once.
        #[test]
        fn a_stall_makes_no_burst(interval in 1_000_u64..5_000_000, at in 0_u64..20) {
            let mut pacer = pacer(interval, 100_000_000, AfterStall::Skip);
            let (mut stalled, mut most) = (0, 0);
            let (mut now, mut wakes, mut batch) = (0, 0, Vec::new());
            while let Some(next) = pacer.next() {
                now = next.max(now) + if wakes == at { 10_000_000 } else { 0 };
                pacer.due(now, 64, &mut batch);
                stalled += u64::from(wakes == at);
                most = most.max(batch.len());
                wakes += 1;
            }
            prop_assert!(most <= 2, "{} packets at once", most);
            prop_assert!(stalled == 1 || 100_000_000 / interval < at);
        }
    }
}
