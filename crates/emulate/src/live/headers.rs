//! What the headers of an Ethernet frame say of the packet of UDP or TCP in it.

const VLAN: [u16; 2] = [0x8100, 0x88a8];
const UDP: u8 = 17;
const TCP: u8 = 6;

/// The bits of a fragment's place, which counts eight bytes.
const PLACE: u16 = 0x1fff;

/// So many of a datagram's first bytes go into its hash, as in that of the kernel's events
/// (`crates/kernel/bpf/udp.bpf.c`).
const HASHED: usize = 32;

/// A packet of UDP or TCP, or a later fragment of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headers<'a> {
    /// IP's number of the protocol: 6 is TCP, 17 UDP.
    pub(crate) protocol: u8,
    /// The sender's and the receiver's; 0 of later fragments, which have no such header.
    pub(crate) ports: [u16; 2],
    /// The number of the first byte in its stream; 0 of UDP and of later fragments.
    pub(crate) seq: u32,
    /// What follows the headers.
    pub(crate) content: &'a [u8],
    /// The number of the packet that it is a fragment of, and in the lower half where it begins in
    /// that, in bytes.
    pub(crate) fragment: u32,
}

impl<'a> Headers<'a> {
    /// `None` where a frame has something else, or less of it than it says.
    pub(crate) fn of(frame: &'a [u8]) -> Option<Headers<'a>> {
        let mut at = 12;
        while VLAN.contains(&number(frame.get(at..)?)?) {
            at += 4;
        }
        let kind = number(frame.get(at..)?)?;
        let packet = frame.get(at + 2..)?;
        // Behind the packet an Ethernet frame may be padded.
        let (protocol, header, end) = match kind {
            0x0800 => {
                let end = number(packet.get(..20)?.get(2..)?)?;
                (packet[9], usize::from(packet[0] & 15) * 4, usize::from(end))
            }
            0x86dd => {
                let length = number(packet.get(..40)?.get(4..)?)?;
                (packet[6], 40, 40 + usize::from(length))
            }
            _ => return None,
        };
        if ![UDP, TCP].contains(&protocol) {
            return None;
        }
        let mut fragment = 0;
        if kind == 0x0800 {
            let place = (number(&packet[6..])? & PLACE) * 8;
            fragment = u32::from(number(&packet[4..])?) << 16 | u32::from(place);
        }
        let segment = packet.get(..end)?.get(header..)?;
        let found = Headers { protocol, ports: [0; 2], seq: 0, content: segment, fragment };
        if found.is_later_fragment() {
            return Some(found);
        }
        let ports = [number(segment)?, number(segment.get(2..)?)?];
        let (seq, header) = match protocol {
            TCP => {
                let seq = u32::from_be_bytes(*segment.get(4..)?.first_chunk()?);
                (seq, usize::from(segment.get(12)? >> 4) * 4)
            }
            _ => (0, 8),
        };
        Some(Headers { ports, seq, content: segment.get(header..)?, ..found })
    }

    /// What a datagram or segment carries; `None` of later fragments.
    pub(crate) fn payload(&self) -> Option<&'a [u8]> {
        (!self.is_later_fragment()).then_some(self.content)
    }

    fn is_later_fragment(&self) -> bool {
        self.fragment & 0xffff != 0
    }

    /// By what the packet is known: its sequence number, or of UDP the hash of its content's first
    /// bytes; 0 of later fragments.
    pub(crate) fn mark(&self) -> u64 {
        match self.protocol {
            UDP => self.payload().map_or(0, hash),
            _ => self.seq.into(),
        }
    }
}

/// 64 bits of FNV-1a's kind, eight bytes at a time.
fn hash(content: &[u8]) -> u64 {
    let mut bytes = [0; HASHED];
    let count = content.len().min(HASHED);
    bytes[..count].copy_from_slice(&content[..count]);
    bytes.chunks_exact(8).fold(0xcbf2_9ce4_8422_2325, |hash: u64, word| {
        let word = u64::from_ne_bytes(word.try_into().expect("chunks of eight bytes"));
        let hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3);
        hash ^ (hash >> 32)
    })
}

/// The big-endian number that bytes begin with.
fn number(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(protocol: u8, fragment: u16, segment: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + segment.len() as u16).to_be_bytes());
        frame.extend([0x12, 0x34]);
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(segment);
        frame
    }

    #[test]
    fn a_segment_has_ports_sequence_number_and_content() {
        let mut segment = vec![0x13, 0x88, 0, 80, 0xfe, 0xdc, 0xba, 0x98, 0, 0, 0, 0, 0x60, 0x18];
        segment.extend([0; 10]);
        segment.extend(b"abc");
        let mut frame = ipv4(TCP, 0x4000, &segment);
        frame.extend([9; 6]);
        let found = Headers::of(&frame).unwrap();
        assert_eq!((found.protocol, found.ports, found.seq), (TCP, [5000, 80], 0xfedc_ba98));
        assert_eq!((found.content, found.mark()), (&b"abc"[..], 0xfedc_ba98));
        // Whatever is cut off, nothing is read that is not there.
        assert!((0..frame.len() - 6).all(|end| Headers::of(&frame[..end]).is_none()));
    }

    #[test]
    fn a_later_fragment_has_its_place_and_no_ports() {
        let frame = ipv4(UDP, 0x2000 | 185, &[7; 40]);
        let found = Headers::of(&frame).unwrap();
        assert_eq!(found.fragment, 0x1234 << 16 | 1480);
        assert_eq!((found.ports, found.content.len(), found.payload()), ([0; 2], 40, None));
        let first = ipv4(UDP, 0x2000, &[&[0, 1, 0, 2, 0, 48, 0, 0], &[7; 40][..]].concat());
        let first = Headers::of(&first).unwrap();
        assert_eq!((first.ports, first.fragment), ([1, 2], 0x1234 << 16));
        assert_eq!(first.payload(), Some(&[7; 40][..]));
    }

    /// The numbers that the kernel's program has for the same content.
    #[test]
    fn datagrams_are_told_apart_by_their_first_bytes() {
        let mark = |content: &[u8]| {
            let datagram = [&[0, 1, 0, 2, 0, 0, 0, 0], content].concat();
            Headers::of(&ipv4(UDP, 0, &datagram)).unwrap().mark()
        };
        assert_ne!(mark(&1_u64.to_le_bytes()), mark(&2_u64.to_le_bytes()));
        assert_ne!(mark(&[0; 31]), mark(&[[0; 30], [1; 30]].concat()));
        assert_eq!(mark(&[5; 33]), mark(&[5; 32]));
    }
}
