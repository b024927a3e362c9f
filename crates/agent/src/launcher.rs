//! The process that an agent is a child of, where something has to stay outside of what the agent
//! is in, or to be there when the agent is gone.
//!
//! It is the process that was started: it passes signals on, ends as the agent does, and takes the
//! agent with it when it is killed.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, raise, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork as fork_process, getpid, pipe2};

use crate::console::print_line;
use crate::guardian::Guardian;
use crate::processes::parent_of;

/// Time between two looks at processes that were killed.
const PAUSE: Duration = Duration::from_millis(1);
/// How long they may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Has this process, which has one thread, go on as a child of the process that called this. That
/// is its launcher, which calls `last` when the child has ended.
pub(crate) fn fork(last: impl FnOnce(WaitStatus)) -> io::Result<()> {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD].into_iter().collect();
    let mut before = SigSet::empty();
    let lifeline = pipe2(OFlag::O_CLOEXEC)?;
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&signals), Some(&mut before))?;
    match fork_alone()? {
        ForkResult::Parent { child } => {
            drop(lifeline.0);
            launch(child, &signals, last)
        }
        ForkResult::Child => {
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
            live_as_long_as(lifeline)
        }
    }
}

/// See [`fork`]; the launcher also adopts what the agent's programs leave running, however far it
/// has moved (PR_SET_CHILD_SUBREAPER(2const)), and kills it when the agent has ended. `guardian`,
/// which guards this process, guards the launcher.
pub(crate) fn keep(guardian: Guardian) -> io::Result<()> {
    set_child_subreaper(true)?;
    let spared = guardian.pid();
    fork(move |status| {
        for pid in kill_children(spared) {
            print_line(&format!("process {pid} does not end, even by SIGKILL"));
        }
        // Else, after a panic for one, the guardian has something to do.
        if matches!(status, WaitStatus::Exited(_, 0 | 1)) {
            guardian.dismiss();
        }
    })
}

#[allow(unsafe_code)]
fn fork_alone() -> io::Result<ForkResult> {
    // SAFETY: there is one thread, so no lock is held by another one in the child.
    Ok(unsafe { fork_process() }?)
}

/// Waits for the agent and ends as it does.
fn launch(agent: Pid, signals: &SigSet, last: impl FnOnce(WaitStatus)) -> ! {
    let ended = loop {
        let signal = signals.wait();
        if let Some(ended) = reap(Some(agent)) {
            break ended;
        }
        if let Ok(signal @ (Signal::SIGTERM | Signal::SIGINT)) = signal {
            // It may have ended just now, which the next turn sees.
            let _ = kill(agent, signal);
        }
    };
    let Ok(status) = ended else { std::process::exit(1) };
    last(status);
    match status {
        WaitStatus::Exited(_, code) => std::process::exit(code),
        WaitStatus::Signaled(_, signal, _) => {
            // None of the signals that are blocked here has ended it: it handles these.
            let _ = raise(signal);
        }
        _ => {}
    }
    std::process::exit(1)
}

/// Waits for all children that have ended, up to `awaited`; how that one has, if it has.
fn reap(awaited: Option<Pid>) -> Option<nix::Result<WaitStatus>> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return None,
            Ok(status) if status.pid() != awaited => {}
            Err(Errno::EINTR) => {}
            ended => return Some(ended),
        }
    }
}

/// Has the kernel end this process when the launcher ends, of which `lifeline`'s second end is a
/// sign of life.
fn live_as_long_as(lifeline: (OwnedFd, OwnedFd)) -> io::Result<()> {
    let (launcher, own) = lifeline;
    drop(own);
    set_pdeathsig(Signal::SIGKILL)?;
    // It may have ended before.
    let mut ends = [PollFd::new(launcher.as_fd(), PollFlags::empty())];
    if poll(&mut ends, PollTimeout::ZERO)? > 0 {
        return Err(io::Error::other("the process that started this agent is gone already"));
    }
    Ok(())
}

/// Kills all children of this process but one, and the children that it gets thereby. Those that do
/// not end.
fn kill_children(spared: u32) -> Vec<i32> {
    let until = Instant::now() + PATIENCE;
    loop {
        reap(None);
        let found = children(spared.cast_signed());
        if found.is_empty() || Instant::now() > until {
            return found;
        }
        for &pid in &found {
            // Nobody else waits for it, so the number is its own still. Another user's is not killed.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        std::thread::sleep(PAUSE);
    }
}

fn children(spared: i32) -> Vec<i32> {
    let own = getpid().as_raw();
    let Ok(entries) = fs::read_dir("/proc") else { return vec![] };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|&pid| pid != spared && parent_of(pid) == Some(own))
        .collect()
}
