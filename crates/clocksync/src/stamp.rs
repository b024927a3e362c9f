//! From the kernel's packet stamps (`CLOCK_REALTIME`) to the raw counter.
//!
//! Right after a stamp was fetched, `CLOCK_REALTIME` is read between two readings of the counter.
//! The stamp's age on the kernel's clock, taken back from there, gives the counter at the stamp.
//! Assumptions: between stamp and reading the kernel's clock runs within ±[`SLEW_PPM`] of the
//! counter's nominal frequency, and it is not set. Both are checked as far as they can be: the rate
//! as the mean between any two readings, setting by comparison with `CLOCK_MONOTONIC`, which is
//! slewed alike but never set. A step between stamp and reading smaller than the error of that
//! comparison (tens of nanoseconds) goes unseen.

use loopscope_time::source::read_counter;
use loopscope_time::{Counter, Frequency};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use crate::Span;

/// How much faster or slower than nominal the kernel's clock may run against the counter, in parts
/// per million: the range of its frequency correction.
pub const SLEW_PPM: u64 = 500;

/// Tries for a reading that nothing interrupts.
const TRIES: usize = 4;

/// Kernel clocks are cut to whole nanoseconds, twice where two of them are compared.
const ROUNDING_NS: i64 = 2;

const SLEW: u128 = SLEW_PPM as u128;
const MILLION: u128 = 1_000_000;
const BILLION: u128 = 1_000_000_000;

/// An instant on `CLOCK_REALTIME`, in nanoseconds of its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RealNs(pub i64);

/// The kernel's clock was set, or slewed beyond [`SLEW_PPM`], since the stamp; or the stamp cannot
/// have been taken when its packet went by. It says nothing about the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("CLOCK_REALTIME was set or slewed beyond {SLEW_PPM} ppm around the stamp")]
pub struct ClockStep;

/// `CLOCK_REALTIME` between readings of the counter and of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// `CLOCK_REALTIME`.
    pub real: RealNs,
    /// When it was read.
    pub at: Span,
    /// `CLOCK_MONOTONIC` before, in nanoseconds.
    pub monotonic_before: i64,
    /// `CLOCK_MONOTONIC` after, in nanoseconds.
    pub monotonic_after: i64,
}

impl Reading {
    /// Reads the clocks; of several tries the one with the narrowest bracket.
    ///
    /// # Panics
    /// If the kernel refuses to read its two basic clocks.
    pub fn take() -> Reading {
        let monotonic = || nanoseconds(clock_gettime(ClockId::CLOCK_MONOTONIC).expect(CLOCKS));
        let one = || {
            let monotonic_before = monotonic();
            let lo = ordered_counter();
            let real = clock_gettime(ClockId::CLOCK_REALTIME).expect(CLOCKS);
            let hi = ordered_counter();
            let monotonic_after = monotonic();
            let real = RealNs(nanoseconds(real));
            Reading { real, at: Span { lo, hi }, monotonic_before, monotonic_after }
        };
        let mut best = one();
        for _ in 1..TRIES {
            let next = one();
            if next.width() < best.width() {
                best = next;
            }
        }
        best
    }

    fn width(&self) -> i64 {
        self.at.hi.ticks_since(self.at.lo)
    }

    /// Range of `CLOCK_REALTIME` less `CLOCK_MONOTONIC`, which only setting the clock changes.
    fn setting(&self) -> (i64, i64) {
        (
            self.real.0 - self.monotonic_after - ROUNDING_NS,
            self.real.0 - self.monotonic_before + ROUNDING_NS,
        )
    }
}

const CLOCKS: &str = "Linux always has CLOCK_REALTIME and CLOCK_MONOTONIC";

