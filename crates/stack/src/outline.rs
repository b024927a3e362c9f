//! A connection without the bytes of its streams: what another process has to know to go on with it,
//! where it has the memory of these.

use std::ops::Range;
use std::time::Duration;

use crate::place::Place;
use crate::state::{Clocks, State};

/// A [`State`] whose bytes are elsewhere: in two rings, one for each stream ([`in_ring`]).
///
/// A byte that the other end has acknowledged may have another in its place by now. If it is sent
/// again, the other end knows it and does not look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// SND.UNA: the first byte that the other end has not acknowledged.
    pub unacknowledged: Place,
    /// SND.NXT: the first byte that was never sent.
    pub next: Place,
    /// The end of what the program has written.
    pub written: Place,
    /// The place of a byte that would be first in the ring of what is sent.
    pub send_origin: Place,
    /// The first byte that the program has not read.
    pub read: Place,
    /// RCV.NXT: the first byte that has not come.
    pub expected: Place,
    /// The first byte that the other end was told it must not send.
    pub edge: Place,
    /// The place of a byte that would be first in the ring of what comes.
    pub receive_origin: Place,
    /// [`State::peer_window`].
    pub peer_window: usize,
    /// [`State::segment`].
    pub segment: usize,
    /// [`State::scale`].
    pub scale: u8,
    /// [`State::peer_scale`].
    pub peer_scale: u8,
    /// [`State::selective`].
    pub selective: bool,
    /// [`State::ecn`].
    pub ecn: bool,
    /// [`State::round_trip`].
    pub round_trip: Option<(Duration, Duration)>,
    /// [`State::timestamps`].
    pub timestamps: Option<Clocks>,
}

/// RFC 7323 §2.3.
const WIDEST_SCALE: u8 = 14;
/// Longer round trips are none.
const LONGEST: Duration = Duration::from_secs(1 << 20);
/// What is set in the word of flags.
const SELECTIVE: u64 = 1;
const ECN: u64 = 2;
const ROUND_TRIP: u64 = 4;
const TIMESTAMPS: u64 = 8;
const RECENT: u64 = 16;
const NEWEST: u64 = 32;

impl Outline {
    /// Words that it becomes.
    pub const WORDS: usize = 16;

    /// That of a connection as it was taken over.
    pub fn of(state: &State) -> Outline {
        let unacknowledged = Place::first(state.unacknowledged);
        let expected = Place::first(state.expected);
        let read = expected.back(state.unread.len());
        Outline {
            unacknowledged,
            next: unacknowledged + state.sent.min(state.queued.len()),
            written: unacknowledged + state.queued.len(),
            send_origin: unacknowledged,
            read,
            expected,
            edge: expected + state.window,
            receive_origin: read,
            peer_window: state.peer_window,
            segment: state.segment,
            scale: state.scale,
            peer_scale: state.peer_scale,
            selective: state.selective,
            ecn: state.ecn,
            round_trip: state.round_trip,
            timestamps: state.timestamps,
        }
    }

    /// The bytes that the program has written, from the first that is not acknowledged on.
    pub fn queued(&self) -> Range<Place> {
        self.unacknowledged..self.written
    }

    /// The bytes that came and that the program has not read.
    pub fn unread(&self) -> Range<Place> {
        self.read..self.expected
    }

    /// Whether a connection can be so, with its streams in rings of so many bytes. That of another
    /// process need not be.
    pub fn fits(&self, send: usize, receive: usize) -> bool {
        let sending = self.unacknowledged <= self.next && self.next <= self.written;
        let receiving = self.read <= self.expected && self.expected <= self.edge;
        sending
            && receiving
            && self.segment <= usize::from(u16::MAX)
            && self.scale.max(self.peer_scale) <= WIDEST_SCALE
            && self.peer_window <= usize::from(u16::MAX) << WIDEST_SCALE
            && self.round_trip.is_none_or(|(trip, variation)| trip.max(variation) < LONGEST)
            && self.written.since(self.unacknowledged) <= send
            && self.edge.since(self.read) <= receive
    }

    /// The state, with the bytes of [`Outline::queued`] and [`Outline::unread`].
    pub fn into_state(self, queued: Vec<u8>, unread: Vec<u8>) -> State {
        State {
            unacknowledged: self.unacknowledged.seq(),
            sent: self.next.since(self.unacknowledged),
            queued,
            peer_window: self.peer_window,
            expected: self.expected.seq(),
            unread,
            window: self.edge.since(self.expected),
            segment: self.segment,
            scale: self.scale,
            peer_scale: self.peer_scale,
            selective: self.selective,
            ecn: self.ecn,
            round_trip: self.round_trip,
            timestamps: self.timestamps,
        }
    }

