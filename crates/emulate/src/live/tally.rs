//! Times summed up: exact mean, deviation and extremes, percentiles to a thousandth.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Times in nanoseconds.
#[derive(Clone, Debug)]
pub struct Tally {
    histogram: Histogram<u64>,
    /// Distances from it keep the sums of squares small.
    first: u64,
    sum: i128,
    squares: u128,
    least: u64,
    most: u64,
}

/// What a [`Tally`] comes to, in nanoseconds; null where it is of nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Mean.
    pub mean: Option<f64>,
    /// Standard deviation.
    pub deviation: Option<f64>,
    /// Smallest.
    pub min: Option<u64>,
    /// Median.
    pub p50: Option<u64>,
    /// 99th percentile.
    pub p99: Option<u64>,
    /// 99.9th percentile.
    pub p999: Option<u64>,
    /// Largest.
    pub max: Option<u64>,
}

/// Significant digits of percentiles; hdrhistogram knows 0 to 5.
const DIGITS: u8 = 3;

impl Default for Tally {
    fn default() -> Tally {
        let histogram = Histogram::new(DIGITS).expect("from 0 to 5 digits there is one");
        Tally { histogram, first: 0, sum: 0, squares: 0, least: u64::MAX, most: 0 }
    }
}

impl Tally {
    /// One more.
    pub fn add(&mut self, ns: u64) {
        if self.histogram.is_empty() {
            self.first = ns;
        }
        // It grows as far as it has to.
        let _ = self.histogram.record(ns);
        let distance = i128::from(ns) - i128::from(self.first);
        self.sum += distance;
        self.squares = self.squares.saturating_add((distance * distance).unsigned_abs());
        self.least = self.least.min(ns);
        self.most = self.most.max(ns);
    }

    /// The summary so far.
    pub fn summary(&self) -> Summary {
        if self.histogram.is_empty() {
            return Summary::default();
        }
        let count = self.histogram.len() as f64;
        let offset = self.sum as f64 / count;
        let variance = (self.squares as f64 / count - offset * offset).max(0.0);
        let percentile = |share| {
            let ns = self.histogram.value_at_quantile(share);
            Some(ns.clamp(self.least, self.most))
        };
        Summary {
            mean: Some(self.first as f64 + offset),
            deviation: Some(variance.sqrt()),
            min: Some(self.least),
            p50: percentile(0.5),
            p99: percentile(0.99),
            p999: percentile(0.999),
            max: Some(self.most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_that_of_the_values() {
        assert_eq!(Tally::default().summary(), Summary::default());
        let mut tally = Tally::default();
        // 200 ms, and up to 999 ns more.
        (0..1000).for_each(|ns| tally.add(200_000_000 + ns));
        let summary = tally.summary();
        assert_eq!(summary.mean, Some(200_000_499.5));
        assert!((summary.deviation.unwrap() - 288.675).abs() < 0.001, "{summary:?}");
        assert_eq!((summary.min, summary.max), (Some(200_000_000), Some(200_000_999)));
        let mut tally = Tally::default();
        (1..=10_000).for_each(|ns| tally.add(ns * 1000));
        let p99 = tally.summary().p99.unwrap();
        assert!(p99.abs_diff(9_900_000) <= 9_900, "{p99}");
    }
}
