//! A lock whose owner may be killed: a thread that has waited for 10 ms looks whether the owner lives.

use std::sync::atomic::Ordering;
use std::time::Duration;

/// A word of memory that threads can wait for.
pub(crate) trait Word {
    /// Its value.
    fn load(&self, ordering: Ordering) -> u32;
    /// Changes it from one value to another one; else what it is.
    fn change(&self, from: u32, to: u32, ordering: Ordering) -> Result<u32, u32>;
    /// Gives it a value; what it was.
    fn swap(&self, value: u32, ordering: Ordering) -> u32;
    /// Waits while it has a value, but no longer than a time, and not always until it has another one.
    fn wait(&self, value: u32, most: Duration);
    /// Wakes threads that wait for it.
    fn wake(&self, most: u32);
}

/// Set in the word of a lock for which somebody may wait.
const WAITED_FOR: u32 = 1 << 31;
/// How long a thread waits before it looks whether the owner is there.
pub(crate) const PATIENCE: Duration = Duration::from_millis(10);
/// How often a thread tries before it sleeps: an owner mostly needs less than a microsecond.
const LOOKS: u32 = if cfg!(test) { 1 } else { 40 };

/// What the lock's last owner has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It has given the lock up.
    Whole,
    /// It has ended while it had the lock.
    Unfinished,
}

/// Takes a lock for an owner, a number from 1 to 2³¹ − 1; `is_gone` says whether another one has ended.
pub(crate) fn take(word: &impl Word, owner: u32, is_gone: impl Fn(u32) -> bool) -> Left {
    for _ in 0..LOOKS {
        // Acquire pairs with the Release of `give`: what the last owner wrote is seen.
        if word.load(Ordering::Relaxed) == 0 && word.change(0, owner, Ordering::Acquire).is_ok() {
            return Left::Whole;
        }
        std::hint::spin_loop();
    }
    loop {
        let seen = word.load(Ordering::Relaxed);
        if seen == 0 {
            // Others may sleep, too, and this thread cannot tell: the mark stays set.
            if word.change(0, owner | WAITED_FOR, Ordering::Acquire).is_ok() {
                return Left::Whole;
            }
            continue;
        }
        let waited_for = seen | WAITED_FOR;
        if seen != waited_for && word.change(seen, waited_for, Ordering::Relaxed).is_err() {
            continue;
        }
        word.wait(waited_for, PATIENCE);
        let is_unchanged = word.load(Ordering::Relaxed) == waited_for;
        if is_unchanged
            && is_gone(seen & !WAITED_FOR)
            // The first one that changes it has it; the kernel has ordered a dead owner's writes.
            && word.change(waited_for, owner | WAITED_FOR, Ordering::Acquire).is_ok()
        {
            return Left::Unfinished;
        }
    }
}

/// Gives a lock up.
pub(crate) fn give(word: &impl Word) {
    // Release pairs with the Acquire of `take`.
    if word.swap(0, Ordering::Release) & WAITED_FOR != 0 {
        word.wake(1);
    }
}

#[cfg(test)]
mod model;
