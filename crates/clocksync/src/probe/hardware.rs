//! Stamps by the network interface itself, where it has a clock and its driver can stamp all
//! packets.
//!
//! Not exercised on hardware yet: what is tested is how the kernel's answers are read, and that an
//! interface without a clock is told from one with.

use std::ffi::CString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use nix::ifaddrs::getifaddrs;
use nix::libc;

const ETHTOOL_GET_TS_INFO: u32 = 0x41;
/// What the interface must be able to: SOF_TIMESTAMPING_TX_HARDWARE, RX_HARDWARE, RAW_HARDWARE.
const STAMPS: u32 = 1 << 0 | 1 << 2 | 1 << 6;
const TX_ON: u32 = libc::HWTSTAMP_TX_ON;
const RX_ALL: u32 = libc::HWTSTAMP_FILTER_ALL;

/// `struct ethtool_ts_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Ability {
    cmd: u32,
    so_timestamping: u32,
    phc_index: i32,
    tx_types: u32,
    tx_reserved: [u32; 3],
    rx_filters: u32,
    rx_reserved: [u32; 3],
}

impl Ability {
    /// The number of the interface's clock, if it can stamp all that goes and comes.
    fn phc(&self) -> Option<u32> {
        let can = self.so_timestamping & STAMPS == STAMPS
            && self.tx_types & 1 << TX_ON != 0
            && self.rx_filters & 1 << RX_ALL != 0;
        u32::try_from(self.phc_index).ok().filter(|_| can)
    }
}

/// What is to be done to an interface that stamps as `config` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It stamps already.
    Use,
    /// The stamps are unused: they are switched on, and off at the end.
    SwitchOn,
    /// Somebody else has it stamp other packets.
    LeaveAlone,
}

fn step(tx_type: u32, rx_filter: u32) -> Step {
    match (tx_type, rx_filter) {
        (TX_ON, RX_ALL) => Step::Use,
        (libc::HWTSTAMP_TX_OFF, libc::HWTSTAMP_FILTER_NONE) => Step::SwitchOn,
        _ => Step::LeaveAlone,
    }
}

/// What is called with an interface's name and its stamps as they are and as they will be, each the
/// types of what it sends and receives (`struct hwtstamp_config`), before they are switched on. An
/// error leaves them off.
pub type BeforeStamps = Arc<dyn Fn(&str, [u32; 2], [u32; 2]) -> io::Result<()> + Send + Sync>;

/// The types of the packets that an interface stamps: of what it sends and of what it receives.
pub fn read_stamps(interface: &str) -> io::Result<[u32; 2]> {
    let mut now = libc::hwtstamp_config { flags: 0, tx_type: 0, rx_filter: 0 };
    ask_by_name(interface, libc::SIOCGHWTSTAMP, &mut now)?;
    Ok([now.tx_type.cast_unsigned(), now.rx_filter.cast_unsigned()])
}

/// Has an interface stamp packets of these types.
pub fn write_stamps(interface: &str, [sent, received]: [u32; 2]) -> io::Result<()> {
    let mut wanted = libc::hwtstamp_config {
        flags: 0,
        tx_type: sent.cast_signed(),
        rx_filter: received.cast_signed(),
    };
    ask_by_name(interface, libc::SIOCSHWTSTAMP, &mut wanted)
}

fn ask_by_name<T: Question>(
    interface: &str,
    request: libc::c_ulong,
    about: &mut T,
) -> io::Result<()> {
    let name = CString::new(interface).map_err(|_| io::ErrorKind::InvalidInput)?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    ask(&socket, &name, request, about).ok_or_else(io::Error::last_os_error)
}

/// An interface that stamps.
pub(super) struct Hardware {
    phc: u32,
    interface: CString,
    /// Switched on by us.
    ours: bool,
    socket: UdpSocket,
}

impl Hardware {
    /// The interface of `address`, if it stamps or can be made to.
    pub(super) fn of(
        address: IpAddr,
        socket: &UdpSocket,
        before_stamps: Option<&BeforeStamps>,
    ) -> Option<Hardware> {
        let interface = interface_of(address)?;
        let mut ability = Ability { cmd: ETHTOOL_GET_TS_INFO, ..Ability::default() };
        ask(socket, &interface, libc::SIOCETHTOOL, &mut ability)?;
        let phc = ability.phc()?;
        let socket = socket.try_clone().ok()?;
        let mut hardware = Hardware { phc, interface, ours: false, socket };
        let mut now = libc::hwtstamp_config { flags: 0, tx_type: 0, rx_filter: 0 };
        ask(&hardware.socket, &hardware.interface, libc::SIOCGHWTSTAMP, &mut now)?;
        match step(now.tx_type.cast_unsigned(), now.rx_filter.cast_unsigned()) {
            Step::Use => {}
            Step::SwitchOn => {
                let (off, on) =
                    ([libc::HWTSTAMP_TX_OFF, libc::HWTSTAMP_FILTER_NONE], [TX_ON, RX_ALL]);
                let name = hardware.interface.to_str().ok()?;
                before_stamps.map_or(Ok(()), |call| call(name, off, on)).ok()?;
                hardware.set(TX_ON, RX_ALL)?;
                hardware.ours = true;
            }
            Step::LeaveAlone => return None,
        }
        Some(hardware)
    }

