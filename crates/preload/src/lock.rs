//! The lock of the library's state. It is held for the time of a turn, never while a thread sleeps,
//! and across a fork.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

use crate::state::State;
use crate::{inside, signals};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// It is held, and others may wait.
const WANTED: u32 = 2;
/// Attempts before a thread sleeps.
const ATTEMPTS: u32 = 100;

static WORD: AtomicU32 = AtomicU32::new(FREE);
static STATE: Shared = Shared(UnsafeCell::new(State::new()));

struct Shared(UnsafeCell<State>);

// SAFETY: `with` and `hold` alone reach the state, and only one thread at a time, which holds the
// lock.
unsafe impl Sync for Shared {}

/// Does something to the state. None: this thread holds the lock already.
pub(crate) fn with<R>(act: impl FnOnce(&mut State) -> R) -> Option<R> {
    if inside::enter() {
        return None;
    }
    lock();
    // SAFETY: this thread has the lock, and did not have it before, so there is no other reference.
    let result = act(unsafe { &mut *STATE.0.get() });
    unlock();
    signals::leave();
    Some(result)
}

/// Does what [`with`] does, and keeps the lock for [`release`].
pub(crate) fn hold<R>(act: impl FnOnce(&mut State) -> R) -> Option<R> {
    if inside::enter() {
        return None;
    }
    lock();
    // SAFETY: as in `with`.
    Some(act(unsafe { &mut *STATE.0.get() }))
}

/// Ends [`hold`], in this process or in one that was forked meanwhile.
pub(crate) fn release(act: impl FnOnce(&mut State)) {
    // SAFETY: the caller has the lock by `hold`, whose reference has ended.
    act(unsafe { &mut *STATE.0.get() });
    unlock();
    signals::leave();
}

fn lock() {
    for _ in 0..ATTEMPTS {
        // Pairs with the store of `unlock`.
        if WORD.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        std::hint::spin_loop();
    }
    // Pairs with the store of `unlock`.
    while WORD.swap(WANTED, Ordering::Acquire) != FREE {
        // That it fails means that the word is another by now, or that a signal came.
        let _ = futex::wait(&WORD, futex::Flags::PRIVATE, WANTED, None);
    }
}

fn unlock() {
    // What was done to the state is seen by who takes the lock next.
    if WORD.swap(FREE, Ordering::Release) == WANTED {
        let _ = futex::wake(&WORD, futex::Flags::PRIVATE, 1);
    }
}
