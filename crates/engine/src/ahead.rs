//! The part of a ring that is made ready before bytes get there: the first access to a page of memory
//! takes several microseconds, that to one of many that are made at once less than one.

use std::ops::Range;

/// A stream that has come to so many bytes will have more. Of a shorter one no memory is made ready.
const MUCH: usize = 1 << 15;
/// So many bytes are ready before they are needed: more than are stored at once, mostly.
const AHEAD: usize = 1 << 17;
/// So many are made ready at once.
const CHUNK: usize = 1 << 18;

/// How far a ring is ready.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// Where the first byte was stored.
    first: Option<usize>,
    /// Bytes from there on that are ready, or will be without this.
    ready: usize,
}

impl Ahead {
    /// Bytes are about to be stored from `at` on. What is to be made ready in a ring of `length`
    /// bytes, in two parts, the second of which may be empty.
    #[inline]
    pub(crate) fn store(&mut self, at: usize, length: usize) -> Option<[Range<usize>; 2]> {
        if self.ready >= length {
            return None;
        }
        let first = *self.first.get_or_insert(at);
        let came = (at + length - first) % length;
        if came < MUCH || came + AHEAD <= self.ready {
            return None;
        }
        let begin = self.ready.max(came);
        self.ready = length.min(begin + CHUNK);
        let (begin, count) = ((first + begin) % length, self.ready - begin);
        let one = count.min(length - begin);
        Some([begin..begin + one, 0..count - one])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_ready_before_it_is_needed_once() {
        for (length, first, step) in
            [(1 << 20, 0, 64), (3_000_000, 2_999_000, 1448), (1 << 22, 77, 60_000)]
        {
            let (mut ahead, mut times) = (Ahead::default(), vec![0; length]);
            let mut came = 0;
            while came < 2 * length {
                let at = (first + came) % length;
                for part in ahead.store(at, length).into_iter().flatten() {
                    times[part].iter_mut().for_each(|times| *times += 1);
                }
                if (MUCH..length).contains(&came) {
                    assert_eq!(times[at], 1, "{length} {first} {step}: {came}");
                }
                came += step;
            }
            let (once, never) = (
                times.iter().filter(|times| **times == 1).count(),
                times.iter().filter(|times| **times == 0).count(),
            );
            assert_eq!(once + never, length, "nothing is made ready twice");
            assert!(never < MUCH + step, "{never}");
        }
    }

    #[test]
    fn a_short_stream_and_a_small_ring_need_nothing() {
        let mut ahead = Ahead::default();
        assert!((0..MUCH).step_by(64).all(|at| ahead.store(at, 1 << 22).is_none()));
        let mut ahead = Ahead::default();
        assert!((0..10_000).all(|at| ahead.store(at % 1000, 1000).is_none()));
    }
}
