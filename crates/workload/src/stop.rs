//! When to stop: at Ctrl-C, at SIGTERM, or when the run ends. Who waits learns of it at once.

use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Set once and for all.
pub(crate) struct Stop {
    set: AtomicBool,
    /// The signal that set it; 0: none.
    signal: AtomicI32,
    /// Hung up once set.
    reader: PipeReader,
    writer: Mutex<Option<PipeWriter>>,
}

impl Stop {
    pub(crate) fn new() -> Result<Arc<Stop>> {
        let (reader, writer) = pipe().context("cannot make a pipe")?;
        let writer = Mutex::new(Some(writer));
        let (set, signal) = (AtomicBool::new(false), AtomicI32::new(0));
        Ok(Arc::new(Stop { set, signal, reader, writer }))
    }

    /// From now on SIGINT and SIGTERM set it; a second one ends the process.
    pub(crate) fn heed_signals(self: &Arc<Stop>) -> Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot heed signals")?;
        let stop = Arc::clone(self);
        std::thread::spawn(move || {
            for signal in &mut signals {
                if stop.signal.swap(signal, Ordering::Relaxed) != 0 {
                    std::process::exit(128 + signal);
                }
                stop.set();
            }
        });
        Ok(())
    }

    pub(crate) fn set(&self) {
        self.set.store(true, Ordering::Relaxed);
        // Hangs up; nothing can be half done under this lock.
        drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }

    /// Hung up (`POLLHUP`) once it is set: for who waits for other files too.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Sleeps until `instant`; true, and at once, if it is set.
    pub(crate) fn sleep_until(&self, instant: Instant) -> Result<bool> {
        loop {
            let left = instant.saturating_duration_since(Instant::now());
            if self.is_set() || left.is_zero() {
                return Ok(self.is_set());
            }
            // Waking for SIGINT's own sake is harmless; so is a day's wait in pieces.
            let timeout = TimeSpec::from_duration(left.min(Duration::from_secs(86_400)));
            match ppoll(&mut [PollFd::new(self.fd(), PollFlags::empty())], Some(timeout), None) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("cannot sleep"),
            }
        }
    }

    /// What a shell expects of a program that Ctrl-C has ended. SIGTERM is an order like any other.
    pub(crate) fn exit_if_interrupted(&self) {
        if self.signal.load(Ordering::Relaxed) == SIGINT {
            std::process::exit(128 + SIGINT);
        }
    }
}

/// Work that goes on behind the phases until the run ends.
pub(crate) struct Background {
    stop: Arc<Stop>,
    thread: JoinHandle<()>,
}

impl Background {
    /// Starts `work`, which gives its own report. What goes wrong, or a signal that ends it, ends the
    /// process: nobody would look for it before the run's end.
    pub(crate) fn start(
        stop: &Arc<Stop>,
        work: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Background {
        let heeded = Arc::clone(stop);
        let thread = std::thread::spawn(move || {
            if let Err(error) = work() {
                eprintln!("loopscope-host: {error:#}");
                std::process::exit(1);
            }
            let signal = heeded.signal.load(Ordering::Relaxed);
            if signal != 0 {
                std::process::exit(if signal == SIGINT { 128 + SIGINT } else { 0 });
            }
        });
        Background { stop: Arc::clone(stop), thread }
    }

    /// Stops the work and waits for its report.
    pub(crate) fn finish(self) -> Result<()> {
        self.stop.set();
        self.thread.join().map_err(|_| anyhow::anyhow!("a thread has panicked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_is_woken() {
        let stop = Stop::new().unwrap();
        let begin = Instant::now();
        let short = begin + Duration::from_millis(20);
        assert!(!stop.sleep_until(short).unwrap());
        assert!(Instant::now() >= short);
        let long = begin + Duration::from_secs(3600);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| stop.sleep_until(long).unwrap());
            stop.set();
            assert!(sleeper.join().unwrap());
        });
        assert!(stop.sleep_until(begin).unwrap());
    }
}
