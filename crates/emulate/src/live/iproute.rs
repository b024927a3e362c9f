//! The kernel's links and queues by way of iproute2's programs.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid};
use thiserror::Error;

/// One of them did not do what it was asked for.
#[derive(Debug, Error)]
pub enum BatchError {
    /// There is none.
    #[error("there is no `{0}` program; install iproute2")]
    Missing(&'static str),
    /// It could not be run.
    #[error("cannot run `{0}`: {1}")]
    Run(&'static str, io::Error),
    /// It refused.
    #[error("{0}: {1}")]
    Refused(&'static str, String),
}

/// One process of `program`, which is `ip`, `bridge` or `tc`, for all the lines of `batch`. It dies
/// with the calling thread.
pub fn run(program: &'static str, options: &[&str], batch: &str) -> Result<(), BatchError> {
    let mut command = Command::new(program);
    command
        .args(options)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    die_with_parent(&mut command);
    let mut child = command.spawn().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => BatchError::Missing(program),
        _ => BatchError::Run(program, e),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // If it ended early, its own message says why.
        let _ = stdin.write_all(batch.as_bytes());
    }
    let output = child.wait_with_output().map_err(|e| BatchError::Run(program, e))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let said = if said.is_empty() { output.status.to_string() } else { said };
    Err(BatchError::Refused(program, explained(said)))
}

/// What the kernel says to several netems on a device of which one duplicates
/// (check_netem_in_tree() in net/sched/sch_netem.c).
const MIXED: &str = "cannot mix duplicating netems";

/// With what to do where the kernel's own words do not say it.
fn explained(said: String) -> String {
    if said.contains(MIXED) {
        return format!(
            "this kernel's netem refuses `duplicate` on one of several links to a host: use mover: \
             auto, or leave `duplicate` out ({said})"
        );
    }
    said
}

/// What a killed program has begun must not go on behind its back.
#[allow(unsafe_code)]
fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    let before_exec = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        // It may have died before.
        if getppid() == parent { Ok(()) } else { Err(Errno::ESRCH.into()) }
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. The closure makes the
    // system calls prctl and getppid; it neither allocates nor locks.
    unsafe { command.pre_exec(before_exec) };
}

/// A bridge that adds no packets of its own and forwards from the first one: without spanning tree
/// and snooping.
pub fn bridge(name: &str) -> String {
    format!("link add {name} type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n")
}

/// Has a device up, with more words for `ip link set`. It is not given an IPv6 address, and so there
/// are no solicitations and no duplicate address detection in the middle of a measurement.
pub fn up(device: &str, more: &str) -> String {
    let quiet = if Path::new("/proc/sys/net/ipv6").exists() { "addrgenmode none" } else { "" };
    format!("link set dev {device} {more} {quiet} up\n")
}

/// Has the kernel make a netem where nobody is: in a namespace that ends with the thread in it.
pub fn try_out_netem() -> Result<(), BatchError> {
    try_out("qdisc add dev lo root netem delay 1ms\n")
}

/// Has the kernel make two netems on a device, of which one duplicates.
pub fn try_out_duplicates() -> Result<(), BatchError> {
    try_out(
        "qdisc add dev lo root handle 1: prio bands 2\n\
         qdisc add dev lo parent 1:1 netem duplicate 1%\n\
         qdisc add dev lo parent 1:2 netem delay 1ms\n",
    )
}

fn try_out(batch: &str) -> Result<(), BatchError> {
    let make = || {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|e| BatchError::Run("tc", e.into()))?;
        run("tc", &[], batch)
    };
    std::thread::scope(|scope| scope.spawn(make).join())
        .unwrap_or_else(|_| Err(BatchError::Run("tc", io::Error::other("the thread failed"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_duplicate_comes_with_its_remedy() {
        let kernels = "Error: netem: cannot mix duplicating netems with other netems in tree.";
        let explained = explained(kernels.to_owned());
        assert!(explained.contains("mover: auto") && explained.contains(kernels), "{explained}");
        assert_eq!(super::explained("Error: else".to_owned()), "Error: else");
    }
}
