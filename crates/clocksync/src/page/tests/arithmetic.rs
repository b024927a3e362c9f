//! The fixed point against exact arithmetic: f64s are fractions whose denominator is a power of
//! two.

use loopscope_clock::layout::LEASE_SHIFT;
use loopscope_clock::{Page, Span, Status, Time};
use loopscope_time::{Counter, GlobalNs};
use num_bigint::BigInt;
use proptest::prelude::*;

use super::{SERVICE, state, writer};
use crate::page::on_true_counter;
use crate::state::State;
use crate::synthetic::{BEND, SyntheticClock};

/// Binary places of exact numbers; products of three f64s in the ranges below need fewer.
const PLACES: i32 = 400;

fn exact(value: f64) -> BigInt {
    if value == 0.0 {
        return BigInt::ZERO;
    }
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32;
    let mantissa = bits & ((1 << 52) - 1) | 1 << 52;
    let shift = PLACES + exponent - 1075;
    assert!(shift >= 0 && value > 0.0, "{value}");
    BigInt::from(mantissa) << shift
}

fn whole(value: i64) -> BigInt {
    BigInt::from(value) << PLACES
}

fn product(a: &BigInt, b: &BigInt) -> BigInt {
    (a * b) >> PLACES
}

/// What the state says of a counter: the guess, and how far the truth may lie before and after it.
fn stated(state: &State, counter: Counter) -> (BigInt, BigInt, BigInt) {
    let ns = product(&whole(counter.ticks_since(state.anchor)), &exact(state.ns_per_tick));
    let best = whole(state.global.0) + exact(state.fraction_ns) + &ns;
    let grown = product(&BigInt::from(ns.magnitude().clone()), &exact(state.drift)) + 1;
    (best, exact(state.below_ns) + &grown, exact(state.above_ns) + grown)
}

fn open(publish: &State) -> (tempfile::TempDir, Page) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page");
    writer(&path).publish(publish, SERVICE).unwrap();
    (directory, Page::open(Some(&path)).unwrap())
}

prop_compose! {
    fn any_state()(
        anchor in 1u64 << 47..1 << 62,
        global in -(1i64 << 62)..1i64 << 62,
        fraction_ns in 0.0..1.0f64,
        below_ns in 0.0..1e9f64,
        above_ns in 0.0..1e9f64,
        calibrated_ns in 0.0..1e6f64,
        apart_ns in prop_oneof![Just(0.0), 0.0..1e3f64],
        ns_per_tick in prop_oneof![0.2..1.0f64, 1e-3..1e3f64],
        drift in prop_oneof![Just(0.0), 1e-12..1e-5f64, 1e-5..0.01f64],
        lasts in 1u64..1 << 46,
        fresh in prop_oneof![0u64..1 << 22, 0u64..1 << 38, Just(u64::MAX)],
        before in prop_oneof![0u64..5, 0u64..1 << 34, 0u64..1 << 47],
    ) -> State {
        State {
            since: Counter(anchor - before),
            stale: Counter(fresh.saturating_add(anchor)),
            anchor: Counter(anchor), global: GlobalNs(global), fraction_ns, below_ns, above_ns,
            calibrated_ns, apart_ns, ns_per_tick, drift, expires: Counter(anchor + lasts), ..state()
        }
    }
}

/// Ticks from the anchor: near it, or as far as a line reaches.
fn distance() -> impl Strategy<Value = i64> {
    prop_oneof![-3i64..=3, -(1i64 << 34)..1i64 << 34, -(1i64 << 47) + 1..1i64 << 47]
}

