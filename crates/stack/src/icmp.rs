//! What routers tell of packets that they dropped because those were too large for the path.

use std::net::{IpAddr, SocketAddr};

use etherparse::checksum::Sum16BitWords;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use crate::packet::Flow;
use crate::place::Seq;

/// Types and codes: RFC 792, RFC 4443 §3.2.
const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const TOO_BIG: u8 = 2;
const PROTOCOL_TCP: u8 = 6;
/// For a router that does not say what fits (RFC 1191 §5): what every host takes.
const LEAST_DATAGRAM: usize = 576;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;

/// A segment of TCP that was too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// The flow of the packets that come, of the connection that has sent it.
    pub flow: Flow,
    /// Its sequence number.
    pub seq: Seq,
    /// Bytes of TCP's header and data that a packet has room for.
    pub most: usize,
}

impl TooBig {
    /// What an IP packet tells; none where it is another message or damaged. The message has the
    /// beginning of the packet that was dropped, at least the first 8 bytes of TCP's header.
    pub fn of(packet: &[u8]) -> Option<TooBig> {
        let sliced = SlicedPacket::from_ip(packet).ok()?;
        match (&sliced.net?, &sliced.transport?) {
            (NetSlice::Ipv4(_), TransportSlice::Icmpv4(icmp)) => {
                let is_right = Sum16BitWords::new().add_slice(icmp.slice()).ones_complement() == 0;
                let kind = (icmp.type_u8(), icmp.code_u8());
                if !is_right || kind != (UNREACHABLE, FRAGMENTATION_NEEDED) {
                    return None;
                }
                let [.., high, low] = icmp.bytes5to8();
                let told = usize::from(u16::from_be_bytes([high, low]));
                let mtu = if told == 0 { LEAST_DATAGRAM } else { told };
                let dropped = icmp.payload();
                let length = usize::from(*dropped.first()? & 15) * 4;
                if *dropped.get(9)? != PROTOCOL_TCP || length < IPV4_HEADER {
                    return None;
                }
                let sender: [u8; 4] = dropped.get(12..16)?.try_into().ok()?;
                let receiver: [u8; 4] = dropped.get(16..20)?.try_into().ok()?;
                TooBig::with([sender.into(), receiver.into()], dropped.get(length..)?, mtu, length)
            }
            (NetSlice::Ipv6(ip), TransportSlice::Icmpv6(icmp)) => {
                let header = ip.header();
                let is_right = icmp.is_checksum_valid(header.source(), header.destination());
                if !is_right || (icmp.type_u8(), icmp.code_u8()) != (TOO_BIG, 0) {
                    return None;
                }
                let mtu = u32::from_be_bytes(icmp.bytes5to8()) as usize;
                let dropped = icmp.payload();
                if *dropped.get(6)? != PROTOCOL_TCP {
                    return None;
                }
                let sender: [u8; 16] = dropped.get(8..24)?.try_into().ok()?;
                let receiver: [u8; 16] = dropped.get(24..40)?.try_into().ok()?;
                let (ends, tcp) = ([sender.into(), receiver.into()], dropped.get(IPV6_HEADER..)?);
                TooBig::with(ends, tcp, mtu, IPV6_HEADER)
            }
            _ => None,
        }
    }

    fn with([sender, receiver]: [IpAddr; 2], tcp: &[u8], mtu: usize, ip: usize) -> Option<TooBig> {
        let port = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
        let flow = Flow {
            from: SocketAddr::new(receiver, port(2)?),
            to: SocketAddr::new(sender, port(0)?),
        };
        let seq = Seq(u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?));
        Some(TooBig { flow, seq, most: mtu.checked_sub(ip)? })
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{Icmpv4Type, Icmpv6Type, PacketBuilder, icmpv4};
    use proptest::prelude::*;

    use super::*;
    use crate::packet::{Checksums, MOST_HEADERS, write};
    use crate::segment::{Blocks, Ecn, Flags, Segment};

    /// A packet with a segment of 1000 bytes.
    fn dropped(flow: &Flow) -> Vec<u8> {
        let segment = Segment {
            seq: Seq(0xffff_fff0),
            ack: Some(Seq(7)),
            window: 1,
            flags: Flags::default(),
            ecn: Ecn::NotCapable,
            timestamps: None,
            blocks: Blocks::default(),
            payload: &[1; 1000],
        };
        let mut packet = vec![0; MOST_HEADERS + 1000];
        let written = write(flow, &segment, Checksums::Whole, &mut packet);
        packet.truncate(written.length);
        packet
    }

    fn flow(is_ipv4: bool) -> Flow {
        let [from, to] = if is_ipv4 {
            ["10.1.2.3:4000", "10.9.8.7:443"]
        } else {
            ["[fd00::1]:4000", "[fd00::2]:443"]
        };
        Flow { from: from.parse().unwrap(), to: to.parse().unwrap() }
    }

    /// A router's message about it, which has so much of it.
    fn message(is_ipv4: bool, mtu: u16, length: usize) -> Vec<u8> {
        let dropped = dropped(&flow(is_ipv4));
        let mut packet = vec![];
        if is_ipv4 {
            let needed = icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu };
            PacketBuilder::ipv4([10, 1, 2, 1], [10, 1, 2, 3], 64)
                .icmpv4(Icmpv4Type::DestinationUnreachable(needed))
                .write(&mut packet, &dropped[..length])
                .unwrap();
        } else {
            PacketBuilder::ipv6([1; 16], [2; 16], 64)
                .icmpv6(Icmpv6Type::PacketTooBig { mtu: mtu.into() })
                .write(&mut packet, &dropped[..length])
                .unwrap();
        }
        packet
    }

    #[test]
    fn a_router_tells_what_fits() {
        for (is_ipv4, header) in [(true, 20), (false, 40)] {
            let Flow { from, to } = flow(is_ipv4);
            let most = 1280 - header;
            let expected =
                TooBig { flow: Flow { from: to, to: from }, seq: Seq(0xffff_fff0), most };
            // The least that a router tells of it, and more.
            for length in [header + 8, header + 500] {
                assert_eq!(TooBig::of(&message(is_ipv4, 1280, length)), Some(expected));
            }
            assert_eq!(TooBig::of(&message(is_ipv4, 1280, header + 7)), None);
        }
        let unsaid = TooBig::of(&message(true, 0, 28)).unwrap();
        assert_eq!(unsaid.most, LEAST_DATAGRAM - 20);
        assert_eq!(TooBig::of(&dropped(&flow(true))), None);
    }

    proptest! {
        #[test]
        fn a_damaged_message_is_none(is_ipv4 in any::<bool>(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let whole = message(is_ipv4, 1280, 100);
            let mut packet = whole.clone();
            packet[at.index(whole.len())] ^= 1 << bit;
            // Headers of IP are not part of the checksum, or have one that the kernel checks.
            let of = TooBig::of(&packet);
            prop_assert!(of.is_none() || of == TooBig::of(&whole));
        }

        #[test]
        fn any_bytes_may_come(
            is_ipv4 in any::<bool>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut packet = message(is_ipv4, 1280, 100);
            for (at, byte) in changes {
                let at = at.index(packet.len());
                packet[at] = byte;
            }
            let _ = TooBig::of(&packet[..cut.index(packet.len())]);
        }
    }
}
