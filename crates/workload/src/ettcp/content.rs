//! What is sent: bytes that both ends know, so that the receiver can compare each.

use std::ops::Range;

/// A period that no usual block size divides: each block differs from its neighbours.
const RANDOM_PERIOD: usize = (1 << 20) - 3;

/// The bytes that ttcp sends: the printable characters, again and again.
const PRINTABLE: Range<u8> = b' '..0x7f;

/// An endless periodic content.
pub(super) struct Content {
    /// A period and as much of the next as the largest window takes.
    bytes: Vec<u8>,
    period: usize,
}

impl Content {
    /// Pseudo-random bytes of a seed, or ttcp's characters; windows have at most `window` bytes.
    pub(super) fn new(seed: Option<u64>, window: usize) -> Content {
        let period = match seed {
            Some(seed) => {
                let mut random = vec![0; RANDOM_PERIOD];
                fastrand::Rng::with_seed(seed).fill(&mut random);
                random
            }
            None => PRINTABLE.collect(),
        };
        let bytes = period.iter().copied().cycle().take(period.len() + window).collect();
        Content { bytes, period: period.len() }
    }

    /// The `length` bytes from `offset` on.
    pub(super) fn window(&self, offset: u64, length: usize) -> &[u8] {
        &self.bytes[(offset % self.period as u64) as usize..][..length]
    }

    /// Where `given`, which should be the bytes from `offset` on, first differs from them.
    pub(super) fn wrong_at(&self, offset: u64, given: &[u8]) -> Option<u64> {
        let right = self.window(offset, given.len());
        if right == given {
            return None;
        }
        let place = right.iter().zip(given).position(|(right, given)| right != given)?;
        Some(offset + place as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_pieces_of_one_content() {
        for seed in [None, Some(7)] {
            let content = Content::new(seed, 9000);
            let whole: Vec<u8> = (0..2_000_000).map(|at| content.window(at, 1)[0]).collect();
            for offset in [0, 1, 94, 95, 96, 1_048_570, 1_048_573, 1_900_000] {
                let window = content.window(offset, 9000);
                assert_eq!(window, &whole[offset as usize..][..9000]);
                assert_eq!(content.wrong_at(offset, window), None);
                let mut wrong = window.to_vec();
                wrong[1234] ^= 1;
                wrong[5678] ^= 1;
                assert_eq!(content.wrong_at(offset, &wrong), Some(offset + 1234));
            }
        }
        assert_ne!(
            Content::new(Some(1), 64).window(0, 64),
            Content::new(Some(2), 64).window(0, 64)
        );
    }
}
