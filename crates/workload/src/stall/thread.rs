//! What the stalling thread asks of the scheduler.

#![allow(unsafe_code)]

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::libc;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Keeps the calling thread on a CPU.
pub(super) fn stay_on(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)
        .with_context(|| format!("`cpu` is {cpu}; there are at most {}", CpuSet::count()))?;
    match sched_setaffinity(Pid::from_raw(0), &set) {
        Ok(()) => Ok(()),
        Err(Errno::EINVAL) => bail!(
            "this process may not use CPU {cpu}, or there is none; nproc and \
             /sys/devices/system/cpu/online say which there are"
        ),
        Err(error) => Err(error).with_context(|| format!("cannot stay on CPU {cpu}")),
    }
}

/// Gives the calling thread SCHED_FIFO at `priority`, 1 to 99.
pub(super) fn take_fifo(priority: i32) -> Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: `parameters` lives over the call, which reads it and keeps nothing; 0 is the calling
    // thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) };
    match Errno::result(result) {
        Ok(_) => Ok(()),
        Err(Errno::EPERM) => bail!(
            "SCHED_FIFO at priority {priority} is not permitted; run as root, raise the limit \
             (ulimit -r), or take priority 0, an ordinary thread that takes what the scheduler gives"
        ),
        Err(error) => Err(error).context("cannot take SCHED_FIFO"),
    }
}
