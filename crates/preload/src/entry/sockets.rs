//! Functions that make sockets, close them, and change or tell what they are.
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc)] // Each has the safety of the function that it stands for.

use libc::{c_int, c_uint, c_void, sockaddr, socklen_t};

use crate::explain::CLOSED;
use crate::options::{self, Way};
use crate::state::State;
use crate::table::{self, Kind};
use crate::{descriptor, fork, info, inside, lock, real};
use loopscope_stack::packet::Protocol::{self, Tcp, Udp};

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the caller's.
    let fd = unsafe { real::socket(domain, kind, protocol) };
    let base = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let made_of = match (domain, base, protocol) {
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Some(Tcp),
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Some(Udp),
        _ => None,
    };
    made(fd, made_of);
    fd
}

/// A call has made a descriptor, of a socket of this protocol; None: it is of another one.
fn made(fd: c_int, protocol: Option<Protocol>) {
    if fd < 0 || inside::is_inside() {
        return;
    }
    let errno = real::errno();
    if let Some(protocol) = protocol {
        let opened = lock::with(|state| {
            let is_first = state.opened(fd, protocol);
            if is_first {
                fork::begin();
            }
            is_first
        });
        if opened == Some(true) {
            fork::register();
        }
    } else if table::kind(fd) != Kind::Plain {
        table::set(fd, Kind::Plain);
    }
    real::set_errno(errno);
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    let new = unsafe { real::accept(fd, address, length) };
    accepted(fd, new);
    new
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's.
    let new = unsafe { real::accept4(fd, address, length, flags) };
    accepted(fd, new);
    new
}

fn accepted(listener: c_int, new: c_int) {
    if new < 0 || inside::is_inside() {
        return;
    }
    let is_tcp = match table::kind(listener) {
        Kind::Listener => true,
        Kind::Foreign => false,
        // It came from the program that has executed this one.
        _ => {
            let is_tcp = descriptor::is_tcp(listener);
            table::set(listener, if is_tcp { Kind::Listener } else { Kind::Foreign });
            is_tcp
        }
    };
    made(new, is_tcp.then_some(Tcp));
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    if table::kind(fd) == Kind::Candidate && !inside::is_inside() {
        lock::with(|state| state.explain.why(fd, "it accepts connections"));
        table::set(fd, Kind::Listener);
    }
    // SAFETY: the caller's.
    unsafe { real::listen(fd, backlog) }
}

