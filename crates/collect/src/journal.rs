//! What a collector that takes up another's recording must know and programs' memory does not tell:
//! which stream file belongs to which ring, how far it was written, and the accounts of processes
//! that are closed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::handover::{Begun, Program};
use crate::progress::ProgressFile;
use crate::stream_file::is_full;
use crate::trigger::Trigger;
use crate::{Error, ProcessLoss, StreamSpec};

/// A slot that the collector took: its number, generation and stream.
pub(crate) type Taken = (usize, u32, String);

/// A line of the journal; written before what it tells of can matter.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Entry {
    /// A recorder begins.
    Begun(Begun),
    /// The process number of the recorder from now on.
    Recorder(u32),
    /// The program whose end is that of the recording.
    Program(Program),
    /// The streams are changed to these.
    Streams(Vec<StreamSpec>),
    /// A process directory is recorded from now on.
    Process {
        id: u32,
        dir: String,
        /// Where the collector took them itself.
        slots: Vec<Taken>,
    },
    /// A ring of a process has a stream file, and a number in the file of progress.
    Ring { process: u32, ring: String, number: usize, file: String },
    /// A process is closed, with these accounts by stream; what remains is to remove its files.
    Closed { process: u32, losses: Vec<(String, ProcessLoss)> },
    /// A stream was triggered.
    Trigger { stream: String, trigger: Trigger },
}

/// What the journal of an earlier collector tells.
#[derive(Debug, Default)]
pub(crate) struct Past {
    pub(crate) begun: Option<Begun>,
    pub(crate) recorder: Option<u32>,
    pub(crate) program: Option<Program>,
    /// Where they were changed.
    pub(crate) streams: Option<Vec<StreamSpec>>,
    /// Id and slots by directory.
    pub(crate) processes: BTreeMap<String, (u32, Vec<Taken>)>,
    /// Number and file by process and ring.
    pub(crate) rings: BTreeMap<(u32, String), (usize, String)>,
    pub(crate) closed: BTreeMap<u32, Vec<(String, ProcessLoss)>>,
    pub(crate) triggers: Vec<(String, Trigger)>,
}

impl Past {
    /// And the bytes of the journal that tell it.
    fn read(out: &Path) -> Result<(Past, u64), Error> {
        let path = Journal::path(out);
        let text = std::fs::read_to_string(&path).map_err(Error::file("resume", out))?;
        let mut past = Past::default();
        // The last line may be half one: what it would have told did not happen.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for line in text[..whole].lines() {
            let entry = serde_json::from_str(line).map_err(io::Error::other);
            past.remember(entry.map_err(Error::file("understand", &path))?);
        }
        Ok((past, whole as u64))
    }

    fn remember(&mut self, entry: Entry) {
        match entry {
            Entry::Begun(begun) => self.begun = Some(begun),
            Entry::Recorder(pid) => self.recorder = Some(pid),
            Entry::Program(program) => self.program = Some(program),
            Entry::Streams(streams) => self.streams = Some(streams),
            Entry::Process { id, dir, slots } => {
                self.processes.insert(dir, (id, slots));
            }
            Entry::Ring { process, ring, number, file } => {
                self.rings.insert((process, ring), (number, file));
            }
            Entry::Closed { process, losses } => {
                self.closed.insert(process, losses);
            }
            Entry::Trigger { stream, trigger } => self.triggers.push((stream, trigger)),
        }
    }

    /// Whether all is taken of the process with this directory.
    pub(crate) fn is_closed(&self, process_dir: &Path) -> bool {
        let name = process_dir.file_name().map(|name| name.to_string_lossy());
        let known = name.and_then(|name| self.processes.get(&*name));
        known.is_some_and(|(id, _)| self.closed.contains_key(id))
    }
}

/// The journal, and the file of progress.
#[derive(Debug)]
pub(crate) struct Journal {
    out: PathBuf,
    file: File,
    pub(crate) progress: ProgressFile,
    pub(crate) past: Past,
    rings: usize,
}

