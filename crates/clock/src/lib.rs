//! The shared time of all hosts, read without a system call.
//!
//! A service of the machine publishes its estimate of the global clock on a page of shared memory
//! (`schema/clock-page.md`). Reading the page needs no privilege and never waits, even if the
//! service has ended. The calls are those of the C header `loopscope/clock.h`, in the same C code.
//!
//! ```
//! let sent = loopscope_clock::now();
//! let took = loopscope_clock::elapsed(&sent, &loopscope_clock::now());
//! match took {
//!     Some(took) => println!("{} ns, at most {}", took.best, took.longest),
//!     None => println!("no clock"),
//! }
//! ```

mod ffi;
pub mod layout;
mod page;

use std::path::Path;

use loopscope_time::{Counter, GlobalNs};

pub use page::{OpenError, Page, Writer};

/// How much of the clock is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// No page, or no valid one.
    #[default]
    Unknown = 0,
    /// The reference answers.
    Synchronised = 1,
    /// The reference does not answer any more; widths grow.
    Holdover = 2,
}

/// An instant. The truth lies in `earliest..=latest`; where the status is [`Status::Unknown`] these
/// are `i64::MIN` and `i64::MAX`, and `best` is `i64::MIN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Time {
    /// The truth is not before it.
    pub earliest: GlobalNs,
    /// The guess.
    pub best: GlobalNs,
    /// The truth is not after it.
    pub latest: GlobalNs,
    /// This machine's counter there.
    pub counter: Counter,
    /// Error bound around `best`, in ns, that all but a small share of instants lie within: the
    /// service's claim.
    pub calibrated_ns: u32,
    /// Rises when a counter or the reference was disturbed: instants of two epochs have no
    /// distance.
    pub epoch: u32,
    /// Status of the reading.
    pub status: Status,
}

/// The time between two instants of this machine, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Span {
    /// It was not less.
    pub shortest: i64,
    /// The guess.
    pub best: i64,
    /// It was not more.
    pub longest: i64,
    /// Status of the reading; never [`Status::Unknown`].
    pub status: Status,
}

/// UTC less global time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Utc {
    /// In ns.
    pub offset_ns: i64,
    /// Maximum error, in ns.
    pub error_ns: u64,
}

/// Now.
pub fn now() -> Time {
    ffi::now()
}

/// The instant of a reading of this machine's counter, by what is known now. Hours from now it is
/// unknown, and before the last disturbance of a clock.
pub fn map(counter: Counter) -> Time {
    ffi::map(counter)
}

/// Now, and `best` never less than any call in this process has returned before, on whatever
/// thread. Where an estimate is corrected back, `best` stands still until time has caught up, and
/// `latest` reaches up to it. An unknown one repeats the `best` before it.
pub fn monotonic() -> Time {
    ffi::monotonic()
}

/// From one instant to another, negative where `to` is the earlier; what is unknown of their offset
/// to global time cancels. What the counters of two processors may be apart does not, as nobody
/// knows which were read: of two instants nearer than that either may have been the first. `None`
/// where one of the two is unknown, or where they are of different epochs, or not of the present
/// one.
pub fn elapsed(from: &Time, to: &Time) -> Option<Span> {
    ffi::elapsed(from, to)
}

/// How far UTC is from global time, as the reference's kernel has it; `None` where that is not
/// known.
pub fn utc() -> Option<Utc> {
    ffi::utc()
}

/// Opens the page at `path`, or with `None` the one that the other functions would open by
/// themselves (the file that `LOOPSCOPE_CLOCK` names, else [`layout::DEFAULT_PATH`]), and stays
/// with that path. For programs that want to know; to be called before other threads read the
/// clock.
pub fn open(path: Option<&Path>) -> Result<(), OpenError> {
    ffi::open(path)
}