    /// The number of its clock.
    pub(super) fn phc(&self) -> u32 {
        self.phc
    }

    fn set(&self, tx_type: u32, rx_filter: u32) -> Option<()> {
        let mut wanted = libc::hwtstamp_config {
            flags: 0,
            tx_type: tx_type.cast_signed(),
            rx_filter: rx_filter.cast_signed(),
        };
        ask(&self.socket, &self.interface, libc::SIOCSHWTSTAMP, &mut wanted)
    }
}

impl Drop for Hardware {
    fn drop(&mut self) {
        if self.ours {
            // What cannot be undone stamps on, to nobody's harm.
            let _ = self.set(libc::HWTSTAMP_TX_OFF, libc::HWTSTAMP_FILTER_NONE);
        }
    }
}

/// The name of the interface that has this address.
pub(super) fn interface_of(address: IpAddr) -> Option<CString> {
    let same = |interface: &nix::ifaddrs::InterfaceAddress| {
        interface.address.is_some_and(|a| {
            let v4 = a.as_sockaddr_in().map(|a| IpAddr::V4(*SocketAddrV4::from(*a).ip()));
            let v6 = a.as_sockaddr_in6().map(|a| IpAddr::V6(*SocketAddrV6::from(*a).ip()));
            v4.or(v6) == Some(address)
        })
    };
    let found = getifaddrs().ok()?.find(same)?;
    CString::new(found.interface_name).ok()
}

/// Structures that go with the requests of [`ask`]: numbers only.
trait Question {}
impl Question for Ability {}
impl Question for libc::hwtstamp_config {}

#[allow(unsafe_code)]
fn ask<T: Question>(
    socket: &UdpSocket,
    interface: &CString,
    request: libc::c_ulong,
    about: &mut T,
) -> Option<()> {
    let name = interface.as_bytes_with_nul();
    let mut named = [0 as libc::c_char; libc::IFNAMSIZ];
    if name.len() > named.len() {
        nix::errno::Errno::ENODEV.set();
        return None;
    }
    for (to, from) in named.iter_mut().zip(name) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    let mut asked = libc::ifreq {
        ifr_name: named,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: std::ptr::from_mut(about).cast() },
    };
    // SAFETY: each request is made with the structure that the kernel defines for it, and that
    // lives through the call; the name ends with NUL inside its array.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), request as libc::Ioctl, &mut asked) };
    (result == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// The answers of igb's driver and of veth's.
    #[test]
    fn an_interface_with_a_clock_is_told_from_one_without() {
        let igb = Ability {
            so_timestamping: 0x5f,
            phc_index: 3,
            tx_types: 0b11,
            rx_filters: 0b11,
            ..Ability::default()
        };
        assert_eq!(igb.phc(), Some(3));
        // One that stamps PTP's packets only.
        assert_eq!(Ability { rx_filters: 0x1001, ..igb }.phc(), None);
        assert_eq!(Ability { tx_types: 1, ..igb }.phc(), None);
        assert_eq!(Ability { phc_index: -1, ..igb }.phc(), None);
        assert_eq!(Ability { so_timestamping: 0x1a, ..igb }.phc(), None);
    }

    #[test]
    fn what_others_have_set_is_left_alone() {
        assert_eq!(step(1, 1), Step::Use);
        assert_eq!(step(0, 0), Step::SwitchOn);
        // The filter that ptp4l sets: PTP_V2_EVENT.
        assert_eq!(step(1, 12), Step::LeaveAlone);
    }

    /// So that nothing is taken for a setting that could not be read.
    #[test]
    fn stamps_of_what_has_none_are_an_error() {
        let unsupported = read_stamps("lo").unwrap_err();
        assert_eq!(unsupported.raw_os_error(), Some(libc::EOPNOTSUPP));
        for absent in ["no-such-link", "a-name-that-is-longer-than-any-interface-has"] {
            assert_eq!(read_stamps(absent).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        }
    }

    #[test]
    fn loopback_has_no_clock() {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let socket = UdpSocket::bind((loopback, 0)).unwrap();
        let interface = interface_of(loopback).unwrap();
        let mut ability = Ability { cmd: ETHTOOL_GET_TS_INFO, ..Ability::default() };
        ask(&socket, &interface, libc::SIOCETHTOOL, &mut ability).unwrap();
        assert!(ability.so_timestamping != 0, "{ability:?}");
        assert!(Hardware::of(loopback, &socket, None).is_none());
    }
}
