//! The steps of a child between fork and exec.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{getpid, setsid, write};

use crate::account::Account;
use crate::ledger::Note;
use crate::rights;

/// The settings of a started process.
#[derive(Debug, Default)]
pub(crate) struct Outfit {
    /// Kept open under the same number.
    pub(crate) inherited: Option<OwnedFd>,
    /// The account that it runs as; `None`: the agent's user.
    pub(crate) account: Option<Account>,
    /// The entrance of the cgroup that it runs in; `None`: the agent's.
    pub(crate) cgroup: Option<File>,
    /// Whether it has the agent's capabilities, see [`crate::rights`].
    pub(crate) has_rights: bool,
}

/// The agent's own umask as it was given one, which what it starts gets back.
static UMASK: OnceLock<Mode> = OnceLock::new();

/// Has nobody else read the files that this process makes, whatever its umask was. There must be
/// one thread.
pub(crate) fn keep_private() {
    let before = umask(Mode::S_IRWXG | Mode::S_IRWXO);
    UMASK.get_or_init(|| before);
}

/// Makes `command` start as leader of its own session, write its entry into the ledger, and have
/// its outfit.
#[allow(unsafe_code)]
pub(crate) fn prepare(command: &mut Command, mut note: Note, outfit: Outfit) {
    let mask = UMASK.get().copied();
    let before_exec = move || {
        setsid()?;
        note.write(getpid().as_raw())?;
        if let Some(entrance) = &outfit.cgroup {
            write(entrance, b"0")?;
        }
        if let Some(fd) = &outfit.inherited {
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
        }
        if let Some(mask) = mask {
            umask(mask);
        }
        if let Some(account) = &outfit.account {
            account.become_it()?;
        }
        if outfit.has_rights {
            rights::pass_on()?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. The closure makes the
    // system calls setsid, getpid, write, fcntl, umask, capget, capset, prctl and those that change
    // the user, which glibc makes without a lock where there is one thread, as in a forked process. It writes digits into
    // memory that was allocated before the fork, and its errors are plain error numbers; it neither
    // allocates nor locks.
    unsafe { command.pre_exec(before_exec) };
}
