//! What a segment takes of the heap, once the connections of a program have what they need.

use std::net::SocketAddr;
use std::time::Duration;

use allocation_counter::measure;
use loopscope_stack::packet::Flow;
use loopscope_stack::{Config, Connection, Connections, Id, Leaving, Seq, State};

const PAIRS: usize = 10;
const ROUNDS: usize = 10_000;
const ROOM: usize = 50_000;

fn state(sent: Seq, expected: Seq) -> State {
    State {
        unacknowledged: sent,
        queued: vec![],
        sent: 0,
        peer_window: ROOM,
        expected,
        unread: vec![],
        window: ROOM,
        segment: 1000,
        scale: 0,
        peer_scale: 0,
        selective: true,
        ecn: false,
        round_trip: None,
        timestamps: None,
    }
}

fn flow(pair: usize, end: usize) -> Flow {
    let at = |end: usize| SocketAddr::from(([10, 0, 0, end as u8], 1000 + pair as u16));
    Flow { from: at(1 - end), to: at(end) }
}

/// Has all that one program sends come to the other one, but for `loses` of the segments.
fn transfer(
    now: Duration,
    [from, to]: [&mut Connections; 2],
    buffer: &mut [u8],
    mut loses: impl FnMut() -> bool,
) {
    from.wake(now, |_, _| {});
    from.send(now, buffer, |Leaving { flow, segment, .. }: Leaving<'_, ()>| {
        let id = to.of(flow).expect("there is one");
        if !loses() {
            to.change(id).expect("it is there").receive(now, &segment);
        }
    });
}

/// Short messages go to and fro over each of the connections, one after the other.
fn exchange(loss: u64) -> u64 {
    let mut programs: [Connections; 2] = Default::default();
    let first = [Seq(7), Seq(u32::MAX - 7)];
    let add = |end: usize, pair: usize, program: &mut Connections| -> Id {
        let config = Config { no_delay: true, ..Config::default() };
        let state = state(first[end], first[1 - end]);
        let connection = Connection::new(state, config, Duration::ZERO);
        program.add(&flow(pair, end), connection, ()).expect("its flow is new")
    };
    let ids: Vec<[Id; 2]> = (0..PAIRS)
        .map(|pair| {
            let [here, there] = &mut programs;
            [add(0, pair, here), add(1, pair, there)]
        })
        .collect();
    let (mut buffer, mut message) = (vec![0; 1000], [7; 64]);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut now = Duration::ZERO;
    let mut rounds = |count: usize| {
        for round in 0..count {
            for end in [0, 1] {
                let id = ids[round % PAIRS];
                assert_eq!(programs[end].change(id[end]).expect("it is there").write(&message), 64);
                let mut read = 0;
                while read < message.len() {
                    now += Duration::from_micros(10);
                    for from in [end, 1 - end] {
                        let [here, there] = &mut programs;
                        let both = if from == 0 { [here, there] } else { [there, here] };
                        transfer(now, both, &mut buffer, || loss > 0 && rng.u64(..loss) == 0);
                    }
                    let connection = programs[1 - end].change(id[1 - end]);
                    read += connection.expect("it is there").read(&mut message[read..]);
                }
            }
        }
    };
    rounds(ROUNDS / 10);
    measure(|| rounds(ROUNDS)).count_total
}

/// When a connection is to be looked at is stored in a tree, now and then; a segment takes nothing.
#[test]
fn segments_take_nothing_of_the_heap() {
    for (loss, most) in [(0, ROUNDS / 20), (50, ROUNDS / 5)] {
        let count = exchange(loss);
        eprintln!("{count} allocations for {} messages, loss 1 in {loss}", 2 * ROUNDS);
        assert!(count < most as u64, "{count} allocations");
    }
}
