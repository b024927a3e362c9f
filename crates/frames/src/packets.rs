//! What comes to a program, in a ring that programs in the kernel write to (Documentation/bpf/ringbuf.rst):
//! it is found without a system call.
#![allow(unsafe_code)]

use std::io;
use std::num::NonZero;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::{SysconfVar, sysconf};

/// Bytes of the header of a record, and what its first word says (include/uapi/linux/bpf.h).
const HEADER: usize = 8;
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// Bytes before a frame, in a record: its length, and what is known of its checksum.
const BEFORE: usize = 8;
/// include/linux/skbuff.h.
const CHECKSUM_UNNECESSARY: u32 = 1;
const CHECKSUM_PARTIAL: u32 = 3;
/// The reader waits if it says that it has read all before a record. By so many bytes it says less
/// where it does not.
const AWAKE: usize = 8;

/// What is known of the checksum of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summed {
    /// Nothing is known.
    Unknown,
    /// The kernel, or the device, has found it right.
    Right,
    /// Its sender is on this machine, and has left it to a device that it has not passed.
    Unfinished,
}

/// A frame that came.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'r> {
    /// It begins with the header of Ethernet.
    pub bytes: &'r [u8],
    /// What is known of its checksum.
    pub summed: Summed,
}

/// A part of the ring's file.
#[derive(Debug)]
struct Part {
    start: NonNull<u8>,
    length: NonZero<usize>,
}

impl Part {
    fn map(fd: &impl AsFd, access: ProtFlags, offset: usize, length: usize) -> io::Result<Part> {
        let length = NonZero::new(length).ok_or(io::ErrorKind::InvalidInput)?;
        let offset = offset.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping; nothing else of this process is there.
        let start = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, fd, offset)? };
        Ok(Part { start: start.cast(), length })
    }

    /// The position that the part begins with.
    fn position(&self) -> &AtomicUsize {
        // SAFETY: the first word of a page that is mapped for as long as self lives. The kernel
        // accesses it atomically as well.
        unsafe { self.start.cast().as_ref() }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; what was given out of it has ended with self.
        // That it fails would leave it mapped, which harms nobody.
        let _ = unsafe { munmap(self.start.cast(), self.length.get()) };
    }
}

/// A ring (BPF_MAP_TYPE_RINGBUF), of which the process is the only reader. It needs no rights for it.
#[derive(Debug)]
pub struct Packets {
    /// Where the reader is.
    reader: Part,
    /// Where the kernel is; after its page, all bytes of the ring, twice: what goes over its end is
    /// in one piece.
    kernel: Part,
    page: usize,
    size: usize,
    next: usize,
    /// Whether it says that it waits.
    rests: bool,
}

// SAFETY: the mappings belong to no thread, and what is in them is given out by `&mut self` alone.
unsafe impl Send for Packets {}

impl Packets {
    /// Maps the ring that a descriptor is of, whose bytes are a power of two, at least a page.
    pub fn map(fd: impl AsFd, size: usize) -> io::Result<Packets> {
        let page = sysconf(SysconfVar::PAGE_SIZE)?.ok_or(io::ErrorKind::Unsupported)? as usize;
        if !size.is_power_of_two() || size < page || size > 1 << 30 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let reader = Part::map(&fd, both, 0, page)?;
        let kernel = Part::map(&fd, ProtFlags::PROT_READ, page, page + 2 * size)?;
        let next = reader.position().load(Ordering::Relaxed);
        Ok(Packets { reader, kernel, page, size, next, rests: false })
    }

    /// How many frames may wait at most.
    pub fn most(&self) -> usize {
        self.size / (HEADER + BEFORE)
    }

