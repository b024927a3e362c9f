//! A thread that keeps a page up to date.

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use loopscope_time::{Counter, Frequency};

use super::file::PageError;
use super::hidden::on_true_counter;
use super::service::Service;
use super::writer::PageWriter;
use crate::bound::SPAN_S;
use crate::stamp::ordered_counter;
use crate::state::{State, Status};
use crate::synthetic::{BEND, SyntheticClock};

/// Between two publications, where nothing else is asked for.
pub const GAP: Duration = Duration::from_millis(10);

/// How long a publication says SYNCHRONISED when none follows.
pub const LEASE: Duration = Duration::from_secs(1);

/// Epochs begin with the time since boot in this unit: 32 bits are 16 months of it.
const EPOCH_NS: i64 = 10_000_000;

/// What is published.
pub struct Published {
    /// On the host's counter.
    pub state: State,
    /// State of the service.
    pub service: Service,
}

/// Publishes a hundred times a second, or as [`Publisher::set_gap`] says, until it is dropped, and
/// then takes the page away. Killed, it leaves a page that says HOLDOVER after [`LEASE`], and nothing
/// any more when the widths stop being known.
#[derive(Debug)]
pub struct Publisher {
    /// Receives the time between two publications.
    orders: Option<Sender<Duration>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Publisher {
    /// Makes the page, or goes on with it in a new epoch; it has its first publication when this
    /// returns. `now` tells what is known at a reading of the host's counter: that of this machine,
    /// of frequency `frequency`, or the hidden one if there is one.
    pub fn start(
        path: &Path,
        frequency: Frequency,
        hidden: Option<SyntheticClock>,
        mut now: impl FnMut(Counter) -> Published + Send + 'static,
    ) -> Result<Publisher, PageError> {
        let mut writer = PageWriter::create(path, frequency)?;
        // The last epoch of a page that was removed or replaced is not known: these numbers are
        // later in any case.
        let booted = (frequency.scale(ordered_counter()).0 / EPOCH_NS) as u32;
        let base = writer.epoch().map_or(booted, |epoch| booted.max(epoch.wrapping_add(1)));
        // The service may be killed: nobody would say then that the reference does not answer any
        // more, or that the counter was disturbed.
        let ticks = |seconds: f64| (seconds * frequency.hz() as f64) as u64;
        let (lease, span) = (ticks(LEASE.as_secs_f64()), ticks(SPAN_S));
        // Before, nobody watched the counter.
        let began = ordered_counter();
        let began = hidden.map_or(began, |clock| clock.apply(began));
        let mut publish = move |writer: &mut PageWriter| {
            let counter = ordered_counter();
            let counter = hidden.map_or(counter, |clock| clock.apply(counter));
            let Published { state, service } = now(counter);
            let state = State {
                epoch: base.wrapping_add(state.epoch),
                since: state.since.max(began),
                stale: state.stale.min(Counter(counter.0 + lease)),
                expires: state.expires.min(Counter(counter.0 + span)),
                ..state
            };
            let shown = match hidden {
                Some(clock) if state.status != Status::Unknown => {
                    on_true_counter(&state, |at| clock.apply(at), |at| clock.invert(at), BEND)
                }
                _ => Some(state),
            };
            if shown.is_none_or(|state| writer.publish(&state, service).is_err()) {
                // What no page can hold is no knowledge of the time, and this can be held.
                let unknown = State { status: Status::Unknown, ..state };
                writer.publish(&unknown, service).expect("that nothing is known fits any page");
            }
        };
        publish(&mut writer);
        let (orders, heard) = mpsc::channel();
        let run = move || {
            let mut gap = GAP;
            loop {
                match heard.recv_timeout(gap) {
                    Err(RecvTimeoutError::Timeout) => publish(&mut writer),
                    Ok(new) => gap = new,
                    Err(RecvTimeoutError::Disconnected) => return writer.retire(),
                }
            }
        };
        let thread = std::thread::Builder::new().name("clock-page".into()).spawn(run);
        let thread = thread.map_err(|error| PageError::Io { path: path.into(), error })?;
        Ok(Publisher { orders: Some(orders), thread: Some(thread) })
    }

    /// Publishes at another pace from now on.
    pub fn set_gap(&self, gap: Duration) {
        if let Some(orders) = &self.orders {
            // In vain only if the thread has panicked.
            let _ = orders.send(gap);
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A page that somebody has removed already needs no more.
            let _ = thread.join();
        }
    }
}
