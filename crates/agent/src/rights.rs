//! A few of root's rights for an agent that is otherwise its user's.
//!
//! sudo starts the agent as root. Before it reads anything that a user can choose, it becomes the
//! user who called sudo and keeps two capabilities: NET_ADMIN and NET_RAW. So it opens, writes and
//! removes files, and signals processes, as that user. The programs that it starts lose the
//! capabilities when they are executed (capabilities(7): the ambient and inheritable sets are
//! empty). Two of its own are given them: the guardian, and what emulates links.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{
    AccessFlags, Gid, Uid, User, access, getegid, geteuid, initgroups, setresgid, setresuid,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    set_capabilities, set_keep_capabilities,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::scope;

/// What is kept.
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);
/// udev makes it for everybody; what is done with it needs NET_ADMIN.
const TUN: &str = "/dev/net/tun";
/// The highest priority of SCHED_FIFO (sched(7)).
const HIGHEST_PRIORITY: u64 = 99;

/// The user's side of an agent that has more rights than its user.
#[derive(Clone, Debug)]
pub struct Invoker {
    /// The user's environment variables: sudo passes on none.
    pub variables: BTreeMap<String, String>,
    /// The host side's program that components call `loopscope-host`. The user may write it, so it
    /// never gets a right.
    pub program: PathBuf,
}

impl Invoker {
    /// Reads variables as `/proc/<pid>/environ` has them. Those that are not UTF-8 are left out.
    #[must_use]
    pub fn new(environment: &[u8], program: PathBuf) -> Invoker {
        let texts = environment.split(|&byte| byte == 0).filter_map(|one| str::from_utf8(one).ok());
        let pairs = texts.filter_map(|text| text.split_once('='));
        let variables = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Invoker { variables, program }
    }

    /// A variable of the user's.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.get(name).map(OsString::from)
    }
}

/// Why the rights were not taken.
#[derive(Debug, Error)]
pub enum RightsError {
    /// It was not started as it has to be.
    #[error("this is for sudo to start, as root and for another user")]
    NotBySudo,
    /// There is no such user.
    #[error("there is no user of the number {0}, who called sudo")]
    NoUser(Uid),
    /// The system refused.
    #[error("cannot become the user who called sudo: {0}")]
    System(#[from] io::Error),
}

/// Makes this process the user's who called sudo. It keeps [`KEPT`]; it and what it starts may take
/// real-time priorities, where root may allow that. There must be one thread.
pub fn become_invoker() -> Result<(), RightsError> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let invoker = number("SUDO_UID").zip(number("SUDO_GID"));
    let Some((uid, gid)) = invoker.filter(|&(uid, _)| geteuid().is_root() && uid != 0) else {
        return Err(RightsError::NotBySudo);
    };
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let user = User::from_uid(uid).map_err(io::Error::from)?.ok_or(RightsError::NoUser(uid))?;
    let name = std::ffi::CString::new(user.name).map_err(|_| RightsError::NoUser(uid))?;
    take(uid, gid, &name)?;
    Ok(())
}

fn take(uid: Uid, gid: Gid, name: &std::ffi::CStr) -> io::Result<()> {
    match setrlimit(Resource::RLIMIT_RTPRIO, HIGHEST_PRIORITY, HIGHEST_PRIORITY) {
        // A container's root may lack CAP_SYS_RESOURCE. Then `Rights` says so.
        Ok(()) | Err(Errno::EPERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    set_keep_capabilities(true)?;
    initgroups(name, gid)?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    set_keep_capabilities(false)?;
    let nothing = CapabilitySet::empty();
    let sets = CapabilitySets { effective: KEPT, permitted: KEPT, inheritable: nothing };
    set_capabilities(None, sets)?;
    // Nothing else may be left, whatever the kernel's rules of this are.
    let left = capabilities(None)?;
    if (geteuid(), getegid(), left) != (uid, gid, sets) {
        return Err(io::Error::other("the kernel left it other rights than asked for"));
    }
    Ok(())
}

/// Has the program that the calling process executes next keep its capabilities. It allocates
/// nothing and takes no lock: it is called between fork and exec.
pub(crate) fn pass_on() -> io::Result<()> {
    let sets = capabilities(None)?;
    set_capabilities(None, CapabilitySets { inheritable: KEPT, ..sets })?;
    for capability in [CapabilitySet::NET_ADMIN, CapabilitySet::NET_RAW] {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// What a process may do that an ordinary user may not.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// Change network settings and devices: emulate links, and have interfaces stamp packets.
    pub network: bool,
    /// Open /dev/net/tun, by which links are emulated, or it is not there.
    pub tun: bool,
    /// Take real-time priorities.
    pub realtime: bool,
    /// Why its components would have no cgroups; `None`: they would have some.
    pub no_cgroup: Option<String>,
}

impl Rights {
    /// Those of this process. `may_enter`: whether an agent that it starts would use a scope of the
    /// user's systemd.
    pub fn own(may_enter: bool) -> io::Result<Rights> {
        let effective = capabilities(None)?.effective;
        let (priority, _) = getrlimit(Resource::RLIMIT_RTPRIO)?;
        Ok(Rights {
            network: effective.contains(KEPT),
            tun: access(TUN, AccessFlags::R_OK | AccessFlags::W_OK) != Err(Errno::EACCES),
            realtime: priority > 0 || effective.contains(CapabilitySet::SYS_NICE),
            no_cgroup: scope::refusal(may_enter),
        })
    }
}

/// Checks that nobody but root can change what is at `path`: it, and every folder on the way to it,
/// is root's, and no group and no other user may write to it. The error says which is not.
pub fn check_only_root_writes(path: &Path) -> io::Result<()> {
    let path = path.canonicalize()?;
    for each in path.ancestors() {
        let metadata = each.symlink_metadata()?;
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        if owner != 0 || mode & 0o022 != 0 {
            return Err(io::Error::other(format!(
                "{} is of user {owner} with mode {mode:04o}; it has to be root's, and nobody else \
                 may write to it",
                each.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn variables_are_read_as_the_kernel_has_them() {
        let invoker = Invoker::new(b"A=1\0B=x=y\0NONE\0BAD=\xff\0", PathBuf::new());
        assert_eq!(invoker.variable("B").unwrap(), "x=y");
        assert_eq!(invoker.variables.len(), 2);
    }

    #[test]
    fn what_others_may_write_is_not_roots_alone() {
        check_only_root_writes(Path::new("/proc/version")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("binary");
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o770)).unwrap();
        let error = check_only_root_writes(&file).unwrap_err().to_string();
        assert!(error.contains("binary is of user") && error.contains("mode 0770"), "{error}");
        // The file itself is right now, a folder above it is not.
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o750)).unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let error = check_only_root_writes(&file).unwrap_err().to_string();
        let wrong = ["/binary is of user", "mode 0777"].map(|text| error.contains(text));
        // Where the tests are an ordinary user's, the file is wrong as well.
        assert_eq!(wrong, [!geteuid().is_root(), geteuid().is_root()], "{error}");
    }

    #[test]
    fn only_sudo_starts_it() {
        // Cargo's tests have no SUDO_UID.
        assert!(matches!(become_invoker(), Err(RightsError::NotBySudo)));
    }
}
