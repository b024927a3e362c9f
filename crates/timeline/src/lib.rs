//! From the streams of all hosts and a [`ClockMap`](loopscope_time::ClockMap) for each to one
//! ordered table per event class, as `schema/run-directory.md` fixes them.
//!
//! Where the maps come from is not this crate's business.

mod block;
mod build;
mod clocks;
mod column;
mod cursor;
mod decoded;
mod earlier;
mod entity;
mod foreign;
mod import;
mod loss;
mod merged;
mod order;
mod packets;
mod solution;
mod store;
mod stored;
mod streams;
mod table;
mod triggers;

pub use build::{BuildError, HostClock, HostSummary, Problem, Progress, Summary, Timeline};
pub use clocks::{ClockEvent, ForeignReading, LoopFigures, LoopResiduals};
pub use decoded::Decoded;
pub use foreign::{
    Clocks, Place, Source, SourceSummary, add as add_foreign, check as check_foreign,
};
pub use import::{
    ImportError, ImportSummary, Lost, StreamLoss, TableSummary, TraceSummary, import,
};
pub use loss::Loss;
pub use merged::{About, EventTable, Merged, write_merged};
pub use solution::{Solution, SolvedHost};
