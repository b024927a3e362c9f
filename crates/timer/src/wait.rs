//! The clock and the sleep.

use std::time::Duration;

use loopscope_time::MonotonicNs;
use nix::errno::Errno;
use nix::sys::prctl::set_timerslack;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

use crate::Guard;

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Sleep; late by what the kernel's timer and scheduler take.
    Sleep,
    /// Sleep until a learned guard before the instant, then spin.
    SleepThenSpin,
    /// Spin; takes a whole core.
    Spin,
}

/// Waits for instants.
#[derive(Clone, Debug)]
pub struct Timer {
    wait: Wait,
    guard: Guard,
    /// The thread's timer slack (50 us from the start) is the least there is.
    exact: bool,
    without_spinning: u64,
}

/// Between two readings of the clock in a spin: so long only others can have had the CPU. An
/// interrupt takes less, a time slice more.
const OTHERS: i64 = 500_000;

/// This host's CLOCK_MONOTONIC.
pub fn now() -> MonotonicNs {
    // Linux has this clock always; nothing else can fail.
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    MonotonicNs(time.as_nanos() as u64)
}

impl Timer {
    /// A timer that has learned nothing yet.
    pub fn new(wait: Wait) -> Timer {
        Timer::with(wait, Guard::default())
    }

    /// A timer with a guard of the caller's.
    pub fn with(wait: Wait, guard: Guard) -> Timer {
        Timer { wait, guard, exact: false, without_spinning: 0 }
    }

    /// The guard, as learned so far.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Waits that were a sleep only, though a spin was asked for: others wanted the CPU.
    pub fn without_spinning(&self) -> u64 {
        self.without_spinning
    }

    /// Waits until `instant` and returns the time then; at once if it has passed. A signal that
    /// interrupts the sleep is not an error. For one thread: its timer slack is set at the first
    /// sleep.
    pub fn until(&mut self, instant: MonotonicNs) -> Result<MonotonicNs, Errno> {
        if self.wait != Wait::Spin {
            let ahead = if self.wait == Wait::Sleep { 0 } else { self.guard.spin_ns() };
            let wake = MonotonicNs(instant.0.saturating_sub(ahead));
            let before = now();
            if before < wake {
                if !self.exact {
                    // Where the kernel refuses, sleeps are later, and the guard learns that.
                    let _ = set_timerslack(1);
                    self.exact = true;
                }
                self.without_spinning += u64::from(self.wait == Wait::SleepThenSpin && ahead == 0);
                sleep_until(wake)?;
                let time = now();
                self.guard.woke(time.ns_since(wake).max(0).cast_unsigned());
                if time >= instant {
                    return Ok(time);
                }
            } else if before < instant {
                self.guard.stayed_awake();
            }
        }
        let mut time = now();
        while time < instant {
            std::hint::spin_loop();
            let before = std::mem::replace(&mut time, now());
            if time.ns_since(before) > OTHERS {
                self.guard.lost_the_cpu();
            }
        }
        Ok(time)
    }
}

fn sleep_until(instant: MonotonicNs) -> Result<(), Errno> {
    let until = TimeSpec::from_duration(Duration::from_nanos(instant.0));
    let flags = ClockNanosleepFlags::TIMER_ABSTIME;
    loop {
        match clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &until) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_early() {
        for wait in [Wait::Sleep, Wait::SleepThenSpin, Wait::Spin] {
            let mut timer = Timer::new(wait);
            let start = now();
            for n in 1..=20 {
                let instant = start.plus(n * 150_000);
                let time = timer.until(instant).unwrap();
                assert!(time >= instant && time <= now(), "{wait:?}");
            }
            // What has passed takes no wait, and is told as it is.
            let late = timer.until(start).unwrap();
            assert!(late >= start.plus(20 * 150_000));
        }
    }

    #[test]
    fn only_a_sleep_teaches_the_guard() {
        let mut timer = Timer::new(Wait::Spin);
        let first = timer.guard().ns();
        timer.until(now().plus(300_000)).unwrap();
        assert_eq!(timer.guard().ns(), first);
        let mut timer = Timer::with(Wait::SleepThenSpin, Guard::below(5_000));
        for _ in 0..50 {
            timer.until(now().plus(200_000)).unwrap();
        }
        assert_eq!(timer.guard().ns(), 5_000);
    }
}
