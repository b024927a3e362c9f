//! sendfile(2): the bytes of a file are read here, and sent by the stack.
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc)] // Each has the safety of the function that it stands for.

use libc::{c_int, iovec, off_t, size_t, ssize_t};
use rustix::fs::SeekFrom;

use super::calls::{Next, by_kernel, send_parts};
use crate::descriptor::borrow;
use crate::options::How;
use crate::{first, real, table};

/// Bytes that are read at once.
const PIECE: usize = 1 << 16;

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendfile(
    to: c_int,
    from: c_int,
    place: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the caller's.
    let call = || unsafe { real::sendfile(to, from, place, count) };
    if !table::is_plain(from) {
        // The kernel says that it is no file.
        first::give_back(from, c"sendfile");
    }
    if table::is_plain(to) || count == 0 {
        return call();
    }
    let errno = real::errno();
    let mut done = 0;
    loop {
        // SAFETY: the caller's.
        match unsafe { send_piece(to, from, place, count - done as usize) } {
            Next::Done(sent @ 1..) => done += sent,
            // What was sent counts; a later call says what is wrong.
            Next::Done(result) if done == 0 => return result,
            Next::Kernel(counts) => {
                let result = if done == 0 { call() } else { done };
                if counts {
                    table::end(to);
                }
                return result;
            }
            Next::Look if done == 0 => {
                real::look_for_cancellation();
                continue;
            }
            Next::Done(_) | Next::Look => break,
        }
        if done as usize == count {
            break;
        }
    }
    real::set_errno(errno);
    done
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendfile64(
    to: c_int,
    from: c_int,
    place: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the caller's. Places in files have 64 bits.
    unsafe { sendfile(to, from, place, count) }
}

/// Sends up to so many bytes of a file from its place on, which goes on by as many as were sent. A
/// thread that is cancelled does not unwind through here.
#[inline(never)]
unsafe fn send_piece(to: c_int, from: c_int, place: *mut off_t, most: usize) -> Next {
    const NO_FILE: &str = "sendfile() of what cannot be read at a place";
    // SAFETY: the caller's: it points to a place, or there is none.
    let asked = unsafe { place.as_mut() };
    let at = match &asked {
        Some(place) => u64::try_from(**place).ok(),
        None => rustix::fs::seek(borrow(from), SeekFrom::Current(0)).ok(),
    };
    let mut bytes = vec![0; most.min(PIECE)];
    let Some((at, read)) =
        at.and_then(|at| Some((at, rustix::io::pread(borrow(from), &mut bytes[..], at).ok()?)))
    else {
        return by_kernel(to, NO_FILE);
    };
    if read == 0 {
        return Next::Done(0);
    }
    let part = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: read };
    // SAFETY: the piece lives, and has so many bytes.
    let next = unsafe { send_parts(to, (&raw const part, 1), How::default()) };
    if let Next::Done(sent @ 1..) = next {
        let after = at + sent as u64;
        match asked {
            Some(place) => *place = after as off_t,
            // That it fails is told by the next call.
            None => _ = rustix::fs::seek(borrow(from), SeekFrom::Start(after)),
        }
    }
    next
}
