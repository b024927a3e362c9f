//! The things that a run can make on a machine: how each kind is named, recognised and undone.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use loopscope_kernel::tracefs::{self, Instance};
use serde::{Deserialize, Serialize};

use crate::cgroup;
use crate::namespace;
use crate::processes::Identity;
use crate::setting::{Setting, is_same};

/// Prefixes of the names of directories and namespaces that loopscope makes.
pub(super) const PREFIXES: [&str; 2] = ["ls-", "loopscope-"];

/// The prefix of all names that run `run` makes on a machine. All of its id: runs of a sweep differ
/// in its beginning only, and repeats in its end.
pub fn prefix(run: &str) -> String {
    format!("ls-{run}")
}

/// One change of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Entry {
    /// The processes that are responsible for this run. First in every ledger.
    Owner {
        /// The process that started the agent.
        controller: Identity,
        /// The agent that made the ledger.
        agent: Identity,
        /// When it was made: `/proc/sys/kernel/random/boot_id`.
        boot: String,
    },
    /// A named network namespace. Its links end with it, and what was set on them.
    Namespace {
        /// The name that `ip netns` shows.
        name: String,
    },
    /// A process; written by itself between fork and exec.
    Process {
        /// Its purpose.
        what: String,
        /// Its number. For people: undoing goes by namespace and [`RUN_MARK`](super::RUN_MARK).
        pid: i32,
    },
    /// A directory outside the run directory.
    Directory {
        /// Absolute.
        path: PathBuf,
    },
    /// A cgroup of version 2, with those below it.
    Cgroup {
        /// Absolute.
        path: PathBuf,
    },
    /// A mount of the hierarchy of cgroups of version 2, or of tracefs.
    Mount {
        /// Absolute.
        path: PathBuf,
    },
    /// An instance of the kernel's tracing.
    TraceInstance {
        /// Its folder, absolute.
        path: PathBuf,
    },
    /// A setting of the machine that was there before.
    Setting {
        /// The setting.
        setting: Setting,
        /// Its value before.
        before: String,
        /// The value that it was given.
        set: String,
    },
    /// A Unix socket.
    Socket {
        /// Absolute.
        path: PathBuf,
    },
    /// A namespace or directory that is this run's only if it has this mark, which it had before it
    /// got its name: a namespace's cookie, a directory's inode.
    Marked {
        /// The entry that has the name.
        entry: Box<Entry>,
        /// See above.
        mark: u64,
    },
    /// Takes back an earlier entry: somebody else was first to make it.
    NotOurs {
        /// The entry.
        entry: Box<Entry>,
    },
}

impl Entry {
    /// How a person would call it.
    pub(super) fn describe(&self) -> String {
        match self {
            Entry::Owner { agent, .. } => format!("agent {}", agent.pid),
            Entry::Namespace { name } => format!("namespace {name}"),
            Entry::Process { what, pid } => format!("process {pid} ({what})"),
            Entry::Directory { path } => format!("directory {}", path.display()),
            Entry::Cgroup { path } => format!("cgroup {}", path.display()),
            Entry::Mount { path } => format!("mount {}", path.display()),
            Entry::TraceInstance { path } => format!("kernel tracing {}", path.display()),
            Entry::Setting { setting, set, .. } => format!("{}: {set}", setting.describe()),
            Entry::Socket { path } => format!("socket {}", path.display()),
            Entry::Marked { entry, .. } => entry.describe(),
            Entry::NotOurs { entry } => format!("{}, of somebody else", entry.describe()),
        }
    }

    /// Whether loopscope makes such things: `reset` removes nothing else, even if another program
    /// wrote the ledger.
    pub(super) fn is_ours(&self) -> bool {
        let named = |name: &str| {
            // A run's name and a host's, which together may be longer than each may be.
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            name.bytes().all(plain) && PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        };
        let plain = |path: &Path| {
            let normal = |part| matches!(part, Component::RootDir | Component::Normal(_));
            path.is_absolute() && path.components().all(normal)
        };
        match self {
            Entry::Owner { .. } | Entry::Process { .. } | Entry::NotOurs { .. } => true,
            Entry::Marked { entry, .. } => {
                let marked = matches!(**entry, Entry::Namespace { .. } | Entry::Directory { .. });
                marked && entry.is_ours()
            }
            // A host's clock network may be in a namespace of its own (testbed.rs).
            Entry::Namespace { name } => named(name.strip_suffix("~clock").unwrap_or(name)),
            Entry::Directory { path } | Entry::Cgroup { path } | Entry::Mount { path } => {
                plain(path) && path.file_name().and_then(|name| name.to_str()).is_some_and(named)
            }
            Entry::TraceInstance { path } => {
                let parent = path.parent().and_then(Path::file_name);
                let name = path.file_name().and_then(|name| name.to_str());
                plain(path) && parent.is_some_and(|p| p == "instances") && name.is_some_and(named)
            }
            Entry::Setting { setting, .. } => setting.is_ours(),
            Entry::Socket { path } => plain(path),
        }
    }

