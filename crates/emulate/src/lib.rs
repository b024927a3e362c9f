//! Emulated links. [`model`] is sans-I/O and seeded: the same seed and packets give the same fate
//! for each packet, to the byte. [`settings`] are what an experiment asks of each link. [`router`] is
//! a switch whose ports are joined by such links, [`mover`] what takes its frames off devices and puts
//! them on others, and [`engine`] the loop around both.

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
