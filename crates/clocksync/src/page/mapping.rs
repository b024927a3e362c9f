//! A page's file, mapped to be written.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use loopscope_clock::layout::{Page, SIZE};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// A shared mapping of a whole page.
#[derive(Debug)]
pub(super) struct Mapping(NonNull<Page>);

// SAFETY: the mapping belongs to the process and is reached through atomics alone.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps a file that is open for reading and writing; `None` where it is too short for a page.
    pub fn of(file: &File) -> io::Result<Option<Mapping>> {
        if file.metadata()?.len() < SIZE as u64 {
            return Ok(None);
        }
        let size = const { NonZeroUsize::new(SIZE).unwrap() };
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice.
        let start = unsafe { mmap(None, size, protection, MapFlags::MAP_SHARED, file, 0) }?;
        Ok(Some(Mapping(start.cast())))
    }

    pub fn page(&self) -> &Page {
        // SAFETY: mapped until `drop`, page-aligned, at least as large as the type, which is atomics
        // alone: any bytes are a value, and others may read while this process writes. Only the
        // file's owner can cut it short, and nothing here does.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of` with this size, unmapped once; no reference outlives `self`. It can
        // fail for addresses that are none alone.
        let _ = unsafe { munmap(self.0.cast(), SIZE) };
    }
}
