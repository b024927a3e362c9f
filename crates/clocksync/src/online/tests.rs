use super::*;
use proptest::prelude::*;

const WANDER: f64 = 1e-6;

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
        let mut online =
            Online::follower(follower.frequency(), reference.frequency(), WANDER);
        prop_assert_eq!(online.to_own(GlobalNs(0), 0), None);
        let mut now = 5_000_000_000_000;
        for (there, back, gap_ms) in exchanges {
            let sent = now;
            let (stamped, received) = (sent + there, sent + there + back);
            now = received + gap_ms * 1_000_000_000;
            let instant = |at| Some(Span { lo: at, hi: at });
            online.see(&Exchange {
                t1: instant(follower.at(sent)),
                t2: instant(reference.at(stamped)),
                t3: instant(reference.at(stamped)),
                t4: instant(follower.at(received)),
                ..Exchange::default()
            });
        }
        let at = instant * 1_000_000_000;
        let (own, global) = (follower.at(at), reference.frequency().scale(reference.at(at)));
        let (told, bound) = online.to_global(own).unwrap();
        prop_assert!(
            (told - global).unsigned_abs() <= bound.ns(), "{told:?} {bound} for {global:?}"
        );
        let span = online.to_own(global, 0).unwrap();
        prop_assert!(span.lo <= own && own <= span.hi, "{span:?} for {own:?}");
        // The instant as another host reports it, wrong by `off`.
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
