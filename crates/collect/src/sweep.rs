//! Removing what killed programs left where they waited to be attached to, and what killed
//! recorders left.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use loopscope_trace::layout::FREE;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::sys::statvfs::statvfs;
use nix::unistd::geteuid;

use crate::alive::has_heirs;
use crate::folder::Folder;
use crate::handover::{OWNER, Place, Program, closed, lock_file, owner};
use crate::journal::Journal;
use crate::process::{Process, process_of};

/// A collector that was attached takes what there is far sooner.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the names of recorders' own runtime directories begin with.
pub(crate) const RUNTIME_PREFIX: &str = "loopscope-";

/// Less room than this is too little for the buffers of a program or two.
const LITTLE: u64 = 16 << 20;

/// Where they may lie: in memory, or where temporary files do.
fn places() -> [PathBuf; 2] {
    [PathBuf::from("/dev/shm"), std::env::temp_dir()]
}

/// Bytes that there is room for.
fn room(dir: &Path) -> Option<u64> {
    let status = statvfs(dir).ok()?;
    // A file system without blocks of its own has no limit.
    let limited = status.blocks() != 0;
    Some(if limited { status.blocks_available() * status.fragment_size() } else { u64::MAX })
}

/// Where to make a directory for programs' buffers: in memory, unless there is no such place or too
/// little room in it, and more where temporary files lie.
pub fn memory() -> PathBuf {
    let [memory, temporary] = places();
    match (room(&memory), room(&temporary)) {
        (Some(here), there) if here >= LITTLE || Some(here) >= there => memory,
        _ => temporary,
    }
}

/// What is to be said of buffers that are not in memory.
pub(crate) fn not_in_memory(runtime_dir: &Path) -> Option<String> {
    let kind = statfs(runtime_dir).ok()?.filesystem_type();
    (kind != TMPFS_MAGIC).then(|| {
        format!(
            "the programs' buffers are in {}, which is not in memory, because /dev/shm has no room: \
             a hit may have to wait for a disk; make room in /dev/shm (a container's has 64 MiB \
             unless it is started with another --shm-size)",
            runtime_dir.display()
        )
    })
}

/// Where this user's programs wait that were started with nothing but the library.
pub fn default_runtime_dir() -> PathBuf {
    PathBuf::from(format!("/dev/shm/loopscope-{}", geteuid()))
}

/// Removes the process directories of programs that have ended; which, and what could not be
/// removed. Programs of another pid namespace are left alone, because nobody here knows of them.
pub fn sweep(runtime_dir: &Path) -> io::Result<(Vec<PathBuf>, Vec<String>)> {
    let (mut removed, mut problems) = (Vec::new(), Vec::new());
    let Some(folder) = own_folder(runtime_dir, &mut problems)? else {
        return Ok((removed, problems));
    };
    let folder = Arc::new(folder);
    let left: Vec<(OsString, bool)> = folder
        .names()?
        .into_iter()
        .filter_map(|name| left_by_the_dead(&folder, &name).map(|used| (name, used)))
        .collect();
    if left.iter().any(|(_, used)| *used) {
        // Somebody may be taking what is there.
        std::thread::sleep(PATIENCE);
    }
    for (name, _) in left {
        let path = runtime_dir.join(&name);
        match folder.remove_child(&name) {
            Ok(()) => removed.push(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => problems.push(format!("cannot remove {}: {error}", path.display())),
        }
    }
    Ok((removed, problems))
}

/// The directory of a name that anybody could have taken; `None` where there is none. That it is
/// another user's is a problem.
fn own_folder(path: &Path, problems: &mut Vec<String>) -> io::Result<Option<Folder>> {
    let folder = match Folder::open_unlinked(path) {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            problems.push(format!("{} is left alone: {error}", path.display()));
            return Ok(None);
        }
    };
    if folder.owner != geteuid().as_raw() {
        let (path, owner) = (path.display(), folder.owner);
        problems.push(format!(
            "{path} is left alone: it belongs to user {owner}, who has taken its name; programs of \
             this user cannot be attached to until it is removed"
        ));
        return Ok(None);
    }
    Ok(Some(folder))
}

/// What killed recorders left.
#[derive(Debug, Default)]
pub struct Left {
    /// Runtime directories that were removed.
    pub removed: Vec<PathBuf>,
    /// Runtime directories of programs that still run, with the output directories of their
    /// recordings and whether these can be resumed.
    pub running: Vec<(PathBuf, PathBuf, bool)>,
    /// What could not be done.
    pub problems: Vec<String>,
}

