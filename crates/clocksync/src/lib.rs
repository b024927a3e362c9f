//! Clock synchronisation between hosts: probes over the clock network, and maps from each
//! follower's counter to the reference's.
//!
//! No machine's clock is steered. The model: a message cannot arrive before it was sent, so a probe
//! bounds global time `t` (ns) at the follower's counter `c` from above and a reply bounds it from
//! below, without any assumption about delays. Within an epoch the follower's rate `dt/dc` (ns per
//! tick) stays within ±`wander` (a ratio) of one mean rate, which carries each bound to other
//! instants. All bounds together leave an interval of `t`. The estimate comes from the least delays
//! of both directions, through a Kalman filter of offset (ns) and rate (ns/s); its calibrated error
//! bound is a claim about that. The hard maximum error reaches from the estimate to the interval's
//! farther end. The modules [`offline`] and `filter` give the details.
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
pub mod resolution;
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
