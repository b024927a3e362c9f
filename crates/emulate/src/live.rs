//! What works on devices, now: without it the crate is the model and what is asked of it.

pub mod control;
mod course;
pub mod engine;
mod error;
mod events;
pub mod frame;
mod headers;
pub mod hosts;
pub mod iproute;
pub mod kernel;
pub mod mover;
pub mod observe;
pub mod phases;
pub mod record;
pub mod report;
pub mod router;
pub mod run;
pub mod signals;
pub mod tally;
mod wait;

pub use error::EmulateError;
pub use events::prepare as prepare_events;
