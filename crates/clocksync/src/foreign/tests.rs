use proptest::prelude::*;

use super::*;

const HZ: u64 = 2_600_000_000;
/// Some clock's epoch.
const EPOCH: i64 = 1_780_000_000_000_000_000;

fn hz() -> Frequency {
    Frequency::from_hz(HZ).unwrap()
}

fn ticks(seconds: f64) -> u64 {
    1_000_000_000_000u64.saturating_add_signed((seconds * HZ as f64) as i64)
}

/// A clock that runs at one rate, then at another, and is set once.
#[derive(Clone, Copy, Debug)]
struct Clock {
    ppm: f64,
    bend_s: f64,
    then_ppm: f64,
    step_s: f64,
    step_ns: i64,
}

impl Clock {
    fn steady(ppm: f64) -> Clock {
        Clock { ppm, bend_s: 1e9, then_ppm: ppm, step_s: 1e9, step_ns: 0 }
    }

    fn ns(&self, seconds: f64) -> f64 {
        let bent = (seconds - self.bend_s).max(0.0);
        let gained = (seconds - bent) * self.ppm * 1e3 + bent * self.then_ppm * 1e3;
        let set = if seconds >= self.step_s { self.step_ns as f64 } else { 0.0 };
        seconds * 1e9 + gained + set
    }

    /// Read ten times a second, each time within `bracket` ticks.
    fn anchors(&self, clock: ForeignClock, bracket: u64, later_s: f64) -> Vec<Anchor> {
        let read = |i: u64| {
            let at = i as f64 * 0.1 + later_s + (i % 7) as f64 * 1e-3;
            let lo = Counter(ticks(at) - bracket * (i % 3) / 2);
            let at_span = Span { lo, hi: Counter(lo.0 + bracket) };
            let epoch = if clock == ForeignClock::Monotonic { 0 } else { EPOCH };
            Anchor { clock, ns: epoch + self.ns(at).floor() as i64, at: at_span }
        };
        (0..100).map(read).collect()
    }

    fn map(&self, bracket: u64) -> ForeignMap {
        let real = self.anchors(ForeignClock::Realtime, bracket, 0.0);
        let unset = Clock { step_ns: 0, ..*self };
        let beside = unset.anchors(ForeignClock::Monotonic, bracket, 1e-6);
        ForeignMap::fit(&real, &beside, hz(), Steering::Monotone)
    }
}

proptest! {
    /// The clock's true time is inside the maximum error, both ways, whatever its rate and how
    /// it changes; a steady clock is known to a fraction of a microsecond.
    #[test]
    fn the_truth_is_inside_both_ways(
        ppm in -400.0..400.0f64, then_ppm in -400.0..400.0f64, bend_s in 0.0..10.0f64,
        bracket in 0u64..300, at in prop::collection::vec(-0.5..10.5f64, 50), bends: bool,
    ) {
        let steady = Clock::steady(ppm);
        let clock = if bends { Clock { bend_s, then_ppm, ..steady } } else { steady };
        let map = clock.map(bracket);
        prop_assert_eq!(map.steps(), &[]);
        for at in at {
            let truth = clock.ns(at);
            let (ns, bound) = map.to_foreign(Counter(ticks(at))).unwrap();
            let error = (ns - EPOCH) as f64 - truth;
            prop_assert!(error.abs() <= bound.ns() as f64 + 1.0, "{error} {bound} at {at}");
            let whole = truth.floor();
            let shown = EPOCH + whole as i64;
            prop_assert!(map.guess(shown).is_some());
            match map.instant(shown, shown) {
                Some(Span { lo, hi }) => {
                    let at = ticks(at);
                    prop_assert!(lo.0 <= at && at <= hi.0 + 2, "{lo:?} {hi:?} {at}");
                }
                // No readings surround it.
                None => prop_assert!(!(0.01..=9.9).contains(&at), "nothing of {at}"),
            }
            if !bends && (0.2..9.7).contains(&at) {
                let widest = 4 * bracket * 1_000_000_000 / HZ + 30;
                prop_assert!(bound.ns() <= widest, "{bound} for {widest}");
            }
        }
    }

    /// A step is found in the gap in which it happened, with its size, and nothing is said
    /// within it; small ones by the neighbouring clock.
    #[test]
    fn a_step_is_found_timed_and_sized(
        ppm in -400.0..400.0f64, step_s in 0.3..9.5f64, back: bool,
        step_ns in prop_oneof![400i64..50_000, Just(22_000_000), 1_000_000i64..1 << 40],
    ) {
        let step_ns = if back { -step_ns } else { step_ns };
        let clock = Clock { step_s, step_ns, ..Clock::steady(ppm) };
        let map = clock.map(100);
        prop_assert_eq!(map.steps().len(), 1);
        let Step { within, ns } = map.steps()[0];
        let (lo, hi) = (within.lo.0, within.hi.0);
        prop_assert!(lo <= ticks(step_s) && ticks(step_s) <= hi, "{within:?}");
        prop_assert!(hi - lo < ticks(0.12) - ticks(0.0));
        prop_assert!(ns.0 <= step_ns && step_ns <= ns.1, "{ns:?} for {step_ns}");
        prop_assert!(ns.1 - ns.0 < 400, "{ns:?}");
        prop_assert_eq!(map.to_foreign(Counter(ticks(step_s))), None);
        for at in [step_s - 0.15, step_s + 0.15] {
            let (ns, bound) = map.to_foreign(Counter(ticks(at))).unwrap();
            let error = (ns - EPOCH) as f64 - clock.ns(at);
            prop_assert!(error.abs() <= bound.ns() as f64 + 1.0, "{error} {bound}");
        }
    }
}

