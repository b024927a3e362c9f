//! A new socket in place of one that its program closes.
//!
//! To advance a socket takes as long as bytes were transferred. A new one can begin where the stack
//! came, however far that is. Nobody but its owner has it, so it is only for connections that the
//! program uses no more: it sends the rest, and closes the stream.
//!
//! The owner has the packets of the flow go elsewhere until it is connected: what comes for a
//! connection without a socket is answered by a reset, also where a socket listens at its port.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET, c_int};
use loopscope_stack::packet::Flow;
use loopscope_stack::{Seq, State};
use rustix::fs::{fchown, fstat};
use rustix::net::sockopt::{set_socket_linger, set_tcp_congestion, socket_linger, tcp_congestion};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use crate::frozen::{Frozen, Kept, REPAIR_OFF, REPAIR_ON, TakeoverError, Trying};
use crate::give_back::{At, Inject, MORE_ROOM, inject_ack, send_rest, set_windows, wait_for};
use crate::options::{Agreed, get, set};
use crate::queues::{self, Queue};

/// To advance a socket by so many bytes takes no longer than to make a new one.
const FAR: usize = 1 << 20;
/// The timestamp of the program's socket is read to two milliseconds, and the stack's may be one
/// ahead: what the new socket sends must not be older than what the other end has seen.
const AHEAD: u32 = 4;
/// Bytes of the options that each segment has with timestamps (RFC 7323 §3.2, with padding).
const STAMPS: usize = 12;
/// Codes of what both ends have agreed on (TCP_REPAIR_OPTIONS; RFC 9293 §3.2).
const SCALES: u32 = 3;
const SELECTIVE: u32 = 4;
const TIMESTAMPS: u32 = 8;

/// Options of socket(7) and tcp(7) that libc does not have (asm-generic/socket.h, linux/tcp.h).
const SO_BINDTOIFINDEX: c_int = 62;
const TCP_RTO_MAX_MS: c_int = 44;
const TCP_RTO_MIN_US: c_int = 45;
/// Options of ipv6(7) that libc does not have (linux/in6.h).
const IPV6_MINHOPCOUNT: c_int = 73;

