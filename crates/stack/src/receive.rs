//! The stream that comes: what is in order, what is ahead of a gap, and the window.

use std::collections::VecDeque;
use std::ops::Range;

use crate::place::Place;
use crate::ring::Ring;
use crate::segment::{Blocks, MOST_BLOCKS};

/// More ranges beyond gaps are not kept: a peer that leaves every other byte out costs no more.
const MOST_GAPS: usize = 256;

/// The data of the other end, until the program reads them.
#[derive(Debug)]
pub(crate) struct Incoming {
    ring: Ring,
    /// The first byte that the program has not read.
    read: Place,
    /// RCV.NXT: the first byte that has not come.
    next: Place,
    /// The first byte that the other end must not send, as it was told: RCV.NXT + RCV.WND. It never
    /// goes back (RFC 9293 §3.8.6).
    edge: Place,
    /// What has come beyond `next`: rising, with gaps between them and before the first.
    ahead: VecDeque<Range<Place>>,
    /// Beginnings of what came beyond a gap last, the latest first.
    recent: [Option<Place>; MOST_BLOCKS],
    /// What came twice last, until it is reported (RFC 2883).
    twice: Option<Range<Place>>,
}

/// What came of a segment's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Came {
    /// Bytes that are in order now: those of the segment and those that waited for them.
    pub(crate) in_order: usize,
    /// Whether there are gaps, or one was filled: an acknowledgement must not wait (RFC 5681 §4.2).
    pub(crate) at_gap: bool,
    /// Whether all of it had come before.
    pub(crate) known: bool,
    /// Bytes for which there was no room, or that would have made too many gaps.
    pub(crate) refused: usize,
}

impl Incoming {
    /// `read`: the first byte that the program has not read. `next`: RCV.NXT. `edge`: the first byte
    /// that the other end must not send. The ring has room from `read` to `edge`, and has what came.
    pub(crate) fn new(read: Place, next: Place, edge: Place, ring: Ring) -> Incoming {
        Incoming {
            ring,
            read,
            next,
            edge,
            ahead: VecDeque::with_capacity(MOST_GAPS + 1),
            recent: [None; MOST_BLOCKS],
            twice: None,
        }
    }

    /// The first byte that the program has not read.
    pub(crate) fn begin(&self) -> Place {
        self.read
    }

    pub(crate) fn next(&self) -> Place {
        self.next
    }

    pub(crate) fn edge(&self) -> Place {
        self.edge
    }

    /// [`Ring::origin`].
    pub(crate) fn origin(&self) -> Place {
        self.ring.origin()
    }

    /// Bytes that the program can read.
    pub(crate) fn readable(&self) -> usize {
        self.next.since(self.read)
    }