const JOURNAL: &str = ".journal";
const PROGRESS: &str = ".progress";

impl Journal {
    /// The journal of a new recording.
    pub(crate) fn create(out: &Path) -> Result<Journal, Error> {
        Journal::remove_from(out)?;
        Journal::open(out, true)
    }

    /// The journal of a recording that another collector began.
    pub(crate) fn resume(out: &Path) -> Result<Journal, Error> {
        let (past, whole) = Past::read(out)?;
        let mut journal = Journal::open(out, false)?;
        journal.file.set_len(whole).map_err(Error::file("write", &Journal::path(out)))?;
        journal.rings = past.rings.values().map(|(number, _)| number + 1).max().unwrap_or(0);
        journal.past = past;
        Ok(journal)
    }

    /// What the journal of a recording tells that may go on.
    pub(crate) fn read(out: &Path) -> Result<Past, Error> {
        Past::read(out).map(|(past, _)| past)
    }

    pub(crate) fn path(out: &Path) -> PathBuf {
        out.join(JOURNAL)
    }

    fn open(out: &Path, create: bool) -> Result<Journal, Error> {
        let (path, progress) = (out.join(JOURNAL), out.join(PROGRESS));
        let file = File::options().append(true).create(create).open(&path);
        Ok(Journal {
            out: out.to_owned(),
            file: file.map_err(Error::file("write", &path))?,
            progress: ProgressFile::open(&progress).map_err(Error::file("write", &progress))?,
            past: Past::default(),
            rings: 0,
        })
    }

    /// Notes that this process is the recorder.
    pub(crate) fn note_recorder(&mut self) -> Result<(), Error> {
        self.note(&Entry::Recorder(std::process::id()))
    }

    /// Number of a ring that is recorded from now on.
    pub(crate) fn number_ring(&mut self) -> usize {
        self.rings += 1;
        // Without room its progress is not kept: a resumed recording reports what is missing.
        let _ = self.progress.make_room(self.rings - 1);
        self.rings - 1
    }

    /// Writes a line. On a full disk it is left out; then a resumed recording reports what is
    /// missing.
    pub(crate) fn note(&mut self, entry: &Entry) -> Result<(), Error> {
        let written = append(&self.file, entry);
        written.map_err(Error::file("write", &self.out.join(JOURNAL)))
    }

    /// A function that notes its caller as the program: for the child of this process that becomes
    /// it. The file is closed when it does.
    pub(crate) fn note_caller(
        &self,
    ) -> Result<impl Fn() -> io::Result<()> + Send + Sync + 'static, Error> {
        let copy = self.file.try_clone();
        let file = copy.map_err(Error::file("write", &self.out.join(JOURNAL)))?;
        Ok(move || match Program::of(std::process::id()) {
            Some(program) => append(&file, &Entry::Program(program)),
            None => Ok(()),
        })
    }

    /// Processes known so far, by their ids.
    pub(crate) fn next_process(&self) -> u32 {
        self.past.processes.values().map(|(id, _)| id + 1).max().unwrap_or(0)
    }

    /// Removes both files: nothing is left to resume.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        Journal::remove_from(&self.out)
    }

    pub(crate) fn remove_from(out: &Path) -> Result<(), Error> {
        for name in [JOURNAL, PROGRESS] {
            let path = out.join(name);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(Error::file("remove", &path))?,
            }
        }
        Ok(())
    }
}

fn append(mut file: &File, entry: &Entry) -> io::Result<()> {
    let mut line = serde_json::to_vec(entry).expect("plain data is JSON");
    line.push(b'\n');
    let written = file.metadata().and_then(|before| {
        // Half a line would spoil the next one.
        file.write_all(&line).inspect_err(|_| {
            let _ = file.set_len(before.len());
        })
    });
    written.or_else(|error| if is_full(&error) { Ok(()) } else { Err(error) })
}
