//! CLOCK_REALTIME, in which the kernel stamps received packets, against CLOCK_MONOTONIC.

use anyhow::Result;
use loopscope_timer::now;

use crate::deadline::realtime;

/// CLOCK_REALTIME less CLOCK_MONOTONIC, in nanoseconds: constant but for who sets the clock. Of
/// some readings the one that took the least time, to some 20 ns.
pub(super) fn offset() -> Result<i64> {
    let mut best = (i64::MAX, 0);
    for _ in 0..8 {
        let before = now();
        let real = realtime()?;
        let took = now().ns_since(before);
        best = best.min((took, real - before.0.cast_signed() - took / 2));
    }
    Ok(best.1)
}
