//! What the kernel tells of a descriptor that is the program's.
#![allow(unsafe_code)]

use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use libc::{c_int, pollfd, sigset_t, socklen_t, timespec, timeval};
use loopscope_stack::{Config, KeepAlive};

use crate::asked::Asked;
use crate::{options, real};

/// A descriptor for the time of a call. It may have been closed, which the kernel then says.
pub(crate) fn borrow<'fd>(fd: c_int) -> BorrowedFd<'fd> {
    // SAFETY: it is not -1, and those who get it only make system calls with it.
    unsafe { BorrowedFd::borrow_raw(fd.max(0)) }
}

/// An option that is a plain structure of integers.
fn option<T: Copy>(fd: c_int, level: c_int, name: c_int, zero: T) -> Option<T> {
    let (mut value, mut length) = (zero, size_of::<T>() as socklen_t);
    // SAFETY: the kernel writes at most `length` bytes to `value`, whose fields are integers.
    let got =
        unsafe { real::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut length) };
    (got == 0).then_some(value)
}

/// An option that is an integer.
pub(crate) fn integer(fd: c_int, level: c_int, name: c_int) -> Option<c_int> {
    option(fd, level, name, 0)
}

/// SO_RCVTIMEO or SO_SNDTIMEO. None: for ever.
pub(crate) fn timeout(fd: c_int, name: c_int) -> Option<Duration> {
    let found = option(fd, libc::SOL_SOCKET, name, timeval { tv_sec: 0, tv_usec: 0 })?;
    let time = Duration::from_secs(found.tv_sec.try_into().ok()?)
        + Duration::from_micros(found.tv_usec.try_into().ok()?);
    (!time.is_zero()).then_some(time)
}

/// Whether calls do not wait (O_NONBLOCK).
pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    let flags = rustix::fs::fcntl_getfl(borrow(fd));
    flags.is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK))
}

/// Whether a program that is executed does not get it.
pub(crate) fn closes_on_exec(fd: c_int) -> bool {
    let flags = rustix::io::fcntl_getfd(borrow(fd));
    flags.is_ok_and(|flags| flags.contains(rustix::io::FdFlags::CLOEXEC))
}

/// Whether a socket has TCP of the kernel.
pub(crate) fn is_tcp(fd: c_int) -> bool {
    let of = |name| integer(fd, libc::SOL_SOCKET, name);
    matches!(of(libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6))
        && of(libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
}

/// How the stack is to treat a connection, as the program has set its socket. `others`: how many
/// it has. The error is why the kernel goes on with it.
pub(crate) fn config(fd: c_int, others: usize, asked: &Asked) -> Result<Config, String> {
    let of = |name| integer(fd, libc::IPPROTO_TCP, name).unwrap_or(0);
    let seconds = |name| Duration::from_secs(of(name).unsigned_abs().max(1).into());
    let is_kept = integer(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE).unwrap_or(0) != 0;
    let user_timeout = of(libc::TCP_USER_TIMEOUT);
    let default = Config::default().among(others);
    let least_timeout = asked.least_timeout.unwrap_or(default.least_timeout);
    let congestion = rustix::net::sockopt::tcp_congestion(borrow(fd)).unwrap_or_default();
    Ok(Config {
        least_timeout,
        // A lone segment is probed for a loss at the least time-out, at most, as by the kernel.
        peer_delayed_ack: default.peer_delayed_ack.min(least_timeout),
        algorithm: options::algorithm(&congestion, asked.default_congestion.as_deref())?,
        is_corked: of(libc::TCP_CORK) != 0,
        no_delay: of(libc::TCP_NODELAY) != 0,
        keep_alive: is_kept.then(|| KeepAlive {
            idle: seconds(libc::TCP_KEEPIDLE),
            interval: seconds(libc::TCP_KEEPINTVL),
            probes: of(libc::TCP_KEEPCNT).unsigned_abs().max(1),
        }),
        patience: match user_timeout {
            0 => default.patience,
            time => Duration::from_millis(time.unsigned_abs().into()),
        },
        ..default
    })
}

/// This end and the other, where the socket is connected.
pub(crate) fn addresses(fd: c_int) -> Option<(SocketAddr, SocketAddr)> {
    let here = rustix::net::getsockname(borrow(fd)).ok()?;
    let there = rustix::net::getpeername(borrow(fd)).ok()??;
    Some((here.try_into().ok()?, there.try_into().ok()?))
}

/// An address as the kernel has written it, in the form that the program's family of sockets has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    bytes: [u8; size_of::<libc::sockaddr_in6>()],
    length: usize,
}

impl Name {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Whether an address that a program gives is the same one.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        // The family, the port, and the address: that of IPv6 comes behind a label of flows.
        let parts = if self.length < self.bytes.len() { [0..8, 0..0] } else { [0..4, 8..24] };
        parts.into_iter().all(|part| given.get(part.clone()) == self.bytes.get(part))
    }
}

/// The other end, where the socket is connected.
pub(crate) fn peer(fd: c_int) -> Option<Name> {
    let mut bytes = [0; size_of::<libc::sockaddr_in6>()];
    let mut length = bytes.len() as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes.
    let got = unsafe { libc::getpeername(fd, bytes.as_mut_ptr().cast(), &raw mut length) };
    let length = usize::try_from(length).ok().filter(|length| *length <= bytes.len())?;
    (got == 0).then_some(Name { bytes, length })
}

