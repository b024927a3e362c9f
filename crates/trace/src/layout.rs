//! The files of a process directory, as `c/layout.h` declares them: shared with a program that
//! writes them while the collector reads, hence atomics throughout.

use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64};

pub use crate::site::offset as site;

/// First word of a complete control file.
pub const CONTROL_MAGIC: u64 = u64::from_le_bytes(*b"LOOPCTL1");
/// First word of a complete ring file.
pub const RING_MAGIC: u64 = u64::from_le_bytes(*b"LOOPRNG1");
/// First word of a complete cells file.
pub const CELLS_MAGIC: u64 = u64::from_le_bytes(*b"LOOPCLS1");
/// Version of all three files.
pub const VERSION: u32 = 4;
/// Call sites that a process can have.
pub const MAX_SITES: usize = 4096;
/// Streams that a process can have at once.
pub const STREAMS: usize = 31;
/// In a site's flag word, in addition to a bit for each stream: a hit needs a closer look.
pub const SLOW: u32 = 1 << 31;
/// Why a hit was dropped, by index in [`Section::drops`].
pub const CAUSES: [&str; 7] =
    ["ring-full", "signal-reentry", "no-ring", "no-start", "too-large", "frozen", "no-filter"];
/// Whether a cause's hits are in [`Ring::emitted`] and [`Ring::discarded`] too; the others' reach
/// no ring and are counted as drops alone.
pub const IN_RING: [bool; 7] = [true, false, false, false, true, true, false];

/// [`Stream::kind`]: full rings drop.
pub const NORMAL: u32 = 0;
/// [`Stream::kind`]: full rings overwrite their oldest records.
pub const FLIGHT_RECORDER: u32 = 1;

/// [`Stream::state`]: nobody's.
pub const FREE: u32 = 0;
/// [`Stream::state`]: somebody's, not recorded into.
pub const TAKEN: u32 = 1;
/// [`Stream::state`]: recorded into.
pub const ACTIVE: u32 = 2;
/// [`Stream::state`]: its tables found no memory. Its section must not be touched, and its hits
/// count in [`Stream::uncounted`].
pub const BARE: u32 = 3;

/// A stream's slot in the control file.
#[repr(C)]
#[derive(Debug)]
pub struct Stream {
    /// [`FREE`], [`TAKEN`], [`ACTIVE`] or [`BARE`].
    pub state: AtomicU32,
    /// [`NORMAL`] or [`FLIGHT_RECORDER`].
    pub kind: AtomicU32,
    /// Size of each sub-buffer of its rings, in bytes, as asked for; a ring may be made smaller.
    pub subbuffer_size: AtomicU32,
    /// Number of sub-buffers in each of its rings, as asked for; a ring may have fewer.
    pub subbuffer_count: AtomicU32,
    /// Rings made ahead.
    pub spares: AtomicU32,
    /// Number of the slot's use, part of the names of its rings and cells.
    pub generation: AtomicU32,
    /// Ticks that a flight recorder goes on after its trigger.
    pub post: AtomicU64,
    /// Stamp of the trigger, 0 before.
    pub trigger: AtomicU64,
    /// Stamp from which rings overwrite nothing; 0: none.
    pub freeze: AtomicU64,
    /// Index of the call site that triggered plus 1, 0 if none did.
    pub trigger_site: AtomicU32,
    /// System error of the newest ring, cells or tables that could not be made; 0: none.
    pub refusal: AtomicU32,
    /// Id of the hit that triggered.
    pub trigger_id: AtomicI64,
    /// Hits of a [`BARE`] stream, all dropped, of any call site.
    pub uncounted: AtomicU64,
    /// Rings that were made smaller than asked for, to leave room.
    pub small: AtomicU32,
    padding: [AtomicU8; 52],
}

/// Bytes of a block of filters.
pub const FILTER_BLOCK: usize = 32;
/// Blocks of filters in a stream.
pub const FILTER_BLOCKS: usize = 4096;

/// A stream's tables. Those from [`Section::counted`] on are there only while
/// [`Section::filters_ready`] is not zero.
#[repr(C)]
#[derive(Debug)]
pub struct Section {
    /// By site and cause.
    pub drops: [[AtomicU64; CAUSES.len()]; MAX_SITES],
    /// By site: hits that a filter kept out, neither emitted nor dropped.
    pub filtered: [AtomicU64; MAX_SITES],
    /// By site: first block of its filter plus 1; 0 is none.
    pub filter: [AtomicU32; MAX_SITES],
    /// Filters whose blocks were given back.
    pub filter_changes: AtomicU64,
    /// Not zero: what follows is allocated.
    pub filters_ready: AtomicU32,
    padding: [AtomicU8; 4096 - 12],
    /// By site: hits that its `every` has seen.
    pub counted: [AtomicU64; MAX_SITES],
    /// By site, of its `rate`: second, and hits let through in it.
    pub window: [AtomicU64; MAX_SITES],
    /// By block: not zero if it is a filter's.
    pub block_taken: [AtomicU8; FILTER_BLOCKS],
    /// The C core's.
    pub block: [[AtomicU64; FILTER_BLOCK / 8]; FILTER_BLOCKS],
}

