//! Sequence numbers (RFC 9293 §3.4) and places in a stream.

use std::ops::Add;

/// A sequence number as it is in a segment: 32 bits, which wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// The place with this sequence number that is nearest to `place`.
    pub fn near(self, place: Place) -> Place {
        let ahead = self.0.wrapping_sub(place.0 as u32).cast_signed();
        Place(place.0.wrapping_add_signed(ahead.into()))
    }
}

/// A byte of a stream. The lower 32 bits are its sequence number; the others count the times that
/// this wrapped around, so that places have an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u64);

impl Place {
    /// The place of the first byte that is known of a stream. There are others before it.
    pub fn first(seq: Seq) -> Place {
        Place((1 << 32) | u64::from(seq.0))
    }

    /// The sequence number of the byte.
    pub fn seq(self) -> Seq {
        Seq(self.0 as u32)
    }

    /// Bytes from `earlier` to here; 0 if it is later.
    pub fn since(self, earlier: Place) -> usize {
        // The streams' buffers are in memory.
        self.0.saturating_sub(earlier.0) as usize
    }

    /// The place so many bytes before.
    pub fn back(self, bytes: usize) -> Place {
        Place(self.0 - bytes as u64)
    }

    /// For memory that is shared.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    pub(crate) fn of_number(number: u64) -> Place {
        Place(number)
    }

    /// Index of the byte in a ring of so many bytes, whose first one is at `origin`.
    pub(crate) fn in_ring(self, origin: Place, capacity: usize) -> usize {
        (self.0.wrapping_sub(origin.0) % capacity as u64) as usize
    }
}

impl Add<usize> for Place {
    type Output = Place;

    fn add(self, bytes: usize) -> Place {
        Place(self.0 + bytes as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_again_from_its_sequence_number_within_half_of_their_range() {
        for seq in [0, 1, 7, u32::MAX / 2, u32::MAX - 1, u32::MAX] {
            let place = Place::first(Seq(seq));
            for bytes in [0, 1, 1000, 0x7fff_ffff] {
                assert_eq!((place + bytes).seq().near(place), place + bytes);
                assert_eq!(place.seq().near(place + bytes), place);
                assert_eq!((place + bytes).since(place), bytes);
                assert_eq!((place + bytes).back(bytes), place);
            }
        }
    }
}
