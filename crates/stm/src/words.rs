//! Memory in words of 64 bits, which processes may share.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of memory by their numbers, from 0 on.
///
/// One thread writes them at a time: the one that has the lock of the channel. Where it ends, another
/// may take over, and finds its writes in their order: all up to one of them, and none after that.
pub trait Words {
    /// How many there are.
    fn count(&self) -> usize;
    /// The value of a word. Panics if there is none of this number.
    fn load(&self, at: usize) -> u64;
    /// Writes a word. Panics if there is none of this number.
    fn store(&self, at: usize, value: u64);
}

/// A writer that has ended has no writes that wait: the kernel orders them as it switches to
/// another thread. So it is enough that the compiler keeps their order, which Release makes it do;
/// on x86-64 that is a plain write. The lock synchronises the thread that takes over.
impl<T: Deref<Target = [AtomicU64]>> Words for T {
    fn count(&self) -> usize {
        self.len()
    }

    fn load(&self, at: usize) -> u64 {
        self[at].load(Ordering::Relaxed)
    }

    fn store(&self, at: usize, value: u64) {
        self[at].store(value, Ordering::Release);
    }
}
