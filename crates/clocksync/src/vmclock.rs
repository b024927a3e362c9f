//! What a hypervisor says of a virtual machine's clocks (`/dev/vmclock0`, the kernel's
//! `include/uapi/linux/vmclock-abi.h`): whether the machine was moved to another host or set back to a
//! snapshot, which its counter does not show when the hypervisor makes it go on.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Where the kernel has it.
const DEVICE: &str = "/dev/vmclock0";
/// "VCLK", little-endian.
const MAGIC: u32 = 0x4b4c_4356;
/// Tries to read while nobody writes.
const TRIES: usize = 8;

/// Places of fields, all little-endian.
mod place {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 8;
    /// Odd while the hypervisor writes.
    pub(super) const SEQUENCE: usize = 12;
    /// Changes with every disruption.
    pub(super) const MARKER: usize = 16;
    pub(super) const END: usize = 24;
}

/// The device.
#[derive(Debug)]
pub struct VmClock(File);

impl VmClock {
    /// The machine's; `None` if its hypervisor has none, or it may not be read.
    pub fn open() -> Option<VmClock> {
        VmClock::at(Path::new(DEVICE)).ok()
    }

    /// A device, or a file of its layout.
    pub fn at(path: &Path) -> io::Result<VmClock> {
        let clock = VmClock(File::open(path)?);
        clock.marker().map(|_| clock)
    }

    /// What changes when the machine is disrupted.
    pub fn marker(&self) -> io::Result<u64> {
        for _ in 0..TRIES {
            let (before, marker) = self.read()?;
            let (after, _) = self.read()?;
            if before == after && before % 2 == 0 {
                return Ok(marker);
            }
        }
        Err(io::Error::new(io::ErrorKind::WouldBlock, "the hypervisor goes on writing"))
    }

    /// Sequence count and marker.
    fn read(&self) -> io::Result<(u32, u64)> {
        let mut bytes = [0; place::END];
        self.0.read_exact_at(&mut bytes, 0)?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let version = u16::from_le_bytes([bytes[place::VERSION], bytes[place::VERSION + 1]]);
        if word(place::MAGIC) != MAGIC || version != 1 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no VMClock of version 1"));
        }
        let marker = std::array::from_fn(|i| bytes[place::MARKER + i]);
        Ok((word(place::SEQUENCE), u64::from_le_bytes(marker)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::{ClockSource, CounterWatch, Disturbance, Look};
    use loopscope_time::Frequency;

    /// A page with the layout of the kernel's header.
    fn page(sequence: u32, marker: u64) -> Vec<u8> {
        let mut bytes = b"VCLK".to_vec();
        bytes.extend(4096u32.to_le_bytes());
        bytes.extend(1u16.to_le_bytes());
        // The counter is x86's, the time UTC.
        bytes.extend([1, 0]);
        bytes.extend(sequence.to_le_bytes());
        bytes.extend(marker.to_le_bytes());
        bytes.resize(4096, 0);
        bytes
    }

    #[test]
    fn a_machine_that_was_moved_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vmclock0");
        std::fs::write(&path, page(4, 77)).unwrap();
        let clock = VmClock::at(&path).unwrap();
        assert_eq!(clock.marker().unwrap(), 77);
        let frequency = Frequency::from_hz(1_000_000_000).unwrap();
        let look = || Look::take(Some(&clock), &ClockSource::open());
        let first = look();
        let mut watch = CounterWatch::new(frequency, first);
        // Nothing but the marker has changed; time has not passed.
        std::fs::write(&path, page(6, 78)).unwrap();
        let moved = Look { marker: look().marker, ..first };
        let event = watch.see(moved).unwrap();
        assert_eq!(event.disturbance, Disturbance::Machine);
        assert!(event.within.lo <= first.at.lo && first.at.hi <= event.within.hi);
        assert_eq!(watch.see(moved), None);
    }

    #[test]
    fn what_is_being_written_or_is_something_else_says_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vmclock0");
        std::fs::write(&path, page(5, 77)).unwrap();
        assert_eq!(VmClock::at(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        std::fs::write(&path, [0; 4096]).unwrap();
        assert_eq!(VmClock::at(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
