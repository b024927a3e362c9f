//! The way of events from components to the one watcher.

use std::sync::{Mutex, PoisonError};

use nix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::proto::{Event, event::What};

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
}

impl Events {
    pub(crate) fn new() -> Events {
        let (sender, receiver) = unbounded_channel();
        Events { sender, receiver: Mutex::new(Some(receiver)) }
    }

    /// The events; `None` among them is the end. Only the first caller gets them.
    pub(crate) fn watch(&self) -> Option<UnboundedReceiver<Option<Event>>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Ends the watcher's stream after what has been said so far.
    pub(crate) fn close(&self) {
        // Without a receiver there is no stream to end.
        let _ = self.sender.send(None);
    }

    /// The voice of `component`.
    pub(crate) fn voice(&self, component: &str) -> Voice {
        let sender = Mutex::new(Some(self.sender.clone()));
        Voice { component: component.to_owned(), sender }
    }
}

/// Says what happens to one component, until its last word.
#[derive(Debug)]
pub(crate) struct Voice {
    component: String,
    sender: Mutex<Option<UnboundedSender<Option<Event>>>>,
}

impl Voice {
    pub(crate) fn say(&self, what: What) {
        self.speak(what, false);
    }

    /// No later message is sent.
    pub(crate) fn say_last(&self, what: What) {
        self.speak(what, true);
    }

    fn speak(&self, what: What, last: bool) {
        // Held while sending: nobody gets a word in after the last.
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(to) = sender.as_ref() else { return };
        let component = self.component.clone();
        let event = Event { component, at_monotonic_ns: monotonic_ns(), what: Some(what) };
        // Without a receiver the watcher has gone; the logs have it all.
        let _ = to.send(Some(event));
        if last {
            *sender = None;
        }
    }
}