/// The control file.
#[repr(C)]
#[derive(Debug)]
pub struct Control {
    /// [`CONTROL_MAGIC`], stored last.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Size of the file, in bytes.
    pub size: AtomicU32,
    /// Process id.
    pub pid: AtomicU32,
    /// [`MAX_SITES`].
    pub max_sites: AtomicU32,
    /// Number of [`CAUSES`].
    pub causes: AtomicU32,
    /// Lines in the sites file, released after them.
    pub site_count: AtomicU32,
    /// Call sites that found no place or were not sound; they stay disabled.
    pub sites_refused: AtomicU32,
    /// Forked children that count their hits here, as drops.
    pub orphans: AtomicU32,
    /// Inode of the namespace that `pid` counts in; 0 is unknown.
    pub pid_namespace: AtomicU64,
    /// Stamp in the directory's name of the process that forked this one; 0: none.
    pub parent_stamp: AtomicU64,
    /// Frequency of the counter in Hz, written by the collector's side; 0: unknown.
    pub frequency: AtomicU64,
    /// Process number of the process that forked this one.
    pub parent_pid: AtomicU32,
    /// Cells that entities take so far.
    pub cells: AtomicU32,
    /// Program's short name, NUL-terminated.
    pub process: [AtomicU8; 64],
    /// System error of the newest call site that was refused for lack of room; 0: none.
    pub sites_error: AtomicU32,
    /// Not zero: forked children may use this file when the process has ended.
    pub forked: AtomicU32,
    /// Such a child, as it was last found; 0: none yet.
    pub heir: AtomicU32,
    /// The kind of counter that stamps the hits: see `loopscope_time::source`.
    pub counter: AtomicU32,
    padding: [AtomicU8; 4096 - 152],
    /// By site: a bit for each stream that has it enabled, and [`SLOW`].
    pub flags: [AtomicU32; MAX_SITES],
    /// Slots of streams.
    pub streams: [Stream; STREAMS],
    padding2: [AtomicU8; 4096 - STREAMS * size_of::<Stream>()],
    /// By stream; allocated only from the time that the slot is taken.
    pub sections: [Section; STREAMS],
}

/// The head of a ring file; sub-buffers follow at [`Ring::data`].
#[repr(C)]
#[derive(Debug)]
pub struct Ring {
    /// [`RING_MAGIC`], stored last.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Offset of the first sub-buffer in the file.
    pub data: AtomicU32,
    /// Process id.
    pub pid: AtomicU32,
    /// Slot of its stream.
    pub stream: AtomicU32,
    /// Number of the slot's use.
    pub generation: AtomicU32,
    /// Kind of its stream.
    pub kind: AtomicU32,
    /// In bytes.
    pub subbuffer_size: AtomicU32,
    /// Sub-buffers of the ring.
    pub subbuffer_count: AtomicU32,
    padding1: [AtomicU8; 24],
    /// Sub-buffers closed.
    pub head: AtomicU64,
    /// Low half of the open sub-buffer's number, then the bytes written to it; about no open one if
    /// the number is not that of [`Ring::head`].
    pub committed: AtomicU64,
    /// Upper limit of `committed`; 0: nothing may be added before everything else is checked.
    pub limit: AtomicU64,
    /// Hits of enabled call sites that found the ring idle.
    pub emitted: AtomicU64,
    /// Those of `emitted` that were dropped for a cause that is [`IN_RING`].
    pub discarded: AtomicU64,
    /// Hits in signal handlers that interrupted a hit; not in `emitted`.
    pub reentered: AtomicU64,
    /// Owner; 0: the ring waits for one.
    pub tid: AtomicU32,
    padding2: [AtomicU8; 12],
    /// Sub-buffers that the collector has copied.
    pub tail: AtomicU64,
    /// Not zero: the collector has done with the ring; then it zeroes `limit`.
    pub revoked: AtomicU32,
    padding3: [AtomicU8; 52],
}

/// Offset in a ring file of the flight recorder's words, one for each place: records in the ring
/// before the first one of the sub-buffer there.
pub const RING_FIRST: usize = size_of::<Ring>();

/// Most cells that a process's entities can take.
pub const MOST_CELLS: usize = 512 << 10;
/// Buckets of the log-linear histogram.
pub const LOG_BUCKETS: usize = 32 * 59;

/// The head of a cells file; the cells follow as u64.
#[repr(C)]
#[derive(Debug)]
pub struct Cells {
    /// [`CELLS_MAGIC`], stored last.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Process id.
    pub pid: AtomicU32,
    /// Slot of its stream.
    pub stream: AtomicU32,
    /// Number of the slot's use.
    pub generation: AtomicU32,
    /// Cells that are there.
    pub count: AtomicU64,
    padding: [AtomicU8; 4096 - 32],
}
