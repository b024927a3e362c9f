//! A connection while data are transferred: what it sends, and when.

use std::ops::Range;
use std::time::Duration;

use crate::congested::Notification;
use crate::congestion::Window;
use crate::flight::Flight;
use crate::outline::Outline;
use crate::place::Place;
use crate::receive::Incoming;
use crate::ring::{Memory, Ring};
use crate::round_trip::RoundTrips;
use crate::segment::{Blocks, Flags, Segment, Timestamps};
use crate::state::{Clocks, Config, Counts, End, State};

/// Bytes of an option of blocks before them, and of each (RFC 2018 §3).
const BLOCKS_OPTION: usize = 4;
const BLOCK: usize = 8;

/// One end of an established connection. The caller gives it segments that came
/// ([`Connection::receive`]) and the time, and takes from it segments to send ([`Connection::poll`])
/// until there is none; it calls [`Connection::wake`] at [`Connection::deadline`]. Times are since
/// any instant, which is the same for all calls.
#[derive(Debug)]
pub struct Connection {
    pub(crate) config: Config,
    pub(crate) segment: usize,
    pub(crate) scale: u8,
    pub(crate) peer_scale: u8,
    pub(crate) selective: bool,
    pub(crate) stamps: Option<Stamps>,
    pub(crate) incoming: Incoming,
    /// Bytes from SND.UNA on.
    pub(crate) queue: Ring,
    /// SND.UNA, SND.NXT, and the end of what the program has written.
    pub(crate) acknowledged: Place,
    pub(crate) next: Place,
    pub(crate) written: Place,
    /// Bytes before it were written when the kernel had the connection, which may have sent them.
    pub(crate) taken_over: Place,
    /// The end of the last new data that were less than a full segment.
    pub(crate) small: Place,
    /// SND.UNA + SND.WND, the segment that said so (SND.WL1, SND.WL2), and the greatest SND.WND.
    pub(crate) peer_edge: Place,
    pub(crate) edge_by: (Place, Place),
    pub(crate) widest: usize,
    pub(crate) flight: Flight,
    pub(crate) trips: RoundTrips,
    pub(crate) congestion: Window,
    pub(crate) notification: Notification,
    /// SND.NXT when a loss was found: the recovery ends when that is acknowledged.
    pub(crate) recovery: Option<Recovery>,
    pub(crate) tail: Option<Tail>,
    pub(crate) acks: Acks,
    pub(crate) timers: Timers,
    pub(crate) due: Due,
    /// How often the last acknowledgement was repeated, where no blocks are reported.
    pub(crate) repeated: usize,
    /// Questions of keep-alive without an answer, and probes of a closed window.
    pub(crate) unanswered: u32,
    pub(crate) window_probes: u32,
    /// Since when the other end owes an answer.
    pub(crate) owed: Option<Duration>,
    pub(crate) challenges: (Duration, u32),
    pub(crate) end: Option<End>,
    pub(crate) counts: Counts,
}

/// The other end's clock and the difference to ours.
#[derive(Debug)]
pub(crate) struct Stamps {
    /// TSval at the caller's time zero.
    zero: u32,
    pub(crate) recent: Option<u32>,
    pub(crate) newest: Option<u32>,
    /// When `recent` was taken.
    pub(crate) taken: Duration,
}

impl Stamps {
    pub(crate) fn value(&self, now: Duration) -> u32 {
        self.zero.wrapping_add(now.as_millis() as u32)
    }
}

/// `by_timeout`: the window grows meanwhile, as in slow start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    pub(crate) until: Place,
    pub(crate) by_timeout: bool,
}

/// A probe for the loss of the last segments (RFC 8985 §7): SND.NXT when it was sent, whether it sent
/// data again, and whether a lone segment was on its way, for whose answer it has waited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    pub(crate) until: Place,
    pub(crate) again: bool,
    pub(crate) lone: bool,
}

/// Acknowledgements that are to be sent.
#[derive(Debug)]
pub(crate) struct Acks {
    /// Last.ACK.sent.
    pub(crate) sent: Place,
    pub(crate) now: bool,
    /// Bytes in order since the last one.
    pub(crate) waiting: usize,
    /// Whether each segment is acknowledged at once (TCP_QUICKACK).
    pub(crate) quick: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    pub(crate) retransmission: Option<Duration>,
    pub(crate) reordering: Option<Duration>,
    pub(crate) tail: Option<Duration>,
    pub(crate) closed_window: Option<Duration>,
    pub(crate) ack: Option<Duration>,
    pub(crate) keep_alive: Option<Duration>,
}

