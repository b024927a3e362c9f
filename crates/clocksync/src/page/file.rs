//! The page's file: made whole under its name, written by one process at a time, taken over from
//! one that died.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use loopscope_clock::layout::{MAGIC, Page, RETIRED, SIZE, VERSION};
use loopscope_time::Frequency;
use loopscope_time::source::counter_kind;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Uid;

use super::mapping::Mapping;
use crate::probe::entropy;

/// Why there is no page to write.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// A file cannot be made, opened or replaced.
    #[error("cannot make the clock page {}: {error}", path.display())]
    Io {
        /// The page's.
        path: PathBuf,
        /// What the kernel says.
        #[source]
        error: io::Error,
    },
    /// Another process writes it.
    #[error(
        "the clock page {} is written by another service; end that one, or give this one a page of \
         another name",
        path.display()
    )]
    Taken {
        /// The page's.
        path: PathBuf,
    },
    /// What is there is no page.
    #[error(
        "{} is no clock page and is left alone; remove it, or give the page another name",
        path.display()
    )]
    Foreign {
        /// The page's.
        path: PathBuf,
    },
}

/// A page, and the lock that makes this process its only writer.
#[derive(Debug)]
pub(super) struct Owned {
    pub mapping: Mapping,
    _lock: Flock<File>,
}

/// The page at `path` as a writer before has left it, if this boot and version can go on with it;
/// else a new one in its place.
pub(super) fn own(path: &Path, frequency: Frequency) -> Result<Owned, PageError> {
    let failed = |error| PageError::Io { path: path.into(), error };
    let lock = lock(path).map_err(failed)?.ok_or_else(|| PageError::Taken { path: path.into() })?;
    let boot_id = boot_id().map_err(failed)?;
    if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
        remove_foreign(path).map_err(failed)?;
    }
    let left = match open(path).map_err(failed)? {
        Some(file) if !begins_as_page(&file) => {
            return Err(PageError::Foreign { path: path.into() });
        }
        left => left,
    };
    let old = match left {
        Some(file) => Mapping::of(&file).map_err(failed)?,
        None => None,
    };
    let mapping = match old {
        Some(old) if continues(old.page(), &boot_id, frequency) => old,
        old => {
            let made = make(path, &boot_id, frequency).map_err(failed)?;
            // Its readers look for the new one, which is there by now. One of another layout
            // expires.
            if let Some(old) = old.filter(|old| is_current_version(old.page())) {
                retire(old.page());
            }
            made
        }
    };
    Ok(Owned { mapping, _lock: lock })
}

/// Says to readers that nobody will write here any more.
pub(super) fn retire(page: &Page) {
    // Release pairs with the readers' acquire load; there is nothing that they read after it.
    page.current.store(RETIRED, Ordering::Release);
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Attempts to have a name that another user takes again and again.
const TRIES: u32 = 100;

/// Removes what another user has made under a name of the service's, which in /dev/shm everybody
/// can: he could hold its lock, or write to it.
fn remove_foreign(path: &Path) -> io::Result<()> {
    let metadata = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata?,
    };
    let owner = metadata.uid();
    if owner == Uid::effective().as_raw() {
        return Ok(());
    }
    let removed = if metadata.is_dir() { put_aside(path, owner) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io::Error::other(format!(
            "user {owner} has made {} and it cannot be removed ({error}); have that user remove it, \
             or start the service as root, or give the page another name",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Takes another user's directory away from a name without a look into it: that user may go on
/// changing what it holds. One that is not empty is renamed, to a name that nobody can have taken
/// before; where the sticky bit is set, as in /dev/shm, only its owner and root may.
fn put_aside(path: &Path, owner: u32) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            fs::rename(path, beside(path, &format!(".of-user-{owner}-{:016x}", entropy()?)))
        }
        removed => removed,
    }
}

/// A lock next to the page that its owner alone can take: on the page itself, which everyone may
/// open, anyone could. `None` where another process has it.
fn lock(path: &Path) -> io::Result<Option<Flock<File>>> {
    let name = beside(path, ".lock");
    for _ in 0..TRIES {
        remove_foreign(&name)?;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(O_NOFOLLOW | O_NONBLOCK)
            .open(&name)?;
        let metadata = file.metadata()?;
        if metadata.uid() != Uid::effective().as_raw() {
            continue;
        }
        if metadata.mode() & 0o077 != 0 {
            // A process that may open the file may lock it.
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        let lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
            Err((_, error)) => return Err(error.into()),
        };
        // A process that removes the file holds its lock, and then waiting for the lock was in
        // vain.
        let (ours, there) = (lock.metadata()?, fs::metadata(&name));
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
            return Ok(Some(lock));
        }
    }
    Err(io::Error::other(format!("another user makes {} again and again", name.display())))
}

/// What is at `path`; `None` where there is nothing, or what another user has made there, who may
/// go on writing to it: it has to be replaced.
fn open(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    // O_NONBLOCK: a FIFO is no reason to wait.
    let flags = O_NOFOLLOW | O_NONBLOCK;
    match options.read(true).write(true).custom_flags(flags).open(path) {
        Ok(file) => Ok((file.metadata()?.uid() == Uid::effective().as_raw()).then_some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if the file begins as a page, of any version.
fn begins_as_page(file: &File) -> bool {
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, 0).is_ok() && u64::from_le_bytes(magic) == MAGIC
}

// Relaxed throughout: a page has its header before it has its name.

fn is_current_version(page: &Page) -> bool {
    page.version_and_size.load(Ordering::Relaxed) == version_and_size()
}

fn continues(page: &Page, boot_id: &[u64; 2], frequency: Frequency) -> bool {
    is_current_version(page)
        && page.boot_id.each_ref().map(|word| word.load(Ordering::Relaxed)) == *boot_id
        && page.frequency.load(Ordering::Relaxed) == frequency.hz()
        && page.counter.load(Ordering::Relaxed) == counter_kind() as u64
        && page.current.load(Ordering::Relaxed) != RETIRED
}

const fn version_and_size() -> u64 {
    VERSION as u64 | (SIZE as u64) << 32
}

fn make(path: &Path, boot_id: &[u64; 2], frequency: Frequency) -> io::Result<Mapping> {
    let (new, mut tries) = (beside(path, ".new"), 0);
    let file = loop {
        remove_foreign(&new)?;
        // What a killed writer left; the lock is ours.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        tries += 1;
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&new) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => {}
            made => break made?,
        }
    };
    file.set_len(SIZE as u64)?;
    let mapping = Mapping::of(&file)?.ok_or_else(|| io::Error::other("the file has no room"))?;
    let page = mapping.page();
    let store = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed);
    let made = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    let made = std::time::Duration::from(made).as_nanos();
    store(&page.version_and_size, version_and_size());
    store(&page.boot_id[0], boot_id[0]);
    store(&page.boot_id[1], boot_id[1]);
    store(&page.frequency, frequency.hz());
    store(&page.counter, counter_kind() as u64);
    store(&page.made, u64::try_from(made).unwrap_or(u64::MAX));
    store(&page.magic, MAGIC);
    // Whatever the umask.
    file.set_permissions(Permissions::from_mode(0o644))?;
    fs::rename(&new, path)?;
    Ok(mapping)
}

/// The kernel's boot id, its bytes in the order of the text.
fn boot_id() -> io::Result<[u64; 2]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).map_err(io::Error::other)?;
    let [a, b] =
        [number >> 64, number & u128::from(u64::MAX)].map(|half| (half as u64).swap_bytes());
    Ok([a, b])
}
