//! Shares of a CPU, period by period. Sans-I/O.

use serde::Serialize;

/// How a thread's share came out in its periods.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Shares {
    pub(super) periods: u64,
    pub(super) mean: Option<f64>,
    /// Standard deviation from period to period.
    pub(super) deviation: Option<f64>,
}

/// Mean and deviation as they come (Welford).
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Tally {
    pub(super) fn add(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    pub(super) fn shares(&self) -> Shares {
        Shares {
            periods: self.count,
            mean: (self.count > 0).then_some(self.mean),
            deviation: (self.count > 1).then(|| (self.squares / (self.count - 1) as f64).sqrt()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_are_the_textbooks() {
        let mut tally = Tally::default();
        assert_eq!(tally.shares(), Shares::default());
        for value in [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0] {
            tally.add(value);
        }
        let Shares { periods, mean, deviation } = tally.shares();
        assert_eq!((periods, mean), (8, Some(5.0)));
        assert!((deviation.unwrap() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
    }
}