proptest! {
    /// The page never says less than the state, and at most four nanoseconds more on either side
    /// in addition to what the rate's places add with the distance.
    #[test]
    fn widths_are_rounded_outwards(state in any_state(), distance in distance()) {
        let counter = Counter(state.anchor.0.wrapping_add_signed(distance));
        let (_directory, page) = open(&state);
        let time = page.map(counter);
        if counter < state.since || counter >= state.expires {
            prop_assert_eq!(time.status, Status::Unknown);
            return Ok(());
        }
        prop_assert_eq!(time.epoch, state.epoch);
        // The lease is rounded down to a unit, of which there are so many.
        let lease = ((state.stale.0 - state.anchor.0) >> LEASE_SHIFT).min(65_535) << LEASE_SHIFT;
        let fresh = i128::from(distance) < i128::from(lease);
        prop_assert!(!fresh || counter < state.stale);
        prop_assert_eq!(time.status == Status::Synchronised, fresh);
        prop_assert!(time.status != Status::Unknown);
        let (best, below, above) = stated(&state, counter);
        let more = whole(4) + (whole(2 * distance.abs()) >> 48);
        let earliest = &best - below - whole(time.earliest.0);
        let latest = whole(time.latest.0) - (&best + above);
        let error = BigInt::from((whole(time.best.0) - &best).magnitude().clone());
        let rounding: BigInt = (whole(1) + &more) >> 1;
        prop_assert!(BigInt::ZERO <= earliest && earliest <= more, "{time:?}");
        prop_assert!(BigInt::ZERO <= latest && latest <= more, "{time:?}");
        prop_assert!(error <= rounding, "{time:?}");
        prop_assert!(f64::from(time.calibrated_ns) >= state.calibrated_ns + 0.5);
    }

    #[test]
    fn elapsed_has_the_rates_error_and_what_processors_are_apart(
        state in any_state(), from in distance(), to in distance(),
    ) {
        let (_directory, page) = open(&state);
        let time = |distance| page.map(Counter(state.anchor.0.wrapping_add_signed(distance)));
        let (from, to) = (time(from), time(to));
        let span = page.elapsed(&from, &to);
        if from.status == Status::Unknown || to.status == Status::Unknown {
            prop_assert_eq!(span, None);
            return Ok(());
        }
        let Span { shortest, best, longest, .. } = span.unwrap();
        let ticks = to.counter.ticks_since(from.counter);
        let ns = product(&whole(ticks), &exact(state.ns_per_tick));
        let apart = exact(state.apart_ns);
        let half = product(&BigInt::from(ns.magnitude().clone()), &exact(state.drift)) + apart + 1;
        let more = whole(5) + (whole(2 * ticks.abs()) >> 48);
        let (least, most) = (&ns - &half - whole(shortest), whole(longest) - &ns - half);
        prop_assert!(BigInt::ZERO <= least && least <= more, "{shortest} {best} {longest}");
        prop_assert!(BigInt::ZERO <= most && most <= more, "{shortest} {best} {longest}");
        // The way back is the same.
        let back = page.elapsed(&to, &from).unwrap();
        prop_assert!((back.best + best).abs() <= 1 && (back.longest + shortest).abs() <= 1);
    }

    /// Two readings on two processors whose counters are no further apart than the page says: the
    /// true time between them is in the span. A page that does not say it has spans that truth is
    /// not in.
    #[test]
    fn the_truth_between_two_processors_is_in_the_span(
        shift in -300i64..=300, more in 0i64..100, ticks in -(1i64 << 20)..1 << 20,
    ) {
        let state = State { ns_per_tick: 1.0, drift: 1e-9, ..state() };
        let apart_ns = (shift.abs() + more) as f64;
        let [(_a, said), (_b, unsaid)] =
            [State { apart_ns, ..state }, state].map(|state| open(&state));
        let span = |page: &Page| {
            let from = page.map(Counter(state.anchor.0 + (1 << 21)));
            let to = page.map(Counter(from.counter.0.wrapping_add_signed(ticks + shift)));
            let Span { shortest, longest, .. } = page.elapsed(&from, &to).unwrap();
            shortest..=longest
        };
        prop_assert!(span(&said).contains(&ticks));
        prop_assert_eq!(span(&unsaid).contains(&ticks), shift.abs() <= 2);
    }

    /// What the state says of a host's synthetic counter, the page says of the true one.
    #[test]
    fn hidden_clocks_stay_hidden_and_inside(
        state in any_state(), seed: u64, after in 0u64..1 << 40, early in prop::bool::ANY,
    ) {
        let clock = SyntheticClock::new(seed, "h1");
        // Some ticks of life, or the chord is that of the rounding.
        let state = State { expires: Counter(state.expires.0 + (1 << 30)), ..state };
        let (apply, invert) = (|c| clock.apply(c), |c| clock.invert(c));
        let shown = on_true_counter(&state, apply, invert, BEND).unwrap();
        let true_anchor = invert(state.anchor);
        let counter =
            Counter(if early { true_anchor.0 - after % (1 << 36) } else { true_anchor.0 + after });
        let shown = State { drift: shown.drift.min(0.01), ..shown };
        let (_directory, page) = open(&shown);
        let Time { earliest, latest, status, .. } = page.map(counter);
        let synthetic = clock.apply(counter);
        let known = (state.since..state.expires).contains(&synthetic);
        prop_assert_eq!(status != Status::Unknown, known);
        if status == Status::Unknown {
            return Ok(());
        }
        let (best, below, above) = stated(&state, synthetic);
        prop_assert!(whole(earliest.0) <= &best - below, "{earliest:?}");
        prop_assert!(whole(latest.0) >= best + above, "{latest:?}");
        // Two ticks and roundings, and what the chord's rounding adds in the distance.
        let rounding = 2.0 * state.ns_per_tick + 8.0
            + 4.0 * after as f64 * state.ns_per_tick / (1u64 << 30) as f64;
        let width = (latest.0 - earliest.0) as f64;
        let stated = state.below_ns + state.above_ns
            + 2.0 * (state.drift + BEND) * state.ns_per_tick * after as f64 * 1.001;
        prop_assert!(width <= stated * 1.0001 + 2.0 * rounding, "{width} for {stated}");
    }
}

