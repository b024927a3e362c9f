//! Work that a device leaves to the one at the other end of its wire: checksums and segments that
//! only a real wire would need, and VLAN tags outside of the frame. A packet that is read from a
//! veth by a program, which then puts it on another wire, must be whole: a TCP connection over it
//! is not even made otherwise, and AF_XDP does not hand out tags that are outside of the frame.

use std::collections::BTreeMap;
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
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
/// The device takes the VLAN tag of a frame that it sends from outside of the frame.
const ETH_FLAG_TXVLAN: u32 = 1 << 7;

/// What is asked, and the bit of the answer, for each offload by its name in ethtool(8):
/// ETHTOOL_GRXCSUM, ETHTOOL_GTXCSUM, ETHTOOL_GTSO, ETHTOOL_GGSO, ETHTOOL_GGRO, ETH_FLAG_LRO,
/// ETH_FLAG_RXVLAN, ETH_FLAG_TXVLAN.
const OFFLOADS: [(&str, u32, u32); 8] = [
    ("rx-checksumming", 0x14, 1),
    ("tx-checksumming", 0x16, 1),
    ("tcp-segmentation-offload", 0x1e, 1),
    ("generic-segmentation-offload", 0x23, 1),
    ("generic-receive-offload", 0x2b, 1),
    ("large-receive-offload", ETHTOOL_GFLAGS, 1 << 15),
    ("rx-vlan-offload", ETHTOOL_GFLAGS, 1 << 8),
    ("tx-vlan-offload", ETHTOOL_GFLAGS, ETH_FLAG_TXVLAN),
];

/// Offloads that can be switched for a run, with what asks for them and what switches them:
/// ETHTOOL_GGRO and ETHTOOL_SGRO, ETHTOOL_GGSO and ETHTOOL_SGSO. Each is one switch of the device;
/// that of TCP's segments is several, of which only one state could be read so.
pub(crate) const SWITCHES: [(&str, u32, u32); 2] = [("gro", 0x2b, 0x2c), ("gso", 0x23, 0x24)];

/// Whether one of [`SWITCHES`] is `on` or `off`.
pub(crate) fn read(device: &str, offload: &str) -> io::Result<String> {
    let (asks, _) = switch(offload)?;
    Ok(if ask(device, asks, 0)? == 0 { "off" } else { "on" }.to_owned())
}

/// Switches one of [`SWITCHES`] `on` or `off`.
pub(crate) fn write(device: &str, offload: &str, state: &str) -> io::Result<()> {
    let on = match state {
        "on" => 1,
        "off" => 0,
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is on or off")),
    };
    let (_, switches) = switch(offload)?;
    ask(device, switches, on).map(drop)
}

fn switch(offload: &str) -> io::Result<(u32, u32)> {
    let found = SWITCHES.into_iter().find(|(name, ..)| *name == offload);
    found.map(|(_, asks, switches)| (asks, switches)).ok_or(io::ErrorKind::InvalidInput.into())
}

/// Whether each offload of `device`, in the calling thread's namespace, is on or off.
pub(crate) fn of(device: &str) -> io::Result<BTreeMap<&'static str, &'static str>> {
    let state = |(name, command, bit)| {
        let on = ask(device, command, 0)? & bit != 0;
        Ok((name, if on { "on" } else { "off" }))
    };
    OFFLOADS.into_iter().map(state).collect()
}

/// Has `devices` in the namespace send whole packets only, with their checksums and their tags of
/// IEEE 802.1Q. Ends with the devices, and so with the namespace.
pub(crate) fn switch_off(namespace: &str, devices: &[String]) -> io::Result<()> {
    let switch = || {
        for device in devices {
            let ask = |command, data| {
                ask(device, command, data)
                    .map_err(|e| io::Error::new(e.kind(), format!("{device}: {e}")))
            };
            for command in SETTINGS {
                ask(command, 0)?;
            }
            let flags = ask(ETHTOOL_GFLAGS, 0)?;
            if flags & ETH_FLAG_TXVLAN != 0 {
                ask(ETHTOOL_SFLAGS, flags & !ETH_FLAG_TXVLAN)?;
            }
        }
        Ok(())
    };
    namespace::within(namespace, switch)?
}

/// The content of `data` after the command: a command that queries changes it.
#[allow(unsafe_code)]
fn ask(device: &str, command: u32, data: u32) -> io::Result<u32> {
    let mut value = EthtoolValue { command, data };
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
    // SAFETY: for SIOCETHTOOL the kernel reads `ifr_name`, which ends in a zero, and reads or
    // writes through `ifru_data` a `struct ethtool_value`, as the command in it says; it keeps
    // neither. `request` and `value` live until it returns.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    Errno::result(outcome)?;
    Ok(value.data)
}
