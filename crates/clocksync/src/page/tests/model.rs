//! Every order of the hand-over's steps, and every value that the memory model lets a load see, by
//! loom.

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;

use crate::page::ring::{Ring, Word};

const WORDS: usize = 2;
const PUBLICATIONS: u64 = 3;

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    fn fence(order: Ordering) {
        fence(order);
    }
}

/// With one of its orderings weakened.
struct Weak<const FENCE_OF_WRITER: bool, const FENCE_OF_READER: bool, const NUMBER: bool>(
    AtomicU64,
);

impl<const W: bool, const R: bool, const N: bool> Word for Weak<W, R, N> {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, if N { Ordering::Relaxed } else { order });
    }

    fn fence(order: Ordering) {
        match order {
            Ordering::Release if W => {}
            Ordering::Acquire if R => {}
            order => fence(order),
        }
    }
}

/// A reader and a writer that laps it. `slots` is 2: the publication before the newest one is
/// already being written over, which makes the worst case the common one.
fn check<W: Word + Send + Sync + 'static>(word: fn(AtomicU64) -> W) {
    loom::model(move || {
        let new = || word(AtomicU64::new(0));
        let shared = Arc::new((new(), [[new(), new()], [new(), new()]]));
        let theirs = shared.clone();
        let writer = thread::spawn(move || {
            let ring = Ring { current: &theirs.0, slots: &theirs.1 };
            for number in 1..=PUBLICATIONS {
                ring.publish(number, &[number; WORDS], |_| {});
            }
        });
        let ring = Ring { current: &shared.0, slots: &shared.1 };
        let read = ring.read();
        if let Some((number, words)) = read {
            assert_eq!(words, [number; WORDS]);
        }
        writer.join().unwrap();
        assert_eq!(ring.read(), Some((PUBLICATIONS, [PUBLICATIONS; WORDS])));
    });
}

#[test]
fn no_read_is_torn() {
    check(|word| word);
}

/// A writer stops after any number of stores; a new one, which learns the number from the page,
/// goes on while the reader reads.
#[test]
fn no_read_is_torn_by_a_writer_that_takes_over() {
    for stores in 0..=WORDS {
        loom::model(move || {
            let new = || AtomicU64::new(0);
            let shared = Arc::new((new(), [[new(), new()], [new(), new()]]));
            let (first, second) = (shared.clone(), shared.clone());
            let dead = thread::spawn(move || {
                let ring = Ring { current: &first.0, slots: &first.1 };
                ring.publish(1, &[1; WORDS], |_| {});
                for word in &first.1[0][..stores] {
                    word.store(2, Ordering::Relaxed);
                }
            });
            let next = thread::spawn(move || {
                dead.join().unwrap();
                let ring = Ring { current: &second.0, slots: &second.1 };
                let newest = ring.newest();
                ring.publish(newest + 1, &[newest + 1; WORDS], |_| {});
                ring.publish(newest + 2, &[newest + 2; WORDS], |_| {});
            });
            let ring = Ring { current: &shared.0, slots: &shared.1 };
            if let Some((number, words)) = ring.read() {
                assert_eq!(words, [number; WORDS]);
            }
            next.join().unwrap();
        });
    }
}

#[test]
#[should_panic(expected = "assertion")]
fn the_writers_fence_is_needed() {
    check(Weak::<true, false, false>);
}

#[test]
#[should_panic(expected = "assertion")]
fn the_readers_fence_is_needed() {
    check(Weak::<false, true, false>);
}

#[test]
#[should_panic(expected = "assertion")]
fn the_numbers_release_is_needed() {
    check(Weak::<false, false, true>);
}
