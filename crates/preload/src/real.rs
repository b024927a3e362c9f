//! The functions of the C library that this one stands before.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use libc::{
    epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pollfd, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec, timeval,
};

/// A function that is looked up at its first use.
pub(crate) struct Found(AtomicPtr<c_void>);

impl Found {
    pub(crate) const fn new() -> Found {
        Found(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub(crate) fn get(&self, name: &CStr) -> *mut c_void {
        // Each store is of the same value, which points to what is there since the program was
        // loaded.
        let known = self.0.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        let found = if found.is_null() { missing as *mut c_void } else { found };
        self.0.store(found, Ordering::Relaxed);
        found
    }
}

/// Stands for a function that this C library does not have.
extern "C" fn missing() -> c_long {
    set_errno(libc::ENOSYS);
    -1
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: it points to the errno of this thread.
    unsafe { *libc::__errno_location() = errno };
}

pub(crate) fn errno() -> c_int {
    // SAFETY: it points to the errno of this thread.
    unsafe { *libc::__errno_location() }
}

/// How often a thread was cancelled.
static CANCELLED: AtomicU32 = AtomicU32::new(0);

/// How often a thread of this process was cancelled.
pub(crate) fn cancelled() -> u32 {
    // Pairs with `cancel`.
    CANCELLED.load(Ordering::Acquire)
}

/// A thread was cancelled. Those that sleep are woken after that.
pub(crate) fn cancel() {
    // What `look_for_cancellation` finds was done before.
    CANCELLED.fetch_add(1, Ordering::Release);
}

/// Ends this thread if it was cancelled. The frames from which it unwinds must have nothing to
/// drop.
#[inline(always)]
pub(crate) fn look_for_cancellation() {
    unsafe extern "C-unwind" {
        fn pthread_testcancel();
    }
    // SAFETY: it is a point of cancellation, as the program's call is.
    unsafe { pthread_testcancel() };
}

macro_rules! real {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {$(
        pub(crate) unsafe fn $name($($arg: $type),*) -> $result {
            static FOUND: Found = Found::new();
            const NAME: &CStr = match CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            };
            let found = FOUND.get(NAME);
            // SAFETY: the C library declares the function of this name so.
            unsafe {
                let function: unsafe extern "C-unwind" fn($($type),*) -> $result =
                    std::mem::transmute(found);
                function($($arg),*)
            }
        }
    )*};
}

real! {
    read(fd: c_int, to: *mut c_void, size: size_t) -> ssize_t;
    write(fd: c_int, from: *const c_void, size: size_t) -> ssize_t;
    readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    recv(fd: c_int, to: *mut c_void, size: size_t, flags: c_int) -> ssize_t;
    send(fd: c_int, from: *const c_void, size: size_t, flags: c_int) -> ssize_t;
    recvfrom(fd: c_int, to: *mut c_void, size: size_t, flags: c_int, address: *mut sockaddr,
        length: *mut socklen_t) -> ssize_t;
    sendto(fd: c_int, from: *const c_void, size: size_t, flags: c_int, address: *const sockaddr,
        length: socklen_t) -> ssize_t;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int,
        timeout: *mut timespec) -> c_int;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    __read_chk(fd: c_int, to: *mut c_void, size: size_t, room: size_t) -> ssize_t;
    __recv_chk(fd: c_int, to: *mut c_void, size: size_t, room: size_t, flags: c_int) -> ssize_t;
    __recvfrom_chk(fd: c_int, to: *mut c_void, size: size_t, room: size_t, flags: c_int,
        address: *mut sockaddr, length: *mut socklen_t) -> ssize_t;
    sendfile(to: c_int, from: c_int, place: *mut off_t, count: size_t) -> ssize_t;
    poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int;
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t)
        -> c_int;
    __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
        room: size_t) -> c_int;
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval) -> c_int;
    pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t) -> c_int;
    epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    epoll_wait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
    epoll_pwait(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: c_int,
        mask: *const sigset_t) -> c_int;
    epoll_pwait2(epoll: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec,
        mask: *const sigset_t) -> c_int;
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
    listen(fd: c_int, backlog: c_int) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    closefrom(first: c_int) -> ();
    fcntl(fd: c_int, command: c_int, value: usize) -> c_int;
    fcntl64(fd: c_int, command: c_int, value: usize) -> c_int;
    ioctl(fd: c_int, request: usize, value: usize) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t)
        -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t)
        -> c_int;
    sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    syscall(number: c_long, first: usize, second: usize, third: usize, fourth: usize,
        fifth: usize) -> c_long;
    pthread_cancel(thread: libc::pthread_t) -> c_int;
}
