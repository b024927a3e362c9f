//! Clock synchronisation between hosts: probes over the clock network, and maps from each
//! follower's counter to the reference's.
//!
//! No machine's clock is steered. The model: between two exchanges a follower's counter `c` is
//! related to global time `t` in nanoseconds by `t = c · ρ + θ`, where the rate `ρ` (ns per tick)
//! wanders by at most a known amount and the offset is `θ` (ns). A message that is sent at `s` and
//! received at `r` takes longer than nothing, so `t(s) < t(r)`: each message limits `ρ` and `θ`
//! from one side. The intersection of these limits is the hard maximum error; a Kalman filter over
//! the exchanges gives the estimate inside it and the calibrated error bound.
//!
//! During a run, a [`probe::Prober`] on each follower exchanges small UDP packets with the
//! [`probe::Responder`] on the reference; each side writes the stamps of its own counter to its own
//! log ([`record`]). Afterwards [`log::solve_run`] joins the logs and [`offline::solve`] makes the
//! [`ClockMap`](loopscope_time::ClockMap)s.
//!
//! [`online`] estimates during the run from each [`probe::Outcome`]; programs read the result from
//! the [`page`]. Followers that also probe each other ([`probe::Mesh`]) close [`loops`], whose
//! residuals check both estimates. Foreign clocks, which each side reads during the run, are mapped
//! by [`foreign`]; [`others`] lists their events on a run's time line, [`placing`] converts their
//! stamps to it.
//!
//! Both estimators use messages as constraints (`constraint`): `rate`, `envelope` and `bound`
//! compute the remaining range of rate and offset, `epoch` finds messages that contradict, `steps`
//! finds steps without a contradiction. `track` and `follow` make the estimates, with the clock
//! filter of `filter` and the changes of paths of `path`.
//!
//! [`foreign`], [`loops`], [`offline`], [`online`], [`others`], [`pairs`], [`placing`] and
//! [`synthetic`] have no I/O. Sockets, clocks and threads are in [`probe`] and the reading
//! functions of [`anchor`], [`counter`], [`key`], [`stamp`] and [`vmclock`].

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
