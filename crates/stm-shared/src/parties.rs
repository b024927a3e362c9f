//! The processes that share a channel, and whether they are there.
//!
//! An entry has the number of a process, when it was started, so that another process of the same
//! number is not taken for it, and how often the entry was used before.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

const START_BITS: u32 = 32;
/// The kernel has no process numbers of more bits (`PID_MAX_LIMIT`).
const PID_BITS: u32 = 22;
const PID: u64 = (1 << PID_BITS) - 1;
const PLACE_BITS: u32 = 16;
/// Time between two looks for processes that were killed while they had items or slots.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Most entries that there may be.
pub(crate) const MOST: u32 = 1 << 12;

/// A process and when it was started, in the kernel's ticks since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pid: u32,
    start: u32,
}

impl Process {
    /// The calling process.
    pub(crate) fn own() -> io::Result<Process> {
        let pid = std::process::id();
        let start = started(pid)?.ok_or_else(|| io::Error::other("/proc does not have us"))?;
        Ok(Process { pid, start })
    }

    /// The process of an entry, if that is in use.
    fn of(entry: u64) -> Option<Process> {
        let pid = (entry >> START_BITS & PID) as u32;
        (pid != 0).then_some(Process { pid, start: entry as u32 })
    }

    /// The process's number.
    pub(crate) fn pid(self) -> u32 {
        self.pid
    }

    /// Whether it has ended, as far as can be told.
    pub(crate) fn is_gone(self) -> bool {
        let Some(pid) = Pid::from_raw(self.pid.cast_signed()) else { return true };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(error) => return error == rustix::io::Errno::SRCH,
        };
        let mut fds = [PollFd::new(std::os::fd::AsFd::as_fd(&process), PollFlags::POLLIN)];
        let has_ended = poll(&mut fds, PollTimeout::ZERO) == Ok(1);
        has_ended || started(self.pid).is_ok_and(|start| start != Some(self.start))
    }
}

/// Waits until a process has ended.
pub(crate) fn wait(pid: i32) {
    let process = Pid::from_raw(pid);
    // Where there is none, it has ended.
    if let Some(Ok(process)) = process.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        let mut fds = [PollFd::new(std::os::fd::AsFd::as_fd(&process), PollFlags::POLLIN)];
        while poll(&mut fds, PollTimeout::NONE) == Err(Errno::EINTR) {}
    }
}

/// When a process was started (`starttime` of proc_pid_stat(5)); None if there is none.
fn started(pid: u32) -> io::Result<Option<u32>> {
    let text = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // It ended while it was read.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(error),
    };
    // The name, in parentheses, may have any characters.
    let rest = text.rsplit_once(')').map_or("", |parts| parts.1);
    let start = rest.split_whitespace().nth(19).and_then(|field| field.parse::<u64>().ok());
    let start = start.ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat: {text:?}")))?;
    Ok(Some(start as u32))
}

/// Enters a process where an entry is free or its process has ended. Returns the number by which the
/// process owns the lock and connections from now on; None if no entry can be had.
pub(crate) fn enter(entries: &[AtomicU64], process: Process) -> Option<u32> {
    let free = |entry| Process::of(entry).is_none();
    let ended = |entry| Process::of(entry).is_some_and(Process::is_gone);
    take(entries, process, free).or_else(|| take(entries, process, ended))
}

fn take(entries: &[AtomicU64], process: Process, may: impl Fn(u64) -> bool) -> Option<u32> {
    for (place, entry) in entries.iter().enumerate() {
        let seen = entry.load(Ordering::Relaxed);
        if may(seen) {
            let uses = (seen >> (START_BITS + PID_BITS)).wrapping_add(1);
            let new = uses << (START_BITS + PID_BITS)
                | u64::from(process.pid) << START_BITS
                | u64::from(process.start);
            // Nothing else tells of the entry, so nothing has to be ordered.
            if entry.compare_exchange(seen, new, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Some(owner(place, new));
            }
        }
    }
    None
}

