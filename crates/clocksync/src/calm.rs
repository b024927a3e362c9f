//! The finer guess inside the hard interval: offset and rate from the smallest delays of both
//! directions, under a wander that oscillators really have.
//!
//! Queues delay a message, nothing hastens it: the smallest delays of each direction lie close to
//! the path's own. Halfway between them is the offset as far as the path is symmetric. The rate is
//! the slope of the widest corridor that is free of messages, as in Huygens (NSDI'18).

use crate::envelope::{Envelope, Point};

/// Wander that the guess follows, as a ratio. A quartz strays by some 10⁻⁸ over seconds; a guess
/// that is too calm is clipped to the hard interval.
const WANDER: f64 = 2e-8;

/// Halvings of the range of slopes: enough for any that a double can tell apart.
const HALVINGS: usize = 60;

/// A smooth guess of the residual, in nanoseconds over ticks.
pub(crate) struct Calm {
    slope: f64,
    upper: Envelope,
    lower: Envelope,
}

impl Calm {
    /// `uppers`: residuals of the upper constraints; `lowers`: of the lower ones, negated; both by
    /// ascending `x`. The slope is sought within `±half_range`.
    pub(crate) fn new(uppers: &[Point], lowers: &[Point], half_range: f64, nominal: f64) -> Calm {
        let slope = widest_corridor(uppers, lowers, half_range);
        let rho = WANDER * nominal;
        let level = |points: &[Point], sign: f64| -> Vec<Point> {
            points.iter().map(|p| Point { y: p.y - sign * slope * p.x, ..*p }).collect()
        };
        Calm {
            slope,
            upper: Envelope::new(&level(uppers, 1.0), rho),
            lower: Envelope::new(&level(lowers, -1.0), rho),
        }
    }

    pub(crate) fn at(&self, x: f64) -> f64 {
        self.slope * x + 0.5 * (self.upper.at(x) - self.lower.at(x))
    }

    pub(crate) fn breaks(&self) -> impl Iterator<Item = f64> {
        self.upper.breaks().iter().chain(self.lower.breaks()).map(|p| p.x)
    }
}

/// The slope at which the vertical gap between uppers and lowers is widest. The gap is a concave
/// function of the slope: on the side where it rises the touching pair says so.
fn widest_corridor(uppers: &[Point], lowers: &[Point], half_range: f64) -> f64 {
    let touching = |points: &[Point], sign: f64, slope: f64| {
        let height = |p: &Point| p.y - sign * slope * p.x;
        points.iter().min_by(|a, b| height(a).total_cmp(&height(b))).map_or(0.0, |p| p.x)
    };
    let (mut low, mut high) = (-half_range, half_range);
    for _ in 0..HALVINGS {
        let slope = 0.5 * (low + high);
        // The gap is y_u − s·x_u + y_l + s·x_l at the touching points, so it rises with s where
        // the lower one is later.
        if touching(lowers, -1.0, slope) > touching(uppers, 1.0, slope) {
            low = slope;
        } else {
            high = slope;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uppers and negated lowers around a line, with delays of `delay(i)` above and below.
    fn around(line: impl Fn(f64) -> f64, delay: impl Fn(usize) -> f64) -> (Vec<Point>, Vec<Point>) {
        let xs = (0..200).map(|i| i as f64 * 1e8);
        let uppers = xs.clone().enumerate().map(|(i, x)| Point { x, y: line(x) + delay(2 * i) });
        let lowers = xs.enumerate().map(|(i, x)| Point { x, y: delay(2 * i + 1) - line(x) });
        (uppers.collect(), lowers.collect())
    }

    #[test]
    fn the_smallest_delays_of_both_directions_give_rate_and_offset() {
        // One message in eight is quick, in both directions alike.
        let delay = |i: usize| if i % 16 < 2 { 1_000.0 } else { 3_000.0 + 500.0 * (i % 7) as f64 };
        let line = |x: f64| 250.0 + 3e-8 * x;
        let (uppers, lowers) = around(line, delay);
        let calm = Calm::new(&uppers, &lowers, 1e-6, 0.4);
        for x in [0.0, 3e9, 1.5e10] {
            assert!((calm.at(x) - line(x)).abs() < 40.0, "{} at {x}", calm.at(x) - line(x));
        }
    }

    #[test]
    fn it_bends_with_the_oscillator() {
        // A parabola whose slope changes by less than the wander that the guess follows.
        let line = |x: f64| 100.0 + 1e-19 * (x - 1e10) * (x - 1e10);
        let (uppers, lowers) = around(line, |_| 800.0);
        let calm = Calm::new(&uppers, &lowers, 1e-6, 0.4);
        for x in [0.0, 5e9, 1e10, 1.9e10] {
            assert!((calm.at(x) - line(x)).abs() < 20.0, "{} at {x}", calm.at(x) - line(x));
        }
    }
}
