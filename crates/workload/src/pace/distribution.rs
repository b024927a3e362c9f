//! The spread of many times, for results: percentiles of a histogram whose classes are 0.1 % wide.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The largest time that is told apart.
const HOUR_NS: u64 = 3_600_000_000_000;

/// Times in nanoseconds, none negative.
#[derive(Clone, Debug)]
pub(super) struct Times {
    histogram: Histogram<u64>,
    sum: u128,
    max: u64,
}

/// The same as it goes to another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Counted {
    counts: Vec<(u64, u64)>,
    sum: u128,
    max: u64,
}

/// What is said of them, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Percentiles {
    pub(super) mean: f64,
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) p999: u64,
    pub(super) max: u64,
}

impl Times {
    pub(super) fn new() -> Times {
        let histogram = Histogram::new_with_max(HOUR_NS, 3);
        Times { histogram: histogram.expect("bounds and digits are right"), sum: 0, max: 0 }
    }

    pub(super) fn add(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
    }

    /// `None` where there are none.
    pub(super) fn percentiles(&self) -> Option<Percentiles> {
        let count = self.histogram.len();
        let at = |quantile| self.histogram.value_at_quantile(quantile).min(self.max);
        (count > 0).then(|| Percentiles {
            mean: self.sum as f64 / count as f64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.max,
        })
    }

    pub(super) fn merge(&mut self, other: &Counted) {
        for &(ns, count) in &other.counts {
            self.histogram.saturating_record_n(ns, count);
        }
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    pub(super) fn counted(&self) -> Counted {
        let classes = self.histogram.iter_recorded();
        let counts =
            classes.map(|class| (class.value_iterated_to(), class.count_at_value())).collect();
        Counted { counts, sum: self.sum, max: self.max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_the_classes_width_also_when_merged() {
        let (mut all, mut even, mut odd) = (Times::new(), Times::new(), Times::new());
        for ns in 1..=100_000 {
            all.add(ns);
            if ns % 2 == 0 { even.add(ns) } else { odd.add(ns) }
        }
        let mut merged = Times::new();
        merged.merge(&even.counted());
        merged.merge(&odd.counted());
        for times in [all, merged] {
            let found = times.percentiles().unwrap();
            assert_eq!((found.mean, found.max), (50_000.5, 100_000));
            for (got, exact) in [(found.p50, 50_000), (found.p99, 99_000), (found.p999, 99_900)] {
                assert!(got.abs_diff(exact) <= exact / 1000 + 1, "{got} instead of {exact}");
            }
        }
        assert_eq!(Times::new().percentiles(), None);
    }
}
