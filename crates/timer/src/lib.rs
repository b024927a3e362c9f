//! Waiting for instants of CLOCK_MONOTONIC. A sleep wakes late by tens of microseconds; who needs to
//! be on time sleeps until a [`Guard`] before the instant and spins for the rest.

mod guard;
mod placement;
mod wait;

pub use guard::Guard;
pub use placement::{pin, real_time};
pub use wait::{Timer, Wait, now};
