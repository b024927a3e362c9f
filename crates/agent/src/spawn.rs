//! What a child does between fork and exec.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::{getpid, setsid};

use crate::ledger::Note;

/// Makes `command` start as leader of its own session, write its entry into the ledger, and keep
/// `inherited` open under the same number.
#[allow(unsafe_code)]
pub(crate) fn prepare(command: &mut Command, mut note: Note, inherited: Option<OwnedFd>) {
    let before_exec = move || {
        setsid()?;
        note.write(getpid().as_raw())?;
        if let Some(fd) = &inherited {
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. The closure makes the
    // system calls setsid, getpid, write and fcntl, writes digits into memory that was allocated
    // before the fork, and its errors are plain error numbers; it neither allocates nor locks.
    unsafe { command.pre_exec(before_exec) };
}
