//! TAP devices: what the kernel sends by one is read from it, and what is written to one comes to
//! the kernel.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

/// Bytes of `struct virtio_net_hdr`, which stands before a frame that is written.
pub const HEADER: usize = 10;
/// Its values (linux/virtio_net.h).
const NEEDS_CHECKSUM: u8 = 1;
const TCP_IPV4: u8 = 1;
const TCP_IPV6: u8 = 4;

/// What the kernel, or the device that a frame leaves by, has yet to do to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// Where the bytes begin that the checksum is over, as far as they are in the frame. The rest of
    /// its sum stands in its place.
    pub checked: u16,
    /// Where the checksum is, from there.
    pub checksum: u16,
    /// Where it is more than one segment of TCP.
    pub train: Option<Train>,
}

/// How a frame becomes several segments of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// Bytes of all the headers, which each has.
    pub headers: u16,
    /// Bytes of data in each but the last.
    pub size: u16,
    /// Whether they are of IPv6.
    pub is_ipv6: bool,
}

impl Offload {
    fn header(self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        let mut put = |at: usize, value: u16| {
            header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        };
        put(6, self.checked);
        put(8, self.checksum);
        if let Some(Train { headers, size, is_ipv6 }) = self.train {
            put(2, headers);
            put(4, size);
            header[1] = if is_ipv6 { TCP_IPV6 } else { TCP_IPV4 };
        }
        header[0] = NEEDS_CHECKSUM;
        header
    }
}

/// A TAP device of this process, which is gone when it is dropped.
#[derive(Debug)]
struct Device {
    fd: OwnedFd,
    name: String,
}

impl Device {
    fn make(name: &str, flags: c_int) -> io::Result<Device> {
        let how = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let fd = open("/dev/net/tun", how, Mode::empty())?;
        let mut request = libc::ifreq {
            ifr_name: [0; libc::IFNAMSIZ],
            ifr_ifru: libc::__c_anonymous_ifr_ifru {
                ifru_flags: (libc::IFF_TAP | libc::IFF_NO_PI | flags) as libc::c_short,
            },
        };
        // The last byte stays 0.
        for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        // SAFETY: the kernel reads and writes a `struct ifreq`, which this is.
        let made = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
        if made != 0 {
            return Err(io::Error::last_os_error());
        }
        let name = request.ifr_name.iter().take_while(|byte| **byte != 0);
        let name = name.map(|byte| char::from(u8::from_ne_bytes(byte.to_ne_bytes()))).collect();
        Ok(Device { fd, name })
    }
}

/// A TAP device of this process, from which the kernel's frames are read. It is gone when it is
/// dropped.
#[derive(Debug)]
pub struct Outlet(Device);

impl AsFd for Outlet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl Outlet {
    /// Makes one in the current network namespace, not up yet. The kernel puts a number for `%d` in
    /// its name.
    pub fn make(name: &str) -> io::Result<Outlet> {
        Device::make(name, 0).map(Outlet)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Reads a frame; its length, `None` where none waits.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match nix::unistd::read(&self.0.fd, buffer) {
            Ok(length) => Ok(Some(length)),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Frames that did not fit into its queue.
    pub fn dropped(&self) -> io::Result<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
        sent_dropped(&text, &self.0.name)
    }
}

/// A TAP device: a frame that is written to it comes to the kernel as if it came to the device. It is
/// gone when all that have it have dropped it.
#[derive(Debug)]
pub struct Inlet(Device);

impl AsFd for Inlet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl Inlet {
    /// Makes one in the current network namespace, not up yet. The kernel puts a number for `%d` in
    /// its name.
    pub fn make(name: &str) -> io::Result<Inlet> {
        Device::make(name, libc::IFF_VNET_HDR).map(Inlet)
    }

    /// One that another process has made, by a descriptor of it.
    pub fn of(fd: OwnedFd, name: String) -> Inlet {
        Inlet(Device { fd, name })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Takes one of the frames that the kernel sends by it, if there is one and the device is there.
    /// Until then its descriptor can be read.
    pub fn take(&self) -> io::Result<()> {
        match nix::unistd::read(&self.0.fd, &mut [0; 64]) {
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR | Errno::EBADFD) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Hands a frame to the kernel, of at most 64 kB.
    pub fn write(&self, frame: &[u8], offload: Option<Offload>) -> io::Result<()> {
        self.write_behind(&mut [&[0; HEADER], frame].concat(), offload)
    }

    /// The same with [`HEADER`] bytes of room before the frame, which saves a copy.
    #[inline]
    pub fn write_behind(&self, frame: &mut [u8], offload: Option<Offload>) -> io::Result<()> {
        let header = offload.map_or([0; HEADER], Offload::header);
        frame[..HEADER].copy_from_slice(&header);
        nix::unistd::write(&self.0.fd, frame)?;
        Ok(())
    }
}

/// The column of dropped transmissions of /proc/net/dev (net/core/net-procfs.c).
fn sent_dropped(text: &str, device: &str) -> io::Result<u64> {
    let of = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let count = counts.split_ascii_whitespace().nth(11)?.parse().ok();
        (name.trim() == device).then_some(count).flatten()
    };
    let missing = || io::Error::other(format!("/proc/net/dev does not have {device}"));
    text.lines().find_map(of).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_does_not_tell_is_not_zero() {
        let text = "Inter-|   Receive    |  Transmit\n face |bytes packets | bytes packets\n\
                    lslink0:  1 2 3 4 5 6 7 8  9 10 11 12 13 14 15 16\n";
        assert_eq!(sent_dropped(text, "lslink0").unwrap(), 12);
        assert!(sent_dropped(text, "lslink1").is_err());
        assert!(sent_dropped("", "lslink0").is_err());
        assert!(sent_dropped("lslink0: 1 2", "lslink0").is_err());
    }
}
