//! Functions of epoll(7).
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc)] // Each has the safety of the function that it stands for.

use std::time::{Duration, Instant};

use libc::{c_int, epoll_event, sigset_t, timespec};

use crate::descriptor::Control;
use crate::table::{self, Kind};
use crate::{fork, inside, lock, polling, real};

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let kinds = (table::kind(epoll), table::kind(fd));
    let is_ours = match kinds {
        (_, Kind::Candidate | Kind::Taken | Kind::Epoll) => !inside::is_inside() && fork::is_ours(),
        _ => false,
    };
    // SAFETY: the caller's.
    unsafe {
        if is_ours && let Some(result) = control(kinds, (epoll, fd), operation, event) {
            return result;
        }
        real::epoll_ctl(epoll, operation, fd, event)
    }
}

/// Serves epoll_ctl(2). None: the kernel does.
#[inline(never)]
unsafe fn control(
    kinds: (Kind, Kind),
    (epoll, fd): (c_int, c_int),
    operation: c_int,
    event: *mut epoll_event,
) -> Option<c_int> {
    // SAFETY: the caller has an event, or none.
    let asked = unsafe { event.as_ref() };
    let asked = asked.map(|event| Control { events: event.events, data: event.u64 });
    let asked = match operation {
        libc::EPOLL_CTL_DEL => Some(Control { events: 0, data: 0 }),
        _ => asked,
    };
    let served = lock::with(|state| {
        let unknown = (libc::EPOLLEXCLUSIVE | libc::EPOLLWAKEUP) as u32;
        match (kinds, asked) {
            ((Kind::Plain | Kind::Epoll, Kind::Candidate | Kind::Taken), Some(asked))
                if asked.events & unknown == 0 =>
            {
                let is_of_stack = kinds.1 == Kind::Taken;
                Some(state.epolls.control((epoll, fd), operation, asked, is_of_stack))
            }
            // Another instance watches it: it is the kernel's alone.
            ((_, Kind::Epoll), _) => {
                leave_to_kernel(state, fd);
                None
            }
            _ => {
                state.release(fd, "epoll_ctl()");
                None
            }
        }
    });
    Some(match served?? {
        Ok(()) => 0,
        Err(why) => {
            real::set_errno(why);
            -1
        }
    })
}

/// The kernel watches all that an instance watches from now on.
pub(super) fn leave_to_kernel(state: &mut crate::state::State, epoll: c_int) {
    for fd in state.epolls.watched(epoll) {
        state.release(fd, "its instance of epoll is polled itself");
    }
}

/// What comes next in a call.
enum Next {
    Done(c_int),
    /// The kernel serves it, with this time-out in milliseconds; then [`filter`].
    Kernel(c_int),
    /// The thread may have been cancelled.
    Look,
}

/// The arguments of a call.
#[derive(Clone, Copy)]
struct Call {
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    /// None: for ever.
    until: Option<Instant>,
    mask: *const sigset_t,
}

#[inline(never)]
unsafe fn next(call: Call) -> Next {
    let Call { epoll, events, most, until, mask } = call;
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    if !lock::with(|state| state.epolls.is_of_stack(epoll)).unwrap_or(false) {
        let milliseconds =
            |left: Duration| c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX);
        return Next::Kernel(left.map_or(-1, milliseconds));
    }
    let Ok(room @ 1..) = usize::try_from(most) else { return Next::Kernel(0) };
    let errno = real::errno();
    // SAFETY: the caller has a mask, or none.
    match polling::epoll(epoll, room, left, unsafe { mask.as_ref() }) {
        Ok(None) => Next::Look,
        Ok(Some(told)) => {
            for (place, Control { events: found, data }) in told.iter().enumerate() {
                // SAFETY: the caller has room for `most` events, and no more were told.
                unsafe { *events.add(place) = epoll_event { events: *found, u64: *data } };
            }
            real::set_errno(errno);
            Next::Done(told.len() as c_int)
        }
        Err(why) => {
            real::set_errno(why);
            Next::Done(-1)
        }
    }
}

/// Takes the bell out of what the kernel has told. None: there was nothing else.
#[inline(never)]
unsafe fn filter(call: Call, found: c_int) -> Option<c_int> {
    let Ok(count @ 1..) = usize::try_from(found) else { return Some(found) };
    // SAFETY: the kernel has just written so many events there.
    let events = unsafe { std::slice::from_raw_parts_mut(call.events, count) };
    let mut told: Vec<Control> =
        events.iter().map(|event| Control { events: event.events, data: event.u64 }).collect();
    lock::with(|state| state.epolls.without_bell(call.epoll, &mut told));
    for (to, Control { events, data }) in events.iter_mut().zip(&told) {
        *to = epoll_event { events: *events, u64: *data };
    }
    (!told.is_empty()).then_some(told.len() as c_int)
}

/// Waits as epoll_pwait(2) does. A thread that is cancelled unwinds from here, so there is nothing
/// to drop (see [`table::begin`]).
#[inline(always)]
unsafe fn serve(call: Call) -> c_int {
    loop {
        // SAFETY: the caller's.
        unsafe {
            match next(call) {
                Next::Done(result) => return result,
                Next::Kernel(time) => {
                    let Call { epoll, events, most, mask, .. } = call;
                    let found = real::epoll_pwait(epoll, events, most, time, mask);
                    if let Some(result) = filter(call, found) {
                        return result;
                    }
                }
                Next::Look => real::look_for_cancellation(),
            }
        }
    }
}

fn is_known(epoll: c_int) -> bool {
    table::kind(epoll) == Kind::Epoll && !inside::is_inside() && fork::is_ours()
}

fn after(milliseconds: c_int) -> Option<Instant> {
    let time = u64::try_from(milliseconds).ok()?;
    Instant::now().checked_add(Duration::from_millis(time))
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        if !is_known(epoll) {
            return real::epoll_wait(epoll, events, most, timeout);
        }
        let mask = std::ptr::null();
        serve(Call { epoll, events, most, until: after(timeout), mask })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        if !is_known(epoll) {
            return real::epoll_pwait(epoll, events, most, timeout, mask);
        }
        serve(Call { epoll, events, most, until: after(timeout), mask })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let is_whole =
            |time: &timespec| time.tv_sec >= 0 && (0..1_000_000_000).contains(&time.tv_nsec);
        let time = timeout.as_ref();
        if !is_known(epoll) || !time.is_none_or(is_whole) {
            return real::epoll_pwait2(epoll, events, most, timeout, mask);
        }
        let time = time.map(|time| Duration::new(time.tv_sec as u64, time.tv_nsec as u32));
        let until = time.and_then(|time| Instant::now().checked_add(time));
        serve(Call { epoll, events, most, until, mask })
    }
}
