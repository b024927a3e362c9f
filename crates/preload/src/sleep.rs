//! Waiting: a short time with turns, then asleep until a frame comes or another thread says so.

use std::cell::Cell;
use std::time::{Duration, Instant};

use libc::{c_int, pollfd, sigset_t};

use crate::habit::Habit;
use crate::receive::Receive;
use crate::sleepers::{Cause, Plan, Wants, service, take_frame, take_signal};
use crate::state::State;
use crate::{descriptor, lock, real, receive, signals};

/// For so long a thread looks before it sleeps, where that has helped: to fall asleep and to be
/// woken costs as much.
const SPIN: Duration = Duration::from_micros(50);
/// A thread that looks gives the lock up after so many turns, which take less than a microsecond.
const LOOKS: u32 = 8;
thread_local! {
    static HABIT: Cell<Habit> = const { Cell::new(Habit::new()) };
}

/// A wait that may begin with a look.
#[derive(Debug)]
pub(crate) struct Look {
    receive: Receive,
    began: Option<Instant>,
    looks: bool,
}

impl Look {
    /// `has_mask`: the thread waits with another mask of signals, which it has while it sleeps. It
    /// must sleep at some time, so that these come.
    pub(crate) fn new(has_mask: bool) -> Look {
        let receive = match receive::get() {
            Receive::Spin if has_mask => Receive::Adaptive,
            receive => receive,
        };
        Look { receive, began: None, looks: true }
    }

    /// Whether the thread has to sleep now.
    pub(crate) fn is_over(&mut self) -> bool {
        if self.began.is_none() {
            self.began = Some(Instant::now());
            self.looks = match self.receive {
                Receive::Spin => true,
                Receive::Block => false,
                Receive::Adaptive => habit(Habit::begin),
            };
        }
        if self.looks && self.receive == Receive::Adaptive && self.spent() >= SPIN {
            self.looks = false;
            habit(|habit| habit.looked(false));
        }
        !self.looks
    }

    /// Whether the thread waits.
    pub(crate) fn has_begun(&self) -> bool {
        self.began.is_some()
    }

    /// The time since the thread began to wait.
    pub(crate) fn spent(&self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }

    /// What the thread waited for is there.
    pub(crate) fn end(self) {
        if self.began.is_some() && self.looks {
            habit(|habit| habit.looked(true));
        }
    }
}

/// Does something to the habit of this thread.
fn habit<T>(act: impl FnOnce(&mut Habit) -> T) -> T {
    let mut habit = HABIT.get();
    let result = act(&mut habit);
    HABIT.set(habit);
    result
}

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
    /// A thread was cancelled, perhaps this one.
    Look,
    /// This thread is in a turn: only a handler of a fault can call so.
    Inside,
}

/// Turns, and does `act`, until that is done. Before something is sent, a turn is needed only for what
/// came. No lock is held while the thread sleeps.
pub(crate) fn attempt<T>(
    wants: &[Wants],
    mut act: impl FnMut(&mut State) -> Step<T>,
) -> Result<T, Stop> {
    let (seen, cancelled) = (signals::seen(), real::cancelled());
    let mut look = Look::new(false);
    let mut sleeping: Option<c_int> = None;
    let sends = wants.iter().all(|wants| wants.events == libc::POLLOUT);
    loop {
        let mut attempt = |state: &mut State| {
            if let Some(event) = sleeping.take() {
                state.woken(event);
            }
            let mut looks = if look.has_begun() && !look.is_over() { LOOKS } else { 1 };
            let most = loop {
                if !sends || look.has_begun() || state.has_frames() {
                    state.turn();
                }
                match act(state) {
                    Step::Done(result) => return Ok((Some(result), None)),
                    Step::Wait(_) if looks > 1 => looks -= 1,
                    Step::Wait(most) => break most,
                }
            };
            let left = most.map(|most| most.checked_sub(look.spent()));
            if left.is_some_and(|left| left.is_none_or(|left| left.is_zero())) {
                return Err(Stop::TimedOut);
            }
            let left = left.flatten();
            if cancelled != real::cancelled() {
                return Err(Stop::Look);
            }
            if seen.ends_call(most.is_some()) {
                return Err(Stop::Interrupted);
            }
            if !look.has_begun() {
                state.waiting(Cause::Events(wants)).begins();
            }
            let sleeps = look.is_over() && state.rests();
            let plan = sleeps.then(|| state.sleeps(Cause::Events(wants))).flatten();
            Ok((None, plan.map(|plan| (plan, left))))
        };
        let (result, plan) = lock::with(&mut attempt).ok_or(Stop::Inside)??;
        if let Some(result) = result {
            look.end();
            return Ok(result);
        }
        match plan {
            None => std::hint::spin_loop(),
            Some((mut plan, left)) => {
                sleeping = Some(plan.event);
                let time = [plan.due, left].into_iter().flatten().min();
                let mut fds = std::mem::take(&mut plan.fds);
                sleep(&plan, &mut fds, time, None, || seen.ends_call(left.is_some()));
            }
        }
    }
}

/// Sleeps by `fds`, unless `ends` by now. A handler that runs from here on wakes the thread, also
/// just before it sleeps.
pub(crate) fn sleep(
    plan: &Plan,
    fds: &mut [pollfd],
    time: Option<Duration>,
    mask: Option<&sigset_t>,
    ends: impl Fn() -> bool,
) {
    let handlers = signals::seen();
    signals::wakes(plan.event);
    if !ends() {
        // The caller looks at everything again, whatever it says.
        let _ = descriptor::wait(fds, time, mask);
        let by_handler = handlers.has_more();
        plan.waiting.woken(if by_handler { "signal" } else { woken_by(plan, fds) });
        take_signal(plan.event, fds);
        take_frame(plan.frames, fds);
    } else {
        plan.waiting.woken("signal");
    }
    signals::wakes(-1);
}

/// What has woken a thread, of what it has slept by.
fn woken_by(plan: &Plan, fds: &[pollfd]) -> &'static str {
    let (mut by_thread, mut by_frame, mut by_service, mut by_other) = (false, false, false, false);
    for polled in fds.iter().filter(|polled| polled.fd >= 0 && polled.revents != 0) {
        let by = match polled.fd {
            fd if fd == plan.event => &mut by_thread,
            fd if fd == plan.frames => &mut by_frame,
            fd if fd == service() => &mut by_service,
            _ => &mut by_other,
        };
        *by = true;
    }
    match () {
        () if by_thread => "thread",
        () if by_frame => "frame",
        () if by_other => "descriptor",
        () if by_service => "service",
        () => "time",
    }
}
