//! What a trace declares about itself in CTF's metadata language (TSDL): any trace of CTF 1.8.
//!
//! [`Trace::read`] takes the `metadata` file, plain or in packets, and resolves it: aliases, byte
//! orders, alignments, and the places of lengths and tags, which become numbered slots. What comes
//! out is a plan that decoding follows without looking a name up.

mod blocks;
mod layout;
mod lexer;
mod packets;
mod parser;
mod paths;
mod scope;
mod syntax;
mod types;
mod value;

use std::collections::HashMap;

pub use layout::{
    Choice, Enumeration, Field, Float, Integer, List, ListLength, Member, Order, Role, Structure,
    Variant,
};

/// How deep types may be nested: their readers call themselves for each level.
const DEPTH: usize = 64;

const NS: i128 = 1_000_000_000;

/// What CTF 1.8 forbids and is read all the same, as babeltrace2 does, with the place.
type Warnings = Vec<ParseError>;

/// A place in the metadata text, both from 1; 0 where it is in none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Character in the line.
    pub column: usize,
}

/// Why a metadata text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", self.shown_place())]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// Character in the line, from 1.
    pub column: usize,
    /// What is wrong there.
    pub what: String,
}

impl ParseError {
    fn shown_place(&self) -> String {
        match self.line {
            0 => String::new(),
            line => format!("metadata line {line}, column {}: ", self.column),
        }
    }
}

impl Place {
    pub(crate) fn error(self, what: impl Into<String>) -> ParseError {
        ParseError { line: self.line, column: self.column, what: what.into() }
    }
}

/// A trace: streams of event records, and the clocks of their stamps.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// If it has one.
    pub uuid: Option<[u8; 16]>,
    /// Byte order of integers without one of their own.
    pub order: Order,
    /// The environment's entries, in their order.
    pub env: Vec<EnvEntry>,
    /// In the order of declaration.
    pub clocks: Vec<Clock>,
    /// What each packet begins with.
    pub packet_header: Option<Field>,
    /// In the order of declaration.
    pub streams: Vec<Stream>,
    /// Values that lengths and tags refer to, for a decoder to keep.
    pub slots: usize,
    /// Error at the second of two members with one name in a body, if there is one: CTF does not
    /// allow it, but programs of loopscope's that gave two fields one name have written it.
    pub doubled: Option<ParseError>,
    /// What CTF 1.8 forbids in the text and was read all the same, as babeltrace2 does: what it
    /// means is a guess. In the order of the text.
    pub warnings: Vec<ParseError>,
    /// Place of the trace block.
    pub place: Place,
}

/// `key = value` in the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvEntry {
    /// Name.
    pub key: String,
    /// What it says.
    pub value: EnvValue,
    /// Where.
    pub place: Place,
}

/// An entry's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvValue {
    /// A text.
    Text(String),
    /// A number.
    Number(i128),
}

/// A clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// By which integers refer to it.
    pub name: String,
    /// Equal where two traces have the same clock.
    pub uuid: Option<[u8; 16]>,
    /// Ticks per second.
    pub frequency: u64,
    /// Seconds from the origin to the clock's zero.
    pub offset_s: i64,
    /// Ticks to add to that.
    pub offset: i64,
    /// Whether the origin is the Unix epoch.
    pub absolute: bool,
    /// Place of the block.
    pub place: Place,
}

/// Packets and events of one layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// By which packet headers refer to it.
    pub id: u64,
    /// What follows the packet's header.
    pub packet_context: Option<Field>,
    /// What each event begins with.
    pub event_header: Option<Field>,
    /// What follows the header in every event.
    pub event_context: Option<Field>,
    /// In the order of declaration.
    pub events: Vec<Event>,
    /// Index of each event by its id.
    pub by_id: HashMap<u64, usize>,
    /// Index of the clock of its stamps.
    pub clock: Option<usize>,
    /// Place of the block.
    pub place: Place,
}

/// A class of events.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// By which event headers refer to it.
    pub id: u64,
    /// Name.
    pub name: String,
    /// `model.emf.uri`.
    pub uri: Option<String>,
    /// Its own context.
    pub context: Option<Field>,
    /// Its fields.
    pub payload: Option<Field>,
    /// Place of the block.
    pub place: Place,
}

impl Trace {
    /// Reads the content of a `metadata` file.
    pub fn read(bytes: &[u8]) -> Result<Trace, ParseError> {
        let mut warnings = Warnings::new();
        let text = packets::text(bytes, &mut warnings)?;
        let tokens = lexer::tokens(&text, &mut warnings)?;
        let items = parser::parse(tokens, &mut warnings)?;
        let mut trace = blocks::trace(&items, text.len())?;
        trace.warnings.append(&mut warnings);
        trace.warnings.sort_by_key(|warning| (warning.line, warning.column));
        Ok(trace)
    }

    /// The text of an environment entry.
    pub fn env_text(&self, key: &str) -> Option<&str> {
        self.env.iter().find(|entry| entry.key == key).and_then(|entry| match &entry.value {
            EnvValue::Text(text) => Some(text.as_str()),
            EnvValue::Number(_) => None,
        })
    }
}

impl Clock {
    /// Nanoseconds since the clock's origin at `ticks`, rounded down; `None` outside of 64 bits.
    pub fn ns(&self, ticks: u64) -> Option<i64> {
        self.whole_ns(ticks, 0)
    }

    /// The first and the last whole nanosecond that have a part of the time for which the clock
    /// shows `ticks`: those of a coarse clock are several.
    pub fn span(&self, ticks: u64) -> Option<(i64, i64)> {
        Some((self.ns(ticks)?, self.whole_ns(ticks, NS - 1)?))
    }

    /// At so many 10⁻⁹ ticks after `ticks`.
    fn whole_ns(&self, ticks: u64, after: i128) -> Option<i64> {
        let ticks = (i128::from(self.offset) + i128::from(ticks)) * NS + after;
        let ns = ticks.div_euclid(i128::from(self.frequency));
        i64::try_from(i128::from(self.offset_s) * NS + ns).ok()
    }
}
