//! Call sites made while the program runs, for layers over this crate and for languages without
//! macros.

use core::ffi::{CStr, c_char, c_void};

use crate::site::{self, Site, kind};
use crate::{Field, Payload};

/// A field's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the types of the same names")]
pub enum FieldType {
    U8 = 1,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
    String,
    Bytes,
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the types of the same names")]
pub enum Value<'a> {
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    F32(f32),
    F64(f64),
    /// Up to its first NUL.
    String(&'a str),
    Bytes(&'a [u8]),
}

macro_rules! each_value {
    ($self:ident, $value:ident => $does:expr) => {
        match $self {
            Value::U8($value) => $does,
            Value::U16($value) => $does,
            Value::U32($value) => $does,
            Value::U64($value) => $does,
            Value::I8($value) => $does,
            Value::I16($value) => $does,
            Value::I32($value) => $does,
            Value::I64($value) => $does,
            Value::F32($value) => $does,
            Value::F64($value) => $does,
            Value::String($value) => $does,
            Value::Bytes($value) => $does,
        }
    };
}

fn code_of<F: Field>(_: F) -> u8 {
    F::CODE
}

impl<'a> Value<'a> {
    fn code(self) -> u8 {
        each_value!(self, value => code_of(value))
    }

    fn push(self, payload: &mut Payload<'a>) {
        each_value!(self, value => value.push(payload));
    }
}

/// What a call site does.
#[derive(Clone, Copy, Debug)]
pub enum Kind<'a> {
    /// An event, with at most eight fields.
    Event(&'a [(&'a str, FieldType)]),
    /// A message leaves, with at most eight fields.
    FlowOut(&'a [(&'a str, FieldType)]),
    /// A message arrives, with at most eight fields.
    FlowIn(&'a [(&'a str, FieldType)]),
    /// An output was computed from an input; its one field is `out`, the output's id.
    FlowLink,
    /// Start of an interval, of the thread or with a key. No record.
    IntervalStart,
    /// End of an interval, of the thread or with a key. Records its start and duration.
    IntervalEnd,
    /// No record.
    CounterAdd,
    /// Records the sum.
    CounterLog,
    /// Back to zero.
    CounterReset,
    /// No record.
    HistogramAdd,
    /// Records the counts.
    HistogramLog,
    /// Back to zero.
    HistogramReset,
    /// Declares equal buckets; goes before the histogram's other sites.
    HistogramRange {
        /// Lowest value.
        low: i64,
        /// First value above.
        high: i64,
        /// At most 60000.
        buckets: u32,
    },
    /// Declares what people are told of an entity, or, under the name `*`, of a group.
    Describe {
        /// Unit of its values.
        unit: &'a str,
        /// In a sentence.
        description: &'a str,
    },
}

impl<'a> Kind<'a> {
    fn fields(self) -> &'a [(&'a str, FieldType)] {
        match self {
            Kind::Event(fields) | Kind::FlowOut(fields) | Kind::FlowIn(fields) => fields,
            Kind::FlowLink => &[("out", FieldType::I64)],
            _ => &[],
        }
    }

    fn code(self) -> u32 {
        match self {
            Kind::Event(_) => kind::EVENT,
            Kind::IntervalStart => kind::INTERVAL_START,
            Kind::IntervalEnd => kind::INTERVAL_END,
            Kind::CounterAdd => kind::COUNTER_ADD,
            Kind::CounterLog => kind::COUNTER_LOG,
            Kind::CounterReset => kind::COUNTER_RESET,
            Kind::HistogramAdd => kind::HISTOGRAM_ADD,
            Kind::HistogramLog => kind::HISTOGRAM_LOG,
            Kind::HistogramReset => kind::HISTOGRAM_RESET,
            Kind::FlowOut(_) => kind::FLOW_OUT,
            Kind::FlowIn(_) => kind::FLOW_IN,
            Kind::FlowLink => kind::FLOW_LINK,
            Kind::HistogramRange { .. } => kind::HISTOGRAM_RANGE,
            Kind::Describe { .. } => kind::DESCRIBE,
        }
    }
}