proptest! {
    /// A stamp is at the instant at which it was made, or nothing is said of it: of a clock
    /// that was set to show some times twice, and of stamps of any grain.
    #[test]
    fn a_stamp_is_placed_where_it_was_made(
        ppm in -400.0..400.0f64, step_s in 0.3..9.5f64, back: bool, grain in 1i64..2_000,
        step_ns in prop_oneof![400i64..50_000, Just(22_000_000), 1_000_000i64..1 << 40],
        at in prop::collection::vec(-0.5..10.5f64, 50),
    ) {
        let step_ns = if back { -step_ns } else { step_ns };
        let clock = Clock { step_s, step_ns, ..Clock::steady(ppm) };
        let map = clock.map(100);
        let anchors = clock.anchors(ForeignClock::Realtime, 100, 0.0);
        let (first, last) = (anchors[0].ns, anchors[anchors.len() - 1].ns);
        let near = |at: f64| step_s - 0.25 < at && at < step_s + 0.25;
        let mut known = 0;
        let around = [-0.15, -0.05, -1e-4, 1e-4, 0.05, 0.15].map(|since| step_s + since);
        for at in at.into_iter().chain(around) {
            let shown = EPOCH + clock.ns(at).floor() as i64;
            let from = shown - shown.rem_euclid(grain);
            let Some(span) = map.instant(from, from + grain - 1) else {
                let usual = from > first && from + grain < last && !near(at);
                prop_assert!(!usual || step_ns < -1_000_000, "nothing of {at}");
                continue;
            };
            known += 1;
            // Floats are good for a quarter of a nanosecond here.
            prop_assert!(span.lo.0 <= ticks(at) + 2 && ticks(at) <= span.hi.0 + 2, "{span:?} {at}");
            let widest = ((grain as f64 + 200.0) * 2.7) as i64;
            prop_assert!(span.width() < widest, "{} at {at}", span.width());
        }
        prop_assert!(known > 0 || step_ns < -1_000_000_000);
    }
}

/// A clock without a neighbour, and one that is steered in unknown ways.
#[test]
fn alone_it_is_bounded_by_its_rate() {
    let clock = Clock { step_s: 5.0, step_ns: 22_000_000, ..Clock::steady(100.0) };
    let anchors = clock.anchors(ForeignClock::Phc(0), 100, 0.0);
    let map = ForeignMap::fit(&anchors, &[], hz(), Steering::Any);
    let ns = map.steps()[0].ns;
    assert!(ns.0 <= 22_000_000 && 22_000_000 <= ns.1 && ns.1 - ns.0 < 110_000, "{ns:?}");
    let (_, bound) = map.to_foreign(Counter(ticks(2.0))).unwrap();
    assert!(bound.ns() < 51_000, "{bound}");
    assert!(ForeignMap::fit(&[], &[], hz(), Steering::Any).to_foreign(Counter(1)).is_none());
}
