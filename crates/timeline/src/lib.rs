//! The time line of a run: one ordered table for each event class, in global time.
//!
//! Input are the trace streams of all hosts and a [`ClockMap`](loopscope_time::ClockMap) for each
//! host. For a stamp `c` of a host's counter, the map gives global time `ts` in nanoseconds and its
//! maximum error `err_ns`: the event happened within `ts` ± `err_ns`. Rows are ordered by `ts`,
//! then by `c`. `schema/run-directory.md` defines the tables.
//!
//! This crate does not estimate clocks; crate `loopscope-clocksync` makes the maps.

mod block;
mod build;
mod clocks;
mod column;
mod cursor;
mod decoded;
mod earlier;
mod entity;
mod error;
mod foreign;
mod import;
mod loss;
mod merged;
mod order;
mod packets;
mod solution;
mod source;
mod store;
mod stored;
mod streams;
mod table;
mod triggers;

pub use build::{Summary, Timeline};
pub use clocks::{ClockEvent, ForeignReading, HostClock, HostSummary, LoopFigures, LoopResiduals};
pub use decoded::Decoded;
pub use error::BuildError;
pub use foreign::{
    Clocks, Place, Source, SourceSummary, add as add_foreign, check as check_foreign,
};
pub use import::{
    ImportError, ImportSummary, Lost, StreamLoss, TableSummary, TraceSummary, import,
};
pub use loss::Loss;
pub use merged::{About, EventTable, Merged, write_merged};
pub use solution::{Solution, SolvedHost};
pub use source::{Problem, Progress};
