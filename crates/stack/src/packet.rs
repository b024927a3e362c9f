//! IP packets of TCP connections: segments from them, and them of segments.

use std::net::{IpAddr, SocketAddr};

use etherparse::checksum::Sum16BitWords;
use etherparse::{
    IpEcn, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, NetSlice, SlicedPacket, TcpHeader,
    TcpOptionElement, TcpSlice, TransportSlice,
};
use thiserror::Error;

pub use crate::checksum::{Checksums, Protocol};
use crate::checksum::{is_right, never_zero, pseudo_header};
use crate::place::Seq;
use crate::segment::{Blocks, Ecn, Flags, Segment, Timestamps};

/// Both bits of the IP header's field: a router has marked the packet.
const CONGESTED: u8 = 3;
/// Routers that a packet may pass.
const HOPS: u8 = 64;
/// Where the checksum is in the header of TCP (RFC 9293 §3.1).
pub const CHECKSUM: usize = 16;
/// The same in the header of UDP (RFC 768).
pub(crate) const CHECKSUM_OF_UDP: usize = 6;
/// Bytes of the headers of IP and TCP with all options, at most.
pub const MOST_HEADERS: usize = 40 + 60;

/// Between which sockets a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The socket of the sender.
    pub from: SocketAddr,
    /// The socket of the receiver.
    pub to: SocketAddr,
}

/// Why a packet has no segment.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unusable {
    /// It cannot be parsed.
    #[error("a packet that cannot be read: {0}")]
    Malformed(String),
    /// It is one of several that one datagram was cut into.
    #[error("a fragment")]
    Fragment,
    /// It is of another protocol.
    #[error("not a segment of TCP")]
    NotTcp,
    /// It is of another protocol than UDP.
    #[error("not a datagram of UDP")]
    NotUdp,
    /// It was damaged on its way.
    #[error("a wrong checksum of {0}")]
    Checksum(&'static str),
}

/// The segment of an IP packet, which begins with the header of IP. Options of TCP that are not
/// known are passed over (RFC 9293 §3.1), and so are those after a malformed one. The checksums have
/// to be right.
pub fn parse(packet: &[u8], checksums: Checksums) -> Result<(Flow, Segment<'_>), Unusable> {
    let sliced =
        SlicedPacket::from_ip(packet).map_err(|error| Unusable::Malformed(error.to_string()))?;
    let Some(net) = &sliced.net else { return Err(Unusable::NotTcp) };
    if net.ip_payload_ref().is_some_and(|payload| payload.fragmented) {
        return Err(Unusable::Fragment);
    }
    let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else { return Err(Unusable::NotTcp) };
    check(net, tcp, checksums)?;
    let (from, to) = addresses(net)?;
    let flow = Flow {
        from: SocketAddr::new(from, tcp.source_port()),
        to: SocketAddr::new(to, tcp.destination_port()),
    };
    // The slice of TCP is of the packet, whose bytes outlive it.
    let length = tcp.payload().len();
    let begin = tcp.payload().as_ptr() as usize - packet.as_ptr() as usize;
    Ok((flow, segment(tcp, ecn(net), &packet[begin..begin + length])))
}

/// The sender's and the receiver's.
pub(crate) fn addresses(net: &NetSlice<'_>) -> Result<(IpAddr, IpAddr), Unusable> {
    match net {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            Ok((header.source_addr().into(), header.destination_addr().into()))
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            Ok((header.source_addr().into(), header.destination_addr().into()))
        }
        NetSlice::Arp(_) => Err(Unusable::NotTcp),
    }
}

/// The two bits of the IP header (RFC 3168 §5), which both families have.
fn ecn(net: &NetSlice<'_>) -> Ecn {
    let bits = match net {
        NetSlice::Ipv4(ip) => ip.header().ecn().value(),
        NetSlice::Ipv6(ip) => ip.header().traffic_class() & CONGESTED,
        NetSlice::Arp(_) => 0,
    };
    match bits {
        0 => Ecn::NotCapable,
        CONGESTED => Ecn::Marked,
        _ => Ecn::Capable,
    }
}

