//! Call sites made at run time, and the calls into the C core: all the `unsafe` of this crate.

#![allow(unsafe_code)]

use std::ffi::{CString, c_char};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

// The core is linked through this crate.
use loopscope_trace as _;

use crate::value::{Kind as FieldKind, MOST_FIELDS, Value};

/// A call site as `include/loopscope/trace.h` declares it.
#[repr(C)]
struct Raw {
    size: u32,
    kind: u32,
    enabled: AtomicPtr<AtomicU32>,
    group: *const c_char,
    name: *const c_char,
    fields: *const c_char,
    file: *const c_char,
    line: u32,
    index: u16,
    payload: u16,
    off: AtomicU32,
    entity: u32,
}

const _: () = assert!(size_of::<Raw>() == 64);

/// Largest size of a field in a payload, in bytes: a pointer and a `u32`.
const LARGEST: usize = 12;

mod core_calls {
    use super::Raw;

    unsafe extern "C" {
        pub(super) fn loopscope_register(start: *mut Raw, stop: *mut Raw);
        pub(super) fn loopscope_event(site: *const Raw, id: i64);
        pub(super) fn loopscope_event_fields(
            site: *const Raw,
            id: i64,
            payload: *const u8,
            size: u32,
        );
        pub(super) fn loopscope_event_variable(site: *const Raw, id: i64, payload: *const u8);
        pub(super) fn loopscope_interval_start_key(site: *const Raw, key: i64);
        pub(super) fn loopscope_interval_end_key(site: *const Raw, key: i64, over_ns: u64);
    }
}

/// What a call site does: `enum loopscope_kind` in trace.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    Event = 1,
    IntervalStart = 2,
    IntervalEnd = 3,
}

/// Where a call site stands, and in which entity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Where<'a> {
    pub group: &'a str,
    pub name: &'a str,
    pub file: &'a str,
    pub line: u32,
}

/// A registered call site. It lives as long as the process.
pub(crate) struct Site {
    raw: *const Raw,
    kind: Kind,
    fields: Vec<FieldKind>,
}

// SAFETY: the raw site is leaked and not written to after its registration, but for its atomics.
unsafe impl Send for Site {}
// SAFETY: as above; the core's calls may be made from any thread.
unsafe impl Sync for Site {}

fn text(text: &str) -> *const c_char {
    // The core keeps sites for good, hence their texts too.
    CString::new(text.replace('\0', "?")).unwrap_or_default().into_raw()
}

impl Site {
    /// Makes a call site and registers it. The texts are legal (`name.rs`), the fields at most
    /// eight.
    pub fn register(kind: Kind, place: Where<'_>, fields: &[(String, FieldKind)]) -> Site {
        let mut described = Vec::new();
        for (name, field) in fields {
            described.push(field.code());
            described.extend_from_slice(name.as_bytes());
            described.push(0);
        }
        described.push(0);
        let payload = fields.iter().map(|(_, field)| field.size()).sum::<usize>();
        let raw = Box::leak(Box::new(Raw {
            size: size_of::<Raw>() as u32,
            kind: kind as u32,
            enabled: AtomicPtr::new(std::ptr::null_mut()),
            group: text(place.group),
            name: text(place.name),
            fields: Box::leak(described.into_boxed_slice()).as_ptr().cast(),
            file: text(place.file),
            line: place.line,
            index: u16::MAX,
            payload: payload as u16,
            off: AtomicU32::new(0),
            entity: 0,
        }));
        raw.enabled = AtomicPtr::new(&raw mut raw.off);
        let start: *mut Raw = raw;
        // SAFETY: one whole site, leaked with all that it points to, not shared before this
        // returns.
        unsafe { core_calls::loopscope_register(start, start.add(1)) };
        Site { raw: start, kind, fields: fields.iter().map(|(_, field)| *field).collect() }
    }

    fn raw(&self) -> &Raw {
        // SAFETY: leaked, and since its registration only read but for atomics.
        unsafe { &*self.raw }
    }

    /// Whether the core took it: not if it has no directory (dormant for good) or no room.
    pub fn is_registered(&self) -> bool {
        self.raw().index != u16::MAX
    }

    /// Whether hits are recorded now: two loads.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        // Acquire pairs with the release store in loopscope_register (sites.c): who sees the flag
        // word sees the index.
        let flag = self.raw().enabled.load(Ordering::Acquire);
        // SAFETY: the site's own word, or after registration one of the control file's mapping,
        // which is never unmapped.
        unsafe { (*flag).load(Ordering::Relaxed) != 0 }
    }

    /// Records an event with its fields; `text` is what the values of strings and bytes point into.
    /// Only for enabled sites.
    pub fn record(&self, id: i64, values: &[Value], text: &[u8]) {
        assert!(self.kind == Kind::Event, "an interval's site records no event");
        assert!(
            values.iter().map(|value| value.kind()).eq(self.fields.iter().copied()),
            "the values are not this site's"
        );
        if values.is_empty() {
            // SAFETY: a registered event site without fields.
            unsafe { core_calls::loopscope_event(self.raw, id) };
            return;
        }
        let mut payload = [0; MOST_FIELDS * LARGEST];
        let (mut size, mut is_variable) = (0, false);
        let mut put = |bytes: &[u8]| {
            payload[size..size + bytes.len()].copy_from_slice(bytes);
            size += bytes.len();
        };
        for value in values {
            match value {
                Value::Unsigned(v) => put(&v.to_le_bytes()),
                Value::Signed(v) => put(&v.to_le_bytes()),
                Value::Float(v) => put(&v.to_le_bytes()),
                Value::Bool(v) => put(&[u8::from(*v)]),
                Value::Text(range) => {
                    let string = &text[range.clone()];
                    assert!(string.last() == Some(&0), "a text in the buffer ends with a NUL");
                    put(&(string.as_ptr() as usize).to_le_bytes());
                    is_variable = true;
                }
                Value::Bytes(range) => {
                    is_variable = true;
                    let bytes = &text[range.clone()];
                    put(&(bytes.as_ptr() as usize).to_le_bytes());
                    put(&(bytes.len() as u32).to_le_bytes());
                }
            }
        }
        let start = payload.as_ptr();
        // SAFETY: the payload has the site's fields in order, packed, with room beyond for the
        // whole words that the core copies; its pointers are into `text`, which outlives the call;
        // the core keeps no pointer.
        unsafe {
            if is_variable {
                core_calls::loopscope_event_variable(self.raw, id, start);
            } else {
                core_calls::loopscope_event_fields(self.raw, id, start, size as u32);
            }
        }
    }

    /// An interval begins. Only for enabled sites.
    pub fn start(&self, key: i64) {
        assert!(self.kind == Kind::IntervalStart, "not the start of an interval");
        // SAFETY: a registered site of this kind.
        unsafe { core_calls::loopscope_interval_start_key(self.raw, key) }
    }

    /// The interval with this key ends. Only for enabled sites.
    pub fn end(&self, key: i64) {
        assert!(self.kind == Kind::IntervalEnd, "not the end of an interval");
        // SAFETY: a registered site of this kind.
        unsafe { core_calls::loopscope_interval_end_key(self.raw, key, 0) }
    }
}
