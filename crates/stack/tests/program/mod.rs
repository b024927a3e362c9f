//! A program at one end of a connection, which writes a stream of known bytes and reads one.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fastrand::Rng;
use loopscope_stack::Connection;

/// A stream that has not moved for so long has stalled.
const STALL: Duration = Duration::from_secs(20);

/// The byte of a stream at a place.
fn byte(place: usize) -> u8 {
    ((place * 2_654_435_761) >> 13) as u8
}

fn bytes(from: usize, count: usize) -> Vec<u8> {
    (from..from + count).map(byte).collect()
}

/// A connection that the stack transfers.
pub trait Transfers {
    fn write(&mut self, bytes: &[u8]) -> usize;
    fn read(&mut self, target: &mut [u8]) -> usize;
}

impl Transfers for Connection {
    fn write(&mut self, bytes: &[u8]) -> usize {
        Connection::write(self, bytes)
    }

    fn read(&mut self, target: &mut [u8]) -> usize {
        Connection::read(self, target)
    }
}

/// The program, and how many bytes it has written and read.
#[derive(Debug)]
pub struct Program {
    total: usize,
    pub written: usize,
    pub read: usize,
    moved: Instant,
}

impl Program {
    /// Makes a program that writes and reads so many bytes.
    pub fn new(total: usize) -> Program {
        Program { total, written: 0, read: 0, moved: Instant::now() }
    }

    pub fn is_done(&self) -> bool {
        self.written == self.total && self.read == self.total
    }

    fn next(&self, rng: &mut Rng) -> Vec<u8> {
        bytes(self.written, rng.usize(0..50_000).min(self.total - self.written))
    }

    fn wrote(&mut self, count: usize) {
        self.written += count;
        if count > 0 {
            self.moved = Instant::now();
        }
    }

    fn check(&mut self, found: &[u8]) {
        assert_eq!(found, bytes(self.read, found.len()), "from byte {}", self.read);
        self.read += found.len();
        if !found.is_empty() || self.is_done() {
            self.moved = Instant::now();
        }
        assert!(self.moved.elapsed() < STALL, "{self:?}");
    }

    /// Writes and reads through the kernel, as far as that is possible now.
    pub fn act(&mut self, stream: &mut TcpStream, rng: &mut Rng) {
        let done = |result: std::io::Result<usize>| match result {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        };
        let next = self.next(rng);
        if !next.is_empty() {
            self.wrote(done(stream.write(&next)));
        }
        let mut target = vec![0; rng.usize(1..50_000)];
        let count = if self.read < self.total { done(stream.read(&mut target)) } else { 0 };
        self.check(&target[..count]);
    }

    /// Writes and reads through the stack, as far as that is possible now.
    #[allow(dead_code)] // Each test program uses a part.
    pub fn act_by_stack(&mut self, connection: &mut impl Transfers, rng: &mut Rng) {
        let next = self.next(rng);
        self.wrote(connection.write(&next));
        let mut target = vec![0; rng.usize(1..50_000)];
        let count = connection.read(&mut target);
        self.check(&target[..count]);
    }
}
