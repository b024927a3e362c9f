//! The clock between hosts: probes that cross the clock network, and the map from each follower's
//! counter to the reference's.
//!
//! No machine's clock is steered. While a run goes on, a [`probe::Prober`] on each follower
//! exchanges small UDP packets with the [`probe::Responder`] on the reference; each side writes
//! what it saw on its own counter to its own log ([`record`]). Afterwards [`log::solve_run`] joins
//! the logs and [`offline::solve`] makes the [`ClockMap`](loopscope_time::ClockMap)s.
//!
//! What must be known earlier is in [`online`].
//!
//! [`offline`], [`online`] and [`synthetic`] are pure. Sockets, clocks and threads are in [`probe`] and the
//! reading functions of [`stamp`].

mod calm;
mod envelope;
pub mod log;
pub mod offline;
pub mod online;
pub mod probe;
pub mod record;
pub mod stamp;
pub mod synthetic;

use loopscope_time::Counter;

/// An interval of one host's counter that surely contains an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The instant is not before this tick.
    pub lo: Counter,
    /// The instant is not after this tick's end.
    pub hi: Counter,
}
