//! Every order of some threads that want the lock, and every value that the memory model lets them see,
//! by loom: one has it at a time, sees what the last one wrote, and none sleeps for ever.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{Duration, Left, Word, give, take};

/// A word whose sleepers are not woken by the end of a time, so that a lost waking is a deadlock.
#[derive(Default)]
struct Futex {
    word: AtomicU32,
    sleepers: Mutex<()>,
    woken: Condvar,
    /// What `give` is ordered by in this run of the model.
    relaxed: bool,
}

impl Word for Futex {
    fn load(&self, ordering: Ordering) -> u32 {
        self.word.load(ordering)
    }

    fn change(&self, from: u32, to: u32, ordering: Ordering) -> Result<u32, u32> {
        self.word.compare_exchange(from, to, ordering, Ordering::Relaxed)
    }

    fn swap(&self, value: u32, ordering: Ordering) -> u32 {
        self.word.swap(value, if self.relaxed { Ordering::Relaxed } else { ordering })
    }

    fn wait(&self, value: u32, _most: Duration) {
        // As in the kernel, the word is read with the lock that a waker takes.
        let sleepers = self.sleepers.lock().unwrap();
        if self.word.load(Ordering::Relaxed) == value {
            drop(self.woken.wait(sleepers).unwrap());
        }
    }

    fn wake(&self, most: u32) {
        assert_eq!(most, 1);
        drop(self.sleepers.lock().unwrap());
        self.woken.notify_one();
    }
}

struct Shared {
    futex: Futex,
    count: UnsafeCell<u32>,
}

// SAFETY: the lock lets one thread at a time reach `count`; loom checks that it does.
#[allow(unsafe_code)]
unsafe impl Sync for Shared {}

#[allow(unsafe_code)]
fn add(shared: &Shared, owner: u32) {
    assert_eq!(take(&shared.futex, owner, |_| false), Left::Whole);
    // SAFETY: this thread has the lock.
    shared.count.with_mut(|count| unsafe { *count += 1 });
    give(&shared.futex);
}

fn check(threads: u32, relaxed: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let futex = Futex { relaxed, ..Futex::default() };
        let shared = Arc::new(Shared { futex, count: UnsafeCell::new(0) });
        let others: Vec<_> = (2..=threads)
            .map(|owner| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || add(&shared, owner))
            })
            .collect();
        add(&shared, 1);
        others.into_iter().for_each(|each| each.join().unwrap());
        assert_eq!(take(&shared.futex, 1, |_| false), Left::Whole);
        // SAFETY: this thread has the lock.
        #[allow(unsafe_code)]
        shared.count.with(|count| assert_eq!(unsafe { *count }, threads));
        give(&shared.futex);
    });
}

#[test]
fn one_has_the_lock_at_a_time_and_none_sleeps_for_ever() {
    check(2, false);
    check(3, false);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_its_ordering_the_next_owner_does_not_see_what_was_written() {
    check(2, true);
}

/// All that wait for a dead owner's lock take it in turn, and one finds it unfinished.
#[test]
fn the_lock_of_a_dead_owner_is_taken_over_once() {
    loom::model(|| {
        let futex = Arc::new(Waitless(AtomicU32::new(9)));
        let theirs = Arc::clone(&futex);
        let other = thread::spawn(move || own(&theirs, 2));
        let unfinished = [own(&futex, 1), other.join().unwrap()];
        assert_eq!(unfinished.iter().filter(|left| **left == Left::Unfinished).count(), 1);
    });
}

fn own(word: &Waitless, owner: u32) -> Left {
    let left = take(word, owner, |of| of == 9);
    give(word);
    left
}

/// A word whose waits end at once, as if their time had passed.
struct Waitless(AtomicU32);

impl Word for Waitless {
    fn load(&self, ordering: Ordering) -> u32 {
        self.0.load(ordering)
    }

    fn change(&self, from: u32, to: u32, ordering: Ordering) -> Result<u32, u32> {
        self.0.compare_exchange(from, to, ordering, Ordering::Relaxed)
    }

    fn swap(&self, value: u32, ordering: Ordering) -> u32 {
        self.0.swap(value, ordering)
    }

    fn wait(&self, _value: u32, _most: Duration) {
        thread::yield_now();
    }

    fn wake(&self, _most: u32) {}
}
