//! The trace stream format: CTF 1.8 (Common Trace Format).
//!
//! [`tsdl`] and [`decode`] read any trace of that format. loopscope itself writes one dialect of it,
//! whose layout is fixed in `schema/trace.md`: [`Metadata`] recognises it in what [`tsdl`] has read,
//! and its packets have a faster reader of their own, [`Packets`] and [`Records`]. This crate does no
//! I/O: metadata goes in and out as text, packets as byte slices.

mod class;
pub mod decode;
mod describe;
mod field;
mod metadata;
mod own;
pub mod packet;
mod reader;
mod records;
pub mod tsdl;
mod writer;

pub use class::{Buckets, EventClass, Kind, StreamClass};
pub use field::{BucketCounts, FieldType, Value};
pub use metadata::{Metadata, TYPES, format_uuid, quote};
pub use reader::{PacketError, Packets};
pub use records::{Record, Records, Scan};
pub use tsdl::ParseError;
pub use writer::{PacketWriter, RecordError};