/// ECT(0) of the two that senders may set.
fn field(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::NotCapable => 0,
        Ecn::Capable => 2,
        Ecn::Marked => CONGESTED,
    }
}

fn check(net: &NetSlice<'_>, tcp: &TcpSlice<'_>, checksums: Checksums) -> Result<(), Unusable> {
    if let NetSlice::Ipv4(ip) = net
        && Sum16BitWords::new().add_slice(ip.header().slice()).ones_complement() != 0
    {
        return Err(Unusable::Checksum("IP"));
    }
    let bytes = tcp.slice();
    let sum = pseudo_header(addresses(net)?, Protocol::Tcp, bytes.len());
    if is_right(bytes, CHECKSUM, sum, checksums) { Ok(()) } else { Err(Unusable::Checksum("TCP")) }
}

/// Sets the checksum of TCP or UDP in a packet that begins with the header of IP, where
/// [`Checksums::Unfinished`] may hold. Nothing else of it changes.
pub fn set_checksum(packet: &mut [u8]) -> Result<(), Unusable> {
    let (at, checksum) = checksum(packet)?;
    packet[at..at + 2].copy_from_slice(&checksum);
    Ok(())
}

/// Where the checksum of TCP or UDP is in a packet, and what it has to be.
fn checksum(packet: &[u8]) -> Result<(usize, [u8; 2]), Unusable> {
    let sliced =
        SlicedPacket::from_ip(packet).map_err(|error| Unusable::Malformed(error.to_string()))?;
    let Some(net) = &sliced.net else { return Err(Unusable::NotTcp) };
    let (bytes, protocol, place) = match &sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => (tcp.slice(), Protocol::Tcp, CHECKSUM),
        Some(TransportSlice::Udp(udp)) => (udp.slice(), Protocol::Udp, CHECKSUM_OF_UDP),
        _ => return Err(Unusable::NotTcp),
    };
    let at = bytes.as_ptr() as usize - packet.as_ptr() as usize + place;
    let (before, after) = (&bytes[..place], &bytes[place + 2..]);
    let sum = pseudo_header(addresses(net)?, protocol, bytes.len());
    let sum = sum.add_slice(before).add_slice(after).ones_complement();
    let sum = if protocol == Protocol::Udp { never_zero(sum) } else { sum };
    // Words are added in this machine's order.
    Ok((at, sum.to_ne_bytes()))
}

fn segment<'p>(tcp: &TcpSlice<'_>, ecn: Ecn, payload: &'p [u8]) -> Segment<'p> {
    let (mut timestamps, mut blocks) = (None, Blocks::default());
    for option in tcp.options_iterator().map_while(Result::ok) {
        match option {
            TcpOptionElement::Timestamp(value, echo) => {
                timestamps = Some(Timestamps { value, echo });
            }
            TcpOptionElement::SelectiveAcknowledgement(first, others) => {
                for (begin, end) in std::iter::once(first).chain(others.into_iter().flatten()) {
                    // A fourth, which has room where there are no timestamps, is left out.
                    blocks.push(Seq(begin), Seq(end));
                }
            }
            _ => {}
        }
    }
    Segment {
        seq: Seq(tcp.sequence_number()),
        ack: tcp.ack().then(|| Seq(tcp.acknowledgment_number())),
        window: tcp.window_size(),
        flags: Flags {
            syn: tcp.syn(),
            fin: tcp.fin(),
            rst: tcp.rst(),
            push: tcp.psh(),
            urgent: tcp.urg(),
            marked: tcp.ece(),
            shrunk: tcp.cwr(),
        },
        ecn,
        timestamps,
        blocks,
        payload,
    }
}

