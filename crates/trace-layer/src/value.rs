//! What a hit says: its id and its typed values, as `tracing` hands them over.

use std::fmt::{Debug, Write};
use std::ops::Range;

use tracing_core::Field;
use tracing_core::field::Visit;

/// Fields that an entity can have.
pub(crate) const MOST_FIELDS: usize = 8;

/// A value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    /// A place in [`Hit::text`], with its closing NUL.
    Text(Range<usize>),
    /// A place in [`Hit::text`].
    Bytes(Range<usize>),
}

/// Type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unsigned,
    Signed,
    Float,
    Bool,
    Text,
    Bytes,
}

impl Kind {
    /// In a call site's description (`loopscope_ctf::FieldType`).
    pub fn code(self) -> u8 {
        match self {
            Kind::Bool => 1,
            Kind::Unsigned => 4,
            Kind::Signed => 8,
            Kind::Float => 10,
            Kind::Text => 11,
            Kind::Bytes => 12,
        }
    }

    /// What it counts in a call site's `payload`.
    pub fn size(self) -> usize {
        match self {
            Kind::Bool => 1,
            Kind::Unsigned | Kind::Signed | Kind::Float => 8,
            Kind::Text | Kind::Bytes => 0,
        }
    }
}

impl Value {
    pub fn kind(&self) -> Kind {
        match self {
            Value::Unsigned(_) => Kind::Unsigned,
            Value::Signed(_) => Kind::Signed,
            Value::Float(_) => Kind::Float,
            Value::Bool(_) => Kind::Bool,
            Value::Text(_) => Kind::Text,
            Value::Bytes(_) => Kind::Bytes,
        }
    }
}

/// An event's id and values, in the order of its fields.
#[derive(Debug, Default)]
pub(crate) struct Hit {
    pub id: i64,
    /// Index of the callsite's field for each value; [`REST`] holds several fields.
    pub fields: Vec<usize>,
    pub values: Vec<Value>,
    pub text: Vec<u8>,
    /// What found no room, as `name=value` with spaces between.
    rest: String,
    /// Fields that the callsite has, the id among them.
    most: usize,
}

/// In [`Hit::fields`]: the text of all that found no room.
pub(crate) const REST: usize = usize::MAX;

impl Hit {
    /// A hit of a callsite with this many fields.
    pub fn new(fields: usize) -> Hit {
        Hit { most: fields, ..Hit::default() }
    }

    /// To be called when all was visited.
    pub fn finish(&mut self) {
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            let value = self.push_text(|text| text.extend_from_slice(rest.as_bytes()));
            self.fields.push(REST);
            self.values.push(value);
        }
    }

    fn has_room(&self) -> bool {
        self.most <= MOST_FIELDS || self.values.len() < MOST_FIELDS - 1
    }

    fn add(&mut self, field: &Field, value: Value) {
        if self.has_room() {
            self.fields.push(field.index());
            self.values.push(value);
        } else {
            match value {
                Value::Unsigned(v) => self.add_rest(field, &v),
                Value::Signed(v) => self.add_rest(field, &v),
                Value::Float(v) => self.add_rest(field, &v),
                Value::Bool(v) => self.add_rest(field, &v),
                Value::Text(_) | Value::Bytes(_) => unreachable!("asked for room before"),
            }
        }
    }

    fn add_rest(&mut self, field: &Field, value: &dyn Debug) {
        let space = if self.rest.is_empty() { "" } else { " " };
        // Writing to a String fails only where the value's own Debug does; then its part is
        // missing.
        let _ = write!(self.rest, "{space}{}={value:?}", field.name());
    }

    fn push_text(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Value {
        let start = self.text.len();
        write(&mut self.text);
        // A trace's string ends at its first NUL.
        for byte in &mut self.text[start..] {
            if *byte == 0 {
                *byte = b'?';
            }
        }
        self.text.push(0);
        Value::Text(start..self.text.len())
    }
}

impl Visit for Hit {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, Value::Float(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        if field.name() == "id" {
            self.id = value;
        } else {
            self.add(field, Value::Signed(value));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "id" {
            // Ids are compared, not computed with.
            self.id = value.cast_signed();
        } else {
            self.add(field, Value::Unsigned(value));
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::Bool(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if self.has_room() {
            let value = self.push_text(|text| text.extend_from_slice(value.as_bytes()));
            self.add(field, value);
        } else {
            self.add_rest(field, &value);
        }
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        if self.has_room() {
            let start = self.text.len();
            self.text.extend_from_slice(value);
            self.add(field, Value::Bytes(start..self.text.len()));
        } else {
            self.add_rest(field, &value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if self.has_room() {
            // What the value's Debug wrote before it failed is kept, as above.
            let value = self.push_text(|text| {
                let _ = std::io::Write::write_fmt(text, format_args!("{value:?}"));
            });
            self.add(field, value);
        } else {
            self.add_rest(field, value);
        }
    }
}

/// Finds a span's field `id`.
#[derive(Debug, Default)]
pub(crate) struct SpanId(pub Option<i64>);

impl Visit for SpanId {
    fn record_i64(&mut self, field: &Field, value: i64) {
        if field.name() == "id" {
            self.0 = Some(value);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "id" {
            self.0 = Some(value.cast_signed());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}