/// A descriptor is about to be closed, which cannot fail, and which nobody else has if `alone` says
/// so. False: it is not the program's.
fn closing(fd: c_int, alone: bool) -> bool {
    if inside::is_inside() || !fork::is_ours() {
        return true;
    }
    let kind = table::kind(fd);
    if kind == Kind::Plain && !lock::with(|state| state.explain.knows(fd)).unwrap_or(false) {
        return true;
    }
    if kind == Kind::Own {
        return false;
    }
    lock::with(|state| {
        state.epolls.closing(fd);
        if alone {
            state.close(fd);
        } else {
            state.release(fd, CLOSED);
        }
        state.explain.closing(fd);
    });
    table::set(fd, Kind::Plain);
    true
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if (table::kind(fd) != Kind::Plain || explains()) && !closing(fd, true) {
        real::set_errno(libc::EBADF);
        return -1;
    }
    // SAFETY: the caller's.
    unsafe { real::close(fd) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __close(fd: c_int) -> c_int {
    // SAFETY: the caller's.
    unsafe { close(fd) }
}

/// Whether lines are kept of descriptors that are the kernel's.
fn explains() -> bool {
    crate::explain::is_asked_for()
}

/// All from a descriptor to another one are about to be closed.
fn closing_all(first: c_int, last: c_int, alone: bool) {
    if inside::is_inside() || !fork::is_ours() {
        return;
    }
    let closes = |fd: &c_int| (first..=last).contains(fd);
    if table::all(Kind::Own).any(|fd| closes(&fd)) {
        fork::end_all("the program has closed the library's descriptors");
    }
    for kind in [Kind::Candidate, Kind::Taken, Kind::Listener, Kind::Foreign, Kind::Epoll] {
        table::all(kind).filter(closes).for_each(|fd| _ = closing(fd, alone));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    before_close_range(first, last, flags);
    // SAFETY: the caller's.
    unsafe { real::close_range(first, last, flags) }
}

/// close_range(2) is about to be called.
pub(crate) fn before_close_range(first: c_uint, last: c_uint, flags: c_int) {
    const CLOSE_RANGE_CLOEXEC: c_int = 4;
    if flags & CLOSE_RANGE_CLOEXEC == 0 && first <= last {
        let limit = |fd: c_uint| c_int::try_from(fd).unwrap_or(c_int::MAX);
        // With other flags other threads keep them, or the call fails.
        closing_all(limit(first), limit(last), flags == 0);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    closing_all(first.max(0), c_int::MAX, true);
    // SAFETY: the caller's.
    unsafe { real::closefrom(first) }
}

/// Does what is to be done about a call on a connection that the stack may have, and then calls the
/// kernel. `after` is for a connection that it has.
fn change(
    fd: c_int,
    way: Way,
    why: &str,
    call: impl FnOnce() -> c_int,
    after: impl FnOnce(&mut State),
) -> c_int {
    if table::kind(fd) != Kind::Taken || inside::is_inside() {
        return call();
    }
    if way == Way::GiveBack {
        lock::with(|state| state.release(fd, why));
        return call();
    }
    let result = call();
    let errno = real::errno();
    lock::with(after);
    real::set_errno(errno);
    result
}

fn control(fd: c_int, command: c_int, value: usize, call: impl FnOnce() -> c_int) -> c_int {
    if table::is_plain(fd) {
        return call();
    }
    let (way, sets_flags) = options::control(command, value);
    if way == Way::GiveBack && table::kind(fd) == Kind::Candidate && !inside::is_inside() {
        lock::with(|state| state.release(fd, "fcntl()"));
    }
    change(fd, way, "fcntl()", call, |state| {
        if sets_flags {
            state.read_flags(fd);
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, value: usize) -> c_int {
    // SAFETY: the caller's. A last argument that is not there is not used.
    control(fd, command, value, || unsafe { real::fcntl(fd, command, value) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __fcntl(fd: c_int, command: c_int, value: usize) -> c_int {
    // SAFETY: the caller's.
    control(fd, command, value, || unsafe { real::fcntl(fd, command, value) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, value: usize) -> c_int {
    // SAFETY: the caller's.
    control(fd, command, value, || unsafe { real::fcntl64(fd, command, value) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: usize, value: usize) -> c_int {
    // SAFETY: the caller's.
    let call = || unsafe { real::ioctl(fd, request, value) };
    if table::is_plain(fd) || inside::is_inside() {
        return call();
    }
    let count = |of: fn(&loopscope_stack::Connection) -> usize| {
        lock::with(|state| {
            state.turn();
            state.connection(fd).map(of)
        })
        .flatten()
    };
    let found = match request as u64 {
        libc::FIONREAD if table::is_datagrams(fd) => {
            lock::with(|state| state.first_datagram(fd)).flatten()
        }
        libc::FIONREAD => count(loopscope_stack::Connection::readable),
        libc::TIOCOUTQ => count(loopscope_stack::Connection::unacknowledged),
        libc::FIONBIO => {
            return change(fd, Way::Pass, "", call, |state| state.read_flags(fd));
        }
        libc::FIOCLEX | libc::FIONCLEX => None,
        _ => return change(fd, Way::GiveBack, "ioctl()", call, |_| {}),
    };
    match found {
        Some(found) => {
            // SAFETY: the caller has given room for an integer.
            unsafe { *(value as *mut c_int) = c_int::try_from(found).unwrap_or(c_int::MAX) };
            0
        }
        None => call(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    let call = || unsafe { real::setsockopt(fd, level, name, value, length) };
    if table::is_plain(fd) || inside::is_inside() {
        return call();
    }
    let why = || format!("setsockopt({level}, {name})");
    let is_udp = table::is_datagrams(fd);
    if table::kind(fd) == Kind::Candidate && !is_udp && options::forbids(level, name) {
        lock::with(|state| state.release(fd, &why()));
    }
    let mut way = match is_udp {
        true => options::setting_datagrams(level, name),
        false => options::setting(level, name),
    };
    // The call would have the kernel send these bytes, which the stack sends, too.
    if way == Way::Delays && table::kind(fd) == Kind::Taken && descriptor::has_unsent(fd) {
        way = Way::GiveBack;
    }
    if way == Way::GiveBack && table::kind(fd) == Kind::Taken {
        lock::with(|state| state.release(fd, &why()));
    }
    change(fd, way, "setsockopt()", call, |state| match way {
        Way::Delays => state.read_delays(fd),
        Way::Quick => state.read_quick(fd),
        Way::Timeout => state.read_timeouts(fd),
        Way::Segment => state.read_segment(fd),
        Way::Pass | Way::GiveBack => {}
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    let call = || unsafe { real::getsockopt(fd, level, name, value, length) };
    if table::kind(fd) != Kind::Taken || inside::is_inside() {
        return call();
    }
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) {
        let found = call();
        // SAFETY: the kernel has written so many bytes, if it has found nothing wrong.
        let told = (found == 0)
            .then(|| unsafe { std::slice::from_raw_parts_mut(value.cast(), *length as usize) });
        told.and_then(|told| lock::with(|state| info::complete(told, state, fd)));
        return found;
    }
    if !options::is_told(level, name) {
        lock::with(|state| state.release(fd, &format!("getsockopt({level}, {name})")));
    }
    call()
}