fn nanoseconds(time: TimeSpec) -> i64 {
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

/// The kernel's stamp as nanoseconds; `None` where it gave none (it writes zero then).
pub(crate) fn real_ns(stamp: TimeSpec) -> Option<RealNs> {
    Some(RealNs(nanoseconds(stamp))).filter(|ns| ns.0 != 0)
}

/// Places stamps of one thread on the counter, and watches the kernel's clock while it does.
/// Readings come in as arguments.
#[derive(Debug)]
pub struct Placer {
    frequency: Frequency,
    last: Reading,
    /// Since here nothing was found amiss with the kernel's clock.
    sound_since: Counter,
    /// What is common to all ranges of its setting since then.
    setting: (i64, i64),
}

impl Placer {
    /// Places stamps taken after `reading`.
    pub fn new(frequency: Frequency, reading: Reading) -> Placer {
        let setting = reading.setting();
        Placer { frequency, last: reading, sound_since: reading.at.lo, setting }
    }

    /// The counter at `stamp`. `reading` was taken after the stamp was fetched; `limits` is what is
    /// known without the kernel's clock of when the stamp was taken.
    pub fn place(
        &mut self,
        stamp: RealNs,
        reading: Reading,
        limits: Span,
    ) -> Result<Span, ClockStep> {
        self.watch(reading)?;
        let age_ns = reading.real.0 - stamp.0;
        if age_ns < -ROUNDING_NS {
            return Err(ClockStep);
        }
        // The kernel's clock passes between 1 - slew and 1 + slew nanoseconds in a nominal one.
        let ticks = |ns: i64| {
            u128::from(ns.max(0).unsigned_abs()) * u128::from(self.frequency.hz()) * MILLION
        };
        let oldest = ticks(age_ns + ROUNDING_NS).div_ceil(BILLION * (MILLION - SLEW));
        let newest = ticks(age_ns - ROUNDING_NS) / (BILLION * (MILLION + SLEW));
        // An age beyond the counter's own was before any reading.
        let before = |from: Counter, ticks: u128| {
            u64::try_from(ticks).ok().and_then(|t| from.0.checked_sub(t)).map(Counter)
        };
        let lo = before(reading.at.lo, oldest).ok_or(ClockStep)?;
        let hi = before(reading.at.hi, newest).ok_or(ClockStep)?;
        let span = Span { lo: lo.max(limits.lo), hi: hi.min(limits.hi) };
        if lo < self.sound_since || span.lo > span.hi {
            return Err(ClockStep);
        }
        Ok(span)
    }

    /// Holds a reading against the earlier ones.
    fn watch(&mut self, reading: Reading) -> Result<(), ClockStep> {
        let last = std::mem::replace(&mut self.last, reading);
        let setting = reading.setting();
        let common = (self.setting.0.max(setting.0), self.setting.1.min(setting.1));
        let ns = |ticks: i64| i128::from(ticks) * 1_000_000_000 / i128::from(self.frequency.hz());
        let counted = ns(reading.at.lo.ticks_since(last.at.lo));
        let passed = i128::from(reading.real.0 - last.real.0);
        let allowed = counted.abs() * i128::from(SLEW_PPM) / 1_000_000
            + ns(reading.width() + last.width())
            + i128::from(ROUNDING_NS);
        if common.0 > common.1 || (passed - counted).abs() > allowed {
            *self = Placer::new(self.frequency, reading);
            return Err(ClockStep);
        }
        self.setting = common;
        Ok(())
    }
}

/// The counter, read neither before anything that precedes it in the program nor after anything
/// that follows.
#[allow(unsafe_code)]
pub fn ordered_counter() -> Counter {
    let fence = || {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: lfence is part of the x86-64 base set and touches no memory.
        unsafe {
            core::arch::x86_64::_mm_lfence();
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: isb touches no memory or register.
        unsafe {
            core::arch::asm!("isb", options(nostack));
        }
    };
    fence();
    let counter = read_counter();
    fence();
    counter
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HZ: u64 = 2_596_094_000;
    const ANY: Span = Span { lo: Counter(0), hi: Counter(u64::MAX) };

    /// A machine whose kernel clock runs at a rate of its own against the counter.
    struct Machine {
        ppm: f64,
        set_ns: i64,
    }

    impl Machine {
        fn real(&self, counter: u64) -> i64 {
            let ns = counter as f64 * 1e9 / HZ as f64;
            1_000_000_000_000 + self.set_ns + (ns * (1.0 + self.ppm * 1e-6)).floor() as i64
        }

        /// Realtime is read at `counter`, the rest within `ticks` of it.
        fn reading(&self, counter: u64, ticks: u64) -> Reading {
            let monotonic = |c| self.real(c) - self.set_ns - 900_000_000_000;
            Reading {
                real: RealNs(self.real(counter)),
                at: Span { lo: Counter(counter - ticks / 3), hi: Counter(counter + ticks / 2) },
                monotonic_before: monotonic(counter - ticks),
                monotonic_after: monotonic(counter + ticks),
            }
        }
    }

    proptest! {
        /// Whatever the kernel's rate within the allowance and the stamp's age, the interval holds
        /// the instant, and is no wider than age, rate and bracket make it.
        #[test]
        fn the_interval_holds_the_stamp(
            ppm in -500.0..500.0f64, age in 0u64..1 << 33, bracket in 0u64..3_000,
        ) {
            let machine = Machine { ppm, set_ns: 0 };
            let hz = Frequency::from_hz(HZ).unwrap();
            let mut placer = Placer::new(hz, machine.reading(10_000, 100));
            let stamped = 20_000_000;
            let stamp = RealNs(machine.real(stamped));
            let reading = machine.reading(stamped + age, bracket.min(age));
            let span = placer.place(stamp, reading, ANY).unwrap();
            prop_assert!(span.lo.0 <= stamped && stamped <= span.hi.0, "{span:?} for {stamped}");
            let widest = bracket + age / 999 + 16;
            prop_assert!(span.hi.0 - span.lo.0 <= widest, "{span:?} wider than {widest}");
        }

        /// Setting the clock between stamp and reading is seen, even by little and even when
        /// other stamps have been placed before.
        #[test]
        fn a_step_is_never_placed(
            step in prop_oneof![-1_000_000i64..-200, 200i64..1_000_000], age in 0u64..1 << 30,
        ) {
            let mut machine = Machine { ppm: 20.0, set_ns: 0 };
            let hz = Frequency::from_hz(HZ).unwrap();
            let mut placer = Placer::new(hz, machine.reading(10_000, 100));
            let stamped = 20_000_000;
            let stamp = RealNs(machine.real(stamped));
            let good = machine.reading(stamped + 5_000, 100);
            prop_assert!(placer.place(stamp, good, ANY).is_ok());
            machine.set_ns = step;
            let reading = machine.reading(stamped + 6_000 + age, 100);
            prop_assert_eq!(placer.place(stamp, reading, ANY), Err(ClockStep));
            // A second stamp from before the step is not believed afterwards either, unless the
            // step itself makes it look as if it had been taken since.
            let shifted = step.unsigned_abs() * HZ / 1_000_000_000;
            prop_assume!(step > 0 || !(age..age + 60_000).contains(&shifted));
            let later = machine.reading(stamped + 50_000 + age, 100);
            prop_assert_eq!(placer.place(stamp, later, ANY), Err(ClockStep));
            // One from after it is.
            let fresh = RealNs(machine.real(stamped + 90_000 + age));
            let reading = machine.reading(stamped + 100_000 + age, 100);
            prop_assert!(placer.place(fresh, reading, ANY).is_ok());
        }
    }

    #[test]
    fn a_kernel_clock_beyond_the_allowance_is_seen() {
        let hz = Frequency::from_hz(HZ).unwrap();
        let machine = Machine { ppm: 600.0, set_ns: 0 };
        let mut placer = Placer::new(hz, machine.reading(10_000, 100));
        let stamp = RealNs(machine.real(HZ));
        let reading = machine.reading(HZ + 10_000, 100);
        assert_eq!(placer.place(stamp, reading, ANY), Err(ClockStep));
    }

    #[test]
    fn a_stamp_outside_its_limits_is_refused() {
        let hz = Frequency::from_hz(HZ).unwrap();
        let machine = Machine { ppm: 0.0, set_ns: 0 };
        let mut placer = Placer::new(hz, machine.reading(10_000, 100));
        let stamp = RealNs(machine.real(1_000_000));
        let reading = machine.reading(1_010_000, 100);
        let limits = Span { lo: Counter(1_005_000), hi: Counter(1_010_000) };
        assert_eq!(placer.place(stamp, reading, limits), Err(ClockStep));
        let future = RealNs(machine.real(1_020_000));
        assert_eq!(placer.place(future, machine.reading(1_015_000, 100), ANY), Err(ClockStep));
    }

    #[test]
    fn real_readings_agree_with_each_other() {
        let first = Reading::take();
        let second = Reading::take();
        assert!(first.at.lo <= first.at.hi && first.at.hi <= second.at.lo);
        assert!(first.monotonic_before <= first.monotonic_after);
        assert!(first.monotonic_after <= second.monotonic_before);
    }
}
