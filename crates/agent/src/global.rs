//! The host's counter on the global clock, while the exchange of probes goes on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loopscope_clocksync::online::Online;
use loopscope_clocksync::state::Status;
use loopscope_clocksync::synthetic::SyntheticClock;
use loopscope_collect::Departure;
use loopscope_time::{Bound, Counter, Frequency, GlobalNs};

use crate::proto;

/// Takes instants of the true counter, which no other host may know of, to the global clock and
/// back. What leaves goes through the hidden clock, what comes in through its inverse.
#[derive(Clone, Debug)]
pub(crate) struct GlobalClock {
    synthetic: Option<SyntheticClock>,
    frequency: Frequency,
    /// `None` before the exchange.
    online: Arc<Mutex<Option<Arc<Mutex<Online>>>>>,
}

impl GlobalClock {
    /// `frequency`: the counter's nominal one.
    pub(crate) fn new(synthetic: Option<SyntheticClock>, frequency: Frequency) -> GlobalClock {
        GlobalClock { synthetic, frequency, online: Arc::default() }
    }

    /// Nominal frequency of the true counter.
    pub(crate) fn frequency(&self) -> Frequency {
        self.frequency
    }

    /// The true counter at an instant of the global clock, as well as it is known; `None` if
    /// unknown.
    pub(crate) fn counter_at(&self, global_ns: i64) -> Option<Counter> {
        let online = lock(&self.online).clone()?;
        let span = lock(&online).to_own(GlobalNs(global_ns), 0)?;
        let middle = Counter(span.lo.0 + (span.hi.0 - span.lo.0) / 2);
        Some(self.synthetic.map_or(middle, |clock| clock.invert(middle)))
    }

    /// The exchange has begun. What it told stays known when it ends, and goes stale.
    pub(crate) fn begin(&self, online: Arc<Mutex<Online>>) {
        *lock(&self.online) = Some(online);
    }

    /// An instant of the true counter as other hosts are told of it; `None` if unknown.
    pub(crate) fn stamp(&self, at: Counter) -> Option<proto::GlobalInstant> {
        let at = self.synthetic.map_or(at, |clock| clock.apply(at));
        let online = lock(&self.online).clone()?;
        let (global, bound) = lock(&online).to_global(at)?;
        Some(proto::GlobalInstant { global_ns: global.0, within_ns: bound.ns() })
    }

    /// A message's first event as other hosts are told of it; `None` before the exchange.
    pub(crate) fn encode(&self, departure: Departure) -> Option<proto::Departure> {
        // An event of the host itself is one instant.
        let Departure { id, lo: at, .. } = departure;
        let proto::GlobalInstant { global_ns, within_ns } = self.stamp(at)?;
        Some(proto::Departure { id, global_ns, within_ns })
    }

    /// Status of the clock at an instant of the true counter, and its maximum error there; `None`
    /// if unknown.
    pub(crate) fn read(&self, at: Counter) -> (Status, Option<Bound>) {
        let at = self.synthetic.map_or(at, |clock| clock.apply(at));
        let Some(online) = lock(&self.online).clone() else { return (Status::Unknown, None) };
        let online = lock(&online);
        (online.state(at).status, online.to_global(at).map(|(_, bound)| bound))
    }

    /// A message's first event on another host, on this host's counter; `None` before the exchange.
    pub(crate) fn decode(&self, departure: &proto::Departure) -> Option<Departure> {
        let proto::Departure { id, global_ns, within_ns } = *departure;
        let online = lock(&self.online).clone()?;
        let span = lock(&online).to_own(GlobalNs(global_ns), within_ns)?;
        // The inverse is within one tick, and its result the first of those that are alike.
        let invert = |at| self.synthetic.map_or(at, |clock| clock.invert(at));
        let lo = Counter(invert(span.lo).0.saturating_sub(1));
        let hi = Counter(invert(Counter(span.hi.0.saturating_add(1))).0.saturating_add(1));
        Some(Departure { id, lo, hi })
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use loopscope_clocksync::Span;
    use loopscope_clocksync::exchange::Exchange;

    use super::*;

    /// Two hosts that in truth share a counter: what one tells, the other finds where it was, with
    /// plain clocks and with hidden ones.
    #[test]
    fn what_is_told_is_found_again() {
        let frequency = Frequency::from_hz(2_600_000_000).unwrap();
        for seed in [None, Some(1), Some(2), Some(3)] {
            let hidden = |host| seed.map(|seed| SyntheticClock::new(seed, host));
            let (first, last) = (
                GlobalClock::new(hidden("h1"), frequency),
                GlobalClock::new(hidden("h2"), frequency),
            );
            let departure = |at| Departure { id: 7, lo: Counter(at), hi: Counter(at) };
            assert_eq!(first.encode(departure(5)), None);
            let on = |clock: &GlobalClock, at| {
                clock.synthetic.map_or(Counter(at), |synthetic| synthetic.apply(Counter(at)))
            };
            first.begin(Arc::new(Mutex::new(Online::reference(frequency))));
            let now = 1 << 50;
            let mut online = Online::follower(frequency, frequency, 1e-6);
            let instant = |at| Some(Span { lo: at, hi: at });
            let answered = instant(on(&first, now + 200_000));
            online.see(&Exchange {
                t1: instant(on(&last, now)),
                t2: answered,
                t3: answered,
                t4: instant(on(&last, now + 260_000)),
                ..Exchange::default()
            });
            last.begin(Arc::new(Mutex::new(online)));
            // Both ways; a second later, so that 501 µs are added to the 50 µs.
            for (from, to) in [(&first, &last), (&last, &first)] {
                let at = now + 2_600_000_000;
                let told = from.encode(departure(at)).unwrap();
                let Departure { id, lo, hi } = to.decode(&told).unwrap();
                assert_eq!(id, 7);
                assert!(lo.0 <= at && at <= hi.0, "{seed:?} {lo:?} {at} {hi:?}");
                assert!(hi.0 - lo.0 < 2 * 605 * 2600, "{} ticks", hi.0 - lo.0);
                let found = to.counter_at(told.global_ns).unwrap();
                assert!(lo <= found && found <= hi, "{seed:?} {lo:?} {found:?} {hi:?}");
            }
        }
    }
}
