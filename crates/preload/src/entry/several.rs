//! Functions that transfer several messages in one call.
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc)] // Each has the safety of the function that it stands for.

use std::time::{Duration, Instant};

use libc::{c_int, c_uint, mmsghdr, timespec};

use super::calls::size_of_all;
use super::transfers::{recvmsg, sendmsg};
use crate::{inside, lock, real, table};

/// The kernel takes no more at once (UIO_MAXIOV).
const MOST: c_uint = 1024;

/// The messages of a call. None: the kernel is to serve it.
unsafe fn all<'m>(fd: c_int, messages: *mut mmsghdr, count: c_uint) -> Option<&'m mut [mmsghdr]> {
    if table::is_plain(fd) || inside::is_inside() || messages.is_null() || count == 0 {
        return None;
    }
    // SAFETY: the caller has so many, for the time of the call.
    Some(unsafe { std::slice::from_raw_parts_mut(messages, count.min(MOST) as usize) })
}

/// What the call returns after so many messages. One that has transferred some does not fail.
fn result(done: c_int, errno: c_int) -> c_int {
    if done == 0 {
        return -1;
    }
    real::set_errno(errno);
    done
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's: the messages live, with their pieces.
    unsafe {
        let Some(messages) = all(fd, messages, count) else {
            return real::sendmmsg(fd, messages, count, flags);
        };
        let (mut done, errno) = (0, real::errno());
        for message in messages {
            let sent = sendmsg(fd, &raw const message.msg_hdr, flags);
            if sent < 0 {
                break;
            }
            message.msg_len = sent as c_uint;
            done += 1;
            let parts = (message.msg_hdr.msg_iov.cast_const(), message.msg_hdr.msg_iovlen);
            if (sent as usize) < size_of_all(parts) {
                break;
            }
        }
        result(done, errno)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    mut flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: the caller's: the messages live, with their pieces, and so does the time.
    unsafe {
        let time = timeout.as_mut().map(|time| (duration(time), time));
        let (Some(messages), None | Some((Some(_), _))) = (all(fd, messages, count), &time) else {
            return real::recvmmsg(fd, messages, count, flags, timeout);
        };
        let (mut done, errno, begin) = (0, real::errno(), Instant::now());
        let mut time = time.and_then(|(most, left)| Some((most?, left)));
        for message in messages {
            let came = recvmsg(fd, &raw mut message.msg_hdr, flags & !libc::MSG_WAITFORONE);
            if came < 0 {
                let why = real::errno();
                if done > 0 && ![libc::EAGAIN, libc::EINTR].contains(&why) {
                    // The next call tells it, as the kernel does.
                    lock::with(|state| state.owe(fd, why));
                }
                break;
            }
            message.msg_len = came as c_uint;
            done += 1;
            if flags & libc::MSG_WAITFORONE != 0 {
                flags |= libc::MSG_DONTWAIT;
            }
            // The kernel looks at the time only after a message, too (recvmmsg(2), Bugs).
            if let Some((most, left)) = &mut time {
                let rest = most.saturating_sub(begin.elapsed());
                left.tv_sec = rest.as_secs() as _;
                left.tv_nsec = rest.subsec_nanos().into();
                if rest.is_zero() {
                    break;
                }
            }
        }
        result(done, errno)
    }
}

/// None: the kernel is to say what is wrong with it.
fn duration(time: &timespec) -> Option<Duration> {
    let nanoseconds = u32::try_from(time.tv_nsec).ok().filter(|ns| *ns < 1_000_000_000)?;
    Some(Duration::new(time.tv_sec.try_into().ok()?, nanoseconds))
}
