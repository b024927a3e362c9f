//! From the stamps of packets to the raw counter.
//!
//! A stamp is an instant on a clock of its own: `CLOCK_REALTIME` where the kernel stamped. That
//! clock is read again and again between two readings of the counter, so that each stamp lies
//! between two [`Reading`]s. Assumptions, each checked as far as it can be:
//!
//! 1. The clock runs within ±[`SLEW_PPM`] of the counter's nominal frequency. Seen as the mean rate
//!    between any two readings.
//! 2. It is not set. Seen by comparison with `CLOCK_MONOTONIC`, which is slewed alike but never
//!    set: a step smaller than the error of that comparison (tens of nanoseconds) goes unseen.
//! 3. Within [`WINDOW_NS`] its rate changes in one direction only ([`Steering::Monotone`]), as the
//!    kernel's does: it takes up a correction once a second, and who corrects it does so less often.
//!    Between readings A and B the clock then lies between the straight line from A to B and the one
//!    that goes on from an earlier reading through A. So a stamp that was fetched milliseconds late
//!    is placed as well as a fresh one, and while the rate changes the two lines part by just as much
//!    as is not known.

use std::collections::VecDeque;

use loopscope_time::source::read_counter;
use loopscope_time::{Counter, Frequency};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use crate::Span;

/// How much faster or slower than nominal a stamping clock may run against the counter, in parts
/// per million: the range of the kernel's frequency correction.
pub const SLEW_PPM: u64 = 500;

/// How long the rate of the kernel's clock is believed to change in one direction only, ns.
pub const WINDOW_NS: i64 = 1_000_000_000;

/// Readings that are kept, and how far apart they are at least, so that they are those of the
/// window however many packets come. The last one may be closer.
const KEPT: usize = 256;
const SPACING_NS: i64 = WINDOW_NS / KEPT as i64;

/// How far apart two readings must be to tell a rate: their brackets stand for 20 ppm of it.
const APART_NS: i64 = 5_000_000;

/// The kernel makes its rate of two multipliers that differ in the last of at least 22 bits.
pub(crate) const DITHER: f64 = 0.25e-6;

/// Tries for a reading that nothing interrupts.
const TRIES: usize = 4;

/// Clocks are cut to whole nanoseconds, twice where two of them are compared.
const ROUNDING_NS: i64 = 2;

const SLEW: f64 = SLEW_PPM as f64 * 1e-6;

/// An instant on the clock that stamps packets, in nanoseconds of its epoch: `CLOCK_REALTIME`, or
/// the clock of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StampNs(pub i64);

/// The stamping clock was set, or slewed beyond [`SLEW_PPM`], around the stamp; or the stamp cannot
/// have been taken when its packet went by. It says nothing about the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stamping clock was set or slewed beyond {SLEW_PPM} ppm around the stamp")]
pub struct ClockStep;

/// How the rate of a stamping clock changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// In one direction within [`WINDOW_NS`].
    Monotone,
    /// In any way within ±[`SLEW_PPM`].
    Any,
}

/// A stamping clock between readings of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The clock.
    pub clock: StampNs,
    /// When it was read.
    pub at: Span,
    /// Range of what only setting the clock changes, in nanoseconds: its distance from
    /// `CLOCK_MONOTONIC`.
    pub setting: (i64, i64),
}

impl Reading {
    /// Nothing is known of whether the clock was set.
    pub const ANY_SETTING: (i64, i64) = (i64::MIN, i64::MAX);

    /// Reads `CLOCK_REALTIME`; of several tries the one with the narrowest bracket.
    ///
    /// # Panics
    /// If the kernel refuses to read its two basic clocks.
    pub fn take() -> Reading {
        let one = || {
            let before = nanoseconds_of(ClockId::CLOCK_MONOTONIC);
            let (clock, at) = bracketed(ClockId::CLOCK_REALTIME);
            let after = nanoseconds_of(ClockId::CLOCK_MONOTONIC);
            let setting = (clock - after - ROUNDING_NS, clock - before + ROUNDING_NS);
            Reading { clock: StampNs(clock), at, setting }
        };
        let tries = (0..TRIES).map(|_| one());
        tries.min_by_key(Reading::width).expect("there are tries")
    }

