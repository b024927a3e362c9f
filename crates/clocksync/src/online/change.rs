//! What a host reports about its clock and its paths.

use loopscope_time::Counter;

use crate::offline::Cause;

/// Something that happened to a clock or to the path between two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The last reading of the follower's counter before it.
    pub from: Counter,
    /// The first reading of the follower's counter after it.
    pub until: Counter,
    /// What it was.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// The way to the reference and the way back became longer by this, in nanoseconds. The clock
    /// was not touched.
    Path {
        /// The growth of the way to the reference.
        forward_ns: f64,
        /// The growth of the way from the reference.
        back_ns: f64,
    },
    /// A counter was disturbed. What states of earlier epochs told of instants after
    /// [`Change::from`] does not hold, and of those up to [`Change::until`] nothing is known.
    Disturbed {
        /// The epoch that began.
        epoch: u32,
        /// What the disturbance did.
        cause: Cause,
    },
    /// So many messages contradicted those around them and were left out.
    Rejected(usize),
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            What::Path { forward_ns: forward, back_ns: back } => {
                // A fifth of the other one is noise.
                let name =
                    match (forward.abs() > 0.2 * back.abs(), back.abs() > 0.2 * forward.abs()) {
                        (true, false) => "the way to the reference changed",
                        (false, true) => "the way from the reference changed",
                        _ => "the path changed in both directions",
                    };
                write!(f, "{name}: {forward:+.0} ns there, {back:+.0} ns back")
            }
            What::Disturbed { cause, .. } => write!(f, "a counter was disturbed: {cause}"),
            What::Rejected(count) => write!(f, "{count} messages contradict those around them"),
        }
    }
}
