//! The identity of a trace.

use std::path::Path;

use loopscope_time::Frequency;
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
    /// The identity of a new trace of this machine. Its counter is known by the boot's id.
    pub fn of_this_machine() -> Result<Identity, Error> {
        let read = |path: &Path| {
            let text = std::fs::read_to_string(path).map_err(Error::file("read", path))?;
            Ok::<_, Error>(text.trim().to_owned())
        };
        let boot_id = Path::new("/proc/sys/kernel/random/boot_id");
        let boot = Uuid::parse_str(&read(boot_id)?)
            .map_err(std::io::Error::other)
            .map_err(Error::file("understand", boot_id))?;
        Ok(Identity {
            host: read(Path::new("/proc/sys/kernel/hostname"))?,
            clock_uuid: boot.into_bytes(),
            trace_uuid: Uuid::new_v4().into_bytes(),
            frequency: frequency::nominal()?,
        })
    }
}
