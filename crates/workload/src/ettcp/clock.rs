//! When to send, and how long to wait.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::share::Share;
use crate::stop::Stop;

/// How often a blocked call looks whether it is to stop.
pub(super) const GLANCE: Duration = Duration::from_millis(100);

/// How long the other end may take to answer.
pub(super) const LATE: Duration = Duration::from_secs(3);

/// When to send and when no more.
pub(super) struct Clock<'a> {
    pub(super) begin: Instant,
    pub(super) share: &'a Share,
    pub(super) stop: &'a Stop,
}

impl Clock<'_> {
    pub(super) fn is_over(&self) -> bool {
        self.stop.is_set()
            || self.share.duration.is_some_and(|duration| self.begin.elapsed() >= duration)
    }

    /// Waits until the block after `sent` bytes is due; false: it never will be.
    pub(super) fn wait(&self, sent: u64) -> Result<bool> {
        if let Some(due) = self.share.due(sent) {
            let due = self.share.duration.map_or(due, |duration| due.min(duration));
            self.stop.sleep_until(self.begin + due)?;
        }
        Ok(!self.is_over())
    }
}

/// Nothing now: worth another try.
pub(super) fn waits(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// How long to wait for the other end after the order to stop: it was told so too, or it never will.
pub(super) struct Patience<'a> {
    stop: &'a Stop,
    until: Option<Instant>,
}

impl<'a> Patience<'a> {
    pub(super) fn new(stop: &'a Stop) -> Patience<'a> {
        Patience { stop, until: None }
    }

    pub(super) fn is_over(&mut self) -> bool {
        if !self.stop.is_set() {
            return false;
        }
        // Half of what the agent grants components to end by themselves.
        let until = *self.until.get_or_insert_with(|| Instant::now() + Duration::from_secs(1));
        Instant::now() >= until
    }
}
