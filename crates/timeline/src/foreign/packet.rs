//! What the headers of a captured frame say.

use std::net::IpAddr;

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};

/// Headers of a frame, as far as it was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Headers {
    pub source: Option<IpAddr>,
    pub destination: Option<IpAddr>,
    /// What IP carries, by its number.
    pub protocol: Option<u8>,
    /// IPv4's, which tells a sender's packets apart.
    pub ip_id: Option<u16>,
    pub source_port: Option<u16>,
    pub destination_port: Option<u16>,
}

/// Slices a frame of a link type whose frames contain IP (https://www.tcpdump.org/linktypes.html).
fn sliced(link_type: u16, frame: &[u8]) -> Option<LaxSlicedPacket<'_>> {
    let after = |header: usize, protocol: usize| {
        let number = frame.get(protocol..protocol + 2)?;
        let number = EtherType(u16::from_be_bytes([number[0], number[1]]));
        Some(LaxSlicedPacket::from_ether_type(number, frame.get(header..)?))
    };
    match link_type {
        // Ethernet.
        1 => LaxSlicedPacket::from_ethernet(frame).ok(),
        // BSD's loopback: four bytes for the family.
        0 | 108 => LaxSlicedPacket::from_ip(frame.get(4..)?).ok(),
        // IP itself.
        12 | 14 | 101 | 228 | 229 => LaxSlicedPacket::from_ip(frame).ok(),
        // Linux' any device, in two versions.
        113 => after(16, 14),
        276 => after(20, 0),
        _ => None,
    }
}

impl Headers {
    /// The headers of a frame of that link type.
    pub fn of(link_type: u16, frame: &[u8]) -> Headers {
        let mut found = Headers::default();
        let Some(packet) = sliced(link_type, frame) else { return found };
        match &packet.net {
            Some(LaxNetSlice::Ipv4(ip)) => {
                found.source = Some(ip.header().source_addr().into());
                found.destination = Some(ip.header().destination_addr().into());
                found.protocol = Some(ip.payload_ip_number().0);
                found.ip_id = Some(ip.header().identification());
            }
            Some(LaxNetSlice::Ipv6(ip)) => {
                found.source = Some(ip.header().source_addr().into());
                found.destination = Some(ip.header().destination_addr().into());
                found.protocol = Some(ip.payload().ip_number.0);
            }
            _ => {}
        }
        let ports = match &packet.transport {
            Some(TransportSlice::Udp(udp)) => Some((udp.source_port(), udp.destination_port())),
            Some(TransportSlice::Tcp(tcp)) => Some((tcp.source_port(), tcp.destination_port())),
            _ => None,
        };
        (found.source_port, found.destination_port) = ports.unzip();
        found
    }
}
