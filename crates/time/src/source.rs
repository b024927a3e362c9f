//! Reading the counter. Only the edges (probe sockets, collectors, workloads) call this; every
//! core takes its instants as arguments.

use crate::Counter;

/// Reads this machine's raw cycle counter: `rdtsc` on x86-64, `cntvct_el0` on Arm. Not a
/// serialising instruction: neighbouring instructions may be reordered around it by some tens of
/// ticks, as in the instrumentation itself.
#[allow(unsafe_code)]
pub fn read_counter() -> Counter {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: rdtsc exists on every x86-64 processor and touches no memory; a system that traps it
    // (PR_SET_TSC) ends the process instead of misbehaving.
    let ticks = unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    let ticks = {
        let ticks: u64;
        // SAFETY: Linux always enables user access to cntvct_el0; the instruction touches no memory.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    };
    Counter(ticks)
}
