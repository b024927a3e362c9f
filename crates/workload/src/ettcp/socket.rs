//! Options of sockets.

use std::fs;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};
use serde::Serialize;

sockopt_impl!(
    /// The kernel's state of a connection.
    TcpInfo, GetOnly, libc::IPPROTO_TCP, libc::TCP_INFO, libc::tcp_info
);
sockopt_impl!(
    /// The most that the receiver lets the sender have on the way.
    TcpWindowClamp, Both, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, libc::c_int
);

/// One of a socket's buffers.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Direction {
    Send,
    Receive,
}

/// Sets the buffer to `size` bytes, beyond the machine's limit where that is allowed. What it is
/// then; the kernel counts its own overhead in and doubles what it is asked for.
pub(super) fn set_buffer(socket: &impl AsFd, direction: Direction, size: usize) -> Result<()> {
    let (got, limit) = match direction {
        Direction::Send => {
            if setsockopt(socket, sockopt::SndBufForce, &size).is_err() {
                setsockopt(socket, sockopt::SndBuf, &size).context("cannot set SO_SNDBUF")?;
            }
            (getsockopt(socket, sockopt::SndBuf)?, "net.core.wmem_max")
        }
        Direction::Receive => {
            if setsockopt(socket, sockopt::RcvBufForce, &size).is_err() {
                setsockopt(socket, sockopt::RcvBuf, &size).context("cannot set SO_RCVBUF")?;
            }
            (getsockopt(socket, sockopt::RcvBuf)?, "net.core.rmem_max")
        }
    };
    if got < 2 * size {
        eprintln!(
            "warning: the socket's buffer is {} B, not {size} B; raise {limit} (sysctl) to have it",
            got / 2
        );
    }
    Ok(())
}

/// Chooses the congestion control.
pub(super) fn set_congestion(stream: &TcpStream, name: &str) -> Result<()> {
    match setsockopt(stream, sockopt::TcpCongestion, &name.into()) {
        Ok(()) => Ok(()),
        Err(Errno::ENOENT) => {
            let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
            bail!(
                "this kernel has no congestion control `{name}`; it has: {}. Load another with \
                 modprobe tcp_{name}",
                known.unwrap_or_default().trim()
            )
        }
        Err(Errno::EPERM) => bail!(
            "only root may choose the congestion control `{name}`; add it to \
             net.ipv4.tcp_allowed_congestion_control (sysctl)"
        ),
        Err(error) => Err(error).context("cannot choose the congestion control"),
    }
}

/// Clamps the window that this end offers.
pub(super) fn set_window(socket: &impl AsFd, bytes: usize) -> Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    setsockopt(socket, TcpWindowClamp, &bytes).context("cannot clamp the window")
}

/// A connection as the kernel sees it at its end.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TcpState {
    /// Segments sent again.
    pub(super) retransmitted: u32,
    /// Smoothed round trip and its mean deviation (RFC 6298).
    pub(super) rtt_us: u32,
    pub(super) rtt_deviation_us: u32,
    /// The congestion window, in segments.
    pub(super) window_segments: u32,
    /// The largest segment.
    pub(super) segment_bytes: u32,
    pub(super) congestion: String,
}

impl TcpState {
    /// `None` where the kernel does not tell.
    pub(super) fn of(stream: &TcpStream) -> Option<TcpState> {
        let info = getsockopt(stream, TcpInfo).ok()?;
        let congestion = getsockopt(stream, sockopt::TcpCongestion).ok()?;
        Some(TcpState {
            retransmitted: info.tcpi_total_retrans,
            rtt_us: info.tcpi_rtt,
            rtt_deviation_us: info.tcpi_rttvar,
            window_segments: info.tcpi_snd_cwnd,
            segment_bytes: info.tcpi_snd_mss,
            congestion: congestion.to_string_lossy().trim_end_matches('\0').to_owned(),
        })
    }
}

/// UDP packets that the kernel threw away for want of room in the socket's buffer; `None` where it
/// does not tell.
pub(super) fn dropped(socket: &impl AsRawFd) -> Option<u64> {
    let link = fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).ok()?;
    let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned();
    let find = |file: &str| {
        let table = fs::read_to_string(file).ok()?;
        // Columns of proc(5): the inode is the tenth, the drops are the last.
        let row: Vec<&str> = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|row| row.get(9) == Some(&inode.as_str()))?;
        row.last()?.parse().ok()
    };
    find("/proc/thread-self/net/udp").or_else(|| find("/proc/thread-self/net/udp6"))
}
