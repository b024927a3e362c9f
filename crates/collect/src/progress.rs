//! How far each ring has been written, in a file that outlives the collector.
//!
//! A ring's tail in shared memory says which sub-buffers the program may write to again; where the
//! stream file ended at that tail must not get out of step with it, whenever the collector is
//! killed. So there are two entries for each ring: the one that goes with the tail as it is, and
//! the next one, which is written before the tail is moved.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use loopscope_time::Counter;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::stream_file::Position;

/// Rings that a recording can resume; later ones start anew.
const MOST_RINGS: usize = 1 << 16;
/// Bytes are allocated in steps of so many rings.
const STEP: usize = 256;
/// Key of an entry that is being written.
const INVALID: u64 = u64::MAX;

/// What has been taken from a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Sub-buffers taken; of a flight recorder before the one that is taken in part.
    pub(crate) tail: u64,
    /// Bytes taken of the sub-buffer behind them.
    pub(crate) taken: u64,
    pub(crate) recorded: u64,
    pub(crate) file: Position,
}

/// One of a ring's two entries. All atomics: any bytes are a value.
#[repr(C)]
struct Entry {
    /// Number of the entry, from 1; stored last.
    key: AtomicU64,
    words: [AtomicU64; 8],
    padding: [AtomicU64; 7],
}

/// The file.
#[derive(Debug)]
pub(crate) struct ProgressFile {
    start: NonNull<[Entry; 2]>,
    size: NonZeroUsize,
    file: File,
    /// Rings that there is room for.
    rings: usize,
}

// SAFETY: the mapping is plain memory, reached through atomics alone.
unsafe impl Send for ProgressFile {}

impl Progress {
    fn words(&self) -> [u64; 8] {
        let Position { offset, sequence, discarded, end, lost } = self.file;
        [self.tail, self.taken, self.recorded, offset, sequence, discarded, end.0, lost]
    }

    fn of(words: [u64; 8]) -> Progress {
        let [tail, taken, recorded, offset, sequence, discarded, end, lost] = words;
        let file = Position { offset, sequence, discarded, end: Counter(end), lost };
        Progress { tail, taken, recorded, file }
    }
}

impl ProgressFile {
    /// Opens or makes the file.
    pub(crate) fn open(path: &Path) -> io::Result<ProgressFile> {
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let length = MOST_RINGS * size_of::<[Entry; 2]>();
        let size = NonZeroUsize::new(length).ok_or(io::ErrorKind::InvalidInput)?;
        let there = file.metadata()?.len() as usize / size_of::<[Entry; 2]>();
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice; what lies beyond the
        // file's end is not touched before the file is longer.
        let start = unsafe { mmap(None, size, protection, MapFlags::MAP_SHARED, &file, 0) }?;
        Ok(ProgressFile { start: start.cast(), size, file, rings: there.min(MOST_RINGS) })
    }

    /// Makes room for ring `number`; whether there is any.
    pub(crate) fn make_room(&mut self, number: usize) -> bool {
        if number < self.rings {
            return true;
        }
        let rings = (number / STEP + 1) * STEP;
        let (from, to) = (self.rings * size_of::<[Entry; 2]>(), rings * size_of::<[Entry; 2]>());
        // Allocated: a page that is not there when it is written to would be the collector's end.
        let made = number < MOST_RINGS
            && nix::fcntl::posix_fallocate(&self.file, from as i64, (to - from) as i64).is_ok();
        if made {
            self.rings = rings;
        }
        made
    }

    fn entries(&self, number: usize) -> Option<&[Entry; 2]> {
        // SAFETY: within the mapping and, as `rings` says, within the file; aligned, because the
        // mapping is and the size is a multiple of the alignment.
        (number < self.rings).then(|| unsafe { self.start.add(number).as_ref() })
    }

    /// Notes what a ring's next tail goes with. Until that tail is stored, the entry before counts.
    pub(crate) fn put(&self, number: usize, progress: &Progress) {
        let Some(entries) = self.entries(number) else { return };
        let key = entries.iter().map(|entry| valid(entry).unwrap_or(0)).max().unwrap_or(0) + 1;
        let entry = &entries[key as usize % 2];
        // Relaxed and Release order the stores of this thread for who reads the file after its
        // death, which sees all that it has executed: only the compiler must keep to the order.
        entry.key.store(INVALID, Ordering::Relaxed);
        std::sync::atomic::fence(Ordering::SeqCst);
        for (word, value) in entry.words.iter().zip(progress.words()) {
            word.store(value, Ordering::Relaxed);
        }
        entry.key.store(key, Ordering::Release);
    }

    /// What goes with `tail`, or the newest where that is not given.
    pub(crate) fn get(&self, number: usize, tail: Option<u64>) -> Option<Progress> {
        let entries = self.entries(number)?;
        let mut found: Vec<(u64, Progress)> = entries
            .iter()
            .filter_map(|entry| {
                // Acquire keeps the key's load in `valid` behind; the writer is dead.
                let words = std::array::from_fn(|i| entry.words[i].load(Ordering::Acquire));
                Some((valid(entry)?, Progress::of(words)))
            })
            .collect();
        found.sort_by_key(|(key, _)| *key);
        found.retain(|(_, progress)| tail.is_none_or(|tail| progress.tail == tail));
        found.last().map(|(_, progress)| *progress)
    }
}

/// The entry's number, if it is whole.
fn valid(entry: &Entry) -> Option<u64> {
    // Acquire pairs with the release store in `put`.
    let key = entry.key.load(Ordering::Acquire);
    (key != 0 && key != INVALID).then_some(key)
}

impl Drop for ProgressFile {
    fn drop(&mut self) {
        // SAFETY: made by mmap with this size; `entries` ties every reference to `self`. The call
        // fails only for arguments that were never mapped.
        let _ = unsafe { munmap(self.start.cast(), self.size.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(tail: u64) -> Progress {
        let file = Position { offset: 100 * tail, sequence: tail, ..Position::default() };
        Progress { tail, taken: 3, recorded: 7 * tail, file }
    }

    #[test]
    fn the_entry_that_goes_with_the_tail() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("progress");
        let mut file = ProgressFile::open(&path).unwrap();
        assert!(file.make_room(300) && !file.make_room(MOST_RINGS));
        assert_eq!(file.get(300, Some(0)), None);
        for tail in 1..10 {
            file.put(300, &progress(tail));
            // Killed before or after the tail was moved.
            let again = ProgressFile::open(&path).unwrap();
            assert_eq!(again.get(300, Some(tail)), Some(progress(tail)));
            assert_eq!(again.get(300, None), Some(progress(tail)));
            assert_eq!(again.get(300, Some(tail - 1)), (tail > 1).then(|| progress(tail - 1)));
            assert_eq!(again.get(299, None), None);
        }
        // Killed while the next was written.
        file.entries(300).unwrap()[0].key.store(INVALID, Ordering::Relaxed);
        assert_eq!(file.get(300, Some(9)), Some(progress(9)));
        file.put(300, &progress(10));
        assert_eq!(file.get(300, Some(10)), Some(progress(10)));
        assert_eq!(file.get(300, Some(9)), Some(progress(9)));
    }
}