    pub(super) fn exists(&self) -> bool {
        match self {
            Entry::Owner { .. } | Entry::Process { .. } | Entry::NotOurs { .. } => false,
            Entry::Marked { entry, .. } => entry.exists(),
            Entry::Namespace { name } => namespace::path(name).exists(),
            Entry::Directory { path }
            | Entry::Socket { path }
            | Entry::Cgroup { path }
            | Entry::TraceInstance { path } => path.symlink_metadata().is_ok(),
            // Another mount there is not in the way.
            Entry::Mount { .. } | Entry::Setting { .. } => false,
        }
    }

    /// The thing that has the name, without its mark.
    pub(super) fn unmarked(&self) -> &Entry {
        match self {
            Entry::Marked { entry, .. } => entry,
            other => other,
        }
    }

    /// Whether it can be there still when the machine has started again.
    pub(super) fn outlives_boot(&self) -> bool {
        matches!(self.unmarked(), Entry::Directory { .. } | Entry::Socket { .. })
    }

    /// Why it is left as it is, if somebody else has changed it meanwhile.
    pub(super) fn why_left(&self) -> Option<String> {
        let Entry::Setting { setting, before, set } = self else { return None };
        let now = setting.read().ok()?;
        let ours = [before, set].iter().any(|value| is_same(&now, value));
        (!ours).then(|| {
            format!(
                "{}: somebody has set it to {now} after loopscope had set it to {set}; before it \
                 was {before}",
                setting.describe()
            )
        })
    }

    /// Undoes it; `false` if there was nothing to undo.
    pub(super) fn undo(&self) -> io::Result<bool> {
        let removal = match self {
            // Ended by `kill` below.
            Entry::Owner { .. } | Entry::Process { .. } | Entry::NotOurs { .. } => {
                return Ok(false);
            }
            Entry::Marked { entry, mark } => match &**entry {
                Entry::Namespace { name } => return namespace::delete_marked(name, *mark),
                Entry::Directory { path } => match path.symlink_metadata() {
                    Ok(metadata) if metadata.ino() == *mark => remove_own_directory(path),
                    Ok(_) => return Ok(false),
                    Err(error) => Err(error),
                },
                _ => return Ok(false),
            },
            Entry::Namespace { name } => return namespace::delete(name),
            Entry::Directory { path } => remove_own_directory(path),
            Entry::Cgroup { path } if cgroup::is_group(path) => {
                return cgroup::remove(path);
            }
            Entry::Cgroup { .. } => return Ok(false),
            Entry::Mount { path } if tracefs::is_tracefs(path) => return tracefs::unmount(path),
            Entry::Mount { path } => return cgroup::unmount(path),
            Entry::TraceInstance { path } if tracefs::is_tracefs(path) => {
                return Instance::remove(path);
            }
            Entry::TraceInstance { .. } => return Ok(false),
            Entry::Setting { setting, before, set } => return setting.restore(before, set),
            Entry::Socket { path } => match path.symlink_metadata() {
                Ok(metadata) if metadata.file_type().is_socket() => fs::remove_file(path),
                Ok(_) => return Ok(false),
                Err(error) => Err(error),
            },
        };
        match removal {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            other => other.map(|()| true),
        }
    }
}

fn remove_own_directory(path: &Path) -> io::Result<()> {
    let metadata = path.symlink_metadata()?;
    if !metadata.is_dir() || metadata.uid() != nix::unistd::geteuid().as_raw() {
        let what = "it is not a directory of this user any more; it is left alone";
        return Err(io::Error::other(what));
    }
    if path.parent().is_some_and(|above| above.metadata().is_ok_and(|a| a.dev() != metadata.dev()))
    {
        let what = "something is mounted on it; it is left alone";
        return Err(io::Error::other(what));
    }
    fs::remove_dir_all(path)
}
