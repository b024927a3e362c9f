//! Many connections of a program, over a network that loses packets, in virtual time: each packet
//! reaches its connection, none is woken too late, and what was removed gets nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fastrand::Rng;
use loopscope_stack::packet::{Checksums, Flow, MOST_HEADERS, parse, write};
use loopscope_stack::{Config, Connection, Connections, Id, Leaving, Seq, State};

const PAIRS: usize = 40;
const SEGMENT: usize = 500;

fn us(count: u64) -> Duration {
    Duration::from_micros(count)
}

fn config() -> Config {
    Config { least_timeout: us(2000), delayed_ack: us(500), no_delay: true, ..Config::default() }
}

fn state(sent: u32, came: u32) -> State {
    State {
        unacknowledged: Seq(sent),
        queued: vec![],
        sent: 0,
        peer_window: 50_000,
        expected: Seq(came),
        unread: vec![],
        window: 50_000,
        segment: SEGMENT,
        scale: 0,
        peer_scale: 0,
        selective: true,
        ecn: false,
        round_trip: None,
        timestamps: None,
    }
}

/// The flow of what comes to one end of a pair. Pairs differ in a port or an address.
fn flow(pair: usize, end: usize) -> Flow {
    let at = |end: usize| {
        let ip: IpAddr = [10, 0, end as u8, (pair % 3) as u8 + 1].into();
        SocketAddr::new(ip, 1000 + (pair / 3) as u16)
    };
    Flow { from: at(1 - end), to: at(end) }
}

/// When a packet arrives, its number, the program that gets it, and its bytes.
type OnItsWay = (Duration, u64, usize, Vec<u8>);

/// Two programs, with an end of each pair.
struct World {
    rng: Rng,
    now: Duration,
    programs: [Connections; 2],
    ids: Vec<[Id; 2]>,
    written: Vec<[usize; 2]>,
    read: Vec<[usize; 2]>,
    packets: BinaryHeap<Reverse<OnItsWay>>,
    number: u64,
}

/// The byte of a stream that an end of a pair writes.
fn byte(pair: usize, end: usize, place: usize) -> u8 {
    (pair * 31 + end * 7 + place * 13) as u8
}

impl World {
    fn make(seed: u64) -> World {
        let mut programs = [Connections::default(), Connections::default()];
        let ids = (0..PAIRS).map(|pair| {
            [0, 1].map(|end| {
                let first = [pair as u32 * 1000, u32::MAX - pair as u32];
                let connection =
                    Connection::new(state(first[end], first[1 - end]), config(), us(0));
                programs[end].add(&flow(pair, end), connection, ()).expect("its flow is new")
            })
        });
        let ids = ids.collect();
        let (written, read) = (vec![[0; 2]; PAIRS], vec![[0; 2]; PAIRS]);
        World {
            rng: Rng::with_seed(seed),
            now: us(0),
            programs,
            ids,
            written,
            read,
            packets: BinaryHeap::new(),
            number: 0,
        }
    }

    fn send(&mut self) {
        let mut buffer = vec![0; 20 * SEGMENT];
        for end in 0..2 {
            let World { rng, now, packets, number, .. } = self;
            self.programs[end].send(
                *now,
                &mut buffer,
                |Leaving { flow, segment, size, .. }| {
                    for begin in (0..segment.payload.len().max(1)).step_by(size) {
                        let payload =
                            &segment.payload[begin..segment.payload.len().min(begin + size)];
                        let seq = Seq(segment.seq.0.wrapping_add(begin as u32));
                        let segment = loopscope_stack::Segment { seq, payload, ..segment };
                        let mut packet = vec![0; MOST_HEADERS + SEGMENT];
                        let written = write(flow, &segment, Checksums::Whole, &mut packet);
                        packet.truncate(written.length);
                        if rng.u8(..) < 10 {
                            continue;
                        }
                        *number += 1;
                        packets.push(Reverse((
                            *now + us(rng.u64(50..400)),
                            *number,
                            1 - end,
                            packet,
                        )));
                    }
                },
            );
        }
    }

