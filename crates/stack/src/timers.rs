//! What a connection does when time passes: retransmission, probes, keep-alive.

use std::time::Duration;

use crate::connection::{Connection, Recovery};
use crate::flight::DUPLICATES;
use crate::state::End;

/// The least time for a probe of the last segments, where the round trip is shorter than what timers
/// can keep.
const LEAST_PROBE: Duration = Duration::from_micros(100);
/// Between two probes of a closed window.
const LONGEST_PROBE: Duration = Duration::from_secs(60);
/// How long TCP_CORK keeps data back, at least (tcp(7)).
const CORKED: Duration = Duration::from_millis(200);

/// A timer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// An acknowledgement has waited for data to go with (RFC 9293 §3.8.6.3).
    DelayedAck,
    /// Segments that were overtaken may be lost by now (RFC 8985 §6.2).
    Reordering,
    /// The last segments are probed for a loss (RFC 8985 §7).
    TailLossProbe,
    /// What was sent was not acknowledged (RFC 6298).
    Retransmission,
    /// The other end's window is probed (RFC 9293 §3.8.6.1).
    Persist,
    /// The other end is asked whether it is there (RFC 9293 §3.8.4).
    KeepAlive,
}

/// The timers that have expired at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    timers: [Option<Timer>; 6],
}

impl Expired {
    fn add(&mut self, timer: Timer) {
        self.timers[timer as usize] = Some(timer);
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Timer> {
        self.timers.iter().flatten().copied()
    }
}

impl Connection {
    /// Does what is due at `now`; the timers that were.
    pub fn wake(&mut self, now: Duration) -> Expired {
        let mut expired = Expired::default();
        let mut passed = |timer: &mut Option<Duration>, name: Timer| {
            let has_passed = timer.take_if(|at| *at <= now).is_some();
            if has_passed {
                expired.add(name);
            }
            has_passed
        };
        if passed(&mut self.timers.ack, Timer::DelayedAck) {
            self.acks.now = true;
        }
        if passed(&mut self.timers.reordering, Timer::Reordering) {
            self.look_for_losses(now);
        }
        if passed(&mut self.timers.tail, Timer::TailLossProbe) {
            self.due.tail = true;
            self.counts.tail_probes += 1;
            self.timers.retransmission = Some(now + self.trips.timeout());
        }
        if passed(&mut self.timers.retransmission, Timer::Retransmission) {
            self.time_out(now);
        }
        if passed(&mut self.timers.closed_window, Timer::Persist) {
            self.probe_window();
        }
        if passed(&mut self.timers.keep_alive, Timer::KeepAlive) {
            self.ask_whether_alive(now);
        }
        if self.owed.is_some_and(|since| now.saturating_sub(since) >= self.config.patience) {
            self.end = Some(End::TimedOut);
        }
        expired
    }

    /// The other end's window has been too small for a while. It is asked for a new one, or what it
    /// has room for is sent (RFC 9293 §3.8.6.1, §3.8.6.2.1).
    fn probe_window(&mut self) {
        if self.peer_edge > self.next {
            self.due.small = true;
        } else {
            self.due.question = true;
            self.window_probes += 1;
        }
    }

    fn ask_whether_alive(&mut self, now: Duration) {
        let Some(keep) = self.config.keep_alive else { return };
        if self.unanswered >= keep.probes {
            self.end = Some(End::TimedOut);
            return;
        }
        self.unanswered += 1;
        self.due.question = true;
        self.timers.keep_alive = Some(now + keep.interval);
    }

    pub(crate) fn arm_keep_alive(&mut self, now: Duration) {
        self.unanswered = 0;
        self.timers.keep_alive = self.config.keep_alive.map(|keep| now + keep.idle);
    }

    /// RFC 6298 §5.4 to §5.6.
    fn time_out(&mut self, now: Duration) {
        if self.flight.is_empty() {
            return;
        }
        self.counts.time_outs += 1;
        let again = self.recovery.is_some_and(|recovery| recovery.by_timeout);
        let flight = self.next.since(self.acknowledged);
        self.congestion.time_out(flight, again);
        self.notification.shrank(self.next);
        self.flight.time_out(now, &self.trips, self.segment, self.selective);
        self.recovery = Some(Recovery { until: self.next, by_timeout: true });
        self.repeated = 0;
        (self.tail, self.due.tail) = (None, false);
        (self.timers.tail, self.timers.reordering) = (None, None);
        self.trips.back_off();
        self.timers.retransmission = Some(now + self.trips.timeout());
    }

    /// RFC 8985 §6.2 step 5, and RFC 5681 §3.2 where something is lost.
    pub(crate) fn look_for_losses(&mut self, now: Duration) {
        let recovering = self.recovery.is_some();
        let found = if self.selective {
            let (found, again) = self.flight.detect(now, &self.trips, recovering, self.segment);
            self.timers.reordering = again;
            found
        } else {
            // RFC 6582 §3.2: the first segment, at the third repetition and at each partial
            // acknowledgement.
            (recovering || self.repeated >= DUPLICATES) && self.flight.lose_first(recovering)
        };
        if found && !recovering {
            let before = self.next.since(self.acknowledged) - self.flight.selected();
            self.counts.recoveries += 1;
            self.congestion.shrink(before);
            self.notification.shrank(self.next);
            self.recovery = Some(Recovery { until: self.next, by_timeout: false });
            self.timers.tail = None;
            self.congestion.recover(0, self.in_flight(), true);
        }
    }

    /// Starts the timers after data were sent.
    pub(crate) fn arm(&mut self, now: Duration) {
        self.due.small = false;
        self.owed.get_or_insert(now);
        if self.timers.retransmission.is_none() {
            self.timers.retransmission = Some(now + self.trips.timeout());
        }
        self.timers.closed_window = None;
        self.arm_tail(now);
    }

    /// RFC 8985 §7.2.
    pub(crate) fn arm_tail(&mut self, now: Duration) {
        self.timers.tail = None;
        let open = self.recovery.is_none() && self.tail.is_none() && self.flight.selected() == 0;
        if !open || !self.selective || self.flight.is_empty() {
            return;
        }
        let Some(smoothed) = self.trips.smoothed() else { return };
        let mut wait = (smoothed * 2).max(LEAST_PROBE);
        if self.flight.segments() == 1 {
            wait += self.trips.delay(now, self.config.peer_delayed_ack);
        }
        let at = now + wait;
        // Before the time-out, which would shrink the window.
        self.timers.tail = Some(self.timers.retransmission.map_or(at, |timeout| at.min(timeout)));
    }

    /// Probes a window that is closed, or too small for what is to be sent, while nothing is on its
    /// way that would be answered (RFC 9293 §3.8.6.1).
    pub(crate) fn arm_closed_window(&mut self, now: Duration) {
        let waits = self.written > self.next && self.flight.is_empty();
        if !waits {
            self.timers.closed_window = None;
        } else if self.timers.closed_window.is_none() && !self.due.question {
            self.owed.get_or_insert(now);
            let wait = self.trips.timeout().saturating_mul(1 << self.window_probes.min(16));
            let least = if self.config.is_corked { CORKED } else { Duration::ZERO };
            self.timers.closed_window = Some(now + wait.min(LONGEST_PROBE).max(least));
        }
    }
}
