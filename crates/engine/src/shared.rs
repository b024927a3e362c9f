//! Memory that the program shares with the service, mapped.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loopscope_stack::{Memory, Outline};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};

use crate::ahead::Ahead;

/// Bytes before the rings.
pub(crate) const HEAD: usize = 4096;
/// Bytes of a word.
pub(crate) const WORD: usize = 8;
/// The word that says which outline is valid: its lowest bit. The outlines come behind it.
pub(crate) const VALID: usize = 0;
/// Set in it: the service has taken the connection, and has given it back to the kernel.
pub(crate) const TAKEN: u64 = 2;
pub(crate) const RETURNED: u64 = 4;

/// The first word of an outline. Each has two lines of a processor's cache.
pub(crate) fn outline_at(which: u64) -> usize {
    8 + Outline::WORDS * (which & 1) as usize
}

/// A mapped file, of a size that cannot change.
#[derive(Debug)]
struct Map {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to no thread. Its words are reached by atomics, and each byte of the
// rings through one `Half` alone.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// The first bytes of a file. Refused where it has not so many.
    fn of(file: &File, length: usize) -> io::Result<Map> {
        let whole =
            NonZero::new(length).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        if file.metadata()?.len() < length as u64 {
            return Err(io::Error::other("the memory of the connection is smaller than was said"));
        }
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping; nothing else of this process is there.
        let start = unsafe { mmap(None, whole, access, MapFlags::MAP_SHARED, file, 0)? };
        Ok(Map { start: start.cast(), length })
    }

    /// Has the kernel make the pages of a range, if it can. Otherwise each is made when it is used.
    fn make_ready(&self, range: Range<usize>) {
        let begin = range.start - range.start % HEAD;
        let end = range.end.min(self.length);
        if begin < end {
            let advice = MmapAdvise::MADV_POPULATE_WRITE;
            // SAFETY: within the mapping, as just asked, and what is in it stays as it is. It fails
            // where a page is not HEAD bytes, or before Linux 5.14.
            let _ = unsafe { madvise(self.start.add(begin).cast(), end - begin, advice) };
        }
    }

    /// A word, by its number. It must lie within the first [`HEAD`] bytes.
    #[inline]
    fn word(&self, number: usize) -> &AtomicU64 {
        assert!((number + 1) * WORD <= HEAD.min(self.length), "it is in the head");
        // SAFETY: within the mapping, as just asserted, and aligned, since that begins at a page. It
        // lives as long as self, and others access it atomically as well, or by system calls.
        unsafe { self.start.add(number * WORD).cast().as_ref() }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `of` with this length; the references given out have ended with self.
        // That it fails would leave it mapped, which harms nobody.
        let _ = unsafe { munmap(self.start.cast(), self.length) };
    }
}

/// Where a connection is, which is the program's until the service takes it.
#[derive(Debug)]
pub(crate) struct Head {
    map: Arc<Map>,
    /// The word [`VALID`] as the program has written it last.
    valid: u64,
}

impl Head {
    /// That of a connection, by its file.
    pub(crate) fn map(file: &File) -> io::Result<Head> {
        Map::of(file, HEAD).map(|map| Head::of(Arc::new(map)))
    }

    fn of(map: Arc<Map>) -> Head {
        let valid = map.word(VALID).load(Ordering::Acquire);
        Head { map, valid }
    }

    /// The word [`VALID`] as it is now.
    pub(crate) fn valid(&self) -> u64 {
        self.map.word(VALID).load(Ordering::Acquire)
    }

    /// Returns where the connection was when it was saved last.
    pub(crate) fn load(&self) -> Outline {
        let at = outline_at(self.valid);
        let word = |number| self.map.word(at + number).load(Ordering::Relaxed);
        Outline::from_words(&std::array::from_fn(word))
    }

    /// Says where the connection is now. False: the service has taken it, as it was saved before. The
    /// same is true of a program that is killed or stopped in here.
    #[inline]
    pub(crate) fn save(&mut self, outline: &Outline) -> bool {
        let next = self.valid ^ 1;
        let at = outline_at(next);
        for (number, word) in outline.to_words().into_iter().enumerate() {
            self.map.word(at + number).store(word, Ordering::Relaxed);
        }
        // It becomes valid after its words have been written, and after the bytes of the rings.
        let saved = self.map.word(VALID).compare_exchange(
            self.valid,
            next,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if saved.is_ok() {
            self.valid = next;
        }
        saved.is_ok()
    }

    /// Whether the service has taken it.
    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        self.map.word(VALID).load(Ordering::Relaxed) & TAKEN != 0
    }

