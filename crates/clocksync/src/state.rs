//! What a host knows of the global clock at one moment, in a form that any program can use without
//! asking again: the online estimator makes it, the clock page hands it on.

pub use loopscope_clock::Status;
use loopscope_time::{Counter, GlobalNs};

/// A line with a width, from the host's counter to global time.
///
/// At a counter `c` from [`State::since`] on and before [`State::expires`] global time is within
/// `best − below_ns − w ..= best + above_ns + w`, where `best` = `global` + `fraction_ns` +
/// (`c` − `anchor`) · `ns_per_tick` and `w` = |`c` − `anchor`| · `ns_per_tick` · `drift`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// Rises when the counter or the reference's clock was disturbed: instants of two epochs have
    /// no distance.
    pub epoch: u32,
    /// What this is worth.
    pub status: Status,
    /// Where the line begins.
    pub anchor: Counter,
    /// Global time there, whole nanoseconds.
    pub global: GlobalNs,
    /// And their fraction, 0 to 1.
    pub fraction_ns: f64,
    /// Hard: how far truth may lie before the line, ns.
    pub below_ns: f64,
    /// Hard: how far after it, ns.
    pub above_ns: f64,
    /// Error bound that the claimed share of instants lies within, ns. Unlike the hard one it
    /// does not grow from the anchor: the next state is to come within some tens of milliseconds.
    pub calibrated_ns: f64,
    /// How far the counters of two of the host's processors may be apart, ns: in the widths
    /// already, and in the time between two readings, which may be of two processors. 0: it is not
    /// known.
    pub apart_ns: f64,
    /// The line's slope.
    pub ns_per_tick: f64,
    /// By how much the hard width grows on either side, ns for each ns from the anchor.
    pub drift: f64,
    /// Before here nothing of this holds: a counter was disturbed, or may have been.
    pub since: Counter,
    /// From here on it is [`Status::Holdover`], if it was [`Status::Synchronised`].
    pub stale: Counter,
    /// From here on nothing of this holds.
    pub expires: Counter,
}
