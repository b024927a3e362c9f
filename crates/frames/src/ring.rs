//! A ring that is shared with the kernel (linux/if_xdp.h): one side writes entries, the other takes
//! them, each telling the other by its index how far it has come.
#![allow(unsafe_code)]

use std::io;
use std::num::NonZero;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// An entry: plain bytes.
pub(crate) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for libc::xdp_desc {}

/// The mapped ring.
#[derive(Debug)]
struct Shared<T> {
    map: NonNull<libc::c_void>,
    length: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    entries: NonNull<T>,
    /// A power of two.
    size: u32,
}

impl<T: Entry> Shared<T> {
    /// Maps the socket's ring of `size` entries at `page_offset`; `at` is what the kernel has said of
    /// its layout.
    fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        at: libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Shared<T>> {
        let length = at.desc as usize + size as usize * size_of::<T>();
        let whole =
            NonZero::new(length).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: a new mapping, of the socket's ring; nothing else of this process is there.
        let map = unsafe { mmap(None, whole, access, flags, socket, page_offset as libc::off_t)? };
        // SAFETY: the kernel's offsets lie within the ring that it has made, aligned for what is
        // there; `length` covers them.
        let (producer, consumer, entries) = unsafe {
            let producer = map.byte_add(at.producer as usize).cast();
            let consumer = map.byte_add(at.consumer as usize).cast();
            (producer, consumer, map.byte_add(at.desc as usize).cast())
        };
        Ok(Shared { map, length, producer, consumer, entries, size })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: mapped for as long as self lives; the kernel accesses it atomically as well.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: less than `size` entries from the first.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; the references given out have ended with self.
        // That it fails would leave it mapped, which harms nobody.
        let _ = unsafe { munmap(self.map, self.length) };
    }
}

/// This side's end of a ring that the kernel takes from.
#[derive(Debug)]
pub(crate) struct Producer<T> {
    shared: Shared<T>,
    next: u32,
    /// How far the kernel is known to have come.
    taken: u32,
}

impl<T: Entry> Producer<T> {
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        at: libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Producer<T>> {
        Ok(Producer { shared: Shared::map(socket, page_offset, at, size)?, next: 0, taken: 0 })
    }

    /// Writes an entry, which the kernel sees after [`Producer::publish`]; whether there was room.
    pub(crate) fn push(&mut self, entry: T) -> bool {
        if self.next.wrapping_sub(self.taken) == self.shared.size
            && self.waiting() == self.shared.size
        {
            return false;
        }
        // SAFETY: the kernel has taken what was here, as its index says, and does not look at it
        // before ours says that it is filled again.
        unsafe { self.shared.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows the kernel what was written.
    pub(crate) fn publish(&mut self) {
        // Pairs with the kernel's load of the index before it reads the entries.
        self.shared.producer().store(self.next, Ordering::Release);
    }

    /// Replaces the last `count` published entries, which the kernel has not taken, by `entry`.
    /// Hands each old one to `taken_back`, oldest first. Nobody may make the kernel look at the ring
    /// meanwhile.
    pub(crate) fn take_back(&mut self, count: u32, entry: T, mut taken_back: impl FnMut(T)) {
        for i in (1..=count).rev() {
            let at = self.shared.entry(self.next.wrapping_sub(i));
            // SAFETY: within the mapped ring. In copy mode the kernel reads entries only in this
            // thread's system calls on the socket, and none is under way.
            unsafe {
                taken_back(at.read());
                at.write(entry);
            }
        }
    }

    /// Entries that the kernel has not taken.
    pub(crate) fn waiting(&mut self) -> u32 {
        // Pairs with the kernel's store of the index after it has read the entries.
        self.taken = self.shared.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.taken)
    }
}

/// This side's end of a ring that the kernel fills.
#[derive(Debug)]
pub(crate) struct Consumer<T> {
    shared: Shared<T>,
    next: u32,
    /// How far the kernel is known to have come.
    filled: u32,
}

impl<T: Entry> Consumer<T> {
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        at: libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Consumer<T>> {
        Ok(Consumer { shared: Shared::map(socket, page_offset, at, size)?, next: 0, filled: 0 })
    }

    /// The next entry, if there is one.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.next == self.filled {
            // Pairs with the kernel's store of the index after it has written the entries.
            self.filled = self.shared.producer().load(Ordering::Acquire);
            if self.next == self.filled {
                return None;
            }
        }
        // SAFETY: the kernel has filled it, as its index says, and does not write to it again before
        // ours says that it was read. Any bytes are an entry.
        let entry = unsafe { self.shared.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Gives what was read back to the kernel.
    pub(crate) fn release(&mut self) {
        // Pairs with the kernel's load of the index before it writes entries again.
        self.shared.consumer().store(self.next, Ordering::Release);
    }
}
