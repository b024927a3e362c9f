//! Call sites and the calls into the C core.

use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, Ordering};

use crate::{Id, Payload};

/// What a call site does, as `include/loopscope/trace.h` counts its kinds.
#[doc(hidden)]
pub mod kind {
    pub const EVENT: u32 = 1;
    pub const INTERVAL_START: u32 = 2;
    pub const INTERVAL_END: u32 = 3;
    pub const COUNTER_ADD: u32 = 4;
    pub const COUNTER_LOG: u32 = 5;
    pub const COUNTER_RESET: u32 = 6;
    pub const HISTOGRAM_ADD: u32 = 7;
    pub const HISTOGRAM_LOG: u32 = 8;
    pub const HISTOGRAM_RESET: u32 = 9;
    pub const FLOW_OUT: u32 = 10;
    pub const FLOW_IN: u32 = 11;
    pub const FLOW_LINK: u32 = 12;
    pub const HISTOGRAM_RANGE: u32 = 13;
    pub const DESCRIBE: u32 = 14;
}

/// A call site, as `include/loopscope/trace.h` declares it. The macros emit it as data; its methods
/// are the calls that they make, each for an enabled site of its kind.
#[derive(Debug)]
#[repr(C)]
pub struct Site {
    size: u32,
    kind: u32,
    enabled: AtomicPtr<AtomicU32>,
    group: *const c_char,
    name: *const c_char,
    fields: *const c_char,
    file: *const c_char,
    line: u32,
    index: AtomicU16,
    payload: u16,
    off: AtomicU32,
    entity: AtomicU32,
}

/// Offsets of members of [`Site`], in bytes, for readers of the call sites in a program's file.
#[allow(missing_docs, reason = "each is of the member of its name")]
pub mod offset {
    use super::Site;
    use core::mem::offset_of;

    pub const KIND: usize = offset_of!(Site, kind);
    pub const GROUP: usize = offset_of!(Site, group);
    pub const NAME: usize = offset_of!(Site, name);
    pub const FIELDS: usize = offset_of!(Site, fields);
    pub const FILE: usize = offset_of!(Site, file);
    pub const LINE: usize = offset_of!(Site, line);
}

/// What declarations and sites of run time point to until they are registered.
static OFF: AtomicU32 = AtomicU32::new(0);

// SAFETY: its texts are only read and live as long as the process; the rest is atomic or never
// changes.
#[allow(unsafe_code)]
unsafe impl Sync for Site {}

#[allow(unsafe_code)]
mod core_calls {
    use super::{Site, c_int};

    unsafe extern "C" {
        pub(super) safe fn loopscope_thread_init() -> c_int;
        pub(super) fn loopscope_register(start: *const Site, stop: *const Site);
        pub(super) fn loopscope_event(site: *const Site, id: i64);
        pub(super) fn loopscope_event_fields(
            site: *const Site,
            id: i64,
            payload: *const u8,
            size: u32,
        );
        pub(super) fn loopscope_event_fields_at(
            site: *const Site,
            id: i64,
            payload: *const u8,
            size: u32,
            counter: u64,
        );
        pub(super) fn loopscope_event_sized(
            site: *const Site,
            id: i64,
            payload: *const u8,
            lengths: *const usize,
        );
        pub(super) fn loopscope_interval_start(site: *const Site);
        pub(super) fn loopscope_interval_end(site: *const Site, id: i64, over_ns: u64);
        pub(super) fn loopscope_interval_start_key(site: *const Site, key: i64);
        pub(super) fn loopscope_interval_end_key(site: *const Site, key: i64, over_ns: u64);
        pub(super) fn loopscope_counter_add(site: *const Site, amount: i64);
        pub(super) fn loopscope_counter_log(site: *const Site);
        pub(super) fn loopscope_counter_reset(site: *const Site);
        pub(super) fn loopscope_histogram_add(site: *const Site, value: i64);
        pub(super) fn loopscope_histogram_log(site: *const Site);
        pub(super) fn loopscope_histogram_reset(site: *const Site);
    }
}

impl Site {
    /// A declaration, which nothing hits. The texts end with NUL, the fields as their kind says.
    #[doc(hidden)]
    pub const fn declaration(
        kind: u32,
        group: &'static str,
        name: &'static str,
        fields: &'static [u8],
        file: &'static str,
        line: u32,
    ) -> Site {
        Site {
            size: size_of::<Site>() as u32,
            kind,
            enabled: AtomicPtr::new((&raw const OFF).cast_mut()),
            group: group.as_ptr().cast(),
            name: name.as_ptr().cast(),
            fields: fields.as_ptr().cast(),
            file: file.as_ptr().cast(),
            line,
            index: AtomicU16::new(u16::MAX),
            payload: 0,
            off: AtomicU32::new(0),
            entity: AtomicU32::new(0),
        }
    }

