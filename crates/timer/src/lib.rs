//! Waits for instants of CLOCK_MONOTONIC.
//!
//! A sleep ends tens of microseconds late. To be on time, a [`Timer`] sleeps until a [`Guard`]
//! before the instant and spins for the rest; the guard is learned from the lateness of recent
//! sleeps. A [`Pace`] waits for the turns of a loop.
//!
//! ```
//! use loopscope_timer::Guard;
//!
//! let mut guard = Guard::below(200_000);
//! guard.woke(40_000); // ns after the end of the sleep that was asked for
//! assert!(guard.ns() <= 200_000);
//! ```

mod guard;
mod pace;
mod placement;
mod wait;

pub use guard::Guard;
pub use pace::{Pace, Turn};
pub use placement::{pin, real_time};
pub use wait::{Timer, Wait, now};
