//! Emulated links. [`model`] is sans-I/O and seeded: the same seed and packets give the same fate
//! for each packet, to the byte. [`settings`] are what an experiment asks of each link. [`router`] is
//! a switch whose ports are joined by such links, [`mover`] what takes its frames off devices and puts
//! them on others, and [`engine`] the loop around both.

#[cfg(feature = "router")]
pub mod control;
#[cfg(feature = "router")]
pub mod engine;
#[cfg(feature = "router")]
mod error;
#[cfg(feature = "router")]
mod events;
#[cfg(feature = "router")]
pub mod frame;
pub mod model;
#[cfg(feature = "router")]
pub mod mover;
pub mod netem;
#[cfg(feature = "router")]
pub mod phases;
#[cfg(feature = "router")]
pub mod record;
#[cfg(feature = "router")]
pub mod report;
#[cfg(feature = "router")]
pub mod router;
#[cfg(feature = "router")]
pub mod run;
pub mod settings;
#[cfg(feature = "router")]
pub mod signals;
pub mod simulate;
#[cfg(feature = "router")]
pub mod tally;
pub mod traces;
#[cfg(feature = "router")]
mod wait;

#[cfg(feature = "router")]
pub use error::EmulateError;
#[cfg(feature = "router")]
pub use events::prepare as prepare_events;
