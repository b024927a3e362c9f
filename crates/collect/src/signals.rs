//! Signals as messages, while a recording goes on.

use std::os::fd::AsFd as _;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::Error;

/// Blocked signals, until this is dropped. For a process with no other threads.
pub(crate) struct Signals {
    queue: SignalFd,
    before: SigSet,
}

/// A signal that came.
pub(crate) struct Came {
    pub(crate) signal: Signal,
    /// The terminal has sent it, to the whole foreground group.
    pub(crate) from_terminal: bool,
}

impl Signals {
    pub(crate) fn block(signals: impl IntoIterator<Item = Signal>) -> Result<Signals, Error> {
        let set: SigSet = signals.into_iter().collect();
        let queue = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .map_err(Error::host("wait for signals"))?;
        let before =
            set.thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(Error::host("block signals"))?;
        Ok(Signals { queue, before })
    }

    /// The mask that there was.
    pub(crate) fn before(&self) -> SigSet {
        self.before
    }

    /// Waits so long for signals; those that came.
    pub(crate) fn wait(&mut self, pause: Duration) -> Result<Vec<Came>, Error> {
        let pause = u16::try_from(pause.as_millis()).unwrap_or(u16::MAX);
        let mut ready = [PollFd::new(self.queue.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::from(pause)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(Error::host("wait for signals")(error)),
        }
        let mut came = Vec::new();
        while let Some(info) = self.queue.read_signal().map_err(Error::host("read a signal"))? {
            if let Ok(signal) = Signal::try_from(info.ssi_signo.cast_signed()) {
                came.push(Came { signal, from_terminal: info.ssi_code == libc::SI_KERNEL });
            }
        }
        Ok(came)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // It was the mask of this thread a while ago, so it is a mask.
        let _ = self.before.thread_set_mask();
    }
}