    /// A site of run time, whose texts live as long as the process.
    pub(crate) fn made(kind: u32, text: [*const c_char; 4], line: u32, payload: u16) -> Site {
        let [group, name, fields, file] = text;
        let declared = Site::declaration(kind, "", "", &[], "", line);
        Site { group, name, fields, file, payload, ..declared }
    }

    pub(crate) fn kind(&self) -> u32 {
        self.kind
    }

    pub(crate) fn field_text(&self) -> *const c_char {
        self.fields
    }

    /// Whether hits of this site are recorded now: two loads.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub fn enabled(&self) -> bool {
        // Acquire pairs with the release store in loopscope_register (sites.c): who sees the flag
        // word sees the index.
        let flag = self.enabled.load(Ordering::Acquire);
        // SAFETY: at first the pointer is to a word that is zero for good, and from the site's
        // registration on to a word of the control file's mapping, which is never unmapped.
        unsafe { (*flag).load(Ordering::Relaxed) != 0 }
    }

    /// Records an event or flow without fields.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub fn record(&self, id: impl Id) {
        // SAFETY: a `Site` comes only from the macros and from `RuntimeSite`, which make this call
        // for sites of its kind; the core keeps no pointer.
        unsafe { core_calls::loopscope_event(self, id.to_id()) }
    }

    /// Records an event or flow whose site describes the fields in `payload`.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub fn record_fields(&self, id: impl Id, payload: &Payload<'_>) {
        let (packed, size, lengths) = payload.parts();
        let packed = packed.as_ptr().cast();
        match lengths {
            // SAFETY: as above; the packed fields' room is a multiple of eight, which their size is
            // at most.
            None => unsafe { core_calls::loopscope_event_fields(self, id.to_id(), packed, size) },
            // SAFETY: as above; the payload keeps what its strings and bytes point to borrowed, and
            // has a length for each string.
            Some(lengths) => unsafe {
                core_calls::loopscope_event_sized(self, id.to_id(), packed, lengths.as_ptr());
            },
        }
    }
}

impl Site {
    /// Records an event, whose site describes the numbers in `payload`, with this stamp.
    #[doc(hidden)]
    #[inline(always)]
    #[allow(unsafe_code)]
    pub fn record_fields_at(&self, id: impl Id, payload: &Payload<'_>, counter: u64) {
        let (packed, size, lengths) = payload.parts();
        assert!(lengths.is_none(), "an event with a stamp of its own has numbers only");
        // SAFETY: as for `record_fields`.
        unsafe {
            let packed = packed.as_ptr().cast();
            core_calls::loopscope_event_fields_at(self, id.to_id(), packed, size, counter);
        }
    }
}

/// Calls that take the site and integers alone.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $of:ty),*) = $call:ident;)*) => {
        impl Site {$(
            $(#[$doc])*
            #[inline(always)]
            #[allow(unsafe_code)]
            pub fn $name(&self, $($argument: $of),*) {
                // SAFETY: as for `record`.
                unsafe { core_calls::$call(self, $($argument),*) }
            }
        )*}
    };
}

calls! {
    /// Starts an interval of this thread.
    interval_start() = loopscope_interval_start;
    /// Ends it; recorded if it took longer than `over_ns` nanoseconds.
    interval_end(id: i64, over_ns: u64) = loopscope_interval_end;
    /// Starts an interval that any thread may end.
    interval_start_key(key: i64) = loopscope_interval_start_key;
    /// Ends the interval with this key; recorded if it took longer than `over_ns` nanoseconds.
    interval_end_key(key: i64, over_ns: u64) = loopscope_interval_end_key;
    /// Adds to a counter.
    counter_add(amount: i64) = loopscope_counter_add;
    /// Records a counter's sum.
    counter_log() = loopscope_counter_log;
    /// Sets a counter to zero.
    counter_reset() = loopscope_counter_reset;
    /// Adds to a histogram.
    histogram_add(value: i64) = loopscope_histogram_add;
    /// Records a histogram's counts.
    histogram_log() = loopscope_histogram_log;
    /// Sets a histogram's counts to zero.
    histogram_reset() = loopscope_histogram_reset;
}

/// Registers a site of run time.
#[allow(unsafe_code)]
pub(crate) fn register(site: &'static Site) {
    let start: *const Site = site;
    // SAFETY: the range holds one site, which lives as long as the process; what the core writes to
    // is atomic, and the reference allows that.
    unsafe { core_calls::loopscope_register(start, start.add(1)) }
}

/// The calling thread has no ring, though there is a collector: its hits are counted as dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRing;

impl core::fmt::Display for NoRing {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("no event ring could be made; is the runtime directory's file system full?")
    }
}

impl core::error::Error for NoRing {}

/// Makes the calling thread's rings, which its first enabled hits would otherwise do with some
/// system calls and page faults. For real-time threads, before their loop.
pub fn thread_init() -> Result<(), NoRing> {
    if core_calls::loopscope_thread_init() == 0 { Ok(()) } else { Err(NoRing) }
}
