//! Checksums of TCP and UDP (RFC 1071), which are over the addresses, too.

use std::fmt;
use std::net::IpAddr;

use etherparse::checksum::Sum16BitWords;

/// A protocol with ports (linux/in.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// RFC 9293.
    Tcp = 6,
    /// RFC 768.
    Udp = 17,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
        })
    }
}

/// Whether packets have the right checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// The packet has been in a network, or goes into one as it is.
    Whole,
    /// Where the checksum of TCP or UDP is, only the sum of the pseudo header may stand. That of
    /// the rest is left to the device by which the packet leaves. One that does not leave the
    /// machine stays so.
    Unfinished,
    /// The kernel, or the device by which the packet came, has found them right.
    Right,
}

/// Whether the checksum at a place of these bytes of TCP or UDP is right. `sum` is that of the pseudo
/// header. The sum over all, with the checksum in it, is 0 then (RFC 1071).
pub(crate) fn is_right(
    bytes: &[u8],
    place: usize,
    sum: Sum16BitWords,
    checksums: Checksums,
) -> bool {
    if checksums == Checksums::Right {
        return true;
    }
    // Words are added in this machine's order.
    let stands = u16::from_ne_bytes([bytes[place], bytes[place + 1]]);
    checksums == Checksums::Unfinished && stands == !sum.ones_complement()
        || sum.add_slice(bytes).ones_complement() == 0
}

/// The sum of what the checksum of TCP or UDP is over besides its bytes (RFC 9293 §3.1), of which
/// there are `length`.
pub(crate) fn pseudo_header(
    (from, to): (IpAddr, IpAddr),
    protocol: Protocol,
    length: usize,
) -> Sum16BitWords {
    let mut sum = Sum16BitWords::new();
    for address in [from, to] {
        sum = match address {
            IpAddr::V4(address) => sum.add_4bytes(address.octets()),
            IpAddr::V6(address) => sum.add_16bytes(address.octets()),
        };
    }
    sum.add_4bytes((length as u32).to_be_bytes()).add_2bytes([0, protocol as u8])
}

/// A checksum of UDP as it is sent: 0 would say that there is none (RFC 768).
pub(crate) fn never_zero(sum: u16) -> u16 {
    if sum == 0 { u16::MAX } else { sum }
}
