//! Shared mappings of the programs' files.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use loopscope_trace::layout::{
    CELLS_MAGIC, CONTROL_MAGIC, Cells, Control, RING_MAGIC, Ring, VERSION,
};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

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
}

// SAFETY: the mapping is plain memory, reached through atomics and copies alone.
unsafe impl<T> Send for Mapping<T> {}

impl<T: Layout> Mapping<T> {
    /// Maps `path`; `None` while the program has not finished making it. Another version of the
    /// layout is an error.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Mapping<T>>> {
        let file = File::options().read(true).write(true).open(path)?;
        let size = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        let Some(size) = NonZeroUsize::new(size).filter(|s| s.get() >= size_of::<T>()) else {
            return Mapping::<T>::version_of_a_short_file(&file);
        };
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice.
        let start = unsafe { mmap(None, size, protection, MapFlags::MAP_SHARED, &file, 0) }?;
        let mapping = Mapping { start: start.cast::<T>(), size };
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

    pub(crate) fn get(&self) -> &T {
        // SAFETY: the mapping holds at least a `T`, is page-aligned and lives as long as `self`;
        // its values are atomics, which other processes may change. The file does not shrink: only
        // the program and this collector may write to it, and neither does that.
        unsafe { self.start.as_ref() }
    }

    /// Bytes that the program has published and does not change until the collector hands them
    /// back; `None` if the file does not have them.
    pub(crate) fn bytes(&self, offset: usize, size: usize) -> Option<&[u8]> {
        if offset.checked_add(size)? > self.size.get() {
            return None;
        }
        // SAFETY: inside the mapping as just checked, which lives as long as `self`; an acquire
        // load by the caller pairs with the release store that published the bytes, and nobody
        // writes to published ones.
        Some(unsafe {
            std::slice::from_raw_parts(self.start.cast::<u8>().add(offset).as_ptr(), size)
        })
    }

    /// Copies bytes that the program may be writing meanwhile: who calls this finds out whether it
    /// was. `None` if the file does not have them.
    pub(crate) fn copy(&self, offset: usize, size: usize) -> Option<Vec<u8>> {
        if offset.checked_add(size)? > self.size.get() {
            return None;
        }
        let mut bytes = Vec::with_capacity(size);
        // SAFETY: the source lies inside the mapping as just checked, the target is fresh and has
        // room for it; what is there afterwards are `size` bytes of whatever value.
        unsafe {
            let source = self.start.cast::<u8>().add(offset);
            std::ptr::copy_nonoverlapping(source.as_ptr(), bytes.as_mut_ptr(), size);
            bytes.set_len(size);
        }
        Some(bytes)
    }

    /// A word at a multiple of eight; `None` if the file does not have it.
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
        // SAFETY: made by mmap with this size; `get` ties every reference to `self`. The call fails
        // only for arguments that were never mapped.
        let _ = unsafe { munmap(self.start.cast(), self.size.get()) };
    }
}
