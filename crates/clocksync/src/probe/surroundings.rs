//! Readings that a side takes in addition to its probes: other clocks, and checks of the counter.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use loopscope_time::Frequency;

use super::ProbeError;
use super::socket::StampedSocket;
use crate::anchor::ForeignClocks;
use crate::counter::{CounterWatch, Look};
use crate::online::Online;
use crate::record::ProbeWriter;
use crate::vmclock::VmClock;

/// Between two looks.
const GAP: Duration = Duration::from_millis(100);

pub(super) struct Surroundings {
    clocks: ForeignClocks,
    machine: Option<VmClock>,
    watch: CounterWatch,
    turn: i64,
    due: Instant,
}

impl Surroundings {
    pub(super) fn new(frequency: Frequency) -> Surroundings {
        let machine = VmClock::open();
        Surroundings {
            clocks: ForeignClocks::open(),
            watch: CounterWatch::new(frequency, Look::take(machine.as_ref())),
            machine,
            turn: 0,
            due: Instant::now(),
        }
    }

    /// When [`Self::look_if_due`] wants to be called next.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Looks ten times a second; what happened to the counter is told to `online`.
    pub(super) fn look_if_due(
        &mut self,
        now: Instant,
        socket: &mut StampedSocket,
        log: &mut ProbeWriter,
        online: &Mutex<Online>,
    ) -> Result<(), ProbeError> {
        if now < self.due {
            return Ok(());
        }
        self.due = now + GAP;
        if let Some(event) = self.watch.see(Look::take(self.machine.as_ref())) {
            let event = log.log_counter_event(self.turn, &event)?;
            online.lock().unwrap_or_else(PoisonError::into_inner).disturbed(&event);
        }
        for anchor in socket.read_foreign(&mut self.clocks) {
            log.log_anchor(self.turn, &anchor)?;
        }
        self.turn += 1;
        Ok(())
    }
}