    /// Each program looks when the first of its connections has to.
    fn check_deadlines(&self) {
        for (end, program) in self.programs.iter().enumerate() {
            let deadlines = self.ids.iter().filter_map(|ids| program.get(ids[end])?.deadline());
            let Some(first) = deadlines.min() else { continue };
            assert!(program.deadline().is_some_and(|at| at <= first), "{first:?}");
            assert!(first > self.now, "{first:?}");
        }
    }

    fn step(&mut self, total: usize) {
        let arrives = self.packets.peek().map(|Reverse((at, ..))| *at);
        let wakes = self.programs.iter().filter_map(Connections::deadline).min();
        let next = [arrives, wakes].into_iter().flatten().min();
        self.now = self.now.max(next.unwrap_or(self.now + us(100)));
        while let Some(Reverse((at, ..))) = self.packets.peek()
            && *at <= self.now
        {
            let Some(Reverse((_, _, end, packet))) = self.packets.pop() else { break };
            let (flow, segment) = parse(&packet, Checksums::Whole).expect("it is whole");
            let Some(id) = self.programs[end].of(&flow) else { continue };
            self.programs[end].change(id).expect("it is there").receive(self.now, &segment);
        }
        for program in &mut self.programs {
            program.wake(self.now, |_, _| {});
        }
        for pair in 0..PAIRS {
            if self.rng.u8(..) < 200 {
                continue;
            }
            for end in 0..2 {
                self.act(pair, end, total);
            }
        }
        self.send();
        self.check_deadlines();
    }

    fn act(&mut self, pair: usize, end: usize, total: usize) {
        let Some(connection) = self.programs[end].change(self.ids[pair][end]) else { return };
        let written = &mut self.written[pair][end];
        let count = self.rng.usize(0..2000).min(total - *written);
        let bytes: Vec<u8> =
            (*written..*written + count).map(|place| byte(pair, end, place)).collect();
        *written += connection.write(&bytes);
        let mut target = [0; 3000];
        let count = connection.read(&mut target);
        let read = &mut self.read[pair][end];
        for &found in &target[..count] {
            assert_eq!(found, byte(pair, 1 - end, *read), "byte {read} of pair {pair}");
            *read += 1;
        }
    }

    fn is_done(&self, pair: usize, total: usize) -> bool {
        (0..2).all(|end| {
            let connection = self.programs[end].get(self.ids[pair][end]).expect("it is there");
            self.written[pair][end] == total
                && self.read[pair][end] == total
                && connection.unacknowledged() == 0
        })
    }
}

#[test]
fn each_packet_reaches_its_connection_and_none_is_woken_too_late() {
    for seed in 0..20 {
        let mut world = World::make(seed);
        world.send();
        while !(0..PAIRS).all(|pair| world.is_done(pair, 20_000)) {
            world.step(20_000);
            assert!(world.now < Duration::from_secs(120), "seed {seed} stalls");
        }
    }
}

#[test]
fn what_was_removed_gets_nothing_and_its_flow_is_free() {
    let mut world = World::make(7);
    world.send();
    for _ in 0..50 {
        world.step(20_000);
    }
    let id = world.ids[3][0];
    let before = world.programs[0].len();
    assert!(
        world.programs[0]
            .add(&flow(3, 0), Connection::new(state(1, 2), config(), world.now), ())
            .is_none()
    );
    assert!(world.programs[0].remove(id).is_some());
    assert!(world.programs[0].remove(id).is_none());
    assert!(world.programs[0].get(id).is_none() && world.programs[0].change(id).is_none());
    assert_eq!((world.programs[0].of(&flow(3, 0)), world.programs[0].len()), (None, before - 1));
    // Packets of it that are on their way, and its deadlines, are passed over.
    for _ in 0..200 {
        world.step(20_000);
    }
    let new = Connection::new(state(1, 2), config(), world.now);
    let again = world.programs[0].add(&flow(3, 0), new, ()).expect("its flow is free");
    assert_ne!(again, id);
    assert_eq!(world.programs[0].of(&flow(3, 0)), Some(again));
    assert!(world.programs[0].get(id).is_none());
    assert!(world.programs[0].change(id).is_none() && world.programs[0].remove(id).is_none());
    assert!(world.programs[0].get(again).is_some());
}
