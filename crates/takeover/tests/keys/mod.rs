//! Keys of TCP-MD5 (RFC 2385), which no crate sets.
#![allow(unsafe_code)]

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;

use socket2::Socket;

/// Bytes of `struct tcp_md5sig` (linux/tcp.h), and where its parts are.
const SIZE: usize = 216;
const KEY_LENGTH: usize = 130;
const KEY: usize = 136;

/// Has the segments between a socket and an address signed.
pub fn sign(socket: &Socket, peer: Ipv4Addr, port: u16) -> io::Result<()> {
    let mut request = [0u8; SIZE];
    request[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    request[2..4].copy_from_slice(&port.to_be_bytes());
    request[4..8].copy_from_slice(&peer.octets());
    request[KEY_LENGTH..KEY_LENGTH + 2].copy_from_slice(&6u16.to_ne_bytes());
    request[KEY..KEY + 6].copy_from_slice(b"secret");
    // SAFETY: the kernel reads `SIZE` bytes, which are there.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MD5SIG,
            request.as_ptr().cast(),
            SIZE as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
