//! Removing what killed programs left where they waited to be attached to, and what killed recorders
//! left.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use loopscope_trace::layout::{Control, FREE};
use nix::unistd::geteuid;

use crate::alive::started;
use crate::collector::closed;
use crate::handover::{OWNER, Place, Program, lock, owner};
use crate::journal::Journal;
use crate::mapping::Mapping;

/// A collector that was attached takes what there is far sooner.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the names of recorders' own runtime directories begin with.
pub(crate) const RUNTIME_PREFIX: &str = "loopscope-";

/// Where they lie: in memory, if there is such a place.
pub(crate) fn runtime_parent() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

/// Where this user's programs wait that were started with nothing but the library.
pub fn default_runtime_dir() -> PathBuf {
    PathBuf::from(format!("/dev/shm/loopscope-{}", geteuid()))
}

/// Removes the process directories of programs that have ended; which, and what could not be
/// removed. Programs of another pid namespace are left alone, because nobody here knows of them.
pub fn sweep(runtime_dir: &Path) -> io::Result<(Vec<PathBuf>, Vec<String>)> {
    let entries = match std::fs::read_dir(runtime_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        entries => entries?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    let left: Vec<(PathBuf, bool)> = paths
        .into_iter()
        .filter_map(|path| left_by_the_dead(&path).map(|used| (path, used)))
        .collect();
    if left.iter().any(|(_, used)| *used) {
        // Somebody may be taking what is there.
        std::thread::sleep(PATIENCE);
    }
    let (mut removed, mut problems) = (Vec::new(), Vec::new());
    for (path, _) in left {
        match std::fs::remove_dir_all(&path) {
            Ok(()) => removed.push(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => problems.push(format!("cannot remove {}: {error}", path.display())),
        }
    }
    Ok((removed, problems))
}

/// What killed recorders left.
#[derive(Debug, Default)]
pub struct Left {
    /// Runtime directories that were removed.
    pub removed: Vec<PathBuf>,
    /// Those of programs that still run, with the output directories of their recordings and whether
    /// these can be resumed.
    pub running: Vec<(PathBuf, PathBuf, bool)>,
    /// What could not be done.
    pub problems: Vec<String>,
}

/// Removes the runtime directories of this user's recorders that were killed, unless any of their
/// programs runs.
pub fn sweep_recordings() -> io::Result<Left> {
    let mut left = Left::default();
    for entry in std::fs::read_dir(runtime_parent())? {
        let path = entry?.path();
        let named = path.file_name().and_then(|name| name.to_str());
        let own = std::fs::symlink_metadata(&path)
            .is_ok_and(|it| it.is_dir() && it.uid() == geteuid().as_raw());
        if !own || !named.is_some_and(|name| name.starts_with(RUNTIME_PREFIX)) {
            continue;
        }
        if let Err(error) = sweep_recording(&path, &mut left)
            && error.kind() != io::ErrorKind::NotFound
        {
            left.problems.push(format!("cannot remove {}: {error}", path.display()));
        }
    }
    Ok(left)
}

/// Fails with `NotFound` where the directory is not of a recorder.
fn sweep_recording(dir: &Path, left: &mut Left) -> io::Result<()> {
    // Held until all is gone: nobody may resume what is being removed.
    let Some(_lock) = lock(&dir.join(OWNER))? else { return Ok(()) };
    let out = owner(dir)?;
    let past = Journal::read(&out).ok().filter(|past| {
        // Since then another recording may have taken that place.
        past.begun.as_ref().is_some_and(|begun| match &begun.place {
            Place::Own(own) => own == dir || closed(own) == dir,
            Place::Process(_) => false,
        })
    });
    let mut runs = past.as_ref().and_then(|past| past.program).is_some_and(Program::runs);
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        runs |= entry.file_type()?.is_dir() && left_by_the_dead(&entry.path()).is_none();
    }
    if runs {
        left.running.push((dir.to_owned(), out, past.is_some()));
        return Ok(());
    }
    std::fs::remove_dir_all(dir)?;
    left.removed.push(dir.to_owned());
    Ok(())
}

/// Whether a directory's program has ended, and if so whether it was being recorded.
fn left_by_the_dead(dir: &Path) -> Option<bool> {
    let name = dir.file_name()?.to_str()?;
    let (pid, stamp) = name.split_once('-')?;
    let pid: u32 = pid.parse().ok()?;
    u64::from_str_radix(stamp, 16).ok()?;
    let Ok(Some(control)) = Mapping::<Control>::open(&dir.join("control")) else {
        // Being made, or of another version: nothing is known of it.
        return None;
    };
    let control = control.get();
    let own = std::fs::metadata("/proc/self/ns/pid").ok()?.ino();
    let here = control.pid_namespace.load(Ordering::Relaxed) == own;
    let used = control.streams.iter().any(|s| s.state.load(Ordering::Acquire) != FREE);
    (here && started(pid).is_none()).then_some(used)
}
