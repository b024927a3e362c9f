//! The library's own memory: the program's allocator may be interrupted by a handler that writes to
//! a connection, and may call this library itself.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};

use dlmalloc::GlobalDlmalloc;

use crate::signals::outside;

/// No handler of a signal runs meanwhile, because it could ask for memory, too.
struct Guarded;

#[global_allocator]
static MEMORY: Guarded = Guarded;

// SAFETY: all is done by another allocator, with the same arguments.
unsafe impl GlobalAlloc for Guarded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        outside(|| unsafe { GlobalDlmalloc.alloc(layout) })
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        outside(|| unsafe { GlobalDlmalloc.dealloc(start, layout) });
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        outside(|| unsafe { GlobalDlmalloc.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's.
        outside(|| unsafe { GlobalDlmalloc.realloc(start, layout, size) })
    }
}

/// Lets a process that is forked ask for memory.
pub(crate) fn survive_fork() {
    // SAFETY: it takes the allocator's lock, which this thread does not have.
    outside(|| unsafe { dlmalloc::enable_alloc_after_fork() });
}
