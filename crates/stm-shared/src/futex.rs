//! Words of shared memory that threads wait for (futex(2)).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex::{self, Flags};
use rustix::time::Timespec;

use crate::lock::Word;

impl Word for AtomicU32 {
    fn load(&self, ordering: Ordering) -> u32 {
        AtomicU32::load(self, ordering)
    }

    fn change(&self, from: u32, to: u32, ordering: Ordering) -> Result<u32, u32> {
        self.compare_exchange(from, to, ordering, Ordering::Relaxed)
    }

    fn swap(&self, value: u32, ordering: Ordering) -> u32 {
        AtomicU32::swap(self, value, ordering)
    }

    fn wait(&self, value: u32, most: Duration) {
        let most =
            Timespec { tv_sec: most.as_secs().cast_signed(), tv_nsec: most.subsec_nanos().into() };
        // Another value, a signal and the end of the time are all reasons to look again.
        _ = futex::wait(self, Flags::empty(), value, Some(&most));
    }

    fn wake(&self, most: u32) {
        // It fails only where the address is none.
        _ = futex::wake(self, Flags::empty(), most);
    }
}

/// Set in a signal's word for which somebody waits.
const WAITED_FOR: u32 = 1;

/// A signal's value, to be read before what it tells of is looked at.
pub(crate) fn value(signal: &AtomicU32) -> u32 {
    // Acquire: what is looked at afterwards is not older.
    signal.load(Ordering::Acquire) & !WAITED_FOR
}

/// Waits until a signal has another value, or for a time.
pub(crate) fn wait(signal: &AtomicU32, before: u32, most: Duration) {
    let waited_for = before | WAITED_FOR;
    let marked = signal.compare_exchange(before, waited_for, Ordering::Relaxed, Ordering::Relaxed);
    if marked.is_ok() || marked == Err(waited_for) {
        Word::wait(signal, waited_for, most);
    }
}

/// Gives a signal another value; whether threads wait for it, which [`AtomicU32::wake`] has to wake.
pub(crate) fn change(signal: &AtomicU32) -> bool {
    let next = |value: u32| Some((value & !WAITED_FOR).wrapping_add(2));
    // Release pairs with the Acquire of `value`.
    let before = signal.fetch_update(Ordering::Release, Ordering::Relaxed, next);
    before.is_ok_and(|before| before & WAITED_FOR != 0)
}
