//! Shared mappings of the programs' files, which their programs may change and cut short at any time.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use loopscope_trace::layout::{
    CELLS_MAGIC, CONTROL_MAGIC, Cells, Control, RING_MAGIC, Ring, VERSION,
};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::fault::Guard;

/// A file's layout: `repr(C)`, atomics only, so that any bytes are a value.
pub(crate) trait Layout {
    const MAGIC: u64;
    fn magic(&self) -> &AtomicU64;
    fn version(&self) -> u32;
}

macro_rules! layout {
    ($($type:ty = $magic:expr),*) => {$(
        impl Layout for $type {
            const MAGIC: u64 = $magic;
            fn magic(&self) -> &AtomicU64 {
                &self.magic
            }
            fn version(&self) -> u32 {
                self.version.load(Ordering::Relaxed)
            }
        }
    )*};
}

layout!(Control = CONTROL_MAGIC, Ring = RING_MAGIC, Cells = CELLS_MAGIC);

/// A mapped file that begins with `T`.
#[derive(Debug)]
pub(crate) struct Mapping<T> {
    start: NonNull<T>,
    size: NonZeroUsize,
    guard: Option<Guard>,
}

// SAFETY: the mapping is plain memory, reached through atomics alone.
unsafe impl<T> Send for Mapping<T> {}

impl<T: Layout> Mapping<T> {
    /// Maps a file, of which `most` bytes are of interest; `None` while the program has not finished
    /// making it. Another version of the layout is an error.
    pub(crate) fn of(file: &File, most: usize) -> io::Result<Option<Mapping<T>>> {
        let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX).min(most);
        let Some(size) = NonZeroUsize::new(size).filter(|s| s.get() >= size_of::<T>()) else {
            return Mapping::<T>::version_of_a_short_file(file);
        };
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice.
        let start = unsafe { mmap(None, size, protection, MapFlags::MAP_SHARED, file, 0) }?;
        let mut mapping = Mapping { start: start.cast::<T>(), size, guard: None };
        mapping.guard = Some(Guard::new(start.as_ptr() as usize, size.get())?);
        // Acquire pairs with the program's release store of the magic, its last.
        if mapping.get().magic().load(Ordering::Acquire) != T::MAGIC {
            return Ok(None);
        }
        check_version(mapping.get().version())?;
        Ok(Some(mapping))
    }

    /// A file of another version may be shorter than this one's; its head says so.
    fn version_of_a_short_file(file: &File) -> io::Result<Option<Mapping<T>>> {
        let mut head = [0; 12];
        let read = std::os::unix::fs::FileExt::read_exact_at(file, &mut head, 0);
        let [magic @ .., a, b, c, d] = head;
        if read.is_ok() && u64::from_le_bytes(magic) == T::MAGIC {
            check_version(u32::from_le_bytes([a, b, c, d]))?;
        }
        Ok(None)
    }

    pub(crate) fn size(&self) -> usize {
        self.size.get()
    }

    /// Whether the file was cut short, so that what is read here is zeros and not the program's.
    pub(crate) fn is_cut(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_hit)
    }

    /// Looks at the end, so that [`Self::is_cut`] tells of a file that is shorter now.
    pub(crate) fn touch_end(&self) {
        if let Some(word) = self.word((self.size() - 8) / 8 * 8) {
            std::hint::black_box(word.load(Ordering::Relaxed));
        }
    }

    pub(crate) fn get(&self) -> &T {
        // SAFETY: the mapping holds at least a `T`, is page-aligned and lives as long as `self`; its
        // values are atomics, which other processes may change. Where the file has become shorter,
        // the guard puts zeros there.
        unsafe { self.start.as_ref() }
    }

    /// Appends a copy of bytes that the program may be writing meanwhile: who calls this finds out
    /// whether it was. `false`, and nothing is appended, if the file did not have them.
    pub(crate) fn copy(&self, offset: usize, size: usize, to: &mut Vec<u8>) -> bool {
        let Some(end) = offset.checked_add(size).filter(|end| *end <= self.size.get()) else {
            return false;
        };
        let (first, last) = (offset / 8, end.div_ceil(8));
        let before = to.len();
        to.resize(before + 8 * (last - first), 0);
        for (copy, at) in to[before..].chunks_exact_mut(8).zip(first..last) {
            // SAFETY: words are aligned, because the mapping is, and lie inside of it: a file's last
            // page is mapped whole. Any bytes are a value of an atomic, which other processes may
            // change; where the file has become shorter, the guard puts zeros there.
            let word = unsafe { self.start.cast::<AtomicU64>().add(at).as_ref() };
            copy.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        to.truncate(before + end - 8 * first);
        to.drain(before..before + offset - 8 * first);
        true
    }

    /// A word at a multiple of eight; `None` if the file did not have it.
    pub(crate) fn word(&self, offset: usize) -> Option<&AtomicU64> {
        if !offset.is_multiple_of(8) || offset.checked_add(8)? > self.size.get() {
            return None;
        }
        // SAFETY: inside the mapping and aligned, as just checked; any bytes are a value of an
        // atomic, which other processes may change.
        Some(unsafe { self.start.cast::<u8>().add(offset).cast::<AtomicU64>().as_ref() })
    }
}

