//! SIGINT and SIGTERM end a router in order.

use std::io;

use nix::sys::signal::{SigSet, Signal};

use crate::EmulateError;
use crate::control::{Command, Control};

/// From now on both signals are told as [`Command::End`]. To be called before other threads are
/// started, which would take them otherwise.
pub fn end_on_signals(control: Control) -> Result<(), EmulateError> {
    let error = EmulateError::system::<io::Error>("cannot wait for signals");
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    let wait = move || {
        // Fails only for what is no signal.
        while signals.wait().is_ok() {
            control.tell(Command::End);
        }
    };
    let blocked = signals.thread_block().map_err(io::Error::from);
    blocked.and_then(|()| spawn("signals", wait)).map_err(error)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(work).map(drop)
}