/// Integers that say how a socket sends, and how long it goes on once it is closed.
const COPIED: [(c_int, c_int); 12] = [
    (SOL_SOCKET, libc::SO_MARK),
    (SOL_SOCKET, SO_BINDTOIFINDEX),
    (SOL_SOCKET, libc::SO_PRIORITY),
    (SOL_SOCKET, libc::SO_REUSEPORT),
    (SOL_SOCKET, libc::SO_DONTROUTE),
    (SOL_SOCKET, libc::SO_MAX_PACING_RATE),
    (IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (IPPROTO_TCP, libc::TCP_KEEPCNT),
    (IPPROTO_TCP, libc::TCP_LINGER2),
    (IPPROTO_TCP, TCP_RTO_MAX_MS),
    (IPPROTO_TCP, TCP_RTO_MIN_US),
];
/// The same of connections of either family. The others say that the address may be none of the
/// machine's.
const COPIED_OF_IPV4: [(c_int, c_int); 6] = [
    (IPPROTO_IP, libc::IP_TOS),
    (IPPROTO_IP, libc::IP_TTL),
    (IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (IPPROTO_IP, libc::IP_MINTTL),
    (IPPROTO_IP, libc::IP_FREEBIND),
    (IPPROTO_IP, libc::IP_TRANSPARENT),
];
const COPIED_OF_IPV6: [(c_int, c_int); 7] = [
    (IPPROTO_IPV6, libc::IPV6_TCLASS),
    (IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    (IPPROTO_IPV6, libc::IPV6_AUTOFLOWLABEL),
    (IPPROTO_IPV6, IPV6_MINHOPCOUNT),
    (IPPROTO_IPV6, libc::IPV6_FREEBIND),
    (IPPROTO_IPV6, libc::IPV6_TRANSPARENT),
];
/// Headers that a socket adds to its packets, which are not copied.
const HEADERS_OF_IPV4: [(c_int, c_int); 1] = [(IPPROTO_IP, libc::IP_OPTIONS)];
const HEADERS_OF_IPV6: [(c_int, c_int); 4] = [
    (IPPROTO_IPV6, libc::IPV6_HOPOPTS),
    (IPPROTO_IPV6, libc::IPV6_RTHDR),
    (IPPROTO_IPV6, libc::IPV6_RTHDRDSTOPTS),
    (IPPROTO_IPV6, libc::IPV6_DSTOPTS),
];

/// A socket that goes on with a connection in place of the program's. Where it is dropped before it
/// was released, it says nothing to the other end, or resets the connection.
#[derive(Debug)]
pub struct Successor {
    socket: OwnedFd,
    kept: Kept,
    flow: Flow,
}

impl Frozen {
    /// Whether the stack came so far that a new socket takes less time than to advance this one.
    pub fn is_far_from(&self, state: &State) -> Result<bool, TakeoverError> {
        let at = At::read(self.socket.as_fd()).to("read the queues' numbers")?;
        let far = at.acknowledged(state).max(at.came(state)) > FAR;
        Ok(far && at.leads_to(state))
    }

    /// Whether the socket has no connection any more.
    pub fn is_closed(&self) -> Result<bool, TakeoverError> {
        is_closed(self.socket.as_fd())
    }

    /// A socket that has all that the connection needs, but is not connected yet. None: a new one
    /// would not do what this one does, because SO_LINGER is set, or because packets have headers
    /// of the program's. `flow` is that of the segments that come.
    pub fn successor(
        &self,
        state: &State,
        flow: &Flow,
    ) -> Result<Option<Successor>, TakeoverError> {
        let old = self.socket.as_fd();
        let is_ipv4 = flow.to.is_ipv4();
        let lingers = socket_linger(old).to("read SO_LINGER")?.is_some();
        if lingers || has_headers(old, is_ipv4).to("look for headers of the program's")? {
            return Ok(None);
        }
        let family = if is_ipv4 { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .to("make a socket")?;
        let fd = socket.as_fd();
        // From here on it is silent, and may have an address that others have.
        set(fd, IPPROTO_TCP, libc::TCP_REPAIR, REPAIR_ON).to("begin TCP_REPAIR")?;
        copy(old, fd, is_ipv4).to("copy the socket's options")?;
        // Should this process end before all is in its queue, there must be no orderly end.
        set_socket_linger(fd, Some(Duration::ZERO)).to("set SO_LINGER")?;
        let room = (state.queued.len() + MORE_ROOM) as c_int;
        set(fd, SOL_SOCKET, libc::SO_SNDBUFFORCE, room).to("make room in the buffer")?;
        let stamps = if state.timestamps.is_some() { STAMPS } else { 0 };
        let segment = (state.segment + stamps) as c_int;
        set(fd, IPPROTO_TCP, libc::TCP_MAXSEG, segment).to("set TCP_MAXSEG")?;
        bind(fd, &flow.to).to("bind a socket to the connection's address")?;
        for (queue, first) in [(Queue::Send, before(state)), (Queue::Receive, received(state))] {
            queues::choose(fd, queue).to("choose a queue")?;
            set(fd, IPPROTO_TCP, libc::TCP_QUEUE_SEQ, first.0).to("set a queue's number")?;
        }
        queues::choose(fd, Queue::None).to("end with the queues")?;
        // It goes on as the program's socket would, and does not wait for what comes next.
        let stamp: u32 = get(old, IPPROTO_TCP, libc::TCP_TIMESTAMP).to("read the timestamp")?;
        set(fd, IPPROTO_TCP, libc::TCP_TIMESTAMP, stamp.wrapping_add(AHEAD))
            .to("set the timestamp")?;
        Ok(Some(Successor { socket, kept: self.kept, flow: *flow }))
    }
}

/// The number before the first byte that is not acknowledged. The byte there, of no meaning, is in
/// the queue for an acknowledgement to free it.
fn before(state: &State) -> Seq {
    Seq(state.unacknowledged.0.wrapping_sub(1))
}

/// The number of the first byte of the receive queue. That a byte is there makes the kernel reset
/// the connection when it is closed; nobody reads it.
fn received(state: &State) -> Seq {
    Seq(state.expected.0.wrapping_sub(u32::from(!state.unread.is_empty())))
}

impl Successor {
    /// Connects it, once the program's socket is disconnected, without a word to the other end.
    /// Fails with EADDRNOTAVAIL if another socket has the connection.
    pub fn connect(&self, state: &State) -> Result<(), TakeoverError> {
        let fd = self.socket.as_fd();
        connect(fd, &self.flow.from).to("connect a socket")?;
        for agreed in agreed(state) {
            set(fd, IPPROTO_TCP, libc::TCP_REPAIR_OPTIONS, agreed).to("set what was agreed on")?;
        }
        let sent = state.queued.get(..state.sent).ok_or(TakeoverError::Impossible)?;
        let unread = &state.unread[..state.unread.len().min(1)];
        queues::append(fd, Queue::Receive, unread).to("fill the receive queue")?;
        queues::append(fd, Queue::Send, &[0]).to("fill the send queue")?;
        queues::append(fd, Queue::Send, sent).to("fill the send queue")?;
        set_windows(fd, state).to("set the windows")
    }

    /// Has the kernel learn the round trip and the other end's timestamp. Without that it sends a
    /// lost segment again after seconds.
    pub fn teach(&self, state: &State, inject: Inject<'_>) -> Result<(), TakeoverError> {
        let fd = self.socket.as_fd();
        inject_ack(fd, state, &self.flow, state.unacknowledged, inject)
            .to("acknowledge what is gone")?;
        wait_for(fd, state.sent)
    }

    /// Whether it has no connection any more, because the other end has reset it.
    pub fn is_closed(&self) -> Result<bool, TakeoverError> {
        is_closed(self.socket.as_fd())
    }

    /// Leaves the connection to the kernel, with what was not sent. It ends when the socket is
    /// closed. Packets come to the kernel again from before this on.
    pub fn release(self, state: &State) -> Result<OwnedFd, TakeoverError> {
        let fd = self.socket.as_fd();
        let rest = state.queued.get(state.sent..).ok_or(TakeoverError::Impossible)?;
        set(fd, IPPROTO_TCP, libc::TCP_REPAIR, REPAIR_OFF).to("end TCP_REPAIR")?;
        self.kept.restore(fd).to("restore the socket's options")?;
        send_rest(fd, rest).to("send what was not sent")?;
        set_socket_linger(fd, None).to("restore SO_LINGER")?;
        Ok(self.socket)
    }
}

impl AsFd for Successor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What both ends have agreed on. The largest segment is known before: by TCP_MAXSEG.
fn agreed(state: &State) -> impl Iterator<Item = Agreed> {
    let scales = u32::from(state.peer_scale) | u32::from(state.scale) << 16;
    let all = [
        (SCALES, scales, scales != 0),
        (SELECTIVE, 0, state.selective),
        (TIMESTAMPS, 0, state.timestamps.is_some()),
    ];
    all.into_iter().filter(|(.., is)| *is).map(|(code, value, _)| Agreed { code, value })
}

fn has_headers(socket: BorrowedFd<'_>, is_ipv4: bool) -> io::Result<bool> {
    let all = if is_ipv4 { &HEADERS_OF_IPV4[..] } else { &HEADERS_OF_IPV6 };
    for (level, name) in all {
        if get::<[u64; 6]>(socket, *level, *name)? != [0; 6] {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Copies options, and the user by whom routes and filters know the socket.
fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, is_ipv4: bool) -> io::Result<()> {
    let of_family = if is_ipv4 { &COPIED_OF_IPV4[..] } else { &COPIED_OF_IPV6 };
    for (level, name) in COPIED.iter().chain(of_family) {
        let value: c_int = match get(from, *level, *name) {
            // The kernel knows nothing of it.
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => continue,
            value => value?,
        };
        if get::<c_int>(to, *level, *name)? != value {
            set(to, *level, *name, value)?;
        }
    }
    let algorithm = tcp_congestion(from)?;
    if tcp_congestion(to)? != algorithm {
        set_tcp_congestion(to, &algorithm)?;
    }
    let [user, own] = [fstat(from)?.st_uid, fstat(to)?.st_uid];
    if user != own {
        fchown(to, Some(rustix::process::Uid::from_raw(user)), None)?;
    }
    Ok(())
}

fn is_closed(socket: BorrowedFd<'_>) -> Result<bool, TakeoverError> {
    let info: libc::tcp_info = get(socket, IPPROTO_TCP, libc::TCP_INFO).to("read TCP_INFO")?;
    Ok(info.tcpi_state == crate::frozen::CLOSE)
}
