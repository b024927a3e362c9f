//! What a call does that would change or tell what the stack does not know: pure decisions.

use libc::c_int;
use loopscope_stack::Algorithm;

/// What is done about a call before the kernel's function gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It touches the kernel's socket alone, which is right.
    Pass,
    /// The same, and it sets TCP_NODELAY or TCP_CORK.
    Delays,
    /// The same, and it sets TCP_QUICKACK.
    Quick,
    /// The same, and it sets a time-out.
    Timeout,
    /// The same, and it sets how large the datagrams are that a call becomes (UDP_SEGMENT).
    Segment,
    /// The connection goes back to the kernel first.
    GiveBack,
}

/// setsockopt(2) on a connection that was taken over. The options that `Way::Pass` is for stay in
/// the kernel's socket until the connection comes back.
pub(crate) fn setting(level: c_int, name: c_int) -> Way {
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_CORK) => Way::Delays,
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => Way::Quick,
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) => Way::Timeout,
        (libc::SOL_SOCKET, libc::SO_LINGER | libc::SO_PRIORITY) => Way::Pass,
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => Way::Pass,
        _ => Way::GiveBack,
    }
}

/// The same on a socket of UDP. The service knows which options it must not have.
pub(crate) fn setting_datagrams(level: c_int, name: c_int) -> Way {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) => Way::Timeout,
        (libc::IPPROTO_UDP, libc::UDP_SEGMENT) => Way::Segment,
        _ => Way::GiveBack,
    }
}

/// Whether setsockopt(2) on a connection that was not taken over has it stay with the kernel: the
/// stack knows nothing of these.
pub(crate) fn forbids(level: c_int, name: c_int) -> bool {
    const SO_ZEROCOPY: c_int = 60;
    const TCP_INQ: c_int = 36;
    const TCP_TX_DELAY: c_int = 37;
    match level {
        libc::SOL_SOCKET => matches!(
            name,
            SO_ZEROCOPY
                | libc::SO_RCVLOWAT
                | libc::SO_OOBINLINE
                | libc::SO_TIMESTAMP
                | libc::SO_TIMESTAMPNS
                | libc::SO_TIMESTAMPING
                | libc::SO_PEEK_OFF
                | libc::SO_TXTIME
                | libc::SO_MARK
                | libc::SO_BINDTODEVICE
                | libc::SO_MAX_PACING_RATE
        ),
        libc::IPPROTO_TCP => matches!(name, TCP_INQ | TCP_TX_DELAY | libc::TCP_REPAIR),
        libc::IPPROTO_IP => {
            !matches!(name, libc::IP_TOS | libc::IP_TTL | libc::IP_RECVERR | libc::IP_MTU_DISCOVER)
        }
        _ => false,
    }
}

/// How the window grows of a connection whose socket has a congestion control (TCP_CONGESTION).
/// `default` is that of the system: the stack has CUBIC where that is another one.
///
/// # Errors
/// The program has asked for one that the stack does not have: why it stays with the kernel.
pub(crate) fn algorithm(of_socket: &str, default: Option<&str>) -> Result<Algorithm, String> {
    match of_socket {
        "reno" => Ok(Algorithm::Reno),
        "cubic" => Ok(Algorithm::Cubic),
        _ if Some(of_socket) == default => Ok(Algorithm::Cubic),
        _ => Err(format!("TCP_CONGESTION is {of_socket}, and the stack has cubic and reno")),
    }
}

/// getsockopt(2): whether the kernel's socket tells what it would without the stack.
pub(crate) fn is_told(level: c_int, name: c_int) -> bool {
    match level {
        libc::SOL_SOCKET => matches!(
            name,
            libc::SO_ERROR
                | libc::SO_TYPE
                | libc::SO_DOMAIN
                | libc::SO_PROTOCOL
                | libc::SO_ACCEPTCONN
                | libc::SO_RCVTIMEO
                | libc::SO_SNDTIMEO
                | libc::SO_LINGER
                | libc::SO_RCVBUF
                | libc::SO_SNDBUF
                | libc::SO_PRIORITY
                | libc::SO_COOKIE
                | libc::SO_INCOMING_CPU
                | libc::SO_PEERCRED
        ),
        libc::IPPROTO_TCP => matches!(
            name,
            libc::TCP_NODELAY
                | libc::TCP_MAXSEG
                | libc::TCP_CORK
                | libc::TCP_QUICKACK
                | libc::TCP_CONGESTION
        ),
        libc::IPPROTO_IP | libc::IPPROTO_IPV6 => true,
        libc::IPPROTO_UDP => name == libc::UDP_SEGMENT,
        _ => false,
    }
}

/// What is done about fcntl(2) on a connection that was taken over. True: it sets O_NONBLOCK or
/// not.
pub(crate) fn control(command: c_int, value: usize) -> (Way, bool) {
    match command {
        libc::F_SETFL if value as c_int & libc::O_ASYNC == 0 => (Way::Pass, true),
        libc::F_GETFL | libc::F_GETFD | libc::F_SETFD | libc::F_GETOWN => (Way::Pass, false),
        _ => (Way::GiveBack, false),
    }
}

/// How a call receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct How {
    /// MSG_DONTWAIT.
    pub(crate) at_once: bool,
    /// MSG_WAITALL.
    pub(crate) all: bool,
    /// MSG_TRUNC: the call returns the bytes of the whole datagram.
    pub(crate) whole: bool,
    /// UDP_SEGMENT of a call: it sends datagrams of so many bytes. None: as the socket has it.
    pub(crate) segment: Option<u16>,
}

/// What the flags of recv(2) ask for; `datagrams`: on a socket of UDP. None: it is the kernel's.
pub(crate) fn receiving(flags: c_int, datagrams: bool) -> Option<How> {
    let known =
        libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC;
    let known = if datagrams { known | libc::MSG_TRUNC } else { known };
    (flags & !known == 0).then_some(How {
        at_once: flags & libc::MSG_DONTWAIT != 0,
        all: flags & libc::MSG_WAITALL != 0,
        whole: flags & libc::MSG_TRUNC != 0,
        segment: None,
    })
}

/// What the flags of send(2) ask for; `datagrams`: on a socket of UDP. MSG_MORE only puts segments
/// together, which the stack does by itself; of datagrams it makes others. None: it is the
/// kernel's.
pub(crate) fn sending(flags: c_int, datagrams: bool) -> Option<How> {
    let of_both = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_EOR;
    let of_streams = libc::MSG_MORE | libc::MSG_CONFIRM | libc::MSG_DONTROUTE;
    let known = if datagrams { of_both } else { of_both | of_streams };
    let at_once = flags & libc::MSG_DONTWAIT != 0;
    (flags & !known == 0).then_some(How { at_once, ..How::default() })
}

/// What poll(2) tells of a connection with so many bytes that can be read, that can be written, and
/// that are not acknowledged. The kernel tells that one can write when a third of its buffer is
/// free.
pub(crate) fn events(wanted: i16, readable: usize, writable: usize, unacknowledged: usize) -> i16 {
    let mut found = 0;
    if readable > 0 {
        found |= libc::POLLIN | libc::POLLRDNORM;
    }
    if writable > 0 && writable >= (writable + unacknowledged) / 3 {
        found |= libc::POLLOUT | libc::POLLWRNORM;
    }
    found & wanted
}
