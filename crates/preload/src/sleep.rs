//! Waiting: a short time with turns, then asleep until a frame comes or another thread says so.

use std::time::{Duration, Instant};

use libc::{POLLIN, c_int, pollfd, sigset_t};

use crate::state::{State, Wants};
use crate::{descriptor, lock, signals};

/// For so long a thread looks before it sleeps: to fall asleep and to be woken costs as much.
pub(crate) const SPIN: Duration = Duration::from_micros(50);

/// What an attempt came to.
pub(crate) enum Step<T> {
    /// It is done.
    Done(T),
    /// It has to wait, at most for so long since it began. None: for ever.
    Wait(Option<Duration>),
}

/// Why an attempt ended without having been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The time is over.
    TimedOut,
    /// A handler of a signal ran, after which the call ends.
    Interrupted,
    /// This thread is in a turn: only a handler of a fault can call so.
    Inside,
}

/// By what a thread that sleeps is woken.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The devices and the service; then the thread's own.
    pub(crate) fds: Vec<pollfd>,
    /// The thread's own descriptor.
    pub(crate) event: c_int,
    /// When a turn is due.
    pub(crate) due: Option<Duration>,
}

/// For reading from the descriptor.
pub(crate) fn awaited(fd: c_int) -> pollfd {
    pollfd { fd, events: POLLIN, revents: 0 }
}

/// Turns, and does `act`, until that is done. No lock is held while the thread sleeps.
pub(crate) fn attempt<T>(
    wants: &[Wants],
    mut act: impl FnMut(&mut State) -> Step<T>,
) -> Result<T, Stop> {
    let seen = signals::seen();
    let mut begin: Option<Instant> = None;
    let mut sleeping: Option<c_int> = None;
    loop {
        let spent = begin.map_or(Duration::ZERO, |begin| begin.elapsed());
        let mut attempt = |state: &mut State| {
            if let Some(event) = sleeping.take() {
                state.woken(event);
            }
            state.turn();
            let most = match act(state) {
                Step::Done(result) => return Ok((Some(result), None)),
                Step::Wait(most) => most,
            };
            if most.is_some_and(|most| spent >= most) {
                return Err(Stop::TimedOut);
            }
            if seen.ends_call(most.is_some()) {
                return Err(Stop::Interrupted);
            }
            let plan = (spent >= SPIN).then(|| state.sleeps(wants)).flatten();
            let left = most.map(|most| most - spent);
            Ok((None, plan.map(|plan| (plan, left))))
        };
        let (result, plan) = lock::with(&mut attempt).ok_or(Stop::Inside)??;
        if let Some(result) = result {
            return Ok(result);
        }
        begin.get_or_insert_with(Instant::now);
        match plan {
            None => std::hint::spin_loop(),
            Some((mut plan, left)) => {
                sleeping = Some(plan.event);
                let time = [plan.due, left].into_iter().flatten().min();
                sleep(plan.event, &mut plan.fds, time, None, || seen.ends_call(left.is_some()));
            }
        }
    }
}

/// Sleeps, unless `ends` by now. A handler that runs from here on wakes the thread, also just before
/// it sleeps.
pub(crate) fn sleep(
    event: c_int,
    fds: &mut [pollfd],
    time: Option<Duration>,
    mask: Option<&sigset_t>,
    ends: impl Fn() -> bool,
) {
    signals::wakes(event);
    if !ends() {
        // The caller looks at everything again, whatever it says.
        let _ = descriptor::wait(fds, time, mask);
    }
    signals::wakes(-1);
}
