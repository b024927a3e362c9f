//! Every order of a flight recorder's writer and of a concurrent snapshot, and every value that the
//! memory model lets a load see, by loom: what a snapshot takes for whole was not overwritten.
//!
//! The writer is `open_subbuffer`, `put` and `make_room` of crates/trace/c/record.c, in so far as
//! they touch sub-buffers and `head`.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

use super::oldest;
use crate::ring::place_of;

/// Places, that of initialisation included: two are written to in turn.
const COUNT: u64 = 3;
const WORDS: usize = 2;
/// Sub-buffers that the writer closes.
const CLOSED: u64 = 4;

#[derive(Default)]
struct Ring {
    head: AtomicU64,
    subbuffers: [[AtomicU64; WORDS]; COUNT as usize],
}

/// The fences that this run of the model has.
#[derive(Clone, Copy)]
struct Fences {
    writer: bool,
    reader: bool,
}

impl Ring {
    /// Fills and closes sub-buffers; each word of one is its number plus 1.
    fn write(&self, fences: Fences) {
        for number in 0..CLOSED {
            if fences.writer {
                fence(Ordering::Release);
            }
            for word in &self.subbuffers[place_of(number, COUNT) as usize] {
                word.store(number + 1, Ordering::Relaxed);
            }
            self.head.store(number + 1, Ordering::Release);
        }
    }

    /// Copies a closed sub-buffer as `copy_of` does; `None` if it was not whole.
    fn copy(&self, number: u64, fences: Fences) -> Option<[u64; WORDS]> {
        let place = &self.subbuffers[place_of(number, COUNT) as usize];
        let copied = [0, 1].map(|word: usize| place[word].load(Ordering::Relaxed));
        if fences.reader {
            fence(Ordering::Acquire);
        }
        let whole = number == 0 || number >= oldest(self.head.load(Ordering::Relaxed), COUNT);
        whole.then_some(copied)
    }
}

fn check(fences: Fences) {
    loom::model(move || {
        let ring = Arc::new(Ring::default());
        let theirs = ring.clone();
        let writer = thread::spawn(move || theirs.write(fences));
        let head = ring.head.load(Ordering::Acquire);
        if let Some(number) = head.checked_sub(1)
            && let Some(copied) = ring.copy(number, fences)
        {
            assert_eq!(copied, [number + 1; WORDS]);
        }
        writer.join().unwrap();
    });
}

#[test]
fn no_copy_is_of_what_was_overwritten() {
    check(Fences { writer: true, reader: true });
}

#[test]
#[should_panic(expected = "assertion")]
fn the_writers_fence_is_needed() {
    check(Fences { writer: false, reader: true });
}

#[test]
#[should_panic(expected = "assertion")]
fn the_readers_fence_is_needed() {
    check(Fences { writer: true, reader: false });
}
