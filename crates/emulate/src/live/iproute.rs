//! The kernel's links and queues by way of iproute2's programs.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};
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

/// One process of `program`, which is `ip`, `bridge` or `tc`, for all the lines of `batch`.
pub fn run(program: &'static str, options: &[&str], batch: &str) -> Result<(), BatchError> {
    let mut child = Command::new(program)
        .args(options)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| match e.kind() {
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
    Err(BatchError::Refused(program, said))
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
    let make = || {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|e| BatchError::Run("tc", e.into()))?;
        run("tc", &[], "qdisc add dev lo root netem delay 1ms\n")
    };
    std::thread::scope(|scope| scope.spawn(make).join())
        .unwrap_or_else(|_| Err(BatchError::Run("tc", io::Error::other("the thread failed"))))
}