    /// Hands up to `limit` frames to `sink`, in the order in which they came; how many there were.
    #[inline]
    pub fn receive(&mut self, limit: usize, mut sink: impl FnMut(Frame<'_>)) -> usize {
        let mut count = 0;
        loop {
            let begin = self.next;
            while count < limit
                && let Some(header) = self.header()
            {
                let length = (header & !(BUSY | DISCARDED)) as usize;
                if header & DISCARDED == 0 {
                    count += 1;
                    sink(self.frame(length));
                }
                self.next = self.next.wrapping_add((HEADER + length).next_multiple_of(8));
            }
            if self.next == begin {
                return count;
            }
            self.say();
            // What came meanwhile has woken nobody.
            if !self.rests {
                return count;
            }
        }
    }

    /// Says that the reader waits, until [`Packets::look`], and is to be woken by each frame that
    /// comes after all others were received. False: one is there by now, and nobody may be woken.
    pub fn rest(&mut self) -> bool {
        self.rests = true;
        self.say();
        self.is_empty()
    }

    /// Says that the reader does not wait.
    #[inline]
    pub fn look(&mut self) {
        if std::mem::take(&mut self.rests) {
            self.say();
        }
    }

    /// Tells the kernel where the reader is.
    #[inline]
    fn say(&self) {
        let position = if self.rests { self.next } else { self.next.wrapping_sub(AWAKE) };
        // The kernel writes over what is before it after it has seen it.
        self.reader.position().store(position, Ordering::Release);
        if self.rests {
            // The kernel takes the place of a record, and then looks where the reader is; so one of
            // both sees what the other has stored.
            fence(Ordering::SeqCst);
        }
    }

    /// Whether none is there, nor being written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // Pairs with the kernel's store after it has written that the record is not complete.
        self.kernel.position().load(Ordering::Acquire) == self.next
    }

    /// What the header of the next record says, if the record is complete.
    #[inline]
    fn header(&self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: within the mapping and aligned: `next` is a multiple of 8. The kernel accesses it
        // atomically as well.
        let header: &AtomicU32 = unsafe { self.at(0).cast().as_ref() };
        // Pairs with the kernel's store after it has written the record.
        let header = header.load(Ordering::Acquire);
        (header & BUSY == 0).then_some(header)
    }

