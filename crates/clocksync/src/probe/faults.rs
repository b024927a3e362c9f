//! What goes wrong on purpose, to see that it does no harm.

use std::time::Duration;

use super::arrival::Arrival;
use crate::stamp::Reading;
use crate::synthetic::SplitMix64;

/// Faults of one side, the same for the same seed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Seed of all random choices.
    pub seed: u64,
    /// Probability that a packet that came in is lost.
    pub loss: f64,
    /// Probability that it is held back behind the next one.
    pub reordering: f64,
    /// Probability that the stamp of a packet that went out is lost.
    pub lost_stamps: f64,
    /// The host's `CLOCK_REALTIME` is set, as far as loopscope sees it.
    pub clock_set: Option<ClockSet>,
}

/// When and by how much a clock is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSet {
    /// After the socket was bound.
    pub after: Duration,
    /// Nanoseconds forward.
    pub ns: i64,
}

pub(super) struct Injector {
    faults: Faults,
    random: SplitMix64,
    /// `CLOCK_REALTIME` at the start.
    began: i64,
    held: Option<Arrival>,
    released: Option<Arrival>,
}

impl Injector {
    pub(super) fn new(faults: Faults) -> Injector {
        let random = SplitMix64::new(faults.seed);
        let began = Reading::take().clock.0;
        Injector { faults, random, began, held: None, released: None }
    }

    /// By how much `CLOCK_REALTIME` has been set when it would show `ns`.
    pub(super) fn set_by(&self, ns: i64) -> i64 {
        let done = |set: &ClockSet| (ns - self.began) as i128 >= set.after.as_nanos() as i128;
        self.faults.clock_set.filter(done).map_or(0, |set| set.ns)
    }

    /// What comes through of a packet.
    pub(super) fn arrival(&mut self, arrival: Arrival) -> Option<Arrival> {
        if self.falls(self.faults.loss) {
            return None;
        }
        if let Some(held) = self.held.take() {
            self.released = Some(held);
        } else if self.falls(self.faults.reordering) {
            self.held = Some(arrival);
            return None;
        }
        Some(arrival)
    }

    /// A packet that the last one has overtaken.
    pub(super) fn released(&mut self) -> Option<Arrival> {
        self.released.take()
    }

    pub(super) fn loses_stamp(&mut self) -> bool {
        self.falls(self.faults.lost_stamps)
    }

    fn falls(&mut self, probability: f64) -> bool {
        const DRAWS: u64 = 1 << 53;
        (self.random.below(DRAWS) as f64) < probability * DRAWS as f64
    }
}
