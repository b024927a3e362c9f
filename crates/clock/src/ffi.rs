//! The C code's functions (`include/loopscope/clock.h`, `c/page.h`), made safe.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use loopscope_time::Counter;

use crate::layout::{self, WORDS};
use crate::{OpenError, Span, Status, Time, Utc};

// `Time`, `Span` and `Utc` are the structs of clock.h. A status that comes from C is always one of the
// enum's: of any other number on a page it makes UNKNOWN.
const _: () = assert!(size_of::<Time>() == 48 && size_of::<Span>() == 32 && size_of::<Utc>() == 16);

unsafe extern "C" {
    safe fn loopscope_clock_now() -> Time;
    safe fn loopscope_clock_map(counter: u64) -> Time;
    safe fn loopscope_clock_monotonic() -> Time;
    safe fn loopscope_clock_elapsed(from: &Time, to: &Time) -> Span;
    safe fn loopscope_clock_utc() -> Utc;
    fn loopscope_clock_open(path: *const c_char, error: *mut c_char, size: usize) -> c_int;

    fn loopscope_clock_page_open(
        path: *const c_char,
        error: *mut c_char,
        size: usize,
    ) -> *const layout::Page;
    fn loopscope_clock_page_close(page: *const layout::Page);
    safe fn loopscope_clock_page_map(page: &layout::Page, counter: u64) -> Time;
    safe fn loopscope_clock_page_now(page: &layout::Page) -> Time;
    safe fn loopscope_clock_page_elapsed(page: &layout::Page, from: &Time, to: &Time) -> Span;
    safe fn loopscope_clock_page_utc(page: &layout::Page) -> Utc;
    safe fn loopscope_clock_page_words(page: &layout::Page, words: &mut [u64; WORDS]) -> c_int;
}

fn known_span(span: Span) -> Option<Span> {
    (span.status != Status::Unknown).then_some(span)
}

fn known_utc(utc: Utc) -> Option<Utc> {
    (utc.error_ns != u64::MAX).then_some(utc)
}

pub(crate) fn now() -> Time {
    loopscope_clock_now()
}

pub(crate) fn map(counter: Counter) -> Time {
    loopscope_clock_map(counter.0)
}

pub(crate) fn monotonic() -> Time {
    loopscope_clock_monotonic()
}

pub(crate) fn elapsed(from: &Time, to: &Time) -> Option<Span> {
    known_span(loopscope_clock_elapsed(from, to))
}

pub(crate) fn utc() -> Option<Utc> {
    known_utc(loopscope_clock_utc())
}

/// Gives `call` a path, null for none, and room for an error; its result if that is `Some`.
fn with_path<T>(
    path: Option<&Path>,
    call: impl FnOnce(*const c_char, *mut c_char, usize) -> Option<T>,
) -> Result<T, OpenError> {
    let mut error = [0u8; 512];
    let path = match path {
        Some(path) => Some(
            CString::new(path.as_os_str().as_bytes())
                .map_err(|_| OpenError(format!("{path:?} is no path: it has a NUL")))?,
        ),
        None => None,
    };
    let start = path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr());
    call(start, error.as_mut_ptr().cast(), error.len()).ok_or_else(|| {
        let error = CStr::from_bytes_until_nul(&error).unwrap_or_default();
        OpenError(error.to_string_lossy().into_owned())
    })
}

pub(crate) fn open(path: Option<&Path>) -> Result<(), OpenError> {
    with_path(path, |path, error, size| {
        // SAFETY: a string or null, and `size` bytes to write to, both alive here.
        (unsafe { loopscope_clock_open(path, error, size) } == 0).then_some(())
    })
}

/// A mapped page.
#[derive(Debug)]
pub(crate) struct Mapped(NonNull<layout::Page>);

// SAFETY: the mapping belongs to the process and is read through atomics alone.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    pub(crate) fn open(path: Option<&Path>) -> Result<Mapped, OpenError> {
        with_path(path, |path, error, size| {
            // SAFETY: a string or null, and `size` bytes to write to, both alive here.
            let page = unsafe { loopscope_clock_page_open(path, error, size) };
            NonNull::new(page.cast_mut()).map(Mapped)
        })
    }

    fn page(&self) -> &layout::Page {
        // SAFETY: mapped by `open`, at least as large as the type, until `drop`. It is atomics alone,
        // which other processes may write; only their loads are used, which read-only memory allows.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn now(&self) -> Time {
        loopscope_clock_page_now(self.page())
    }

    pub(crate) fn map(&self, counter: Counter) -> Time {
        loopscope_clock_page_map(self.page(), counter.0)
    }

    pub(crate) fn elapsed(&self, from: &Time, to: &Time) -> Option<Span> {
        known_span(loopscope_clock_page_elapsed(self.page(), from, to))
    }

    pub(crate) fn utc(&self) -> Option<Utc> {
        known_utc(loopscope_clock_page_utc(self.page()))
    }

    pub(crate) fn frequency(&self) -> u64 {
        // Relaxed: written before the file had its name.
        self.page().frequency.load(Ordering::Relaxed)
    }

    pub(crate) fn counter(&self) -> u64 {
        // Relaxed: as above.
        self.page().counter.load(Ordering::Relaxed)
    }

    pub(crate) fn words(&self) -> Option<[u64; WORDS]> {
        let mut words = [0; WORDS];
        (loopscope_clock_page_words(self.page(), &mut words) != 0).then_some(words)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, closed once; no reference outlives `self`.
        unsafe { loopscope_clock_page_close(self.0.as_ptr()) };
    }
}
