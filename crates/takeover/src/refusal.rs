//! Why connections stay with the kernel, and what of it TCP_REPAIR does not tell.

use std::io;
use std::os::fd::BorrowedFd;

use libc::{IPPROTO_TCP, SOL_SOCKET, c_int};
use loopscope_sock_diag::{AF_INET, AF_INET6, Attribute as _, SockDiag, SocketId};
use loopscope_stack::packet::Flow;
use thiserror::Error;

use crate::options::get;

/// Why a connection stays with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// It is being made, or is no connection.
    #[error("it is not connected")]
    NotConnected,
    /// One of its ends has closed its stream.
    #[error("it is being closed")]
    Closing,
    /// Urgent data came that were not read. TCP_REPAIR does not tell what is after them.
    #[error("it has urgent data")]
    Urgent,
    /// A program has a filter on the socket.
    #[error("its socket has a filter")]
    Filter,
    /// It may take several ways (RFC 8684).
    #[error("it is of MPTCP")]
    Multipath,
    /// Its segments have signatures (RFC 2385, RFC 5925), for which the stack has no keys.
    #[error("its segments are signed (TCP-MD5 or TCP-AO)")]
    Signed,
    /// The kernel changes its data, as for TLS.
    #[error("its socket has an upper-layer protocol (TCP_ULP)")]
    UpperLayer,
    /// The namespace asks for AccECN (RFC 9768), which the stack does not know; the socket does not
    /// tell whether it has that, or the marks of RFC 3168.
    #[error("its marks of congestion may be AccECN's (net.ipv4.tcp_ecn is 3 or more)")]
    AccurateMarks,
    /// Another protocol than the one that was asked for.
    #[error("its socket is not one of UDP")]
    NotUdp,
    /// Other sockets can get what comes to its port.
    #[error("its socket shares its port (SO_REUSEADDR, SO_REUSEPORT)")]
    SharedPort,
    /// One of its addresses is of several hosts, of this one alone, or of one link.
    #[error("one of its addresses is not that of one host alone in all networks")]
    Address,
    /// The stack does not do what an option asks for.
    #[error("{0} is set")]
    Set(&'static str),
}

/// `struct tcp_ao_info_opt` (linux/tcp.h), of Linux 6.7 on, and its option.
type AuthenticationInfo = [u64; 6];
const TCP_AO_INFO: c_int = 40;
/// Attributes of an answer (linux/inet_diag.h).
const INET_DIAG_MD5SIG: u16 = 18;
const INET_DIAG_ULP_INFO: u16 = 19;
/// Values of net.ipv4.tcp_ecn from here on ask for AccECN (Documentation/networking/ip-sysctl.rst).
const ACCURATE: u8 = 3;
/// Option of socket(7) from Linux 5.1 on (asm-generic/socket.h).
pub(crate) const SO_BINDTOIFINDEX: c_int = 62;

/// What the stack cannot do, if the socket has such a thing. It needs CAP_NET_ADMIN:
/// others are not told of keys.
pub(crate) fn hidden(socket: BorrowedFd<'_>, flow: &Flow) -> io::Result<Option<Refusal>> {
    if has_authentication(socket)? {
        return Ok(Some(Refusal::Signed));
    }
    let family = if flow.to.is_ipv4() { AF_INET } else { AF_INET6 };
    let answers = SockDiag::open()?.one(family, name(socket, flow)?)?;
    let [answer] = &answers[..] else { return Ok(Some(Refusal::NotConnected)) };
    let has = |kind| answer.nlas.iter().any(|attribute| attribute.kind() == kind);
    Ok(if has(INET_DIAG_MD5SIG) {
        Some(Refusal::Signed)
    } else if has(INET_DIAG_ULP_INFO) {
        Some(Refusal::UpperLayer)
    } else {
        None
    })
}

/// Whether connections of this thread's network namespace may have AccECN.
pub(crate) fn may_have_accurate_marks() -> io::Result<bool> {
    let asked = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_ecn")?;
    let asked: u8 = asked.trim().parse().map_err(io::Error::other)?;
    Ok(asked >= ACCURATE)
}

/// Whether it is of MPTCP.
pub(crate) fn is_multipath(socket: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(get::<c_int>(socket, SOL_SOCKET, libc::SO_PROTOCOL)? == libc::IPPROTO_MPTCP)
}

/// Whether it has keys of TCP-AO (RFC 5925).
fn has_authentication(socket: BorrowedFd<'_>) -> io::Result<bool> {
    match get::<AuthenticationInfo>(socket, IPPROTO_TCP, TCP_AO_INFO) {
        Ok(_) => Ok(true),
        // None, or the kernel knows nothing of it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOPROTOOPT)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// By which the kernel finds the socket.
fn name(socket: BorrowedFd<'_>, flow: &Flow) -> io::Result<SocketId> {
    let cookie: u64 = get(socket, SOL_SOCKET, libc::SO_COOKIE)?;
    let bound: c_int = get(socket, SOL_SOCKET, SO_BINDTOIFINDEX)?;
    let [low, high] = [cookie as u32, (cookie >> 32) as u32].map(u32::to_ne_bytes);
    let mut whole = [0; 8];
    whole[..4].copy_from_slice(&low);
    whole[4..].copy_from_slice(&high);
    Ok(SocketId {
        source_port: flow.to.port(),
        destination_port: flow.from.port(),
        source_address: flow.to.ip(),
        destination_address: flow.from.ip(),
        interface_id: bound.cast_unsigned(),
        cookie: whole,
    })
}
