//! The map from one host's counter to global time.

use std::fmt;

use crate::{Bound, Counter, Frequency, GlobalNs};

/// One point of a [`ClockMap`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knot {
    /// Reading of the host's counter.
    pub counter: Counter,
    /// Global time there, in nanoseconds after the map's origin.
    pub offset_ns: f64,
    /// Hard half-width there, in nanoseconds.
    pub err_ns: f64,
}

/// Why knots do not make a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapError {
    /// There is no knot.
    Empty,
    /// The knot at this index does not increase strictly in counter and global time, or its
    /// half-width is not a finite number that is zero or more.
    BadKnot(usize),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Empty => write!(f, "a clock map needs at least one knot"),
            MapError::BadKnot(i) => write!(
                f,
                "knot {i} of the clock map is not after its predecessor or has no valid half-width"
            ),
        }
    }
}

impl std::error::Error for MapError {}

/// Continuous, strictly increasing, piecewise linear map `Counter → (GlobalNs, Bound)`.
///
/// Between knots both the global time and the half-width are linear; beyond the first and the last
/// the map goes on at the rate `ns_per_tick` while the half-width grows by `drift` (nanoseconds per
/// nanosecond).
#[derive(Clone, Debug, PartialEq)]
pub struct ClockMap {
    origin: GlobalNs,
    knots: Vec<Knot>,
    ns_per_tick: f64,
    drift: f64,
}

impl ClockMap {
    /// `knots` are offsets from `origin`; `ns_per_tick` is the host's mean rate; `drift` bounds the
    /// difference between the host's rate and that mean at any moment, in nanoseconds per
    /// nanosecond.
    pub fn new(
        origin: GlobalNs,
        knots: Vec<Knot>,
        ns_per_tick: f64,
        drift: f64,
    ) -> Result<ClockMap, MapError> {
        if knots.is_empty() {
            return Err(MapError::Empty);
        }
        for (i, knot) in knots.iter().enumerate() {
            let ordered = i == 0
                || (knot.counter > knots[i - 1].counter && knot.offset_ns > knots[i - 1].offset_ns);
            if !ordered || !knot.err_ns.is_finite() || knot.err_ns < 0.0 {
                return Err(MapError::BadKnot(i));
            }
        }
        Ok(ClockMap { origin, knots, ns_per_tick, drift })
    }

    /// The reference host's own map: its counter scaled by its nominal frequency, without error.
    /// `near` is any counter value of the run.
    pub fn reference(frequency: Frequency, near: Counter) -> ClockMap {
        ClockMap {
            origin: frequency.scale(near),
            knots: vec![Knot { counter: near, offset_ns: 0.0, err_ns: 0.0 }],
            ns_per_tick: frequency.ns_per_tick(),
            drift: 0.0,
        }
    }

    /// Global time and hard half-width at `counter`.
    pub fn map(&self, counter: Counter) -> (GlobalNs, Bound) {
        let after = self.knots.partition_point(|k| k.counter <= counter);
        let (offset_ns, err_ns) = if after == 0 {
            self.extrapolate(&self.knots[0], counter)
        } else if after == self.knots.len() {
            self.extrapolate(&self.knots[after - 1], counter)
        } else {
            let (a, b) = (&self.knots[after - 1], &self.knots[after]);
            let part =
                counter.ticks_since(a.counter) as f64 / b.counter.ticks_since(a.counter) as f64;
            (
                a.offset_ns + part * (b.offset_ns - a.offset_ns),
                a.err_ns + part * (b.err_ns - a.err_ns),
            )
        };
        (GlobalNs(self.origin.0 + offset_ns.round() as i64), Bound::of_rounded(err_ns))
    }

    fn extrapolate(&self, from: &Knot, counter: Counter) -> (f64, f64) {
        let ns = counter.ticks_since(from.counter) as f64 * self.ns_per_tick;
        // Years away the arithmetic itself rounds by more than a nanosecond: ticks, product and sum.
        let rounding = 4.0 * f64::EPSILON;
        (from.offset_ns + ns, from.err_ns + ns.abs() * (self.drift + rounding))
    }

    /// Hard half-width of an interval of `ns` nanoseconds measured on this one host. Its two ends
    /// share the offset's error, so only the rate's remains: map and truth each stay within
    /// `drift` of the mean rate. Each end is rounded.
    pub fn interval_bound(&self, ns: i64) -> Bound {
        Bound::of_rounded(2.0 * self.drift * ns.unsigned_abs() as f64 + 0.5)
    }

    /// The global instant that knots count from.
    pub fn origin(&self) -> GlobalNs {
        self.origin
    }

    /// The knots, in order.
    pub fn knots(&self) -> &[Knot] {
        &self.knots
    }

    /// The host's mean rate, in global nanoseconds per tick.
    pub fn ns_per_tick(&self) -> f64 {
        self.ns_per_tick
    }

    /// Bound on the difference between the host's rate and its mean, in nanoseconds per nanosecond.
    pub fn drift(&self) -> f64 {
        self.drift
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn knot(counter: u64, offset_ns: f64, err_ns: f64) -> Knot {
        Knot { counter: Counter(counter), offset_ns, err_ns }
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

    proptest! {
        /// The reference map agrees with exact integer arithmetic within its half-width, days away
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
}
