//! The way of events from components to the one watcher.

use std::sync::{Mutex, PoisonError};

use loopscope_time::source::read_counter;
use loopscope_time::{Counter, Frequency};
use nix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::global::GlobalClock;
use crate::proto::{Event, event::What};

/// An instant on the two clocks that an event is stamped with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    monotonic_ns: i64,
    counter: Counter,
}

impl Moment {
    pub(crate) fn now() -> Moment {
        Moment { monotonic_ns: monotonic_ns(), counter: read_counter() }
    }

    /// CLOCK_MONOTONIC in nanoseconds.
    pub(crate) fn monotonic_ns(self) -> i64 {
        self.monotonic_ns
    }

    /// The moment at which CLOCK_MONOTONIC had another value, which is near this one: the clock may
    /// be slewed by 500 ppm.
    fn at(self, monotonic_ns: i64, frequency: Frequency) -> Moment {
        let ns = monotonic_ns.saturating_sub(self.monotonic_ns);
        let ticks = (ns as f64 / frequency.ns_per_tick()).round() as i64;
        Moment { monotonic_ns, counter: Counter(self.counter.0.saturating_add_signed(ticks)) }
    }

    /// CLOCK_MONOTONIC in nanoseconds at an instant of the counter, which is near this moment.
    pub(crate) fn monotonic_at(self, counter: Counter, frequency: Frequency) -> i64 {
        let ns = counter.ticks_since(self.counter) as f64 * frequency.ns_per_tick();
        self.monotonic_ns.saturating_add(ns.round() as i64)
    }
}

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn monotonic_ns() -> i64 {
    match clock_gettime(ClockId::CLOCK_MONOTONIC) {
        Ok(now) => now.tv_sec() * 1_000_000_000 + now.tv_nsec(),
        Err(errno) => unreachable!("CLOCK_MONOTONIC always exists on Linux: {errno}"),
    }
}

/// Every event since the agent's start, until the watcher takes them. Not bounded: a slow watcher
/// must neither cost lines nor stop a program that writes.
#[derive(Debug)]
pub(crate) struct Events {
    sender: UnboundedSender<Option<Event>>,
    receiver: Mutex<Option<UnboundedReceiver<Option<Event>>>>,
    global: GlobalClock,
}

impl Events {
    /// `global`: the clock that they are stamped with.
    pub(crate) fn new(global: GlobalClock) -> Events {
        let (sender, receiver) = unbounded_channel();
        Events { sender, receiver: Mutex::new(Some(receiver)), global }
    }

    /// The events; `None` among them is the end. Only the first caller gets them.
    pub(crate) fn watch(&self) -> Option<UnboundedReceiver<Option<Event>>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Ends the watcher's stream after the events so far.
    pub(crate) fn close(&self) {
        // Without a receiver there is no stream to end.
        let _ = self.sender.send(None);
    }

    /// Sends the events of `component`.
    pub(crate) fn sender(&self, component: &str) -> EventSender {
        let channel = Mutex::new(Some(self.sender.clone()));
        EventSender { component: component.to_owned(), channel, global: self.global.clone() }
    }
}

/// Sends the events of one component, until its last.
#[derive(Debug)]
pub(crate) struct EventSender {
    component: String,
    channel: Mutex<Option<UnboundedSender<Option<Event>>>>,
    global: GlobalClock,
}

impl EventSender {
    /// Sends what happens now.
    pub(crate) fn send(&self, what: What) {
        self.send_one(Moment::now(), what, false);
    }

    /// Sends what happened a short while ago, at this value of CLOCK_MONOTONIC.
    pub(crate) fn send_of(&self, monotonic_ns: i64, what: What) {
        let now = Moment::now();
        // Nothing has happened that is yet to come.
        let at = now.at(monotonic_ns.clamp(0, now.monotonic_ns), self.global.frequency());
        self.send_one(at, what, false);
    }

    /// Sends what happened at a moment; no later message is sent.
    pub(crate) fn send_last(&self, at: Moment, what: What) {
        self.send_one(at, what, true);
    }

    fn send_one(&self, at: Moment, what: What, last: bool) {
        // Locked until it is sent, so that nothing follows the last one.
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(to) = channel.as_ref() else { return };
        let component = self.component.clone();
        let event = Event {
            component,
            at_monotonic_ns: at.monotonic_ns,
            at: self.global.stamp(at.counter),
            what: Some(what),
        };
        // Without a receiver the watcher has gone; the logs have it all.
        let _ = to.send(Some(event));
        if last {
            *channel = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_both_clocks_of_an_instant_nearby() {
        let frequency = Frequency::from_hz(2_500_000_000).unwrap();
        let now = Moment { monotonic_ns: 1_000_000_000, counter: Counter(50_000_000_000) };
        for (ns, ticks) in
            [(-20_000_000, -50_000_000), (0, 0), (7, 18), (400_000_000, 1_000_000_000)]
        {
            let then = now.at(now.monotonic_ns + ns, frequency);
            assert_eq!(then.counter.ticks_since(now.counter), ticks);
            let back = now.monotonic_at(then.counter, frequency);
            assert!((back - then.monotonic_ns).abs() <= 1, "{ns}");
        }
    }
}
