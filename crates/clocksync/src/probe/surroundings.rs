//! What a side notes beside its probes: other clocks, and whether the counter can be believed.

use std::time::{Duration, Instant};

use loopscope_time::Frequency;

use super::ProbeError;
use super::socket::StampedSocket;
use crate::anchor::ForeignClocks;
use crate::counter::{CounterWatch, Look};
use crate::record::ProbeWriter;

/// Between two looks.
const GAP: Duration = Duration::from_millis(100);

pub(super) struct Surroundings {
    clocks: ForeignClocks,
    watch: CounterWatch,
    turn: i64,
    due: Instant,
}

impl Surroundings {
    pub(super) fn new(frequency: Frequency) -> Surroundings {
        Surroundings {
            clocks: ForeignClocks::open(),
            watch: CounterWatch::new(frequency, Look::take()),
            turn: 0,
            due: Instant::now(),
        }
    }

    /// When [`Self::look_if_due`] wants to be called next.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Looks ten times a second.
    pub(super) fn look_if_due(
        &mut self,
        now: Instant,
        socket: &mut StampedSocket,
        log: &mut ProbeWriter,
    ) -> Result<(), ProbeError> {
        if now < self.due {
            return Ok(());
        }
        self.due = now + GAP;
        if let Some(event) = self.watch.see(Look::take()) {
            log.log_counter_event(self.turn, &event)?;
        }
        for anchor in socket.read_foreign(&mut self.clocks) {
            log.log_anchor(self.turn, &anchor)?;
        }
        self.turn += 1;
        Ok(())
    }
}
