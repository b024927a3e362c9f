//! Connections that the stack has, and streams of known bytes.
#![allow(dead_code)] // Each test program uses a part of it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use loopscope_engine::Engine;
use loopscope_stack::Id;

use crate::world::{Machine, OTHER, OWN, PATIENCE};

/// More bytes than a socket is advanced by when its program closes it.
pub const MUCH: usize = 3 << 20;
/// Bytes at once.
const PIECE: usize = 50_000;

/// The byte of a stream at a place.
pub fn byte(place: usize) -> u8 {
    ((place * 2_654_435_761) >> 13) as u8
}

pub fn bytes(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(byte).collect()
}

/// Both ends of a connection, and the socket that listens at its port.
pub struct Pair {
    pub here: TcpStream,
    pub there: TcpStream,
    pub listener: TcpListener,
}

/// The end that connects, and the family of its addresses.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub accepts: bool,
    pub family: usize,
}

pub const KINDS: [Kind; 4] = [
    Kind { accepts: true, family: 0 },
    Kind { accepts: false, family: 0 },
    Kind { accepts: true, family: 1 },
    Kind { accepts: false, family: 1 },
];

impl Pair {
    pub fn connect(machine: &Machine, Kind { accepts, family }: Kind) -> Pair {
        let listen = |own: &str| TcpListener::bind((own, 0)).unwrap();
        let listener =
            if accepts { listen(OWN[family]) } else { machine.run(|| listen(OTHER[family])) };
        let address = listener.local_addr().unwrap();
        let connect = || TcpStream::connect(address).unwrap();
        let connected = if accepts { machine.run(connect) } else { connect() };
        let accepted = listener.accept().unwrap().0;
        let (here, there) = if accepts { (accepted, connected) } else { (connected, accepted) };
        for stream in [&here, &there] {
            stream.set_nonblocking(true).unwrap();
        }
        Pair { here, there, listener }
    }

    /// Sends the first bytes of a stream to the other end, by the stack.
    pub fn send(&mut self, engine: &mut Engine, id: Id, count: usize) {
        let (mut written, mut read, begin) = (0, 0, Instant::now());
        while read < count || engine.get(id).expect("it is the stack's").unacknowledged() > 0 {
            let next = bytes(written, PIECE.min(count - written));
            written += engine.write(id, &next).unwrap().expect("it is the stack's");
            engine.turn().unwrap();
            read += check(&mut self.there, read, PIECE);
            assert!(begin.elapsed() < PATIENCE, "{read} of {count} bytes came");
        }
    }

    /// Has the first bytes of a stream come from the other end.
    pub fn receive(&mut self, engine: &mut Engine, id: Id, count: usize) {
        let (mut written, mut read, begin) = (0, 0, Instant::now());
        let mut found = vec![0; PIECE];
        while read < count {
            written += or_none(self.there.write(&bytes(written, PIECE.min(count - written))));
            engine.turn().unwrap();
            let came = engine.read(id, &mut found).unwrap().expect("it is the stack's");
            assert!(found[..came] == bytes(read, came));
            read += came;
            assert!(begin.elapsed() < PATIENCE, "{read} of {count} bytes came");
        }
    }

    /// Writes a stream, from a byte on, until nothing more is taken, because nobody reads. Where it
    /// then is.
    pub fn fill(&mut self, engine: &mut Engine, id: Id, mut written: usize) -> usize {
        let (mut moved, begin) = (Instant::now(), Instant::now());
        while moved.elapsed().as_millis() < 50 {
            let count = engine.write(id, &bytes(written, PIECE)).unwrap().expect("it is ours");
            engine.turn().unwrap();
            if count > 0 {
                (written, moved) = (written + count, Instant::now());
            }
            assert!(begin.elapsed() < PATIENCE, "it takes for ever");
        }
        written
    }
}

/// Reads what is there of a stream that was read so far, up to so many bytes; how many.
pub fn check(stream: &mut TcpStream, read: usize, most: usize) -> usize {
    let mut found = vec![0; PIECE.min(most)];
    let count = or_none(stream.read(&mut found));
    assert!(found[..count] == bytes(read, count), "from byte {read}");
    count
}

fn or_none(result: std::io::Result<usize>) -> usize {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        result => result.expect("the other end is there"),
    }
}
