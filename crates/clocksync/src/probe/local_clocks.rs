//! Readings that a side takes in addition to its probes: other clocks, and checks of the counter.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use loopscope_time::Frequency;

use super::ProbeError;
use super::socket::StampedSocket;
use crate::anchor::ForeignClocks;
use crate::counter::{ClockSource, CounterWatch, Look};
use crate::online::Online;
use crate::record::ProbeWriter;
use crate::vmclock::VmClock;

/// Between two looks.
const GAP: Duration = Duration::from_millis(100);

pub(super) struct LocalClocks {
    clocks: ForeignClocks,
    machine: Option<VmClock>,
    source: ClockSource,
    watch: CounterWatch,
    turn: i64,
    due: Instant,
}

impl LocalClocks {
    pub(super) fn new(frequency: Frequency) -> LocalClocks {
        let (machine, source) = (VmClock::open(), ClockSource::open());
        LocalClocks {
            clocks: ForeignClocks::open(),
            watch: CounterWatch::new(frequency, Look::take(machine.as_ref(), &source)),
            machine,
            source,
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
        if let Some(event) = self.watch.see(Look::take(self.machine.as_ref(), &self.source)) {
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

#[cfg(test)]
mod tests {
    use loopscope_time::Counter;

    use super::*;
    use crate::Span;
    use crate::counter::Disturbance;
    use crate::exchange::Exchange;
    use crate::key::Key;
    use crate::log::ProbeLog;
    use crate::offline::DEFAULT_WANDER;
    use crate::probe::{Identity, Side};
    use crate::state::Status;

    /// A look of before an hour of sleep, then one of now: the log has it and the time is unknown.
    #[test]
    fn a_sleep_is_logged_and_ends_what_the_clock_knew() {
        let directory = tempfile::tempdir().unwrap();
        let frequency = Frequency::from_hz(2_000_000_000).unwrap();
        let identity =
            Identity { host: "h1".into(), trace_uuid: [1; 16], clock_uuid: [2; 16], frequency };
        let mut log = ProbeWriter::create(Some(directory.path()), &identity, None).unwrap();
        let mut socket = StampedSocket::bind(&Side {
            address: "127.0.0.1:0".parse().unwrap(),
            directory: None,
            identity,
            key: Key::new(&[7; 32]).unwrap(),
            filter: None,
            faults: None,
            own_interface: false,
            before_stamps: None,
        })
        .unwrap();
        let mut local_clocks = LocalClocks::new(frequency);
        let hour_ns = 3_600_000_000_000;
        let now = Look::take(None, &ClockSource::open());
        let before = Look { slept: (now.slept.0 - hour_ns, now.slept.1 - hour_ns), ..now };
        local_clocks.watch = CounterWatch::new(frequency, before);

        let follower = Mutex::new(Online::follower(frequency, frequency, DEFAULT_WANDER));
        let own = before.at.lo.0;
        for probe in 0..200 {
            let t1 = own - (200 - probe) * 20_000_000;
            let at = |ticks| Some(Span { lo: Counter(ticks), hi: Counter(ticks + 100) });
            let [t1, t2, t3, t4] = [t1, t1 + 40_000, t1 + 50_000, t1 + 90_000].map(at);
            follower.lock().unwrap().see(&Exchange { t1, t2, t3, t4, ..Exchange::default() });
        }
        let state = |at| follower.lock().unwrap().state(at);
        assert_eq!(state(before.at.lo).status, Status::Synchronised);

        local_clocks.look_if_due(Instant::now(), &mut socket, &mut log, &follower).unwrap();
        log.flush().unwrap();
        let log = ProbeLog::read(directory.path()).unwrap();
        let [event] = log.counter_events[..] else { panic!("{:?}", log.counter_events) };
        assert_eq!(event.disturbance, Disturbance::Suspended);
        assert!((event.ns - hour_ns).abs() < 1_000_000, "{}", event.ns);
        assert!(event.within.lo <= before.at.lo && before.at.hi < event.within.hi);
        let after = state(event.within.hi);
        assert_eq!((after.status, after.epoch), (Status::Unknown, 1));
    }
}
