//! Finds out whether the kernel or the stack serves a call that transfers data.
#![allow(unsafe_code)]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

use libc::{c_int, iovec, msghdr, ssize_t};

use crate::datagrams::{self, Told};
use crate::options::How;
use crate::table::{self, Kind};
use crate::transfer::{self, Outcome};
use crate::{fork, inside, lock, real, watch};

/// Pieces that need no memory.
const FEW: usize = 8;
/// More pieces the kernel refuses (UIO_MAXIOV).
const MOST: usize = 1024;

/// What comes next in a call that transfers data.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// It is done.
    Done(ssize_t),
    /// The kernel serves it. True: [`table::end`] comes after it.
    Kernel(bool),
    /// The thread may have been cancelled.
    Look,
}

/// Calls `next` until it is done, and `call`, the kernel's function, when it says so. A thread that
/// is cancelled unwinds from here, so there is nothing to drop (see [`table::begin`]), and what
/// `next` calls is not inlined.
#[inline(always)]
pub(super) fn until_done(
    fd: c_int,
    mut next: impl FnMut() -> Next,
    call: impl Fn() -> ssize_t,
) -> ssize_t {
    loop {
        match next() {
            Next::Done(result) => return result,
            Next::Kernel(counts) => {
                let result = call();
                if counts {
                    table::end(fd);
                }
                return result;
            }
            Next::Look => real::look_for_cancellation(),
        }
    }
}

/// Says who serves a call that transfers data: None, the stack. A connection is taken over here.
fn way(fd: c_int) -> Option<Next> {
    loop {
        match table::kind(fd) {
            Kind::Taken if !inside::is_inside() => return None,
            Kind::Candidate if !inside::is_inside() => {
                if table::is_due(fd) && take(fd) {
                    continue;
                }
                if table::begin(fd, true) {
                    return Some(Next::Kernel(true));
                }
            }
            _ => return Some(Next::Kernel(false)),
        }
    }
}

/// Tries to take a connection over; whether its kind may have changed.
fn take(fd: c_int) -> bool {
    if !fork::is_ours() {
        // The process was made without a word of the C library.
        return table::set(fd, Kind::Plain);
    }
    let take = |state: &mut crate::state::State| {
        let claimed = table::claim(fd);
        if claimed {
            state.take(fd, watch::start);
        }
        claimed
    };
    lock::with(take).unwrap_or(false)
}

/// Has the kernel serve a call that the stack cannot.
#[inline(never)]
pub(super) fn by_kernel(fd: c_int, why: &str) -> Next {
    if table::kind(fd) == Kind::Taken && !inside::is_inside() {
        lock::with(|state| state.release(fd, why));
    }
    Next::Kernel(table::begin(fd, true))
}

/// Pieces of memory, and how many.
pub(super) type Parts = (*const iovec, usize);

/// Pieces of memory without those of no bytes.
struct Pieces {
    few: [MaybeUninit<iovec>; FEW],
    many: Vec<iovec>,
    count: usize,
}

impl Pieces {
    /// None: the kernel is to say what is wrong with them.
    unsafe fn of(parts: *const iovec, count: usize) -> Option<Pieces> {
        let mut pieces =
            Pieces { few: [const { MaybeUninit::uninit() }; FEW], many: vec![], count: 0 };
        if count > MOST || parts.is_null() {
            return None;
        }
        // SAFETY: the caller has so many, as the kernel would read them.
        let parts = unsafe { std::slice::from_raw_parts(parts, count) };
        for part in parts.iter().filter(|part| part.iov_len > 0) {
            if part.iov_base.is_null() || part.iov_len > isize::MAX as usize {
                return None;
            }
            if count <= FEW {
                pieces.few[pieces.count].write(*part);
            } else {
                pieces.many.push(*part);
            }
            pieces.count += 1;
        }
        Some(pieces)
    }

    fn slice(&mut self) -> &mut [iovec] {
        if !self.many.is_empty() {
            return &mut self.many;
        }
        // SAFETY: the first `count` were written by `of`.
        unsafe { std::slice::from_raw_parts_mut(self.few.as_mut_ptr().cast(), self.count) }
    }
}

/// Bytes of all pieces. 0: the kernel is to say what is wrong with them, too.
///
/// # Safety
/// `parts` are `count` pieces.
pub(super) unsafe fn size_of_all((parts, count): Parts) -> usize {
    if count > MOST || parts.is_null() {
        return 0;
    }
    // SAFETY: the caller's.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    parts.iter().fold(0, |sum, part| sum.saturating_add(part.iov_len))
}

