//! Programs that send what is no request, or one that is not so: the service refuses it, serves the
//! others, and keeps nothing. Needs root.

#[path = "../../../tests/skip.rs"]
mod skip;
mod world;

use std::fs::File;
use std::io::{IoSlice, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use fastrand::Rng;
use loopscope_engine::Engine;
use loopscope_engine::wire::{Answer, Request, VERSION};
use loopscope_stack::Config;
use loopscope_stack_service::status;
use loopscope_unix_lines::receive;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::geteuid;
use world::{Connection, Machine, OWN, PATIENCE, Serving, connect, network, read_all};

fn tries() -> usize {
    if std::env::var_os("LOOPSCOPE_SOAK").is_some() { 20_000 } else { 300 }
}

/// Bytes of a line, as a program sends them that knows the protocol, or nothing of it.
fn line(rng: &mut Rng) -> Vec<u8> {
    let mut number = || if rng.bool() { rng.u64(0..50) } else { rng.u64(..) };
    let [first, second] = std::array::from_fn(|_| number());
    let requests = [
        Request::Begin { version: VERSION },
        Request::Begin { version: first as u32 },
        Request::Status,
        Request::Take { send: first as usize, receive: second as usize },
        Request::TakeDatagrams,
        Request::GiveBack { connection: first, closing: rng.bool() },
        Request::Forget { connection: second },
    ];
    let mut line = serde_json::to_vec(&requests[rng.usize(..requests.len())]).unwrap();
    line.push(b'\n');
    match rng.usize(..8) {
        // It is one.
        0..=3 => {}
        4 => {
            let at = rng.usize(..line.len());
            line[at] = rng.u8(..);
        }
        5 => line.truncate(rng.usize(..line.len())),
        6 => line = (0..rng.usize(..6000)).map(|_| rng.u8(..)).collect(),
        _ => line = b"[".repeat(rng.usize(..6000)),
    }
    line
}

/// Descriptors that a program may have.
struct Things {
    machine: Machine,
    connections: Vec<Connection>,
    others: Vec<OwnedFd>,
}

impl Things {
    fn make() -> Things {
        let machine = network();
        let udp = || UdpSocket::bind((OWN[0], 0)).unwrap();
        let connected = udp();
        connected.connect(("10.0.0.2", 7000)).unwrap();
        let (pipe, other) = nix::unistd::pipe().unwrap();
        let (unix, peer) = UnixStream::pair().unwrap();
        let others = vec![
            udp().into(),
            connected.into(),
            TcpListener::bind((OWN[0], 0)).unwrap().into(),
            File::open("/dev/null").unwrap().into(),
            tempfile::tempfile().unwrap().into(),
            pipe,
            other,
            unix.into(),
            peer.into(),
        ];
        Things { machine, connections: vec![], others }
    }

    /// Up to so many of them.
    fn some(&mut self, rng: &mut Rng, most: usize) -> Vec<RawFd> {
        while self.connections.len() < 3 {
            self.connections.push(connect(&self.machine, OWN[rng.usize(..2)]));
        }
        let count = rng.usize(..=most);
        let one = |_| match rng.usize(..2) {
            0 => self.connections[rng.usize(..3)].here.as_raw_fd(),
            _ => self.others[rng.usize(..self.others.len())].as_raw_fd(),
        };
        (0..count).map(one).collect()
    }
}

/// Sends a few lines and reads what is answered. With what it gets of connections it does what it
/// likes.
fn misbehave(serving: &Serving, things: &mut Things, rng: &mut Rng) {
    let stream = UnixStream::connect(serving.at()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    if rng.usize(..8) > 0 {
        let begin = serde_json::to_string(&Request::Begin { version: VERSION }).unwrap();
        (&stream).write_all(format!("{begin}\n").as_bytes()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(matches!(receive(&stream), Ok(Some((Answer::Welcome { .. }, _)))));
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    }
    for _ in 0..rng.usize(1..8) {
        let (line, fds) = (line(rng), things.some(rng, 3));
        let control = [ControlMessage::ScmRights(&fds)];
        let control = if fds.is_empty() { &[][..] } else { &control };
        let parts = [IoSlice::new(&line)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        if sendmsg::<()>(stream.as_raw_fd(), &parts, control, flags, None).is_err() {
            return;
        }
        // The end of the stream, a time-out, or an answer.
        if let Ok(Some((Answer::Taken { .. }, files))) = receive::<Answer>(&stream) {
            let memory = File::from(files.into_iter().next().expect("its memory"));
            for _ in 0..rng.usize(..20) {
                let bytes: Vec<u8> = (0..rng.usize(..64)).map(|_| rng.u8(..)).collect();
                memory.write_all_at(&bytes, rng.u64(..512)).unwrap();
            }
        }
    }
    if rng.bool() {
        things.connections.clear();
    }
}

/// A program that keeps to the rules is served.
fn behave(serving: &Serving, machine: &Machine) {
    let Connection { here, mut there } = connect(machine, OWN[0]);
    let mut engine = Engine::connect(serving.at()).unwrap();
    let id = engine.take(&here, Config::default()).unwrap();
    assert_eq!(engine.write(id, b"fine").unwrap(), Some(4));
    engine.turn().unwrap();
    read_all(&mut there, b"fine");
    engine.give_back(id).unwrap();
}

/// Descriptors of this process, which has the service, too.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn what_is_no_request_is_refused_and_others_are_served() {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    std::thread::spawn(others_are_served).join().expect("the test did not fail");
}

fn others_are_served() {
    let seed = Rng::new().u64(..);
    eprintln!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let mut things = Things::make();
    let serving = Serving::start();
    behave(&serving, &things.machine);
    wait_until_none(&serving);
    let before = descriptors();
    for time in 0..tries() {
        misbehave(&serving, &mut things, &mut rng);
        if time % 25 == 0 {
            behave(&serving, &things.machine);
        }
    }
    things.connections.clear();
    wait_until_none(&serving);
    let begin = Instant::now();
    // A program's threads end after it.
    while descriptors() > before {
        assert!(begin.elapsed() < PATIENCE, "{} descriptors, not {before}", descriptors());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn wait_until_none(serving: &Serving) {
    let begin = Instant::now();
    while status(serving.at()).expect("it answers").0 > 0 {
        assert!(begin.elapsed() < PATIENCE, "a program is there");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A line without an end, and descriptors without one, are the end of a program.
#[test]
fn a_line_has_an_end() {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    let act = || {
        let things = Things::make();
        let serving = Serving::start();
        let null = things.others[3].as_fd().as_raw_fd();
        // As many bytes as a line may have, and as a stream keeps that nobody reads.
        for (fds, most) in [(vec![], 10_000), (vec![null; 3], 1000)] {
            let stream = UnixStream::connect(serving.at()).unwrap();
            let control = [ControlMessage::ScmRights(&fds)];
            let control = if fds.is_empty() { &[][..] } else { &control };
            let send = |_: &usize| {
                let (parts, flags) = ([IoSlice::new(b" ")], MsgFlags::MSG_NOSIGNAL);
                sendmsg::<()>(stream.as_raw_fd(), &parts, control, flags, None).is_err()
            };
            let sent = (0..100_000).find(send).expect("it ends");
            assert!(sent < most, "{sent} bytes");
        }
        behave(&serving, &things.machine);
    };
    std::thread::spawn(act).join().expect("the test did not fail");
}
