//! A machine's agent without root: it enters namespaces that an ordinary user may make.
//!
//! In a user namespace the user is root of new network, mount and PID namespaces, and of nothing
//! else. The agent becomes the first process of the PID namespace, so the kernel ends everything in
//! it when the agent ends, in whatever way; mounts and links go with the last process. What was
//! written to files outside is in the ledger, which the launcher, who stays outside, undoes after an
//! agent that was killed.

use std::fs::{self, File, FileType, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::Path;

use nix::libc::O_PATH;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::WaitStatus;
use nix::unistd::{Uid, getegid, geteuid};
use thiserror::Error;

use crate::launcher;

const NONE: Option<&Path> = None;
const RUN: &str = "/run";
/// The folder of namespaces in it, which has to be this agent's own.
const NAMESPACES: &str = "netns";

/// Why a user cannot make hosts.
#[derive(Debug, Error)]
#[error(
    "cannot make hosts without root: {what}: {source}\n  {remedy}\n  or run loopscope with sudo"
)]
pub struct RootlessError {
    /// What was to be made.
    what: &'static str,
    /// The system's error.
    source: io::Error,
    /// What allows it.
    remedy: &'static str,
}

/// Whether this process can only make network namespaces in a user namespace.
pub fn is_needed() -> bool {
    !geteuid().is_root() || only_user().is_some()
}

/// The user that is root here, as the namespace around knows it; `None` where there are other users
/// too.
pub(crate) fn only_user() -> Option<Uid> {
    only_user_of(&fs::read_to_string("/proc/self/uid_map").ok()?)
}

/// See [`only_user`]; of a map as in user_namespaces(7).
fn only_user_of(map: &str) -> Option<Uid> {
    let numbers: Vec<u32> = map.split_whitespace().map_while(|word| word.parse().ok()).collect();
    match numbers.as_slice() {
        &[0, outside, 1] => Some(Uid::from_raw(outside)),
        _ => None,
    }
}

/// Whether this process numbers processes otherwise than the machine does.
pub fn has_own_numbers() -> bool {
    only_user().is_some()
}

/// Has this process, which has one thread, go on as the first process of namespaces of its own. The
/// process that called this is its launcher; if this one is killed, `undo` is called there.
pub(crate) fn enter(undo: impl FnOnce()) -> Result<(), RootlessError> {
    become_root().map_err(|source| refused("user and PID namespaces", source))?;
    let last = |status| {
        // The kernel has ended all others. There can be no more threads here, nor processes: they would
        // be in the PID namespace, which has ended.
        if let WaitStatus::Signaled(..) = status {
            undo();
        }
    };
    launcher::fork(last)
        .map_err(|source| refused("the first process of a PID namespace", source))?;
    own_mounts()
}

/// A user namespace with the caller as its root, and a PID namespace for the processes that it
/// starts.
fn become_root() -> io::Result<()> {
    let (uid, gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID)?;
    // user_namespaces(7): without it no group can be mapped.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Mounts in which this process's namespaces can have names.
fn own_mounts() -> Result<(), RootlessError> {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
        .map_err(|errno| refused("mount and network namespaces", errno.into()))?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)
        .map_err(|errno| refused("mounts of its own", errno.into()))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, NONE)
        .map_err(|errno| refused("/proc of its own", errno.into()))?;
    own_run().map_err(|source| refused("/run of its own", source))
}

/// Mounts a `/run` that has what the one before had, but for named network namespaces.
fn own_run() -> io::Result<()> {
    let before = OpenOptions::new().read(true).custom_flags(O_PATH).open(RUN)?;
    let entries = fs::read_dir(RUN)?
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name(), entry.file_type()?))
        })
        .collect::<io::Result<Vec<_>>>()?;
    let (flags, options) = (MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=0755"));
    mount(Some("tmpfs"), RUN, Some("tmpfs"), flags, options)?;
    let before = Path::new("/proc/self/fd").join(before.as_raw_fd().to_string());
    for (name, kind) in entries.into_iter().filter(|(name, _)| name != NAMESPACES) {
        let (from, to) = (before.join(&name), Path::new(RUN).join(&name));
        match put(kind, &from, &to) {
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(io::Error::new(error.kind(), format!("{}: {error}", to.display())));
            }
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Has `to` be what `from` is.
fn put(kind: FileType, from: &Path, to: &Path) -> io::Result<()> {
    if kind.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    if kind.is_dir() {
        fs::create_dir(to)?;
    } else {
        File::create(to)?;
    }
    Ok(mount(Some(from), to, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?)
}

fn refused(what: &'static str, source: io::Error) -> RootlessError {
    let remedy = remedy(|path| fs::read_to_string(path).ok());
    RootlessError { what, source, remedy }
}

/// What an administrator can do, by the settings of the machine, which `read` reads.
fn remedy(read: impl Fn(&str) -> Option<String>) -> &'static str {
    let is = |path: &str, value: &str| read(path).is_some_and(|text| text.trim() == value);
    if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "this machine keeps users from making user namespaces; \
         to allow it: sudo sysctl kernel.unprivileged_userns_clone=1"
    } else if is("/proc/sys/user/max_user_namespaces", "0") {
        "this machine keeps users from making user namespaces; \
         to allow it: sudo sysctl user.max_user_namespaces=10000"
    } else if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        "AppArmor takes the rights in user namespaces away; \
         to allow it: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    } else {
        "containers, chroots and systemd services may keep users from making namespaces"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_of_one_user_tells_who_that_is_outside() {
        assert_eq!(only_user_of("         0      65534          1\n"), Some(Uid::from_raw(65534)));
        // The machine's own, one of a container, one in which the user is not root.
        for map in ["0 0 4294967295\n", "0 1000 1\n1 100000 65536\n", "1000 1000 1\n", ""] {
            assert_eq!(only_user_of(map), None, "{map}");
        }
    }

    #[test]
    fn the_setting_that_forbids_it_is_named() {
        for (path, value, remedy_has) in [
            ("/proc/sys/kernel/unprivileged_userns_clone", "0\n", "unprivileged_userns_clone=1"),
            ("/proc/sys/user/max_user_namespaces", "0\n", "max_user_namespaces="),
            (
                "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
                "1\n",
                "apparmor_restrict_unprivileged_userns=0",
            ),
        ] {
            let found = remedy(|asked| (asked == path).then(|| value.to_owned()));
            assert!(found.contains(remedy_has), "{found}");
        }
        // Where all of them allow it, something else does not.
        let allowing =
            |path: &str| Some(if path.contains("apparmor") { "0" } else { "1" }.to_owned());
        assert!(remedy(allowing).contains("chroots"));
    }
}