/// A packet that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes.
    pub length: usize,
    /// Where the header of TCP begins.
    pub tcp: usize,
    /// Where the data begin.
    pub data: usize,
}

/// Writes the packet of a segment. It may not be fragmented (RFC 1191, RFC 8201), so that all packets
/// may have the same number (RFC 6864). Panics where `target` has not the room of [`MOST_HEADERS`]
/// and the payload, where the two addresses are of different families, and where the payload is
/// longer than a packet.
pub fn write(
    flow: &Flow,
    segment: &Segment<'_>,
    checksums: Checksums,
    target: &mut [u8],
) -> Written {
    let mut header =
        TcpHeader::new(flow.from.port(), flow.to.port(), segment.seq.0, segment.window);
    if let Some(Seq(ack)) = segment.ack {
        (header.ack, header.acknowledgment_number) = (true, ack);
    }
    let Flags { syn, fin, rst, push, urgent, marked, shrunk } = segment.flags;
    (header.syn, header.fin, header.rst, header.psh, header.urg) = (syn, fin, rst, push, urgent);
    (header.ece, header.cwr) = (marked, shrunk);
    set_options(&mut header, segment);
    let length = header.header_len() + segment.payload.len();
    let mut rest = &mut target[..];
    let tcp = write_ip(flow, Protocol::Tcp, segment.ecn, length, &mut rest);
    header.write(&mut rest).expect("there is room");
    rest[..segment.payload.len()].copy_from_slice(segment.payload);
    let bytes = &mut target[tcp..tcp + length];
    let sum = pseudo_header((flow.from.ip(), flow.to.ip()), Protocol::Tcp, length);
    // Words are added in this machine's order.
    let sum = match checksums {
        Checksums::Whole => sum.add_slice(bytes).ones_complement(),
        Checksums::Unfinished | Checksums::Right => !sum.ones_complement(),
    };
    bytes[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_ne_bytes());
    Written { length: tcp + length, tcp, data: tcp + header.header_len() }
}

fn set_options(tcp: &mut TcpHeader, segment: &Segment<'_>) {
    let mut options = [const { TcpOptionElement::Noop }; 6];
    let mut count = 0;
    let mut add = |option| {
        // Aligned, as RFC 7323 appendix A has it.
        count += 2;
        options[count] = option;
        count += 1;
    };
    if let Some(Timestamps { value, echo }) = segment.timestamps {
        add(TcpOptionElement::Timestamp(value, echo));
    }
    let mut blocks = segment.blocks.iter().map(|(begin, end)| (begin.0, end.0));
    if let Some(first) = blocks.next() {
        let others = [blocks.next(), blocks.next(), None];
        add(TcpOptionElement::SelectiveAcknowledgement(first, others));
    }
    tcp.set_options(&options[..count]).expect("timestamps and three blocks have room");
}