/// Why a call site could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A name is empty or has other characters than printable ASCII without spaces, `:`, `,`,
    /// quotes and backslashes.
    Name,
    /// A text has a NUL.
    Nul,
    /// More than eight fields.
    Fields,
    /// There is no such histogram.
    Range,
    /// Out of memory.
    Memory,
}

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Refused::Name => {
                "group, name and fields are printable ASCII without spaces, `:`, `,`, quotes and \
                 backslashes"
            }
            Refused::Nul => "a text has a NUL",
            Refused::Fields => "more than eight fields",
            Refused::Range => "a histogram has low < high, 1 to 60000 buckets, none below one wide",
            Refused::Memory => "out of memory",
        })
    }
}

impl core::error::Error for Refused {}

/// A call site made at run time. It lives as long as the process: make one for each place, once.
/// Its methods belong to its kind and panic on another.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeSite(&'static Site);

impl RuntimeSite {
    /// Makes and registers a call site of the entity `group:name`. Sites that are alike in
    /// everything are recorded as one site.
    pub fn new(
        group: &str,
        name: &str,
        kind: Kind<'_>,
        file: &str,
        line: u32,
    ) -> Result<RuntimeSite, Refused> {
        check(group, name, kind, file)?;
        let site = leak(group, name, kind, file, line)?;
        site::register(site);
        Ok(RuntimeSite(site))
    }

    /// Whether hits of this site are recorded now: two loads. The other methods record only then.
    #[inline(always)]
    pub fn enabled(self) -> bool {
        self.0.enabled()
    }