/// Frees the entry of an owner that has no connections any more.
pub(crate) fn leave(entries: &[AtomicU64], of: u32) {
    let Some(entry) = entries.get(place(of)) else { return };
    let seen = entry.load(Ordering::Relaxed);
    if owner(place(of), seen) == of {
        let free = seen & !(PID << START_BITS | u64::from(u32::MAX));
        // Where it fails, another process has taken the entry.
        _ = entry.compare_exchange(seen, free, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The owners that use the channel, and whether the process of each has ended; `own` has not.
pub(crate) fn ended(entries: &[AtomicU64], own: u32) -> BTreeMap<u32, bool> {
    let owners = entries.iter().enumerate().filter_map(|(place, entry)| {
        let seen = entry.load(Ordering::Relaxed);
        let (process, of) = (Process::of(seen)?, owner(place, seen));
        Some((of, of != own && process.is_gone()))
    });
    owners.collect()
}

/// Whether it is time to look for processes that have ended; then the caller has to.
///
/// Asking the kernel costs several system calls for each process, so one of those that wait does it for
/// all of them. If it is killed meanwhile, another one looks the next time. `looked`: when one did last;
/// `now_ns`: CLOCK_MONOTONIC.
pub(crate) fn may_look(looked: &AtomicU64, now_ns: i64) -> bool {
    let (last, now) = (looked.load(Ordering::Relaxed), now_ns.cast_unsigned());
    // The word tells of nothing else, so nothing has to be ordered.
    since(last, now) >= LOOK_EVERY
        && looked.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// How long it is until somebody has to look again, at least a millisecond.
pub(crate) fn next_look(looked: &AtomicU64, now_ns: i64) -> Duration {
    let passed = since(looked.load(Ordering::Relaxed), now_ns.cast_unsigned());
    LOOK_EVERY.saturating_sub(passed).max(Duration::from_millis(1))
}

/// Time between two instants, ns; long where the first one is yet to come, which is not true.
fn since(last: u64, now: u64) -> Duration {
    Duration::from_nanos(now.wrapping_sub(last))
}

/// The processes that there are.
pub(crate) fn all(entries: &[AtomicU64]) -> impl Iterator<Item = Process> {
    entries.iter().filter_map(|entry| Process::of(entry.load(Ordering::Relaxed)))
}

/// Whether the process of an owner has ended, or does not use the channel any more.
pub(crate) fn is_gone(entries: &[AtomicU64], of: u32) -> bool {
    process(entries, of).is_none_or(Process::is_gone)
}

/// The process of an owner that uses the channel.
pub(crate) fn process(entries: &[AtomicU64], of: u32) -> Option<Process> {
    let seen = entries.get(place(of))?.load(Ordering::Relaxed);
    Process::of(seen).filter(|_| owner(place(of), seen) == of)
}

/// The place of an owner's entry.
fn place(owner: u32) -> usize {
    ((owner & ((1 << PLACE_BITS) - 1)) as usize).wrapping_sub(1)
}

fn owner(place: usize, entry: u64) -> u32 {
    let uses = (entry >> (START_BITS + PID_BITS)) as u32;
    uses << PLACE_BITS | (place as u32 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: i64 = LOOK_EVERY.as_nanos() as i64;

    #[test]
    fn one_of_those_that_wait_looks_for_all_of_them_each_time() {
        let looked = AtomicU64::new(1000);
        assert!(!may_look(&looked, 1000 + EVERY - 1));
        assert_eq!(next_look(&looked, 1000 + EVERY / 2), LOOK_EVERY / 2);
        let due = 1000 + EVERY;
        let turns = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| may_look(&looked, due))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|turn| *turn).count()
        });
        assert_eq!(turns, 1);
        assert_eq!(next_look(&looked, due), LOOK_EVERY);
        assert!(may_look(&looked, due + EVERY));
    }

    #[test]
    fn an_instant_that_is_yet_to_come_keeps_nobody_from_looking() {
        let looked = AtomicU64::new(i64::MAX as u64);
        assert_eq!(next_look(&looked, 1000), Duration::from_millis(1));
        assert!(may_look(&looked, 1000) && !may_look(&looked, 1001));
    }
}