/// A hidden clock whose rate swings, as that of a warming oscillator does.
#[derive(Clone, Copy, Debug)]
struct Swinging {
    /// Ticks that it is ahead or behind at most.
    amplitude: f64,
    /// Ticks of a radian.
    period: f64,
}

impl Swinging {
    fn apply(self, counter: Counter) -> Counter {
        let ahead = self.amplitude * (1.0 + (counter.0 as f64 / self.period).sin());
        Counter(counter.0 + 1_000_000 + ahead as u64)
    }

    fn invert(self, synthetic: Counter) -> Counter {
        let (mut low, mut high) = (0, synthetic.0);
        while low < high {
            let middle = low.midpoint(high);
            if self.apply(Counter(middle)) < synthetic { low = middle + 1 } else { high = middle }
        }
        Counter(low)
    }
}

proptest! {
    /// Its bend is in the width, and needs to be.
    #[test]
    fn a_hidden_clock_that_bends_is_inside_too(
        anchor in 1u64 << 40..1 << 44, lasts in 1u64 << 30..1 << 34, counter in -(1i64 << 33)..1 << 34,
        amplitude in 1e3..1e6f64,
    ) {
        let clock = Swinging { amplitude, period: 1e11 };
        let (apply, invert) = (|c| clock.apply(c), |c| clock.invert(c));
        let state = State {
            anchor: Counter(anchor), expires: Counter(anchor + lasts), drift: 1e-9, ..state()
        };
        // Rates are 1 ± amplitude / period.
        let bend = 2.5 * amplitude / clock.period;
        let shown = on_true_counter(&state, apply, invert, bend).unwrap();
        let counter = Counter(shown.anchor.0.wrapping_add_signed(counter));
        let (_directory, page) = open(&shown);
        let time = page.map(counter);
        if time.status == Status::Unknown {
            prop_assert!(clock.apply(counter) >= state.expires);
            return Ok(());
        }
        let (best, below, above) = stated(&state, clock.apply(counter));
        prop_assert!(whole(time.earliest.0) <= &best - below, "{time:?}");
        prop_assert!(whole(time.latest.0) >= best + above, "{time:?}");
    }
}

#[test]
fn a_state_that_no_page_can_hold_is_refused_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page");
    let mut writer = writer(&path);
    writer.publish(&state(), SERVICE).unwrap();
    let page = Page::open(Some(&path)).unwrap();
    let before = page.words();
    let bad = [
        State { ns_per_tick: f64::NAN, ..state() },
        State { ns_per_tick: 1001.0, ..state() },
        State { drift: -1e-9, ..state() },
        State { fraction_ns: 1.5, ..state() },
        State { below_ns: 5e9, ..state() },
        State { above_ns: f64::INFINITY, ..state() },
        State { calibrated_ns: -1.0, ..state() },
        State { apart_ns: 5e9, ..state() },
        State { global: GlobalNs(i64::MAX), ..state() },
    ];
    for state in bad {
        writer.publish(&state, SERVICE).unwrap_err();
    }
    let error = writer.publish(&bad[1], SERVICE).unwrap_err().to_string();
    assert_eq!(error, "the clock's rate is 1001; a clock page holds 0.001 to 1000 ns per tick");
    assert_eq!(page.words(), before);
    // Nothing is checked in an unknown state.
    writer.publish(&State { status: Status::Unknown, ..bad[0] }, SERVICE).unwrap();
    assert_eq!(page.map(state().anchor).status, Status::Unknown);
}