    /// The reading with the clock set forward by `ns`.
    pub(crate) fn set(self, ns: i64) -> Reading {
        let setting = (self.setting.0 + ns, self.setting.1 + ns);
        Reading { clock: StampNs(self.clock.0 + ns), setting, ..self }
    }

    fn width(&self) -> i64 {
        self.at.width()
    }
}

/// One of the kernel's basic clocks in nanoseconds, between two readings of the counter.
///
/// # Panics
/// If the kernel refuses to read it.
pub(crate) fn bracketed(clock: ClockId) -> (i64, Span) {
    let lo = ordered_counter();
    let ns = nanoseconds_of(clock);
    (ns, Span { lo, hi: ordered_counter() })
}

pub(crate) fn nanoseconds_of(clock: ClockId) -> i64 {
    nanoseconds(clock_gettime(clock).expect("Linux always has its basic clocks"))
}

fn nanoseconds(time: TimeSpec) -> i64 {
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}

/// A stamp as nanoseconds; `None` where there was none (the kernel writes zero then).
pub(crate) fn stamp_ns(stamp: TimeSpec) -> Option<StampNs> {
    Some(StampNs(nanoseconds(stamp))).filter(|ns| ns.0 != 0)
}

/// Places stamps of one clock on the counter, and watches that clock while it does. Readings come
/// in as arguments.
#[derive(Debug)]
pub struct Placer {
    /// Nominal.
    ticks_per_ns: f64,
    steering: Steering,
    /// By time; between them nothing was found amiss. Never empty.
    readings: VecDeque<Reading>,
    /// What is common to the ranges of the clock's setting since then.
    setting: (i64, i64),
}

impl Placer {
    /// Places stamps taken after `reading`.
    pub fn new(frequency: Frequency, reading: Reading, steering: Steering) -> Placer {
        let ticks_per_ns = frequency.hz() as f64 * 1e-9;
        Placer { ticks_per_ns, steering, readings: [reading].into(), setting: reading.setting }
    }

    /// Whether there is a reading from after the stamp.
    pub fn covers(&self, stamp: StampNs) -> bool {
        self.readings.back().is_some_and(|last| last.clock >= stamp)
    }

    /// Takes in a reading, later than all before. After an error no stamp from before it is placed.
    pub fn see(&mut self, reading: Reading) -> Result<(), ClockStep> {
        let common = (self.setting.0.max(reading.setting.0), self.setting.1.min(reading.setting.1));
        let sound = self.readings.back().is_none_or(|last| {
            let counted = reading.at.lo.ticks_since(last.at.lo) as f64 / self.ticks_per_ns;
            let passed = (reading.clock.0 - last.clock.0) as f64;
            let brackets = (reading.width() + last.width()) as f64 / self.ticks_per_ns;
            let allowed = counted.abs() * SLEW + brackets + ROUNDING_NS as f64;
            (passed - counted).abs() <= allowed
        });
        if common.0 > common.1 || !sound {
            self.readings = [reading].into();
            self.setting = reading.setting;
            return Err(ClockStep);
        }
        self.setting = common;
        let mut latest = self.readings.iter().rev();
        if let (Some(last), Some(before)) = (latest.next(), latest.next())
            && last.clock.0 - before.clock.0 < SPACING_NS
        {
            self.readings.pop_back();
        }
        self.readings.push_back(reading);
        // The one before the window serves stamps that were fetched late.
        let old = |r: &Reading| reading.clock.0 - r.clock.0 > WINDOW_NS;
        while self.readings.len() > KEPT || self.readings.get(1).is_some_and(old) {
            self.readings.pop_front();
        }
        Ok(())
    }

