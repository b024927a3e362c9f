//! Named network namespaces, as `ip netns` knows them: files that a namespace is mounted on.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sched::{CloneFlags, setns};

/// The file of the namespace `name`.
pub fn path(name: &str) -> PathBuf {
    PathBuf::from("/run/netns").join(name)
}

/// Moves the calling thread, and the threads that it starts from now on, into the namespace.
pub fn enter(name: &str) -> io::Result<()> {
    setns(File::open(path(name))?, CloneFlags::CLONE_NEWNET)?;
    Ok(())
}

/// Removes the name, as `ip netns del` does; the namespace itself ends with its last process.
/// `false` if there was none.
pub fn delete(name: &str) -> io::Result<bool> {
    let path = path(name);
    match umount2(&path, MntFlags::MNT_DETACH) {
        // EINVAL: a plain file, left by a crash between creating it and mounting on it.
        Ok(()) | Err(Errno::EINVAL) => {}
        Err(Errno::ENOENT) => return Ok(false),
        Err(errno) => return Err(errno.into()),
    }
    std::fs::remove_file(&path)?;
    Ok(true)
}
