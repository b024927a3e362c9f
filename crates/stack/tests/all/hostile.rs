//! A peer that sends anything: nothing panics, no end sends or wakes for ever, no segment makes more
//! data unacknowledged, and the program reads bytes that were sent to it alone.

use std::time::Duration;

use fastrand::Rng;
use loopscope_stack::{
    Blocks, Config, Connection, Ecn, Flags, KeepAlive, Segment, Seq, State, Timestamps,
};

const SEGMENT: usize = 500;
/// Segments of a connection.
const STEPS: usize = 400;
/// Between two of which so many are sent at most: a window of the smallest segments.
const MOST_AT_ONCE: usize = 20_000;

fn connections() -> u64 {
    if std::env::var_os("LOOPSCOPE_SOAK").is_some() { 1_000_000 } else { 20_000 }
}

/// A number that is likely to be near one that matters.
fn near(rng: &mut Rng, seq: Seq, reach: u32) -> Seq {
    let ahead = match rng.u8(0..8) {
        0 => rng.u32(..),
        1 => reach,
        2 | 3 => 0,
        4 => u32::MAX,
        _ => rng.u32(0..reach.max(1) * 2).wrapping_sub(reach / 2),
    };
    Seq(seq.0.wrapping_add(ahead))
}

fn attack(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let (here, there) = (Seq(rng.u32(..)), Seq(rng.u32(..)));
    let stamped = rng.bool();
    let config = Config {
        send_buffer: rng.usize(1..20_000),
        receive_buffer: rng.usize(1..20_000),
        least_timeout: Duration::from_millis(rng.u64(1..300)),
        no_delay: rng.bool(),
        keep_alive: rng.bool().then_some(KeepAlive {
            idle: Duration::from_secs(1),
            interval: Duration::from_millis(100),
            probes: 3,
        }),
        ..Config::default()
    };
    let state = State {
        unacknowledged: here,
        queued: vec![1; rng.usize(0..5000)],
        sent: rng.usize(0..5000),
        peer_window: rng.usize(0..100_000),
        expected: there,
        unread: vec![2; rng.usize(0..100)],
        window: rng.usize(0..20_000),
        segment: rng.usize(1..SEGMENT),
        scale: rng.u8(0..15),
        peer_scale: rng.u8(0..15),
        selective: rng.bool(),
        ecn: rng.bool(),
        round_trip: None,
        timestamps: stamped.then_some(loopscope_stack::Clocks {
            now: 0,
            recent: Some(0),
            newest: None,
        }),
    };
    let mut now = Duration::from_secs(1000);
    let mut connection = Connection::new(state, config, now);
    let mut buffer = [0; SEGMENT];
    let payload = [3; 2 * SEGMENT];
    let (mut next, mut expected) = (here, there);
    for _ in 0..STEPS {
        let mut sent = 0;
        while let Some(segment) = connection.poll(now, &mut buffer) {
            sent += 1;
            assert!(sent < MOST_AT_ONCE, "it sends for ever");
            next = Seq(segment.seq.0.wrapping_add(segment.payload.len() as u32));
            expected = segment.ack.expect("each segment acknowledges");
        }
        if let Some(deadline) = connection.deadline() {
            if rng.u8(0..4) == 0 {
                now = now.max(deadline);
                connection.wake(now);
                assert!(connection.deadline().is_none_or(|at| at > now), "it wakes for ever");
            }
        } else if connection.end().is_some() {
            break;
        }
        now += Duration::from_micros(rng.u64(0..5000));
        let mut blocks = Blocks::default();
        for _ in 0..rng.usize(0..4) {
            let begin = near(&mut rng, next, 3000);
            blocks.push(begin, near(&mut rng, begin, 1000));
        }
        let rarely = |rng: &mut Rng| rng.u8(..) == 0;
        let segment = Segment {
            seq: near(&mut rng, expected, 3000),
            ack: (!rarely(&mut rng)).then(|| near(&mut rng, next, 3000)),
            window: if rng.bool() { rng.u16(..) } else { rng.u16(0..3) },
            flags: Flags {
                syn: rarely(&mut rng),
                fin: rarely(&mut rng),
                rst: rarely(&mut rng),
                push: rng.bool(),
                urgent: rarely(&mut rng),
                marked: rng.bool(),
                shrunk: rng.bool(),
            },
            ecn: [Ecn::NotCapable, Ecn::Capable, Ecn::Marked][rng.usize(0..3)],
            timestamps: (stamped || rng.bool())
                .then(|| Timestamps { value: rng.u32(0..20_000), echo: rng.u32(..) }),
            blocks,
            payload: &payload[..rng.usize(0..payload.len())],
        };
        let unacknowledged = connection.unacknowledged();
        connection.receive(now, &segment);
        assert!(connection.unacknowledged() <= unacknowledged);
        if rng.bool() {
            connection.write(&payload[..rng.usize(0..payload.len())]);
        }
        let mut target = [0; 700];
        let count = connection.read(&mut target[..rng.usize(0..700)]);
        assert!(target[..count].iter().all(|byte| [2, 3].contains(byte)));
        if rng.u8(..) == 0 {
            let state = connection.into_state(now);
            assert!(state.sent <= state.queued.len());
            connection = Connection::new(state, config, now);
        }
    }
}

#[test]
fn a_hostile_peer_breaks_nothing() {
    for seed in 0..connections() {
        let result = std::panic::catch_unwind(|| attack(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}
