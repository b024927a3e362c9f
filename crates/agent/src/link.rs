//! Settings of an interface of the calling thread's network namespace, by rtnetlink.
//!
//! sysfs has them too, as files of the namespace that it was mounted in, which may be another one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use loopscope_netlink::{Connection, Link, set_mtu, set_queue};

/// The names of these settings.
pub(crate) const SETTINGS: [&str; 2] = ["mtu", "txqueuelen"];

/// The value of one of [`SETTINGS`].
pub(crate) fn read(interface: &str, setting: &str) -> io::Result<String> {
    let link = find(interface)?;
    let value = match setting {
        "mtu" => link.mtu,
        "txqueuelen" => link.queue,
        _ => None,
    };
    value.map(|value| value.to_string()).ok_or(io::ErrorKind::Unsupported.into())
}

/// Gives one of [`SETTINGS`] a value.
pub(crate) fn write(interface: &str, setting: &str, value: &str) -> io::Result<()> {
    let value = value.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let change = match setting {
        "mtu" => set_mtu(interface, value),
        "txqueuelen" => set_queue(interface, value),
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    Connection::open()?.make(vec![change])
}

/// Whether there is such an interface.
pub(crate) fn exists(interface: &str) -> bool {
    find(interface).is_ok()
}

/// The interface's folder in sysfs, unless that shows another network namespace.
pub(crate) fn folder(interface: &str) -> Option<PathBuf> {
    let folder = Path::new("/sys/class/net").join(interface);
    let shown = fs::read_to_string(folder.join("address")).ok()?;
    let own = find(interface).ok()?.address.unwrap_or_default();
    let own: Vec<String> = own.iter().map(|byte| format!("{byte:02x}")).collect();
    (shown.trim() == own.join(":")).then_some(folder)
}

fn find(interface: &str) -> io::Result<Link> {
    Connection::open()?.links()?.remove(interface).ok_or_else(|| Errno::ENODEV.into())
}
