//! Stamps of other people's clocks, placed on the time line of a run.

use loopscope_time::{Bound, ClockMap, GlobalNs};

use crate::anchor::ForeignClock;
use crate::foreign::ForeignMap;
use crate::log::HostClock;
use crate::others::global;

/// Places the stamps of one clock of a host.
#[derive(Clone, Debug)]
pub struct Placing {
    foreign: ForeignMap,
    map: ClockMap,
}

impl Placing {
    /// Of each clock of the host that was read.
    pub fn of_host(host: &HostClock) -> Vec<(ForeignClock, Placing)> {
        let mut clocks: Vec<_> = host.anchors.iter().map(|anchor| anchor.clock).collect();
        clocks.sort();
        clocks.dedup();
        let of = |clock| {
            let foreign = ForeignMap::of(clock, &host.anchors, host.frequency);
            (clock, Placing { foreign, map: host.map.clone() })
        };
        clocks.into_iter().map(of).collect()
    }

    /// The global time of a stamp from `from` to `until`, in nanoseconds of the clock's own, both cut
    /// to whole ones, and its hard half-width: unknown where the clock was set about then or nobody
    /// read it any more, and where the host's own clock was disturbed.
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
