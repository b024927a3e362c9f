//! What messages leave open of a follower's mean rate.
//!
//! Between an upper constraint and a later lower one global time passed at least as fast as the
//! line through both; between a lower and a later upper one at most. Where the rate strays from its
//! mean by at most the wander, each pair bounds the mean with that slack. Messages contradict each
//! other where no mean is left, and only there: with a mean in the range, no tent of one message
//! cuts off another message.

use crate::constraint::{Constraint, Way};
use crate::envelope::Point;

/// Corners kept of each hull. Fewer than there are can only widen the range.
const CORNERS: usize = 512;

/// Slopes in nanoseconds a tick, against nominal.
#[derive(Clone, Debug)]
pub(crate) struct RateRange {
    wander: f64,
    /// From uppers to lowers.
    at_least: Steepest,
    /// From lowers to uppers, negated.
    at_most: Steepest,
}

/// Messages, by the numbers they came with, of which one at least is wrong or from another time.
pub(crate) type Suspects = [usize; 4];

impl RateRange {
    /// `wander` in nanoseconds a tick.
    pub(crate) fn new(wander: f64) -> RateRange {
        RateRange { wander, at_least: Steepest::default(), at_most: Steepest::default() }
    }

    /// Least mean rate; none while nothing bounds it.
    pub(crate) fn low(&self) -> Option<f64> {
        self.at_least.best.map(|pair| pair.slope - self.wander)
    }

    /// Largest mean rate.
    pub(crate) fn high(&self) -> Option<f64> {
        self.at_most.best.map(|pair| self.wander - pair.slope)
    }

    /// Whether a message after all others would leave a mean; if not, who is to be asked why.
    pub(crate) fn admits(&self, constraint: &Constraint, number: usize) -> Result<(), Suspects> {
        let (mut least, mut most) = (self.at_least.best, self.at_most.best);
        match constraint.way {
            Way::Forward => most = self.at_most.with(most, constraint.edge.negated(), number),
            Way::Back => least = self.at_least.with(least, constraint.edge, number),
        }
        match (least, most) {
            (Some(least), Some(most)) if least.slope + most.slope > 2.0 * self.wander => {
                Err([least.from, least.to, most.from, most.to])
            }
            _ => Ok(()),
        }
    }

    /// Adds a message that is after all others.
    pub(crate) fn add(&mut self, constraint: &Constraint, number: usize) {
        let edge = constraint.edge;
        match constraint.way {
            Way::Forward => {
                self.at_most.best = self.at_most.with(self.at_most.best, edge.negated(), number);
                self.at_least.begin_at(edge, number);
            }
            Way::Back => {
                self.at_least.best = self.at_least.with(self.at_least.best, edge, number);
                self.at_most.begin_at(edge.negated(), number);
            }
        }
    }
}

/// The steepest slope from a point of one kind to a later one of another.
#[derive(Clone, Debug, Default)]
struct Steepest {
    /// Lower convex hull of the points of the first kind: the steepest line to a later point
    /// touches it.
    hull: Vec<(Point, usize)>,
    best: Option<Pair>,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    slope: f64,
    from: usize,
    to: usize,
}

impl Steepest {
    fn begin_at(&mut self, point: Point, number: usize) {
        match self.hull.last() {
            Some((last, _)) if last.x == point.x && last.y <= point.y => return,
            Some((last, _)) if last.x == point.x => drop(self.hull.pop()),
            _ => {}
        }
        while let [.., (a, _), (b, _)] = self.hull[..] {
            if a.slope_to(b) < b.slope_to(point) {
                break;
            }
            self.hull.pop();
        }
        self.hull.push((point, number));
        if self.hull.len() > CORNERS {
            let mut number = 0;
            self.hull.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
    }

    /// `best`, or a pair that ends in `target` if that is steeper.
    fn with(&self, best: Option<Pair>, target: Point, to: usize) -> Option<Pair> {
        let hull = match self.hull.split_last() {
            Some(((last, _), before)) if last.x >= target.x => before,
            _ => &self.hull[..],
        };
        if hull.is_empty() {
            return best;
        }
        // The hull's edges, drawn on to the target's place, rise from left to right: the touching
        // corner is where the target is no longer above them.
        let (mut low, mut high) = (0, hull.len() - 1);
        while low < high {
            let mid = (low + high) / 2;
            if hull[mid].0.slope_to(hull[mid + 1].0) < hull[mid + 1].0.slope_to(target) {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        let (point, from) = hull[low];
        let slope = point.slope_to(target);
        if best.is_some_and(|b| b.slope >= slope) {
            return best;
        }
        Some(Pair { slope, from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn constraints() -> impl Strategy<Value = Vec<Constraint>> {
        prop::collection::vec((0u32..2_000, -500.0..500.0f64, any::<bool>()), 1..60).prop_map(
            |raw| {
                let mut all: Vec<Constraint> = raw
                    .into_iter()
                    .map(|(x, y, forward)| Constraint {
                        way: if forward { Way::Forward } else { Way::Back },
                        edge: Point { x: f64::from(x), y },
                        middle: None,
                    })
                    .collect();
                all.sort_by(|a, b| a.edge.x.total_cmp(&b.edge.x));
                // If several are at one tick, some pairs may be missed, which only widens the
                // range.
                all.dedup_by_key(|c| c.edge.x);
                all
            },
        )
    }

    proptest! {
        #[test]
        fn the_range_is_that_of_all_pairs(all in constraints(), wander in 0.0..0.1f64) {
            let mut range = RateRange::new(wander);
            let (mut low, mut high) = (None::<f64>, None::<f64>);
            for (number, c) in all.iter().enumerate() {
                for earlier in all[..number].iter().filter(|e| e.edge.x < c.edge.x) {
                    let slope = earlier.edge.slope_to(c.edge);
                    match (earlier.way, c.way) {
                        (Way::Forward, Way::Back) => {
                            low = Some(low.map_or(slope - wander, |l| l.max(slope - wander)));
                        }
                        (Way::Back, Way::Forward) => {
                            high = Some(high.map_or(slope + wander, |h| h.min(slope + wander)));
                        }
                        _ => {}
                    }
                }
                let left = low.zip(high).is_none_or(|(low, high)| low <= high);
                prop_assert_eq!(range.admits(c, number).is_ok(), left);
                range.add(c, number);
                for (found, all) in [(range.low(), low), (range.high(), high)] {
                    match (found, all) {
                        (None, None) => {}
                        (Some(a), Some(b)) => prop_assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0)),
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
            }
        }
    }
}