/// Receives by the stack, if it has the connection. `told` is what it tells of a datagram.
///
/// # Safety
/// `parts` are `count` pieces of memory that can be written.
#[inline(never)]
pub(super) unsafe fn receive_parts(fd: c_int, parts: Parts, how: How, told: &mut Told) -> Next {
    let by_stack = |pieces: &mut [iovec]| {
        // SAFETY: an `IoSliceMut` is an `iovec` (its documentation says so), and the memory of each
        // is the program's for this call.
        let pieces = unsafe { &mut *(std::ptr::from_mut(pieces) as *mut [IoSliceMut<'_>]) };
        match table::is_datagrams(fd) {
            true => datagrams::receive(fd, pieces, how, told),
            false => transfer::receive(fd, pieces, how),
        }
    };
    let by_kernel = |message| {
        let flags = if how.all { libc::MSG_WAITALL } else { libc::MSG_DONTWAIT };
        // SAFETY: the message lives, with its pieces, which are the program's.
        unsafe { real::recvmsg(fd, message, flags) }
    };
    // SAFETY: the caller's.
    unsafe { by_stack_if_taken(fd, parts, by_stack, by_kernel) }
}

/// Sends by the stack, if it has the connection.
///
/// # Safety
/// `parts` are `count` pieces of memory that can be read.
#[inline(never)]
pub(super) unsafe fn send_parts(fd: c_int, parts: Parts, how: How) -> Next {
    let by_stack = |pieces: &mut [iovec]| {
        // SAFETY: as in `receive_parts`.
        let pieces = unsafe { &mut *(std::ptr::from_mut(pieces) as *mut [IoSlice<'_>]) };
        match table::is_datagrams(fd) {
            true => datagrams::send(fd, pieces, how),
            false => transfer::send(fd, pieces, how),
        }
    };
    let by_kernel = |message: *mut msghdr| {
        // What was written counts; a later call says what is wrong.
        let at_once = if how.at_once { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: as in `receive_parts`.
        unsafe { real::sendmsg(fd, message, libc::MSG_NOSIGNAL | at_once) }
    };
    // SAFETY: the caller's.
    unsafe { by_stack_if_taken(fd, parts, by_stack, by_kernel) }
}

/// Transfers pieces `by_stack`, and has `to_kernel` transfer what is left where the connection goes
/// back meanwhile.
unsafe fn by_stack_if_taken(
    fd: c_int,
    (parts, count): Parts,
    mut by_stack: impl FnMut(&mut [iovec]) -> Outcome,
    to_kernel: impl FnOnce(*mut msghdr) -> ssize_t,
) -> Next {
    loop {
        if let Some(next) = way(fd) {
            return next;
        }
        let errno = real::errno();
        // SAFETY: the caller has so many pieces.
        let Some(mut pieces) = (unsafe { Pieces::of(parts, count) }) else {
            return by_kernel(fd, "pieces of memory that cannot be");
        };
        match finish(by_stack(pieces.slice()), errno) {
            Ok(next) => return next,
            Err(0) => {}
            Err(done) => {
                // SAFETY: as above.
                let more = unsafe { rest(parts, count, done, to_kernel) };
                return Next::Done(done as ssize_t + more.max(0));
            }
        }
    }
}

/// The result of a call, or the bytes after which the kernel goes on.
fn finish(outcome: Outcome, errno: c_int) -> Result<Next, usize> {
    match outcome {
        Outcome::Done(count) => {
            real::set_errno(errno);
            Ok(Next::Done(count as ssize_t))
        }
        Outcome::Fails(why) => {
            real::set_errno(why);
            Ok(Next::Done(-1))
        }
        Outcome::Look => Ok(Next::Look),
        Outcome::Once => {
            real::set_errno(errno);
            Ok(Next::Kernel(false))
        }
        Outcome::Kernel(done) => Err(done),
    }
}

/// Goes on behind the first bytes of the pieces.
unsafe fn rest(
    parts: *const iovec,
    count: usize,
    mut done: usize,
    call: impl FnOnce(*mut msghdr) -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller has so many pieces. A message of zeros is one with nothing in it; its
    // pieces live until the call has returned.
    unsafe {
        let mut left = vec![];
        for part in std::slice::from_raw_parts(parts, count) {
            let skipped = done.min(part.iov_len);
            done -= skipped;
            let iov_base = part.iov_base.cast::<u8>().add(skipped).cast();
            left.push(iovec { iov_base, iov_len: part.iov_len - skipped });
        }
        let mut message: msghdr = std::mem::zeroed();
        message.msg_iov = left.as_mut_ptr();
        message.msg_iovlen = left.len() as _;
        call(&raw mut message)
    }
}
