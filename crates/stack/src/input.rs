//! What a segment that comes does to a connection (RFC 9293 §3.10.7.4 in the state ESTABLISHED).

use std::time::Duration;

use crate::connection::{Connection, Stamps};
use crate::flight::Delivered;
use crate::place::{Place, Seq};
use crate::segment::{Segment, Timestamps};
use crate::state::End;

/// After so long without a segment TS.Recent is too old to judge others by (RFC 7323 §5.5).
const TOO_OLD: Duration = Duration::from_secs(24 * 24 * 3600);
/// Bytes of TCP's header without options, and of the option of timestamps as it is sent.
const HEADER: usize = 20;
const STAMPS_OPTION: usize = 12;
/// Segments are never made smaller than that, whatever a router says: the least MTU that Linux takes
/// from one is 552 (net.ipv4.route.min_pmtu), and a stranger could ask for less.
const LEAST_SEGMENT: usize = 500;
/// Acknowledgements of segments that may be a stranger's, in a second (RFC 5961 §7).
const MOST_CHALLENGES: u32 = 10;
/// Full segments in order that are acknowledged at once (RFC 5681 §4.2).
const FULL_SEGMENTS: usize = 2;

impl Connection {
    /// Takes a segment of the other end.
    pub fn receive(&mut self, now: Duration, segment: &Segment<'_>) {
        if self.end.is_some() {
            return;
        }
        let begin = segment.seq.near(self.incoming.next());
        if self.is_old_stamp(now, segment) {
            self.refuse(segment);
            return;
        }
        let length = segment.payload.len() + usize::from(segment.flags.fin);
        if segment.flags.rst {
            self.take_reset(now, begin);
            return;
        }
        if segment.flags.syn {
            // RFC 5961 §4.2, whatever its number.
            self.challenge(now);
            return;
        }
        let Some(ack) = segment.ack else { return };
        if !self.incoming.accepts(begin, length) {
            self.take_outside(now, segment, begin, ack);
            return;
        }
        if !self.may_acknowledge(ack) {
            // RFC 5961 §5.2.
            self.challenge(now);
            return;
        }
        if segment.flags.urgent {
            self.end = Some(End::Urgent);
            return;
        }
        self.arm_keep_alive(now);
        self.take_stamp(now, segment, begin);
        let before = self.in_flight();
        self.take_ack(now, segment, begin, ack);
        if segment.flags.marked {
            self.take_mark(before);
        }
        self.take_data(now, segment, begin);
        if segment.flags.fin && begin + segment.payload.len() == self.incoming.next() {
            self.end = Some(End::Closing);
        }
    }

    /// A router has dropped a segment that was sent, with `seq`, because the path takes packets with
    /// `most` bytes of TCP's header and data at most (RFC 1191, RFC 8201). What was too large is sent
    /// again in smaller segments; that is no sign of congestion. Nothing happens where `seq` is not on
    /// its way (RFC 5927 §4.1).
    pub fn too_big(&mut self, seq: Seq, most: usize) {
        let at = seq.near(self.acknowledged);
        let options = if self.stamps.is_some() { STAMPS_OPTION } else { 0 };
        let size = most.saturating_sub(HEADER + options).max(LEAST_SEGMENT);
        if at < self.acknowledged || at >= self.next || size >= self.segment {
            return;
        }
        self.segment = size;
        self.congestion.set_segment(size);
        self.flight.lose_longer(size);
        self.counts.too_big += 1;
    }

    /// PAWS (RFC 7323 §5.3). A segment without the option is dropped, too (§3.2), but for a reset.
    fn is_old_stamp(&self, now: Duration, segment: &Segment<'_>) -> bool {
        let Some(Stamps { recent, taken, .. }) = &self.stamps else { return false };
        if segment.flags.rst {
            return false;
        }
        let Some(Timestamps { value, .. }) = segment.timestamps else { return true };
        let older = recent.is_some_and(|recent| is_before(value, recent));
        older && now.saturating_sub(*taken) < TOO_OLD
    }

    fn refuse(&mut self, segment: &Segment<'_>) {
        self.counts.refused += 1;
        // RFC 7323 §5.3 R1: the other end may have missed an acknowledgement.
        self.acks.now |= segment.timestamps.is_some();
    }

    /// RFC 5961 §3.2.
    fn take_reset(&mut self, now: Duration, begin: Place) {
        if begin == self.incoming.next() {
            self.end = Some(End::Reset);
        } else if self.incoming.accepts(begin, 0) {
            self.challenge(now);
        }
    }

