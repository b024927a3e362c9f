//! The clock between hosts while a run goes on: where an instant of a host's counter lies on the
//! global clock now, from the last exchanges alone. Wider than [`offline`](crate::offline), which
//! knows what came afterwards.
//!
//! Assumption: every counter runs within ±100 ppm of its nominal frequency, as synthetic clocks do.

use std::collections::VecDeque;

use loopscope_time::{Bound, Counter, Frequency, GlobalNs};

use crate::Span;

/// How far two counters may drift apart, in parts per million: ±100 of each make 200.02 between
/// them.
pub const DRIFT_PPM: u64 = 201;
/// How many exchanges are kept: the best of a second at the usual rate.
const KEPT: usize = 8;

const MILLION: i128 = 1_000_000;
const BILLION: i128 = 1_000_000_000;
/// Roundings of a result: of the reference's stamp, of the middle, of the result itself.
const ROUNDING: i128 = 3;

/// What a host knows of the global clock.
#[derive(Clone, Debug)]
pub struct Online {
    hz: i128,
    drift_ppm: i128,
    exchanges: VecDeque<Exchange>,
}

#[derive(Clone, Copy, Debug)]
struct Exchange {
    /// Own counter, in the middle.
    middle: i128,
    /// Half of the round trip, in ticks, rounded up.
    half: i128,
    /// What the reference's clock was meanwhile.
    global: i128,
}

impl Online {
    /// Of a follower whose counter has this frequency; it knows nothing yet.
    pub fn follower(frequency: Frequency) -> Online {
        let (hz, drift_ppm) = (i128::from(frequency.hz()), i128::from(DRIFT_PPM));
        Online { hz, drift_ppm, exchanges: VecDeque::new() }
    }

    /// Of the reference, whose counter is the global clock.
    pub fn reference(frequency: Frequency) -> Online {
        let origin = Exchange { middle: 0, half: 0, global: 0 };
        Online { drift_ppm: 0, exchanges: [origin].into(), ..Online::follower(frequency) }
    }

    /// A follower's exchange: between sending and receiving, on its own counter, the reference's
    /// clock was `global`.
    pub fn see(&mut self, round_trip: Span, global: GlobalNs) {
        let (lo, hi) = (i128::from(round_trip.lo.0), i128::from(round_trip.hi.0));
        if self.exchanges.len() == KEPT {
            self.exchanges.pop_front();
        }
        let (middle, half) = ((lo + hi) / 2, (hi - lo).max(0) / 2 + 1);
        self.exchanges.push_back(Exchange { middle, half, global: global.0.into() });
    }

    /// An instant of the own counter on the global clock; `None` before the first exchange.
    pub fn to_global(&self, own: Counter) -> Option<(GlobalNs, Bound)> {
        let own = i128::from(own.0);
        let of = |exchange: &Exchange| {
            let age = own - exchange.middle;
            let error = exchange.half + self.drift(age.abs() + exchange.half);
            let error = (error * BILLION).div_euclid(self.hz) + ROUNDING;
            (error, exchange.global + (age * BILLION).div_euclid(self.hz))
        };
        let (error, global) = self.exchanges.iter().map(of).min()?;
        Some((GlobalNs(i64::try_from(global).ok()?), Bound::of_rounded(error as f64)))
    }

    /// Where an instant that lies within `±within_ns` of `global` is on the own counter; `None`
    /// before the first exchange.
    pub fn to_own(&self, global: GlobalNs, within_ns: u64) -> Option<Span> {
        let of = |exchange: &Exchange| {
            let age = i128::from(global.0) - exchange.global;
            let within = i128::from(within_ns);
            let error = within + self.drift(age.abs() + within) + ROUNDING;
            let error = (error * self.hz).div_euclid(BILLION) + 1 + exchange.half;
            (error, exchange.middle + (age * self.hz).div_euclid(BILLION))
        };
        let (error, own) = self.exchanges.iter().map(of).min()?;
        let counter = |at: i128| Counter(u64::try_from(at.max(0)).unwrap_or(u64::MAX));
        Some(Span { lo: counter(own - error), hi: counter(own + error) })
    }

