//! The identity of a trace.

use std::path::Path;

use loopscope_time::Frequency;
use loopscope_time::source::{CounterKind, counter_kind};
use uuid::Uuid;

use crate::{Error, frequency};

/// The identity of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Host name.
    pub host: String,
    /// UUID of the host's counter: the same in all its trace directories.
    pub clock_uuid: [u8; 16],
    /// UUID of the trace of stream `main`; other streams get fresh ones.
    pub trace_uuid: [u8; 16],
    /// Nominal frequency of the counter.
    pub frequency: Frequency,
}

impl Identity {
    /// The identity of a new trace of this machine. Its counter is known by the boot's id, and which
    /// of a boot's two counters it is by the last byte.
    pub fn of_this_machine() -> Result<Identity, Error> {
        let read = |path: &Path| {
            let text = std::fs::read_to_string(path).map_err(Error::file("read", path))?;
            Ok::<_, Error>(text.trim().to_owned())
        };
        let boot_id = Path::new("/proc/sys/kernel/random/boot_id");
        let boot = Uuid::parse_str(&read(boot_id)?)
            .map_err(std::io::Error::other)
            .map_err(Error::file("understand", boot_id))?;
        let mut clock_uuid = boot.into_bytes();
        if counter_kind() == CounterKind::MonotonicRaw {
            clock_uuid[15] ^= 1;
        }
        Ok(Identity {
            host: read(Path::new("/proc/sys/kernel/hostname"))?,
            clock_uuid,
            trace_uuid: Uuid::new_v4().into_bytes(),
            frequency: frequency::nominal()?,
        })
    }
}