    fn challenge(&mut self, now: Duration) {
        let (second, count) = &mut self.challenges;
        if now >= *second + Duration::from_secs(1) {
            (*second, *count) = (now, 0);
        }
        self.counts.refused += 1;
        if *count < MOST_CHALLENGES {
            *count += 1;
            self.acks.now = true;
        }
    }

    /// A segment that is not within the window is acknowledged; an acknowledgement in it counts
    /// where it is no older than what is known.
    fn take_outside(&mut self, now: Duration, segment: &Segment<'_>, begin: Place, ack: Seq) {
        let known = !segment.payload.is_empty() && begin < self.incoming.next();
        if known {
            self.counts.twice += 1;
            self.incoming.take(begin, segment.payload);
        } else {
            self.counts.refused += 1;
        }
        // A closed window is no reason to miss what is acknowledged (RFC 9293 §3.10.7.4).
        if self.may_acknowledge(ack) && begin <= self.incoming.edge() {
            self.arm_keep_alive(now);
            self.take_ack(now, segment, begin, ack);
        }
        // To data, and to questions, which have the number before the first that is expected. Other
        // segments without data are none, and two ends would answer each other for ever.
        let asks = segment.payload.is_empty() && begin + 1 == self.incoming.next();
        self.acks.now |= asks || !segment.payload.is_empty() || segment.flags.fin;
    }

    /// Whether an acknowledgement is of something that was sent, and not too old (RFC 5961 §5.2).
    fn may_acknowledge(&self, ack: Seq) -> bool {
        let ack = ack.near(self.acknowledged);
        ack <= self.next.max(self.taken_over) && ack + self.widest >= self.acknowledged
    }

    /// RFC 7323 §4.3.
    fn take_stamp(&mut self, now: Duration, segment: &Segment<'_>, begin: Place) {
        let last = self.acks.sent;
        let (Some(stamps), Some(Timestamps { value, .. })) = (&mut self.stamps, segment.timestamps)
        else {
            return;
        };
        if stamps.newest.is_none_or(|newest| is_before(newest, value)) {
            stamps.newest = Some(value);
        }
        if begin <= last && stamps.recent.is_none_or(|recent| !is_before(value, recent)) {
            (stamps.recent, stamps.taken) = (Some(value), now);
        }
    }

    fn take_ack(&mut self, now: Duration, segment: &Segment<'_>, begin: Place, ack: Seq) {
        let ack = ack.near(self.acknowledged);
        let edge = self.peer_edge;
        self.take_window(segment, begin, ack);
        if ack < self.acknowledged {
            return;
        }
        // The other end is there, and where its window is closed, that is no failure.
        if self.flight.is_empty() {
            self.owed = None;
        }
        let before = self.in_flight();
        let least = self.trips.least();
        let same = ack == self.acknowledged && segment.payload.is_empty() && self.peer_edge == edge;
        let is_repeated = same && !self.flight.is_empty();
        let mut delivered = self.flight.acknowledge(now, ack, least);
        let moved = ack.since(self.acknowledged);
        let needless = self.take_blocks(now, segment, ack, &mut delivered);
        self.acknowledged = ack;
        // What the kernel has sent is not sent once more.
        self.next = self.next.max(ack);
        if let Some(trip) = delivered.trip {
            self.trips.sample(now, trip);
        }
        if moved > 0 {
            self.trips.answered();
            self.window_probes = 0;
            let all = self.flight.is_empty();
            self.owed = (!all).then_some(now);
            self.timers.retransmission = (!all).then(|| now + self.trips.timeout());
        }
        self.end_tail(now, ack, needless, same && segment.blocks.is_empty());
        if !self.selective && is_repeated {
            self.repeated += 1;
            delivered.bytes = self.segment;
        } else if moved > 0 {
            self.repeated = 0;
        }
        if delivered.bytes > 0 || moved > 0 {
            self.grow_or_recover(now, moved, delivered.bytes, before);
            // Where no blocks are reported, each acknowledgement of a recovery that does not end it
            // shows the next loss, and a repetition only the third.
            if self.selective || moved > 0 || self.recovery.is_none() {
                self.look_for_losses(now);
            }
            self.arm_tail(now);
        }
    }

