//! The collector: drains the rings of instrumented programs into trace directories
//! (`schema/trace.md`) and accounts for every event.
//!
//! Programs and collector share a *runtime directory* (`crates/trace/c/layout.h`). The collector's
//! side writes `streams` there ([`stream::write`]) and puts the path into the programs' environment
//! ([`RUNTIME_DIR`]); each program makes its files in it, and [`Collector`] reads them. Each stream
//! has an account ([`LossReport`]): `emitted = recorded + overwritten + dropped`, for each process
//! and in sum, and the drops by call site and cause.
//!
//! [`record::run`] does all of this around one command.

mod alive;
pub mod attach;
mod cells;
mod collector;
mod cost;
mod deadline;
mod doubts;
pub mod entities;
mod error;
mod fault;
mod flight;
mod folder;
pub mod frequency;
mod handover;
mod identity;
mod journal;
mod live;
mod loss;
mod mapping;
mod observe;
mod output;
mod packets;
mod process;
mod process_stream;
mod progress;
pub mod record;
mod recording_spec;
pub mod resume;
mod ring;
mod shortage;
mod signals;
mod sink;
mod site;
pub mod stream;
mod stream_file;
mod subbuffer;
pub mod sweep;
mod trigger;
mod triggers;
mod unmatched;

pub use collector::{Activity, ClockMap, Collector};
pub use cost::{Cost, Spread};
pub use deadline::{Deadline, Departure, Point, Role};
pub use error::Error;
pub use identity::Identity;
pub use loopscope_predicate::{Predicate, PredicateError};
pub use loss::{LossReport, Losses, ProcessLoss, SiteLoss};
pub use recording_spec::RecordingSpec;
pub use stream::{MAIN, StreamSpec};
pub use trigger::{Cause, Trigger};
pub use triggers::Why;
pub use unmatched::Unmatched;

/// Environment variable that names the runtime directory: an absolute path of fewer than 384 bytes.
/// Programs that find it empty or unusable run dormant.
pub const RUNTIME_DIR: &str = "LOOPSCOPE_RUNTIME_DIR";