/// Removes the runtime directories of this user's recorders that were killed, unless any of their
/// programs runs.
pub fn sweep_recordings() -> io::Result<Left> {
    let mut left = Left::default();
    for place in BTreeSet::from(places()).into_iter().filter(|place| place.is_dir()) {
        sweep_place(&place, &mut left)?;
    }
    Ok(left)
}

/// Removes what killed recorders left in a place where temporary directories lie.
fn sweep_place(place: &Path, left: &mut Left) -> io::Result<()> {
    let parent = Folder::open(place)?;
    for name in parent.names()? {
        if !name.to_str().is_some_and(|name| name.starts_with(RUNTIME_PREFIX)) {
            continue;
        }
        // What is no directory, or another user's, is no recorder's of this one.
        let Ok(folder) = parent.child(&name) else { continue };
        if folder.owner != geteuid().as_raw() {
            continue;
        }
        let path = place.join(&name);
        if let Err(error) = sweep_recording(Arc::new(folder), &path, left)
            && error.kind() != io::ErrorKind::NotFound
        {
            left.problems.push(format!("cannot remove {}: {error}", path.display()));
        }
    }
    Ok(())
}

/// How long a recorder may take from making its directory to its first lock.
const BEGINS: Duration = Duration::from_secs(10);

/// Whether a recorder was killed before it had told whose the directory is.
fn is_unfinished(folder: &Folder) -> io::Result<bool> {
    let names = folder.names()?;
    let known = |name: &OsString| ["streams", ".streams", ".owner"].iter().any(|own| name == own);
    let streams = match folder.read(OsStr::new("streams")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        streams => streams?,
    };
    let age = streams.metadata()?.modified()?.elapsed().unwrap_or_default();
    Ok(names.iter().all(known) && age > BEGINS)
}

/// Fails with `NotFound` where the directory is not of a recorder.
fn sweep_recording(folder: Arc<Folder>, dir: &Path, left: &mut Left) -> io::Result<()> {
    if is_unfinished(&folder)? {
        std::fs::remove_dir_all(dir)?;
        left.removed.push(dir.to_owned());
        return Ok(());
    }
    // Held until all is gone: nobody may resume what is being removed.
    let Some(_lock) = lock_file(folder.read(OsStr::new(OWNER))?)? else { return Ok(()) };
    let out = owner(&folder)?;
    let past = Journal::read(&out).ok().filter(|past| {
        // Since then another recording may have taken that place.
        past.begun.as_ref().is_some_and(|begun| match &begun.place {
            Place::Own(own) => own == dir || closed(own) == dir,
            Place::Process(_) => false,
        })
    });
    let mut runs = past.as_ref().and_then(|past| past.program).is_some_and(Program::runs);
    for name in folder.names()? {
        runs |= folder.child(&name).is_ok() && left_by_the_dead(&folder, &name).is_none();
    }
    if runs {
        left.running.push((dir.to_owned(), out, past.is_some()));
        return Ok(());
    }
    // Its name is this user's own in a directory where only the owner removes.
    std::fs::remove_dir_all(dir)?;
    left.removed.push(dir.to_owned());
    Ok(())
}

/// Whether a directory's program has ended, and if so whether it was being recorded.
fn left_by_the_dead(folder: &Arc<Folder>, name: &OsStr) -> Option<bool> {
    process_of(name)?;
    let Ok(Some(process)) = Process::open(folder, name, 0, 0, None) else {
        // Being made, or of another version: nothing is known of it.
        return None;
    };
    let control = process.control.get();
    let used = control.streams.iter().any(|s| s.state.load(Ordering::Acquire) != FREE);
    (process.has_ended() && !has_heirs(control, name)).then_some(used)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_recorder_that_was_killed_before_it_had_begun() {
        let dir = tempfile::tempdir().unwrap();
        let unfinished = || is_unfinished(&Folder::open(dir.path()).unwrap()).unwrap();
        assert!(!unfinished(), "an empty one may be anybody's");
        let streams = File::create(dir.path().join("streams")).unwrap();
        assert!(!unfinished(), "it has just been made");
        streams.set_modified(SystemTime::now() - 2 * BEGINS).unwrap();
        assert!(unfinished());
        std::fs::create_dir(dir.path().join("7-1")).unwrap();
        assert!(!unfinished(), "a program uses it");
    }
}