    /// Whether the kernel has it, after that.
    pub(crate) fn has_returned(&self) -> bool {
        // What the program does by its socket comes after what the service has done to it.
        self.map.word(VALID).load(Ordering::Acquire) & RETURNED != 0
    }

    pub(crate) fn set_returned(&self) {
        self.map.word(VALID).fetch_or(RETURNED, Ordering::Release);
    }

    /// Takes the connection from the program for good; returns the word [`VALID`].
    pub(crate) fn take(&self) -> u64 {
        // What the program has written before it said that it is valid is seen.
        self.map.word(VALID).fetch_or(TAKEN, Ordering::Acquire)
    }
}

/// One of the rings of a connection.
#[derive(Debug)]
pub(crate) struct Half {
    /// Where its first byte is: [`Map::start`] need not be looked up for each message.
    start: NonNull<u8>,
    length: usize,
    ahead: Ahead,
    map: Arc<Map>,
}

// SAFETY: as that of a `Map`, which lives as long.
unsafe impl Send for Half {}

impl Half {
    /// The bytes from one of the mapping on. They must be within it, and another's `Half` must have
    /// none of them.
    fn of(map: &Arc<Map>, start: usize, length: usize) -> Half {
        assert!(start.checked_add(length).is_some_and(|end| end <= map.length), "it is mapped");
        // SAFETY: within the mapping, as just asserted.
        let start = unsafe { map.start.add(start) };
        Half { start, length, ahead: Ahead::default(), map: Arc::clone(map) }
    }
}

impl AsRef<[u8]> for Half {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: within the mapping, as `map_connection` has it. No other `Half` has these bytes, and
        // the service writes to them only before the program gets them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl AsMut<[u8]> for Half {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `self` is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Memory for Half {
    #[inline]
    fn stores(&mut self, at: usize) {
        for part in self.ahead.store(at, self.length).into_iter().flatten() {
            let start = self.start.as_ptr().addr() - self.map.start.as_ptr().addr();
            self.map.make_ready(start + part.start..start + part.end);
        }
    }
}

/// Maps the memory of a connection whose rings have so many bytes: where it is, what is sent, what
/// comes.
pub(crate) fn map_connection(
    file: &File,
    send: usize,
    receive: usize,
) -> io::Result<(Head, Half, Half)> {
    let length = HEAD.checked_add(send).and_then(|sum| sum.checked_add(receive));
    let map = Arc::new(Map::of(file, length.ok_or(io::ErrorKind::InvalidInput)?)?);
    let (sending, receiving) = (Half::of(&map, HEAD, send), Half::of(&map, HEAD + send, receive));
    Ok((Head::of(map), sending, receiving))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory as Shared;
    use crate::memory::tests::state;

    #[test]
    fn what_the_program_saves_the_service_reads_and_nothing_after_it_has_taken_it() {
        for saves in 0..5 {
            let memory = Shared::of(&state(), 1000, 1000).unwrap();
            let (mut head, mut send, receive) = map_connection(&memory.file, 1000, 1000).unwrap();
            assert_eq!(head.load(), Outline::of(&state()));
            assert_eq!(receive.as_ref().len(), 1000);
            let mut expected = state();
            let mut outline = head.load();
            let mut write = |outline: &mut Outline, number: u8| {
                outline.written = outline.written + 1;
                let last = outline.written.back(1)..outline.written;
                let [last, _] = loopscope_stack::in_ring(last, outline.send_origin, 1000);
                send.as_mut()[last][0] = number;
            };
            for number in 0..saves {
                write(&mut outline, number);
                assert!(!head.is_taken() && head.save(&outline));
                expected.queued.push(number);
            }
            assert_eq!(memory.look().unwrap(), Some(outline.clone()));
            assert_eq!(memory.take().unwrap(), expected);
            for number in 0..3 {
                write(&mut outline, number);
                assert!(head.is_taken() && !head.save(&outline));
                assert_eq!(memory.take().unwrap(), expected);
            }
            assert!(map_connection(&memory.file, 1000, 1001).is_err());
        }
    }
}
