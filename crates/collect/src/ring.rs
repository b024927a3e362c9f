//! The collector's side of one ring.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use loopscope_ctf::Records;
use loopscope_time::Counter;
use loopscope_trace::layout::{FLIGHT_RECORDER, RING_FIRST, Ring};

use crate::Error;
use crate::doubts::Doubts;
use crate::mapping::Mapping;
use crate::packets::{Packet, context_from};
use crate::progress::{Progress, ProgressFile};
use crate::sink::{Sink, Tools};
use crate::stream_file::StreamFile;
use crate::subbuffer::{MOST_COUNTED, pieces};

/// Bytes that are written at once, if the ring has as many: what was written is handed back to the
/// program before the rest is.
const BATCH: usize = 1 << 20;
/// The least that a program makes (config.c, ring.c).
const SMALLEST_SUBBUFFER: usize = 256;

/// Reader of a ring, writer of its stream.
#[derive(Debug)]
pub(crate) struct RingReader {
    /// Name of its file.
    pub(crate) name: String,
    pub(crate) map: Mapping<Ring>,
    pub(crate) data: usize,
    pub(crate) size: usize,
    pub(crate) count: u64,
    pub(crate) flight: bool,
    /// Sub-buffers copied; of a flight recorder, those before the ones that a snapshot has not
    /// taken yet.
    pub(crate) tail: u64,
    /// Bytes of sub-buffer `tail` that a flight recorder's snapshot has taken.
    pub(crate) taken: usize,
    /// In the file of progress.
    pub(crate) number: usize,
    pub(crate) seen: Seen,
    pub(crate) sink: Sink,
    /// Something in it cannot be: nothing is read of it any more.
    pub(crate) broken: bool,
}

/// The sub-buffers that a stream's rings were asked to have, of which none has more or larger ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) size: u32,
    pub(crate) count: u32,
}

impl Most {
    /// Bytes of the largest ring's file.
    pub(crate) fn bytes(self) -> usize {
        let head = (RING_FIRST + 8 * self.count as usize).next_multiple_of(4096);
        head.saturating_add(self.size as usize * self.count as usize)
    }
}

/// How far a ring has got, taken before the process's call sites are read: the classes of all
/// records up to here are known then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) head: u64,
    /// Bytes of the open sub-buffer, if one was open.
    pub(crate) committed: Option<usize>,
}

/// How far a ring has been looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Sub-buffer.
    pub(crate) number: u64,
    /// Where the packet in it begins that is looked at.
    pub(crate) packet: usize,
    /// Where the next record begins, and the stamp before it; `None` if the packet's head has not
    /// been seen.
    pub(crate) record: Option<(usize, Counter)>,
}

/// A ring's final count.
#[derive(Clone, Debug, Default)]
pub(crate) struct RingCount {
    pub(crate) emitted: u64,
    pub(crate) recorded: u64,
    pub(crate) overwritten: u64,
    /// By event class.
    pub(crate) lost: BTreeMap<usize, u64>,
    /// A thread was inside a hit when the ring was last seen.
    pub(crate) inside: bool,
}

/// Place of sub-buffer `number` of a flight recorder with `count` places. The first one keeps its
/// place for good.
pub(crate) fn place_of(number: u64, count: u64) -> u64 {
    if number == 0 { 0 } else { 1 + (number - 1) % (count - 1) }
}

/// A count that the program tells.
pub(crate) fn count(value: &AtomicU64, order: Ordering) -> u64 {
    value.load(order).min(MOST_COUNTED)
}

impl RingReader {
    /// `None` for a ring whose head makes no sense, or not for this file.
    pub(crate) fn new(
        name: String,
        map: Mapping<Ring>,
        stream: StreamFile,
        number: usize,
        most: Most,
    ) -> Option<RingReader> {
        let ring = map.get();
        let load = |value: &std::sync::atomic::AtomicU32| value.load(Ordering::Relaxed);
        let flight = load(&ring.kind) == FLIGHT_RECORDER;
        let (data, size) = (load(&ring.data) as usize, load(&ring.subbuffer_size) as usize);
        let count = load(&ring.subbuffer_count);
        let counts = if flight { 2 } else { 1 }..=most.count;
        let head = RING_FIRST + if flight { 8 * count as usize } else { 0 };
        let sound = counts.contains(&count)
            && (SMALLEST_SUBBUFFER..=most.size as usize).contains(&size)
            && size.is_multiple_of(8)
            && data.is_multiple_of(8)
            && data >= head
            && data + size * count as usize <= map.size();
        let reader = RingReader {
            name,
            data,
            size,
            count: count.into(),
            flight,
            tail: 0,
            taken: 0,
            number,
            seen: Seen::default(),
            sink: Sink::new(stream),
            broken: false,
            map,
        };
        sound.then_some(reader)
    }

