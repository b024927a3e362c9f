//! The clock that all processes of a machine share.

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC, ns.
pub(crate) fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
