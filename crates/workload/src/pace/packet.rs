//! What a packet says: all little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0-8 | number of the packet, from 1, over all processes; the id of its events |
//! | 8-16 | when it was meant to leave, nanoseconds since 1970 |
//! | 16-24 | when it was handed to the kernel, nanoseconds since 1970 |
//! | 24-30 | its number among those that its process sent, from 0 |
//! | 30-32 | the process |
//! | 32-36 | the run, so that a late packet of an earlier one is not counted |
//! | 36-40 | its size in bytes |
//! | 40-44 | `lpP1`; `lpE1` for a process's end, `lpH1` for a question whether anybody is there |
//!
//! An end goes on with the packets that the process sent (8), the number of processes (8) and the
//! 16 bytes of the sender's boot id; its number is 0. Ends and questions are sent again until they
//! come back as they are.

/// Bytes of a packet that mean something.
pub(super) const HEAD: usize = 44;

/// Bytes of an end.
pub(super) const END: usize = HEAD + 32;

const PACKET: &[u8; 4] = b"lpP1";
const LAST: &[u8; 4] = b"lpE1";
const HELLO: &[u8; 4] = b"lpH1";

/// A packet's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) number: u64,
    pub(super) intended: i64,
    pub(super) sent: i64,
    /// At most 48 bits.
    pub(super) sequence: u64,
    pub(super) process: u16,
    pub(super) run: u32,
    pub(super) size: u32,
}

/// A process's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) process: u16,
    pub(super) run: u32,
    pub(super) sent: u64,
    pub(super) processes: u64,
    pub(super) boot: [u8; 16],
}

/// What was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Packet(Head),
    End(End),
    Hello,
}

/// The question whether anybody is there.
pub(super) fn hello() -> [u8; HEAD] {
    let mut bytes = [0; HEAD];
    bytes[36..40].copy_from_slice(&(HEAD as u32).to_le_bytes());
    bytes[40..].copy_from_slice(HELLO);
    bytes
}

impl Head {
    pub(super) fn write(&self, to: &mut [u8]) {
        to[..8].copy_from_slice(&self.number.to_le_bytes());
        to[8..16].copy_from_slice(&self.intended.to_le_bytes());
        to[16..24].copy_from_slice(&self.sent.to_le_bytes());
        let place = self.sequence & ((1 << 48) - 1) | u64::from(self.process) << 48;
        to[24..32].copy_from_slice(&place.to_le_bytes());
        to[32..36].copy_from_slice(&self.run.to_le_bytes());
        to[36..40].copy_from_slice(&self.size.to_le_bytes());
        to[40..HEAD].copy_from_slice(PACKET);
    }

    fn read(from: &[u8]) -> Head {
        let place = u64::from_le_bytes(part(from, 24));
        Head {
            number: u64::from_le_bytes(part(from, 0)),
            intended: i64::from_le_bytes(part(from, 8)),
            sent: i64::from_le_bytes(part(from, 16)),
            sequence: place & ((1 << 48) - 1),
            process: (place >> 48) as u16,
            run: u32::from_le_bytes(part(from, 32)),
            size: u32::from_le_bytes(part(from, 36)),
        }
    }
}

impl End {
    pub(super) fn bytes(&self) -> [u8; END] {
        let mut bytes = [0; END];
        let (process, run) = (self.process, self.run);
        let size = END as u32;
        Head { number: 0, intended: 0, sent: 0, sequence: 0, process, run, size }.write(&mut bytes);
        bytes[40..HEAD].copy_from_slice(LAST);
        bytes[HEAD..HEAD + 8].copy_from_slice(&self.sent.to_le_bytes());
        bytes[HEAD + 8..HEAD + 16].copy_from_slice(&self.processes.to_le_bytes());
        bytes[HEAD + 16..].copy_from_slice(&self.boot);
        bytes
    }
}

/// Reads the beginning of a packet, `from`, of which at least a head is there if it is one; `None`
/// if it is none of ours.
pub(super) fn read(from: &[u8]) -> Option<Message> {
    let head = (from.len() >= HEAD).then(|| Head::read(from))?;
    if from[40..HEAD] == *PACKET && head.size as usize >= HEAD && head.number > 0 {
        return Some(Message::Packet(head));
    }
    if from == hello() {
        return Some(Message::Hello);
    }
    let is_end = from[40..HEAD] == *LAST && head.size as usize == END && from.len() >= END;
    is_end.then(|| {
        Message::End(End {
            process: head.process,
            run: head.run,
            sent: u64::from_le_bytes(part(from, HEAD)),
            processes: u64::from_le_bytes(part(from, HEAD + 8)),
            boot: part(from, HEAD + 16),
        })
    })
}

/// The `N` bytes from `at` on.
fn part<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&from[at..at + N]);
    part
}

/// Identifies the boot of a machine: clocks with equal values are the same clock. Zero where the
/// kernel does not say.
pub(super) fn boot() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = text.trim().replace('-', "");
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_its_bytes() {
        let head = Head {
            number: 0x0102,
            intended: 3,
            sent: -4,
            sequence: 0x0605_0403_0201,
            process: 0x0807,
            run: 9,
            size: 44,
        };
        let mut bytes = [0xff; HEAD];
        head.write(&mut bytes);
        let expected: Vec<u8> = [
            &[2, 1, 0, 0, 0, 0, 0, 0][..],
            &[3, 0, 0, 0, 0, 0, 0, 0],
            &[0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[1, 2, 3, 4, 5, 6, 7, 8],
            &[9, 0, 0, 0, 44, 0, 0, 0],
            b"lpP1",
        ]
        .concat();
        assert_eq!(bytes.as_slice(), expected);
        assert_eq!(read(&bytes), Some(Message::Packet(head)));
    }

    #[test]
    fn an_end_comes_back_and_nothing_else_is_taken_for_one() {
        let end = End { process: 3, run: 7, sent: 5, processes: 4, boot: [1; 16] };
        let bytes = end.bytes();
        assert_eq!(read(&bytes), Some(Message::End(end)));
        assert_eq!(read(&bytes[..END - 1]), None);
        assert_eq!(read(&bytes[..HEAD - 1]), None);
        assert_eq!(read(&[0; 1000]), None);
        assert_eq!(read(&[]), None);
        assert_eq!(read(&hello()), Some(Message::Hello));
    }
}
