//! Sockets of UDP: of which a program may have the datagrams, and how their ports are held for it.
//!
//! The kernel's socket stays as it is. Nothing tells when the program disconnects or closes it,
//! after which its port may be another user's. So a socket of ours holds the port for as long as
//! the program has the datagrams.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP, SOL_SOCKET, c_int};
use loopscope_stack::packet::Flow;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use crate::frozen::{TakeoverError, Trying as _, flow_of};
use crate::options::{self, get, set};
use crate::refusal::{Refusal, SO_BINDTOIFINDEX};

/// An option: its level and name, the values that the stack can do without, and how it is called.
type Known = (c_int, c_int, &'static [c_int], &'static str);

/// What a socket must not have set. Those that libc does not name are of linux/in.h, linux/in6.h,
/// linux/udp.h and asm-generic/socket.h.
const KNOWN: &[Known] = &[
    (SOL_SOCKET, libc::SO_MARK, &[0], "SO_MARK"),
    (SOL_SOCKET, SO_BINDTOIFINDEX, &[0], "SO_BINDTODEVICE"),
    (SOL_SOCKET, libc::SO_TIMESTAMP, &[0], "SO_TIMESTAMP"),
    (SOL_SOCKET, libc::SO_TIMESTAMPNS, &[0], "SO_TIMESTAMPNS"),
    (SOL_SOCKET, libc::SO_TIMESTAMPING, &[0], "SO_TIMESTAMPING"),
    (SOL_SOCKET, libc::SO_RXQ_OVFL, &[0], "SO_RXQ_OVFL"),
    (SOL_SOCKET, libc::SO_NO_CHECK, &[0], "SO_NO_CHECK"),
    (SOL_SOCKET, libc::SO_PEEK_OFF, &[-1], "SO_PEEK_OFF"),
    (SOL_SOCKET, libc::SO_PRIORITY, &[0], "SO_PRIORITY"),
    (SOL_SOCKET, libc::SO_DONTROUTE, &[0], "SO_DONTROUTE"),
    (SOL_SOCKET, libc::SO_MAX_PACING_RATE, &[-1], "SO_MAX_PACING_RATE"),
    (IPPROTO_UDP, libc::UDP_CORK, &[0], "UDP_CORK"),
    (IPPROTO_UDP, libc::UDP_ENCAP, &[0], "UDP_ENCAP"),
    (IPPROTO_UDP, libc::UDP_NO_CHECK6_TX, &[0], "UDP_NO_CHECK6_TX"),
    (IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, &[0], "UDP_NO_CHECK6_RX"),
    (IPPROTO_UDP, libc::UDP_GRO, &[0], "UDP_GRO"),
    (IPPROTO_IP, libc::IP_TOS, &[0], "IP_TOS"),
    (IPPROTO_IP, libc::IP_TTL, &[64], "IP_TTL"),
    // Datagrams are not fragmented on their way: both say so.
    (IPPROTO_IP, libc::IP_MTU_DISCOVER, &DISCOVERS, "IP_MTU_DISCOVER"),
    (IPPROTO_IP, libc::IP_RECVOPTS, &[0], "IP_RECVOPTS"),
    (IPPROTO_IP, libc::IP_RETOPTS, &[0], "IP_RETOPTS"),
    (IPPROTO_IP, libc::IP_PKTINFO, &[0], "IP_PKTINFO"),
    (IPPROTO_IP, libc::IP_RECVERR, &[0], "IP_RECVERR"),
    (IPPROTO_IP, libc::IP_RECVTTL, &[0], "IP_RECVTTL"),
    (IPPROTO_IP, libc::IP_RECVTOS, &[0], "IP_RECVTOS"),
    (IPPROTO_IP, libc::IP_PASSSEC, &[0], "IP_PASSSEC"),
    (IPPROTO_IP, libc::IP_TRANSPARENT, &[0], "IP_TRANSPARENT"),
    (IPPROTO_IP, libc::IP_ORIGDSTADDR, &[0], "IP_RECVORIGDSTADDR"),
    (IPPROTO_IP, libc::IP_MINTTL, &[0], "IP_MINTTL"),
    (IPPROTO_IP, 23, &[0], "IP_CHECKSUM"),
    (IPPROTO_IP, 25, &[0], "IP_RECVFRAGSIZE"),
    (IPPROTO_IP, 50, &[0], "IP_UNICAST_IF"),
    (IPPROTO_IPV6, 2, &[0], "IPV6_2292PKTINFO"),
    (IPPROTO_IPV6, 3, &[0], "IPV6_2292HOPOPTS"),
    (IPPROTO_IPV6, 4, &[0], "IPV6_2292DSTOPTS"),
    (IPPROTO_IPV6, 5, &[0], "IPV6_2292RTHDR"),
    (IPPROTO_IPV6, 8, &[0], "IPV6_2292HOPLIMIT"),
    (IPPROTO_IPV6, 11, &[0], "IPV6_FLOWINFO"),
    (IPPROTO_IPV6, 33, &[0], "IPV6_FLOWINFO_SEND"),
    (IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, &[64], "IPV6_UNICAST_HOPS"),
    (IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, &DISCOVERS, "IPV6_MTU_DISCOVER"),
    (IPPROTO_IPV6, libc::IPV6_RECVERR, &[0], "IPV6_RECVERR"),
    (IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &[0], "IPV6_RECVPKTINFO"),
    (IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, &[0], "IPV6_RECVHOPLIMIT"),
    (IPPROTO_IPV6, libc::IPV6_RECVHOPOPTS, &[0], "IPV6_RECVHOPOPTS"),
    (IPPROTO_IPV6, libc::IPV6_RECVRTHDR, &[0], "IPV6_RECVRTHDR"),
    (IPPROTO_IPV6, libc::IPV6_RECVDSTOPTS, &[0], "IPV6_RECVDSTOPTS"),
    (IPPROTO_IPV6, libc::IPV6_RECVPATHMTU, &[0], "IPV6_RECVPATHMTU"),
    (IPPROTO_IPV6, libc::IPV6_RECVTCLASS, &[0], "IPV6_RECVTCLASS"),
    (IPPROTO_IPV6, libc::IPV6_TCLASS, &[0], "IPV6_TCLASS"),
    (IPPROTO_IPV6, libc::IPV6_DONTFRAG, &[0], "IPV6_DONTFRAG"),
    (IPPROTO_IPV6, 73, &[0], "IPV6_MINHOPCOUNT"),
    (IPPROTO_IPV6, 74, &[0], "IPV6_RECVORIGDSTADDR"),
    (IPPROTO_IPV6, 75, &[0], "IPV6_TRANSPARENT"),
    (IPPROTO_IPV6, 76, &[0], "IPV6_UNICAST_IF"),
    (IPPROTO_IPV6, 77, &[0], "IPV6_RECVFRAGSIZE"),
];
/// IP_PMTUDISC_WANT and IP_PMTUDISC_DO; those of IPv6 have the same numbers.
const DISCOVERS: [c_int; 2] = [1, 2];
/// Options that are bytes in each packet. There must be none.
const BYTES: [(c_int, c_int, &str); 4] = [
    (IPPROTO_IP, libc::IP_OPTIONS, "IP_OPTIONS"),
    (IPPROTO_IPV6, libc::IPV6_HOPOPTS, "IPV6_HOPOPTS"),
    (IPPROTO_IPV6, libc::IPV6_RTHDR, "IPV6_RTHDR"),
    (IPPROTO_IPV6, libc::IPV6_DSTOPTS, "IPV6_DSTOPTS"),
];

