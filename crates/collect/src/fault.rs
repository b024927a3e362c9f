//! Mappings of files that another process can cut short. A load beyond a file's new end is SIGBUS,
//! which would be the end of this process. The handler here puts zeros in the mapping's place and
//! marks it: who reads finds zeros, looks at the mark, and believes nothing of it.

#![allow(unsafe_code)]

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// Addresses are kept in units of so many bytes: the least size of a page.
const UNIT: usize = 4096;
/// Bits for a range's length in these units, the rest is for its start: an address has 48 bits.
const LENGTH_BITS: u32 = 28;
const SLOTS: usize = 64;

/// A range of addresses under guard.
struct Slot {
    /// Start and length in one word, so that the handler never sees half of a change; 0: none.
    range: AtomicU64,
    hit: AtomicBool,
}

struct Block {
    slots: [Slot; SLOTS],
    /// Blocks are never freed: the handler may be walking them.
    next: AtomicPtr<Block>,
}

impl Block {
    const fn new() -> Block {
        let slots =
            [const { Slot { range: AtomicU64::new(0), hit: AtomicBool::new(false) } }; SLOTS];
        Block { slots, next: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn next(&self) -> Option<&'static Block> {
        // Acquire pairs with the release in `Guard::new`. SAFETY: null, or a leaked block.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }
}

static FIRST: Block = Block::new();
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Keeps a mapping under guard until it is dropped, which must be before the mapping goes.
#[derive(Debug)]
pub(crate) struct Guard(&'static Slot);

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Slot").field(&self.hit).finish()
    }
}

impl Guard {
    /// A guard for `size` bytes that are mapped at `start`.
    pub(crate) fn new(start: usize, size: usize) -> io::Result<Guard> {
        install()?;
        let (from, units) = ((start / UNIT) as u64, size.div_ceil(UNIT) as u64);
        if units >= 1 << LENGTH_BITS || from >= 1 << (64 - LENGTH_BITS) {
            return Err(io::Error::other(format!("{size} bytes are more than can be mapped")));
        }
        let range = from << LENGTH_BITS | units;
        let mut block = &FIRST;
        loop {
            for slot in &block.slots {
                // Release pairs with the acquire load in `find`: `hit` is cleared.
                let taken =
                    slot.range.compare_exchange(0, range, Ordering::AcqRel, Ordering::Relaxed);
                if taken.is_ok() {
                    return Ok(Guard(slot));
                }
            }
            block = match block.next() {
                Some(next) => next,
                None => {
                    let fresh = Box::into_raw(Box::new(Block::new()));
                    // Another thread may have been first. Release: the block is whole.
                    let (null, release) = (std::ptr::null_mut(), Ordering::AcqRel);
                    match block.next.compare_exchange(null, fresh, release, Ordering::Acquire) {
                        // SAFETY: leaked just now.
                        Ok(_) => unsafe { &*fresh },
                        Err(other) => {
                            // SAFETY: nobody else has seen `fresh`; `other` is a leaked block.
                            unsafe {
                                drop(Box::from_raw(fresh));
                                &*other
                            }
                        }
                    }
                }
            };
        }
    }

    /// Whether anything of the mapping could not be read: all of it is zeros since.
    pub(crate) fn is_hit(&self) -> bool {
        // Relaxed: set by this thread's own handler, or not about what this thread has read.
        self.0.hit.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.hit.store(false, Ordering::Relaxed);
        // Release pairs with the compare-and-swap in `new`.
        self.0.range.store(0, Ordering::Release);
    }
}

fn install() -> io::Result<()> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _lock = LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if BEFORE.get().is_some() {
        return Ok(());
    }
    // SAFETY: all-zero is a value of this plain C struct; the calls get pointers to such values.
    // The handler is installed only when what it needs, BEFORE, is there.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        let _ = BEFORE.set(before);
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        if libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The guarded range that an address lies in: its slot, start and size.
fn find(address: usize) -> Option<(&'static Slot, usize, usize)> {
    let mut block = Some(&FIRST);
    while let Some(this) = block {
        for slot in &this.slots {
            // Acquire pairs with the compare-and-swap in `Guard::new`.
            let range = slot.range.load(Ordering::Acquire);
            let start = (range >> LENGTH_BITS) as usize * UNIT;
            let size = (range & ((1 << LENGTH_BITS) - 1)) as usize * UNIT;
            if (start..start + size).contains(&address) {
                return Some((slot, start, size));
            }
        }
        block = this.next();
    }
    None
}

/// Only loads, stores and two system calls, so it may interrupt anything.
extern "C" fn on_fault(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo_t; si_addr reads a plain word of it, which is an
    // address where si_code is positive.
    let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    // A positive code: an access of this thread's own, not a signal that somebody sent. The mapping
    // cannot go meanwhile, because the thread that reads it borrows it.
    let found = if code > 0 { find(address) } else { None };
    if let Some((slot, start, size)) = found {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the range is one mapping of the collector's, of which all Rust knows is that
        // other processes may change it at any time; zeros are a value of all that is read there.
        // errno is the interrupted code's and is put back.
        let replaced = unsafe {
            let errno = *libc::__errno_location();
            let map = libc::mmap(start as *mut libc::c_void, size, protection, flags, -1, 0);
            *libc::__errno_location() = errno;
            map != libc::MAP_FAILED
        };
        if replaced {
            slot.hit.store(true, Ordering::Relaxed);
            return;
        }
    }
    // Not ours: what there was before deals with it when the access is tried again.
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: `before` is what sigaction gave; raise is async-signal-safe, and the signal waits
    // until this has returned.
    unsafe {
        libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut());
        if code <= 0 {
            libc::raise(libc::SIGBUS);
        }
    }
}
