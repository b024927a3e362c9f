//! The transport alone: a connection on which an item is one write, and is read whole.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use super::{BYTES, End, LISTEN};
use crate::far::Far;

struct Tcp {
    stream: TcpStream,
    bytes: [u8; BYTES],
}

impl Tcp {
    fn end(stream: TcpStream) -> Box<dyn End> {
        stream.set_nodelay(true).unwrap();
        Box::new(Tcp { stream, bytes: [0; BYTES] })
    }
}

impl End for Tcp {
    fn put(&mut self, number: u64) {
        self.stream.write_all(crate::item(&mut self.bytes, number)).unwrap();
    }

    fn get(&mut self) -> u64 {
        self.stream.read_exact(&mut self.bytes).unwrap();
        crate::counter_of(&self.bytes)
    }
}

pub fn near(start: impl FnOnce(&str) -> Far) -> (Box<dyn End>, Far) {
    let listener = TcpListener::bind(LISTEN).unwrap();
    let far = start(&listener.local_addr().unwrap().to_string());
    (Tcp::end(listener.accept().unwrap().0), far)
}

pub fn far(address: &str) -> Box<dyn End> {
    Tcp::end(TcpStream::connect(address).unwrap())
}
