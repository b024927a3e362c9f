//! The clock page as `c/page.h` declares it (`schema/clock-page.md`), for its writer.

use core::sync::atomic::AtomicU64;

/// First word of a page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"LSCLOCK1");
/// Version of this layout.
pub const VERSION: u32 = 4;
/// Size of the file, in bytes.
pub const SIZE: usize = 4096;
/// Publication n is in slot n modulo this.
pub const SLOTS: usize = 16;
/// Words of a slot.
pub const WORDS: usize = 16;
/// [`Page::current`]: nobody will write here any more.
pub const RETIRED: u64 = u64::MAX;
/// Binary places of rates.
pub const SHIFT: u32 = 48;
/// Binary places of the fraction of a nanosecond.
pub const FRACTION_SHIFT: u32 = 32;
/// A lease counts in 2 to the power of this ticks.
pub const LEASE_SHIFT: u32 = 20;
/// Where a page is that nobody gave a name.
pub const DEFAULT_PATH: &str = "/dev/shm/loopscope-clock";

/// Places of words in a slot.
pub mod word {
    /// Ticks.
    pub const ANCHOR: usize = 0;
    /// Nanoseconds at the anchor, signed.
    pub const GLOBAL: usize = 1;
    /// 2⁻⁴⁸ ns per tick.
    pub const RATE: usize = 2;
    /// Growth of each side of the width, 2⁻⁴⁸ ns per tick.
    pub const DRIFT: usize = 3;
    /// First tick at which nothing of this holds.
    pub const EXPIRES: usize = 4;
    /// Nanoseconds before the best guess (low half) and after it (high half).
    pub const WIDTH: usize = 5;
    /// 2⁻³² ns to add to [`GLOBAL`] (low half), calibrated error bound in ns (high half).
    pub const FINE: usize = 6;
    /// Epoch (32 bits), status (8), zero (8), lease from the anchor (16).
    pub const STANDING: usize = 7;
    /// UTC less global time in ns, signed.
    pub const UTC_OFFSET: usize = 8;
    /// Maximum error of it in ns; all ones: not known.
    pub const UTC_ERROR: usize = 9;
    /// Process number of the writer.
    pub const PID: usize = 10;
    /// Start time of the writer: field 22 of its `/proc/PID/stat`.
    pub const START: usize = 11;
    /// State of the service, by bytes: its role; why UTC is not known, 0 if it is; the reference's
    /// stratum.
    pub const SERVICE: usize = 12;
    /// First tick at which something of this holds.
    pub const SINCE: usize = 13;
    /// Nanoseconds that the counters of two processors may be apart; 0: it is not known.
    pub const APART: usize = 14;
}

/// A page. Any bytes are a value.
#[repr(C)]
#[derive(Debug)]
pub struct Page {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`] (low half), [`SIZE`] (high half).
    pub version_and_size: AtomicU64,
    /// The boot id of `/proc/sys/kernel/random/boot_id`, its first digit first.
    pub boot_id: [AtomicU64; 2],
    /// The counter's, nominal, in Hz.
    pub frequency: AtomicU64,
    /// CLOCK_MONOTONIC in ns when the page was made: tells the pages of one name apart.
    pub made: AtomicU64,
    /// The kind of counter: `loopscope_time::source::CounterKind` as a number.
    pub counter: AtomicU64,
    reserved1: AtomicU64,
    /// Number of the newest publication; 0: none yet; or [`RETIRED`].
    pub current: AtomicU64,
    reserved2: [AtomicU64; 7],
    /// Publications.
    pub slots: [[AtomicU64; WORDS]; SLOTS],
}

const _: () = assert!(size_of::<Page>() <= SIZE);
