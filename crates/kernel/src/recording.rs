//! What a recording of a kernel leaves on disk (schema/kernel.md): `recording.json` before anything
//! is recorded, the pages of each class and processor, and `counts.json` at the end.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use loopscope_time::Frequency;
use serde::{Deserialize, Serialize};

use crate::programs::histograms::Histograms;
use crate::stolen::Stolen;

/// Version of the format.
pub const VERSION: u32 = 1;

/// `recording.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// [`VERSION`].
    pub version: u32,
    /// The host whose clock the events are stamped by.
    pub host: String,
    /// UUID of its counter, in bytes.
    pub clock_uuid: [u8; 16],
    /// Nominal frequency of its counter.
    pub frequency: Frequency,
    /// The text of tracefs's `events/header_page`.
    pub header_page: String,
    /// By name; each has buffers and counts of its own.
    pub classes: BTreeMap<String, Class>,
    /// Tracepoints that were asked for and that this kernel has not, as `GROUP/NAME`.
    pub absent: Vec<String>,
    /// Whether numbers of threads are as the host's programs know them: false in a PID namespace.
    pub threads_known: bool,
}

/// Events that are recorded together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// The descriptions of its tracepoints (`format` files), by `GROUP/NAME`.
    pub formats: BTreeMap<String, String>,
    /// The processors that have a buffer.
    pub processors: Vec<u32>,
    /// Names of the programs that record the class, in place of tracepoints. Its files have
    /// their records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
}

/// `counts.json`: what the kernel has counted when the recording ended, by class and processor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// [`VERSION`].
    pub version: u32,
    /// By class, then by processor.
    pub classes: BTreeMap<String, BTreeMap<u32, BufferCounts>>,
    /// Why more may have happened than is counted, in words.
    pub problems: Vec<String>,
    /// What a hypervisor took of the processors, where any; `None`: there is none, or it is not
    /// counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen: Option<Vec<Stolen>>,
    /// Those that were kept in the kernel, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histograms: Option<Histograms>,
}

/// Events of a class on a processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferCounts {
    /// That were read, as the kernel has counted.
    pub recorded: u64,
    /// That newer ones have replaced.
    pub overwritten: u64,
    /// That found no room.
    pub dropped: u64,
    /// When: the counter at the look before and at the look that found them, and how many.
    pub gaps: Vec<(u64, u64, u64)>,
    /// Those of `dropped` of which it is known what they were, by their events' names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub known: BTreeMap<String, u64>,
}

/// A file of a recording that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// It cannot be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// `read` or `write`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Its content is not as it has to be.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

pub(crate) fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RecordingError {
    let path = path.to_owned();
    move |source| RecordingError::File { what, path, source }
}

fn load<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, RecordingError> {
    let text = fs::read(path).map_err(failed("read", path))?;
    serde_json::from_slice(&text).map_err(|error| wrong(path, &error.to_string()))
}

fn wrong(path: &Path, what: &str) -> RecordingError {
    RecordingError::Content { path: path.to_owned(), what: what.to_owned() }
}

fn store(path: &Path, content: &impl Serialize) -> Result<(), RecordingError> {
    let mut text =
        serde_json::to_string_pretty(content).map_err(|e| wrong(path, &e.to_string()))?;
    text.push('\n');
    // Whole, or not there: a full disk may have room for a part of it.
    let fresh = path.with_extension("new");
    let written = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, path));
    written.map_err(|error| {
        // If it cannot be removed either, nobody reads it.
        let _ = fs::remove_file(&fresh);
        failed("write", path)(error)
    })
}

fn check_version(path: &Path, version: u32) -> Result<(), RecordingError> {
    let known = version == VERSION;
    let text = || format!("it has version {version}; known is {VERSION}");
    if known { Ok(()) } else { Err(wrong(path, &text())) }
}

impl Recording {
    /// Where it is in a folder.
    pub fn path(folder: &Path) -> PathBuf {
        folder.join("recording.json")
    }

    /// Reads that of a folder.
    pub fn load(folder: &Path) -> Result<Recording, RecordingError> {
        let path = Recording::path(folder);
        let recording: Recording = load(&path)?;
        check_version(&path, recording.version)?;
        // They are names of files.
        let plain =
            |name: &&String| name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase());
        match recording.classes.keys().find(plain) {
            Some(name) => Err(wrong(&path, &format!("{name:?} cannot name a class of events"))),
            None => Ok(recording),
        }
    }

    /// Writes it into a folder.
    pub fn store(&self, folder: &Path) -> Result<(), RecordingError> {
        store(&Recording::path(folder), self)
    }

    /// Where the pages of a class on a processor are.
    pub fn pages(folder: &Path, class: &str, processor: u32) -> PathBuf {
        folder.join(class).join(format!("cpu{processor}"))
    }

    /// Where the names of the functions in a class's records are.
    pub fn symbols(folder: &Path, class: &str) -> PathBuf {
        folder.join(class).join("symbols")
    }

    /// Where the readings of the clock of a class's records are.
    pub fn readings(folder: &Path, class: &str) -> PathBuf {
        folder.join(class).join("clock")
    }
}

impl Account {
    /// Where it is in a folder.
    pub fn path(folder: &Path) -> PathBuf {
        folder.join("counts.json")
    }

    /// Reads that of a folder; `None` where there is none: nobody has ended the recording.
    pub fn load(folder: &Path) -> Result<Option<Account>, RecordingError> {
        let path = Account::path(folder);
        if !path.exists() {
            return Ok(None);
        }
        let account: Account = load(&path)?;
        check_version(&path, account.version)?;
        Ok(Some(account))
    }

    /// Writes it into a folder.
    pub fn store(&self, folder: &Path) -> Result<(), RecordingError> {
        store(&Account::path(folder), self)
    }
}
