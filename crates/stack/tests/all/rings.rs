//! Where a connection has the bytes of its streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use loopscope_stack::{Config, Connection, Memory, Outline, Seq, State, in_ring};

const RING: usize = 10_000;

/// Where bytes were stored in a ring: last, and farthest from its beginning.
#[derive(Debug, Default)]
struct Stores {
    last: AtomicUsize,
    farthest: AtomicUsize,
}

impl Stores {
    fn last(&self) -> usize {
        self.last.load(Ordering::Relaxed)
    }

    fn farthest(&self) -> usize {
        self.farthest.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Watched {
    bytes: Vec<u8>,
    stores: Arc<Stores>,
}

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Watched {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Memory for Watched {
    fn stores(&mut self, at: usize) {
        self.stores.last.store(at, Ordering::Relaxed);
        self.stores.farthest.fetch_max(at, Ordering::Relaxed);
    }
}

/// An end that goes on with a connection in memory that is watched, and where its rings were used.
fn end(sent: u32, came: u32) -> (Connection, [Arc<Stores>; 2]) {
    let state = State {
        unacknowledged: Seq(sent),
        queued: vec![],
        sent: 0,
        peer_window: RING,
        expected: Seq(came),
        unread: vec![],
        window: RING,
        segment: 500,
        scale: 0,
        peer_scale: 0,
        selective: true,
        ecn: false,
        round_trip: None,
        timestamps: None,
    };
    let stores: [Arc<Stores>; 2] = Default::default();
    let [send, receive] = [0, 1]
        .map(|ring| Box::new(Watched { bytes: vec![0; RING], stores: Arc::clone(&stores[ring]) }));
    let config = Config { no_delay: true, ..Config::default() };
    let outline = Outline::of(&state);
    let connection = Connection::resume(&outline, config, Duration::ZERO, send, receive);
    (connection.expect("it can be so"), stores)
}

/// Has all that is due go to the other end.
fn transfer(now: Duration, from: &mut Connection, to: &mut Connection) {
    let mut buffer = [0; RING];
    while let Some(segment) = from.poll(now, &mut buffer) {
        to.receive(now, &segment);
    }
}

#[test]
fn a_stream_of_short_messages_uses_the_beginning_of_its_rings_alone() {
    // Their sequence numbers go through zero.
    let ((mut one, of_one), (mut other, of_other)) =
        (end(u32::MAX - 9000, 77), end(77, u32::MAX - 9000));
    for number in 0..1000_u32 {
        let now = Duration::from_micros(10 * u64::from(number));
        let message: Vec<u8> = (0..64).map(|byte| (number + byte) as u8).collect();
        let mut came = [0; RING];
        for is_answer in [false, true] {
            let (from, to) =
                if is_answer { (&mut other, &mut one) } else { (&mut one, &mut other) };
            assert_eq!(from.write(&message), message.len());
            transfer(now, from, to);
            let outline = to.outline(now);
            let places = outline.expected.back(message.len())..outline.expected;
            let [begin, _] = in_ring(places, outline.receive_origin, RING);
            let [_, receiving] = if is_answer { &of_one } else { &of_other };
            assert_eq!(receiving.last(), begin.start, "message {number}");
            let count = to.read(&mut came);
            assert_eq!(came[..count], message, "message {number}");
        }
    }
    for stores in of_one.iter().chain(&of_other) {
        // A message may be written before the one before it is acknowledged.
        assert!(stores.farthest() <= 64, "a byte is stored at {}", stores.farthest());
    }
}

#[test]
fn a_ring_that_is_never_empty_goes_round() {
    let ((mut one, of_one), (mut other, _)) = (end(1, 2), end(2, 1));
    let (mut written, mut read) = (0_usize, 0_usize);
    let byte = |at: usize| (at / 3) as u8;
    for step in 0..200 {
        let now = Duration::from_micros(10 * step);
        let message: Vec<u8> = (written..written + 700).map(byte).collect();
        let place = one.outline(now).written;
        let count = one.write(&message);
        let [begin, _] = in_ring(place..place + count, one.outline(now).send_origin, RING);
        assert!(count == 0 || of_one[0].last() == begin.start);
        written += count;
        // The one before is acknowledged, but not this one.
        transfer(now, &mut other, &mut one);
        transfer(now, &mut one, &mut other);
        // Less than was written: something is left of each.
        let mut came = [0; 690];
        let count = other.read(&mut came);
        let expected: Vec<u8> = (read..read + count).map(byte).collect();
        assert_eq!(came[..count], expected);
        read += count;
    }
    assert!(read > 5 * RING);
    assert!(of_one[0].farthest() > RING / 2);
}
