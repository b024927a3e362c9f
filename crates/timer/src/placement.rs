//! Where and with what right the calling thread runs.

#![allow(unsafe_code)] // The scheduler's call, which no safe crate of ours wraps.

use nix::errno::Errno;
use nix::libc;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Keeps the calling thread, and the processes that it forks, on CPU `cpu`.
pub fn pin(cpu: usize) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set)
}

/// Gives the calling thread SCHED_FIFO at `priority` (1 to 99). It must then sleep now and then: of
/// a thread that never does the kernel takes the CPU for 50 ms in each second.
pub fn real_time(priority: i32) -> Result<(), Errno> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads the structure during the call and keeps nothing of it; 0 is the
    // calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) };
    Errno::result(result).map(drop)
}