    /// The frame in the next record, of so many bytes.
    #[inline]
    fn frame(&self, length: usize) -> Frame<'_> {
        assert!(BEFORE <= length && length < self.size, "the kernel keeps within the ring");
        let word = |at: usize| {
            // SAFETY: within the record, and aligned. The kernel has completed it, and does not
            // write to it before `receive` has stored that it was read.
            unsafe { self.at(HEADER + at).cast::<u32>().read() }
        };
        let (bytes, summed) = (word(0) as usize, word(4));
        assert!(bytes <= length - BEFORE, "a frame is within its record");
        // SAFETY: within the record, as just asserted, whose bytes are mapped in one piece.
        let bytes = unsafe { std::slice::from_raw_parts(self.at(HEADER + BEFORE).as_ptr(), bytes) };
        let summed = match summed {
            CHECKSUM_PARTIAL => Summed::Unfinished,
            CHECKSUM_UNNECESSARY => Summed::Right,
            _ => Summed::Unknown,
        };
        Frame { bytes, summed }
    }

    /// Where a byte of the next record is, less than `size` from its beginning.
    #[inline]
    fn at(&self, byte: usize) -> NonNull<u8> {
        // SAFETY: the record begins in the first copy of the ring's bytes, and both are mapped.
        unsafe { self.kernel.start.add(self.page + (self.next & (self.size - 1)) + byte) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    const SIZE: usize = 4096;

    /// Does what the kernel does (kernel/bpf/ringbuf.c).
    struct Kernel {
        file: File,
        page: usize,
        at: usize,
    }

    impl Kernel {
        fn make() -> (Kernel, Packets) {
            let page = sysconf(SysconfVar::PAGE_SIZE).unwrap().unwrap() as usize;
            let size = SIZE.max(page);
            let file = File::from(memfd_create(c"ring", MFdFlags::MFD_CLOEXEC).unwrap());
            file.set_len((2 * page + 2 * size) as u64).unwrap();
            let packets = Packets::map(&file, size).unwrap();
            (Kernel { file, page, at: 0 }, packets)
        }

        fn reader(&self) -> usize {
            let mut word = [0; 8];
            self.file.read_exact_at(&mut word, 0).unwrap();
            usize::from_ne_bytes(word)
        }

        /// Writes to both copies of the ring.
        fn write(&self, at: usize, bytes: &[u8]) {
            for (number, byte) in bytes.iter().enumerate() {
                let within = (at + number) % SIZE.max(self.page);
                for copy in [0, SIZE.max(self.page)] {
                    let place = 2 * self.page + copy + within;
                    self.file.write_all_at(&[*byte], place as u64).unwrap();
                }
            }
        }

        /// Begins a record; where it is.
        fn reserve(&mut self, length: u32) -> usize {
            let begin = self.at;
            self.write(begin, &(length | BUSY).to_ne_bytes());
            self.at += HEADER + (length as usize).next_multiple_of(8);
            self.file.write_all_at(&self.at.to_ne_bytes(), self.page as u64).unwrap();
            begin
        }

        /// Completes it; whether the reader waits for it.
        fn submit(&self, begin: usize, header: u32) -> bool {
            self.write(begin, &header.to_ne_bytes());
            self.reader() == begin
        }

        fn put(&mut self, frame: &[u8], summed: u32, room: u32) -> bool {
            let begin = self.reserve(room);
            self.write(begin + HEADER, &(frame.len() as u32).to_ne_bytes());
            self.write(begin + HEADER + 4, &summed.to_ne_bytes());
            self.write(begin + HEADER + BEFORE, frame);
            self.submit(begin, room)
        }
    }

    fn received(packets: &mut Packets, limit: usize) -> Vec<(Vec<u8>, Summed)> {
        let mut found = vec![];
        let count =
            packets.receive(limit, |frame| found.push((frame.bytes.to_vec(), frame.summed)));
        assert_eq!(count, found.len());
        found
    }

    #[test]
    fn all_frames_come_once_and_in_order_also_over_the_end_of_the_ring() {
        let (mut kernel, mut packets) = Kernel::make();
        let known = [Summed::Unknown, Summed::Right, Summed::Unknown, Summed::Unfinished];
        for number in 0..500_u32 {
            let frames: Vec<Vec<u8>> = (0..3)
                .map(|one| vec![(number + one) as u8; 100 + (number + one) as usize % 300])
                .collect();
            for frame in &frames {
                kernel.put(frame, number % 4, 520);
            }
            let found = [received(&mut packets, 2), received(&mut packets, 2)].concat();
            let expected: Vec<_> =
                frames.into_iter().map(|frame| (frame, known[number as usize % 4])).collect();
            assert_eq!(found, expected, "{number}");
            assert!(kernel.at - kernel.reader() <= AWAKE, "its room is the kernel's again");
        }
        assert!(kernel.at > 10 * SIZE);
    }

    #[test]
    fn a_record_that_is_not_complete_is_waited_for_and_one_that_is_discarded_passed_over() {
        let (mut kernel, mut packets) = Kernel::make();
        let first = kernel.reserve(64);
        kernel.put(b"second", 0, 64);
        assert_eq!(received(&mut packets, 9), []);
        kernel.submit(first, 64 | DISCARDED);
        assert_eq!(received(&mut packets, 9), [(b"second".to_vec(), Summed::Unknown)]);
    }

    #[test]
    fn who_rests_is_woken_and_who_looks_is_not() {
        let (mut kernel, mut packets) = Kernel::make();
        for _ in 0..1000 {
            assert!(packets.rest());
            assert!(kernel.put(b"first", 0, 64), "it rests");
            assert!(!kernel.put(b"second", 0, 64), "it is woken by now");
            assert!(!packets.rest(), "two are there");
            assert_eq!(received(&mut packets, 1).len(), 1);
            assert!(!kernel.put(b"third", 0, 64), "there is one to read before it");
            assert_eq!(received(&mut packets, 9).len(), 2);
            assert!(kernel.put(b"fourth", 0, 64), "it rests until it says otherwise");
            packets.look();
            assert_eq!(received(&mut packets, 9).len(), 1);
            assert!(!kernel.put(b"fifth", 0, 64), "it looks");
            assert_eq!(received(&mut packets, 9).len(), 1);
        }
    }

    #[test]
    fn a_ring_of_another_size_is_refused() {
        let (kernel, _) = Kernel::make();
        for size in [0, 100, 3 << 12, usize::MAX] {
            let refused = Packets::map(&kernel.file, size).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{size}");
        }
    }
}
