//! A TAP device: frames that the kernel sends into it are read from its descriptor.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use crate::EmulateError;

/// The kernel puts a number for `%d`.
const NAME: &[u8] = b"lslink%d";

/// A TAP device of this process, which is gone when it is dropped.
#[derive(Debug)]
pub(super) struct TapDevice {
    fd: OwnedFd,
    name: String,
}

impl AsFd for TapDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl TapDevice {
    /// Makes one in the current network namespace, not up yet.
    pub(super) fn make() -> Result<TapDevice, EmulateError> {
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let fd = open("/dev/net/tun", flags, Mode::empty())
            .map_err(|errno| super::refused(errno.into()))?;
        let mut request = libc::ifreq {
            ifr_name: [0; libc::IFNAMSIZ],
            ifr_ifru: libc::__c_anonymous_ifr_ifru {
                ifru_flags: (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short,
            },
        };
        for (to, from) in request.ifr_name.iter_mut().zip(NAME) {
            *to = *from as libc::c_char;
        }
        // SAFETY: the kernel reads and writes a `struct ifreq`, which this is.
        let made = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
        if made != 0 {
            return Err(super::refused(io::Error::last_os_error()));
        }
        let name = request.ifr_name.iter().take_while(|byte| **byte != 0);
        let name = name.map(|byte| char::from(u8::from_ne_bytes(byte.to_ne_bytes()))).collect();
        Ok(TapDevice { fd, name })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Reads a frame; its length, `None` where none waits.
    pub(super) fn read(&self, buffer: &mut [u8]) -> Result<Option<usize>, EmulateError> {
        match nix::unistd::read(&self.fd, buffer) {
            Ok(length) => Ok(Some(length)),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(errno) => Err(EmulateError::device(&self.name, "cannot receive")(errno.into())),
        }
    }

    /// Frames that did not fit into its queue.
    pub(super) fn dropped(&self) -> io::Result<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
        sent_dropped(&text, &self.name)
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