/// What is to be sent besides data that the windows allow.
#[derive(Debug, Default)]
pub(crate) struct Due {
    pub(crate) tail: bool,
    /// A segment that makes the other end answer: of a closed window, or keep-alive.
    pub(crate) question: bool,
    /// A segment that is small because the window is.
    pub(crate) small: bool,
}

impl Connection {
    /// Takes a connection over. What `state` says was sent is taken as sent now.
    pub fn new(state: State, config: Config, now: Duration) -> Connection {
        let outline = Outline::of(&state);
        let mut queue =
            Ring::new(config.send_buffer.max(state.queued.len()).max(1), outline.send_origin);
        queue.store(outline.unacknowledged, &state.queued);
        let room = outline.edge.since(outline.read);
        let mut came = Ring::new(config.receive_buffer.max(room).max(1), outline.receive_origin);
        came.store(outline.read, &state.unread);
        Connection::of(&outline, config, now, queue, came)
    }

    /// Goes on with a connection whose bytes are in memory that is there: those that are sent in
    /// `send`, those that come in `receive`. None: they cannot be ([`Outline::fits`]).
    pub fn resume(
        outline: &Outline,
        config: Config,
        now: Duration,
        send: Box<dyn Memory>,
        receive: Box<dyn Memory>,
    ) -> Option<Connection> {
        let queue = Ring::of(send, outline.send_origin);
        let came = Ring::of(receive, outline.receive_origin);
        let fits = outline.fits(queue.capacity(), came.capacity());
        fits.then(|| Connection::of(outline, config, now, queue, came))
    }

    fn of(outline: &Outline, config: Config, now: Duration, queue: Ring, came: Ring) -> Connection {
        let Outline { unacknowledged: first, next, written, read, expected, edge, .. } = *outline;
        let mut flight = Flight::default();
        let segment = outline.segment.max(1);
        let mut at = first;
        while at < next {
            let end = next.min(at + segment);
            flight.send(now, at..end);
            at = end;
        }
        let trips = RoundTrips::new(config.least_timeout, outline.round_trip);
        let mut connection = Connection {
            segment,
            scale: outline.scale,
            peer_scale: outline.peer_scale,
            selective: outline.selective,
            stamps: outline.timestamps.map(|Clocks { now: value, recent, newest }| Stamps {
                zero: value.wrapping_sub(now.as_millis() as u32),
                recent,
                newest,
                taken: now,
            }),
            incoming: Incoming::new(read, expected, edge, came),
            queue,
            acknowledged: first,
            next,
            written,
            taken_over: written,
            // What the kernel has sent may have been small.
            small: next,
            peer_edge: first + outline.peer_window,
            edge_by: (expected, first),
            widest: outline.peer_window,
            flight,
            trips,
            congestion: Window::new(config.algorithm, segment),
            notification: Notification::new(outline.ecn),
            recovery: None,
            tail: None,
            acks: Acks { sent: expected, now: true, waiting: 0, quick: false },
            timers: Timers::default(),
            due: Due::default(),
            repeated: 0,
            unanswered: 0,
            window_probes: 0,
            owed: (next > first).then_some(now),
            challenges: (now, 0),
            end: None,
            counts: Counts::default(),
            config,
        };
        if next > first {
            connection.timers.retransmission = Some(now + connection.trips.timeout());
        }
        connection.arm_keep_alive(now);
        connection
    }

    /// Why no more data are transferred here, if that is so.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes that can be read.
    pub fn readable(&self) -> usize {
        self.incoming.readable()
    }

    /// Bytes that can be written.
    pub fn writable(&self) -> usize {
        self.queue.capacity() - self.unacknowledged()
    }

