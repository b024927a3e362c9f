//! What a message says of two clocks, in numbers small enough for doubles.

use loopscope_time::{Counter, Frequency, GlobalNs};

use crate::Span;
use crate::envelope::Point;
use crate::exchange::{Exchange, Pair};

/// A message between a follower and the reference: a probe, a reply, or one of a program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The direction in which the message went.
    pub way: Way,
    /// When it was sent or received, on the follower's counter.
    pub own: Span,
    /// When it was received or sent, on the reference's counter.
    pub reference: Span,
    /// Whether it may speak for others, or is a constraint and nothing else.
    pub quality: Pair,
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Follower to reference: global time when it was sent is at most the time of its arrival.
    Forward,
    /// Reference to follower: global time when it was received is at least the time of its
    /// departure.
    Back,
}

impl Exchange {
    /// Its messages that have both stamps.
    pub fn messages(&self) -> impl Iterator<Item = Message> + use<> {
        let message = |way, own: Option<Span>, reference: Option<Span>, quality| {
            Some(Message { way, own: own?, reference: reference?, quality })
        };
        let forward = message(Way::Forward, self.t1, self.t2, self.forward);
        let back = message(Way::Back, self.t4, self.t3, self.back);
        forward.into_iter().chain(back)
    }
}

/// A message in a [`Frame`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constraint {
    pub(crate) way: Way,
    /// Truth is not above (forward) or below (back) this point.
    pub(crate) edge: Point,
    /// The middle of its stamps; `None` for one that is nothing but a constraint.
    pub(crate) middle: Option<Point>,
}

impl Constraint {
    /// Half of what its stamps' widths add to it, ns; none if it is nothing but a constraint.
    pub(crate) fn half_width(&self) -> Option<f64> {
        self.middle.map(|middle| (self.edge.y - middle.y).abs())
    }
}

/// Two counters from one instant on. A point is the follower's ticks since, and by how many
/// nanoseconds the reference's clock has gained on the follower's, both at nominal rates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    own: Counter,
    reference: Counter,
    own_hz: i128,
    reference_hz: i128,
}

/// What the arithmetic may add to a constraint, in nanoseconds.
const SLACK_NS: f64 = 0.01;

impl Frame {
    pub(crate) fn new(own: (Counter, Frequency), reference: (Counter, Frequency)) -> Frame {
        let ((own, own_hz), (reference, reference_hz)) = (own, reference);
        let (own_hz, reference_hz) = (own_hz.hz().into(), reference_hz.hz().into());
        Frame { own, reference, own_hz, reference_hz }
    }

    pub(crate) fn own(&self) -> Counter {
        self.own
    }

    /// Nominal, of the follower.
    pub(crate) fn ns_per_tick(&self) -> f64 {
        1e9 / self.own_hz as f64
    }

    pub(crate) fn x(&self, own: Counter) -> f64 {
        own.ticks_since(self.own) as f64
    }

    /// The counter at whole ticks.
    pub(crate) fn counter(&self, x: f64) -> Counter {
        Counter(self.own.0.wrapping_add_signed(x as i64))
    }

    /// Global time, as whole nanoseconds and a fraction, at a place where the reference has gained
    /// so many.
    pub(crate) fn global(&self, at: Counter, gained: f64) -> (GlobalNs, f64) {
        let scaled = |ticks: i128, hz: i128| {
            let ns = ticks * 1_000_000_000;
            (ns.div_euclid(hz), ns.rem_euclid(hz) as f64 / hz as f64)
        };
        let (begin, begin_part) = scaled(self.reference.0.into(), self.reference_hz);
        let (since, since_part) = scaled(at.ticks_since(self.own).into(), self.own_hz);
        let part = begin_part + since_part + gained;
        let whole = begin + since + part.floor() as i128;
        (GlobalNs(i64::try_from(whole).unwrap_or(i64::MAX)), part - part.floor())
    }

    /// Both counters in halves of ticks. Their difference is exact, and small.
    fn point(&self, twice_own: i128, twice_reference: i128) -> Point {
        let own = twice_own - 2 * i128::from(self.own.0);
        let reference = twice_reference - 2 * i128::from(self.reference.0);
        let gained = reference * self.own_hz - own * self.reference_hz;
        let y = gained as f64 / (self.own_hz as f64 * self.reference_hz as f64) * 0.5e9;
        Point { x: 0.5 * own as f64, y }
    }

    pub(crate) fn constraint(&self, message: &Message) -> Constraint {
        let Message { way, own, reference, quality } = *message;
        // A reading stands for the whole tick that begins there: the later end of an interval is
        // the begin of the next tick.
        let [own_lo, own_hi] = [own.lo.0.into(), i128::from(own.hi.0) + 1];
        let [reference_lo, reference_hi] = [reference.lo.0.into(), i128::from(reference.hi.0) + 1];
        let edge = match way {
            Way::Forward => self.point(2 * own_lo, 2 * reference_hi),
            Way::Back => self.point(2 * own_hi, 2 * reference_lo),
        };
        // Ticks beyond 2⁵³, some 40 days, are not exact any more.
        let slack = SLACK_NS + f64::EPSILON * edge.x.abs();
        let slack = if way == Way::Forward { slack } else { -slack };
        let middle = self.point(own_lo + own_hi, reference_lo + reference_hi);
        Constraint {
            way,
            edge: Point { y: edge.y + slack, ..edge },
            middle: (quality != Pair::Distorted).then_some(middle),
        }
    }
}