/// The flow of the datagrams that come for a connected socket of UDP, if a program could have them.
///
/// # Errors
/// They have to stay with the kernel, or it does not tell.
pub fn datagrams_of(socket: impl AsFd) -> Result<Flow, TakeoverError> {
    let fd = socket.as_fd();
    let protocol: c_int = get(fd, SOL_SOCKET, libc::SO_PROTOCOL).to("ask for the protocol")?;
    if protocol != IPPROTO_UDP {
        return Err(Refusal::NotUdp.into());
    }
    let flow = flow_of(fd)?;
    if flow.from.port() == 0 || flow.to.port() == 0 {
        return Err(Refusal::NotConnected.into());
    }
    if ![flow.from.ip(), flow.to.ip()].iter().all(is_of_one_host) {
        return Err(Refusal::Address.into());
    }
    if let Some(refusal) = refused(fd).to("read the socket's options")? {
        return Err(refusal.into());
    }
    Ok(flow)
}

/// Whether it is an address of one host, of which there is one in all networks.
fn is_of_one_host(address: &IpAddr) -> bool {
    let is_local = match address {
        IpAddr::V4(address) => address.is_broadcast() || address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !is_local && !address.is_loopback() && !address.is_multicast() && !address.is_unspecified()
}

fn refused(fd: BorrowedFd<'_>) -> io::Result<Option<Refusal>> {
    for name in [libc::SO_REUSEADDR, libc::SO_REUSEPORT] {
        if get::<c_int>(fd, SOL_SOCKET, name)? != 0 {
            return Ok(Some(Refusal::SharedPort));
        }
    }
    if options::has_filter(fd)? {
        return Ok(Some(Refusal::Filter));
    }
    for (level, name, values, called) in KNOWN {
        match get::<c_int>(fd, *level, *name) {
            Ok(value) if values.contains(&value) => {}
            Err(error) if is_unknown(&error) => {}
            Ok(_) => return Ok(Some(Refusal::Set(called))),
            Err(error) => return Err(error),
        }
    }
    for (level, name, called) in BYTES {
        match options::length(fd, level, name) {
            Ok(0) => {}
            Err(error) if is_unknown(&error) => {}
            Ok(_) => return Ok(Some(Refusal::Set(called))),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Whether the kernel has no such option, or not for sockets of this family.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP | libc::EINVAL))
}

/// A socket that holds the port of another one: no further socket can be bound to it.
#[derive(Debug)]
pub struct Holder {
    _socket: OwnedFd,
}

impl Holder {
    /// Holds the port of a connected socket of UDP, as far as datagrams come from the device of
    /// this number. The kernel delivers them as before.
    ///
    /// # Errors
    /// A further socket has the port, or a call fails.
    pub fn of(socket: impl AsFd, flow: &Flow, device: u32) -> Result<Holder, TakeoverError> {
        let fd = socket.as_fd();
        let family = if flow.to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let holder = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .to("make a socket that holds the port")?;
        let device = device.cast_signed();
        set(&holder, SOL_SOCKET, SO_BINDTOIFINDEX, device).to("bind a socket to the device")?;
        let share = |on: c_int| {
            set(&holder, SOL_SOCKET, libc::SO_REUSEADDR, on)?;
            set(fd, SOL_SOCKET, libc::SO_REUSEADDR, on)
        };
        let bound = share(1).and_then(|()| {
            bind(&holder, &flow.to)?;
            // To an address of its own: nothing comes to it from others.
            Ok(connect(&holder, &flow.to)?)
        });
        // Also where it has failed.
        let unshared = share(0);
        bound.and(unshared).to("hold the socket's port")?;
        // One that was bound before, or meanwhile, with SO_REUSEADDR.
        match sockets_at(&flow.to).to("look for sockets of the port")? {
            2 => Ok(Holder { _socket: holder }),
            _ => Err(Refusal::SharedPort.into()),
        }
    }
}

/// How many sockets of UDP get what comes to an address, in this thread's network namespace.
fn sockets_at(address: &SocketAddr) -> io::Result<usize> {
    let mut count = 0;
    for name in ["udp", "udp6"] {
        match std::fs::read_to_string(format!("/proc/thread-self/net/{name}")) {
            Ok(text) => count += text.lines().filter(|line| is_at(line, address)).count(),
            // The kernel has no IPv6.
            Err(error) if name == "udp6" && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Whether a line of /proc/net/udp or udp6 has a socket that gets what comes to an address.
fn is_at(line: &str, address: &SocketAddr) -> bool {
    let local = line.split_ascii_whitespace().nth(1).and_then(|field| field.split_once(':'));
    let Some((ip, port)) = local else { return false };
    let is_port = u16::from_str_radix(port, 16) == Ok(address.port());
    let ip = parse_address(ip).map(|ip| ip.to_canonical());
    is_port && ip.is_some_and(|ip| ip.is_unspecified() || ip == address.ip())
}

/// An address as the kernel prints it: words of 32 bits in this machine's order.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match text.len() {
        8 => Some(IpAddr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            Some(IpAddr::from(<[u8; 16]>::try_from(words.concat()).ok()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_found_by_where_they_get_datagrams() {
        let rest = "00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 0";
        let ipv4 = |port| SocketAddr::new("10.0.0.1".parse().unwrap(), port);
        let ipv6: SocketAddr = "[fd00::1]:5353".parse().unwrap();
        let word = |octets: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(octets));
        let own = word([10, 0, 0, 1]);
        let mapped = format!("{}{}{}", "0".repeat(16), word([0, 0, 0xff, 0xff]), own);
        let own6 = format!("{}{}{}", word([0xfd, 0, 0, 0]), "0".repeat(16), word([0, 0, 0, 1]));
        for (local, is_ipv4, is_ipv6) in [
            (own.as_str(), true, false),
            ("00000000", true, true),
            (&"0".repeat(32), true, true),
            (&mapped, true, false),
            (&own6, false, true),
            (&word([10, 0, 0, 2]), false, false),
        ] {
            let line = format!("  91: {local}:14E9 {rest}");
            assert_eq!(is_at(&line, &ipv4(5353)), is_ipv4, "{line}");
            assert_eq!(is_at(&line, &ipv6), is_ipv6, "{line}");
            assert!(!is_at(&line, &ipv4(5354)), "{line}");
        }
        assert!(!is_at("  sl  local_address rem_address   st tx_queue", &ipv4(5353)));
    }
}
