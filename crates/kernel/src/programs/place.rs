//! Where instants of CLOCK_MONOTONIC are on the counter, by readings of both.

/// Bytes of a reading in a file.
pub(crate) const SIZE: usize = 24;

/// CLOCK_MONOTONIC between two readings of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) before: u64,
    /// ns.
    pub(crate) at: u64,
    pub(crate) after: u64,
}

impl Reading {
    pub(crate) fn to_bytes(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        for (part, value) in bytes.chunks_exact_mut(8).zip([self.before, self.at, self.after]) {
            part.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn of_bytes(bytes: &[u8; SIZE]) -> Reading {
        let value = |at: usize| {
            let mut part = [0; 8];
            part.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(part)
        };
        Reading { before: value(0), at: value(8), after: value(16) }
    }

    fn half(self) -> f64 {
        self.after.saturating_sub(self.before) as f64 / 2.0
    }
}

/// The counter at an instant, and by how many ticks that may be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Placed {
    pub(crate) counter: u64,
    pub(crate) within: f64,
}

/// Places instants, by readings in their order.
#[derive(Debug)]
pub(crate) struct Placement {
    readings: Vec<Reading>,
    /// From each reading to the next.
    rates: Vec<Rate>,
}

/// Ticks for a nanosecond.
#[derive(Clone, Copy, Debug)]
struct Rate {
    mean: f64,
    /// By how much that may be off, as the counter was read somewhat before or after the clock.
    within: f64,
}

impl Placement {
    /// `None` where the readings are too few, or not in order.
    pub(crate) fn new(readings: Vec<Reading>) -> Option<Placement> {
        let rate = |pair: &[Reading]| {
            let &[a, b] = pair else { return None };
            let apart = b.before.checked_sub(a.before)? as f64 + b.half() - a.half();
            let ns = b.at.checked_sub(a.at).filter(|ns| *ns > 0)?;
            let ns = ns as f64;
            Some(Rate { mean: apart / ns, within: (a.half() + b.half()) / ns })
        };
        let rates = readings.windows(2).map(rate).collect::<Option<Vec<_>>>()?;
        (!rates.is_empty()).then_some(Placement { readings, rates })
    }

    /// Between two readings the counter goes on as fast as from one to the other. The kernel may
    /// change the rate of CLOCK_MONOTONIC meanwhile: by as much as it may have between there and the
    /// readings next to it, it is assumed. Where there is but one pair, by 500 ppm, which is the most that
    /// adjtimex allows.
    pub(crate) fn place(&self, at: u64) -> Placed {
        const MOST: f64 = 500e-6;
        let after = self.readings.partition_point(|reading| reading.at <= at);
        let pair = after.saturating_sub(1).min(self.rates.len() - 1);
        let (first, next) = (self.readings[pair], self.readings[pair + 1]);
        let rate = self.rates[pair];
        let neighbours = [pair.checked_sub(1), Some(pair + 1)];
        let changes = neighbours.into_iter().flatten().filter_map(|other| self.rates.get(other));
        let most = |other: &Rate| (other.mean - rate.mean).abs() + other.within + rate.within;
        let change = changes.map(most).fold(0.0, f64::max);
        let change = if self.rates.len() > 1 { change } else { rate.mean * MOST };
        let since = at as f64 - first.at as f64;
        let length = next.at as f64 - first.at as f64;
        let outside = (-since).max(since - length).max(0.0);
        let within = first.half().max(next.half()) + change * (length / 2.0 + outside) + 1.0;
        // What is added is little, so no bits of the counter are lost.
        let ticks = since * rate.mean + first.half();
        let counter = first.before.saturating_add_signed(ticks.round() as i64);
        Placed { counter, within }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A counter whose ticks for a nanosecond change between pairs of readings, and now and then
    /// within one; by less than what is assumed.
    fn counter_at(ns: f64, step: f64, change: f64) -> f64 {
        const RATE: f64 = 2.5;
        // The rate goes up and down with a period of 20 steps, so neighbours differ by more than a
        // step differs within.
        let period = 20.0 * step / std::f64::consts::TAU;
        RATE * ns + change * RATE * period * (1.0 - (ns / period).cos())
    }

    proptest! {
        #[test]
        fn instants_are_where_the_counter_was(
            step in 2e6..5e7_f64,
            change in 0.0..2e-5_f64,
            brackets in prop::collection::vec(20_u64..2_000, 60),
            at in prop::collection::vec(0.0..1.0_f64, 200),
        ) {
            const BEGIN: u64 = 1 << 52;
            let readings: Vec<Reading> = brackets.iter().enumerate().map(|(number, bracket)| {
                let ns = number as f64 * step;
                let ns = ns.round();
                let counter = counter_at(ns, step, change);
                // It was read anywhere between the two.
                let earlier = (*bracket as f64 * at[number]).floor();
                let before = BEGIN.saturating_add_signed((counter - earlier) as i64);
                Reading { before, at: 7_000_000_000 + ns as u64, after: before + bracket + 1 }
            }).collect();
            let end = readings.last().unwrap().at - 7_000_000_000;
            let placement = Placement::new(readings).unwrap();
            let mut last = (0, 0);
            let mut sorted = at.clone();
            sorted.sort_by(f64::total_cmp);
            for part in sorted {
                let ns = (part * end as f64).round();
                let placed = placement.place(7_000_000_000 + ns as u64);
                let truth = counter_at(ns, step, change);
                let off = placed.counter.wrapping_sub(BEGIN) as i64 as f64 - truth;
                prop_assert!(off.abs() <= placed.within, "{off} {placed:?}");
                prop_assert!(last.0 > ns as u64 || placed.counter + 1 >= last.1);
                last = (ns as u64, placed.counter);
            }
        }
    }

    #[test]
    fn too_few_readings_or_such_as_go_back_place_nothing() {
        let reading = |before, at| Reading { before, at, after: before + 10 };
        assert!(Placement::new(vec![]).is_none());
        assert!(Placement::new(vec![reading(100, 1_000)]).is_none());
        assert!(Placement::new(vec![reading(100, 1_000), reading(200, 1_000)]).is_none());
        assert!(Placement::new(vec![reading(200, 1_000), reading(100, 2_000)]).is_none());
        let two = Placement::new(vec![reading(100, 1_000), reading(2_100, 2_000)]).unwrap();
        let placed = two.place(1_500);
        assert_eq!(placed.counter, 1_105);
        // Half a bracket, 500 ppm of 2 ticks a nanosecond over half the distance, and rounding.
        assert!((placed.within - (5.0 + 0.5 + 1.0)).abs() < 1e-9, "{placed:?}");
    }

    #[test]
    fn readings_are_in_files_as_they_were() {
        let reading = Reading { before: u64::MAX, at: 5, after: 0x0102_0304_0506_0708 };
        assert_eq!(Reading::of_bytes(&reading.to_bytes()), reading);
    }
}
