//! Directories that other users can write to, by descriptor: no symbolic link is followed in them, and
//! nothing is opened that could stop or mislead who reads it.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Names that are read of one directory: more than any program makes files.
const MOST_NAMES: usize = 1 << 18;

/// Device and inode.
pub(crate) type Id = (u64, u64);

/// The state of a directory: what it is, and the time of its last change in seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    id: Id,
    changed: (i64, i64),
}

/// More than there is between two ticks of the kernel, by which changes of files are stamped.
const TICK: Duration = Duration::from_millis(50);

impl State {
    fn of(status: &FileStat) -> State {
        State {
            id: (status.st_dev, status.st_ino),
            changed: (status.st_mtime, status.st_mtime_nsec),
        }
    }

    /// Whether what changes the directory from now on changes this state. What happens within a
    /// tick of the last change may leave it as it is.
    pub(crate) fn is_final(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let changed = i128::from(self.changed.0) * 1_000_000_000 + i128::from(self.changed.1);
        i128::try_from(now).is_ok_and(|now| now - changed > TICK.as_nanos().cast_signed())
    }
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Folder {
    file: File,
    /// For messages.
    path: PathBuf,
    pub(crate) id: Id,
    pub(crate) owner: u32,
}

const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

impl Folder {
    /// Opens a directory whose path this user has chosen.
    pub(crate) fn open(path: &Path) -> io::Result<Folder> {
        Folder::of(nix::fcntl::open(path, DIRECTORY, Mode::empty())?, path.to_owned())
    }

    /// Opens a directory that another user may have named: none of the path's parts may be a symbolic
    /// link, but for the `root` of a process.
    pub(crate) fn open_unlinked(path: &Path) -> io::Result<Folder> {
        let absolute = std::path::absolute(path)?;
        let (start, rest) = split_root(&absolute);
        let mut folder = Folder::open(&start)?;
        for part in rest.components() {
            let Component::Normal(name) = part else {
                return Err(io::Error::other(format!("{} is not a plain path", path.display())));
            };
            folder = folder.child(name)?;
        }
        Ok(folder)
    }

    fn of(fd: OwnedFd, path: PathBuf) -> io::Result<Folder> {
        let file = File::from(fd);
        let metadata = file.metadata()?;
        let (id, owner) = ((metadata.dev(), metadata.ino()), metadata.uid());
        Ok(Folder { file, path, id, owner })
    }

    /// A directory in this one.
    pub(crate) fn child(&self, name: &OsStr) -> io::Result<Folder> {
        let flags = DIRECTORY | OFlag::O_NOFOLLOW;
        Folder::of(openat(&self.file, name, flags, Mode::empty())?, self.path.join(name))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its state now.
    pub(crate) fn state(&self) -> io::Result<State> {
        Ok(State::of(&fstat(&self.file)?))
    }

    /// The state of a directory in it.
    pub(crate) fn state_of(&self, name: &OsStr) -> io::Result<State> {
        Ok(State::of(&fstatat(&self.file, name, AtFlags::AT_SYMLINK_NOFOLLOW)?))
    }

    /// By descriptor.
    fn place(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// The names in it; an error where there are more than any program makes.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.place())? {
            if names.len() == MOST_NAMES {
                let what = format!("there are more than {MOST_NAMES} files in it");
                return Err(io::Error::other(what));
            }
            names.push(entry?.file_name());
        }
        Ok(names)
    }

    /// Opens a file of the directory's owner.
    pub(crate) fn read(&self, name: &OsStr) -> io::Result<File> {
        self.checked(OpenOptions::new().read(true), name)
    }

    /// The same, for writing too.
    pub(crate) fn write(&self, name: &OsStr) -> io::Result<File> {
        self.checked(OpenOptions::new().read(true).write(true), name)
    }

