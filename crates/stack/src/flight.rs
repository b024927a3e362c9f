//! Segments that were sent and not acknowledged, and the losses among them by RACK (RFC 8985 §6).

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use crate::place::Place;
use crate::round_trip::RoundTrips;

/// DupThresh (RFC 5681 §3.2).
pub(crate) const DUPLICATES: usize = 3;
/// Recoveries for which a wider reordering window is kept (RFC 8985 §6.2, step 4).
const PERSISTENCE: u32 = 16;
const WIDEST: u32 = 255;

/// A part of the stream that was sent in one segment. `at` is when it was sent last.
#[derive(Clone, Debug)]
struct Sent {
    begin: Place,
    end: Place,
    at: Duration,
    again: bool,
    state: State,
}

/// `Lost` ends when it is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    /// The other end has reported it in a block.
    Selected,
    Lost,
}

impl Sent {
    fn length(&self) -> usize {
        self.end.since(self.begin)
    }
}

/// The segments from SND.UNA to SND.NXT, and RACK's variables.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    sent: VecDeque<Sent>,
    /// Bytes in each state.
    in_flight: usize,
    selected: usize,
    lost: usize,
    /// RACK.xmit_ts and RACK.end_seq: of the segment that was sent last among those delivered.
    latest: Option<(Duration, Place)>,
    /// RACK.rtt.
    trip: Duration,
    /// RACK.fack.
    farthest: Option<Place>,
    reordered: bool,
    /// RACK.reo_wnd_mult, and for how many recoveries it holds.
    widened: u32,
    persists: u32,
    /// SND.NXT when the window was widened: once a round trip.
    round: Option<Place>,
}

/// What an acknowledgement delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivered {
    /// Bytes, by number and by blocks.
    pub(crate) bytes: usize,
    /// Round trip of the segment that was sent last among those that were sent once.
    pub(crate) trip: Option<Duration>,
}

impl Delivered {
    fn add(&mut self, now: Duration, each: &Sent) {
        self.bytes += each.length();
        if !each.again {
            self.trip = Some(now.saturating_sub(each.at));
        }
    }
}

impl Flight {
    /// Bytes that are on their way, as far as is known.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether nothing is unacknowledged.
    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Bytes that were found to be lost and were not sent again.
    pub(crate) fn lost(&self) -> usize {
        self.lost
    }

    /// Bytes that the other end has beyond a gap.
    pub(crate) fn selected(&self) -> usize {
        self.selected
    }

    /// Segments that are unacknowledged.
    pub(crate) fn segments(&self) -> usize {
        self.sent.len()
    }

    fn count(&mut self, state: State) -> &mut usize {
        match state {
            State::InFlight => &mut self.in_flight,
            State::Selected => &mut self.selected,
            State::Lost => &mut self.lost,
        }
    }

    fn turn(&mut self, index: usize, to: State) {
        let Sent { state, .. } = self.sent[index];
        let length = self.sent[index].length();
        *self.count(state) -= length;
        *self.count(to) += length;
        self.sent[index].state = to;
    }

    /// Takes up data that were sent for the first time, which follow what was sent before.
    pub(crate) fn send(&mut self, now: Duration, places: Range<Place>) {
        debug_assert!(self.sent.back().is_none_or(|last| last.end == places.start));
        self.in_flight += places.end.since(places.start);
        let (begin, end) = (places.start, places.end);
        self.sent.push_back(Sent { begin, end, at: now, again: false, state: State::InFlight });
    }

    /// Notes that a segment was sent again. It is one of those that [`Flight::lost_first`] or
    /// [`Flight::last`] returned.
    pub(crate) fn send_again(&mut self, now: Duration, places: &Range<Place>) {
        let mut index = self.sent.partition_point(|each| each.end <= places.start);
        if self.sent.get(index).is_some_and(|each| each.begin < places.start) {
            self.split(index, places.start);
            index += 1;
        }
        self.split(index, places.end);
        self.turn(index, State::InFlight);
        let sent = &mut self.sent[index];
        (sent.at, sent.again) = (now, true);
    }

    /// The first segment that is lost, at most so many bytes of it.
    pub(crate) fn lost_first(&self, most: usize) -> Option<Range<Place>> {
        if self.lost == 0 {
            return None;
        }
        let first = self.sent.iter().find(|each| each.state == State::Lost)?;
        Some(first.begin..first.end.min(first.begin + most))
    }

    /// The last segment that the other end is not known to have, at most so many bytes of its end.
    pub(crate) fn last(&self, most: usize) -> Option<Range<Place>> {
        let last = self.sent.iter().rev().find(|each| each.state != State::Selected)?;
        let begin = if last.length() > most { last.end.back(most) } else { last.begin };
        Some(begin..last.end)
    }

