//! Memory of a channel: two files without a name, of a size that cannot change, and their mappings.
//!
//! The first has everything but the items' bytes, and every process that uses the channel writes it. The
//! second has the bytes; only processes that put items map it for writing.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd as _};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::newest::Newest;
use loopscope_stm::Slot;

use nix::fcntl::{FallocateFlags, FcntlArg, OFlag, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, madvise, mmap, munmap};
use nix::sys::resource::{Resource, getrlimit};

/// A file of zeros whose memory is there, and whose size cannot change: its mappings never fault.
pub(crate) fn file(name: &str, bytes: u64) -> io::Result<File> {
    let file = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?);
    file.set_len(bytes)?;
    fallocate(&file, FallocateFlags::empty(), 0, bytes.cast_signed())?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals() | SealFlag::F_SEAL_SEAL))?;
    Ok(file)
}

/// The same file, for reading alone.
pub(crate) fn read_only(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Copies of files that a process keeps, unless it has many files: then it needs the rest for itself.
pub(crate) fn kept(files: [&File; 2]) -> Option<[File; 2]> {
    let (most, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let [control, payload] = files.map(|file| {
        let copy = file.try_clone().ok()?;
        (u64::try_from(copy.as_raw_fd()).is_ok_and(|number| number < most / 2)).then_some(copy)
    });
    Some([control?, payload?])
}

fn seals() -> SealFlag {
    SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW
}

/// A mapped file.
#[derive(Debug)]
struct Map {
    start: NonNull<libc::c_void>,
    bytes: NonZeroUsize,
}

// SAFETY: the mapping belongs to no thread. What is in it is reached through atomics, or by the rules of
// `Payload`.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    fn of(file: &File, writable: bool) -> io::Result<Map> {
        let found = SealFlag::from_bits_truncate(fcntl(file, FcntlArg::F_GET_SEALS)?);
        if !found.contains(seals()) {
            return Err(io::Error::other("it is no memory of a channel: its size may change"));
        }
        let bytes = usize::try_from(file.metadata()?.len()).ok().and_then(NonZeroUsize::new);
        let bytes = bytes.ok_or_else(|| io::Error::other("it is empty"))?;
        let mut protection = ProtFlags::PROT_READ;
        protection.set(ProtFlags::PROT_WRITE, writable);
        // SAFETY: a fresh shared mapping at an address of the kernel's choice.
        let start =
            unsafe { mmap(None, bytes, protection, MapFlags::MAP_SHARED, file.as_fd(), 0) }?;
        Ok(Map { start, bytes })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: `of` has mapped it, and all that refers to it keeps it.
        _ = unsafe { munmap(self.start, self.bytes.get()) };
    }
}

/// A word that is alone in its cache line.
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) AtomicU32);

/// The beginning of the first file. Atomics alone, so that any bytes are a value.
#[repr(C)]
pub(crate) struct Head {
    pub(crate) magic: AtomicU64,
    /// Bytes of a slot.
    pub(crate) slot_bytes: AtomicU64,
    /// How many processes there may be.
    pub(crate) parties: AtomicU64,
    /// Not 0: it has the items of a channel on another host, which has this incarnation.
    pub(crate) home: AtomicU64,
    /// How many times the home has had another channel since.
    pub(crate) restarts: AtomicU64,
    /// Whether that one knows what is wanted here: see [`AtHome`].
    pub(crate) at_home: AtomicU64,
    /// How many times one that joins has asked what is so at home, and up to which the home has answered.
    pub(crate) questions: AtomicU64,
    pub(crate) answered: AtomicU64,
    /// When one of the processes last looked for processes that were killed: CLOCK_MONOTONIC, ns.
    pub(crate) looked: AtomicU64,
    pub(crate) lock: Line,
    /// Changes when a get may succeed that could not before.
    pub(crate) came: Line,
    /// Changes when a put or a loan may.
    pub(crate) freed: Line,
    pub(crate) newest: Newest,
    /// What the next service has to know of it, a JSON document and zeros.
    about: [AtomicU64; ABOUT / 8],
}

/// Bytes of `about` of a head: the longest path of a file, and the rest.
const ABOUT: usize = 8192;

