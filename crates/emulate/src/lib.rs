//! Emulated network links, and a router that joins hosts by them.
//!
//! [`model`] decides the fate of each packet of a link: loss, delay, queueing, reordering and
//! corruption. It takes the time as an argument, does no I/O and is seeded: the same seed and
//! packets give the same fates, to the byte. [`settings`] are the properties of a link that an
//! experiment sets. [`router`] is a switch whose ports are joined by such links; a [`mover`] takes
//! frames off devices and puts them on others; [`engine`] is the loop around both.

pub mod address;
#[cfg(feature = "router")]
mod live;
pub mod model;
pub mod netem;
pub mod settings;
pub mod simulate;
pub mod traces;

#[cfg(feature = "router")]
pub use live::*;
