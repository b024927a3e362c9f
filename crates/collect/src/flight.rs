//! Snapshots of a flight recorder's ring.
//!
//! A snapshot takes what the ring holds and no earlier snapshot has taken. Meanwhile a thread may
//! go on and overwrite, so that each sub-buffer is copied first and the ring's head looked at
//! afterwards.

use std::sync::atomic::Ordering;

use loopscope_ctf::Records;
use loopscope_ctf::packet::RECORDS;
use loopscope_trace::layout::RING_FIRST;

use crate::Error;
use crate::doubts::Doubts;
use crate::packets::{Packet, context_from};
use crate::ring::{Mark, RingReader, count};
use crate::sink::Tools;
use crate::subbuffer::{Piece, pieces};

#[cfg(test)]
mod model;

/// Copies of a sub-buffer that is being overwritten before it is given up.
const TRIES: u32 = 8;

/// A copy of a sub-buffer, or of the part of it that there is.
struct Copy {
    /// Records in the ring before its first.
    first: u64,
    used: usize,
    bytes: Vec<u8>,
    /// It was open, so that there may be more of it later.
    open: bool,
}

impl RingReader {
    fn first(&self, number: u64) -> u64 {
        // Acquire keeps the loads in order; head, loaded after, says whether the word still held.
        let word = self.map.word(RING_FIRST + 8 * self.place(number) as usize);
        word.map_or(0, |first| count(first, Ordering::Acquire))
    }

    /// Records that were ever in the ring.
    pub(crate) fn total(&self, records: &Records) -> u64 {
        for _ in 0..TRIES {
            let head = self.head();
            let total = match self.committed(head) {
                Some(used) => self.first(head) + self.count_records(head, used, records),
                None if head == 0 => 0,
                // Closed, and the next one not open yet: the place of that is another's.
                None => self.first(head - 1) + self.count_records(head - 1, self.size, records),
            };
            if self.head() == head {
                return total;
            }
        }
        // A thread goes on; what it adds is nobody's any more.
        self.first(self.head().saturating_sub(1))
    }

    /// The oldest number above 0 whose place nobody writes to.
    fn oldest(&self, head: u64) -> u64 {
        oldest(head, self.count)
    }

    /// Copies sub-buffer `number`, or of the one that was open at the mark what was there then;
    /// `None` if nothing was, or it was overwritten meanwhile.
    fn copy_of(&self, number: u64, mark: Mark) -> Option<Copy> {
        let open = number == mark.head;
        let used = if open { mark.committed? } else { self.size };
        let first = self.first(number);
        let mut bytes = Vec::new();
        self.map.copy(self.offset(number), used.min(self.size), &mut bytes).then_some(())?;
        // Pairs with the release fence in open_subbuffer (record.c): if any of what was copied was
        // written over it, head says so.
        std::sync::atomic::fence(Ordering::Acquire);
        let whole = number == 0 || number >= self.oldest(self.head());
        whole.then_some(Copy { first, used, bytes, open })
    }

    /// Writes what the ring held at the mark and no earlier snapshot has taken. Returns the
    /// packets.
    pub(crate) fn snapshot(
        &mut self,
        mark: Mark,
        tools: Tools,
        doubts: &mut Doubts,
    ) -> Result<u64, Error> {
        let mut written = 0;
        let from = self.tail;
        if from == 0 {
            written += self.take(0, mark, tools, doubts)?;
        }
        // Recomputed as it goes: a thread that goes on overwrites the oldest.
        let mut number = from.max(self.oldest(mark.head));
        while number <= mark.head {
            number = number.max(self.oldest(self.head()));
            if number > mark.head || self.is_cut(doubts) {
                break;
            }
            written += self.take(number, mark, tools, doubts)?;
            number = number.saturating_add(1);
        }
        Ok(written)
    }

    fn take(
        &mut self,
        number: u64,
        mark: Mark,
        tools: Tools,
        doubts: &mut Doubts,
    ) -> Result<u64, Error> {
        let Some(copy) = self.copy_of(number, mark) else { return Ok(0) };
        if self.is_cut(doubts) {
            return Ok(0);
        }
        let already = if number == self.tail { self.taken } else { 0 };
        // Records of the sub-buffer that were taken earlier precede the rest.
        let before = records_up_to(&copy, already, tools.records);
        let told = self.reported_discarded();
        let mut packets: Vec<Packet> = Vec::new();
        let mut seen = copy.first;
        let walked = pieces(&copy.bytes, copy.used, |piece| {
            let Some(piece) = rest_of(piece, already, tools.records) else { return };
            let start = packets.len();
            if let Err(damage) = tools.convert(piece, &mut packets) {
                doubts.add(self.damage(number, damage));
            }
            if piece.closed.is_none()
                && let Some(packet) = packets[start..].last_mut()
            {
                packet.discarded = Some(told);
            }
        });
        if let Err(damage) = walked {
            doubts.add(self.damage(number, damage));
        }
        seen += before;
        // What was overwritten before is discarded for who reads the stream.
        for packet in &mut packets {
            let overwritten = seen.saturating_sub(self.sink.taken());
            let told = packet.discarded.unwrap_or(0);
            packet.discarded = Some(told + overwritten);
        }
        let done = self.sink.write(&packets, tools)? as u64;
        (self.tail, self.taken) =
            if copy.open { (number, copy.used) } else { (number.saturating_add(1), 0) };
        tools.progress.put(self.number, &self.progress());
        Ok(done)
    }
}

/// The oldest number above 0 that is whole in a ring of so many places while `head` is being
/// written.
fn oldest(head: u64, count: u64) -> u64 {
    head.saturating_add(2).saturating_sub(count).max(1)
}

/// The part of a packet behind the first `already` bytes of its sub-buffer.
fn rest_of<'a>(piece: Piece<'a>, already: usize, records: &Records) -> Option<Piece<'a>> {
    if already <= piece.offset {
        return Some(piece);
    }
    let skip = (already - piece.offset).min(piece.body.len());
    if skip == piece.body.len() {
        return None;
    }
    // What was taken was good.
    let taken = records.scan(&context_from(piece.begin), &piece.body[..skip]);
    let last = taken.stamps.map_or(piece.begin, |(_, last)| last);
    Some(Piece { begin: last, offset: already, body: &piece.body[skip..], ..piece })
}

/// Records in the first `already` bytes of a sub-buffer.
fn records_up_to(copy: &Copy, already: usize, records: &Records) -> u64 {
    let mut count = 0;
    if already > RECORDS {
        let _ = pieces(&copy.bytes, already, |piece| {
            count += records.scan(&context_from(piece.begin), piece.body).records;
        });
    }
    count
}