    fn checked(&self, options: &mut OpenOptions, name: &OsStr) -> io::Result<File> {
        // O_NONBLOCK: nobody waits for the other end of a FIFO.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file =
            options.custom_flags(flags).open(self.place().join(name)).map_err(
                |error| match error.raw_os_error() {
                    Some(libc::ELOOP) => io::Error::other("it is a symbolic link"),
                    _ => error,
                },
            )?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is no ordinary file"));
        }
        if metadata.uid() != self.owner {
            let (owner, other) = (self.owner, metadata.uid());
            let what = format!("it belongs to user {other}, its directory to user {owner}");
            return Err(io::Error::other(what));
        }
        Ok(file)
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.file, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Removes a directory in which there are no others.
    pub(crate) fn remove_child(&self, name: &OsStr) -> io::Result<()> {
        let child = self.child(name)?;
        for file in child.names()? {
            match child.remove(&file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok(unlinkat(&self.file, name, UnlinkatFlags::RemoveDir)?)
    }
}

/// The part of a path up to the `root` of a process, or up to the file system's, and the rest.
fn split_root(path: &Path) -> (PathBuf, PathBuf) {
    let parts: Vec<Component> = path.components().collect();
    let is = |at: usize, text: &str| parts.get(at).is_some_and(|part| part.as_os_str() == text);
    let of_process = is(1, "proc") && is(3, "root");
    let (start, rest) = parts.split_at(if of_process { 4 } else { 1 });
    (start.iter().collect(), rest.iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_ordinary_files_and_no_links() {
        let dir = tempfile::tempdir().unwrap();
        let path = std::fs::canonicalize(dir.path()).unwrap();
        let inner = path.join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("file"), "x").unwrap();
        std::os::unix::fs::symlink("file", inner.join("link")).unwrap();
        std::os::unix::fs::symlink("inner", path.join("other")).unwrap();
        nix::unistd::mkfifo(&inner.join("fifo"), Mode::S_IRUSR).unwrap();
        let folder = Folder::open_unlinked(&inner).unwrap();
        assert!(folder.write(OsStr::new("file")).is_ok());
        let refused = |name: &str| folder.read(OsStr::new(name)).unwrap_err().to_string();
        assert_eq!(refused("link"), "it is a symbolic link");
        assert_eq!(refused("fifo"), "it is no ordinary file");
        assert!(Folder::open_unlinked(&path.join("other")).is_err());
        let all = Folder::open_unlinked(&path).unwrap();
        assert!(all.child(OsStr::new("other")).is_err());
        assert!(all.remove_child(OsStr::new("other")).is_err());
        assert_eq!(folder.names().unwrap().len(), 3);
        all.remove_child(OsStr::new("inner")).unwrap();
        assert!(!inner.exists());
    }

    /// A file is never missed by who lists a directory only where its state is another one than a
    /// final one of before.
    #[test]
    fn no_change_leaves_a_final_state_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("inner")).unwrap();
        let (folder, name) = (Folder::open(dir.path()).unwrap(), OsStr::new("inner"));
        let (mut finals, mut number) = (0, 0);
        let end = std::time::Instant::now() + Duration::from_secs(2);
        while std::time::Instant::now() < end {
            // Pauses around a tick: as early as a state can be final.
            std::thread::sleep(TICK * (number % 3) + Duration::from_micros(500));
            let state = folder.state_of(name).unwrap();
            let is_final = state.is_final();
            std::fs::write(dir.path().join(format!("inner/{number}")), "").unwrap();
            number += 1;
            finals += usize::from(is_final);
            assert!(!is_final || folder.state_of(name).unwrap() != state, "change {number}");
        }
        assert!(finals > 5 && usize::try_from(number).unwrap() > finals, "{finals} of {number}");
        assert_eq!(folder.child(name).unwrap().state().unwrap(), folder.state_of(name).unwrap());
    }

    #[test]
    fn the_root_of_a_process_is_where_a_path_begins() {
        let split = |path| split_root(Path::new(path));
        let (start, rest) = split("/proc/7/root/dev/shm/x");
        assert_eq!(
            (start.as_path(), rest.as_path()),
            ("/proc/7/root".as_ref(), "dev/shm/x".as_ref())
        );
        let (start, rest) = split("/dev/shm");
        assert_eq!((start.as_path(), rest.as_path()), ("/".as_ref(), "dev/shm".as_ref()));
    }
}
