//! The bytes of a part of a stream, by their places.

use std::fmt;
use std::ops::Range;

use crate::outline::in_ring;
use crate::place::Place;

/// Memory for the bytes of a stream: this process's own, or some that it shares.
pub trait Memory: AsRef<[u8]> + AsMut<[u8]> + fmt::Debug + Send {
    /// Bytes are about to be stored from an index on, and later behind them.
    fn stores(&mut self, _at: usize) {}
}

impl Memory for Vec<u8> {}

/// A buffer for as many bytes of a stream as it has room for. The user keeps account of those that
/// are in it.
#[derive(Debug)]
pub(crate) struct Ring {
    memory: Box<dyn Memory>,
    capacity: usize,
    /// The place of its first byte.
    origin: Place,
}

impl Ring {
    pub(crate) fn new(capacity: usize, origin: Place) -> Ring {
        Ring::of(Box::new(vec![0; capacity]), origin)
    }

    /// In memory that is there, and may have bytes of the stream already.
    pub(crate) fn of(memory: Box<dyn Memory>, origin: Place) -> Ring {
        Ring { capacity: (*memory).as_ref().len(), memory, origin }
    }

    /// The place of its first byte.
    pub(crate) fn origin(&self) -> Place {
        self.origin
    }

    /// Nothing in it is needed, and what is stored next is at `at`: it comes to the beginning. So a
    /// stream of short messages uses few pages of memory, again and again.
    pub(crate) fn begin(&mut self, at: Place) {
        self.origin = at;
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Stores bytes from a place on. They must not be more than the capacity.
    pub(crate) fn store(&mut self, at: Place, bytes: &[u8]) {
        let [one, other] = in_ring(at..at + bytes.len(), self.origin, self.capacity);
        let (first, second) = bytes.split_at(one.len());
        self.memory.stores(one.start);
        let memory = (*self.memory).as_mut();
        memory[one].copy_from_slice(first);
        memory[other].copy_from_slice(second);
    }

    /// The bytes at places, in two pieces, the second of which may be empty.
    pub(crate) fn pieces(&self, places: Range<Place>) -> (&[u8], &[u8]) {
        let [one, other] = in_ring(places, self.origin, self.capacity);
        let memory = (*self.memory).as_ref();
        (&memory[one], &memory[other])
    }

    /// Copies the bytes from a place on into `target`, which they fill.
    pub(crate) fn copy_out(&self, at: Place, target: &mut [u8]) {
        let (first, second) = self.pieces(at..at + target.len());
        target[..first.len()].copy_from_slice(first);
        target[first.len()..].copy_from_slice(second);
    }
}
