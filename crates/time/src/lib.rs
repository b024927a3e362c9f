//! Instants that carry their clock in their type.
//!
//! A host's clock is its raw counter ([`Counter`]). The global clock ([`GlobalNs`]) is the
//! reference host's counter scaled to nanoseconds. A [`ClockMap`] converts the first to the second
//! with a hard maximum error ([`Bound`]). Subtracting instants of two clocks does not compile:
//!
//! ```compile_fail
//! use loopscope_time::{Counter, GlobalNs};
//! let _ = Counter(5) - GlobalNs(3);
//! ```

mod instant;
mod map;
pub mod source;

pub use instant::{Bound, Counter, Frequency, GlobalNs, MonotonicNs};
pub use map::{ClockMap, Epoch, Floor, Knot, MapError};
