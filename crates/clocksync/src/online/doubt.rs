//! Messages that contradict the earlier ones: whether they are wrong, or the clock was disturbed.

use crate::constraint::Constraint;

/// Messages that must agree, of either direction, for one that does not.
const AGREEING: usize = 3;
/// This many messages that do not agree, if they are most of their direction, are a disturbance.
const DISAGREEING: usize = 3;
/// Messages that are kept to find out when it was.
const KEPT: usize = 512;

/// Messages since one that contradicts the earlier ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubt {
    /// Messages from before, of which it was open whether they are of after a step.
    pub(super) undecided: Vec<Constraint>,
    pub(super) held: Vec<Constraint>,
    /// For each direction: messages that agree with the earlier ones, and messages that do not.
    pub(super) counts: [[usize; 2]; 2],
}

impl Doubt {
    pub(super) fn hold(&mut self, constraint: Constraint, agrees: bool) {
        self.counts[constraint.way as usize][usize::from(!agrees)] += 1;
        self.held.push(constraint);
    }

    /// True if few messages contradict and many do not.
    pub(super) fn was_wrong(&self) -> bool {
        self.counts.iter().all(|[good, bad]| *good >= (AGREEING * bad).max(1))
    }

    /// True if too many messages contradict to be wrong, and the new epoch has both directions.
    pub(super) fn was_right(&self) -> bool {
        let begun = self.counts.iter().all(|[good, bad]| good + bad >= 2);
        let many = self.counts.iter().any(|[good, bad]| *bad >= DISAGREEING && bad > good);
        (many && begun) || self.held.len() >= KEPT
    }
}