/// Whether the home of a mirror knows what is wanted at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtHome {
    /// There is no connection to the home.
    Away = 0,
    /// The home has no input connection for the mirror, or has not said so.
    Asked = 1,
    /// It has one.
    Joined = 2,
}

impl Head {
    /// Says what the next service has to know; whether there is room. One service does this at a time.
    pub(crate) fn set_about(&self, text: &[u8]) -> bool {
        let mut all = [0; ABOUT];
        let Some(place) = all.get_mut(..text.len()) else { return false };
        place.copy_from_slice(text);
        for (word, bytes) in self.about.iter().zip(all.as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        true
    }

    pub(crate) fn about(&self) -> Vec<u8> {
        let words = self.about.iter().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        words.flatten().take_while(|byte| *byte != 0).collect()
    }

    /// Called with the channel's lock only.
    pub(crate) fn set_at_home(&self, is: AtHome) {
        // Release pairs with the Acquire of `at_home`.
        self.at_home.store(is as u64, Ordering::Release);
    }

    pub(crate) fn at_home(&self) -> AtHome {
        // Acquire: what the home said before is not older.
        match self.at_home.load(Ordering::Acquire) {
            1 => AtHome::Asked,
            2 => AtHome::Joined,
            _ => AtHome::Away,
        }
    }

    /// Asks what is so at home; which question it is. Called with the channel's lock only.
    pub(crate) fn ask(&self) -> u64 {
        self.questions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// How many questions there were. Called with the channel's lock only.
    pub(crate) fn questions(&self) -> u64 {
        self.questions.load(Ordering::Relaxed)
    }

    /// The home has answered up to a question. Called with the channel's lock only.
    pub(crate) fn set_answered(&self, question: u64) {
        // Release pairs with the Acquire of `has_answered`.
        self.answered.store(question, Ordering::Release);
    }

    pub(crate) fn has_answered(&self, question: u64) -> bool {
        // Acquire: what the home said before is not older.
        self.answered.load(Ordering::Acquire) >= question
    }
}

const HEAD_WORDS: usize = size_of::<Head>() / 8;

/// The first file: its head, an entry for each process, and the channel's words.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    map: Arc<Map>,
    parties: usize,
}

impl Control {
    /// Bytes of a file with so many words of a channel.
    pub(crate) fn bytes(parties: usize, words: usize) -> u64 {
        8 * (HEAD_WORDS + parties + words) as u64
    }

    /// Maps a file with a head and so many entries at least.
    ///
    /// `parties` may ask the head for their number.
    pub(crate) fn of(file: &File, parties: impl Fn(&Head) -> usize) -> io::Result<Control> {
        let map = Map::of(file, true)?;
        let mut control = Control { map: Arc::new(map), parties: 0 };
        let words = control.all().len();
        if words <= HEAD_WORDS {
            return Err(io::Error::other("it is too short"));
        }
        control.parties = parties(control.head());
        if control.parties >= words - HEAD_WORDS {
            return Err(io::Error::other("it is too short for its processes"));
        }
        Ok(control)
    }

    fn all(&self) -> &[AtomicU64] {
        // SAFETY: a mapping begins at a page, and has these words; it is only reached by atomics.
        unsafe { slice::from_raw_parts(self.map.start.as_ptr().cast(), self.map.bytes.get() / 8) }
    }

    pub(crate) fn head(&self) -> &Head {
        // SAFETY: as above; `of` has seen that it is longer than a head.
        unsafe { self.map.start.cast().as_ref() }
    }

    pub(crate) fn entries(&self) -> &[AtomicU64] {
        &self.all()[HEAD_WORDS..HEAD_WORDS + self.parties]
    }

    pub(crate) fn words(&self) -> Words {
        let words = &self.all()[HEAD_WORDS + self.parties..];
        Words { words: NonNull::from(words), _map: Arc::clone(&self.map) }
    }
}

/// The words of the channel.
pub(crate) struct Words {
    words: NonNull<[AtomicU64]>,
    _map: Arc<Map>,
}

// SAFETY: they are atomics in a mapping that is kept.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl std::ops::Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: they are of the mapping, which is kept.
        unsafe { self.words.as_ref() }
    }
}

