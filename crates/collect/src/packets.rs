//! From a ring's packets to those of a stream file: records checked and counted, stamps mapped.

use std::borrow::Cow;

use loopscope_ctf::packet::{Context, RECORD, RECORDS, get_u64};
use loopscope_ctf::{EventClass, Kind, PacketError, Records};
use loopscope_time::Counter;

use crate::ClockMap;
use crate::subbuffer::Piece;

/// A packet to be written.
#[derive(Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) begin: Counter,
    pub(crate) end: Counter,
    /// Hits of the ring that were discarded before its end; `None` where the program has not told.
    pub(crate) discarded: Option<u64>,
    pub(crate) tid: u32,
    pub(crate) records: u64,
    pub(crate) body: Cow<'a, [u8]>,
}

impl Packet<'_> {
    /// Bytes in the file.
    pub(crate) fn size(&self) -> usize {
        RECORDS + self.body.len()
    }
}

/// Stamps of one packet at least this far apart do not fit its 32-bit stamps.
const WRAP: u64 = 1 << 32;

/// A context that is enough to decode records with.
pub(crate) fn context_from(begin: Counter) -> Context {
    Context {
        uuid: [0; 16],
        stream_id: 0,
        begin,
        end: begin,
        content_size: 0,
        packet_size: 0,
        sequence: 0,
        discarded: 0,
        pid: 0,
        tid: 0,
    }
}

/// Adds the packets that a ring's packet becomes: none if it has no records; more than one where
/// the clock map takes neighbouring stamps too far apart. Records behind damage are left out.
pub(crate) fn convert<'a>(
    piece: Piece<'a>,
    records: &Records,
    classes: &[EventClass],
    clock: Option<&ClockMap>,
    packets: &mut Vec<Packet<'a>>,
) -> Result<(), PacketError> {
    match clock {
        None => unmapped(piece, records, packets),
        Some(clock) => mapped(piece, records, classes, clock, packets),
    }
}

fn unmapped<'a>(
    piece: Piece<'a>,
    records: &Records,
    packets: &mut Vec<Packet<'a>>,
) -> Result<(), PacketError> {
    let scan = records.scan(&context_from(piece.begin), piece.body);
    if let Some((begin, end)) = scan.stamps {
        let told = piece.closed.filter(|_| scan.damage.is_none());
        packets.push(Packet {
            begin,
            end: told.map_or(end, |closed| end.max(closed.end)),
            discarded: piece.closed.map(|closed| closed.discarded),
            tid: piece.tid,
            records: scan.records,
            body: Cow::Borrowed(&piece.body[..scan.size]),
        });
    }
    scan.damage.map_or(Ok(()), Err)
}

/// Stamps go through the clock map, and with them what else is on the host's counter.
fn mapped<'a>(
    piece: Piece<'a>,
    records: &Records,
    classes: &[EventClass],
    clock: &ClockMap,
    packets: &mut Vec<Packet<'a>>,
) -> Result<(), PacketError> {
    struct Part {
        start: usize,
        begin: Counter,
        end: Counter,
        records: u64,
    }
    let mut parts: Vec<Part> = Vec::new();
    let mut body = piece.body.to_vec();
    let mut size = 0;
    let decoded = records.decode(&context_from(piece.begin), piece.body, |record| {
        let counter = clock(record.counter);
        let at = record.offset;
        body[at + 2..at + 6].copy_from_slice(&(counter.0 as u32).to_le_bytes());
        if classes[record.class].kind == Kind::Interval {
            let fields = at + RECORD;
            let start = clock(Counter(get_u64(&body, fields)));
            let duration = counter.0.saturating_sub(start.0);
            body[fields..fields + 8].copy_from_slice(&start.0.to_le_bytes());
            body[fields + 8..fields + 16].copy_from_slice(&duration.to_le_bytes());
        }
        match parts.last_mut() {
            Some(part) if counter.0 - part.end.0 < WRAP => {
                part.end = counter;
                part.records += 1;
            }
            _ => parts.push(Part { start: at, begin: counter, end: counter, records: 1 }),
        }
        size = at + RECORD + record.fields.len();
    });
    if decoded.is_ok()
        && let (Some(part), Some(closed)) = (parts.last_mut(), piece.closed)
    {
        part.end = clock(closed.end).max(part.end);
    }
    let stops: Vec<usize> = parts.iter().skip(1).map(|part| part.start).chain([size]).collect();
    let count = parts.len();
    for (i, (part, stop)) in parts.into_iter().zip(stops).enumerate() {
        let last = i + 1 == count;
        packets.push(Packet {
            begin: part.begin,
            end: part.end,
            discarded: piece.closed.filter(|_| last).map(|closed| closed.discarded),
            tid: piece.tid,
            records: part.records,
            body: Cow::Owned(body[part.start..stop].to_vec()),
        });
    }
    decoded
}
