//! Options of IP (RFC 791 §3.1), which no crate sets.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Has the packets of a socket have options.
pub fn add(socket: impl AsFd, options: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as there are.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_OPTIONS,
            options.as_ptr().cast(),
            options.len() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
