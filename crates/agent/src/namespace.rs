//! Named network namespaces, as `ip netns` knows them: files that a namespace is mounted on.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

const FOLDER: &str = "/run/netns";
const NONE: Option<&Path> = None;
/// Socket option that reads a namespace's cookie (asm-generic/socket.h), since Linux 5.14.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// The file of the namespace `name`.
pub fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// The files of the namespaces of a run's hosts, whose names begin with its prefix; without those of
/// what joins them (`net`) and of their clock links (`~clock`).
pub(crate) fn of_hosts(prefix: &str) -> io::Result<Vec<PathBuf>> {
    let start = format!("{prefix}-");
    let mut found = Vec::new();
    for entry in fs::read_dir(FOLDER)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let host = name.strip_prefix(&start);
        if host.is_some_and(|host| host != "net" && !host.contains('~')) {
            found.push(path(&name));
        }
    }
    Ok(found)
}

/// Makes the namespace `name`, as `ip netns add` does, with nothing in it. Of several who try it at
/// the same time one succeeds; the others get [`io::ErrorKind::AlreadyExists`].
pub fn add(name: &str) -> io::Result<()> {
    add_recorded(name, |_| Ok(()))
}

/// Adds a namespace like [`add`]; `record` is given the namespace's cookie before it gets its name, `None` where the
/// kernel has no cookies.
pub(crate) fn add_recorded(
    name: &str,
    record: impl FnOnce(Option<u64>) -> io::Result<()> + Send,
) -> io::Result<()> {
    share_folder()?;
    let path = path(name);
    on_a_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET)?;
        record(cookie().ok())?;
        // Until it is there whole, see `delete_marked`.
        let _lock = lock_folder()?;
        OpenOptions::new().write(true).create_new(true).mode(0o444).open(&path)?;
        let own = Path::new("/proc/thread-self/ns/net");
        mount(Some(own), &path, NONE, MsFlags::MS_BIND, NONE).inspect_err(|_| {
            // Only a file that is no namespace is left.
            let _ = fs::remove_file(&path);
        })?;
        Ok(())
    })
}

/// Whether the namespaces of a host can be made here; none is left.
pub(crate) fn try_out() -> io::Result<()> {
    let flags = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC;
    on_a_thread(|| Ok(unshare(flags)?)).map_err(|error| {
        let hint = "in a container, this needs --privileged";
        io::Error::new(error.kind(), format!("namespaces cannot be made: {error} ({hint})"))
    })
}

fn lock_folder() -> io::Result<Flock<File>> {
    Ok(Flock::lock(File::open(FOLDER)?, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?)
}

/// A number of the calling thread's namespace that no other one has had since the machine started.
#[allow(unsafe_code)]
fn cookie() -> io::Result<u64> {
    let socket = UnixDatagram::unbound()?;
    let mut cookie = 0_u64;
    let mut size = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes, which `cookie` has, and the size itself; both
    // live until it returns, and it keeps neither.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut size,
        )
    };
    Errno::result(outcome)?;
    Ok(cookie)
}

/// The cookie of the namespace `name`; [`io::ErrorKind::InvalidInput`]: the file is no namespace.
pub(crate) fn cookie_of(name: &str) -> io::Result<u64> {
    within(name, cookie)?
}

/// Makes the folder of namespaces a mount of its own that shares what happens in it with other mount
/// namespaces, as `ip netns` does: one that is deleted is else kept by each of them.
fn share_folder() -> io::Result<()> {
    match fs::create_dir(FOLDER) {
        // Whatever the umask: it is everybody's.
        Ok(()) => fs::set_permissions(FOLDER, Permissions::from_mode(0o755))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    // `ip` takes this lock too: two who do it at the same time put one mount on the other.
    let _lock = lock_folder()?;
    let share = || mount(NONE, FOLDER, NONE, MsFlags::MS_SHARED | MsFlags::MS_REC, NONE);
    match share() {
        // No mount point yet.
        Err(Errno::EINVAL) => {
            mount(Some(FOLDER), FOLDER, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
            Ok(share()?)
        }
        other => Ok(other?),
    }
}

/// Moves the calling thread, and the threads that it starts from now on, into the namespace.
pub fn enter(name: &str) -> io::Result<()> {
    Ok(setns(File::open(path(name))?, CloneFlags::CLONE_NEWNET)?)
}

/// The result of `work`, done on a thread in the namespace. Threads that it starts, and sockets
/// that it makes, stay there.
pub fn within<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    // Where there is none, a thread is not needed, which not every process can have (rootless.rs).
    let namespace = File::open(path(name))?;
    on_a_thread(|| {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        Ok(work())
    })
}

/// A thread that enters or makes a namespace stays in it.
fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread for it failed: please report this")))
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
    fs::remove_file(&path)?;
    Ok(true)
}

/// Deletes a namespace like [`delete`], if it has this cookie or no namespace: a file without one was left by a crash
/// between creating it and mounting on it, because who is in between holds the folder's lock.
pub(crate) fn delete_marked(name: &str, cookie: u64) -> io::Result<bool> {
    let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let _lock = match lock_folder() {
        Err(error) if absent(&error) => return Ok(false),
        lock => lock?,
    };
    match cookie_of(name) {
        Ok(found) if found != cookie => Ok(false),
        Err(error) if absent(&error) => Ok(false),
        Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
        _ => delete(name),
    }
}