    /// Whether data came beyond a gap.
    pub(crate) fn has_gap(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Whether the next acknowledgement reports blocks, where both ends may.
    pub(crate) fn has_blocks(&self) -> bool {
        self.has_gap() || self.twice.is_some()
    }

    /// Copies what can be read to `target`, as far as it has room. The number of bytes.
    pub(crate) fn read(&mut self, target: &mut [u8]) -> usize {
        let count = target.len().min(self.readable());
        self.ring.copy_out(self.read, &mut target[..count]);
        self.read = self.read + count;
        count
    }

    /// The bytes that can be read.
    pub(crate) fn into_unread(mut self) -> Vec<u8> {
        let mut unread = vec![0; self.readable()];
        self.read(&mut unread);
        unread
    }

    /// Whether a segment of so many bytes has anything that may be taken (RFC 9293 §3.10.7.4).
    pub(crate) fn accepts(&self, begin: Place, length: usize) -> bool {
        let window = self.edge.since(self.next);
        match (length, window) {
            (0, 0) => begin == self.next,
            (0, _) => self.next <= begin && begin < self.edge,
            (_, 0) => false,
            _ => begin < self.edge && begin + length > self.next,
        }
    }

    /// Takes the data of a segment.
    pub(crate) fn take(&mut self, begin: Place, payload: &[u8]) -> Came {
        let whole = begin..begin + payload.len();
        let had_gap = self.has_gap();
        let inside = whole.start.max(self.next)..whole.end.min(self.edge);
        let mut came = Came { refused: whole.end.since(self.edge), ..Came::default() };
        if payload.is_empty() {
            return came;
        }
        self.note_twice(&whole);
        if inside.start >= inside.end {
            came.known = whole.end <= self.next;
            came.at_gap = had_gap;
            return came;
        }
        if !self.make_place(&inside) {
            came.refused = payload.len();
            came.at_gap = true;
            return came;
        }
        let from = inside.start.since(begin);
        let data = &payload[from..from + inside.end.since(inside.start)];
        if !had_gap && self.read == self.next {
            self.ring.begin(self.next);
        }
        self.ring.store(inside.start, data);
        came.known = self.twice.as_ref().is_some_and(|twice| *twice == whole);
        if self.ahead.front().is_some_and(|first| first.start <= self.next) {
            let first = self.ahead.pop_front().map_or(self.next, |first| first.end);
            came.in_order = first.since(self.next);
            self.next = first;
        } else {
            self.note_recent(inside.start);
        }
        came.at_gap = had_gap || self.has_gap();
        came
    }

    /// Adds a range to those ahead, joined with what it touches; false: it would be one too many.
    fn make_place(&mut self, inside: &Range<Place>) -> bool {
        let first = self.ahead.partition_point(|each| each.end < inside.start);
        let last = self.ahead.partition_point(|each| each.start <= inside.end);
        if first == last {
            if self.ahead.len() >= MOST_GAPS && inside.start > self.next {
                return false;
            }
            self.ahead.insert(first, inside.clone());
            return true;
        }
        let joined =
            self.ahead[first].start.min(inside.start)..self.ahead[last - 1].end.max(inside.end);
        self.ahead[first] = joined;
        self.ahead.drain(first + 1..last);
        true
    }

    /// Notes what of a segment has come before (RFC 2883 §4).
    fn note_twice(&mut self, whole: &Range<Place>) {
        if whole.start < self.next {
            self.twice = Some(whole.start..whole.end.min(self.next));
        } else if let Some(over) =
            self.ahead.iter().find(|each| each.start < whole.end && whole.start < each.end)
        {
            self.twice = Some(whole.start.max(over.start)..whole.end.min(over.end));
        }
    }

    /// Puts the latest block first (RFC 2018 §4).
    fn note_recent(&mut self, begin: Place) {
        let of = |place: Place| self.ahead.iter().position(|each| each.contains(&place));
        let latest = of(begin);
        let mut kept = [None; MOST_BLOCKS];
        kept[0] = Some(begin);
        let others = self.recent.iter().flatten().filter(|&&each| of(each) != latest);
        for (free, &other) in kept[1..].iter_mut().zip(others) {
            *free = Some(other);
        }
        self.recent = kept;
    }

    /// The blocks of an acknowledgement: first what came twice, which is reported once, then the range
    /// around it (RFC 2883 §4.2), then the latest ranges.
    pub(crate) fn blocks(&mut self) -> Blocks {
        let mut blocks = Blocks::default();
        let twice = self.twice.take();
        if let Some(twice) = &twice {
            blocks.push(twice.start.seq(), twice.end.seq());
        }
        let mut given: [Option<Place>; MOST_BLOCKS + 1] = [None; MOST_BLOCKS + 1];
        let around = twice.map(|twice| twice.start);
        for (number, &place) in around.iter().chain(self.recent.iter().flatten()).enumerate() {
            let Some(range) = self.ahead.iter().find(|each| each.contains(&place)) else {
                continue;
            };
            if !given.contains(&Some(range.start)) {
                given[number] = Some(range.start);
                blocks.push(range.start.seq(), range.end.seq());
            }
        }
        blocks
    }

    /// The edge that there is room for and that a window of 16 bits with a scale can say.
    fn possible_edge(&self, scale: u8) -> Place {
        let room = (self.read + self.ring.capacity()).since(self.next) >> scale;
        self.next + (room.min(u16::MAX.into()) << scale)
    }

    /// Whether the window can be opened by so much that the other end should be told: a segment, or
    /// half of the buffer (RFC 9293 §3.8.6.2.2).
    pub(crate) fn opens(&self, segment: usize, scale: u8) -> bool {
        let more = self.possible_edge(scale).since(self.edge);
        more >= segment.min(self.ring.capacity() / 2).max(1 << scale)
    }

    /// The window to announce, scaled; its edge holds from now on.
    pub(crate) fn announce(&mut self, segment: usize, scale: u8) -> u16 {
        if self.opens(segment, scale) {
            self.edge = self.possible_edge(scale);
        }
        let field = (self.edge.since(self.next) >> scale).min(u16::MAX.into());
        field as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Seq;

    fn incoming(capacity: usize) -> (Place, Incoming) {
        let first = Place::first(Seq(u32::MAX - 10));
        (first, Incoming::new(first, first, first + capacity, Ring::new(capacity, first)))
    }

    #[test]
    fn blocks_are_those_of_rfc_2018() {
        // The third case of its §5: every other segment of 500 bytes is lost.
        let (first, mut incoming) = incoming(10_000);
        let data = [7; 500];
        incoming.take(first, &data);
        let mut told = vec![];
        for number in [2, 4, 6, 8] {
            incoming.take(first + 500 * number, &data);
            told.push(incoming.blocks());
        }
        let block =
            |number: usize| ((first + 500 * number).seq(), (first + 500 * (number + 1)).seq());
        let found: Vec<Vec<_>> = told.iter().map(|each| each.iter().collect()).collect();
        assert_eq!(found[0], [block(2)]);
        assert_eq!(found[1], [block(4), block(2)]);
        assert_eq!(found[2], [block(6), block(4), block(2)]);
        assert_eq!(found[3], [block(8), block(6), block(4)]);
        // The fourth segment comes: it joins two ranges.
        assert_eq!(incoming.take(first + 1500, &data), Came { at_gap: true, ..Came::default() });
        let joined = ((first + 1000).seq(), (first + 2500).seq());
        assert_eq!(incoming.blocks().iter().collect::<Vec<_>>(), [joined, block(8), block(6)]);
        let filled = incoming.take(first + 500, &data);
        assert_eq!(filled, Came { in_order: 2000, at_gap: true, ..Came::default() });
        assert_eq!(incoming.blocks().iter().collect::<Vec<_>>(), [block(8), block(6)]);
    }

    #[test]
    fn what_comes_twice_is_reported_once() {
        let (first, mut incoming) = incoming(10_000);
        incoming.take(first, &[1; 1000]);
        assert!(incoming.take(first, &[1; 1000]).known);
        let blocks: Vec<_> = incoming.blocks().iter().collect();
        assert_eq!(blocks, [(first.seq(), (first + 1000).seq())]);
        assert!(incoming.blocks().is_empty());
        // Beyond a gap, the range around it is the second block, also where a later range exists.
        incoming.take(first + 2000, &[1; 1000]);
        incoming.take(first + 2500, &[1; 100]);
        incoming.take(first + 5000, &[1; 1000]);
        let blocks: Vec<_> = incoming.blocks().iter().collect();
        let range = |begin: usize, end: usize| ((first + begin).seq(), (first + end).seq());
        assert_eq!(blocks, [range(2500, 2600), range(2000, 3000), range(5000, 6000)]);
    }

    #[test]
    fn the_window_opens_by_segments_and_never_closes() {
        let (first, mut incoming) = incoming(4000);
        incoming.take(first, &[1; 3000]);
        assert_eq!(incoming.announce(1000, 0), 1000);
        let mut target = [0; 4000];
        assert_eq!(incoming.read(&mut target[..999]), 999);
        assert!(!incoming.opens(1000, 0));
        assert_eq!(incoming.announce(1000, 0), 1000);
        incoming.read(&mut target[..1]);
        assert!(incoming.opens(1000, 0));
        assert_eq!(incoming.announce(1000, 0), 2000);
        let edge = incoming.edge();
        incoming.announce(1000, 9);
        assert_eq!(incoming.edge(), edge);
        let refused = incoming.take(first + 3000, &[1; 3000]);
        assert_eq!((refused.in_order, refused.refused), (2000, 1000));
    }

    #[test]
    fn a_stream_of_gaps_takes_bounded_memory() {
        let (first, mut incoming) = incoming(10_000);
        for number in 1..1000 {
            incoming.take(first + 2 * number, &[1]);
        }
        assert_eq!(incoming.ahead.len(), MOST_GAPS);
        // What is next is taken all the same.
        assert_eq!(incoming.take(first, &[1; 2]).in_order, 3);
    }
}
