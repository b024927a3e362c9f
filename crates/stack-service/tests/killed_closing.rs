//! Services, keepers and programs that are killed while a connection is closed after much data.
//! Needs root.

mod killable;
mod pairs;
#[path = "../../../tests/skip.rs"]
mod skip;
mod world;

use std::fs::File;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use killable::{Killable, again, as_root, tries};
use loopscope_engine::{Engine, EngineError};
use loopscope_stack::Config;
use nix::unistd::geteuid;
use pairs::{KINDS, MUCH, Pair, bytes};
use world::{Machine, OTHER, PATIENCE, Serving, failed, network, read_to_end, wait_for_devices};

const NOBODY: u32 = 65534;
/// To close a connection takes about as long, in microseconds.
const WHILE_CLOSING: u64 = 600;

/// Waits busily: sleeping takes longer than to close a connection.
fn spin(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// What the other ends have seen.
#[derive(Debug, Default)]
struct Seen {
    orderly: u64,
    resets: u64,
}

impl Seen {
    /// A stream that has not ended in order has not ended.
    fn count(&mut self, found: &[u8], error: Option<ErrorKind>, written: usize, seed: u64) {
        assert!(found == bytes(MUCH, found.len()), "seed {seed}");
        match error {
            None => assert_eq!(found.len(), written - MUCH, "seed {seed}"),
            Some(error) => assert_eq!(error, ErrorKind::ConnectionReset, "seed {seed}"),
        }
        let counted = if error.is_none() { &mut self.orderly } else { &mut self.resets };
        *counted += 1;
    }
}

/// Kills one of both while a program closes its connection.
fn kill_while_closing(kills_service: bool, machine: &Machine, seed: u64, seen: &mut Seen) {
    let mut rng = Rng::with_seed(seed);
    let mut killable = Killable::start();
    let mut engine = Engine::connect(&killable.path).unwrap();
    let mut pair = Pair::connect(machine, KINDS[rng.usize(0..KINDS.len())]);
    let id = engine.take(&pair.here, Config::default()).unwrap();
    pair.send(&mut engine, id, MUCH);
    // Some of it is sent.
    let mut written = MUCH;
    for _ in 0..rng.usize(0..3) {
        let next = bytes(written, rng.usize(0..200_000));
        written += engine.write(id, &next).unwrap().expect("it is the stack's");
        if rng.bool() {
            engine.turn().unwrap();
        }
    }
    let time = Duration::from_micros(rng.u64(0..WHILE_CLOSING));
    let victim = if kills_service { &mut killable.service } else { &mut killable.keeper };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            spin(time);
            victim.kill().unwrap();
            victim.wait().unwrap();
        });
        match engine.close(id) {
            // A service without a keeper says so.
            Ok(_) | Err(EngineError::Service(_) | EngineError::Refused(_)) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
        drop(pair.here);
    });
    if kills_service {
        assert!(killable.keeper.wait().unwrap().success(), "seed {seed}");
    }
    let (found, error) = read_to_end(&mut pair.there);
    seen.count(&found, error, written, seed);
}

#[test]
fn a_service_that_is_killed_while_it_closes_loses_nothing_unnoticed() {
    as_root(|| {
        let (machine, mut seen) = (network(), Seen::default());
        for seed in 0..tries() {
            kill_while_closing(true, &machine, seed, &mut seen);
        }
        eprintln!("{seen:?}");
        assert!(seen.orderly > 0, "{seen:?}");
    });
}

#[test]
fn a_keeper_that_is_killed_while_its_service_closes_harms_nothing() {
    as_root(|| {
        let (machine, mut seen) = (network(), Seen::default());
        for seed in 0..tries() {
            kill_while_closing(false, &machine, seed, &mut seen);
        }
        assert_eq!(seen.resets, 0, "{seen:?}");
    });
}

/// The program: sends much, stores how much it writes, and closes.
#[test]
fn as_a_program() {
    let Ok(words) = std::env::var("LOOPSCOPE_TEST_PROGRAM") else { return };
    let [service, other, written_to] =
        words.split(' ').collect::<Vec<_>>().try_into().expect("three words");
    assert!(!geteuid().is_root());
    let file = File::options().write(true).open(written_to).unwrap();
    let mut engine = Engine::connect(Path::new(service)).expect("the service is there");
    let stream = TcpStream::connect(other).unwrap();
    let id = engine.take(&stream, Config::default()).unwrap();
    let mut written = 0;
    while written < MUCH + 200_000 {
        let next = bytes(written, 10_000);
        written += engine.write(id, &next).unwrap().expect("the service is there");
        file.write_all_at(&written.to_ne_bytes(), 0).unwrap();
        engine.turn().unwrap();
    }
    engine.close(id).unwrap();
}

#[test]
fn a_program_that_is_killed_while_it_closes_leaves_its_stream_in_order() {
    as_root(|| {
        let (machine, mut seen) = (network(), Seen::default());
        let before = world::devices();
        let serving = Serving::start();
        let folder = tempfile::tempdir().unwrap();
        world::run("chmod", &format!("755 {}", folder.path().display()));
        let listener = machine.run(|| std::net::TcpListener::bind((OTHER[0], 0)).unwrap());
        for seed in 0..tries() {
            let mut rng = Rng::with_seed(seed);
            let path = folder.path().join(seed.to_string());
            let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
            world::run("chmod", &format!("666 {}", path.display()));
            let other = listener.local_addr().unwrap();
            let words = format!("{} {other} {}", serving.at().display(), path.display());
            let mut program = again("as_a_program", "LOOPSCOPE_TEST_PROGRAM", &words)
                .uid(NOBODY)
                .gid(NOBODY)
                .spawn()
                .unwrap();
            let mut there = listener.accept().unwrap().0;
            there.set_nonblocking(true).unwrap();
            let (mut read, begin) = (0, Instant::now());
            while read < MUCH {
                read += pairs::check(&mut there, read, MUCH - read);
                assert!(begin.elapsed() < PATIENCE, "{read} bytes came");
            }
            spin(Duration::from_micros(rng.u64(0..3 * WHILE_CLOSING)));
            // It may have ended.
            let _ = program.kill();
            program.wait().unwrap();
            let (found, error) = read_to_end(&mut there);
            let mut written = [0; 8];
            file.read_exact_at(&mut written, 0).unwrap();
            // It may have been killed before it could store what it has written.
            let written = usize::from_ne_bytes(written).max(MUCH + found.len());
            seen.count(&found, error, written, seed);
        }
        assert_eq!(seen.resets, 0, "{seen:?}");
        wait_for_devices(&before);
        assert_eq!(failed(), Vec::<String>::new());
    });
}