fn check_version(version: u32) -> io::Result<()> {
    if version == VERSION {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "its layout has version {version}, this collector reads {VERSION}: build the program with \
         the collector's own libloopscope"
    )))
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // Before the addresses can be somebody else's.
        self.guard = None;
        // SAFETY: made by mmap with this size; `get` ties every reference to `self`. The call fails
        // only for arguments that were never mapped.
        let _ = unsafe { munmap(self.start.cast(), self.size.get()) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    const HEAD: usize = size_of::<Ring>();

    fn file(size: usize) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size as u64).unwrap();
        file.write_all_at(&RING_MAGIC.to_le_bytes(), 0).unwrap();
        file.write_all_at(&VERSION.to_le_bytes(), 8).unwrap();
        file
    }

    #[test]
    fn copies_are_what_the_file_has() {
        let file = file(HEAD + 1003);
        let bytes: Vec<u8> = (0..1003u32).map(|i| (i * 7) as u8).collect();
        file.write_all_at(&bytes, HEAD as u64).unwrap();
        let map = Mapping::<Ring>::of(&file, usize::MAX).unwrap().unwrap();
        for (at, size) in [(0, 1003), (1, 16), (3, 2), (8, 8), (995, 8), (1003, 0), (7, 0)] {
            let mut copy = vec![1, 2, 3];
            assert!(map.copy(HEAD + at, size, &mut copy));
            assert_eq!((&copy[..3], &copy[3..]), (&[1, 2, 3][..], &bytes[at..at + size]));
        }
        let mut copy = Vec::new();
        for (at, size) in [(996, 8), (1004, 0), (usize::MAX - HEAD, 2)] {
            assert!(!map.copy(HEAD.wrapping_add(at), size, &mut copy) && copy.is_empty());
        }
    }

    /// Every page that is not there any more is zeros, nobody dies, and the mark says so; other
    /// mappings, and one that comes at the same address later, know nothing of it.
    #[test]
    fn a_file_that_is_cut_short() {
        let (cut, whole) = (file(1 << 20), file(1 << 16));
        let whole = Mapping::<Ring>::of(&whole, usize::MAX).unwrap().unwrap();
        for length in [1 << 19, 100, 0] {
            cut.set_len(1 << 20).unwrap();
            cut.write_all_at(&RING_MAGIC.to_le_bytes(), 0).unwrap();
            cut.write_all_at(&VERSION.to_le_bytes(), 8).unwrap();
            let map = Mapping::<Ring>::of(&cut, usize::MAX).unwrap().unwrap();
            let mut copy = Vec::new();
            assert!(map.copy(0, 1 << 20, &mut copy) && !map.is_cut());
            cut.set_len(length).unwrap();
            copy.clear();
            assert!(map.copy(1 << 19, 1 << 19, &mut copy) && map.is_cut());
            assert!(copy.iter().all(|byte| *byte == 0));
            map.get().tail.store(7, Ordering::Relaxed);
            assert_eq!(map.get().tail.load(Ordering::Relaxed), 7);
        }
        assert!(!whole.is_cut() && whole.get().magic.load(Ordering::Relaxed) == RING_MAGIC);
        assert!(!Mapping::<Ring>::of(&file(1 << 20), usize::MAX).unwrap().unwrap().is_cut());
    }

    #[test]
    fn many_mappings_are_guarded_at_once() {
        let files: Vec<File> = (0..200).map(|_| file(8192)).collect();
        let open = |file| Mapping::<Ring>::of(file, usize::MAX).unwrap().unwrap();
        let maps: Vec<_> = files.iter().map(open).collect();
        for (i, file) in files.iter().enumerate() {
            file.set_len(if i % 3 == 0 { 0 } else { 8192 }).unwrap();
        }
        for (i, map) in maps.iter().enumerate() {
            let magic = map.get().magic.load(Ordering::Relaxed);
            assert_eq!((magic == 0, map.is_cut()), (i % 3 == 0, i % 3 == 0));
        }
    }
}
