//! The bytes of a part of a stream, by their places.

use std::ops::Range;

use crate::place::Place;

/// A buffer for as many bytes of a stream as it has room for. The user keeps account of those that
/// are in it.
#[derive(Debug)]
pub(crate) struct Ring {
    bytes: Box<[u8]>,
}

impl Ring {
    pub(crate) fn new(capacity: usize) -> Ring {
        Ring { bytes: vec![0; capacity].into_boxed_slice() }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Stores bytes from a place on. They must not be more than the capacity.
    pub(crate) fn store(&mut self, at: Place, bytes: &[u8]) {
        let begin = at.in_ring(self.capacity());
        let first = bytes.len().min(self.capacity() - begin);
        self.bytes[begin..begin + first].copy_from_slice(&bytes[..first]);
        self.bytes[..bytes.len() - first].copy_from_slice(&bytes[first..]);
    }

    /// The bytes at places, in two pieces, the second of which may be empty.
    pub(crate) fn pieces(&self, places: Range<Place>) -> (&[u8], &[u8]) {
        let begin = places.start.in_ring(self.capacity());
        let count = places.end.since(places.start);
        let first = count.min(self.capacity() - begin);
        (&self.bytes[begin..begin + first], &self.bytes[..count - first])
    }

    /// Copies the bytes from a place on into `target`, which they fill.
    pub(crate) fn copy_out(&self, at: Place, target: &mut [u8]) {
        let (first, second) = self.pieces(at..at + target.len());
        target[..first.len()].copy_from_slice(first);
        target[first.len()..].copy_from_slice(second);
    }
}
