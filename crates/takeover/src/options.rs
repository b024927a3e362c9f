//! Options and counts of a socket that no crate has, by libc.

#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_ulong, c_void, socklen_t};

/// Values that are nothing but integers, so that any bytes are one.
///
/// # Safety
///
/// All fields are integers.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: they are integers.
unsafe impl Plain for c_int {}
// SAFETY: it is an integer.
unsafe impl Plain for u32 {}
// SAFETY: it is an integer.
unsafe impl Plain for u64 {}
// SAFETY: they are integers.
unsafe impl Plain for [u64; 6] {}
// SAFETY: all its fields are integers.
unsafe impl Plain for libc::tcp_info {}
// SAFETY: all its fields are integers.
unsafe impl Plain for RepairWindow {}
// SAFETY: both its fields are integers.
unsafe impl Plain for Agreed {}

/// `struct tcp_repair_window` (linux/tcp.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RepairWindow {
    pub(crate) wl1: u32,
    pub(crate) peer_window: u32,
    pub(crate) widest: u32,
    pub(crate) window: u32,
    pub(crate) window_begin: u32,
}

/// What both ends have agreed on: `struct tcp_repair_opt` (linux/tcp.h).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) code: u32,
    pub(crate) value: u32,
}

/// The value of an option.
pub(crate) fn get<T: Plain>(socket: impl AsFd, level: c_int, name: c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which are there.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast::<c_void>(),
            &raw mut length,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was zeroed, and any bytes are a value of `T`.
    Ok(unsafe { value.assume_init() })
}

/// Sets an option.
pub(crate) fn set<T: Plain>(
    socket: impl AsFd,
    level: c_int,
    name: c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as `value` has.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast::<c_void>(),
            size_of::<T>() as socklen_t,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Bytes of an option that is nothing but bytes.
pub(crate) fn length(socket: impl AsFd, level: c_int, name: c_int) -> io::Result<usize> {
    let mut value = [0_u8; 2048];
    let mut length = value.len() as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`.
    let done = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut length)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(length as usize) }
}

/// Bytes of the largest packet of a device in the network namespace of a socket (netdevice(7)).
pub fn mtu_of(socket: impl AsFd, device: &str) -> io::Result<usize> {
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_mtu: 0 },
    };
    // The last byte stays 0.
    for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads and writes a `struct ifreq`, which this is.
    if unsafe { libc::ioctl(fd, libc::SIOCGIFMTU as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just written this field.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or(0))
}

/// A count by ioctl(2).
pub(crate) fn count(socket: impl AsFd, request: c_ulong) -> io::Result<usize> {
    let mut value: c_int = 0;
    // SAFETY: the requests that are used write one integer.
    let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), request as _, &raw mut value) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(value).unwrap_or(0))
}

/// Moves up to so many bytes from one file to another, of which one is a pipe (splice(2)). It does
/// not wait for them.
pub(crate) fn splice(from: impl AsFd, to: impl AsFd, count: usize) -> io::Result<usize> {
    let no_place = std::ptr::null_mut();
    // SAFETY: both places are null, so the kernel writes to no memory of this process.
    let moved = unsafe {
        libc::splice(
            from.as_fd().as_raw_fd(),
            no_place,
            to.as_fd().as_raw_fd(),
            no_place,
            count,
            libc::SPLICE_F_NONBLOCK,
        )
    };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

/// Whether a filter is attached, of either kind of BPF.
pub(crate) fn has_filter(socket: impl AsFd) -> io::Result<bool> {
    let mut length: socklen_t = 0;
    // SAFETY: with a length of 0 the kernel writes nothing but the number of instructions there.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_GET_FILTER,
            std::ptr::null_mut(),
            &raw mut length,
        )
    };
    match done {
        0 => Ok(length > 0),
        _ => match io::Error::last_os_error() {
            // One of the second kind has no instructions that could be told.
            error if error.raw_os_error() == Some(libc::EACCES) => Ok(true),
            error => Err(error),
        },
    }
}

/// Attaches a filter of BPF's first kind (socket(7), SO_ATTACH_FILTER).
pub(crate) fn attach_filter(socket: impl AsFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let filter =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel copies `len` instructions, which live until it returns, and writes nothing.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast::<c_void>(),
            size_of::<libc::sock_fprog>() as socklen_t,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
