//! A thread that answers the other ends while the program computes.
//!
//! It looks now and then whether the program calls. While it does not, and none of its threads waits
//! either, the helper sleeps until frames come, and turns. Once threads of the program have waited for
//! long, it sleeps until they do not.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};

use crate::sleep::{Plan, awaited};
use crate::state::{State, new_event, signal};
use crate::table::{self, Kind};
use crate::{descriptor, lock};

/// It looks so often: well below the time that acknowledgements may wait.
const TICK: Duration = Duration::from_millis(10);
/// Ticks in a row with a thread that waits, after which the helper rests.
const QUIET: u32 = 10;

/// The thread.
#[derive(Debug)]
pub(crate) struct Helper {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    is_resting: bool,
}

#[derive(Debug)]
struct Shared {
    event: OwnedFd,
    ends: AtomicBool,
}

/// What it does next.
enum Next {
    Tick,
    Rest,
    Watch(Plan),
}

impl Helper {
    /// Starts it. It gets none of the program's signals.
    pub(crate) fn start() -> Option<Helper> {
        let shared = Arc::new(Shared { event: new_event()?, ends: AtomicBool::new(false) });
        let of_helper = Arc::clone(&shared);
        let mut before = SigSet::empty();
        let all = SigSet::all();
        nix::sys::signal::pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&all), Some(&mut before))
            .ok()?;
        let name = "loopscope".to_owned();
        let started = Builder::new().name(name).stack_size(1 << 18).spawn(move || run(&of_helper));
        nix::sys::signal::pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None).ok()?;
        Some(Helper { shared, thread: started.ok()?, is_resting: false })
    }

    /// Ends its rest.
    pub(crate) fn wake(&mut self) {
        if std::mem::take(&mut self.is_resting) {
            signal(&self.shared.event);
        }
    }

    /// Ends it. The caller does not hold the lock.
    pub(crate) fn end(self) {
        // Pairs with the load of `run`.
        self.shared.ends.store(true, Ordering::Release);
        signal(&self.shared.event);
        let _ = self.thread.join();
        table::set(self.shared.event.as_raw_fd(), Kind::Plain);
    }
}

fn run(shared: &Shared) {
    let event = shared.event.as_raw_fd();
    let (mut seen, mut quiet) = (0, 0);
    let mut sleeping = None;
    // Pairs with the store of `Helper::end`.
    while !shared.ends.load(Ordering::Acquire) {
        let next = lock::with(|state| {
            if let Some(event) = sleeping.take() {
                state.woken(event);
            }
            next(state, &mut seen, &mut quiet)
        });
        let (mut fds, time) = match next {
            None | Some(Next::Tick) => (vec![awaited(event)], Some(TICK)),
            Some(Next::Rest) => (vec![awaited(event)], None),
            Some(Next::Watch(plan)) => {
                sleeping = Some(plan.event);
                ([plan.fds, vec![awaited(event)]].concat(), plan.due)
            }
        };
        // All is looked at again, whatever it says.
        let _ = descriptor::wait(&mut fds, time, None);
        let _ = rustix::io::read(&shared.event, &mut [0; 8]);
    }
    if let Some(event) = sleeping {
        lock::with(|state| state.woken(event));
    }
}

fn next(state: &mut State, seen: &mut u64, quiet: &mut u32) -> Next {
    if !state.has_connections() {
        return rest(state);
    }
    let is_called = state.turns != *seen;
    let has_sleepers = state.has_sleepers();
    *quiet = if has_sleepers { *quiet + 1 } else { 0 };
    if has_sleepers || is_called {
        if state.is_due() {
            state.turn();
        }
        *seen = state.turns;
        if *quiet < QUIET {
            return Next::Tick;
        }
        *quiet = 0;
        return rest(state);
    }
    state.turn();
    *seen = state.turns;
    state.helper_sleeps().map_or(Next::Tick, Next::Watch)
}

fn rest(state: &mut State) -> Next {
    // Where it is not stored yet, it is still being started.
    let Some(helper) = &mut state.helper else { return Next::Tick };
    helper.is_resting = true;
    Next::Rest
}
