//! What is known of a probe and its reply.

use crate::Span;

/// A probe and its reply, as far as their stamps are known. Each message counts by itself: a probe
/// whose reply was lost still is an upper constraint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// The follower sent the probe (follower's counter).
    pub t1: Option<Span>,
    /// The reference received it (reference's counter).
    pub t2: Option<Span>,
    /// The reference sent the reply (reference's counter).
    pub t3: Option<Span>,
    /// The follower received it (follower's counter).
    pub t4: Option<Span>,
    /// The probe's way.
    pub forward: Pair,
    /// The reply's way.
    pub back: Pair,
}

impl Exchange {
    /// Whether all stamps are known.
    pub fn is_complete(&self) -> bool {
        [self.t1, self.t2, self.t3, self.t4].iter().all(Option::is_some)
    }
}

/// Whether a message came through undisturbed, as far as the other one of its coded pair tells: two
/// messages that leave a known distance apart and arrive at another met a queue (Huygens, NSDI'18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pair {
    /// Nothing is known: there is no other one, or that one was disturbed.
    #[default]
    Alone,
    /// They arrived as far apart as they left.
    Clean,
    /// It was delayed more than the other one: it is a constraint, and nothing for an estimate.
    Distorted,
}
