//! Pages of the kernel's ring buffer, as `trace_pipe_raw` gives them
//! (Documentation/trace/ring-buffer-design.rst, include/linux/ring_buffer.h).

use loopscope_ctf::packet::{get_u32, get_u64};

/// Size of a page's header: a stamp and its state.
pub const HEADER: usize = 16;

/// The page comes after others that were lost.
const MISSED: u64 = 1 << 31;
/// How many were lost is after its records.
const MISSED_STORED: u64 = 1 << 30;
/// The size of its records.
const SIZE: u64 = (1 << 30) - 1;

/// Kinds of records that are no event, and the highest that says how long an event is.
const LONGEST: u32 = 28;
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;

/// Bits of a record's difference in time.
const DELTA: u32 = 27;
/// Bits of a stamp that a record holds as a whole; those above are the last one's.
const STAMP: u32 = 59;

/// The header of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The counter that the first record's difference is from.
    pub stamp: u64,
    /// Size of its records in bytes.
    pub size: usize,
    /// Events that were overwritten before it, where there are any and their number is known.
    pub missed: Missed,
}

/// Events that were overwritten before a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// None.
    None,
    /// So many.
    Count(u64),
    /// Some.
    Unknown,
}

/// A page that is not as the kernel makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset}: {what}")]
pub struct PageError {
    /// Where in what was read.
    pub offset: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// The header of the page that `bytes` begin with, and the bytes that the page takes without what
/// is unused at its end.
pub fn header(bytes: &[u8]) -> Result<(Header, usize), PageError> {
    let short = |offset| PageError { offset, what: "the page is cut short" };
    if bytes.len() < HEADER {
        return Err(short(bytes.len()));
    }
    let state = get_u64(bytes, 8);
    let size = (state & SIZE) as usize;
    let stored = state & MISSED != 0 && state & MISSED_STORED != 0;
    let end = HEADER + size + if stored { 8 } else { 0 };
    if bytes.len() < end {
        return Err(short(bytes.len()));
    }
    let missed = match (state & MISSED != 0, stored) {
        (false, _) => Missed::None,
        (true, true) => Missed::Count(get_u64(bytes, HEADER + size)),
        (true, false) => Missed::Unknown,
    };
    Ok((Header { stamp: get_u64(bytes, 0), size, missed }, end))
}

/// Gives each event of a page to `each`: the counter and its bytes. `records` are those after the
/// header.
pub fn events<'a>(
    header: &Header,
    records: &'a [u8],
    mut each: impl FnMut(u64, &'a [u8]),
) -> Result<(), PageError> {
    let mut stamp = header.stamp;
    let mut at = 0;
    while at < records.len() {
        let wrong = |what| PageError { offset: HEADER + at, what };
        let word = |at: usize| -> Option<u64> {
            (at + 4 <= records.len()).then(|| u64::from(get_u32(records, at)))
        };
        let head = word(at).ok_or_else(|| wrong("half a record"))? as u32;
        // The lower five bits where the machine is little-endian.
        let (kind, delta) = (head & 31, u64::from(head >> 5));
        let second = || word(at + 4).ok_or_else(|| wrong("half a record"));
        match kind {
            PADDING if delta == 0 => break,
            PADDING => {
                stamp = stamp.wrapping_add(delta);
                at += 4 + second()? as usize;
            }
            TIME_EXTEND => {
                stamp = stamp.wrapping_add(delta | second()? << DELTA);
                at += 8;
            }
            31 => {
                let low = delta | second()? << DELTA;
                stamp = low & ((1 << STAMP) - 1) | stamp >> STAMP << STAMP;
                at += 8;
            }
            _ => {
                stamp = stamp.wrapping_add(delta);
                let (begin, size) = match kind {
                    0 => {
                        let size = second()? as usize;
                        (at + 8, size.checked_sub(4).ok_or_else(|| wrong("a record of no size"))?)
                    }
                    1..=LONGEST => (at + 4, 4 * kind as usize),
                    _ => unreachable!("five bits have no other values"),
                };
                let event = records.get(begin..begin + size);
                each(stamp, event.ok_or_else(|| wrong("a record goes beyond its page"))?);
                // The kernel keeps records at multiples of four bytes.
                at = begin + size.next_multiple_of(4);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: u32, delta: u32) -> [u8; 4] {
        (kind | delta << 5).to_le_bytes()
    }

    fn page(stamp: u64, records: &[u8], flags: u64, after: &[u8]) -> Vec<u8> {
        let mut page = stamp.to_le_bytes().to_vec();
        page.extend((records.len() as u64 | flags).to_le_bytes());
        page.extend(records);
        page.extend(after);
        page
    }

    fn all(page: &[u8]) -> Result<Vec<(u64, Vec<u8>)>, PageError> {
        let (header, _) = header(page)?;
        let mut found = vec![];
        let records = &page[HEADER..HEADER + header.size];
        events(&header, records, |stamp, event| found.push((stamp, event.to_vec())))?;
        Ok(found)
    }

    #[test]
    fn every_kind_of_record_moves_the_time_as_the_kernel_means_it() {
        let mut records = vec![];
        records.extend(head(2, 5));
        records.extend([1; 8]);
        // A long one, with its size in a word of its own: 4 for that word, and 116.
        records.extend(head(0, 1));
        records.extend(120_u32.to_le_bytes());
        records.extend([2; 116]);
        // More than 2^27 later.
        records.extend(head(TIME_EXTEND, 3));
        records.extend(2_u32.to_le_bytes());
        records.extend(head(1, 0));
        records.extend([3; 4]);
        // One that was taken back: its time passed.
        records.extend(head(PADDING, 7));
        records.extend(12_u32.to_le_bytes());
        records.extend([9; 8]);
        records.extend(head(1, 1));
        records.extend([4; 4]);
        // An absolute stamp, of which 59 bits are there.
        records.extend(head(31, 9));
        records.extend(1_u32.to_le_bytes());
        records.extend(head(1, 1));
        records.extend([5; 4]);
        records.extend(head(PADDING, 0));
        records.extend([8; 40]);
        let high = 0xf8_u64 << 56;
        let found = all(&page(high | 1000, &records, 0, &[])).unwrap();
        let extended = 1006 + 3 + (2 << 27);
        let stamps: Vec<u64> = found.iter().map(|(stamp, _)| stamp & !high).collect();
        assert_eq!(stamps, [1005, 1006, extended, extended + 8, (1 << 27) + 9 + 1]);
        assert!(found.iter().all(|(stamp, _)| stamp & high == high));
        let sizes: Vec<usize> = found.iter().map(|(_, event)| event.len()).collect();
        assert_eq!(sizes, [8, 116, 4, 4, 4]);
        assert!(found.iter().zip(1..).all(|((_, event), byte)| event.iter().all(|b| *b == byte)));
    }

    #[test]
    fn what_was_overwritten_is_told() {
        let of = |flags, after: &[u8]| header(&page(7, &[0; 4], flags, after)).unwrap();
        assert_eq!(of(0, &[]).0.missed, Missed::None);
        assert_eq!(of(MISSED, &[]), (Header { stamp: 7, size: 4, missed: Missed::Unknown }, 20));
        let (counted, end) = of(MISSED | MISSED_STORED, &55_u64.to_le_bytes());
        assert_eq!((counted.missed, end), (Missed::Count(55), 28));
    }

    #[test]
    fn damage_is_an_error_with_its_place() {
        assert!(header(&[0; 15]).is_err());
        let whole = page(0, &[head(3, 0), [0; 4]].concat(), 0, &[]);
        assert_eq!(all(&whole).unwrap_err().offset, HEADER);
        assert!(header(&whole[..20]).is_err());
        let sizeless = page(0, &[head(0, 0), 3_u32.to_le_bytes()].concat(), 0, &[]);
        assert!(all(&sizeless).unwrap_err().what.contains("no size"));
    }

    proptest::proptest! {
        /// No bytes make it panic, or go on for ever.
        #[test]
        fn any_bytes_are_events_or_an_error(bytes in proptest::collection::vec(0_u8.., 0..300)) {
            let _ = all(&page(u64::MAX, &bytes, 0, &[]));
        }
    }
}
