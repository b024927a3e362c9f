//! Connections that their program closes after much data. Needs root.

mod pairs;
#[path = "../../../tests/skip.rs"]
mod skip;
mod world;

use std::io::{ErrorKind, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use loopscope_engine::Engine;
use loopscope_stack::{Config, Id};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::TcpRepair;
use nix::unistd::geteuid;
use pairs::{KINDS, Kind, MUCH, Pair, bytes};
use socket2::SockRef;
use world::{Machine, PATIENCE, Serving, ip, network, read_all, read_to_end};

/// Has a service, and runs with it.
fn with_engine(test: impl FnOnce(Machine, Engine) + Send + 'static) {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    let test = || {
        let machine = network();
        let serving = Serving::start();
        let mut engine = Engine::connect(serving.at()).unwrap();
        // For its time the device is diverted. To end that and begin anew takes long, and fails
        // while another test starts a process, which has all descriptors for a moment.
        let other = Pair::connect(&machine, KINDS[0]);
        engine.take(&other.here, config()).unwrap();
        test(machine, engine);
    };
    std::thread::spawn(test).join().expect("the test did not fail");
}

/// A connection that the stack has, and by which much was sent.
fn after_much(machine: &Machine, engine: &mut Engine, kind: Kind) -> (Pair, Id) {
    let mut pair = Pair::connect(machine, kind);
    let id = engine.take(&pair.here, config()).unwrap();
    pair.send(engine, id, MUCH);
    (pair, id)
}

fn config() -> Config {
    Config { least_timeout: Duration::from_millis(5), no_delay: true, ..Config::default() }
}

/// Whether a socket has no connection any more, because another one has it.
fn was_replaced(socket: &TcpStream) -> bool {
    socket.peer_addr().is_err()
}

/// A new connection to the socket that listens at the port of one that was closed.
fn assert_listens(machine: &Machine, kind: Kind, pair: &Pair) {
    let address = pair.listener.local_addr().unwrap();
    let connect = || TcpStream::connect(address).unwrap();
    let mut one = if kind.accepts { machine.run(connect) } else { connect() };
    let mut other = pair.listener.accept().unwrap().0;
    one.write_all(b"next").unwrap();
    read_all(&mut other, b"next");
}

#[test]
fn what_was_sent_ends_in_order() {
    with_engine(|machine, mut engine| {
        for kind in KINDS {
            let (mut pair, id) = after_much(&machine, &mut engine, kind);
            engine.close(id).unwrap();
            assert!(was_replaced(&pair.here), "{kind:?}");
            assert_eq!(read_to_end(&mut pair.there), (vec![], None), "{kind:?}");
            assert_listens(&machine, kind, &pair);
        }
    });
}

#[test]
fn what_was_received_ends_in_order() {
    with_engine(|machine, mut engine| {
        for kind in KINDS {
            let mut pair = Pair::connect(&machine, kind);
            let id = engine.take(&pair.here, config()).unwrap();
            pair.receive(&mut engine, id, MUCH);
            assert_eq!(engine.write(id, b"thanks").unwrap(), Some(6));
            engine.close(id).unwrap();
            assert!(was_replaced(&pair.here), "{kind:?}");
            assert_eq!(read_to_end(&mut pair.there), (b"thanks".to_vec(), None), "{kind:?}");
        }
    });
}

#[test]
fn what_was_not_sent_comes_before_the_end() {
    with_engine(|machine, mut engine| {
        for kind in KINDS {
            let (mut pair, id) = after_much(&machine, &mut engine, kind);
            // More than the other end has room for.
            let written = pair.fill(&mut engine, id, MUCH);
            engine.close(id).unwrap();
            assert!(was_replaced(&pair.here), "{kind:?}");
            drop(pair.here);
            let (found, error) = read_to_end(&mut pair.there);
            assert_eq!((found.len(), error), (written - MUCH, None), "{kind:?}");
            assert!(found == bytes(MUCH, found.len()), "{kind:?}");
        }
    });
}

