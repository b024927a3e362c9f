//! What a reading of this machine's counter costs, and how coarsely the counter steps.
//!
//! `CLOCK_MONOTONIC_RAW` counts nanoseconds and steps as the kernel's clock source does: by less than
//! one where that is the TSC, by 4 ms where it is the timer interrupt. A reading is k·s, cut to whole
//! nanoseconds, for a step s and a whole k. Two differences of readings that are 2 ns apart or more
//! are therefore different multiples of s, and s is not more than their distance and the 2 ns that the
//! four cuts can take.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use loopscope_time::source::{CounterKind, counter_kind, read_counter};

/// Readings whose cost is measured together.
const BATCH: u32 = 100;
/// The cheapest of so many batches counts: what interrupts one only adds.
const BATCHES: u32 = 20;
/// Readings whose differences are compared.
const READINGS: usize = 1_000;
/// How long a coarse clock is read until it has stepped.
const PATIENCE: Duration = Duration::from_millis(200);
/// Four cuts to whole nanoseconds move a distance of two differences by less.
const CUTS_NS: u64 = 2;

/// A counter's resolution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resolution {
    /// A reading may be older than it says by no more than this, in ticks. 0 for cycles, which step by
    /// ticks; `u64::MAX` if the counter stood still.
    pub step: u64,
    /// What a reading costs where nothing interrupts it, in ns.
    pub cost_ns: f64,
}

/// The resolution of this machine's counter, measured when it is asked for the first time.
pub fn of_this_machine() -> &'static Resolution {
    static MEASURED: OnceLock<Resolution> = OnceLock::new();
    MEASURED.get_or_init(|| {
        let cost_ns = (0..BATCHES).map(|_| batch_ns()).fold(f64::INFINITY, f64::min);
        let step = match counter_kind() {
            CounterKind::Cycles => 0,
            CounterKind::MonotonicRaw => {
                let began = Instant::now();
                let mut readings: Vec<u64> = (0..READINGS).map(|_| read_counter().0).collect();
                while step(&readings).is_none() && began.elapsed() < PATIENCE {
                    let last = readings[readings.len() - 1];
                    let next = read_counter().0;
                    if next != last {
                        readings.push(next);
                    }
                }
                step(&readings).unwrap_or(u64::MAX)
            }
        };
        Resolution { step, cost_ns }
    })
}

/// Mean cost of the readings of a batch.
fn batch_ns() -> f64 {
    let began = Instant::now();
    for _ in 0..BATCH {
        black_box(read_counter());
    }
    began.elapsed().as_nanos() as f64 / f64::from(BATCH)
}

/// The longest step that readings in a row, in ns, can come from; `None` if they are all the same.
fn step(readings: &[u64]) -> Option<u64> {
    // Zero is a multiple of every step.
    let mut differences = BTreeSet::from([0]);
    differences.extend(readings.windows(2).map(|pair| pair[1].saturating_sub(pair[0])));
    let sorted: Vec<u64> = differences.into_iter().collect();
    let distances = sorted.windows(2).map(|pair| pair[1] - pair[0]);
    distances.filter(|distance| *distance >= CUTS_NS).min().map(|least| least + CUTS_NS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the step and when the clock is read, the step is not longer than what is found;
        /// and where readings are one to three steps apart, what is found is no more than two.
        #[test]
        fn no_step_is_longer_than_what_is_found(
            step_ns in prop_oneof![0.2f64..3.0, 3.0f64..200.0, 1e6f64..1e7],
            steps in prop::collection::vec(1u32..4, 20..200),
        ) {
            let mut at = 1e6_f64.floor();
            let readings: Vec<u64> = steps
                .iter()
                .map(|steps| {
                    at += f64::from(*steps);
                    (at * step_ns).floor() as u64
                })
                .collect();
            if let Some(found) = step(&readings) {
                prop_assert!(found as f64 >= step_ns, "{found} for {step_ns}");
                let most = 2.0 * step_ns + 5.0;
                prop_assert!(step_ns < 3.0 || found as f64 <= most, "{found} for {step_ns}");
            }
        }
    }

    #[test]
    fn the_steps_of_usual_clock_sources() {
        // HPET at 14.318180 MHz, a millisecond of the timer interrupt, and the TSC.
        let hpet = [0, 69, 139, 209, 279, 419];
        assert_eq!(step(&hpet), Some(71));
        let jiffies = [1_000_000, 1_000_000, 5_000_000, 5_000_000];
        assert_eq!(step(&jiffies), Some(4_000_002));
        let tsc = [0, 26, 53, 81, 107, 137];
        assert_eq!(step(&tsc), Some(4));
        assert_eq!(step(&[7, 7, 7]), None);
    }

    #[test]
    fn this_machines_counter_is_measured() {
        let found = of_this_machine();
        assert!(found.cost_ns > 0.0 && found.step < u64::MAX, "{found:?}");
    }
}
