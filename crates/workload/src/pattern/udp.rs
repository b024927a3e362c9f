//! UDP sockets for messages: to and from consumers, and groups.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use anyhow::{Context, Result, bail};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Sends from `local`; to groups by its interface, and back to this host's own members where
/// `looped`.
pub(crate) fn sender(local: IpAddr, looped: bool) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((local, 0))
        .with_context(|| format!("cannot make a UDP socket at {local}"))?;
    if let IpAddr::V4(interface) = local {
        let options = SockRef::from(&socket);
        options
            .set_multicast_if_v4(&interface)
            .and_then(|()| options.set_multicast_ttl_v4(1))
            .and_then(|()| options.set_multicast_loop_v4(looped))
            .with_context(|| format!("cannot send to groups from {interface}"))?;
    }
    Ok(socket)
}

/// Receives at an address of this host; port 0: one that is free.
pub(crate) fn receiver(address: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(address)
        .with_context(|| format!("cannot receive datagrams at {address}"))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Sets a socket's receive buffer to so many bytes, or to the most that this user may have.
pub(crate) fn make_room(socket: &UdpSocket, bytes: usize) -> Result<()> {
    // Above net.core.rmem_max it takes CAP_NET_ADMIN.
    if setsockopt(socket, RcvBufForce, &bytes).is_err() {
        setsockopt(socket, RcvBuf, &bytes).context("cannot have the kernel hold datagrams")?;
    }
    Ok(())
}

/// Receives what is sent to a group by the interface that has the address `local`.
pub(crate) fn member(group: SocketAddrV4, local: IpAddr) -> Result<UdpSocket> {
    let IpAddr::V4(interface) = local else {
        bail!("the group {group} is reached by IPv4 only, and the connection is from {local}");
    };
    join(group, interface).with_context(|| {
        format!("cannot receive the group {group} by the interface of {interface}")
    })
}

fn join(group: SocketAddrV4, interface: Ipv4Addr) -> std::io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    // Every consumer of this host gets a copy.
    socket.set_reuse_address(true)?;
    // Bound to the group, so that nothing else to the port gets in.
    socket.bind(&SocketAddr::from(group).into())?;
    // Only groups that this socket joined, by the interface that it joined them by.
    socket.set_multicast_all_v4(false)?;
    socket.join_multicast_v4(group.ip(), &interface)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