    /// Bytes that were written and not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.written.since(self.acknowledged)
    }

    /// Bytes that were written and have not been sent.
    pub fn unsent(&self) -> usize {
        self.written.since(self.next)
    }

    /// Bytes that are on their way, as far as is known. Each repeated acknowledgement is of a
    /// segment that has left the network (RFC 5681 §3.2).
    pub fn in_flight(&self) -> usize {
        self.flight.in_flight().saturating_sub(self.repeated * self.segment)
    }

    /// Bytes that congestion control lets be on their way.
    pub fn window(&self) -> usize {
        self.congestion.size()
    }

    /// SRTT and RTTVAR (RFC 6298 §2), if a round trip was measured.
    pub fn round_trip(&self) -> Option<(Duration, Duration)> {
        self.trips.known()
    }

    /// Reads what came, as far as `target` has room; the number of bytes.
    pub fn read(&mut self, target: &mut [u8]) -> usize {
        let count = self.incoming.read(target);
        // The other end may wait for the window.
        self.acks.now |= count > 0 && self.incoming.opens(self.segment, self.scale);
        count
    }

    /// Takes as many bytes as there is room for; their number.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        if self.acknowledged == self.written {
            self.queue.begin(self.written);
        }
        let count = bytes.len().min(self.writable());
        self.queue.store(self.written, &bytes[..count]);
        self.written = self.written + count;
        count
    }

    /// Changes [`Config::no_delay`] and [`Config::is_corked`].
    pub fn set_delays(&mut self, no_delay: bool, is_corked: bool) {
        (self.config.no_delay, self.config.is_corked) = (no_delay, is_corked);
    }

    /// Whether what came is acknowledged at once, and what comes until data are sent (tcp(7),
    /// TCP_QUICKACK).
    pub fn set_quick(&mut self, is_quick: bool) {
        self.acks.quick = is_quick;
        self.acks.now |= is_quick && self.acks.waiting > 0;
    }

    /// When [`Connection::wake`] is to be called, if nothing happens before.
    pub fn deadline(&self) -> Option<Duration> {
        if self.end.is_some() {
            return None;
        }
        let Timers { retransmission, reordering, tail, closed_window, ack, keep_alive } =
            &self.timers;
        let all = [retransmission, reordering, tail, closed_window, ack, keep_alive];
        all.into_iter().flatten().min().copied()
    }

    /// The next segment to send; its data are copied to `buffer`, which has room for a full segment.
    /// None: there is none now.
    pub fn poll<'b>(&mut self, now: Duration, buffer: &'b mut [u8]) -> Option<Segment<'b>> {
        let most = self.full_segment().min(buffer.len());
        self.poll_train(now, &mut buffer[..most]).map(|(segment, _)| segment)
    }

    /// The next segment to send, or several as one: as many full segments of new data as `buffer` has
    /// room for. The data have to be cut into segments of so many bytes, the second value; only the
    /// last of them asks for a push.
    pub fn poll_train<'b>(
        &mut self,
        now: Duration,
        buffer: &'b mut [u8],
    ) -> Option<(Segment<'b>, usize)> {
        let size = self.full_segment().min(buffer.len());
        self.next_segment(now, size, buffer).map(|segment| (segment, size))
    }

    fn next_segment<'b>(
        &mut self,
        now: Duration,
        most: usize,
        buffer: &'b mut [u8],
    ) -> Option<Segment<'b>> {
        if self.end.is_some() {
            return None;
        }
        if let Some(places) = self.to_send_again(most) {
            self.flight.send_again(now, &places);
            self.congestion.sent(places.end.since(places.start));
            self.counts.sent += 1;
            self.counts.sent_again += 1;
            if places.start == self.acknowledged {
                // It has a round trip of its own to be answered.
                self.timers.retransmission = Some(now + self.trips.timeout());
            }
            return Some(self.data(now, &places, false, buffer));
        }
        if let Some((places, is_new)) = self.tail_probe(now, most) {
            return Some(self.data(now, &places, is_new, buffer));
        }
        if let Some(first) = self.new_data(most) {
            let room = if self.notification.is_due() { most } else { buffer.len() };
            let train = self.send_train(now, first, most, room);
            return Some(self.data(now, &train, true, buffer));
        }
        self.arm_closed_window(now);
        if std::mem::take(&mut self.due.question) {
            // Nothing is acceptable there, so it is answered (RFC 9293 §3.8.4).
            let at = self.acknowledged.back(1);
            return Some(self.segment(now, at, Flags::default(), false, &[]));
        }
        self.acks.now.then(|| self.segment(now, self.next, Flags::default(), false, &[]))
    }

    /// Sends new data, and further full segments as far as there is `room`.
    fn send_train(
        &mut self,
        now: Duration,
        first: Range<Place>,
        most: usize,
        room: usize,
    ) -> Range<Place> {
        let mut train = first.start..first.start;
        let mut next = Some(first);
        while let Some(places) = next {
            let size = places.end.since(places.start);
            train.end = places.end;
            self.congestion.sent(size);
            self.flight.send(now, places);
            self.next = train.end;
            self.counts.sent += 1;
            if size < most {
                self.small = train.end;
            }
            let is_last = size < most || train.end.since(train.start) + most > room;
            next = if is_last { None } else { self.new_data(most) };
        }
        self.arm(now);
        train
    }

    /// Payload of a segment that also has blocks.
    fn full_segment(&self) -> usize {
        let reported = self.selective && self.incoming.has_blocks();
        let blocks = if reported { BLOCKS_OPTION + 3 * BLOCK } else { 0 };
        self.segment.saturating_sub(blocks).max(1)
    }

    fn to_send_again(&self, most: usize) -> Option<Range<Place>> {
        let places = self.flight.lost_first(most)?;
        let size = self.congestion.size().max(self.segment);
        // Also beyond a window that the other end has taken back (RFC 9293 §3.8.6): the answer tells
        // the window, as that to a probe does.
        (self.in_flight() + places.end.since(places.start) <= size).then_some(places)
    }

    /// RFC 8985 §7.3: new data, or the last segment again; whether they are new.
    fn tail_probe(&mut self, now: Duration, most: usize) -> Option<(Range<Place>, bool)> {
        if !std::mem::take(&mut self.due.tail) {
            return None;
        }
        let room = self.peer_edge.since(self.next).min(most).min(self.written.since(self.next));
        let (again, lone) = (room == 0, self.flight.segments() == 1);
        let places = if again {
            let last = self.flight.last(most)?;
            // Where it begins within a segment, that is cut.
            self.flight.send_again(now, &last);
            self.counts.sent_again += 1;
            last
        } else {
            let places = self.next..self.next + room;
            self.flight.send(now, places.clone());
            self.next = places.end;
            self.small = places.end;
            places
        };
        self.congestion.sent(places.end.since(places.start));
        self.counts.sent += 1;
        self.tail = Some(Tail { until: self.next, again, lone });
        Some((places, !again))
    }

    /// Data that both windows allow and that need not wait (RFC 9293 §3.7.4 and §3.8.6.2.1). A small
    /// segment waits for small ones alone, as in Linux (draft-minshall-nagle-01).
    fn new_data(&self, most: usize) -> Option<Range<Place>> {
        let queued = self.unsent();
        let usable = self.peer_edge.since(self.next);
        let size = queued.min(usable).min(most);
        if size == 0 || self.in_flight() + size > self.congestion.size() {
            return None;
        }
        let full = size == most;
        let last = size == queued && (self.config.no_delay || self.small <= self.acknowledged);
        let half = size * 2 >= self.widest && self.flight.is_empty();
        let small = (last || half) && !self.config.is_corked;
        (full || small || self.due.small).then(|| self.next..self.next + size)
    }

    fn data<'b>(
        &mut self,
        now: Duration,
        places: &Range<Place>,
        is_new: bool,
        buffer: &'b mut [u8],
    ) -> Segment<'b> {
        let payload = &mut buffer[..places.end.since(places.start)];
        self.queue.copy_out(places.start, payload);
        let flags = Flags { push: places.end == self.written, ..Flags::default() };
        self.segment(now, places.start, flags, is_new, payload)
    }

    fn segment<'b>(
        &mut self,
        now: Duration,
        at: Place,
        mut flags: Flags,
        is_new: bool,
        payload: &'b [u8],
    ) -> Segment<'b> {
        let window = self.incoming.announce(self.segment, self.scale);
        let ack = self.incoming.next();
        let blocks = if self.selective { self.incoming.blocks() } else { Blocks::default() };
        let quick = self.acks.quick && payload.is_empty();
        self.acks = Acks { sent: ack, now: false, waiting: 0, quick };
        self.timers.ack = None;
        let timestamps = self.stamps.as_ref().map(|stamps| Timestamps {
            value: stamps.value(now),
            echo: stamps.recent.unwrap_or(0),
        });
        let ecn = self.notification.say(is_new, &mut flags);
        let (seq, ack) = (at.seq(), Some(ack.seq()));
        Segment { seq, ack, window, flags, ecn, timestamps, blocks, payload }
    }
}