    /// Gives the ring up: of what it holds and nobody has taken nothing is known.
    pub(crate) fn give_up(&mut self, what: &str, doubts: &mut Doubts) {
        self.broken = true;
        doubts.add(format!("{}: {what}; what it held then is not known", self.name));
    }

    /// Whether nothing may be read of the ring any more, because its file has been cut short.
    pub(crate) fn is_cut(&mut self, doubts: &mut Doubts) -> bool {
        if !self.broken && self.map.is_cut() {
            self.give_up("its file was cut short", doubts);
        }
        self.broken
    }

    /// What has been taken so far.
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            tail: self.tail,
            taken: self.taken as u64,
            recorded: self.sink.recorded,
            file: self.sink.stream.at,
        }
    }

    /// Goes on where an earlier collector was when it ended: a normal ring's tail tells which of
    /// two notes is the one to believe.
    pub(crate) fn resume(&mut self, progress: &ProgressFile) -> Result<(), Error> {
        let tail = self.map.get().tail.load(Ordering::Relaxed);
        let known = progress.get(self.number, (!self.flight).then_some(tail));
        let known = known.unwrap_or_default();
        self.tail = if self.flight { known.tail } else { tail };
        self.taken = known.taken as usize;
        self.sink.recorded = known.recorded;
        self.sink.last = known.file.end;
        self.sink.stream.at = known.file;
        if known.file.lost > 0 {
            // The call sites of these losses are not known any more.
            self.sink.lost.insert(0, known.file.lost);
        }
        self.sink.stream.cut()
    }

    pub(crate) fn mark(&self) -> Mark {
        if self.broken {
            return Mark { head: self.tail, committed: None };
        }
        let head = self.head();
        Mark { head, committed: self.committed(head) }
    }

    pub(crate) fn head(&self) -> u64 {
        // Acquire pairs with the release store in make_room (record.c).
        self.map.get().head.load(Ordering::Acquire)
    }

    /// How full the ring is, 0 to 1.
    pub(crate) fn fill(&self, mark: Mark) -> f64 {
        if self.flight {
            0.0
        } else {
            (mark.head - self.tail.min(mark.head)) as f64 / self.count as f64
        }
    }

    /// Where sub-buffer `number` lies in the file.
    pub(crate) fn place(&self, number: u64) -> u64 {
        if self.flight { place_of(number, self.count) } else { number % self.count }
    }

    pub(crate) fn offset(&self, number: u64) -> usize {
        self.data + self.place(number) as usize * self.size
    }

    /// Writes the complete sub-buffers up to `mark` and hands them back. Returns how many.
    pub(crate) fn drain(
        &mut self,
        mark: Mark,
        tools: Tools,
        doubts: &mut Doubts,
    ) -> Result<u64, Error> {
        if self.flight || self.is_cut(doubts) {
            return Ok(0);
        }
        let head = mark.head;
        if head > self.tail.saturating_add(self.count) {
            // It says more than the ring holds: which of its sub-buffers are new nobody knows.
            self.give_up("its head makes no sense", doubts);
            return Ok(0);
        }
        let before = self.tail;
        let at_once = (BATCH / self.size).max(1) as u64;
        while self.tail < head {
            let stop = head.min(self.tail + at_once);
            let parts: Vec<(u64, usize)> = (self.tail..stop).map(|n| (n, self.size)).collect();
            self.keep(&parts, None, tools, doubts)?;
            if self.broken {
                return Ok(self.tail - before);
            }
            self.tail = stop;
            tools.progress.put(self.number, &self.progress());
            // Release pairs with the acquire load in open_subbuffer (record.c): nobody reads there
            // any more.
            self.map.get().tail.store(self.tail, Ordering::Release);
        }
        Ok(self.tail - before)
    }

    /// Writes the packets of sub-buffers: number, and bytes used. An open packet's count of
    /// discarded hits is `discarded`.
    fn keep(
        &mut self,
        parts: &[(u64, usize)],
        discarded: Option<u64>,
        tools: Tools,
        doubts: &mut Doubts,
    ) -> Result<(), Error> {
        let mut copies = tools.copies.borrow_mut();
        copies.clear();
        for &(number, used) in parts {
            // Inside, as `new` has checked.
            let copied = self.map.copy(self.offset(number), used.min(self.size), &mut copies);
            debug_assert!(copied, "sub-buffer {number} of {}", self.name);
        }
        // After the copying: what was copied is the program's.
        if self.is_cut(doubts) {
            return Ok(());
        }
        let mut packets: Vec<Packet> = Vec::new();
        let mut rest = copies.as_slice();
        for &(number, used) in parts {
            let (bytes, behind) = rest.split_at(used.min(self.size).min(rest.len()));
            rest = behind;
            let walked = pieces(bytes, bytes.len(), |piece| {
                let before = packets.len();
                let converted = tools.convert(piece, &mut packets);
                if let Err(damage) = converted {
                    doubts.add(self.damage(number, damage));
                }
                if piece.closed.is_none()
                    && let Some(packet) = packets[before..].last_mut()
                {
                    packet.discarded = discarded;
                }
            });
            if let Err(damage) = walked {
                doubts.add(self.damage(number, damage));
            }
        }
        self.sink.write(&packets, tools)?;
        Ok(())
    }

    pub(crate) fn damage(&self, number: u64, what: impl std::fmt::Display) -> String {
        format!("{}: sub-buffer {number}: {what}; its records are lost", self.name)
    }

    /// Bytes of the open sub-buffer, if one is open.
    pub(crate) fn committed(&self, head: u64) -> Option<usize> {
        // Acquire pairs with the release stores in put and begin_packet (record.c).
        let committed = self.map.get().committed.load(Ordering::Acquire);
        let (number, size) = (committed >> 32, committed & 0xffff_ffff);
        (number == head & 0xffff_ffff && size != 0).then_some(size as usize)
    }

    pub(crate) fn discarded(&self) -> u64 {
        // Acquire pairs with the release store in put_elsewhere (record.c): who sees the drop here
        // sees it in the control file.
        count(&self.map.get().discarded, Ordering::Acquire)
    }

    /// Discarded hits that packets tell, those that reached no ring included.
    pub(crate) fn reported_discarded(&self) -> u64 {
        self.discarded() + count(&self.map.get().reentered, Ordering::Relaxed)
    }

    /// Records among the first `used` bytes of a sub-buffer.
    pub(crate) fn count_records(&self, number: u64, used: usize, records: &Records) -> u64 {
        let (mut count, mut bytes) = (0, Vec::new());
        if self.map.copy(self.offset(number), used.min(self.size), &mut bytes) {
            // What cannot be read is not counted.
            let _ = pieces(&bytes, used, |piece| {
                count += records.scan(&context_from(piece.begin), piece.body).records;
            });
        }
        count
    }

    /// Whether every hit so far is a record or a drop: no thread is inside a hit. The complete
    /// sub-buffers must have been drained.
    pub(crate) fn is_settled(&self, records: &Records) -> bool {
        if self.broken {
            return true;
        }
        let head = self.head();
        let mut done = self.discarded();
        if self.flight {
            done += self.total(records);
        } else if head != self.tail {
            return false;
        } else {
            done += self.sink.taken();
            if let Some(size) = self.committed(head) {
                done += self.count_records(head, size, records);
            }
        }
        // Loaded last: if it equals what was done before, nothing was under way in between. Acquire
        // keeps it behind the loads above; the program's store is its own first (record.c).
        self.map.get().emitted.load(Ordering::Acquire) == done
    }

    /// Tells the program to use the ring no more. The two stores and the program's load of revoked
    /// and store of limit (begin_packet, record.c) are sequentially consistent: either it sees that
    /// the ring is revoked, or its limit is the one that is zeroed here.
    pub(crate) fn revoke(&self) {
        let ring = self.map.get();
        ring.revoked.store(1, Ordering::SeqCst);
        ring.limit.store(0, Ordering::SeqCst);
    }

    /// Takes what is left of a ring that is written to no more, unless it is a flight recorder's,
    /// and ends its stream. In a process that `lives` a thread may have gone on.
    pub(crate) fn close(
        &mut self,
        tools: Tools,
        lives: bool,
        doubts: &mut Doubts,
    ) -> Result<RingCount, Error> {
        self.map.touch_end();
        // Before what it is compared with, so that a thread that goes on counts too little here:
        // acquire keeps the later loads behind.
        let mut emitted = count(&self.map.get().emitted, Ordering::Acquire);
        let mut overwritten = 0;
        if self.flight {
            if !self.is_cut(doubts) {
                overwritten = self.total(tools.records).saturating_sub(self.sink.taken());
            }
        } else {
            let mark = self.mark();
            self.drain(mark, tools, doubts)?;
            if let Some(size) = self.committed(self.tail).filter(|_| !self.broken) {
                let discarded = Some(self.reported_discarded());
                self.keep(&[(self.tail, size)], discarded, tools, doubts)?;
            }
        }
        let discarded = self.discarded();
        let tid = self.map.get().tid.load(Ordering::Relaxed);
        self.sink.stream.close(tid, self.reported_discarded() + overwritten)?;
        let accounted = self.sink.taken() + overwritten + discarded;
        // Cut short since, it may have told anything.
        if lives || self.is_cut(doubts) {
            emitted = emitted.max(accounted);
        }
        Ok(RingCount {
            emitted,
            recorded: self.sink.recorded,
            overwritten,
            lost: std::mem::take(&mut self.sink.lost),
            inside: emitted > accounted,
        })
    }
}
