//! Whether a thread is inside of the library: what it calls there is the kernel's, and no handler
//! of a signal runs.

use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// This thread enters; whether it was inside already.
pub(crate) fn enter() -> bool {
    INSIDE.replace(true)
}

/// This thread leaves.
pub(crate) fn leave() {
    INSIDE.set(false);
}
