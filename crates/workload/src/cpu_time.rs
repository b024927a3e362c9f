//! CPU time of processes and threads.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// User and system time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct CpuTime {
    pub(crate) user_s: f64,
    pub(crate) system_s: f64,
}

impl CpuTime {
    fn of(who: UsageWho) -> Result<CpuTime> {
        let usage = getrusage(who).context("cannot read the CPU time")?;
        Ok(CpuTime { user_s: seconds(usage.user_time()), system_s: seconds(usage.system_time()) })
    }

    /// Used so far by this process.
    pub(crate) fn of_process() -> Result<CpuTime> {
        CpuTime::of(UsageWho::RUSAGE_SELF)
    }

    /// Used so far by this process's children that have ended and been waited for.
    pub(crate) fn of_children() -> Result<CpuTime> {
        CpuTime::of(UsageWho::RUSAGE_CHILDREN)
    }

    pub(crate) fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime { user_s: self.user_s - earlier.user_s, system_s: self.system_s - earlier.system_s }
    }

    pub(crate) fn total_s(self) -> f64 {
        self.user_s + self.system_s
    }
}

/// CPU time of the calling thread.
pub(crate) fn of_thread() -> Duration {
    // Linux has this clock always; nothing else can fail.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn seconds(time: TimeVal) -> f64 {
    time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
}
