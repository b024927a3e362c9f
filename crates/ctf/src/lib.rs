//! The trace stream format: the dialect of CTF 1.8 (Common Trace Format) that loopscope writes.
//!
//! The layout is fixed in `schema/trace.md`. This crate does no I/O: metadata goes in and out as
//! text, packets as byte slices.

mod class;
mod describe;
mod field;
mod metadata;
pub mod packet;
mod parse;
mod reader;
mod records;
mod writer;

pub use class::{Buckets, EventClass, Kind, StreamClass};
pub use field::{BucketCounts, FieldType, Value};
pub use metadata::Metadata;
pub use parse::ParseError;
pub use reader::{PacketError, Packets};
pub use records::{Record, Records, Scan};
pub use writer::{PacketWriter, RecordError};
