//! Taking a connection over.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use libc::{IPPROTO_TCP, SOL_SOCKET, c_int};
use loopscope_stack::packet::Flow;
use loopscope_stack::{Clocks, Seq, State};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::connect_unspec;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::options::{self, RepairWindow, get, set};
use crate::queues::{self, Queue};
use crate::refusal::{self, Refusal};

/// Values of TCP_REPAIR (linux/tcp.h).
pub(crate) const REPAIR_ON: c_int = 1;
/// Without a probe of the window.
pub(crate) const REPAIR_OFF: c_int = -1;
/// Option of socket(7) from Linux 5.18 on (asm-generic/socket.h).
pub(crate) const SO_BUF_LOCK: c_int = 72;
/// tcpi_options (linux/tcp.h).
const TIMESTAMPS: u8 = 1;
const SELECTIVE: u8 = 2;
const SCALE: u8 = 4;
const MARKS: u8 = 8;
/// States (net/tcp_states.h).
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const SYN_RECEIVED: u8 = 3;
pub(crate) const CLOSE: u8 = 7;
const LISTEN: u8 = 10;

/// Why a connection was not taken over, or not given back.
#[derive(Debug, Error)]
pub enum TakeoverError {
    /// It has to stay with the kernel, which goes on with it as before.
    #[error("the connection cannot be taken over: {0}")]
    Refused(#[from] Refusal),
    /// A call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// It cannot have come from what was taken over.
    #[error("the connection cannot have become what it is to go on as")]
    Impossible,
    /// The kernel's socket did not take what it was given.
    #[error(
        "the kernel's socket has {found} bytes unacknowledged after the connection came back, not {expected}"
    )]
    NotAdvanced {
        /// Bytes.
        expected: usize,
        /// Bytes.
        found: usize,
    },
}

/// Names what was tried.
pub(crate) trait Trying<T> {
    fn to(self, what: &'static str) -> Result<T, TakeoverError>;
}

impl<T, E: Into<io::Error>> Trying<T> for Result<T, E> {
    fn to(self, what: &'static str) -> Result<T, TakeoverError> {
        self.map_err(|source| TakeoverError::System { what, source: source.into() })
    }
}

/// A connection that was taken over.
#[derive(Debug)]
pub struct Taken {
    /// Its socket in the kernel.
    pub frozen: Frozen,
    /// From where the stack goes on.
    pub state: State,
    /// The segments that come.
    pub flow: Flow,
}

/// A descriptor of the socket of a connection that was taken over. Where it is dropped, the socket
/// stays frozen. Another process that has both parts can go on with it, also where this one was
/// killed.
#[derive(Debug)]
pub struct Frozen {
    /// The socket.
    pub socket: OwnedFd,
    /// Its options.
    pub kept: Kept,
}

/// Options of a socket that change meanwhile.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Kept {
    pub(crate) reuse: c_int,
    pub(crate) keep_alive: c_int,
    pub(crate) user_timeout: c_int,
    pub(crate) send_buffer: c_int,
    pub(crate) buffer_lock: c_int,
}

impl Kept {
    /// Reads them, before the connection is taken over. Connections of several ways (MPTCP), which do
    /// not have them all, are refused.
    pub fn of(socket: impl AsFd) -> Result<Kept, TakeoverError> {
        let socket = socket.as_fd();
        if refusal::is_multipath(socket).to("ask for the socket's protocol")? {
            return Err(Refusal::Multipath.into());
        }
        Kept::read(socket).to("read the socket's options")
    }

    fn read(socket: BorrowedFd<'_>) -> io::Result<Kept> {
        Ok(Kept {
            reuse: get(socket, SOL_SOCKET, libc::SO_REUSEADDR)?,
            keep_alive: get(socket, SOL_SOCKET, libc::SO_KEEPALIVE)?,
            user_timeout: get(socket, IPPROTO_TCP, libc::TCP_USER_TIMEOUT)?,
            send_buffer: get(socket, SOL_SOCKET, libc::SO_SNDBUF)?,
            buffer_lock: get(socket, SOL_SOCKET, SO_BUF_LOCK)?,
        })
    }