    /// Makes the segment of an index end at a place, if it goes on beyond it.
    fn split(&mut self, index: usize, at: Place) {
        let Some(each) = self.sent.get_mut(index) else { return };
        if each.begin < at && at < each.end {
            let rest = Sent { begin: at, ..each.clone() };
            each.end = at;
            self.sent.insert(index + 1, rest);
        }
    }

    /// Everything before `until` is acknowledged.
    pub(crate) fn acknowledge(
        &mut self,
        now: Duration,
        until: Place,
        least: Option<Duration>,
    ) -> Delivered {
        let mut delivered = Delivered::default();
        let mut again = false;
        while let Some(first) = self.sent.front() {
            if first.begin >= until {
                break;
            }
            self.split(0, until);
            let Some(first) = self.sent.pop_front() else { break };
            *self.count(first.state) -= first.length();
            again |= first.again;
            if first.state != State::Selected {
                delivered.add(now, &first);
                self.note_delivered(now, &first, least);
            }
        }
        if again {
            // Others may have waited at the other end for what was sent again (RFC 6298 §3).
            delivered.trip = None;
        }
        delivered
    }

    /// The other end has reported that it has these.
    pub(crate) fn select(
        &mut self,
        now: Duration,
        places: &Range<Place>,
        least: Option<Duration>,
    ) -> Delivered {
        let mut delivered = Delivered::default();
        let mut index = self.sent.partition_point(|each| each.end <= places.start);
        if self.sent.get(index).is_some_and(|each| each.begin < places.start) {
            self.split(index, places.start);
            index += 1;
        }
        while self.sent.get(index).is_some_and(|each| each.begin < places.end) {
            self.split(index, places.end);
            if self.sent[index].state != State::Selected {
                self.turn(index, State::Selected);
                let each = self.sent[index].clone();
                delivered.add(now, &each);
                self.note_delivered(now, &each, least);
            }
            index += 1;
        }
        delivered
    }

    /// RFC 8985 §6.2, steps 2 and 3, for a segment that was delivered.
    fn note_delivered(&mut self, now: Duration, each: &Sent, least: Option<Duration>) {
        if self.farthest.is_none_or(|farthest| each.end > farthest) {
            self.farthest = Some(each.end);
        } else if !each.again && self.farthest.is_some_and(|farthest| each.end < farthest) {
            self.reordered = true;
        }
        let trip = now.saturating_sub(each.at);
        if each.again && least.is_some_and(|least| trip < least) {
            // It answers an earlier transmission.
            return;
        }
        if self.latest.is_none_or(|latest| (each.at, each.end) > latest) {
            self.latest = Some((each.at, each.end));
            self.trip = trip;
        }
    }

    /// The other end reported that it had something twice (RFC 8985 §6.2, step 4).
    pub(crate) fn was_needless(&mut self, acknowledged: Place, next: Place) {
        if self.round.is_none_or(|round| acknowledged >= round) {
            self.round = Some(next);
            self.widened = (self.widened + 1).min(WIDEST);
            self.persists = PERSISTENCE;
        }
    }

    /// A recovery is complete.
    pub(crate) fn recovered(&mut self) {
        self.persists = self.persists.saturating_sub(1);
        if self.persists == 0 {
            self.widened = 0;
        }
    }

    /// For how long a segment may be late (RFC 8985 §6.2, step 4).
    fn tolerance(&self, trips: &RoundTrips, recovering: bool, segment: usize) -> Duration {
        let many = self.selected >= DUPLICATES * segment;
        if !self.reordered && (recovering || many) {
            return Duration::ZERO;
        }
        let least = trips.least().unwrap_or_default();
        (least * (1 + self.widened) / 4).min(trips.smoothed().unwrap_or_default())
    }

    /// Finds segments that are lost: others that were sent later were delivered (RFC 8985 §6.2,
    /// step 5). Whether there are new ones, and when to look again.
    pub(crate) fn detect(
        &mut self,
        now: Duration,
        trips: &RoundTrips,
        recovering: bool,
        segment: usize,
    ) -> (bool, Option<Duration>) {
        let Some(latest) = self.latest else { return (false, None) };
        let until_lost = self.trip + self.tolerance(trips, recovering, segment);
        let (mut found, mut again) = (false, None);
        for index in 0..self.sent.len() {
            let each = &self.sent[index];
            if each.state != State::InFlight || (each.at, each.end) >= latest {
                continue;
            }
            let due = each.at + until_lost;
            if due <= now {
                self.turn(index, State::Lost);
                found = true;
            } else {
                again = Some(again.map_or(due, |other: Duration| other.max(due)));
            }
        }
        (found, again)
    }

    /// The first segment is lost, if it was sent once or `even_again`. Whether it was not before.
    pub(crate) fn lose_first(&mut self, even_again: bool) -> bool {
        let found = self
            .sent
            .front()
            .is_some_and(|first| first.state == State::InFlight && (even_again || !first.again));
        if found {
            self.turn(0, State::Lost);
        }
        found
    }

