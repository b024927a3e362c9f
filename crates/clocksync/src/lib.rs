//! The clock between hosts: probes that cross the clock network, and the map from each follower's
//! counter to the reference's.
//!
//! No machine's clock is steered. While a run goes on, a [`probe::Prober`] on each follower
//! exchanges small UDP packets with the [`probe::Responder`] on the reference; each side writes
//! what it saw on its own counter to its own log ([`record`]). Afterwards [`log::solve_run`] joins
//! the logs and [`offline::solve`] makes the [`ClockMap`](loopscope_time::ClockMap)s.
//!
//! What must be known earlier is in [`online`], which sees each [`probe::Outcome`]; programs read it
//! from the [`page`]. Followers that probe each other too ([`probe::Mesh`]) close [`loops`], which
//! judge all that. Other people's clocks, which each side reads beside its probes, are mapped by
//! [`foreign`]; [`others`] tells of them on a run's time line, [`placing`] puts their stamps there.
//!
//! Both take messages as constraints (`constraint`): what is left of rate and offset is in `rate`,
//! `envelope` and `bound`, what contradicts in `epoch`, steps that contradict nothing in `steps`; the finer guess is made in `track` and
//! `follow`, by the clock filter of `filter` and what `path` knows of paths.
//!
//! [`foreign`], [`loops`], [`offline`], [`online`], [`others`],
//! [`pairs`], [`placing`] and [`synthetic`] are pure. Sockets, clocks and
//! threads are in [`probe`] and the reading functions of [`anchor`], [`counter`], [`key`],
//! [`stamp`] and [`vmclock`].

pub mod anchor;
mod bound;
mod constraint;
pub mod counter;
mod envelope;
mod epoch;
pub mod exchange;
mod filter;
mod follow;
pub mod foreign;
pub mod key;
pub mod log;
pub mod loops;
pub mod offline;
pub mod online;
pub mod others;
pub mod page;
pub mod pairs;
mod path;
mod phc;
pub mod placing;
pub mod probe;
mod rate;
pub mod record;
pub mod skew;
pub mod stamp;
pub mod state;
mod steps;
pub mod synthetic;
mod track;
pub mod utc;
pub mod vmclock;

pub use constraint::{Message, Way};
use loopscope_time::Counter;

/// An interval of one host's counter that surely contains an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The instant is not before this tick.
    pub lo: Counter,
    /// The instant is not after this tick's end.
    pub hi: Counter,
}

impl Span {
    /// Nothing is known.
    pub const ANY: Span = Span { lo: Counter(0), hi: Counter(u64::MAX) };

    /// Its width in ticks; negative if the ends are in the wrong order.
    pub fn width(self) -> i64 {
        self.hi.ticks_since(self.lo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loopscope_time::Frequency;

    /// The frequency of this machine's counter, measured over 20 ms of the kernel's clock.
    pub(crate) fn measured_frequency() -> Frequency {
        let begin = stamp::Reading::take();
        loop {
            let end = stamp::Reading::take();
            let ns = end.clock.0 - begin.clock.0;
            if ns >= 20_000_000 {
                let ticks = end.at.lo.ticks_since(begin.at.lo) as f64;
                return Frequency::from_hz((ticks * 1e9 / ns as f64) as u64).unwrap();
            }
        }
    }
}