/// Writes the header of IP before so many bytes of a protocol; its length. Panics as [`write()`]
/// does.
pub(crate) fn write_ip(
    flow: &Flow,
    protocol: Protocol,
    ecn: Ecn,
    length: usize,
    rest: &mut &mut [u8],
) -> usize {
    let length = u16::try_from(length).expect("a payload is shorter than a packet");
    let next = IpNumber(protocol as u8);
    match (flow.from.ip(), flow.to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = Ipv4Header::new(length, HOPS, next, from.octets(), to.octets());
            let mut header = header.expect("a payload is shorter than a packet");
            header.dont_fragment = true;
            header.ecn = IpEcn::try_new(field(ecn)).expect("it has two bits");
            header.header_checksum = header.calc_header_checksum();
            header.write_raw(rest).expect("there is room");
            header.header_len()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = Ipv6Header {
                traffic_class: field(ecn),
                flow_label: Ipv6FlowLabel::ZERO,
                payload_length: length,
                next_header: next,
                hop_limit: HOPS,
                source: from.octets(),
                destination: to.octets(),
            };
            header.write(rest).expect("there is room");
            header.header_len()
        }
        _ => panic!("{flow:?} is of two families"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::segment::MOST_BLOCKS;

    fn flows() -> impl Strategy<Value = Flow> {
        let ports = (any::<u16>(), any::<u16>());
        let four = (any::<[u8; 4]>(), any::<[u8; 4]>())
            .prop_map(|(from, to)| (IpAddr::from(from), IpAddr::from(to)));
        let six = (any::<[u8; 16]>(), any::<[u8; 16]>())
            .prop_map(|(from, to)| (IpAddr::from(from), IpAddr::from(to)));
        (prop_oneof![four, six], ports).prop_map(|((from, to), ports)| Flow {
            from: SocketAddr::new(from, ports.0),
            to: SocketAddr::new(to, ports.1),
        })
    }

    prop_compose! {
        fn headers()(
            numbers in any::<(u32, Option<u32>, u16)>(),
            flags in any::<[bool; 7]>(),
            ecn in prop_oneof![Just(Ecn::NotCapable), Just(Ecn::Capable), Just(Ecn::Marked)],
            stamps in any::<Option<(u32, u32)>>(),
            ranges in prop::collection::vec(any::<(u32, u32)>(), 0..=MOST_BLOCKS),
        ) -> Segment<'static> {
            let mut blocks = Blocks::default();
            ranges.iter().for_each(|&(begin, end)| assert!(blocks.push(Seq(begin), Seq(end))));
            let [syn, fin, rst, push, urgent, marked, shrunk] = flags;
            Segment {
                seq: Seq(numbers.0),
                ack: numbers.1.map(Seq),
                window: numbers.2,
                flags: Flags { syn, fin, rst, push, urgent, marked, shrunk },
                ecn,
                timestamps: stamps.map(|(value, echo)| Timestamps { value, echo }),
                blocks,
                payload: &[],
            }
        }
    }

    proptest! {
        #[test]
        fn a_segment_is_found_again_in_its_packet(
            flow in flows(), header in headers(), payload in prop::collection::vec(any::<u8>(), 0..2000)
        ) {
            let segment = Segment { payload: &payload, ..header };
            let mut packet = [0; MOST_HEADERS + 2000];
            let Written { length, .. } = write(&flow, &segment, Checksums::Whole, &mut packet);
            prop_assert_eq!(parse(&packet[..length], Checksums::Whole), Ok((flow, segment)));
        }

        #[test]
        fn a_damaged_packet_is_refused(flow in flows(), header in headers(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let segment = Segment { payload: b"some data", ..header };
            let mut packet = [0; MOST_HEADERS + 100];
            let Written { length, .. } = write(&flow, &segment, Checksums::Whole, &mut packet);
            packet[at.index(length)] ^= 1 << bit;
            // IPv6 has no checksum of its own: what is not part of TCP's may change unnoticed, so
            // also a mark.
            if let Ok((of, found)) = parse(&packet[..length], Checksums::Whole) {
                prop_assert!(flow.from.is_ipv6());
                prop_assert_eq!((of, found), (flow, Segment { ecn: found.ecn, ..segment }));
            }
        }

        #[test]
        fn damage_is_found_where_checksums_may_be_unfinished(
            flow in flows(), header in headers(), at in 0..9_usize, bit in 0..8u8
        ) {
            let segment = Segment { payload: b"some data", ..header };
            let (mut whole, mut packet) = ([0; MOST_HEADERS + 9], [0; MOST_HEADERS + 9]);
            write(&flow, &segment, Checksums::Whole, &mut whole);
            let Written { length, tcp, data } =
                write(&flow, &segment, Checksums::Unfinished, &mut packet);
            let sum = tcp + CHECKSUM..tcp + CHECKSUM + 2;
            prop_assume!(whole[sum.clone()] != packet[sum]);
            prop_assert_eq!(parse(&packet[..length], Checksums::Unfinished), Ok((flow, segment)));
            prop_assert_eq!(parse(&whole[..length], Checksums::Unfinished), Ok((flow, segment)));
            let wrong = Err(Unusable::Checksum("TCP"));
            prop_assert_eq!(&parse(&packet[..length], Checksums::Whole), &wrong);
            whole[data + at] ^= 1 << bit;
            prop_assert_eq!(parse(&whole[..length], Checksums::Unfinished), wrong);
        }

        #[test]
        fn a_checksum_is_set_whatever_stood_there(
            flow in flows(), header in headers(), payload in prop::collection::vec(any::<u8>(), 0..100), stood in any::<[u8; 2]>()
        ) {
            let segment = Segment { payload: &payload, ..header };
            let mut packet = [0; MOST_HEADERS + 100];
            let Written { length, .. } = write(&flow, &segment, Checksums::Whole, &mut packet);
            let expected = packet;
            let ip = if flow.from.is_ipv4() { 20 } else { 40 };
            packet[ip + CHECKSUM..][..2].copy_from_slice(&stood);
            prop_assert_eq!(set_checksum(&mut packet[..length]), Ok(()));
            prop_assert_eq!(packet, expected);
        }

        #[test]
        fn an_unfinished_checksum_can_be_completed(
            flow in flows(), header in headers(), payload in prop::collection::vec(any::<u8>(), 0..100)
        ) {
            let segment = Segment { payload: &payload, ..header };
            let (mut whole, mut packet) = ([0; MOST_HEADERS + 100], [0; MOST_HEADERS + 100]);
            write(&flow, &segment, Checksums::Whole, &mut whole);
            let written = write(&flow, &segment, Checksums::Unfinished, &mut packet);
            prop_assert_eq!(&packet[written.data..written.length], &payload[..]);
            // As a device does it: the sum from there on, with what stands where it comes to.
            let sum = Sum16BitWords::new().add_slice(&packet[written.tcp..written.length]).ones_complement();
            packet[written.tcp + CHECKSUM..][..2].copy_from_slice(&sum.to_ne_bytes());
            prop_assert_eq!(packet, whole);
        }

        #[test]
        fn any_bytes_may_come(
            flow in flows(),
            header in headers(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
            cut in any::<prop::sample::Index>(),
        ) {
            let segment = Segment { payload: b"some data", ..header };
            let mut packet = [0; MOST_HEADERS + 100];
            let Written { length, .. } = write(&flow, &segment, Checksums::Whole, &mut packet);
            for (at, byte) in changes {
                packet[at.index(length)] = byte;
            }
            let _ = parse(&packet[..length], Checksums::Unfinished);
            let _ = parse(&packet[..cut.index(length)], Checksums::Unfinished);
            let _ = set_checksum(&mut packet[..cut.index(length)]);
        }
    }

    #[test]
    fn the_packet_is_that_of_another_program() {
        // An acknowledgement with timestamps and two blocks, made by scapy 2.8.
        let expected = include_bytes!("../tests/acknowledgement.ip");
        let flow =
            Flow { from: "10.1.2.3:40000".parse().unwrap(), to: "10.9.8.7:443".parse().unwrap() };
        let mut blocks = Blocks::default();
        blocks.push(Seq(0xffff_f000), Seq(0x10));
        blocks.push(Seq(0x1000), Seq(0x2000));
        let segment = Segment {
            seq: Seq(0x0102_0304),
            ack: Some(Seq(0xfffe_0000)),
            window: 501,
            flags: Flags { push: true, ..Flags::default() },
            ecn: Ecn::NotCapable,
            timestamps: Some(Timestamps { value: 0x1111_2222, echo: 0x3333_4444 }),
            blocks,
            payload: b"payload",
        };
        let mut packet = [0; MOST_HEADERS + 7];
        let Written { length, .. } = write(&flow, &segment, Checksums::Whole, &mut packet);
        assert_eq!(packet[..length], expected[..]);
    }
}
