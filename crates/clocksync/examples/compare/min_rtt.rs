//! Weighting by round trip and regression, as chrony does it (its `sourcestats` and `regress`, by
//! their published rules; the code is our own): the last 64 samples, of which the older ones go
//! while the residuals' signs have too few runs to be of one line; weights fall with the round
//! trip's distance from the least one. chrony would steer a clock by the line, here it is the
//! clock.

use std::collections::VecDeque;

use super::{Peer, Sample};

const SAMPLES: usize = 64;
/// Samples of a regression at least.
const LEAST: usize = 3;
/// How much of a round trip's distance from the least one is noise of the offset.
const SD_TO_DISTANCE: f64 = 0.7;

#[derive(Default)]
pub struct MinRtt {
    samples: VecDeque<Sample>,
    /// Place, offset there and slope.
    line: Option<(f64, f64, f64)>,
}

impl Peer for MinRtt {
    fn see(&mut self, sample: Sample) {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        let distances: Vec<f64> = self.samples.iter().map(|s| 0.5 * s.round_trip()).collect();
        let least = distances.iter().copied().fold(f64::INFINITY, f64::min);
        let mean = distances.iter().sum::<f64>() / distances.len() as f64;
        // chrony's least standard deviation is its clock's precision: some nanoseconds.
        let sd = (mean - least).clamp(10.0_f64.min(least), least.max(1.0));
        let variances: Vec<f64> =
            distances.iter().map(|d| (1.0 + SD_TO_DISTANCE * (d - least) / sd).powi(2)).collect();
        let mut start = 0;
        loop {
            let rest: Vec<(f64, f64, f64)> = (start..self.samples.len())
                .map(|i| (self.samples[i].x(), self.samples[i].offset(), variances[i]))
                .collect();
            let line = regression(&rest);
            if rest.len() <= LEAST || runs(&rest, line) > critical_runs(rest.len()) {
                self.line = Some(line);
                self.samples.drain(..start);
                return;
            }
            start += 1;
        }
    }

    fn at(&self, x: f64) -> Option<f64> {
        self.line.map(|(at, offset, slope)| offset + slope * (x - at))
    }
}

fn regression(points: &[(f64, f64, f64)]) -> (f64, f64, f64) {
    let weight: f64 = points.iter().map(|p| 1.0 / p.2).sum();
    let mean =
        |of: fn(&(f64, f64, f64)) -> f64| points.iter().map(|p| of(p) / p.2).sum::<f64>() / weight;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let xx: f64 = points.iter().map(|p| (p.0 - x).powi(2) / p.2).sum();
    let xy: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y) / p.2).sum();
    (x, y, if xx > 0.0 { xy / xx } else { 0.0 })
}

fn runs(points: &[(f64, f64, f64)], (x, y, slope): (f64, f64, f64)) -> f64 {
    let above: Vec<bool> = points.iter().map(|p| p.1 > y + slope * (p.0 - x)).collect();
    1.0 + above.windows(2).filter(|pair| pair[0] != pair[1]).count() as f64
}

/// Runs of signs that one in twenty random sequences does not exceed: chrony's table, near enough.
fn critical_runs(count: usize) -> f64 {
    let count = count as f64;
    0.5 * count - 1.645 * 0.5 * (count - 1.0).sqrt()
}
