//! A device's MTU.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use crate::EmulateError;

/// In bytes; asked by a socket of any family in the device's namespace.
#[allow(unsafe_code)]
pub(super) fn of(socket: BorrowedFd<'_>, device: &str) -> Result<usize, EmulateError> {
    #[repr(C)]
    struct Request {
        name: [u8; libc::IFNAMSIZ],
        mtu: c_int,
        /// The rest of `struct ifreq`, whose other uses are longer.
        rest: [u8; 20],
    }
    let mut request = Request { name: [0; libc::IFNAMSIZ], mtu: 0, rest: [0; 20] };
    // A longer one is nobody's; the last byte stays 0.
    for (to, from) in request.name[..libc::IFNAMSIZ - 1].iter_mut().zip(device.bytes()) {
        *to = from;
    }
    // SAFETY: the structure is as large as the kernel's `struct ifreq` and laid out as that is for
    // this request.
    let got = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    if got != 0 {
        return Err(EmulateError::device(device, "cannot ask its MTU")(io::Error::last_os_error()));
    }
    Ok(usize::try_from(request.mtu).unwrap_or(0))
}
