//! What a record means: event classes.

use crate::field::{FieldType, Value};
use crate::packet;

/// What the records of a class say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Something happened.
    #[default]
    Event,
    /// How long something took: full counter of the start and duration in ticks. The stamp is the
    /// end.
    Interval,
    /// State of a counter entity.
    Counter,
    /// State of a histogram.
    Histogram,
    /// The message `id` left.
    FlowOut,
    /// The message `id` arrived.
    FlowIn,
    /// The message `out` was computed from the message `id`.
    FlowLink,
}

/// Fields of a class: name and type of each.
type Fields = &'static [(&'static str, FieldType)];

const INTERVAL: Fields = &[("start", FieldType::U64), ("duration", FieldType::U64)];
const COUNTER: Fields = &[("value", FieldType::I64)];
const HISTOGRAM: Fields = &[
    ("count", FieldType::U64),
    ("sum", FieldType::I64),
    ("below", FieldType::U64),
    ("above", FieldType::U64),
    ("buckets", FieldType::Buckets),
];
const FLOW_LINK: Fields = &[("out", FieldType::I64)];

impl Kind {
    /// All.
    pub const ALL: [Kind; 7] = [
        Kind::Event,
        Kind::Interval,
        Kind::Counter,
        Kind::Histogram,
        Kind::FlowOut,
        Kind::FlowIn,
        Kind::FlowLink,
    ];

    /// Its name in the metadata and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Event => "event",
            Kind::Interval => "interval",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
            Kind::FlowOut => "flow-out",
            Kind::FlowIn => "flow-in",
            Kind::FlowLink => "flow-link",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The fields of every class of this kind; `None` where each call site has its own.
    pub fn fields(self) -> Option<Fields> {
        match self {
            Kind::Event | Kind::FlowOut | Kind::FlowIn => None,
            Kind::Interval => Some(INTERVAL),
            Kind::Counter => Some(COUNTER),
            Kind::Histogram => Some(HISTOGRAM),
            Kind::FlowLink => Some(FLOW_LINK),
        }
    }
}

/// How a histogram divides its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buckets {
    /// Into `count` equal parts.
    Linear {
        /// Lowest value of the first.
        low: i64,
        /// First value above the last.
        high: i64,
        /// Their number.
        count: u32,
    },
    /// Into 32 for each power of two (`schema/trace.md`).
    Log,
}

/// A kind of record: one call site's entity, or the final state of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventClass {
    /// The record's class id, unique in its stream class.
    pub id: u16,
    /// Group part of `group:name`.
    pub group: String,
    /// Name part.
    pub name: String,
    /// What its records say.
    pub kind: Kind,
    /// Fields after the `id`: those of [`Kind::fields`] where the kind has its own.
    pub fields: Vec<(String, FieldType)>,
    /// Unit of the entity's values; empty if none is given.
    pub unit: String,
    /// For people; empty if nobody told.
    pub description: String,
    /// Buckets; present for histograms only.
    pub histogram: Option<Buckets>,
    /// Source file and line of the call site; empty and 0 where there is none.
    pub file: String,
    /// See `file`.
    pub line: u32,
}

impl EventClass {
    /// Size of a record of this class in bytes; `None` where it differs from record to record.
    pub fn record_size(&self) -> Option<usize> {
        self.fields.iter().try_fold(packet::RECORD, |size, (_, t)| Some(size + t.size()?))
    }

    /// Names and values of a record's encoded fields.
    ///
    /// # Panics
    /// If `fields` are not those of a record of this class.
    pub fn values<'a>(&'a self, fields: &'a [u8]) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        let mut rest = fields;
        self.fields.iter().map(move |(name, field_type)| {
            let value = field_type.decode(rest);
            rest = &rest[field_type.extent(rest).unwrap_or_default()..];
            (name.as_str(), value)
        })
    }
}

/// The streams of one process: its threads share event classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamClass {
    /// Unique in the trace.
    pub id: u32,
    /// Name of the process or component.
    pub process: String,
    /// Whether it is a kernel: its packets have the processor for `pid`, its records the thread in
    /// which they were made for `id`.
    pub kernel: bool,
    /// Its call sites.
    pub events: Vec<EventClass>,
}
