//! Settings of a machine that have a value before and one after: how each is read and written.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use loopscope_clocksync::probe::{read_stamps, write_stamps};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

/// A setting of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "setting", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Setting {
    /// A file of the kernel's with one value: a sysctl, the processors of an interrupt
    /// (`/proc/irq/<number>/smp_affinity_list`), the governor of a processor.
    File {
        /// Absolute.
        path: PathBuf,
    },
    /// The packets that an interface stamps: the types of `struct hwtstamp_config` for what it
    /// sends and what it receives, two numbers.
    Stamps {
        /// Its name.
        interface: String,
    },
}

impl Setting {
    /// How a person would call it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Setting::File { path } => path.display().to_string(),
            Setting::Stamps { interface } => format!("packet stamps of {interface}"),
        }
    }

    /// Whether loopscope may change it.
    pub(crate) fn is_ours(&self) -> bool {
        match self {
            Setting::File { path } => {
                let normal = |part| matches!(part, Component::RootDir | Component::Normal(_));
                let below = |place: &str| path.starts_with(place) && path != Path::new(place);
                let named = |name: &str| path.file_name().is_some_and(|own| own == name);
                path.components().all(normal)
                    && (below("/proc/sys")
                        || (below("/proc/irq") && named("smp_affinity_list"))
                        || (below("/sys/devices/system/cpu") && named("scaling_governor")))
            }
            Setting::Stamps { interface } => !interface.contains('/'),
        }
    }

    /// Its value now.
    pub(crate) fn read(&self) -> io::Result<String> {
        match self {
            Setting::File { path } => Ok(fs::read_to_string(path)?.trim_end().to_owned()),
            Setting::Stamps { interface } => Ok(stamps(read_stamps(interface)?)),
        }
    }

    /// Gives it a value.
    pub(crate) fn write(&self, value: &str) -> io::Result<()> {
        match self {
            Setting::File { path } => fs::write(path, format!("{value}\n")),
            Setting::Stamps { interface } => {
                let types = value.split_once(' ').and_then(|(sent, received)| {
                    Some([sent.parse().ok()?, received.parse().ok()?])
                });
                write_stamps(interface, types.ok_or(io::ErrorKind::InvalidInput)?)
            }
        }
    }

    /// Gives it the value `before` if it still has the value `set`; `false` if somebody else has
    /// given it another one meanwhile, or what it belongs to is gone.
    pub(crate) fn restore(&self, before: &str, set: &str) -> io::Result<bool> {
        match self.read() {
            Ok(now) if now == set => self.write(before).map(|()| true),
            Ok(_) => Ok(false),
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The value of [`Setting::Stamps`].
pub(crate) fn stamps([sent, received]: [u32; 2]) -> String {
    format!("{sent} {received}")
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ENODEV)
}

/// The right to change settings of this machine. One run at a time has it, of whichever user.
pub(crate) type MachineLock = Flock<fs::File>;

/// A folder that every user of a machine can open.
const SHARED: &str = "/run";

/// Takes the lock; `None` if another run has it.
pub(crate) fn lock_machine() -> io::Result<Option<MachineLock>> {
    match Flock::lock(fs::File::open(SHARED)?, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(errno.into()),
    }
}