    fn hit(self, kinds: &[u32], call: impl FnOnce(&'static Site)) {
        assert!(kinds.contains(&self.0.kind()), "call for another kind than the site's: {self:?}");
        if self.enabled() {
            call(self.0);
        }
    }

    /// An event, one end of a flow, or a link, whose id is the input's and whose one value the
    /// output's.
    ///
    /// # Panics
    /// If the values are not of the fields' types, in their order.
    pub fn record(self, id: i64, values: &[Value<'_>]) {
        self.hit(&[kind::EVENT, kind::FLOW_OUT, kind::FLOW_IN, kind::FLOW_LINK], |site| {
            let codes = site.fields().split_inclusive(|b| *b == 0).map(|field| field[0]);
            assert!(codes.eq(values.iter().map(|v| v.code())), "values of other types: {values:?}");
            let mut payload = Payload::new();
            values.iter().for_each(|value| value.push(&mut payload));
            site.record_fields(id, &payload);
        });
    }

    /// Starts an interval of this thread.
    pub fn start(self) {
        self.hit(&[kind::INTERVAL_START], |site| site.interval_start());
    }

    /// Starts an interval that any thread may end, by an equal key.
    pub fn start_key(self, key: i64) {
        self.hit(&[kind::INTERVAL_START], |site| site.interval_start_key(key));
    }

    /// Ends an interval of this thread; recorded if it took longer than `over_ns` nanoseconds.
    pub fn end(self, id: i64, over_ns: u64) {
        self.hit(&[kind::INTERVAL_END], |site| site.interval_end(id, over_ns));
    }

    /// Ends the interval with this key, which becomes the id; recorded if it took longer than
    /// `over_ns` nanoseconds.
    pub fn end_key(self, key: i64, over_ns: u64) {
        self.hit(&[kind::INTERVAL_END], |site| site.interval_end_key(key, over_ns));
    }

    /// Adds to a counter or a histogram.
    pub fn add(self, value: i64) {
        self.hit(&[kind::COUNTER_ADD, kind::HISTOGRAM_ADD], |site| match site.kind() {
            kind::COUNTER_ADD => site.counter_add(value),
            _ => site.histogram_add(value),
        });
    }

    /// Records the state of a counter or a histogram.
    pub fn log(self) {
        self.hit(&[kind::COUNTER_LOG, kind::HISTOGRAM_LOG], |site| match site.kind() {
            kind::COUNTER_LOG => site.counter_log(),
            _ => site.histogram_log(),
        });
    }

    /// Sets a counter or a histogram back to zero.
    pub fn reset(self) {
        self.hit(&[kind::COUNTER_RESET, kind::HISTOGRAM_RESET], |site| match site.kind() {
            kind::COUNTER_RESET => site.counter_reset(),
            _ => site.histogram_reset(),
        });
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_graphic() && !b":,\"\\".contains(&b);
    !name.is_empty() && name.bytes().all(allowed)
}

fn check(group: &str, name: &str, kind: Kind<'_>, file: &str) -> Result<(), Refused> {
    let (unit, description) = match kind {
        Kind::Describe { unit, description } => (unit, description),
        _ => ("", ""),
    };
    let fields = kind.fields();
    if !is_name(group) || !is_name(name) || !fields.iter().all(|f| is_name(f.0)) {
        return Err(Refused::Name);
    }
    if fields.len() > Payload::FIELDS {
        return Err(Refused::Fields);
    }
    if [file, unit, description].iter().any(|text| text.contains('\0')) {
        return Err(Refused::Nul);
    }
    match kind {
        Kind::HistogramRange { low, high, buckets }
            if !crate::histogram::is_range(low, high, buckets) =>
        {
            Err(Refused::Range)
        }
        _ => Ok(()),
    }
}

/// Hands the bytes of a site's fields to `sink`, piece by piece.
fn each_piece(kind: Kind<'_>, sink: &mut dyn FnMut(&[u8])) {
    match kind {
        Kind::HistogramRange { low, high, buckets } => sink(&crate::range(low, high, buckets)),
        Kind::Describe { unit, description } => {
            sink(unit.as_bytes());
            sink(&[0]);
            sink(description.as_bytes());
        }
        _ => {
            for (name, field_type) in kind.fields() {
                sink(&[*field_type as u8]);
                sink(name.as_bytes());
                sink(&[0]);
            }
        }
    }
    sink(&[0]);
}

fn payload_size(kind: Kind<'_>) -> u16 {
    const SIZES: [u16; 13] = [0, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 0, 0];
    kind.fields().iter().map(|(_, field_type)| SIZES[*field_type as usize]).sum()
}

/// The site and its texts, in memory that is never freed.
#[allow(unsafe_code)]
fn leak(
    group: &str,
    name: &str,
    kind: Kind<'_>,
    file: &str,
    line: u32,
) -> Result<&'static Site, Refused> {
    unsafe extern "C" {
        // The library needs no allocator but libc's.
        fn malloc(size: usize) -> *mut c_void;
    }
    let mut size = size_of::<Site>() + group.len() + name.len() + file.len() + 3;
    each_piece(kind, &mut |piece| size += piece.len());
    // SAFETY: always sound; the result is checked.
    let start = unsafe { malloc(size) }.cast::<u8>();
    if start.is_null() {
        return Err(Refused::Memory);
    }
    let mut used = size_of::<Site>();
    let mut append = |piece: &[u8]| {
        assert!(piece.len() <= size - used);
        // SAFETY: `used + piece.len()` is at most the block's size, as just asserted; nobody else
        // knows the block.
        let at = unsafe {
            let at = start.add(used);
            at.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
            at
        };
        used += piece.len();
        at.cast::<c_char>().cast_const()
    };
    let mut text = |text: &str| {
        let at = append(text.as_bytes());
        append(&[0]);
        at
    };
    let (group, name, file) = (text(group), text(name), text(file));
    let fields = append(&[]);
    each_piece(kind, &mut |piece| {
        append(piece);
    });
    let made = Site::made(kind.code(), [group, name, fields, file], line, payload_size(kind));
    let site = start.cast::<Site>();
    // SAFETY: malloc aligns for any type of this size, and the block begins with room for a site.
    // It is never freed, so the reference lives as long as the process.
    unsafe {
        site.write(made);
        Ok(&*site)
    }
}

impl Site {
    /// Codes and names of an event's or flow's fields, without the final 0: per field its type's
    /// code, its name, NUL.
    #[allow(unsafe_code)]
    fn fields(&self) -> &'static [u8] {
        let mut at = self.field_text();
        let start = at.cast::<u8>();
        let mut size = 0;
        // SAFETY: `leak` has ended each name with NUL and the last one with another 0, in memory
        // that is never freed.
        unsafe {
            while *at != 0 {
                let field = CStr::from_ptr(at).to_bytes_with_nul().len();
                at = at.add(field);
                size += field;
            }
            core::slice::from_raw_parts(start, size)
        }
    }
}
