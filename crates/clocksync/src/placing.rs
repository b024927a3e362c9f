//! Stamps of other people's clocks, placed on the time line of a run.

use loopscope_time::{Bound, ClockMap, Frequency, GlobalNs};

use crate::anchor::{Anchor, ForeignClock};
use crate::foreign::ForeignMap;
use crate::others::global;

/// Places the stamps of one clock of a host.
#[derive(Clone, Debug)]
pub struct Placing {
    foreign: ForeignMap,
    map: ClockMap,
}

impl Placing {
    /// The maps of all clocks of a host that were read, from the readings and the host's own clock.
    pub fn of(
        anchors: &[Anchor],
        frequency: Frequency,
        map: &ClockMap,
    ) -> Vec<(ForeignClock, Placing)> {
        let mut clocks: Vec<_> = anchors.iter().map(|anchor| anchor.clock).collect();
        clocks.sort();
        clocks.dedup();
        let of = |clock| {
            let foreign = ForeignMap::of(clock, anchors, frequency);
            (clock, Placing { foreign, map: map.clone() })
        };
        clocks.into_iter().map(of).collect()
    }

    /// The global time of a stamp from `from` to `until`, in nanoseconds of the clock's own, both
    /// cut to whole ones, and its hard maximum error: unknown where the clock was set about then or
    /// nobody read it any more, and where the host's own clock was disturbed.
    pub fn global(&self, from: i64, until: i64) -> (GlobalNs, Bound) {
        let sure = self.foreign.instant(from, until).and_then(|at| global(&self.map, at));
        match sure {
            Some(placed) => (GlobalNs(placed.ns), Bound::of_rounded(placed.err_ns as f64)),
            None => {
                let counter = self.foreign.guess(from).unwrap_or_default();
                (self.map.map(counter).0, Bound::UNKNOWN)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::log::HostClock;
    use crate::others::tests::{BEGIN_NS, EPOCH, host, off_by};

    fn of(clock: ForeignClock, host: &HostClock) -> Placing {
        let found = Placing::of(&host.anchors, host.frequency, &host.map)
            .into_iter()
            .find(|(other, _)| *other == clock);
        found.unwrap().1
    }

    proptest! {
        /// The true global time is inside the maximum error, which the host's map has its part in;
        /// beyond the readings nothing is known.
        #[test]
        fn the_true_time_is_inside(
            late_ns in 0i64..99_000_000, width in 1.0..50_000.0f64, part in -1.0..1.0f64,
            ahead_ns in -1i64 << 40..1 << 40, since in 0i64..9_900_000_000,
        ) {
            let host = host(late_ns, off_by(part * width, width), |_| ahead_ns);
            let real = of(ForeignClock::Realtime, &host);
            let shown = |at: i64| EPOCH + BEGIN_NS + at + ahead_ns;
            let at = since + late_ns;
            let (ts, bound) = real.global(shown(at), shown(at));
            prop_assert!(bound.is_known());
            let error = (ts.0 - BEGIN_NS - at).unsigned_abs();
            prop_assert!(error <= bound.ns(), "{error} {bound}");
            if (200_000_000..9_700_000_000).contains(&since) {
                prop_assert!((bound.ns() as f64) < width + 200.0, "{bound} for {width}");
            }
            for beyond in [late_ns - 1_000_000, late_ns + 9_901_000_000] {
                prop_assert!(!real.global(shown(beyond), shown(beyond)).1.is_known());
            }
        }
    }

    /// Whatever is asked, and of a stamp that a clock showed twice nothing is claimed.
    #[test]
    fn any_stamp_has_a_guess() {
        let set_back = |since: i64| if since > 5_000_000_000 { -1_000_000_000 } else { 0 };
        let host = host(0, off_by(0.0, 10.0), set_back);
        let real = of(ForeignClock::Realtime, &host);
        for ns in [i64::MIN, -1, 0, EPOCH, EPOCH + BEGIN_NS, i64::MAX] {
            real.global(ns, ns);
        }
        let twice = EPOCH + BEGIN_NS + 4_500_000_000;
        let (ts, bound) = real.global(twice, twice);
        assert!(!bound.is_known());
        assert!((BEGIN_NS..BEGIN_NS + 10_000_000_000).contains(&ts.0), "{ts:?}");
    }
}
