//! What the kernel tells of the TCP connections of a network namespace (sock_diag(7)).

use std::io;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::IPPROTO_TCP;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, StateFlags};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr};

pub use netlink_packet_core::Nla as Attribute;
pub use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6};
pub use netlink_packet_sock_diag::inet::nlas::Nla;
pub use netlink_packet_sock_diag::inet::{InetResponse, SocketId};

/// Answers about the connections in the network namespace of the thread that made it.
#[derive(Debug)]
pub struct SockDiag {
    socket: Socket,
}

impl SockDiag {
    /// Opens a socket to the kernel.
    pub fn open() -> io::Result<SockDiag> {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(SockDiag { socket })
    }

    /// All established connections of a family, also those that the other end has closed.
    pub fn all(&mut self, family: u8) -> io::Result<Vec<InetResponse>> {
        let any = if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() };
        self.ask(family, any, NLM_F_DUMP)?;
        let mut found = vec![];
        loop {
            let (answers, ended) = self.answers()?;
            found.extend(answers);
            if ended {
                return Ok(found);
            }
        }
    }

    /// The connections by a name, with `struct tcp_info`: one, or none where there is no such socket.
    /// A cookie that is not all 0xff has to be the socket's.
    pub fn one(&mut self, family: u8, id: SocketId) -> io::Result<Vec<InetResponse>> {
        self.ask(family, id, 0)?;
        Ok(self.answers()?.0)
    }

    fn ask(&mut self, family: u8, socket_id: SocketId, flags: u16) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let request = InetRequest {
            family,
            protocol: IPPROTO_TCP,
            extensions: ExtensionFlags::INFO,
            states: StateFlags::ESTABLISHED | StateFlags::CLOSE_WAIT,
            socket_id,
        };
        let request = SockDiagMessage::InetRequest(request);
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }

    /// The next answers to a request, and whether these were the last of many; none where there is no
    /// such socket.
    fn answers(&mut self) -> io::Result<(Vec<InetResponse>, bool)> {
        let (bytes, _) = self.socket.recv_from_full()?;
        let (mut found, mut ended, mut rest) = (vec![], false, &bytes[..]);
        while !rest.is_empty() {
            let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let length = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(length.max(1)..).unwrap_or_default();
            match message.payload {
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(answer)) => {
                    found.push(*answer);
                }
                NetlinkPayload::Error(error) => match error.to_io() {
                    error if error.kind() == io::ErrorKind::NotFound => ended = true,
                    error => return Err(error),
                },
                _ => ended = true,
            }
        }
        Ok((found, ended))
    }
}
