//! What a device leaves to the one at the other end of its wire: checksums and segments that only a
//! real wire would need. A packet that is read from a veth by a program, which then puts it on
//! another wire, must be whole: a TCP connection over it is not even made otherwise.

use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::libc::{self, ifreq};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::namespace;

/// `struct ethtool_value` of linux/ethtool.h.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

const SIOCETHTOOL: libc::Ioctl = 0x8946;
/// ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO.
const SETTINGS: [u32; 4] = [0x17, 0x1f, 0x24, 0x2c];

/// Has `devices` in the namespace send whole packets only, with their checksums. Ends with the
/// devices, and so with the namespace.
pub(crate) fn switch_off(namespace: &str, devices: &[String]) -> io::Result<()> {
    // A thread of its own, because it stays in the namespace.
    let switch = || {
        namespace::enter(namespace)?;
        for device in devices {
            for command in SETTINGS {
                set(device, EthtoolValue { command, data: 0 })
                    .map_err(|e| io::Error::new(e.kind(), format!("{device}: {e}")))?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| scope.spawn(switch).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread for it failed")))
}

#[allow(unsafe_code)]
fn set(device: &str, mut value: EthtoolValue) -> io::Result<()> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: all of `ifreq` is numbers and a pointer, of which zeros are values.
    let mut request: ifreq = unsafe { std::mem::zeroed() };
    // One zero has to stay at its end.
    if device.len() >= request.ifr_name.len() {
        return Err(Errno::ENAMETOOLONG.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: for SIOCETHTOOL the kernel reads `ifr_name`, which ends in a zero, and through
    // `ifru_data` a `struct ethtool_value`, as the command in it says; it keeps neither. `request`
    // and `value` live until it returns.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    Errno::result(outcome)?;
    Ok(())
}
