//! What is in a datagram between a home and a mirror.

use std::io;

use loopscope_stm::NewItem;
use loopscope_stm_shared::message::{HEAD, Head, unknown};

/// Bytes of an item in one datagram: with all headers it fits 1500 bytes, also over IPv6.
pub(crate) const PART: usize = 1384;
/// Bytes before those of the item: the token, the datagram's number, and a head.
const BEFORE: usize = 16 + HEAD;
/// The longest datagram.
pub(crate) const LONGEST: usize = BEFORE + PART;
/// Ranges of an acknowledgement at most.
pub(crate) const RANGES: usize = 40;

/// The number of datagrams that an item of some bytes needs.
pub(crate) fn parts_of(bytes: u32) -> u32 {
    bytes.div_ceil(PART as u32).max(1)
}

/// The bytes of an item in one of its datagrams.
pub(crate) fn part_of(part: u32, bytes: &[u8]) -> &[u8] {
    let from = (part as usize * PART).min(bytes.len());
    &bytes[from..(from + PART).min(bytes.len())]
}

/// A datagram to a mirror, before its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The datagram's number, from 0 on; one that is sent again has a new one.
    pub(crate) number: u64,
    /// The item's number on the connection, from 0 on.
    pub(crate) serial: u64,
    /// Its instants are the home's.
    pub(crate) item: NewItem,
    /// The place of its bytes in the item: they begin at this times `PART`.
    pub(crate) part: u32,
}

impl Part {
    pub(crate) fn write(&self, token: u64, bytes: &[u8], to: &mut Vec<u8>) {
        let Part { number, serial, item, part } = *self;
        let head = Head {
            kind: 1,
            small: [item.half_width, item.length, part],
            large: [item.time, item.put_ns, item.put_error_ns, serial.cast_signed()],
        };
        to.clear();
        to.extend_from_slice(&token.to_le_bytes());
        to.extend_from_slice(&number.to_le_bytes());
        to.extend_from_slice(&head.bytes());
        to.extend_from_slice(bytes);
    }

    /// What is in a datagram, and its bytes. None: it is not of this connection.
    ///
    /// # Errors
    /// It says what cannot be.
    pub(crate) fn read(token: u64, datagram: &[u8]) -> io::Result<Option<(Part, &[u8])>> {
        let Some((number, mut rest)) = numbered(token, datagram) else { return Ok(None) };
        let Head { kind, small: [half_width, length, part], large } = Head::read(&mut rest)?;
        if kind != 1 {
            return Err(unknown(kind));
        }
        let [time, put_ns, put_error_ns, serial] = large;
        let item = NewItem { time, half_width, length, put_ns, put_error_ns: put_error_ns.max(0) };
        Ok(Some((Part { number, serial: serial.cast_unsigned(), item, part }, rest)))
    }
}

/// Writes which datagrams have come: from and to, both included.
pub(crate) fn write_acknowledged(token: u64, ranges: &[(u64, u64)]) -> Vec<u8> {
    let numbers = ranges.iter().flat_map(|(from, to)| [*from, *to]);
    [token, ranges.len() as u64].into_iter().chain(numbers).flat_map(u64::to_le_bytes).collect()
}

/// The datagrams that have come. None: it is not of this connection, or makes no sense.
pub(crate) fn read_acknowledged(token: u64, datagram: &[u8]) -> Option<Vec<(u64, u64)>> {
    let (count, rest) = numbered(token, datagram)?;
    if count as usize > RANGES || rest.len() != 16 * count as usize {
        return None;
    }
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    let ranges = rest.chunks_exact(16).map(|range| (word(&range[..8]), word(&range[8..])));
    ranges.map(|(from, to)| (from <= to).then_some((from, to))).collect()
}

/// The number behind the token, and the rest.
fn numbered(token: u64, datagram: &[u8]) -> Option<(u64, &[u8])> {
    let (its, rest) = datagram.split_first_chunk::<8>()?;
    let (number, rest) = rest.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*its) == token).then(|| (u64::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: NewItem =
        NewItem { time: -1, half_width: 2, length: 3, put_ns: -4, put_error_ns: 5 };

    #[test]
    fn what_is_written_is_read_by_those_who_have_the_token() {
        let part = Part { number: 6, serial: u64::MAX, item: ITEM, part: 7 };
        let mut datagram = vec![9; 9];
        part.write(8, b"abc", &mut datagram);
        assert_eq!(Part::read(8, &datagram).unwrap(), Some((part, &b"abc"[..])));
        assert_eq!(Part::read(9, &datagram).unwrap(), None);
        assert_eq!(Part::read(8, &datagram[..15]).unwrap(), None);
        assert!(Part::read(8, &datagram[..40]).is_err());
        datagram[16] = 2;
        assert!(Part::read(8, &datagram).is_err());
        let ranges = [(7, 9), (1, 1)];
        let told = write_acknowledged(8, &ranges);
        assert_eq!(read_acknowledged(8, &told), Some(ranges.to_vec()));
        assert_eq!(read_acknowledged(9, &told), None);
        assert_eq!(read_acknowledged(8, &told[..40]), None);
        assert_eq!(read_acknowledged(8, &write_acknowledged(8, &[(2, 1)])), None);
        assert_eq!(read_acknowledged(8, &write_acknowledged(8, &[(1, 1); RANGES + 1])), None);
    }

    #[test]
    fn the_parts_of_an_item_are_its_bytes() {
        for bytes in [0, 1, PART - 1, PART, PART + 1, 5 * PART] {
            let item: Vec<u8> = (0..bytes).map(|place| place as u8).collect();
            let parts = (0..parts_of(bytes as u32)).map(|part| part_of(part, &item));
            assert_eq!(parts.flatten().copied().collect::<Vec<_>>(), item);
            assert!(part_of(parts_of(bytes as u32), &item).is_empty());
        }
    }
}
