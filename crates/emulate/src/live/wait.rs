//! Sleeping until there is something to do, or until shortly before.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use loopscope_time::MonotonicNs;
use loopscope_timer::{Guard, now};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::EmulateError;
use crate::settings::Wait;

/// Most that is spun before an instant: an outlier among the wakes must not take the core for long.
const GUARD_LIMIT: u64 = 200_000;

/// Waits for descriptors and instants.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// A timer of its own: the time-out of poll may be late by a thousandth of its length.
    timer: TimerFd,
    guard: Guard,
    /// The instant that was too near to sleep before it.
    near: Option<MonotonicNs>,
    spin: bool,
}

impl Waiter {
    pub(crate) fn new(wait: Wait) -> Result<Waiter, EmulateError> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)
            .map_err(EmulateError::system("cannot make a timer"))?;
        Ok(Waiter { timer, guard: Guard::below(GUARD_LIMIT), near: None, spin: wait == Wait::Spin })
    }

    /// Returns when one of `ready` is readable, or a guard before `until`: the caller then looks
    /// again and again until it is time. Whether the second may be readable.
    pub(crate) fn wait(
        &mut self,
        until: Option<MonotonicNs>,
        ready: [BorrowedFd<'_>; 2],
    ) -> Result<bool, EmulateError> {
        if self.spin {
            std::hint::spin_loop();
            return Ok(false);
        }
        let wake = until.map(|until| MonotonicNs(until.0.saturating_sub(self.guard.ns())));
        if wake.is_some_and(|wake| wake <= now()) {
            if self.near != until {
                self.near = until;
                self.guard.stayed_awake();
            }
            std::hint::spin_loop();
            return Ok(false);
        }
        let set = match wake {
            Some(wake) => {
                let at = TimeSpec::from_duration(Duration::from_nanos(wake.0));
                let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
                self.timer.set(Expiration::OneShot(at), flags)
            }
            None => self.timer.unset(),
        };
        set.map_err(EmulateError::system("cannot set a timer"))?;
        let [first, second] = ready;
        let mut polled =
            [first, second, self.timer.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(EmulateError::system("cannot wait")(error)),
        }
        if let Some(wake) = wake
            && polled[2].any() == Some(true)
        {
            self.guard.woke(now().ns_since(wake).max(0).cast_unsigned());
        }
        Ok(polled[1].any() != Some(false))
    }
}
