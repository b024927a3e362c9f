//! Maps against exact arithmetic, and what they claim.

use super::*;
use proptest::prelude::*;

fn knot(counter: u64, offset_ns: f64, err_ns: f64) -> Knot {
    Knot { counter: Counter(counter), offset_ns, err_ns, calibrated_ns: err_ns / 2.0 }
}

#[test]
fn the_width_grows_outside_the_knots_and_is_linear_between_them() {
    let map = ClockMap::new(
        GlobalNs(1_000),
        vec![knot(1_000, 0.0, 10.0), knot(3_000, 1_000.0, 30.0)],
        0.5,
        0.01,
    )
    .unwrap();
    assert_eq!(map.map(Counter(2_000)), (GlobalNs(1_500), Bound::of_rounded(20.0)));
    assert_eq!(map.map(Counter(7_000)), (GlobalNs(4_000), Bound::of_rounded(50.0)));
    assert_eq!(map.map(Counter(0)), (GlobalNs(500), Bound::of_rounded(15.0)));
}

#[test]
fn knots_out_of_order_are_refused() {
    let knots = vec![knot(5, 0.0, 0.0), knot(5, 1.0, 0.0)];
    assert_eq!(ClockMap::new(GlobalNs(0), knots, 1.0, 0.0), Err(MapError::BadKnot(1)));
    assert_eq!(ClockMap::new(GlobalNs(0), vec![], 1.0, 0.0), Err(MapError::Empty));
    let knots = vec![knot(5, 0.0, f64::NAN)];
    assert_eq!(ClockMap::new(GlobalNs(0), knots, 1.0, 0.0), Err(MapError::BadKnot(0)));
}

/// Two epochs of different rates, and 300 ticks between them of which nothing is known.
fn disturbed() -> ClockMap {
    let epoch = |number, from, until, knots, ns_per_tick| Epoch {
        number,
        from: Counter(from),
        until: Counter(until),
        knots,
        ns_per_tick,
        drift: 0.01,
    };
    let first = epoch(0, 0, 1_500, vec![knot(1_000, 0.0, 10.0)], 1.0);
    let second = epoch(1, 1_800, u64::MAX, vec![knot(2_000, 700.0, 10.0)], 0.5);
    ClockMap::of_epochs(GlobalNs(0), vec![first, second]).unwrap()
}

#[test]
fn between_epochs_nothing_is_known_and_time_does_not_go_back() {
    let map = disturbed();
    assert_eq!(map.map(Counter(1_500)), (GlobalNs(500), Bound::of_rounded(15.0)));
    assert_eq!(map.map(Counter(1_800)), (GlobalNs(600), Bound::of_rounded(11.0)));
    assert_eq!(map.map(Counter(1_650)), (GlobalNs(550), Bound::UNKNOWN));
    assert_eq!(map.calibrated(Counter(1_650)), Bound::UNKNOWN);
    assert_eq!(map.calibrated(Counter(2_000)), Bound::of_rounded(5.0));
    let epochs = [900, 1_500, 1_501, 1_799, 1_800, 9_000].map(|c| map.epoch(Counter(c)));
    assert_eq!(epochs, [Some(0), Some(0), None, None, Some(1), Some(1)]);
    let instants: Vec<GlobalNs> = (0..4_000).map(|c| map.map(Counter(c)).0).collect();
    assert!(instants.is_sorted());
    // An interval may lie across the disturbance.
    assert_eq!((map.drift(), map.interval_bound(5)), (None, Bound::UNKNOWN));
}

