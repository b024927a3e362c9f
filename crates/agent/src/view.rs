//! What a host's programs see of the machine: devices in `/sys` are those of its network namespace,
//! names in `/etc/hosts` those of the experiment, and memory in `/dev/shm` and of System V is its own,
//! so that hosts have nothing but their network in common. Other files are the machine's.
//!
//! All of it is in a mount namespace and an IPC namespace, and ends with their last process.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc::O_PATH;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};

const NONE: Option<&Path> = None;
const SYS: &str = "/sys";
const MEMORY: &str = "/dev/shm";
const NAMES: &str = "/etc/hosts";

/// Gives the calling process, which has one thread and is in the host's network namespace, and all
/// that it starts a view of their own. `names` is what they read as `/etc/hosts`.
pub(crate) fn separate(names: Option<&Path>) -> io::Result<()> {
    let wrong =
        |what: &str, error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    let flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC;
    unshare(flags).map_err(|e| wrong("new mount and IPC namespaces", e.into()))?;
    // What is mounted here stays here; what the machine unmounts goes here too.
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)
        .map_err(|e| wrong("mounts of its own", e.into()))?;
    own_devices().map_err(|e| wrong(SYS, e))?;
    if Path::new(MEMORY).is_dir() {
        let (flags, options) = (MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=1777"));
        mount(Some("tmpfs"), MEMORY, Some("tmpfs"), flags, options)
            .map_err(|e| wrong(MEMORY, e.into()))?;
    }
    if let Some(names) = names {
        mount(Some(names), NAMES, NONE, MsFlags::MS_BIND, NONE).map_err(|errno| {
            let hint = if errno == Errno::ENOENT { " (an empty one will do)" } else { "" };
            wrong(&format!("{NAMES}{hint}"), errno.into())
        })?;
    }
    Ok(())
}

/// Mounts a `/sys` that shows the network namespace, with everything in it that was mounted in the
/// one before.
fn own_devices() -> io::Result<()> {
    let within = mounts_below(&fs::read_to_string("/proc/self/mountinfo")?, Path::new(SYS));
    let read_only = statvfs(SYS)?.flags().contains(FsFlags::ST_RDONLY);
    let before = OpenOptions::new().read(true).custom_flags(O_PATH).open(SYS)?;
    let mut flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    flags.set(MsFlags::MS_RDONLY, read_only);
    mount(Some("sysfs"), SYS, Some("sysfs"), flags, NONE)?;
    for path in within {
        let from = format!("/proc/self/fd/{}/{}", before.as_raw_fd(), path.display());
        let to = Path::new(SYS).join(&path);
        match mount(Some(from.as_str()), &to, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE) {
            // Its place was a device of another network namespace.
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => {
                let error = io::Error::from(errno);
                return Err(io::Error::new(error.kind(), format!("{}: {error}", to.display())));
            }
        }
    }
    Ok(())
}

/// Where something is mounted below `folder`, without what is below another of them; from
/// proc_pid_mountinfo(5).
fn mounts_below(mountinfo: &str, folder: &Path) -> Vec<PathBuf> {
    let places = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    let mut places: Vec<PathBuf> = places
        .filter_map(|place| Path::new(place).strip_prefix(folder).ok())
        .filter(|place| !place.as_os_str().is_empty())
        .map(Path::to_owned)
        .collect();
    places.sort();
    let mut outermost: Vec<PathBuf> = vec![];
    for place in places {
        if !outermost.iter().any(|outer| place.starts_with(outer)) {
            outermost.push(place);
        }
    }
    outermost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_in_mounts_come_with_them() {
        let text = "22 1 0:20 / /sys rw shared:7 - sysfs sysfs rw\n\
                    23 22 0:21 / /sys/kernel/debug rw - debugfs debugfs rw\n\
                    24 23 0:22 / /sys/kernel/debug/tracing rw - tracefs tracefs rw\n\
                    25 22 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
                    26 1 0:24 / /system rw - tmpfs tmpfs rw\n\
                    27 22 0:21 / /sys/kernel/debug rw - debugfs debugfs rw\n";
        let found = mounts_below(text, Path::new("/sys"));
        assert_eq!(found, ["fs/cgroup", "kernel/debug"].map(PathBuf::from));
    }
}
