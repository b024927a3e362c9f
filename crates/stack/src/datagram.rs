//! Datagrams of UDP (RFC 768): in IP packets, and those of a flow that wait to be read.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::ops::Deref;

use etherparse::{SlicedPacket, TransportSlice};

use crate::checksum::{is_right, never_zero, pseudo_header};
use crate::packet::{CHECKSUM_OF_UDP, Checksums, Flow, Protocol, Unusable, addresses, write_ip};
use crate::segment::Ecn;

/// Bytes of the header.
pub const HEADER: usize = 8;
/// Where the checksum is in it.
pub const CHECKSUM: usize = CHECKSUM_OF_UDP;
/// Bytes of the headers of IP and UDP, at most.
pub const MOST_HEADERS: usize = 40 + HEADER;

/// Whether an IP packet may have a datagram: [`parse`] says more.
#[inline]
pub fn is_of(packet: &[u8]) -> bool {
    let protocol = match packet.first().map(|first| first >> 4) {
        Some(4) => packet.get(9),
        Some(6) => packet.get(6),
        _ => None,
    };
    protocol == Some(&(Protocol::Udp as u8))
}

/// The payload of the datagram of an IP packet, which begins with the header of IP.
///
/// Its checksum has to be right. It may be missing over IPv4, but not over IPv6 (RFC 8200 §8.1).
/// With [`Checksums::Unfinished`] the sum of the pseudo header is right as well.
pub fn parse(packet: &[u8], checksums: Checksums) -> Result<(Flow, &[u8]), Unusable> {
    let sliced =
        SlicedPacket::from_ip(packet).map_err(|error| Unusable::Malformed(error.to_string()))?;
    let Some(net) = &sliced.net else { return Err(Unusable::NotUdp) };
    if net.ip_payload_ref().is_some_and(|payload| payload.fragmented) {
        return Err(Unusable::Fragment);
    }
    let Some(TransportSlice::Udp(udp)) = &sliced.transport else { return Err(Unusable::NotUdp) };
    if usize::from(udp.length()) < HEADER {
        return Err(Unusable::Malformed("a datagram that is shorter than its header".into()));
    }
    let (from, to) = addresses(net)?;
    let sum = pseudo_header((from, to), Protocol::Udp, udp.slice().len());
    let is_missing = udp.checksum() == 0;
    if !(is_missing && from.is_ipv4())
        && (is_missing || !is_right(udp.slice(), CHECKSUM, sum, checksums))
    {
        return Err(Unusable::Checksum("UDP"));
    }
    let flow = Flow {
        from: SocketAddr::new(from, udp.source_port()),
        to: SocketAddr::new(to, udp.destination_port()),
    };
    // The slice of UDP is of the packet, whose bytes outlive it.
    let begin = udp.payload().as_ptr() as usize - packet.as_ptr() as usize;
    Ok((flow, &packet[begin..begin + udp.payload().len()]))
}

/// A packet that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes.
    pub length: usize,
    /// Where the header of UDP begins.
    pub udp: usize,
}