/// Whether a socket is one of IPv6.
pub(crate) fn is_ipv6(fd: c_int) -> bool {
    integer(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_INET6)
}

/// Bytes of the largest packet that reaches the other end in one piece, with the header of IP, as
/// far as the kernel has learnt it (ip(7), IP_MTU).
pub(crate) fn path_mtu(fd: c_int, is_ipv6: bool) -> Option<usize> {
    let (level, name) = match is_ipv6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        false => (libc::IPPROTO_IP, libc::IP_MTU),
    };
    integer(fd, level, name).and_then(|mtu| usize::try_from(mtu).ok())
}

/// Receives a datagram from the kernel's socket without waiting, and without being cancelled: the
/// bytes that were written to `parts`, and those of the datagram. None: none waits.
pub(crate) fn receive(
    fd: c_int,
    parts: &mut [IoSliceMut<'_>],
) -> Result<Option<(usize, usize)>, c_int> {
    let room: usize = parts.iter().map(|part| part.len()).sum();
    // SAFETY: an `IoSliceMut` is an `iovec` (its documentation says so). A message of zeros is one
    // with nothing in it. The kernel writes to its pieces, which live until it returns.
    let found = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = parts.as_mut_ptr().cast();
        message.msg_iovlen = parts.len() as _;
        let flags = (libc::MSG_DONTWAIT | libc::MSG_TRUNC) as usize;
        let message = (&raw mut message) as usize;
        real::syscall(libc::SYS_recvmsg, fd as usize, message, flags, 0, 0)
    };
    match usize::try_from(found) {
        Ok(length) => Ok(Some((length.min(room), length))),
        Err(_) => match real::errno() {
            libc::EAGAIN | libc::EINTR => Ok(None),
            why => Err(why),
        },
    }
}

/// Bytes of both streams, those that came and those that were written, as the kernel has them.
/// `struct tcp_info` (linux/tcp.h) from its 13th 8 bytes on.
pub(crate) fn streams(fd: c_int) -> Option<(u64, u64)> {
    let info: [u64; 20] = option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, [0; 20])?;
    let [acknowledged, received] = [info[15], info[16]];
    Some((received, acknowledged + count(fd, libc::TIOCOUTQ).unwrap_or(0)))
}

/// Bytes that wait in both queues of the kernel's socket: those that can be read, and those that
/// were written and are not acknowledged.
pub(crate) fn queued(fd: c_int) -> [u64; 2] {
    [rustix::io::ioctl_fionread(borrow(fd)).unwrap_or(0), count(fd, libc::TIOCOUTQ).unwrap_or(0)]
}

/// Whether the kernel's socket has bytes that it has not sent.
pub(crate) fn has_unsent(fd: c_int) -> bool {
    // linux/sockios.h.
    const SIOCOUTQNSD: libc::c_ulong = 0x894b;
    count(fd, SIOCOUTQNSD) != Some(0)
}

/// Bytes of the send queue that a request of ioctl(2) counts.
fn count(fd: c_int, request: libc::c_ulong) -> Option<u64> {
    let mut count: c_int = 0;
    // SAFETY: the kernel writes one integer to `count`.
    let got = unsafe { real::ioctl(fd, request as usize, (&raw mut count) as usize) };
    (got == 0).then(|| count.unsigned_abs().into())
}

/// ppoll(2), in which no thread is cancelled.
pub(crate) fn wait(
    fds: &mut [pollfd],
    time: Option<Duration>,
    mask: Option<&sigset_t>,
) -> Result<usize, c_int> {
    // Bytes of the kernel's set of signals.
    const SET: usize = 8;
    let mut time = time.map(|time| timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    let time = time.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let mask = mask.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: all of them live until it returns, and the count is that of `fds`.
    let found = unsafe {
        let fds = (fds.as_mut_ptr() as usize, fds.len());
        real::syscall(libc::SYS_ppoll, fds.0, fds.1, time as usize, mask as usize, SET)
    };
    usize::try_from(found).map_err(|_| real::errno())
}

/// What epoll(7) watches, or tells, and the program's data with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    pub(crate) events: u32,
    pub(crate) data: u64,
}

/// epoll_ctl(2).
pub(crate) fn control(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    asked: Control,
) -> Result<(), c_int> {
    let mut event = libc::epoll_event { events: asked.events, u64: asked.data };
    let event = (&raw mut event) as usize;
    let [epoll, operation, fd] = [epoll, operation, fd].map(|number| number as usize);
    // SAFETY: the kernel reads the event, which lives until it returns.
    match unsafe { real::syscall(libc::SYS_epoll_ctl, epoll, operation, fd, event, 0) } {
        0 => Ok(()),
        _ => Err(real::errno()),
    }
}

/// What epoll_wait(2) tells now.
pub(crate) fn told(epoll: c_int, most: usize) -> Result<Vec<Control>, c_int> {
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; most.clamp(1, 1024)];
    // SAFETY: the kernel writes up to so many events; there is no mask.
    let found = unsafe {
        let (start, count) = (events.as_mut_ptr() as usize, events.len());
        real::syscall(libc::SYS_epoll_pwait, epoll as usize, start, count, 0, 0)
    };
    events.truncate(usize::try_from(found).map_err(|_| real::errno())?);
    Ok(events.iter().map(|event| Control { events: event.events, data: event.u64 }).collect())
}