    /// Segments of more bytes were too large for the path: they are lost.
    pub(crate) fn lose_longer(&mut self, most: usize) {
        for index in 0..self.sent.len() {
            let each = &self.sent[index];
            if each.state == State::InFlight && each.length() > most {
                self.turn(index, State::Lost);
            }
        }
    }

    /// The retransmission time-out passed: everything is lost (RFC 5681 §3.1), or, where blocks are
    /// reported, the first segment and what was sent so long ago (RFC 8985 §6.3).
    pub(crate) fn time_out(
        &mut self,
        now: Duration,
        trips: &RoundTrips,
        segment: usize,
        selective: bool,
    ) {
        // The other end has forgotten what it reported (RFC 2018 §8).
        if self.sent.front().is_some_and(|first| first.state == State::Selected) {
            for index in 0..self.sent.len() {
                if self.sent[index].state == State::Selected {
                    self.turn(index, State::Lost);
                }
            }
        }
        let until_lost = self.trip + self.tolerance(trips, false, segment);
        for index in 0..self.sent.len() {
            let each = &self.sent[index];
            let is_due = index == 0 || !selective || each.at + until_lost <= now;
            if each.state == State::InFlight && is_due {
                self.turn(index, State::Lost);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Seq;

    const SEGMENT: usize = 1000;
    const TRIP: Duration = Duration::from_millis(10);

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Ten segments, one a millisecond.
    fn ten() -> (Place, Flight, RoundTrips) {
        let first = Place::first(Seq(u32::MAX - 2500));
        let mut flight = Flight::default();
        for number in 0..10 {
            let begin = first + SEGMENT * number;
            flight.send(ms(number as u64), begin..begin + SEGMENT);
        }
        let mut trips = RoundTrips::new(ms(1), None);
        trips.sample(ms(0), TRIP);
        (first, flight, trips)
    }

    fn places(first: Place, from: usize, to: usize) -> Range<Place> {
        first + SEGMENT * from..first + SEGMENT * to
    }

    #[test]
    fn what_was_sent_before_what_is_there_is_lost_after_the_tolerance() {
        let (first, mut flight, trips) = ten();
        let least = trips.least();
        assert_eq!(flight.acknowledge(ms(10), first + SEGMENT, least).bytes, SEGMENT);
        assert_eq!(flight.select(ms(12), &places(first, 2, 3), least).bytes, SEGMENT);
        // A quarter of the least round trip after it would have been there: 1 + 10 + 2.5 ms.
        let again = Duration::from_micros(13_500);
        assert_eq!(flight.detect(ms(12), &trips, false, SEGMENT), (false, Some(again)));
        assert_eq!(flight.detect(again, &trips, false, SEGMENT), (true, None));
        assert_eq!(flight.lost_first(SEGMENT), Some(places(first, 1, 2)));
        assert_eq!((flight.lost(), flight.in_flight()), (SEGMENT, 7 * SEGMENT));
        flight.send_again(ms(14), &places(first, 1, 2));
        assert_eq!((flight.lost(), flight.in_flight()), (0, 8 * SEGMENT));
        // It is no sample: nobody knows which of the two was answered.
        assert!(flight.acknowledge(ms(24), first + 3 * SEGMENT, least).trip.is_none());
    }

    #[test]
    fn three_segments_beyond_a_gap_need_no_tolerance_until_there_was_reordering() {
        let (first, mut flight, trips) = ten();
        flight.select(ms(13), &places(first, 1, 4), trips.least());
        assert_eq!(flight.detect(ms(13), &trips, false, SEGMENT), (true, None));
        let (first, mut flight, trips) = ten();
        flight.select(ms(12), &places(first, 2, 3), trips.least());
        flight.select(ms(13), &places(first, 1, 2), trips.least());
        flight.select(ms(14), &places(first, 3, 5), trips.least());
        let (found, again) = flight.detect(ms(12), &trips, false, SEGMENT);
        assert!(!found && again.is_some(), "segments 1 and 2 changed places");
    }

    #[test]
    fn blocks_and_acknowledgements_may_cut_segments() {
        let (first, mut flight, trips) = ten();
        flight.select(ms(20), &(first + 1500..first + 1700), trips.least());
        assert_eq!(flight.selected(), 200);
        assert_eq!(flight.acknowledge(ms(20), first + 1600, trips.least()).bytes, 1500);
        assert_eq!((flight.selected(), flight.in_flight()), (100, 8300));
        assert_eq!(flight.last(300), Some(first + 9700..first + 10_000));
    }

    #[test]
    fn a_time_out_loses_what_is_old_and_what_the_other_end_has_forgotten() {
        let (first, mut flight, trips) = ten();
        flight.select(ms(10), &places(first, 0, 2), trips.least());
        flight.time_out(ms(15), &trips, SEGMENT, true);
        assert_eq!(flight.selected(), 0);
        assert_eq!(flight.lost_first(SEGMENT), Some(places(first, 0, 1)));
        assert!(flight.in_flight() > 0, "what was sent just now is on its way still");
    }
}
