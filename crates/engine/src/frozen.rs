//! Whether the kernel has a socket's connection.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Whether a socket of TCP is in repair mode, as one is whose connection was taken over (tcp(7),
/// TCP_REPAIR).
pub(crate) fn is_frozen(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`, which any bytes are valid for.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_REPAIR,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    if got == 0 { Ok(value != 0) } else { Err(io::Error::last_os_error()) }
}
