//! `libloopscope_stm`: the C ABI of space-time memory. `include/loopscope/stm.h` says what each function
//! does.
//!
//! A pointer that C gets is a `Box` until it is given back. What the header asks of a caller is what
//! each `unsafe` here rests on: pointers are those that were given out and not yet ended, or point to
//! memory of the size that the header says, and one thread at a time uses a connection.
#![allow(unsafe_code)]

mod get;
mod pace;
mod put;

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use loopscope_stm::{Config, Full, Orphans};
use loopscope_stm_shared::{Client, Kind, Options, Shared, Until, socket_path};

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// An error as C gets it.
struct Failure {
    kind: Kind,
    text: String,
}

impl<E: Display> From<E> for Failure
where
    for<'a> Kind: From<&'a E>,
{
    fn from(error: E) -> Failure {
        Failure { kind: Kind::from(&error), text: error.to_string() }
    }
}

fn invalid(text: impl Into<String>) -> Failure {
    Failure { kind: Kind::Invalid, text: text.into() }
}

/// The number of what was done, whose text the thread may ask for.
fn answer(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let Err(Failure { kind, text }) = work() else { return 0 };
    let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
    ERROR.with(|error| *error.borrow_mut() = text);
    match kind {
        Kind::NotYet => 1,
        Kind::Gone => 2,
        Kind::Never => 3,
        Kind::Ambiguous => 4,
        Kind::Late => 5,
        Kind::Exists => 6,
        Kind::Full => 7,
        Kind::NoSlot => 8,
        Kind::TooMany => 9,
        Kind::NotConnected => 10,
        Kind::Invalid => 11,
        Kind::Failed => 12,
    }
}

/// What a pointer points to; an error where it is NULL.
fn there<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: it was given out as a Box, or points to the caller's memory; nobody else uses it.
    unsafe { pointer.as_mut() }.ok_or_else(|| invalid(format!("NULL is given for {what}")))
}

/// What a pointer points to that several threads may use; an error where it is NULL.
fn shared<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: it was given out as a Box, or points to the caller's memory; nobody writes it.
    unsafe { pointer.as_ref() }.ok_or_else(|| invalid(format!("NULL is given for {what}")))
}

/// Memory of the caller for a result.
struct Place<T>(NonNull<T>);

impl<T> Place<T> {
    fn new(pointer: *mut T) -> Result<Place<T>, Failure> {
        NonNull::new(pointer).map(Place).ok_or_else(|| invalid("NULL is given for the result"))
    }

    fn fill(self, value: T) {
        // SAFETY: it is the caller's, for a T. There may have been nothing in it.
        unsafe { self.0.write(value) };
    }
}

impl<T> Place<*mut T> {
    /// Has it point to a value, until that is taken back.
    fn give(self, value: T) {
        self.fill(Box::into_raw(Box::new(value)));
    }
}

/// Takes back what was given out.
fn take<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: it was given out by `Place::give`, and is not used any more.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a CStr, Failure> {
    shared(pointer, what)?;
    // SAFETY: it is not NULL, and a string of C.
    Ok(unsafe { CStr::from_ptr(pointer) })
}

/// A timeout in ns, below 0 for ever.
fn until(timeout: i64) -> Until {
    let length = u64::try_from(timeout).ok().map(Duration::from_nanos);
    match length.map(|length| (length.is_zero(), Instant::now().checked_add(length))) {
        Some((true, _)) => Until::Now,
        Some((false, Some(end))) => Until::Deadline(end),
        _ => Until::Forever,
    }
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_error() -> *const c_char {
    ERROR.with(|error| error.borrow().as_ptr())
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_connect(path: *const c_char, service: *mut *mut Client) -> c_int {
    answer(|| {
        let place = Place::new(service)?;
        let client = match path.is_null() {
            true => Client::connect(&socket_path())?,
            false => Client::connect(Path::new(OsStr::from_bytes(text(path, "path")?.to_bytes())))?,
        };
        place.give(client);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_disconnect(service: *mut Client) {
    take(service);
}

/// `struct loopscope_stm_options`.
#[repr(C)]
struct Wanted {
    item_bytes: u32,
    capacity: u32,
    slots: u32,
    inputs: u32,
    outputs: u32,
    loans: u32,
    processes: u32,
    ahead: u32,
    remembered: u32,
    orphans: c_int,
    full: c_int,
}

impl Wanted {
    fn options(&self) -> Result<Options, Failure> {
        let or = |given, default| if given == 0 { default } else { given };
        let (capacity, outputs) = (or(self.capacity, 16), or(self.outputs, 4));
        let loans = or(self.loans, 1);
        let orphans = match self.orphans {
            0 => Orphans::Keep,
            1 => Orphans::Discard,
            other => return Err(invalid(format!("{other} is no loopscope_stm_orphans"))),
        };
        let full = match self.full {
            0 => Full::Refuse,
            1 => Full::Drop,
            other => return Err(invalid(format!("{other} is no loopscope_stm_full"))),
        };
        let config = Config {
            capacity,
            slots: or(self.slots, capacity.saturating_add(outputs.saturating_mul(loans))),
            inputs: or(self.inputs, 16),
            outputs,
            loans,
            ahead: or(self.ahead, 64),
            remembered: or(self.remembered, 64),
            orphans,
            full,
        };
        Ok(Options { config, item_bytes: self.item_bytes, processes: or(self.processes, 16) })
    }
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_create(
    service: *mut Client,
    name: *const c_char,
    options: *const Wanted,
    channel: *mut *mut Shared,
) -> c_int {
    answer(|| {
        let place = Place::new(channel)?;
        let (service, name) = (there(service, "the service")?, channel_name(name)?);
        service.create(name, &shared(options, "the options")?.options()?)?;
        place.give(service.open(name, true)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_open(
    service: *mut Client,
    name: *const c_char,
    puts: bool,
    channel: *mut *mut Shared,
) -> c_int {
    answer(|| {
        let place = Place::new(channel)?;
        place.give(there(service, "the service")?.open(channel_name(name)?, puts)?);
        Ok(())
    })
}

fn channel_name<'a>(name: *const c_char) -> Result<&'a str, Failure> {
    let name = text(name, "the name")?.to_str();
    name.map_err(|_| invalid("a channel's name is text in UTF-8"))
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_close(channel: *mut Shared) {
    take(channel);
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_item_bytes(channel: *const Shared) -> usize {
    shared(channel, "the channel").map_or(0, Shared::item_bytes)
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_restarts(channel: *const Shared) -> u64 {
    shared(channel, "the channel").map_or(0, Shared::restarts)
}

/// `struct loopscope_stm_counts`.
#[repr(C)]
struct ChannelCounts {
    put: u64,
    collected: u64,
    dropped: u64,
    present: u32,
    free: u32,
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_count(channel: *const Shared, counts: *mut ChannelCounts) -> c_int {
    answer(|| {
        let place = Place::new(counts)?;
        let of = shared(channel, "the channel")?.counts()?;
        place.fill(ChannelCounts {
            put: of.put,
            collected: of.collected,
            dropped: of.dropped,
            present: of.present,
            free: of.free,
        });
        Ok(())
    })
}
