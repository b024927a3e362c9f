//! A page of one's own choosing, for programs that look at several.

use std::path::Path;

use loopscope_time::source::CounterKind;
use loopscope_time::{Counter, Frequency};

use crate::layout::{WORDS, word};
use crate::{Span, Time, Utc, ffi};

/// Why a page cannot be read, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError(pub(crate) String);

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OpenError {}

/// The process that has made the newest publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Process number in the writer's own pid namespace.
    pub pid: u32,
    /// Field 22 of its `/proc/PID/stat`: two processes of one number differ in it.
    pub start: u64,
}

/// A mapped page, which stays the same file: where its service was replaced by one that made
/// another, it is unknown for good.
#[derive(Debug)]
pub struct Page(ffi::Mapped);

impl Page {
    /// Maps a page; `None` is the one of [`open`](crate::open).
    pub fn open(path: Option<&Path>) -> Result<Page, OpenError> {
        ffi::Mapped::open(path).map(Page)
    }

    /// [`now`](crate::now).
    pub fn now(&self) -> Time {
        self.0.now()
    }

    /// [`map`](crate::map).
    pub fn map(&self, counter: Counter) -> Time {
        self.0.map(counter)
    }

    /// [`elapsed`](crate::elapsed).
    pub fn elapsed(&self, from: &Time, to: &Time) -> Option<Span> {
        self.0.elapsed(from, to)
    }

    /// [`utc`](crate::utc).
    pub fn utc(&self) -> Option<Utc> {
        self.0.utc()
    }

    /// The counter's nominal frequency; `None` where the page has nonsense.
    pub fn frequency(&self) -> Option<Frequency> {
        Frequency::from_hz(self.0.frequency())
    }

    /// The kind of counter that the page is about; `None` where the page has nonsense.
    pub fn counter_kind(&self) -> Option<CounterKind> {
        CounterKind::of_number(self.0.counter())
    }

    /// The process that has made the newest publication; `None` without a publication, or if its
    /// writer has retired the page.
    pub fn writer(&self) -> Option<Writer> {
        let words = self.words()?;
        Some(Writer { pid: u32::try_from(words[word::PID]).ok()?, start: words[word::START] })
    }

    /// The newest publication as it stands in its slot.
    pub fn words(&self) -> Option<[u64; WORDS]> {
        self.0.words()
    }
}