    /// The counter at `stamp`, which was fetched before the last reading. `limits` is what is known
    /// without the stamping clock of when the stamp was taken.
    pub fn place(&self, stamp: StampNs, limits: Span) -> Result<Span, ClockStep> {
        let next = self.readings.partition_point(|r| r.clock < stamp);
        // Cut to nanoseconds, a stamp may seem to be just after the reading that followed it.
        let next = if next == self.readings.len() { next - 1 } else { next };
        let b = self.readings[next];
        if b.clock.0 < stamp.0 - ROUNDING_NS || next == 0 {
            return Err(ClockStep);
        }
        let a = self.readings[next - 1];
        let line = Line { origin: b.at.lo, ticks_per_ns: self.ticks_per_ns };
        let hard = line.limits(a, b, stamp);
        let (lo, hi) = match self.steering {
            Steering::Any => hard,
            Steering::Monotone => match self.earlier(a, b) {
                None => hard,
                Some(z) => {
                    let hull = line.hull(z, a, b, stamp);
                    (hard.0.max(hull.0), hard.1.min(hull.1))
                }
            },
        };
        let counter = |ticks: f64| b.at.lo.0.checked_add_signed(ticks as i64).map(Counter);
        let lo = counter(lo.floor()).ok_or(ClockStep)?.max(limits.lo);
        let hi = counter(hi.ceil()).ok_or(ClockStep)?.min(limits.hi);
        if lo > hi { Err(ClockStep) } else { Ok(Span { lo, hi }) }
    }

    /// The reading that tells the rate before `a`, if there is one in `b`'s window.
    fn earlier(&self, a: Reading, b: Reading) -> Option<Reading> {
        let mut inside = self.readings.iter().filter(|z| b.clock.0 - z.clock.0 <= WINDOW_NS);
        inside.next().filter(|z| a.clock.0 - z.clock.0 >= APART_NS).copied()
    }
}

/// Ticks from `origin`, over nanoseconds of the stamping clock.
struct Line {
    origin: Counter,
    ticks_per_ns: f64,
}

impl Line {
    fn ends(&self, reading: Reading) -> (f64, f64) {
        let ticks = |counter: Counter| counter.ticks_since(self.origin) as f64;
        (ticks(reading.at.lo), ticks(reading.at.hi))
    }

    /// What assumption 1 leaves open at `stamp`, between the readings `a` and `b`.
    fn limits(&self, a: Reading, b: Reading, stamp: StampNs) -> (f64, f64) {
        let ((a_lo, a_hi), (b_lo, b_hi)) = (self.ends(a), self.ends(b));
        let (since, until) = (stamp.0 - a.clock.0, b.clock.0 - stamp.0);
        let least = |ns: i64| (ns - ROUNDING_NS).max(0) as f64 * self.ticks_per_ns / (1.0 + SLEW);
        let most = |ns: i64| (ns + ROUNDING_NS) as f64 * self.ticks_per_ns / (1.0 - SLEW);
        let lo = (a_lo + least(since)).max(b_lo - most(until));
        let hi = (a_hi + most(since)).min(b_hi - least(until));
        (lo, hi)
    }