proptest! {
    /// Whatever the shifts of two processors' counters are, no further apart than was measured: the
    /// true time between two events, one read on each, is inside. Without what they are apart it is
    /// not.
    #[test]
    fn an_interval_between_two_processors_keeps_its_bound(
        shift in -400i64..=400, more in 0u64..400, from in 1u64 << 41..1 << 42, ticks in 0u64..1 << 33,
        ppm in -100.0..100.0f64,
    ) {
        let rate = 0.5 * (1.0 + ppm * 1e-6);
        let at = |c: u64| c as f64 * rate;
        let knots = [1u64 << 41, 1 << 42, 1 << 43].map(|c| knot(c, at(c), 300.0));
        let map = ClockMap::new(GlobalNs(0), knots.to_vec(), rate, 1e-9).unwrap();
        let apart = (shift.unsigned_abs() + more) as f64 * rate;
        let any = map.clone().of_any_processor(0.0, Some(apart));
        // One processor's counter is right, the other one's ahead.
        let until = from + ticks;
        let read = |map: &ClockMap| {
            map.map(Counter(until.saturating_add_signed(shift))).0 - map.map(Counter(from)).0
        };
        let measured = read(&any);
        let error = (measured as f64 - (at(until) - at(from))).abs();
        prop_assert!(error <= any.interval_bound(measured).ns() as f64);
        prop_assert_eq!(measured, read(&map));
        let off = shift.unsigned_abs() as f64 * rate;
        let alone = map.interval_bound(measured);
        prop_assert!(off < alone.ns() as f64 + 2.0 || error > alone.ns() as f64);
        prop_assert_eq!(any.interval_bound(measured).ns() >= alone.ns() + apart as u64, true);
    }

    /// The reference map agrees with exact integer arithmetic within its maximum error, days away
    /// from where it is anchored.
    #[test]
    fn the_reference_map_is_the_scaled_counter(
        near in 0u64..1 << 52, delta in -(1i64 << 50)..1i64 << 50, hz in 1_000_000u64..5_000_000_000,
    ) {
        let frequency = Frequency::from_hz(hz).unwrap();
        let counter = Counter(near.saturating_add_signed(delta));
        let (ts, bound) = ClockMap::reference(frequency, Counter(near)).map(counter);
        // Two roundings: the origin's and the exact value's.
        prop_assert!((ts - frequency.scale(counter)).unsigned_abs() <= bound.ns() + 1);
    }

    /// Many counters at once are bit for bit what one at a time are, and none is below the floor.
    #[test]
    fn all_are_mapped_as_each(
        steps in prop::collection::vec((1u64..1 << 40, 1e-3..1e12f64, 0.0..1e6f64), 1..12),
        ends in prop::collection::vec(0usize..12, 0..4),
        gap in 0u64..1000,
        rate in prop_oneof![1e-3..100f64, Just(0.5), Just(1e10)],
        halves: bool,
        origin in prop_oneof![Just(1_000_000_007), Just(i64::MAX - 5), Just(i64::MIN)],
        drift in 0.0..1e-3f64,
        far in prop::collection::vec(any::<u64>(), 0..40),
        near in prop::collection::vec((0usize..14, -3i64..3), 0..60),
        inside in prop::collection::vec(prop_oneof![0u64..1 << 44, 0u64..999], 0..60),
    ) {
        let (mut counter, mut ns) = (0, 0.0);
        let knots: Vec<Knot> = steps.iter().map(|(ticks, step, width)| {
            // Most of these instants and widths end on a half.
            let whole = (*ticks % 64 + 1, (*ticks % 64 + 1) as f64 * 0.5, width.round());
            let (ticks, step, width) = if halves { whole } else { (*ticks, *step, *width) };
            (counter, ns) = (counter + ticks, ns + step);
            knot(counter, ns, width)
        }).collect();
        let mut ends: Vec<usize> = ends.into_iter().filter(|end| *end < knots.len()).collect();
        ends.extend([0, knots.len()]);
        ends.sort_unstable();
        ends.dedup();
        let begins: Vec<u64> = ends.windows(2).map(|ends| match ends[0] {
            0 => 0,
            begin => knots[begin].counter.0.saturating_sub(gap).max(knots[begin - 1].counter.0 + 1),
        }).collect();
        let epochs = ends.windows(2).enumerate().map(|(i, ends)| {
            let next = begins.get(i + 1).copied();
            Epoch {
                number: i as u32,
                from: Counter(begins[i]),
                until: Counter(next.map_or(u64::MAX, |next| {
                    (next - 1).saturating_sub(gap / 2).max(knots[ends[1] - 1].counter.0)
                })),
                knots: knots[ends[0]..ends[1]].to_vec(),
                ns_per_tick: rate,
                drift,
            }
        }).collect();
        let map = ClockMap::of_epochs(GlobalNs(origin), epochs).unwrap();
        let mut counters = far;
        counters.extend(near.iter().filter_map(|(i, off)| {
            Some(knots.get(*i)?.counter.0.saturating_add_signed(*off))
        }));
        counters.extend([0, 1, u64::MAX, 1 << 63]);
        counters.extend(inside);
        for sorted in [false, true] {
            if sorted {
                counters.sort_unstable();
            }
            let (ts, err) = map.map_all(&counters);
            let each: Vec<_> = counters.iter().map(|c| map.map(Counter(*c))).collect();
            prop_assert_eq!(ts, each.iter().map(|(ts, _)| ts.0).collect::<Vec<_>>());
            let widths: Vec<_> = each.iter().map(|(_, e)| e.ns().cast_signed()).collect();
            prop_assert_eq!(err, widths);
        }
        let floor = map.floor();
        let mut least = i64::MAX;
        for counter in counters.into_iter().rev() {
            least = least.min(map.map(Counter(counter)).0.0);
            prop_assert!(floor.from(Counter(counter)).0 <= least);
        }
    }

    #[test]
    fn a_map_never_goes_back(a in 0u64..1 << 40, b in 0u64..1 << 40) {
        let map = ClockMap::new(
            GlobalNs(0),
            vec![knot(1 << 20, 0.0, 3.0), knot(1 << 30, 4e8, 1.0), knot(1 << 39, 2.1e11, 9.0)],
            0.385, 1e-6,
        ).unwrap();
        let (low, high) = (a.min(b), a.max(b));
        prop_assert!(map.map(Counter(low)).0 <= map.map(Counter(high)).0);
    }
}