/// The second file: the bytes of the slots.
///
/// Only the connection that has a slot on loan writes it, and only those that hold its item read it. The
/// channel sees to that among programs that use it by these functions; another program that writes
/// changes bytes, which have no rules, and nothing else.
#[derive(Debug)]
pub(crate) struct Payload {
    map: Map,
    pub(crate) slot_bytes: usize,
    pub(crate) is_writable: bool,
}

impl Payload {
    pub(crate) fn of(file: &File, slots: u32, slot_bytes: usize) -> io::Result<Payload> {
        let flags = OFlag::from_bits_truncate(fcntl(file, FcntlArg::F_GETFL)?);
        let is_writable = flags.contains(OFlag::O_RDWR);
        let map = Map::of(file, is_writable)?;
        let needed = slot_bytes.checked_mul(slots as usize);
        if needed.is_none_or(|needed| needed > map.bytes.get()) {
            return Err(io::Error::other("it is too short for its slots"));
        }
        Ok(Payload { map, slot_bytes, is_writable })
    }

    /// The first bytes of a slot, or None if it has fewer or there is no such slot.
    pub(crate) fn read(&self, slot: Slot, bytes: usize) -> Option<&[u8]> {
        let start = self.start(slot, bytes)?;
        // SAFETY: `start` has seen that the mapping has them. The caller holds the slot's item.
        Some(unsafe { slice::from_raw_parts(start, bytes) })
    }

    /// Copies the first bytes of a slot, which others may write meanwhile; whether it has so many.
    pub(crate) fn copy(&self, slot: Slot, into: &mut [u8]) -> bool {
        let Some(start) = self.start(slot, into.len()) else { return false };
        let (words, rest) = into.as_chunks_mut::<8>();
        let begun = 8 * words.len();
        for (number, word) in words.iter_mut().enumerate() {
            // SAFETY: it is inside of the slot, which begins at a cache line. What others write meanwhile
            // is any bytes, which the caller does not use: the item is not the newest any more then.
            *word = unsafe { start.cast::<[u8; 8]>().add(number).read_volatile() };
        }
        for (number, byte) in rest.iter_mut().enumerate() {
            // SAFETY: as above.
            *byte = unsafe { start.add(begun + number).read_volatile() };
        }
        true
    }

    /// The bytes of a slot that is on loan; None if it cannot be written or there is no such slot.
    #[allow(clippy::mut_from_ref)] // A slot is on loan once.
    pub(crate) fn write(&self, slot: Slot) -> Option<&mut [u8]> {
        let start = self.is_writable.then(|| self.start(slot, self.slot_bytes)).flatten()?;
        // SAFETY: as above; the caller has it on loan.
        Some(unsafe { slice::from_raw_parts_mut(start, self.slot_bytes) })
    }

    fn start(&self, slot: Slot, bytes: usize) -> Option<*mut u8> {
        let begin = self.slot_bytes.checked_mul(slot as usize)?;
        let end = begin.checked_add(bytes)?;
        let is_inside = bytes <= self.slot_bytes && end <= self.map.bytes.get();
        // SAFETY: it is inside of the mapping.
        is_inside.then(|| unsafe { self.map.start.as_ptr().cast::<u8>().add(begin) })
    }
}

/// A word that is 1 in the process that made it, and 0 in those that it forked.
#[derive(Debug)]
pub(crate) struct Own(Map);

impl Own {
    pub(crate) fn new() -> io::Result<Own> {
        let bytes = const { NonZeroUsize::new(4096).unwrap() };
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE;
        // SAFETY: a fresh private mapping at an address of the kernel's choice.
        let start = unsafe { nix::sys::mman::mmap_anonymous(None, bytes, protection, flags) }?;
        let own = Own(Map { start, bytes });
        // SAFETY: it is our mapping; the kernel clears it in children alone.
        unsafe { madvise(start, bytes.get(), nix::sys::mman::MmapAdvise::MADV_WIPEONFORK) }?;
        own.word().store(1, std::sync::atomic::Ordering::Relaxed);
        Ok(own)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the mapping has a page.
        unsafe { self.0.start.cast().as_ref() }
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.word().load(std::sync::atomic::Ordering::Relaxed) == 1
    }
}