/// Writes the packet of a datagram whose payload is in `parts`. It may not be fragmented. Panics
/// where `target` has not the room of [`MOST_HEADERS`] and the payload, where the two addresses are
/// of different families, and where the payload is longer than a packet.
pub fn write<P: Deref<Target = [u8]>>(
    flow: &Flow,
    parts: &[P],
    checksums: Checksums,
    target: &mut [u8],
) -> Written {
    let length = HEADER + parts.iter().map(|part| part.len()).sum::<usize>();
    let udp = write_ip(flow, Protocol::Udp, Ecn::NotCapable, length, &mut &mut target[..]);
    let bytes = &mut target[udp..udp + length];
    bytes[..2].copy_from_slice(&flow.from.port().to_be_bytes());
    bytes[2..4].copy_from_slice(&flow.to.port().to_be_bytes());
    bytes[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    bytes[CHECKSUM..HEADER].fill(0);
    let mut at = HEADER;
    for part in parts {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    let sum = pseudo_header((flow.from.ip(), flow.to.ip()), Protocol::Udp, length);
    let sum = match checksums {
        Checksums::Whole => never_zero(sum.add_slice(bytes).ones_complement()),
        Checksums::Unfinished | Checksums::Right => !sum.ones_complement(),
    };
    bytes[CHECKSUM..HEADER].copy_from_slice(&sum.to_ne_bytes());
    Written { length: udp + length, udp }
}

/// Bytes that the kernel's queue takes for a small datagram besides its payload, rounded up. What
/// waits here has room there when it goes back.
const OVERHEAD: usize = 1024;
/// Buffers that are kept for datagrams to come.
const SPARE: usize = 64;

/// Datagrams that came and were not read, in their order.
#[derive(Debug)]
pub struct Waiting {
    datagrams: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    taken: usize,
    room: usize,
    dropped: u64,
    came: u64,
}

impl Waiting {
    /// None waits. `room` is that of the kernel's queue in bytes (socket(7), SO_RCVBUF).
    pub fn new(room: usize) -> Waiting {
        let (datagrams, spare) = (VecDeque::new(), vec![]);
        Waiting { datagrams, spare, taken: 0, room, dropped: 0, came: 0 }
    }

    /// Takes a datagram, if there is room. It is dropped and counted otherwise.
    pub fn push(&mut self, payload: &[u8]) {
        let size = payload.len() + OVERHEAD;
        // One is always taken, as the kernel does.
        if self.taken + size > self.room && !self.datagrams.is_empty() {
            self.dropped += 1;
            return;
        }
        let mut datagram = self.spare.pop().unwrap_or_default();
        datagram.extend_from_slice(payload);
        self.taken += size;
        self.came += 1;
        self.datagrams.push_back(datagram);
    }

    /// Takes the first datagram out. What has no room in `parts` is lost. Returns the bytes that
    /// were copied, and those of the datagram; None where none waits.
    pub fn pop(&mut self, parts: &mut [IoSliceMut<'_>]) -> Option<(usize, usize)> {
        let mut datagram = self.datagrams.pop_front()?;
        self.taken -= datagram.len() + OVERHEAD;
        let mut copied = 0;
        for part in parts {
            let count = part.len().min(datagram.len() - copied);
            part[..count].copy_from_slice(&datagram[copied..copied + count]);
            copied += count;
        }
        let length = datagram.len();
        if self.spare.len() < SPARE {
            datagram.clear();
            self.spare.push(datagram);
        }
        Some((copied, length))
    }

    /// Bytes of the first datagram. None: none waits.
    pub fn first(&self) -> Option<usize> {
        self.datagrams.front().map(Vec::len)
    }

    /// How many datagrams had no room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How many datagrams were taken so far.
    pub fn came(&self) -> u64 {
        self.came
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packet::set_checksum;

    fn flow(is_ipv4: bool, ports: (u16, u16)) -> Flow {
        let [from, to] = if is_ipv4 { ["10.1.2.3", "10.9.8.7"] } else { ["fd00::1", "fd00::2"] };
        let socket = |ip: &str, port| SocketAddr::new(ip.parse().unwrap(), port);
        Flow { from: socket(from, ports.0), to: socket(to, ports.1) }
    }

    fn packet(flow: &Flow, payload: &[u8], checksums: Checksums) -> Vec<u8> {
        let mut packet = vec![0xaa; MOST_HEADERS + payload.len()];
        let (one, other) = payload.split_at(payload.len() / 2);
        let Written { length, .. } = write(flow, &[one, other], checksums, &mut packet);
        packet.truncate(length);
        packet
    }

    proptest! {
        #[test]
        fn a_datagram_is_found_again_in_its_packet(
            is_ipv4 in any::<bool>(), ports in any::<(u16, u16)>(),
            payload in prop::collection::vec(any::<u8>(), 0..2000), stood in any::<[u8; 2]>(),
        ) {
            let flow = flow(is_ipv4, ports);
            let whole = packet(&flow, &payload, Checksums::Whole);
            prop_assert!(is_of(&whole));
            prop_assert_eq!(parse(&whole, Checksums::Whole), Ok((flow, &payload[..])));
            let mut unfinished = packet(&flow, &payload, Checksums::Unfinished);
            prop_assert_eq!(parse(&unfinished, Checksums::Unfinished), Ok((flow, &payload[..])));
            // As a device finishes it, and whatever stood there.
            let at = unfinished.len() - payload.len() - HEADER + CHECKSUM;
            prop_assert_eq!(set_checksum(&mut unfinished), Ok(()));
            prop_assert_eq!(&unfinished, &whole);
            unfinished[at..at + 2].copy_from_slice(&stood);
            prop_assert_eq!(set_checksum(&mut unfinished), Ok(()));
            prop_assert_eq!(&unfinished, &whole);
        }

        #[test]
        fn a_damaged_datagram_is_refused(
            is_ipv4 in any::<bool>(), payload in prop::collection::vec(any::<u8>(), 0..100),
            at in any::<prop::sample::Index>(), bit in 0..8_u8,
        ) {
            let flow = flow(is_ipv4, (1000, 2000));
            let mut packet = packet(&flow, &payload, Checksums::Whole);
            let ip = packet.len() - payload.len() - HEADER;
            let at = ip + at.index(packet.len() - ip);
            packet[at] ^= 1 << bit;
            for checksums in [Checksums::Whole, Checksums::Unfinished] {
                prop_assert!(parse(&packet, checksums).is_err());
            }
        }

        #[test]
        fn any_bytes_may_come(
            bytes in prop::collection::vec(any::<u8>(), 0..100), is_ipv4 in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if let [first, ..] = &mut bytes[..] {
                *first = if is_ipv4 { 0x45 } else { 0x60 };
            }
            if let Some(protocol) = bytes.get_mut(if is_ipv4 { 9 } else { 6 }) {
                *protocol = Protocol::Udp as u8;
            }
            let _ = parse(&bytes, Checksums::Unfinished);
            let _ = set_checksum(&mut bytes);
        }
    }

    /// The payload whose checksum is 0 before it is made one that can be sent.
    fn of_no_sum(flow: &Flow) -> [u8; 2] {
        let mut packet = packet(flow, &[0, 0], Checksums::Whole);
        let at = packet.len() - 2;
        // The complement of all the rest.
        packet.copy_within(at - 2..at, at);
        [packet[at], packet[at + 1]]
    }

    #[test]
    fn a_checksum_of_zero_says_that_there_is_none() {
        for is_ipv4 in [true, false] {
            let flow = flow(is_ipv4, (1, 2));
            let mut packet = packet(&flow, &of_no_sum(&flow), Checksums::Whole);
            let at = packet.len() - 4;
            assert_eq!(packet[at..at + 2], [0xff, 0xff]);
            assert!(parse(&packet, Checksums::Whole).is_ok());
            packet[at..at + 2].fill(0);
            assert_eq!(parse(&packet, Checksums::Whole).is_ok(), is_ipv4);
            set_checksum(&mut packet).unwrap();
            assert_eq!(packet[at..at + 2], [0xff, 0xff]);
        }
    }

    #[test]
    fn what_has_no_room_is_dropped_and_counted() {
        let mut waiting = Waiting::new(3 * (OVERHEAD + 2));
        for number in 0..5_u8 {
            waiting.push(&[number, 0]);
        }
        assert_eq!((waiting.came(), waiting.dropped(), waiting.first()), (3, 2, Some(2)));
        let mut pieces = [[9; 1]; 2];
        let [one, other] = &mut pieces;
        let mut parts = [IoSliceMut::new(one), IoSliceMut::new(other)];
        assert_eq!(waiting.pop(&mut parts[..1]), Some((1, 2)));
        assert_eq!(waiting.pop(&mut parts), Some((2, 2)));
        assert_eq!(pieces, [[1], [0]]);
        waiting.push(&[]);
        assert_eq!(waiting.pop(&mut []), Some((0, 2)));
        assert_eq!(waiting.pop(&mut []), Some((0, 0)));
        assert_eq!(waiting.pop(&mut []), None);
        // One that is larger than all the room is taken where nothing waits.
        waiting.push(&[0; 9000]);
        assert_eq!(waiting.first(), Some(9000));
    }
}
