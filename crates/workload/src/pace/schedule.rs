//! When packets are meant to leave: exact instants from the start of the run, never accumulated.

use std::sync::Arc;

use fastrand::Rng;

/// A time between packets in nanoseconds, exact: of a rate it seldom is a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    numerator: u64,
    denominator: u64,
}

impl Interval {
    pub(super) fn of_ns(ns: u64) -> Interval {
        Interval { numerator: ns, denominator: 1 }
    }

    /// Between packets of `size` bytes at `rate` bit/s; `None` where that is beyond 584 years.
    pub(super) fn of_rate(size: u64, rate: u64) -> Option<Interval> {
        Some(Interval { numerator: size.checked_mul(8_000_000_000)?, denominator: rate })
    }

    /// `count` intervals, rounded down.
    pub(super) fn times(self, count: u64) -> u64 {
        let ns = u128::from(count) * u128::from(self.numerator) / u128::from(self.denominator);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    pub(super) fn ns(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }

    /// How many packets begin within `ns`, the first one at once.
    fn within(self, ns: u64) -> u64 {
        let count = (u128::from(ns) * u128::from(self.denominator)).div_ceil(self.numerator.into());
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

/// How packets follow each other.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Distribution {
    /// One interval apart.
    Constant(Interval),
    /// Exponentially distributed intervals of this mean.
    Poisson(Interval),
    /// Constant for `on_ns`, then nothing for `off_ns`, and so on.
    OnOff { interval: Interval, on_ns: u64, off_ns: u64 },
    /// Intervals in nanoseconds, again from the first after the last; their sum is not zero.
    Trace(Arc<[u64]>),
}

impl Distribution {
    /// The name that people use.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Constant(_) => "constant",
            Self::Poisson(_) => "poisson",
            Self::OnOff { .. } => "on-off",
            Self::Trace(_) => "trace",
        }
    }

    /// Mean time between packets in nanoseconds; between those of one burst where there are bursts.
    pub(super) fn interval_ns(&self) -> f64 {
        match self {
            Self::Constant(interval) | Self::Poisson(interval) | Self::OnOff { interval, .. } => {
                interval.ns()
            }
            Self::Trace(intervals) => {
                intervals.iter().map(|&ns| ns as f64).sum::<f64>() / intervals.len() as f64
            }
        }
    }
}

/// What is asked for in all.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) distribution: Distribution,
    pub(super) seed: u64,
    /// Packets; `u64::MAX`: until the duration is over.
    pub(super) count: u64,
    /// Nanoseconds from the start in which packets are meant to leave.
    pub(super) duration_ns: u64,
}

/// A packet's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// From 0, over all processes.
    pub(super) number: u64,
    /// Nanoseconds from the start.
    pub(super) offset: u64,
}

/// The slots of one process out of several: every `of`-th, so that together they are the plan.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    plan: Plan,
    rng: Rng,
    of: u64,
    /// The next slot of any process that is not made yet.
    number: u64,
    /// Where the last one made was, for the distributions that add up whole nanoseconds.
    offset: u64,
    /// Slots of the others before the next own one.
    others: u64,
}

impl Schedule {
    pub(super) fn new(plan: &Plan, process: u64, of: u64) -> Schedule {
        let rng = Rng::with_seed(plan.seed);
        Schedule { plan: plan.clone(), rng, of, number: 0, offset: 0, others: process }
    }

    fn make(&mut self) -> Option<Slot> {
        let number = self.number;
        if number >= self.plan.count {
            return None;
        }
        self.number += 1;
        self.offset = match &self.plan.distribution {
            Distribution::Constant(interval) => interval.times(number),
            Distribution::Poisson(interval) => {
                // 1 - f64() is above 0.
                let wait = -(1.0 - self.rng.f64()).ln() * interval.ns();
                self.offset.saturating_add(wait.round() as u64)
            }
            Distribution::OnOff { interval, on_ns, off_ns } => {
                let of_burst = interval.within(*on_ns);
                let before = (on_ns + off_ns).saturating_mul(number / of_burst);
                before.saturating_add(interval.times(number % of_burst))
            }
            Distribution::Trace(_) if number == 0 => 0,
            Distribution::Trace(intervals) => {
                let place = ((number - 1) % intervals.len() as u64) as usize;
                self.offset.saturating_add(intervals[place])
            }
        };
        (self.offset < self.plan.duration_ns).then_some(Slot { number, offset: self.offset })
    }
}

