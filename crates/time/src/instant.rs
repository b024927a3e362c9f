//! The instant types.

use std::fmt;
use std::ops::Sub;

/// A reading of one host's raw counter, in ticks: of its cycle counter (TSC on x86, CNTVCT on Arm), or
/// of what stands in for it ([`source::CounterKind`](crate::source::CounterKind)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(transparent)]
pub struct Counter(pub u64);

impl Counter {
    /// Signed distance in ticks from `earlier` to `self`, exact for counters less than 2^63 apart.
    pub fn ticks_since(self, earlier: Counter) -> i64 {
        self.0.wrapping_sub(earlier.0).cast_signed()
    }
}

/// An instant on the global clock, in nanoseconds of the reference host's counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(transparent)]
pub struct GlobalNs(pub i64);

impl Sub for GlobalNs {
    type Output = i64;

    /// Distance in nanoseconds.
    fn sub(self, earlier: GlobalNs) -> i64 {
        self.0 - earlier.0
    }
}

/// An instant of one host's CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonotonicNs(pub u64);

impl MonotonicNs {
    /// Nanoseconds from `earlier` to `self`; negative if it is the later one.
    pub fn ns_since(self, earlier: MonotonicNs) -> i64 {
        self.0.cast_signed() - earlier.0.cast_signed()
    }

    /// `ns` nanoseconds later.
    #[must_use]
    pub fn plus(self, ns: u64) -> MonotonicNs {
        MonotonicNs(self.0.saturating_add(ns))
    }
}

/// A hard maximum error in nanoseconds: the true instant lies within `±ns` of the mapped one, under
/// the stated assumption on oscillator wander and no other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Bound {
    ns: u64,
}

impl Bound {
    /// Nothing is known of the instant: a clock was disturbed about then. Wider than any run, and
    /// small enough that sums of several such widths fit 64 bits.
    pub const UNKNOWN: Bound = Bound { ns: 1 << 60 };

    /// The bound of an estimate whose own error is `err_ns` (finite, not negative) and which is
    /// then rounded to whole nanoseconds; rounds up.
    pub fn of_rounded(err_ns: f64) -> Bound {
        // The half nanosecond is the rounding of the instant itself.
        Bound { ns: (err_ns + 0.5).ceil() as u64 }.min(Bound::UNKNOWN)
    }

    /// Maximum error in nanoseconds.
    pub fn ns(self) -> u64 {
        self.ns
    }

    /// Whether it is a bound at all, and not [`Bound::UNKNOWN`].
    pub fn is_known(self) -> bool {
        self < Bound::UNKNOWN
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_known() { write!(f, "±{} ns", self.ns) } else { f.write_str("unknown") }
    }
}

/// Nominal frequency of a counter, in Hz. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "u64"))]
pub struct Frequency(u64);

impl TryFrom<u64> for Frequency {
    type Error = &'static str;

    fn try_from(hz: u64) -> Result<Frequency, &'static str> {
        Frequency::from_hz(hz).ok_or("a frequency is not zero")
    }
}

impl Frequency {
    /// `None` if `hz` is zero.
    pub fn from_hz(hz: u64) -> Option<Frequency> {
        (hz != 0).then_some(Frequency(hz))
    }

    /// Ticks per second.
    pub fn hz(self) -> u64 {
        self.0
    }

    /// Nanoseconds per tick.
    pub fn ns_per_tick(self) -> f64 {
        1e9 / self.0 as f64
    }

    /// `counter` scaled to nanoseconds, rounded down; exact for any counter value.
    pub fn scale(self, counter: Counter) -> GlobalNs {
        let ns = u128::from(counter.0) * 1_000_000_000 / u128::from(self.0);
        GlobalNs(i64::try_from(ns).unwrap_or(i64::MAX))
    }

    /// The reverse of [`Self::scale`], to the tick, rounded down; zero of instants before it.
    pub fn unscale(self, instant: GlobalNs) -> Counter {
        let ticks = i128::from(instant.0) * i128::from(self.0) / 1_000_000_000;
        Counter(u64::try_from(ticks).unwrap_or(0))
    }
}
