//! What the helper does: it answers the other ends while the program computes.
//!
//! It looks now and then whether the program calls. While it does not, and none of its threads
//! waits either, the helper sleeps until frames come, and turns. So it does at once where the program
//! leaves a call with data that were not sent yet. Once threads of the program have waited for long,
//! it sleeps until they do not.

use std::os::fd::AsRawFd as _;
use std::time::Duration;

use libc::c_int;

use crate::helper::{Helper, Shared};
use crate::sleepers::{Cause, Plan, awaited, service, take_frame, take_signal};
use crate::state::State;
use crate::{descriptor, lock};

/// It looks so often: well below the time that acknowledgements may wait.
const TICK: Duration = Duration::from_millis(10);
/// It turns so often until nothing more is there.
const TURNS: u32 = 64;
/// Ticks in a row with a thread that waits, after which the helper rests.
const QUIET: u32 = 10;

/// What it does next.
enum Next {
    Again,
    Tick,
    Rest,
    Watch(Plan),
}

/// Starts the helper.
pub(crate) fn start() -> Option<Helper> {
    Helper::start(run)
}

fn run(shared: &Shared) {
    let event = shared.event.as_raw_fd();
    let (mut seen, mut quiet) = (0, 0);
    let mut sleeping: Option<(c_int, c_int)> = None;
    let mut framed = false;
    while !shared.ends() {
        let next = lock::with(|state| {
            if let Some((event, _)) = sleeping.take() {
                state.woken(event);
            }
            next(state, framed, &mut seen, &mut quiet)
        });
        let (mut fds, time) = match next {
            None | Some(Next::Tick) => (vec![awaited(event), awaited(service())], Some(TICK)),
            Some(Next::Again) => (vec![awaited(event), awaited(service())], Some(Duration::ZERO)),
            Some(Next::Rest) => (vec![awaited(event), awaited(service())], None),
            Some(Next::Watch(plan)) => {
                sleeping = Some((plan.event, plan.frames));
                ([plan.fds, vec![awaited(event)]].concat(), plan.due)
            }
        };
        // All is looked at again, whatever it says.
        let _ = descriptor::wait(&mut fds, time, None);
        take_signal(event, &fds);
        framed = false;
        if let Some((event, frames)) = sleeping {
            take_signal(event, &fds);
            framed = take_frame(frames, &fds);
        }
    }
    if let Some((event, _)) = sleeping {
        lock::with(|state| state.woken(event));
    }
}

/// `framed`: frames have woken it. Other threads that sleep may not have seen that.
fn next(state: &mut State, framed: bool, seen: &mut u64, quiet: &mut u32) -> Next {
    state.look_for_service();
    if !state.has_connections() {
        return rest(state);
    }
    let is_hurried = state.helper.as_mut().is_some_and(Helper::take_hurry);
    let is_called = state.turns != *seen && !is_hurried;
    let has_sleepers = state.sleepers.has_any();
    *quiet = if has_sleepers { *quiet + 1 } else { 0 };
    if has_sleepers || is_called {
        if framed || state.is_due() {
            state.turn();
        }
        *seen = state.turns;
        if *quiet < QUIET {
            return Next::Tick;
        }
        *quiet = 0;
        return rest(state);
    }
    // Not for ever, for the program's sake.
    for _ in 0..TURNS {
        state.turn();
        *seen = state.turns;
        if state.rests() {
            return state.sleeps(Cause::Frames).map_or(Next::Tick, Next::Watch);
        }
    }
    Next::Again
}

fn rest(state: &mut State) -> Next {
    // Where it is not stored yet, it is still being started.
    let Some(helper) = &mut state.helper else { return Next::Tick };
    helper.rest();
    Next::Rest
}
