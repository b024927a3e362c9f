//! Settings of a machine that have a value before and one after: how each is read and written.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};

use loopscope_clocksync::probe::{read_stamps, write_stamps};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::{link, offload, qdisc};

/// A setting of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "setting", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Setting {
    /// A file of the kernel's with one value: a sysctl, the processors of an interrupt
    /// (`/proc/irq/<number>/smp_affinity_list`), the governor of a processor, one of
    /// [`INTERFACE_FILES`].
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
    /// One of [`link::SETTINGS`], a number.
    Link {
        /// The interface's name.
        interface: String,
        /// The name of the setting.
        attribute: String,
    },
    /// One of [`offload::SWITCHES`], `on` or `off`.
    Offload {
        /// The interface's name.
        interface: String,
        /// The name of the offload.
        offload: String,
    },
    /// The queueing discipline of what an interface sends; see [`qdisc::read`].
    Qdisc {
        /// The interface's name.
        interface: String,
    },
}

/// Files of an interface in `/sys/class/net/<interface>` that may be changed.
pub(crate) const INTERFACE_FILES: [&str; 2] = ["gro_flush_timeout", "napi_defer_hard_irqs"];

impl Setting {
    /// How a person would call it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Setting::File { path } => path.display().to_string(),
            Setting::Stamps { interface } => format!("packet stamps of {interface}"),
            Setting::Link { interface, attribute } => format!("{attribute} of {interface}"),
            Setting::Offload { interface, offload } => format!("{offload} of {interface}"),
            Setting::Qdisc { interface } => format!("queueing discipline of {interface}"),
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
                        || (below("/sys/devices/system/cpu") && named("scaling_governor"))
                        || is_of_interface(path))
            }
            Setting::Stamps { interface } | Setting::Qdisc { interface } => is_name(interface),
            Setting::Link { interface, attribute } => {
                is_name(interface) && link::SETTINGS.contains(&&**attribute)
            }
            Setting::Offload { interface, offload } => {
                is_name(interface) && offload::SWITCHES.iter().any(|(name, ..)| name == offload)
            }
        }
    }

    /// Its value now.
    pub(crate) fn read(&self) -> io::Result<String> {
        match self {
            Setting::File { path } => Ok(fs::read_to_string(path)?.trim_end().to_owned()),
            Setting::Stamps { interface } => Ok(stamps(read_stamps(interface)?)),
            Setting::Link { interface, attribute } => link::read(interface, attribute),
            Setting::Offload { interface, offload } => offload::read(interface, offload),
            Setting::Qdisc { interface } => qdisc::read(interface),
        }
    }

    /// Gives it a value.
    pub(crate) fn write(&self, value: &str) -> io::Result<()> {
        match self {
            // Never makes a file.
            Setting::File { path } => OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(path)?
                .write_all(format!("{value}\n").as_bytes()),
            Setting::Stamps { interface } => {
                let types = value.split_once(' ').and_then(|(sent, received)| {
                    Some([sent.parse().ok()?, received.parse().ok()?])
                });
                write_stamps(interface, types.ok_or(io::ErrorKind::InvalidInput)?)
            }
            Setting::Link { interface, attribute } => link::write(interface, attribute, value),
            Setting::Offload { interface, offload } => offload::write(interface, offload, value),
            Setting::Qdisc { interface } => qdisc::write(interface, value),
        }
    }

    /// Gives it the value `before` if it still has the value `set`; `false` if somebody else has
    /// given it another one meanwhile, or what it belongs to is gone.
    pub(crate) fn restore(&self, before: &str, set: &str) -> io::Result<bool> {
        match self.read() {
            Ok(now) if is_same(&now, set) => self.write(before).map(|()| true),
            Ok(_) => Ok(false),
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether the path is one of [`INTERFACE_FILES`] of an interface.
fn is_of_interface(path: &Path) -> bool {
    let Ok(rest) = path.strip_prefix("/sys/class/net") else { return false };
    let parts: Vec<&str> = rest.iter().filter_map(|part| part.to_str()).collect();
    matches!(*parts, [interface, file] if is_name(interface) && INTERFACE_FILES.contains(&file))
}

/// Whether the kernel would take it for the name of an interface.
pub(crate) fn is_name(interface: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
    (1..=15).contains(&interface.len())
        && interface.bytes().all(plain)
        && !matches!(interface, "." | "..")
}

/// Whether two values mean the same: the kernel has tabs between several numbers.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

/// The system's words for people, without their number.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => Errno::from_raw(number).desc().to_owned(),
        None => error.to_string(),
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
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(errno.into()),
    }
}
