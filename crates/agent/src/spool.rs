//! Spools: what runs on this machine measured for a desk that may not have collected it yet.
//!
//! Each is a folder in [`folder`], named after its run and host. It survives the agent and a reset
//! of what was made. The agent holds a shared lock on it while it lives.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;

use crate::reset::Report;
use crate::testbed::is_name;

/// What the names of cached programs' folders begin with.
const KIT: &str = "kit-";

/// A spool.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct Spool {
    /// The name of its folder.
    pub name: String,
    /// The bytes of the files in it.
    pub bytes: u64,
    /// Whether an agent still writes there.
    pub in_use: bool,
}

/// The folder of this user's spools; `None`: the user has no home folder.
pub fn folder() -> Option<PathBuf> {
    Some(place("XDG_STATE_HOME", ".local/state")?.join("runs"))
}

/// The folder of the programs that desks have sent; `None`: the user has no home folder.
pub fn cache() -> Option<PathBuf> {
    place("XDG_CACHE_HOME", ".cache")
}

/// The XDG base directory specification's rule; a variable that is empty is as one not set.
fn place(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = match set(variable) {
        Some(base) => PathBuf::from(base),
        None => Path::new(&set("HOME")?).join(below_home),
    };
    Some(base.join("loopscope"))
}

/// The spools in a folder, by name.
pub fn list(folder: &Path) -> io::Result<Vec<Spool>> {
    let mut found = vec![];
    for path in folders(folder, "")? {
        let in_use = lock(&path)?.is_none();
        found.push(Spool { name: name_of(&path), bytes: bytes_of(&path)?, in_use });
    }
    Ok(found)
}

/// Removes the spools in a folder that no agent writes to.
pub fn remove(folder: &Path, report: &mut Report) -> io::Result<()> {
    for path in folders(folder, "")? {
        let what = path.display();
        // Held meanwhile, so that no agent begins to write there.
        match lock(&path)? {
            None => report.in_use.push(format!("{what}, which an agent writes to")),
            Some(_lock) => match bytes_of(&path).and_then(|bytes| {
                fs::remove_dir_all(&path)?;
                Ok(bytes)
            }) {
                Ok(bytes) => report.removed.push(format!("{what}, {bytes} bytes of measured data")),
                Err(error) => report.problems.push(format!("cannot remove {what}: {error}")),
            },
        }
    }
    Ok(())
}

/// Removes the cached programs, unless runs use them.
pub fn remove_cache(cache: &Path, runs_go_on: bool, report: &mut Report) -> io::Result<()> {
    for path in folders(cache, KIT)? {
        let what = path.display();
        if runs_go_on {
            report.in_use.push(format!("{what}, which runs may still need"));
            continue;
        }
        match fs::remove_dir_all(&path) {
            Ok(()) => report.removed.push(format!("{what}, cached programs")),
            Err(error) => report.problems.push(format!("cannot remove {what}: {error}")),
        }
    }
    Ok(())
}

/// Folders in a folder whose names are loopscope's and begin so, sorted.
fn folders(above: &Path, prefix: &str) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(above) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(error),
    };
    let mut found = vec![];
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let fits = name.to_str().is_some_and(|name| is_name(name) && name.starts_with(prefix));
        // A link is none.
        if fits && entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The lock that no agent holds; `None`: one does.
fn lock(path: &Path) -> io::Result<Option<Flock<File>>> {
    match Flock::lock(File::open(path)?, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(errno.into()),
    }
}

fn bytes_of(folder: &Path) -> io::Result<u64> {
    let (mut bytes, mut left) = (0, vec![folder.to_owned()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() {
                bytes += entry.metadata()?.len();
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_writes_to_stays_and_the_rest_goes_without_following_links() {
        let folder = std::env::temp_dir().join(format!("ls-spool-{}", std::process::id()));
        let (used, free) = (folder.join("a1-h1"), folder.join("b2-h1"));
        for path in [&used, &free] {
            fs::create_dir_all(path.join("hosts")).unwrap();
            fs::write(path.join("hosts/log"), "12345").unwrap();
        }
        let elsewhere = folder.join(".elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, folder.join("c3-h1")).unwrap();
        let held = Flock::lock(File::open(&used).unwrap(), FlockArg::LockShared).unwrap();
        let spool = |name: &str, in_use| Spool { name: name.to_owned(), bytes: 5, in_use };
        assert_eq!(list(&folder).unwrap(), [spool("a1-h1", true), spool("b2-h1", false)]);
        let mut report = Report::default();
        remove(&folder, &mut report).unwrap();
        assert!(used.exists() && !free.exists() && elsewhere.exists());
        assert_eq!((report.removed.len(), report.in_use.len()), (1, 1));
        drop(held);
        fs::remove_dir_all(folder).unwrap();
    }
}
