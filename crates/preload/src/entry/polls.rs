//! Functions that wait for several descriptors.
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc)] // Each has the safety of the function that it stands for.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::time::Duration;

use libc::{c_int, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use super::epolls::leave_to_kernel;
use crate::table::{self, Kind};
use crate::{fork, inside, lock, polling, real};

const WORD: usize = u64::BITS as usize;

/// The descriptors of a call.
unsafe fn all<'p>(fds: *mut pollfd, count: nfds_t) -> &'p mut [pollfd] {
    if fds.is_null() {
        return &mut [];
    }
    // SAFETY: the caller has so many, for the time of the call.
    unsafe { std::slice::from_raw_parts_mut(fds, count as usize) }
}

/// Whether none of the descriptors is, or may become, the stack's.
fn are_plain(fds: &[pollfd]) -> bool {
    inside::is_inside() || fds.iter().all(|polled| is_plain(polled.fd))
}

/// Whether a descriptor is not, and may not become, the stack's. The kernel gets all back that an
/// instance of epoll watches.
fn is_plain(fd: c_int) -> bool {
    if table::kind(fd) == Kind::Epoll && !inside::is_inside() && fork::is_ours() {
        lock::with(|state| leave_to_kernel(state, fd));
    }
    table::is_plain(fd)
}

/// Waits as poll(2) does, by `call` where the kernel has all. A thread that is cancelled unwinds
/// from here, so there is nothing to drop (see [`table::begin`]).
#[inline(always)]
fn serve(
    fds: &mut [pollfd],
    time: Option<Duration>,
    mask: Option<&sigset_t>,
    call: impl Fn() -> c_int,
) -> c_int {
    loop {
        match next(fds, time, mask) {
            Next::Done(result) => return result,
            Next::Kernel(begun) => {
                let result = call();
                end(fds, begun);
                return result;
            }
            Next::Look => real::look_for_cancellation(),
        }
    }
}

/// What comes next in a call.
enum Next {
    Done(c_int),
    /// The kernel serves it, and then [`end`] gets this.
    Kernel(*mut Vec<bool>),
    /// The thread may have been cancelled.
    Look,
}

#[inline(never)]
fn next(fds: &mut [pollfd], time: Option<Duration>, mask: Option<&sigset_t>) -> Next {
    let errno = real::errno();
    if !fds.iter().any(|polled| table::kind(polled.fd) == Kind::Taken) {
        // None of them is taken over meanwhile.
        let begun = fds.iter().map(|polled| table::begin(polled.fd, false)).collect();
        return Next::Kernel(Box::into_raw(Box::new(begun)));
    }
    let (result, errno) = match polling::poll(fds, time, mask) {
        None => return Next::Look,
        Some(Ok(count)) => (count as c_int, errno),
        Some(Err(why)) => (-1, why),
    };
    real::set_errno(errno);
    Next::Done(result)
}

#[inline(never)]
fn end(fds: &[pollfd], begun: *mut Vec<bool>) {
    let errno = real::errno();
    // SAFETY: it is of `next`, which has made it of a box, and nobody has used it since.
    let begun = unsafe { Box::from_raw(begun) };
    for (polled, _) in fds.iter().zip(*begun).filter(|(_, begun)| *begun) {
        table::end(polled.fd);
    }
    real::set_errno(errno);
}

fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// None: the kernel is to say what is wrong with it.
unsafe fn seconds(time: *const timespec) -> Option<Option<Duration>> {
    // SAFETY: the caller has a time, or none.
    match unsafe { time.as_ref() } {
        None => Some(None),
        Some(time) => {
            let nanoseconds = u32::try_from(time.tv_nsec).ok().filter(|ns| *ns < 1_000_000_000)?;
            Some(Some(Duration::new(time.tv_sec.try_into().ok()?, nanoseconds)))
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's.
    let (call, polled) = unsafe { (|| real::poll(fds, count, timeout), all(fds, count)) };
    if are_plain(polled) { call() } else { serve(polled, milliseconds(timeout), None, call) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's.
    unsafe { poll(fds, count, timeout) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: size_t,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        if (count as usize).saturating_mul(size_of::<pollfd>()) > room {
            return real::__poll_chk(fds, count, timeout, room);
        }
        poll(fds, count, timeout)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let call = || real::ppoll(fds, count, timeout, mask);
        let polled = all(fds, count);
        match seconds(timeout) {
            Some(time) if !are_plain(polled) => serve(polled, time, mask.as_ref(), call),
            _ => call(),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        if (count as usize).saturating_mul(size_of::<pollfd>()) > room {
            return real::__ppoll_chk(fds, count, timeout, mask, room);
        }
        ppoll(fds, count, timeout, mask)
    }
}

/// The sets of select(2): what is read, written, and exceptional. Each may be missing.
type Sets = [*mut fd_set; 3];
/// The events of poll(2) that each set asks for, and those that set it (select(2), Notes).
const ASKED: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
const TOLD: [i16; 3] =
    [libc::POLLIN | libc::POLLHUP | libc::POLLERR, libc::POLLOUT | libc::POLLERR, libc::POLLPRI];

/// Whether a descriptor is in a set, which may be larger than an `fd_set`.
unsafe fn is_in(set: *mut fd_set, fd: usize) -> bool {
    // SAFETY: the caller's sets have a bit for each descriptor of the call.
    !set.is_null() && unsafe { *set.cast::<u64>().add(fd / WORD) } & (1 << (fd % WORD)) != 0
}

#[inline(never)]
/// The descriptors of the sets. None: the kernel has all.
unsafe fn of_sets(count: c_int, sets: Sets) -> Option<Vec<pollfd>> {
    let count = usize::try_from(count).ok()?;
    let mut polled = vec![];
    let mut has_any = false;
    for fd in 0..count {
        let mut events = 0;
        for (set, asked) in sets.into_iter().zip(ASKED) {
            // SAFETY: the caller's.
            if unsafe { is_in(set, fd) } {
                events |= asked;
            }
        }
        if events != 0 {
            has_any |= !is_plain(fd as c_int);
            polled.push(pollfd { fd: fd as c_int, events, revents: 0 });
        }
    }
    (has_any && !inside::is_inside()).then_some(polled)
}

/// Waits as select(2) does.
#[inline(always)]
unsafe fn select_by(
    count: c_int,
    sets: Sets,
    time: Option<Duration>,
    mask: Option<&sigset_t>,
    call: impl Fn() -> c_int,
) -> Selected {
    // SAFETY: the caller's.
    let Some(polled) = (unsafe { of_sets(count, sets) }) else { return (call(), true) };
    // It is dropped in `tell`, not where a thread may be cancelled.
    let mut polled = ManuallyDrop::new(polled);
    let by_kernel = Cell::new(false);
    let found = serve(&mut polled, time, mask, || {
        by_kernel.set(true);
        call()
    });
    // SAFETY: the caller's, and it is not used any more.
    unsafe { tell(count, sets, ManuallyDrop::take(&mut polled), found, by_kernel.get()) }
}

/// What select(2) returns, and whether that is the kernel's.
type Selected = (c_int, bool);

/// Writes what was found to the sets, where the kernel has not done so.
#[inline(never)]
unsafe fn tell(
    count: c_int,
    sets: Sets,
    polled: Vec<pollfd>,
    found: c_int,
    by_kernel: bool,
) -> Selected {
    if by_kernel || found < 0 {
        return (found, by_kernel);
    }
    if polled.iter().any(|polled| polled.revents & libc::POLLNVAL != 0) {
        real::set_errno(libc::EBADF);
        return (-1, false);
    }
    let mut bits = 0;
    for (place, set) in sets.into_iter().enumerate().filter(|(_, set)| !set.is_null()) {
        for word in 0..(count as usize).div_ceil(WORD) {
            // SAFETY: as in `is_in`.
            unsafe { *set.cast::<u64>().add(word) = 0 };
        }
        for polled in &polled {
            if polled.events & ASKED[place] != 0 && polled.revents & TOLD[place] != 0 {
                let fd = polled.fd as usize;
                // SAFETY: as in `is_in`.
                unsafe { *set.cast::<u64>().add(fd / WORD) |= 1 << (fd % WORD) };
                bits += 1;
            }
        }
    }
    (bits, false)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let call = || real::select(count, read, write, except, timeout);
        let begin = std::time::Instant::now();
        let time = match timeout.as_ref() {
            None => None,
            Some(time) => match (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec)) {
                (Ok(s), Ok(us)) => Some(Duration::from_secs(s) + Duration::from_micros(us)),
                _ => return call(),
            },
        };
        let (found, by_kernel) = select_by(count, [read, write, except], time, None, call);
        // The kernel tells the time that is left.
        if let (false, Some(time), Some(told)) = (by_kernel, time, timeout.as_mut()) {
            let left = time.saturating_sub(begin.elapsed());
            told.tv_sec = left.as_secs() as _;
            told.tv_usec = left.subsec_micros().into();
        }
        found
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { select(count, read, write, except, timeout) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let call = || real::pselect(count, read, write, except, timeout, mask);
        match seconds(timeout) {
            Some(time) => select_by(count, [read, write, except], time, mask.as_ref(), call).0,
            None => call(),
        }
    }
}
