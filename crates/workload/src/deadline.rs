//! Absolute deadlines on CLOCK_MONOTONIC.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// Deadlines one period apart. They never shift: after a stall those overdue come at once, one
/// after the other, until the program has caught up.
pub(crate) struct Deadlines {
    next: Duration,
    period: Duration,
}

impl Deadlines {
    /// The first deadline is now.
    pub(crate) fn from_now(period: Duration) -> Result<Deadlines> {
        Ok(Deadlines { next: now(ClockId::CLOCK_MONOTONIC)?, period })
    }

    /// Sleeps until the next deadline and returns it. Does not sleep if it has passed.
    pub(crate) fn wait(&mut self) -> Result<Duration> {
        let deadline = self.next;
        self.next = deadline.saturating_add(self.period);
        let until = TimeSpec::from_duration(deadline);
        loop {
            let flags = ClockNanosleepFlags::TIMER_ABSTIME;
            match clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &until) {
                Ok(_) => return Ok(deadline),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("cannot sleep until the next deadline"),
            }
        }
    }

    /// How long ago `deadline` was; zero before it.
    pub(crate) fn lateness(deadline: Duration) -> Result<Duration> {
        Ok(now(ClockId::CLOCK_MONOTONIC)?.saturating_sub(deadline))
    }
}

/// The clock's reading; for CLOCK_REALTIME since 1970.
pub(crate) fn now(clock: ClockId) -> Result<Duration> {
    Ok(clock_gettime(clock).context("cannot read the clock")?.into())
}

/// This host's CLOCK_REALTIME, in nanoseconds since 1970.
pub(crate) fn realtime() -> Result<i64> {
    i64::try_from(now(ClockId::CLOCK_REALTIME)?.as_nanos()).context("the clock is beyond 2262")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_keep_their_grid_after_a_stall() {
        let period = Duration::from_millis(2);
        let mut deadlines = Deadlines::from_now(period).unwrap();
        let first = deadlines.wait().unwrap();
        std::thread::sleep(5 * period);
        for n in 1..10 {
            let deadline = deadlines.wait().unwrap();
            assert_eq!(deadline, first + n * period);
            // Never early.
            assert!(now(ClockId::CLOCK_MONOTONIC).unwrap() >= deadline);
        }
        assert!(Deadlines::lateness(first).unwrap() >= 9 * period);
    }
}
