//! What a recorder leaves for the process that resumes its recording after a kill: the journal,
//! which says what is recorded and where, and locks, which the system releases however the recorder
//! ends.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use loopscope_time::Frequency;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::alive::started;
use crate::folder::Folder;
use crate::{Error, Identity, StreamSpec};

/// Where the programs are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Place {
    /// In a runtime directory of the recorder's own.
    Own(PathBuf),
    /// In the process directories of the program that was attached to.
    Process(Vec<PathBuf>),
}

/// How a recording began.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Begun {
    pub(crate) place: Place,
    pub(crate) streams: Vec<StreamSpec>,
    host: String,
    clock_uuid: [u8; 16],
    trace_uuid: [u8; 16],
    /// In Hz.
    frequency: u64,
}

impl Begun {
    pub(crate) fn new(place: Place, streams: &[StreamSpec], identity: &Identity) -> Begun {
        let Identity { host, clock_uuid, trace_uuid, frequency } = identity.clone();
        let frequency = frequency.hz();
        Begun { place, streams: streams.to_vec(), host, clock_uuid, trace_uuid, frequency }
    }

    /// `None` where no recorder can have written it.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let Begun { host, clock_uuid, trace_uuid, frequency, .. } = self.clone();
        let frequency = Frequency::from_hz(frequency)?;
        Some(Identity { host, clock_uuid, trace_uuid, frequency })
    }
}

/// A process, which no later one of its number is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) pid: u32,
    started: u64,
}

impl Program {
    /// The process that has this number now.
    pub(crate) fn of(pid: u32) -> Option<Program> {
        started(pid).map(|started| Program { pid, started })
    }

    pub(crate) fn runs(self) -> bool {
        started(self.pid) == Some(self.started)
    }
}

/// Held by the recorder of an output or of a runtime directory.
pub(crate) type Lock = Flock<File>;

/// `None` where another process has it.
pub(crate) fn lock(path: &Path) -> io::Result<Option<Lock>> {
    lock_file(File::open(path)?)
}

pub(crate) fn lock_file(file: File) -> io::Result<Option<Lock>> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(errno.into()),
    }
}

/// In a runtime directory: the absolute path of the output, locked by the recorder.
pub(crate) const OWNER: &str = "owner";
const LONGEST_PATH: u64 = libc::PATH_MAX as u64;

/// Makes a runtime directory the own one of the recording to `out`.
pub(crate) fn own(runtime_dir: &Path, out: &Path) -> Result<Lock, Error> {
    let path = runtime_dir.join(OWNER);
    let fresh = runtime_dir.join(".owner");
    let own = || {
        let mut file = File::create_new(&fresh)?;
        file.write_all(std::path::absolute(out)?.as_os_str().as_bytes())?;
        // No other process may find the file unlocked while this process runs.
        let lock = lock_file(file)?.ok_or(Errno::EWOULDBLOCK)?;
        std::fs::rename(&fresh, &path)?;
        Ok(lock)
    };
    own().map_err(Error::file("make", &path))
}

/// The output directory that a runtime directory belongs to.
pub(crate) fn owner(runtime: &Folder) -> io::Result<PathBuf> {
    let mut path = Vec::new();
    runtime.read(OsStr::new(OWNER))?.take(LONGEST_PATH).read_to_end(&mut path)?;
    Ok(OsString::from_vec(path).into())
}

/// Suffix of the name of a runtime directory in which programs can make nothing more.
const CLOSED: &str = "-closed";

/// The name of a runtime directory once programs can make nothing more in it.
pub(crate) fn closed(runtime_dir: &Path) -> PathBuf {
    let mut closed = runtime_dir.as_os_str().to_owned();
    closed.push(CLOSED);
    closed.into()
}

/// Whether a runtime directory has that name.
pub(crate) fn is_closed(runtime_dir: &Path) -> bool {
    runtime_dir.to_string_lossy().ends_with(CLOSED)
}