impl Iterator for Schedule {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        for _ in 0..std::mem::replace(&mut self.others, self.of - 1) {
            self.make()?;
        }
        self.make()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(distribution: Distribution, count: u64, duration_ns: u64) -> Plan {
        Plan { distribution, seed: 1, count, duration_ns }
    }

    fn offsets(plan: &Plan) -> Vec<u64> {
        Schedule::new(plan, 0, 1).map(|slot| slot.offset).collect()
    }

    #[test]
    fn a_rate_is_exact_over_an_hour() {
        // 3 packets of 1 kB at 7 Mbit/s take 24000/7 us.
        let interval = Interval::of_rate(1000, 7_000_000).unwrap();
        let hour = 3_600_000_000_000;
        let last = Schedule::new(&plan(Distribution::Constant(interval), u64::MAX, hour), 0, 1)
            .last()
            .unwrap();
        assert_eq!(last.number + 1, 7_000_000 * 3600 / 8000);
        assert_eq!(last.offset, (u128::from(last.number) * 8_000_000 / 7) as u64);
    }

    #[test]
    fn bursts_begin_on_their_own_grid() {
        let interval = Interval::of_ns(30);
        let distribution = Distribution::OnOff { interval, on_ns: 100, off_ns: 900 };
        let expected = [0, 30, 60, 90, 1000, 1030, 1060, 1090, 2000];
        assert_eq!(offsets(&plan(distribution, u64::MAX, 2001)), expected);
    }

    #[test]
    fn a_trace_begins_again() {
        let distribution = Distribution::Trace([5, 0, 7].into());
        assert_eq!(offsets(&plan(distribution, 6, u64::MAX)), [0, 5, 5, 12, 17, 17]);
    }

    #[test]
    fn poisson_has_its_mean_and_deviation_and_follows_its_seed() {
        let mut asked = plan(Distribution::Poisson(Interval::of_ns(100_000)), 100_000, u64::MAX);
        let first = offsets(&asked);
        assert_eq!(first, offsets(&asked));
        let gaps: Vec<f64> = first.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let squares = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>();
        let deviation = (squares / gaps.len() as f64).sqrt();
        // Four standard errors of 10^5 exponential intervals are 1.3 %, of their deviation 1.8 %.
        assert!((mean / 1e5 - 1.0).abs() < 0.013, "{mean}");
        assert!((deviation / 1e5 - 1.0).abs() < 0.018, "{deviation}");
        asked.seed = 2;
        assert_ne!(first, offsets(&asked));
    }

    proptest! {
        /// Processes together send the plan, each slot once.
        #[test]
        fn shares_make_the_whole(of in 1_u64..7, count in 0_u64..200, kind in 0..4) {
            let interval = Interval::of_rate(100, 12_345_678).unwrap();
            let distribution = match kind {
                0 => Distribution::Constant(interval),
                1 => Distribution::Poisson(interval),
                2 => Distribution::OnOff { interval, on_ns: 200_000, off_ns: 100_000 },
                _ => Distribution::Trace([3, 0, 1_000_000].into()),
            };
            let plan = plan(distribution, count, 5_000_000);
            let whole: Vec<Slot> = Schedule::new(&plan, 0, 1).collect();
            let mut shared: Vec<Slot> =
                (0..of).flat_map(|process| Schedule::new(&plan, process, of)).collect();
            shared.sort_by_key(|slot| slot.number);
            prop_assert_eq!(whole, shared);
        }
    }
}