    /// For memory that is shared.
    pub fn to_words(&self) -> [u64; Outline::WORDS] {
        let clocks = self.timestamps;
        let recent = clocks.and_then(|clocks| clocks.recent);
        let newest = clocks.and_then(|clocks| clocks.newest);
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        let flags = flag(self.selective, SELECTIVE)
            | flag(self.ecn, ECN)
            | flag(self.round_trip.is_some(), ROUND_TRIP)
            | flag(clocks.is_some(), TIMESTAMPS)
            | flag(recent.is_some(), RECENT)
            | flag(newest.is_some(), NEWEST);
        let (trip, variation) = self.round_trip.unwrap_or_default();
        [
            self.unacknowledged.number(),
            self.next.number(),
            self.written.number(),
            self.read.number(),
            self.expected.number(),
            self.edge.number(),
            self.send_origin.number(),
            self.receive_origin.number(),
            self.peer_window as u64,
            self.segment as u64,
            u64::from(self.scale) | u64::from(self.peer_scale) << 8,
            flags,
            trip.as_nanos() as u64,
            variation.as_nanos() as u64,
            clocks.map_or(0, |clocks| clocks.now).into(),
            u64::from(recent.unwrap_or(0)) | u64::from(newest.unwrap_or(0)) << 32,
        ]
    }

    /// That of [`Outline::to_words`]. What is not true of a connection shows in [`Outline::fits`].
    pub fn from_words(words: &[u64; Outline::WORDS]) -> Outline {
        let places = words.map(Place::of_number);
        let [unacknowledged, next, written, read, expected, edge, ..] = places;
        let [_, _, _, _, _, _, send_origin, receive_origin, ..] = places;
        let [.., peer_window, segment, scales, flags, trip, variation, now, stamps] = *words;
        let has = |flag: u64| flags & flag != 0;
        let nanos = Duration::from_nanos;
        Outline {
            unacknowledged,
            next,
            written,
            send_origin,
            read,
            expected,
            edge,
            receive_origin,
            peer_window: peer_window as usize,
            segment: segment as usize,
            scale: scales as u8,
            peer_scale: (scales >> 8) as u8,
            selective: has(SELECTIVE),
            ecn: has(ECN),
            round_trip: has(ROUND_TRIP).then(|| (nanos(trip), nanos(variation))),
            timestamps: has(TIMESTAMPS).then(|| Clocks {
                now: now as u32,
                recent: has(RECENT).then_some(stamps as u32),
                newest: has(NEWEST).then_some((stamps >> 32) as u32),
            }),
        }
    }
}

/// Where the bytes at places are in a ring of so many bytes, whose first one is at `origin`, in two
/// pieces, the second of which may be empty. They must not be more than these.
pub fn in_ring(places: Range<Place>, origin: Place, capacity: usize) -> [Range<usize>; 2] {
    let begin = places.start.in_ring(origin, capacity);
    let count = places.end.since(places.start);
    let first = count.min(capacity - begin);
    [begin..begin + first, 0..count - first]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Seq;

    fn state() -> State {
        State {
            unacknowledged: Seq(u32::MAX - 3),
            queued: vec![1; 10],
            sent: 7,
            peer_window: 70_000,
            expected: Seq(2),
            unread: vec![2; 5],
            window: 4000,
            segment: 1448,
            scale: 7,
            peer_scale: 14,
            selective: true,
            ecn: false,
            round_trip: Some((Duration::from_micros(52), Duration::from_micros(7))),
            timestamps: Some(Clocks { now: 9, recent: None, newest: Some(u32::MAX) }),
        }
    }

    #[test]
    fn an_outline_with_the_bytes_is_the_state_again() {
        let all = [
            state(),
            State { timestamps: None, round_trip: None, ecn: true, ..state() },
            State { queued: vec![], sent: 0, unread: vec![], selective: false, ..state() },
        ];
        for state in all {
            let outline = Outline::from_words(&Outline::of(&state).to_words());
            assert_eq!(outline, Outline::of(&state));
            assert_eq!(outline.into_state(state.queued.clone(), state.unread.clone()), state);
        }
    }

    #[test]
    fn what_no_connection_can_be_fits_nothing() {
        let outline = Outline::of(&state());
        assert!(outline.fits(10, 4005));
        assert!(!outline.fits(9, 4005));
        assert!(!outline.fits(10, 4004));
        let words = outline.to_words();
        // The end of what was written before its beginning, and so on.
        for (word, value) in
            [(0, words[1] + 1), (1, words[2] + 1), (2, 0), (3, words[4] + 1), (4, 0)]
        {
            let mut wrong = words;
            wrong[word] = value;
            assert!(!Outline::from_words(&wrong).fits(10, 4005), "word {word}");
        }
        // The rings may begin anywhere.
        for word in (0..6).chain(8..11) {
            let mut wrong = words;
            wrong[word] = u64::MAX;
            assert!(!Outline::from_words(&wrong).fits(10, 4005), "word {word}");
        }
    }

    #[test]
    fn the_pieces_of_a_ring_are_all_its_bytes() {
        let first = Place::first(Seq(0));
        for (begin, count) in [(0, 8), (3, 5), (3, 8), (7, 2), (8, 0)] {
            for origin in 0..=begin {
                let places = first + begin..first + begin + count;
                let [one, other] = in_ring(places, first + origin, 8);
                let found: Vec<usize> = one.chain(other).collect();
                let expected: Vec<usize> =
                    (begin..begin + count).map(|at| (at - origin) % 8).collect();
                assert_eq!(found, expected);
            }
        }
    }
}
