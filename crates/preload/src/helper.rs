//! The thread that answers the other ends while the program computes: how it is started, woken and
//! ended. What it does is in `watch`.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow};

use crate::record;
use crate::sleepers::{new_event, signal};
use crate::table::{self, Kind};

/// The thread.
#[derive(Debug)]
pub(crate) struct Helper {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
    is_resting: bool,
    is_hurried: bool,
}

/// What it has in common with its starter.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) event: OwnedFd,
    ends: AtomicBool,
}

impl Shared {
    /// Whether it is to end.
    pub(crate) fn ends(&self) -> bool {
        // Pairs with the store of `Helper::end`.
        self.ends.load(Ordering::Acquire)
    }
}

impl Helper {
    /// Starts it. It gets none of the program's signals.
    pub(crate) fn start(run: fn(&Shared)) -> Option<Helper> {
        let shared = Arc::new(Shared { event: new_event()?, ends: AtomicBool::new(false) });
        let of_helper = Arc::clone(&shared);
        let mut before = SigSet::empty();
        let all = SigSet::all();
        nix::sys::signal::pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&all), Some(&mut before))
            .ok()?;
        let name = "loopscope".to_owned();
        let (is_ready, ready) = mpsc::channel::<()>();
        let run = move || {
            record::begin_thread();
            drop(is_ready);
            run(&of_helper);
        };
        let started = Builder::new().name(name).stack_size(1 << 18).spawn(run);
        // Where it could not be started, the other end of the channel is gone, too.
        let _ = ready.recv();
        nix::sys::signal::pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None).ok()?;
        Some(Helper { shared, thread: started.ok()?, is_resting: false, is_hurried: false })
    }

    /// It sleeps until it is woken.
    pub(crate) fn rest(&mut self) {
        self.is_resting = true;
    }

    /// Ends its rest.
    pub(crate) fn wake(&mut self) {
        if std::mem::take(&mut self.is_resting) {
            signal(&self.shared.event);
        }
    }

    /// Has it wait for frames from now on, as long as no thread of the program does.
    pub(crate) fn hurry(&mut self) {
        if !std::mem::replace(&mut self.is_hurried, true) {
            self.is_resting = false;
            signal(&self.shared.event);
        }
    }

    /// Whether it was to hurry since it was asked last.
    pub(crate) fn take_hurry(&mut self) -> bool {
        std::mem::take(&mut self.is_hurried)
    }

    /// Ends it. The caller does not hold the lock.
    pub(crate) fn end(self) {
        // Pairs with the load of `Shared::ends`.
        self.shared.ends.store(true, Ordering::Release);
        signal(&self.shared.event);
        let _ = self.thread.join();
        table::set(self.shared.event.as_raw_fd(), Kind::Plain);
    }
}