#[test]
fn what_was_sent_and_lost_is_sent_again() {
    with_engine(|machine, mut engine| {
        for kind in KINDS {
            let (mut pair, id) = after_much(&machine, &mut engine, kind);
            machine.run(|| ip("link set there down"));
            let written = engine.write(id, &bytes(MUCH, 10_000)).unwrap().unwrap();
            engine.turn().unwrap();
            engine.close(id).unwrap();
            assert!(was_replaced(&pair.here), "{kind:?}");
            machine.run(|| ip("link set there up"));
            // IPv6 forgets it with the device.
            machine.run(|| ip("address replace fd00::2/64 dev there nodad"));
            let (found, error) = read_to_end(&mut pair.there);
            assert_eq!((found.len(), error), (written, None), "{kind:?}");
            assert!(found == bytes(MUCH, found.len()), "{kind:?}");
        }
    });
}

#[test]
fn what_was_not_read_resets_the_connection() {
    with_engine(|machine, mut engine| {
        for kind in KINDS {
            for came in ["to the stack", "meanwhile"] {
                let (mut pair, id) = after_much(&machine, &mut engine, kind);
                pair.there.write_all(b"some data").unwrap();
                // By then it is in the ring.
                engine.wait(PATIENCE).unwrap();
                while came == "to the stack" && engine.get(id).unwrap().readable() < 9 {
                    engine.turn().unwrap();
                }
                engine.close(id).unwrap();
                assert!(was_replaced(&pair.here), "{kind:?}");
                let error = Some(ErrorKind::ConnectionReset);
                assert_eq!(read_to_end(&mut pair.there), (vec![], error), "{kind:?} {came}");
            }
        }
    });
}

#[test]
fn both_ends_close_at_once() {
    with_engine(|machine, mut engine| {
        for kind in KINDS {
            let (mut pair, id) = after_much(&machine, &mut engine, kind);
            pair.there.shutdown(Shutdown::Write).unwrap();
            engine.wait(PATIENCE).unwrap();
            engine.close(id).unwrap();
            assert!(was_replaced(&pair.here), "{kind:?}");
            assert_eq!(read_to_end(&mut pair.there), (vec![], None), "{kind:?}");
        }
    });
}

#[test]
fn a_socket_that_lingers_is_closed_by_its_program() {
    with_engine(|machine, mut engine| {
        for (time, error) in
            [(Duration::ZERO, Some(ErrorKind::ConnectionReset)), (Duration::from_secs(9), None)]
        {
            let (mut pair, id) = after_much(&machine, &mut engine, KINDS[0]);
            SockRef::from(&pair.here).set_linger(Some(time)).unwrap();
            engine.close(id).unwrap();
            assert!(!was_replaced(&pair.here));
            drop(pair.here);
            assert_eq!(read_to_end(&mut pair.there), (vec![], error));
        }
    });
}

#[test]
fn a_connection_that_goes_on_keeps_its_socket() {
    with_engine(|machine, mut engine| {
        for kind in KINDS {
            let (mut pair, id) = after_much(&machine, &mut engine, kind);
            engine.give_back(id).unwrap();
            pair.here.write_all(b"on").unwrap();
            read_all(&mut pair.there, b"on");
            // After little data it keeps it also when it is closed.
            let mut pair = Pair::connect(&machine, kind);
            let id = engine.take(&pair.here, config()).unwrap();
            pair.send(&mut engine, id, 1000);
            engine.close(id).unwrap();
            assert!(!was_replaced(&pair.here));
            drop(pair.here);
            assert_eq!(read_to_end(&mut pair.there), (vec![], None));
        }
    });
}

#[test]
fn a_program_that_goes_on_without_the_service_keeps_its_socket() {
    with_engine(|machine, mut engine| {
        let (mut pair, _) = after_much(&machine, &mut engine, KINDS[0]);
        // As where it has ended, but it has not.
        drop(engine);
        let begin = Instant::now();
        // What is written to a socket in repair mode goes nowhere.
        while getsockopt(&pair.here, TcpRepair).unwrap() != 0 {
            assert!(begin.elapsed() < PATIENCE, "it does not come back");
        }
        pair.here.write_all(b"on").unwrap();
        read_all(&mut pair.there, b"on");
    });
}