    /// What assumption 3 leaves open there; `z` is earlier than `a`.
    fn hull(&self, z: Reading, a: Reading, b: Reading, stamp: StampNs) -> (f64, f64) {
        let ((z_lo, z_hi), (a_lo, a_hi), (b_lo, b_hi)) = (self.ends(z), self.ends(a), self.ends(b));
        let since = (stamp.0 - a.clock.0) as f64;
        let until = (b.clock.0 - stamp.0).max(0) as f64;
        let share = since / (since + until).max(1.0);
        let straight = |a: f64, b: f64| a + share * (b - a);
        let ahead = since / (a.clock.0 - z.clock.0) as f64;
        let onward = |z: f64, a: f64| a + ahead * (a - z);
        // Three cuts to nanoseconds bear on the stamp, on `z` by its share.
        let slack =
            (ROUNDING_NS as f64 * (1.0 + ahead) + DITHER * since.min(until)) * self.ticks_per_ns;
        let lo = straight(a_lo, b_lo).min(onward(z_hi, a_lo));
        let hi = straight(a_hi, b_hi).max(onward(z_lo, a_hi));
        (lo - slack, hi + slack)
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
#[path = "../../../tests/skip.rs"]
pub(crate) mod skip;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HZ: u64 = 2_596_094_000;
    const MS: u64 = HZ / 1000;

    /// A machine whose kernel clock runs at rates of its own against the counter.
    struct Machine {
        ppm: f64,
        /// From this counter on the rate is another.
        bend: u64,
        then_ppm: f64,
        set_ns: i64,
    }

    impl Machine {
        fn steady(ppm: f64) -> Machine {
            Machine { ppm, bend: u64::MAX, then_ppm: ppm, set_ns: 0 }
        }

        fn clock(&self, counter: u64) -> i64 {
            let before = counter.min(self.bend) as f64 * (1.0 + self.ppm * 1e-6);
            let after = counter.saturating_sub(self.bend) as f64 * (1.0 + self.then_ppm * 1e-6);
            let ns = (before + after) * 1e9 / HZ as f64;
            1_000_000_000_000 + self.set_ns + ns.floor() as i64
        }

        /// The clock is read at `counter`, the rest within `ticks` of it.
        fn reading(&self, counter: u64, ticks: u64) -> Reading {
            let distance = |c| self.clock(counter) - (self.clock(c) - self.set_ns);
            Reading {
                clock: StampNs(self.clock(counter)),
                at: Span { lo: Counter(counter - ticks / 3), hi: Counter(counter + ticks / 2) },
                setting: (
                    distance(counter + ticks) - ROUNDING_NS,
                    distance(counter - ticks) + ROUNDING_NS,
                ),
            }
        }

        fn placer(&self, counter: u64) -> Placer {
            let hz = Frequency::from_hz(HZ).unwrap();
            Placer::new(hz, self.reading(counter, 100), Steering::Monotone)
        }

        fn stamp(&self, counter: u64) -> StampNs {
            StampNs(self.clock(counter))
        }
    }

    proptest! {
        /// Whatever the kernel's rate within the allowance and the stamp's age, the interval holds
        /// the instant, and is no wider than age, rate and bracket make it.
        #[test]
        fn the_interval_holds_the_stamp(
            ppm in -500.0..500.0f64, age in 0u64..1 << 33, bracket in 0u64..3_000,
        ) {
            let machine = Machine::steady(ppm);
            let mut placer = machine.placer(10_000);
            let stamped = 20_000_000;
            placer.see(machine.reading(stamped + age, bracket.min(age))).unwrap();
            let span = placer.place(machine.stamp(stamped), Span::ANY).unwrap();
            prop_assert!(span.lo.0 <= stamped && stamped <= span.hi.0, "{span:?} for {stamped}");
            let widest = bracket + age / 999 + 16;
            prop_assert!(span.hi.0 - span.lo.0 <= widest, "{span:?} wider than {widest}");
        }

        /// A stamp that was fetched late is placed as well as the readings are: the age costs next
        /// to nothing. With a rate that changes meanwhile the instant is still inside.
        #[test]
        fn a_late_stamp_costs_no_width(
            ppm in -400.0..400.0f64, then_ppm in -400.0..400.0f64, bend in 0..1000 * MS,
            since in 0..20 * MS, age in 0..200 * MS, bracket in 0u64..300,
        ) {
            for (then_ppm, steady) in [(ppm, true), (then_ppm, false)] {
                let machine = Machine { ppm, bend, then_ppm, set_ns: 0 };
                let mut placer = machine.placer(10_000);
                for at in 1..=50 {
                    placer.see(machine.reading(at * 10 * MS, bracket)).unwrap();
                }
                let stamped = 500 * MS + since;
                placer.see(machine.reading(stamped + age, bracket)).unwrap();
                let span = placer.place(machine.stamp(stamped), Span::ANY).unwrap();
                prop_assert!(span.lo.0 <= stamped && stamped <= span.hi.0, "{span:?} {stamped}");
                let widest = 2 * bracket + (since.min(age) + MS) / 1_000_000 + 30;
                prop_assert!(!steady || span.hi.0 - span.lo.0 <= widest, "{span:?} {widest}");
            }
        }

        /// Setting the clock between stamp and reading is seen, even by little and even when
        /// other stamps have been placed before.
        #[test]
        fn a_step_is_never_placed(
            step in prop_oneof![-1_000_000i64..-200, 200i64..1_000_000], age in 0u64..1 << 30,
        ) {
            let mut machine = Machine::steady(20.0);
            let mut placer = machine.placer(10_000);
            let stamped = 20_000_000;
            let stamp = machine.stamp(stamped);
            placer.see(machine.reading(stamped + 5_000, 100)).unwrap();
            prop_assert!(placer.place(stamp, Span::ANY).is_ok());
            let between = machine.stamp(stamped + 5_500);
            machine.set_ns = step;
            let reading = machine.reading(stamped + 6_000 + age, 100);
            prop_assert_eq!(placer.see(reading), Err(ClockStep));
            // Stamps from before the step are not believed afterwards either, unless the step
            // itself makes them look as if they had been taken since.
            let shifted = step.unsigned_abs() * HZ / 1_000_000_000;
            prop_assume!(step > 0 || !(age..age + 60_000).contains(&shifted));
            placer.see(machine.reading(stamped + 50_000 + age, 100)).unwrap();
            prop_assert_eq!(placer.place(stamp, Span::ANY), Err(ClockStep));
            prop_assert_eq!(placer.place(between, Span::ANY), Err(ClockStep));
            // One from after it is.
            let fresh = machine.stamp(stamped + 90_000 + age);
            placer.see(machine.reading(stamped + 100_000 + age, 100)).unwrap();
            prop_assert!(placer.place(fresh, Span::ANY).is_ok());
        }
    }

    #[test]
    fn a_clock_beyond_the_allowance_is_seen() {
        let machine = Machine::steady(600.0);
        let mut placer = machine.placer(10_000);
        assert_eq!(placer.see(machine.reading(HZ + 10_000, 100)), Err(ClockStep));
    }

    /// An impossible stamp is refused and leaves no trace in what is placed after it.
    #[test]
    fn a_stamp_outside_its_limits_is_refused() {
        let machine = Machine::steady(0.0);
        let mut placer = machine.placer(10_000);
        placer.see(machine.reading(1_010_000, 100)).unwrap();
        let place = |counter, limits| placer.place(machine.stamp(counter), limits);
        let good = place(1_005_000, Span::ANY);
        let limits = Span { lo: Counter(1_005_000), hi: Counter(1_010_000) };
        assert_eq!(place(1_000_000, limits), Err(ClockStep));
        assert_eq!(place(1_020_000, Span::ANY), Err(ClockStep));
        assert_eq!(place(5_000, Span::ANY), Err(ClockStep));
        assert!(good.is_ok());
        assert_eq!(place(1_005_000, Span::ANY), good);
    }

    #[test]
    fn real_readings_agree_with_each_other() {
        let first = Reading::take();
        let second = Reading::take();
        assert!(first.at.lo <= first.at.hi && first.at.hi <= second.at.lo);
        assert!(first.setting.0 <= first.setting.1);
        assert!(first.setting.0 <= second.setting.1 && second.setting.0 <= first.setting.1);
    }

    /// What is assumed of the kernel's clock holds on this machine: readings that are taken for
    /// stamps, and so are only seen as nanoseconds, are placed where they were taken.
    #[test]
    fn this_machines_own_readings_are_placed_where_they_were() {
        let mut readings = vec![Reading::take()];
        while readings[readings.len() - 1].clock.0 - readings[0].clock.0 < 300_000_000 {
            readings.push(Reading::take());
        }
        let (first, last) = (readings[0], readings[readings.len() - 1]);
        let ticks = last.at.lo.ticks_since(first.at.lo) as f64;
        let hz = ticks * 1e9 / (last.clock.0 - first.clock.0) as f64;
        let frequency = Frequency::from_hz(hz.round() as u64).unwrap();
        let mut placer = Placer::new(frequency, first, Steering::Monotone);
        let mut narrow = Vec::new();
        // From one reading that is seen to the next it is some milliseconds.
        for stamps in readings[1..].chunks(10_000) {
            let (seen, stamps) = stamps.split_last().unwrap();
            if placer.see(*seen).is_err() {
                skip::skipped("somebody has set this machine's clock");
                return;
            }
            for stamp in stamps {
                let span = placer.place(stamp.clock, Span::ANY).unwrap();
                assert!(span.lo <= stamp.at.hi && stamp.at.lo <= span.hi, "{span:?} {stamp:?}");
                narrow.push(span.width() as f64 / hz * 1e9);
            }
        }
        narrow.sort_by(f64::total_cmp);
        eprintln!("half of them within {} ns", narrow[narrow.len() / 2]);
    }
}