    /// Sets what a frozen socket must not act by.
    fn silence(socket: BorrowedFd<'_>) -> io::Result<()> {
        set(socket, SOL_SOCKET, libc::SO_KEEPALIVE, 0)?;
        set(socket, IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 0)
    }

    /// Sets what leaving repair mode has changed, and what was silenced.
    pub(crate) fn restore(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        set(socket, SOL_SOCKET, libc::SO_REUSEADDR, self.reuse)?;
        set(socket, SOL_SOCKET, libc::SO_KEEPALIVE, self.keep_alive)?;
        set(socket, IPPROTO_TCP, libc::TCP_USER_TIMEOUT, self.user_timeout)
    }
}

/// The program of a filter that drops all but packets with a mark.
fn only_marked(mark: u32) -> [libc::sock_filter; 4] {
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let of_mark = (libc::SKF_AD_OFF + libc::SKF_AD_MARK).cast_unsigned();
    [
        instruction((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, 0, of_mark),
        instruction((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, 0, 1, mark),
        instruction((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0xffff),
        instruction((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0),
    ]
}

impl Frozen {
    /// Takes over the connection of a socket, whose packets have to come to the caller from before
    /// this on, and whose options are `kept`. From now on the socket takes packets with `mark` alone,
    /// whose holders must not use it themselves. Where that is refused or fails, the kernel goes on
    /// with it as before.
    pub fn take(socket: impl AsFd, kept: Kept, mark: u32) -> Result<Taken, TakeoverError> {
        let socket = socket.as_fd().try_clone_to_owned().to("duplicate the socket's descriptor")?;
        let fd = socket.as_fd();
        // It is the program's: not ours to replace.
        if options::has_filter(fd).to("look for a filter")? {
            return Err(Refusal::Filter.into());
        }
        let info: libc::tcp_info = get(fd, IPPROTO_TCP, libc::TCP_INFO).to("read TCP_INFO")?;
        match info.tcpi_state {
            ESTABLISHED => {}
            SYN_SENT | SYN_RECEIVED | CLOSE | LISTEN => return Err(Refusal::NotConnected.into()),
            _ => return Err(Refusal::Closing.into()),
        }
        let flow = flow_of(fd)?;
        if let Some(refusal) = refusal::hidden(fd, &flow).to("look for keys and protocols")? {
            return Err(refusal.into());
        }
        let has_marks = info.tcpi_options & MARKS != 0;
        if has_marks && refusal::may_have_accurate_marks().to("read net.ipv4.tcp_ecn")? {
            return Err(Refusal::AccurateMarks.into());
        }
        options::attach_filter(fd, &only_marked(mark)).to("attach a filter")?;
        let read = read(fd);
        let frozen = Frozen { socket, kept };
        match read {
            Ok(state) => Ok(Taken { frozen, state, flow }),
            Err(error) => {
                // The kernel goes on.
                let _ = frozen.thaw();
                Err(error)
            }
        }
    }

    /// Leaves the connection to the kernel as it was taken over.
    pub fn thaw(&self) -> Result<(), TakeoverError> {
        let fd = self.socket.as_fd();
        set(fd, IPPROTO_TCP, libc::TCP_REPAIR, REPAIR_OFF).to("end TCP_REPAIR")?;
        self.kept.restore(fd).to("restore the socket's options")?;
        if options::has_filter(fd).to("look for a filter")? {
            set(fd, SOL_SOCKET, libc::SO_DETACH_FILTER, 0).to("detach the filter")?;
        }
        Ok(())
    }

    /// Ends a connection that cannot be given back. The program's next call fails with ECONNABORTED;
    /// the other end is reset when it sends the next time.
    pub fn abandon(&self) -> Result<(), TakeoverError> {
        // In repair mode the kernel says nothing to the other end: it would not take the number.
        connect_unspec(&self.socket).to("disconnect the socket")?;
        self.thaw()
    }
}

/// Begins repair mode and reads the state of a connection.
fn read(fd: BorrowedFd<'_>) -> Result<State, TakeoverError> {
    Kept::silence(fd).to("switch keep-alive off")?;
    set(fd, IPPROTO_TCP, libc::TCP_REPAIR, REPAIR_ON).to("begin TCP_REPAIR")?;
    // Once more: the filter has let nothing through since.
    let info: libc::tcp_info = get(fd, IPPROTO_TCP, libc::TCP_INFO).to("read TCP_INFO")?;
    if info.tcpi_state != ESTABLISHED {
        return Err(Refusal::Closing.into());
    }
    if has_urgent_data(fd).to("look for urgent data")? {
        return Err(Refusal::Urgent.into());
    }
    let window: RepairWindow =
        get(fd, IPPROTO_TCP, libc::TCP_REPAIR_WINDOW).to("read the windows")?;
    let written = queues::seq(fd, Queue::Send).to("read the send queue's number")?;
    let queued = options::count(fd, queues::SIOCOUTQ).to("count the send queue")?;
    let unsent = options::count(fd, queues::SIOCOUTQNSD).to("count what is not sent")?;
    let bytes = queues::peek(fd, queued).to("read the send queue")?;
    let expected = queues::seq(fd, Queue::Receive).to("read the receive queue's number")?;
    let unread = options::count(fd, queues::SIOCINQ).to("count the receive queue")?;
    let waiting = queues::peek_received(fd, unread).to("read the receive queue")?;
    let stamp: u32 = get(fd, IPPROTO_TCP, libc::TCP_TIMESTAMP).to("read the timestamp")?;
    queues::choose(fd, Queue::None).to("end with the queues")?;
    let has = |option: u8| info.tcpi_options & option != 0;
    let scales = if has(SCALE) { info.tcpi_snd_rcv_wscale } else { 0 };
    let unacknowledged = Seq(written.0.wrapping_sub(queued as u32));
    let edge = window.window_begin.wrapping_add(window.window);
    let trip = |us: u32| Duration::from_micros(us.into());
    Ok(State {
        unacknowledged,
        queued: bytes,
        sent: queued - unsent.min(queued),
        peer_window: window.peer_window as usize,
        expected,
        unread: waiting,
        window: edge.wrapping_sub(expected.0).min(1 << 30) as usize,
        segment: info.tcpi_snd_mss as usize,
        // The kernel's words are the other way round: snd_wscale is of windows that come.
        scale: scales >> 4,
        peer_scale: scales & 15,
        selective: has(SELECTIVE),
        ecn: has(MARKS),
        round_trip: (info.tcpi_rtt > 0).then(|| (trip(info.tcpi_rtt), trip(info.tcpi_rttvar))),
        timestamps: has(TIMESTAMPS).then_some(Clocks { now: stamp, recent: None, newest: None }),
    })
}

fn has_urgent_data(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::PRI)];
    poll(&mut polled, Some(&Timespec::default()))?;
    Ok(polled[0].revents().contains(PollFlags::PRI))
}

/// The flow of the packets that come for a socket's connection.
pub fn flow_of(socket: impl AsFd) -> Result<Flow, TakeoverError> {
    let fd = socket.as_fd();
    Ok(Flow { from: address(fd, true)?, to: address(fd, false)? })
}

/// The network namespace of a socket: its cookie (socket(7), SO_NETNS_COOKIE, from Linux 5.14 on).
pub fn namespace_of(socket: impl AsFd) -> io::Result<u64> {
    get(socket, SOL_SOCKET, libc::SO_NETNS_COOKIE)
}

/// The address of one end, as packets have it: a socket of IPv6 may have a connection of IPv4.
fn address(fd: BorrowedFd<'_>, of_peer: bool) -> Result<SocketAddr, TakeoverError> {
    let found =
        if of_peer { rustix::net::getpeername(fd) } else { rustix::net::getsockname(fd).map(Some) };
    if found == Err(Errno::NOTCONN) {
        return Err(Refusal::NotConnected.into());
    }
    let found = found.to("read the socket's addresses")?;
    let address = found.and_then(|address| SocketAddr::try_from(address).ok());
    let address = address.ok_or(Refusal::NotConnected)?;
    Ok(SocketAddr::new(address.ip().to_canonical(), address.port()))
}