    fn drift(&self, distance: i128) -> i128 {
        (distance * self.drift_ppm).div_euclid(MILLION) + self.drift_ppm.signum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A host's counter at a true instant, in picoseconds: exact but for the cut to whole ticks.
    #[derive(Clone, Copy, Debug)]
    struct Oscillator {
        hz: u64,
        ppb: i64,
        offset: u64,
    }

    impl Oscillator {
        fn at(self, ps: u64) -> Counter {
            let pace = u128::try_from(1_000_000_000 + self.ppb).unwrap();
            let ticks = u128::from(ps) * u128::from(self.hz) / 1_000_000_000_000;
            Counter(self.offset + u64::try_from(ticks * pace / 1_000_000_000).unwrap())
        }

        fn frequency(self) -> Frequency {
            Frequency::from_hz(self.hz).unwrap()
        }
    }

    fn oscillator() -> impl Strategy<Value = Oscillator> {
        let hz = prop_oneof![Just(1_000_000_000), Just(2_599_992_000), Just(24_000_000u64)];
        (hz, -100_000i64..=100_000, 0u64..1 << 50).prop_map(|(hz, ppb, offset)| Oscillator {
            hz,
            ppb,
            offset,
        })
    }

    /// Picoseconds of a delay: mostly short, at times very long.
    fn delay() -> impl Strategy<Value = u64> {
        prop_oneof![3 => 1_000_000u64..200_000_000, 1 => 0u64..50_000_000_000]
    }

    proptest! {
        /// Whatever the delays of both ways and the rates are, the truth is inside; both ways, and
        /// for instants before, between and after the exchanges.
        #[test]
        fn the_truth_is_inside(
            follower in oscillator(),
            reference in oscillator(),
            exchanges in prop::collection::vec((delay(), delay(), 0u64..200), 1..20),
            instant in 0u64..20_000,
            off in -1_000_000_000i64..1_000_000_000,
        ) {
            let mut online = Online::follower(follower.frequency());
            prop_assert_eq!(online.to_own(GlobalNs(0), 0), None);
            let mut now = 5_000_000_000_000;
            for (there, back, gap_ms) in exchanges {
                let sent = now;
                let (stamped, received) = (sent + there, sent + there + back);
                now = received + gap_ms * 1_000_000_000;
                let global = reference.frequency().scale(reference.at(stamped));
                let lo = follower.at(sent);
                online.see(Span { lo, hi: follower.at(received) }, global);
            }
            let at = instant * 1_000_000_000;
            let (own, global) = (follower.at(at), reference.frequency().scale(reference.at(at)));
            let (told, bound) = online.to_global(own).unwrap();
            prop_assert!(
                (told - global).unsigned_abs() <= bound.ns(), "{told:?} {bound} for {global:?}"
            );
            let span = online.to_own(global, 0).unwrap();
            prop_assert!(span.lo <= own && own <= span.hi, "{span:?} for {own:?}");
            // As another host tells it that knows no better.
            let told = GlobalNs(global.0 + off);
            let span = online.to_own(told, off.unsigned_abs()).unwrap();
            prop_assert!(span.lo <= own && own <= span.hi, "{span:?} for {own:?}");
        }

        #[test]
        fn the_reference_knows_itself(of in oscillator(), ps in 0u64..1 << 60) {
            let online = Online::reference(of.frequency());
            let (global, bound) = online.to_global(of.at(ps)).unwrap();
            prop_assert!((global - of.frequency().scale(of.at(ps))).unsigned_abs() <= bound.ns());
            prop_assert!(bound.ns() < 10);
            let span = online.to_own(global, bound.ns()).unwrap();
            prop_assert!(span.lo <= of.at(ps) && of.at(ps) <= span.hi);
        }
    }

    /// Of the exchanges that are kept the one with the narrowest answer decides, and old ones go.
    #[test]
    fn the_narrowest_exchange_decides_until_it_is_pushed_out() {
        let mut online = Online::follower(Frequency::from_hz(1_000_000_000).unwrap());
        let round_trip = |lo, ns| Span { lo: Counter(lo), hi: Counter(lo + ns) };
        online.see(round_trip(1_000_000_000, 2_000), GlobalNs(0));
        let at = Counter(1_000_001_000);
        let fresh = online.to_global(at).unwrap();
        assert!((fresh.0).0.abs() <= 1 && fresh.1.ns() < 1_020, "{fresh:?}");
        for number in 1..KEPT as u64 {
            online.see(round_trip(1_000_000_000 + number, 9_000_000), GlobalNs(0));
            assert_eq!(online.to_global(at).unwrap(), fresh);
        }
        // A second later it is 201 µs wider.
        let (_, later) = online.to_global(Counter(2_000_001_000)).unwrap();
        assert!((201_000..203_000).contains(&later.ns()), "{later}");
        online.see(round_trip(1_000_000_100, 9_000_000), GlobalNs(0));
        assert!(online.to_global(at).unwrap().1.ns() > 4_000_000);
    }
}
