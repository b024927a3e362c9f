//! Items in datagrams, with recovery of their own, for channels whose items are worthless after a while.
//!
//! `sender` and `receiver` have no sockets and no clocks.

mod incoming;
mod outgoing;
mod packet;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Mutex;

use rustix::event::{PollFd, poll};
use rustix::net::{RecvFlags, recvfrom};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};

pub(crate) use incoming::{Incoming, KeptAway};
pub(crate) use outgoing::Outgoing;

use crate::key;

/// Where a mirror takes datagrams.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Address {
    /// At the address of its connection.
    port: u16,
    /// Begins each datagram of the connection.
    token: u64,
}

/// A mirror's socket.
pub(crate) struct Door {
    socket: UdpSocket,
    token: u64,
    /// Where datagrams of the connection have come from.
    home: Mutex<Option<SocketAddr>>,
}

impl Door {
    /// One for the datagrams of a connection.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn of(stream: &TcpStream) -> io::Result<Door> {
        let socket = UdpSocket::bind(with_port(stream.local_addr()?, 0))?;
        let token = u64::from_le_bytes(key::random()?);
        Ok(Door { socket, token, home: Mutex::default() })
    }

    /// Where the home has to send datagrams.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn address(&self) -> io::Result<Address> {
        Ok(Address { port: self.socket.local_addr()?.port(), token: self.token })
    }
}

/// The same address with another port. A link-local address of IPv6 is nothing without its scope.
fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// The next datagram that has come, and from where.
fn next_datagram(
    socket: &UdpSocket,
    into: &mut [u8],
) -> io::Result<Option<(usize, Option<SocketAddr>)>> {
    loop {
        match recvfrom(socket, &mut *into, RecvFlags::DONTWAIT) {
            Ok((_, length, from)) => {
                let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                return Ok(Some((length.min(into.len()), from)));
            }
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            // It is of a datagram that was sent before (udp(7)).
            Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::INTR) => (),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until there is something to read, or for a time.
fn await_any(fds: &mut [PollFd<'_>], ns: i64) -> io::Result<()> {
    let most = Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
    match poll(fds, Some(&most)) {
        // A stop of the process ends it, too (signal(7)).
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
