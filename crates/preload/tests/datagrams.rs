//! Programs that transfer datagrams and know nothing of the stack, with and without the library.
//! Needs root.

mod machines;
#[path = "../../../tests/skip.rs"]
mod skip;
#[path = "../../stack-service/tests/world/mod.rs"]
mod world;

use std::path::Path;
use std::sync::OnceLock;

use machines::At::{Here, There};
use machines::{Compiled, ENDS, Running, World, compile, in_thread};
use serde_json::Value;

const PORT: &str = "7000";
const OTHER: [&str; 2] = ["10.0.0.2", "fd00::2"];

/// The program of `datagrams.c`.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<Compiled> = OnceLock::new();
    &PROGRAM.get_or_init(|| compile("datagrams.c", &[])).path
}

fn answer(world: &World, preload: bool, other: &str) -> Running {
    let words = ["answer", "echo", other, PORT];
    let mut answering = world.start(There, preload, program(), &words);
    assert_eq!(answering.line(), "ready", "it waits for datagrams at {other}");
    answering
}

fn call(world: &World, preload: bool, other: &str, act: &str) -> Running {
    let (act, more) = act.split_once(' ').unwrap_or((act, ""));
    let words = ["call", act, other, PORT].into_iter().chain(more.split_whitespace());
    world.start(Here, preload, program(), &words.collect::<Vec<_>>())
}

/// One that echoes there, and one that calls here. What that says.
fn pair(world: &World, [here, there]: [bool; 2], family: usize, act: &str) -> String {
    let answering = answer(world, there, OTHER[family]);
    let said = call(world, here, OTHER[family], act).end();
    // The end does not reach it from another port.
    if act != "again" {
        drop(answering.end());
    }
    said
}

/// What is told of the socket of a program.
fn socket(world: &World, at: machines::At) -> Value {
    let line = world.connection(at);
    std::fs::write(world.explain(at), "").unwrap();
    assert_eq!(line["protocol"], "UDP", "{line}");
    line
}

fn number(line: &Value, key: &str) -> u64 {
    line[key].as_u64().unwrap_or_else(|| panic!("{key}: {line}"))
}

#[test]
fn round_trips_are_by_the_stack() {
    in_thread(|| {
        let (count, size) = (5000, 64);
        for preload in ENDS {
            let world = World::make(true);
            for family in 0..2 {
                pair(&world, preload, family, &format!("trips {count} {size}"));
                for (at, _) in [Here, There].into_iter().zip(preload).filter(|(_, has)| *has) {
                    let line = socket(&world, at);
                    let all = count * size;
                    for key in ["received_by_stack", "read_from_stack", "written_to_stack"] {
                        let found = number(&line, key);
                        assert!(found * 100 >= all * 99, "{found} of {all}: {line}");
                    }
                    assert_eq!(number(&line, "dropped_by_stack"), 0);
                }
            }
        }
    });
}

#[test]
fn threads_wait_as_they_are_told() {
    in_thread(|| {
        let mut world = World::make(true);
        for receive in ["spin", "block", "adaptive"] {
            world.receive = receive;
            for act in ["bursts", "mixes", "polls", "signals"] {
                assert_eq!(pair(&world, [true, false], 0, act), "fine", "{receive} {act}");
                assert_eq!(socket(&world, Here)["accelerated"], true, "{receive} {act}");
            }
        }
    });
}

/// The program's own checks hold with the kernel as well.
#[test]
fn calls_come_to_what_the_kernel_makes_of_them() {
    in_thread(|| {
        let world = World::make(true);
        let acts = [
            "bursts", "mixes", "polls", "signals", "dups", "forks", "back", "many", "segments",
            "again",
        ];
        for (family, act) in (0..2).flat_map(|family| acts.map(|act| (family, act))) {
            for preload in [[false, false], [true, false], [true, true]] {
                assert_eq!(pair(&world, preload, family, act), "fine", "{act} {preload:?}");
                let lines = world.explained(Here);
                std::fs::write(world.explain(Here), "").unwrap();
                assert_eq!(lines.len(), usize::from(preload[0]), "{act}: {lines:?}");
                for line in lines {
                    let why = match act {
                        "dups" => "dup()",
                        "forks" => "the program has forked while it had the connection",
                        "back" => "flags that are the kernel's",
                        "again" => "connect()",
                        _ => "the program has ended",
                    };
                    assert_eq!(
                        (&line["accelerated"], &line["why"]),
                        (&true.into(), &why.into()),
                        "{act}"
                    );
                }
            }
            std::fs::write(world.explain(There), "").unwrap();
        }
    });
}

#[test]
fn errors_are_those_of_the_kernel() {
    in_thread(|| {
        let world = World::make(true);
        world.machine.run(|| {
            // Each datagram gets its answer.
            for limit in ["ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit"] {
                std::fs::write(format!("/proc/sys/net/{limit}"), "0").unwrap();
            }
        });
        for other in OTHER {
            for preload in [false, true] {
                assert_eq!(call(&world, preload, other, "refused").end(), "fine");
            }
            assert_eq!(socket(&world, Here)["accelerated"], true);
        }
    });
}

#[test]
fn what_is_not_connected_stays_with_the_kernel() {
    in_thread(|| {
        let world = World::make(true);
        let answering = answer(&world, false, OTHER[0]);
        assert_eq!(call(&world, true, OTHER[0], "unconnected").end(), "fine");
        let text = std::fs::read_to_string(world.explain(Here)).unwrap();
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(
            (&last["accelerated"], &last["why"]),
            (&false.into(), &"it is not connected".into())
        );
        drop(answering);
    });
}

#[test]
fn programs_go_on_without_the_service() {
    in_thread(|| {
        for receive in ["spin", "block"] {
            let mut world = World::make(true);
            world.receive = receive;
            let answering = answer(&world, false, OTHER[0]);
            let mut calling = call(&world, true, OTHER[0], "outlives");
            assert_eq!(calling.line(), "ready");
            world.here.take().unwrap().end();
            assert_eq!(calling.end(), "fine");
            let line = socket(&world, Here);
            assert_eq!(
                (&line["accelerated"], &line["why"]),
                (&true.into(), &"the service of the stack has ended".into())
            );
            drop(answering.end());
        }
    });
}

/// Prints the times of both, in turn.
#[test]
fn round_trips_with_and_without() {
    in_thread(|| {
        let mut world = World::make(true);
        for receive in ["adaptive", "spin", "block"] {
            world.receive = receive;
            for preload in [[false, false], [true, true]].repeat(2) {
                let said = pair(&world, preload, 0, "trips 20000 64");
                eprintln!("64 bytes, by the stack {preload:?}, {receive}: {said} ns");
            }
        }
    });
}
