//! Functions that set handlers of signals.
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc)] // Each has the safety of the function that it stands for.

use libc::{c_int, sighandler_t};

use crate::signals::{set, set_simple};
use crate::{lock, real};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { set(signal, new, old) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { set(signal, new, old) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    set_simple(signal, handler, libc::SA_RESTART)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    set_simple(signal, handler, libc::SA_RESTART)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssignal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    set_simple(signal, handler, libc::SA_RESTART)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    set_simple(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    set_simple(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    // SAFETY: a structure of zeros is valid, and it lives until both have returned.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if set(signal, std::ptr::null(), &raw mut action) != 0 {
            return -1;
        }
        action.sa_flags &= !libc::SA_RESTART;
        if interrupts == 0 {
            action.sa_flags |= libc::SA_RESTART;
        }
        set(signal, &raw const action, std::ptr::null_mut())
    }
}

/// A thread that sleeps here looks whether it is the one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cancel(thread: libc::pthread_t) -> c_int {
    // SAFETY: the caller's.
    let result = unsafe { real::pthread_cancel(thread) };
    real::cancel();
    lock::with(|state| state.sleepers.wake_all());
    result
}