    /// Takes the blocks that the other end reports. Whether the first one is of what came twice (RFC
    /// 2883 §4).
    fn take_blocks(
        &mut self,
        now: Duration,
        segment: &Segment<'_>,
        ack: Place,
        delivered: &mut Delivered,
    ) -> bool {
        if !self.selective {
            return false;
        }
        let blocks: [_; crate::MOST_BLOCKS] = {
            let mut all = segment.blocks.iter().map(|(begin, end)| begin.near(ack)..end.near(ack));
            std::array::from_fn(|_| all.next())
        };
        let mut needless = false;
        for (number, block) in blocks.iter().flatten().enumerate() {
            let within = number == 0
                && blocks[1]
                    .as_ref()
                    .is_some_and(|second| second.start <= block.start && block.end <= second.end);
            if block.end <= ack || within {
                needless |= number == 0;
                continue;
            }
            let inside = block.start >= ack && block.start < block.end && block.end <= self.next;
            if inside {
                let least = self.trips.least();
                let more = self.flight.select(now, block, least);
                delivered.bytes += more.bytes;
                delivered.trip = more.trip.or(delivered.trip);
            }
        }
        if needless {
            self.flight.was_needless(ack, self.next);
        }
        needless
    }

    /// SND.WND by SND.WL1 and SND.WL2.
    fn take_window(&mut self, segment: &Segment<'_>, begin: Place, ack: Place) {
        let (by, of) = self.edge_by;
        if by < begin || (by == begin && of <= ack) {
            let window = usize::from(segment.window) << self.peer_scale;
            self.peer_edge = ack + window;
            self.edge_by = (begin, ack);
            self.widest = self.widest.max(window);
        }
    }

    /// RFC 8985 §7.4: a probe that sent data again and was needed has hidden a loss. That is so when
    /// something later is acknowledged and it was not reported as needless before.
    fn end_tail(&mut self, now: Duration, ack: Place, needless: bool, is_repeated: bool) {
        let Some(tail) = self.tail else { return };
        if ack < tail.until {
            return;
        }
        if !tail.again || needless {
            self.tail = None;
            if tail.again && tail.lone {
                self.trips.probe_was_needless(now);
            }
        } else if ack > tail.until {
            self.tail = None;
            self.counts.recoveries += 1;
            self.congestion.shrink(self.segment);
            self.congestion.recovered();
            self.notification.shrank(self.next);
        } else if is_repeated {
            self.tail = None;
        }
    }

    fn grow_or_recover(&mut self, now: Duration, moved: usize, delivered: usize, before: usize) {
        if let Some(recovery) = self.recovery
            && self.acknowledged >= recovery.until
        {
            self.recovery = None;
            self.congestion.recovered();
            self.flight.recovered();
            return;
        }
        match self.recovery {
            Some(recovery) if !recovery.by_timeout => {
                let lost = self.flight.lost() > 0;
                self.congestion.recover(delivered, self.in_flight(), moved > 0 && !lost);
            }
            // A window that is not used says nothing about the network (RFC 7661 §4).
            _ if before + self.segment >= self.congestion.size() || self.recovery.is_some() => {
                let trip = self.trips.smoothed().unwrap_or_default();
                self.congestion.grow(now, moved, trip);
            }
            _ => {}
        }
    }

    /// The other end has seen a mark (RFC 3168 §6.1.2): the window shrinks as for a loss. `before`: bytes in flight.
    fn take_mark(&mut self, before: usize) {
        if self.notification.must_shrink(self.acknowledged) && self.recovery.is_none() {
            self.counts.marks += 1;
            self.congestion.shrink(before);
            self.congestion.recovered();
            self.notification.shrank(self.next);
        }
    }

    fn take_data(&mut self, now: Duration, segment: &Segment<'_>, begin: Place) {
        if segment.payload.is_empty() {
            return;
        }
        let came = self.incoming.take(begin, segment.payload);
        self.counts.without_room += came.refused as u64;
        if came.known {
            self.counts.twice += 1;
        } else {
            self.counts.received += 1;
        }
        self.acks.waiting += came.in_order;
        self.acks.now |= self.notification.came(segment.ecn, segment.flags);
        let at_once = came.at_gap || came.known || came.refused > 0 || self.acks.quick;
        if at_once || self.acks.waiting >= FULL_SEGMENTS * self.segment {
            self.acks.now = true;
        } else if self.timers.ack.is_none() {
            self.timers.ack = Some(now + self.config.delayed_ack);
        }
    }
}

/// Whether a timestamp is older than another one (RFC 7323 §5.2).
fn is_before(stamp: u32, other: u32) -> bool {
    stamp.wrapping_sub(other).cast_signed() < 0
}
