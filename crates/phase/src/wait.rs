//! Waiting for the common start of a phase.

use std::io;

/// Sleeps until CLOCK_MONOTONIC has this value; its value afterwards, both in nanoseconds.
///
/// The kernel may add the thread's timer slack to a sleep, 50 µs by default: here it adds none.
#[allow(unsafe_code)]
pub(crate) fn until(start_ns: i64) -> io::Result<i64> {
    let start = libc::timespec {
        tv_sec: (start_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (start_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: these requests of prctl take numbers and touch no memory.
    let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
    // SAFETY: as above.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let outcome = loop {
        // SAFETY: `start` lives until the call returns; with TIMER_ABSTIME nothing is written.
        let code = unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &raw const start,
                std::ptr::null_mut(),
            )
        };
        if code != libc::EINTR {
            break code;
        }
    };
    let at = now();
    if slack > 0 {
        // SAFETY: as above.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack) };
    }
    if outcome == 0 { at } else { Err(io::Error::from_raw_os_error(outcome)) }
}

#[allow(unsafe_code)]
fn now() -> io::Result<i64> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec to `now`.
    if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(now.tv_sec * 1_000_000_000 + now.tv_nsec)
}
