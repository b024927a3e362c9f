//! What the instrumentation itself costs on this machine.

use loopscope_time::Frequency;
use loopscope_trace::calibrate::{Work, calibrate};
use serde::{Deserialize, Serialize};

/// Batches measured, and how often each repeats its work: one step of the counter is then far less
/// than what is told of a single event. No more than that: a machine may have a hundred hosts, whose
/// first components wait for this.
const BATCHES: usize = 50;
const REPEATS: u32 = 400;

/// Measured costs (`cost` in `loss.json`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Cost of an enabled event with an id, in ns.
    pub event_ns: Spread,
    /// Cost of a bare read of the counter, in ns: the part of `event_ns` that any way of taking a
    /// stamp costs.
    pub counter_read_ns: Spread,
}

/// A quantity over the batches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Half of the batches are below.
    pub median: f64,
    /// A tenth of them is below.
    pub p10: f64,
    /// And a tenth above.
    pub p90: f64,
}

impl Cost {
    /// Measures for less than a millisecond; `None` where there is no memory for it.
    pub fn measure(frequency: Frequency) -> Option<Cost> {
        let of = |work| {
            let mut ticks = [0; BATCHES];
            calibrate(&mut ticks, REPEATS, work).then(|| {
                let per_event = frequency.ns_per_tick() / f64::from(REPEATS);
                Spread::of(&mut ticks, per_event)
            })
        };
        Some(Cost { event_ns: of(Work::Events)?, counter_read_ns: of(Work::CounterReads)? })
    }
}

impl Spread {
    /// By nearest rank, scaled, to a thousandth.
    fn of(ticks: &mut [u64], scale: f64) -> Spread {
        ticks.sort_unstable();
        let at = |tenths: usize| {
            let rank = (ticks.len() * tenths).div_ceil(10).max(1);
            (ticks[rank - 1] as f64 * scale * 1000.0).round() / 1000.0
        };
        Spread { median: at(5), p10: at(1), p90: at(9) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_nearest_ranks() {
        let mut ticks: Vec<u64> = (1..=200).rev().collect();
        let spread = Spread::of(&mut ticks, 0.5);
        assert_eq!(spread, Spread { median: 50.0, p10: 10.0, p90: 90.0 });
        let spread = Spread::of(&mut [7], 1.0);
        assert_eq!(spread, Spread { median: 7.0, p10: 7.0, p90: 7.0 });
    }

    #[test]
    fn an_event_costs_no_less_than_its_stamp() {
        let hz = crate::frequency::nominal().unwrap();
        let cost = Cost::measure(hz).unwrap();
        // The fastest tenth: noise only adds.
        assert!(cost.event_ns.p10 >= 0.9 * cost.counter_read_ns.p10, "{cost:?}");
        for spread in [cost.event_ns, cost.counter_read_ns] {
            assert!(spread.p10 <= spread.median && spread.median <= spread.p90, "{cost:?}");
        }
    }
}
