//! The hard interval while a run goes on: from every message seen, in memory that does not grow.
//!
//! Of each direction the message that reaches farthest is kept, and carried on at the rates that
//! all messages leave open. Those are messages of [`SPAN_S`] to twice that, so the assumption
//! reads: within any such stretch of an epoch the follower's rate stays within the wander of one
//! mean. Whatever is forgotten can only widen the interval.

use crate::constraint::{Constraint, Way};
use crate::envelope::Point;
use crate::rate::RateRange;

/// Largest distance of a mean rate from nominal that is believed, in parts per million: the range
/// in which Linux itself disciplines a clock.
pub const MAX_RATE_PPM: f64 = 500.0;

/// Seconds after which messages begin to be forgotten.
pub(crate) const SPAN_S: f64 = 1000.0;

/// Where truth is, as a residual: nanoseconds over ticks. Good for one epoch.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// Nanoseconds a tick.
    wander: f64,
    limit: f64,
    /// Ticks.
    span: f64,
    /// Rate ranges from messages since the begin of the previous stretch, and since the begin of
    /// this one.
    older: RateRange,
    newer: RateRange,
    newer_since: f64,
    /// The last message that gave a rate.
    last: f64,
    upper: Option<Point>,
    lower: Option<Point>,
}

impl Bounds {
    /// `nominal` in nanoseconds a tick, `wander` as a ratio.
    pub(crate) fn new(nominal: f64, wander: f64) -> Bounds {
        let limit = MAX_RATE_PPM * 1e-6 * nominal;
        let wander = wander * (nominal + limit);
        Bounds {
            wander,
            limit,
            span: SPAN_S * 1e9 / nominal,
            older: RateRange::new(wander),
            newer: RateRange::new(wander),
            newer_since: 0.0,
            last: f64::NEG_INFINITY,
            upper: None,
            lower: None,
        }
    }

    /// Nanoseconds a tick.
    pub(crate) fn wander(&self) -> f64 {
        self.wander
    }

    /// Least and largest rate at any moment, against nominal, in nanoseconds a tick.
    pub(crate) fn rates(&self) -> [f64; 2] {
        let low = self.older.low().unwrap_or(-self.limit).max(-self.limit);
        let high = self.older.high().unwrap_or(self.limit).min(self.limit);
        // Nominal frequencies that are wrong: what messages say goes before what is believed.
        let low = low.min(self.older.high().unwrap_or(low));
        let high = high.max(self.older.low().unwrap_or(high));
        [low - self.wander, high + self.wander]
    }

    /// Least and largest value at `x`; `None` before there are messages of both directions.
    pub(crate) fn at(&self, x: f64) -> Option<[f64; 2]> {
        let rates = self.rates();
        let (upper, lower) = (self.upper?, self.lower?);
        Some([carried(lower, x, rates)[0], carried(upper, x, rates)[1]])
    }

    /// Between the two at `x` if the rate is `slope`.
    pub(crate) fn middle(&self, x: f64, slope: f64) -> Option<f64> {
        let (upper, lower) = (self.upper?, self.lower?);
        let [[upper, _], [lower, _]] = [upper, lower].map(|p| carried(p, x, [slope; 2]));
        Some(0.5 * (upper + lower))
    }

    /// By how much a message misses what those of the other direction say, in nanoseconds: at the
    /// rate that leaves most, and at the middle one. `None` before there are any.
    pub(crate) fn room(&self, constraint: &Constraint) -> Option<[f64; 2]> {
        let (edge, [low, high]) = (constraint.edge, self.rates());
        let middle = 0.5 * (low + high);
        let room = |rates: [f64; 2]| match constraint.way {
            Way::Forward => self.lower.map(|lower| edge.y - carried(lower, edge.x, rates)[0]),
            Way::Back => self.upper.map(|upper| carried(upper, edge.x, rates)[1] - edge.y),
        };
        Some([room([low, high])?, room([middle; 2])?])
    }

    /// What is known of the rate, and of no place.
    pub(crate) fn without_places(&self) -> Bounds {
        Bounds { upper: None, lower: None, ..self.clone() }
    }

    /// Whether a message agrees with all earlier ones.
    pub(crate) fn admits(&self, constraint: &Constraint) -> bool {
        let edge = constraint.edge;
        if edge.x > self.last && self.older.admits(constraint, 0).is_err() {
            return false;
        }
        self.room(constraint).is_none_or(|[room, _]| room >= 0.0)
    }

    /// Takes in a message that is admitted.
    pub(crate) fn add(&mut self, constraint: &Constraint) {
        let edge = constraint.edge;
        // One that others have overtaken says nothing of rates.
        if edge.x > self.last {
            self.last = edge.x;
            self.older.add(constraint, 0);
            self.newer.add(constraint, 0);
            if edge.x - self.newer_since > self.span {
                self.older = std::mem::replace(&mut self.newer, RateRange::new(self.wander));
                self.newer_since = edge.x;
            }
        }
        let rates = self.rates();
        // At the later one of the two.
        let beyond = |kept: &mut Option<Point>, side: usize| {
            let x = kept.map_or(edge.x, |kept| kept.x.max(edge.x));
            let sign = if side == 1 { 1.0 } else { -1.0 };
            let new = sign * carried(edge, x, rates)[side];
            if kept.is_none_or(|kept| new <= sign * carried(kept, x, rates)[side]) {
                *kept = Some(edge);
            }
        };
        match constraint.way {
            Way::Forward => beyond(&mut self.upper, 1),
            Way::Back => beyond(&mut self.lower, 0),
        }
    }
}

/// Least and largest value at `x` of what has the value of `from` there.
fn carried(from: Point, x: f64, [low, high]: [f64; 2]) -> [f64; 2] {
    let ticks = x - from.x;
    let (low, high) = if ticks < 0.0 { (high, low) } else { (low, high) };
    [from.y + ticks * low, from.y + ticks * high]
}
