//! The ledger: what a run does to a machine, written before it is done, so that it can be undone
//! after any crash.
//!
//! One file for each run, `<state dir>/ledger/<run>.jsonl`, one [`Entry`] a line. Every agent of
//! the run holds a shared lock on it while it lives; who gets the exclusive lock knows that none
//! does. What is made here, by which means, and how it is undone, is [`Entry`]'s business alone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::processes::{Identity, Search, namespace_of};
use crate::{namespace, testbed};

/// Environment variable that every process of a run carries.
pub const RUN_MARK: &str = "LOOPSCOPE_RUN";

/// One thing that is done to the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Entry {
    /// Who answers for this run. First in every ledger.
    Owner {
        /// Who started the agent.
        controller: Identity,
        /// The agent that made the ledger.
        agent: Identity,
    },
    /// A named network namespace. Its links end with it, and what was set on them.
    Namespace {
        /// As in `ip netns`.
        name: String,
    },
    /// A process; written by itself between fork and exec.
    Process {
        /// What it is for.
        what: String,
        /// Its number. For people: undoing goes by namespace and [`RUN_MARK`].
        pid: i32,
    },
    /// A directory outside the run directory.
    Directory {
        /// Absolute.
        path: PathBuf,
    },
    /// A Unix socket.
    Socket {
        /// Absolute.
        path: PathBuf,
    },
}

/// Why the ledger, or what it stands for, could not be made.
#[derive(Debug, Error)]
pub enum LedgerError {
    /// The file.
    #[error("cannot use the ledger {path}: {source}")]
    File {
        /// The ledger.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another run of this name.
    #[error("run {0} has a ledger already; `loopscope reset` removes what it left")]
    Exists(String),
    /// No run of this name.
    #[error("run {0} has no ledger; an agent in a namespace belongs to a machine's agent")]
    Missing(String),
    /// Somebody else has it.
    #[error("{0} exists already; `loopscope reset` removes what an earlier run left")]
    Taken(String),
    /// It could not be made.
    #[error("cannot make {what}: {reason}")]
    Make {
        /// What.
        what: String,
        /// Why not.
        reason: String,
    },
}

/// What undoing did.
#[derive(Debug, Default, Serialize)]
pub struct Undone {
    /// What was removed, for people.
    pub removed: Vec<String>,
    /// What was not, and why.
    pub problems: Vec<String>,
}

impl Entry {
    /// How a person would call it.
    fn describe(&self) -> String {
        match self {
            Entry::Owner { agent, .. } => format!("agent {}", agent.pid),
            Entry::Namespace { name } => format!("namespace {name}"),
            Entry::Process { what, pid } => format!("process {pid} ({what})"),
            Entry::Directory { path } => format!("directory {}", path.display()),
            Entry::Socket { path } => format!("socket {}", path.display()),
        }
    }

    fn exists(&self) -> bool {
        match self {
            Entry::Owner { .. } | Entry::Process { .. } => false,
            Entry::Namespace { name } => namespace::path(name).exists(),
            Entry::Directory { path } | Entry::Socket { path } => path.symlink_metadata().is_ok(),
        }
    }

    /// Makes `entries`. Owners, processes and sockets come into being by who records them.
    fn make(entries: &[Entry]) -> Result<(), LedgerError> {
        let mut namespaces = vec![];
        for entry in entries {
            match entry {
                Entry::Owner { .. } | Entry::Process { .. } | Entry::Socket { .. } => {}
                Entry::Namespace { name } => namespaces.push(name.as_str()),
                Entry::Directory { path } => {
                    DirBuilder::new().mode(0o700).create(path).map_err(|e| LedgerError::Make {
                        what: entry.describe(),
                        reason: e.to_string(),
                    })?;
                }
            }
        }
        // One process for all of them.
        testbed::add_namespaces(&namespaces).map_err(|e| LedgerError::Make {
            what: format!("the namespaces {}", namespaces.join(", ")),
            reason: e.to_string(),
        })
    }

    /// Undoes it; `false` if there was nothing to undo.
    fn undo(&self) -> io::Result<bool> {
        let removal = match self {
            // Ended by `kill` below.
            Entry::Owner { .. } | Entry::Process { .. } => return Ok(false),
            Entry::Namespace { name } => return namespace::delete(name),
            Entry::Directory { path } => fs::remove_dir_all(path),
            Entry::Socket { path } => match path.symlink_metadata() {
                Ok(metadata) if metadata.file_type().is_socket() => fs::remove_file(path),
                Ok(_) => return Ok(false),
                Err(error) => Err(error),
            },
        };
        match removal {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            other => other.map(|()| true),
        }
    }
}

/// Undoes `entries`, last first, after ending every process that is in their namespaces or carries
/// the run's mark.
fn undo(run: &str, entries: &[Entry]) -> Undone {
    let search = Search {
        namespaces: entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::Namespace { name } => namespace_of(&namespace::path(name)),
                _ => None,
            })
            .collect(),
        marks: vec![format!("{RUN_MARK}={run}")],
    };
    let mut undone = Undone::default();
    let outcome = search.kill(Duration::from_secs(5));
    for (pid, name) in outcome.killed {
        let known =
            entries.iter().find(|e| matches!(e, Entry::Process { pid: p, .. } if *p == pid));
        undone.removed.push(match known {
            Some(entry) => entry.describe(),
            None => format!("process {pid} ({name})"),
        });
    }
    for pid in outcome.survivors {
        undone.problems.push(format!("process {pid} does not end, even by SIGKILL"));
    }
    undo_entries(entries, &mut undone);
    undone
}

fn undo_entries(entries: &[Entry], undone: &mut Undone) {
    for entry in entries.iter().rev() {
        match entry.undo() {
            Ok(true) => undone.removed.push(entry.describe()),
            Ok(false) => {}
            Err(error) => {
                undone.problems.push(format!("cannot remove {}: {error}", entry.describe()));
            }
        }
    }
}

/// Where loopscope keeps what must survive an agent: `LOOPSCOPE_STATE_DIR`, else `/run/loopscope`
/// for root, else `loopscope` in `XDG_RUNTIME_DIR`, else in the temporary directory.
pub fn state_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("LOOPSCOPE_STATE_DIR") {
        return PathBuf::from(dir);
    }
    let uid = nix::unistd::geteuid();
    if uid.is_root() {
        return PathBuf::from("/run/loopscope");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) => PathBuf::from(dir).join("loopscope"),
        None => std::env::temp_dir().join(format!("loopscope-{uid}")),
    }
}

/// The folder of ledgers below a state directory.
pub(crate) fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("ledger")
}

/// A run's ledger, open for as long as this agent lives.
#[derive(Debug)]
pub struct Ledger {
    run: String,
    path: PathBuf,
    file: Arc<Flock<File>>,
    is_owner: bool,
    /// What this agent has recorded.
    own: Mutex<Vec<Entry>>,
}

impl Ledger {
    /// Makes the ledger of `run`, which then answers for it together with `controller`.
    pub fn create(
        state_dir: &Path,
        run: &str,
        controller: Identity,
    ) -> Result<Ledger, LedgerError> {
        let folder = folder(state_dir);
        let file_error = |path: &Path| {
            let path = path.to_owned();
            move |source| LedgerError::File { path, source }
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(file_error(&folder))?;
        let path = folder.join(format!("{run}.jsonl"));
        let file = loop {
            let mut options = OpenOptions::new();
            options.append(true).create_new(true).mode(0o600);
            let file = match options.open(&path) {
                Ok(file) => file,
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(LedgerError::Exists(run.to_owned()));
                }
                Err(error) => return Err(file_error(&path)(error)),
            };
            // A reset in between finds an empty ledger that nobody holds, and removes it.
            if let Some(file) = lock_shared(file).map_err(file_error(&path))? {
                break file;
            }
        };
        let agent = Identity::of(std::process::id().cast_signed())
            .ok_or_else(|| file_error(&path)(io::Error::other("/proc is not mounted")))?;
        let ledger = Ledger {
            run: run.to_owned(),
            path,
            file: file.into(),
            is_owner: true,
            own: Mutex::default(),
        };
        ledger.write(&[Entry::Owner { controller, agent }])?;
        Ok(ledger)
    }

    /// Takes part in the ledger that another agent of `run` keeps.
    pub fn join(state_dir: &Path, run: &str) -> Result<Ledger, LedgerError> {
        let path = folder(state_dir).join(format!("{run}.jsonl"));
        let file = match OpenOptions::new().append(true).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(LedgerError::Missing(run.to_owned()));
            }
            Err(source) => return Err(LedgerError::File { path, source }),
        };
        let file = match lock_shared(file) {
            Ok(Some(file)) => file,
            Ok(None) => return Err(LedgerError::Missing(run.to_owned())),
            Err(source) => return Err(LedgerError::File { path, source }),
        };
        Ok(Ledger {
            run: run.to_owned(),
            path,
            file: file.into(),
            is_owner: false,
            own: Mutex::default(),
        })
    }

    /// The run that it is for.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The state directory that it lies in.
    pub fn state_dir(&self) -> &Path {
        let folder = self.path.parent().and_then(Path::parent);
        folder.unwrap_or(Path::new("/"))
    }

    /// Who answers for the run: the process number of its controller.
    pub fn controller(&self) -> Option<u32> {
        let (entries, _) = read(&self.path).ok()?;
        entries.into_iter().find_map(|entry| match entry {
            Entry::Owner { controller, .. } => Some(controller.pid.cast_unsigned()),
            _ => None,
        })
    }

    /// Records `entries`, then makes them. Refuses, before either, what exists already: undoing
    /// would remove somebody else's.
    pub fn make(&self, entries: &[Entry]) -> Result<(), LedgerError> {
        if let Some(taken) = entries.iter().find(|entry| entry.exists()) {
            return Err(LedgerError::Taken(taken.describe()));
        }
        self.write(entries)?;
        Entry::make(entries)
    }

    /// Records what this process has just made and only it removes before its end.
    pub(crate) fn note_made(&self, entry: &Entry) -> Result<(), LedgerError> {
        self.write(std::slice::from_ref(entry))
    }

    fn write(&self, entries: &[Entry]) -> Result<(), LedgerError> {
        let error = |source: io::Error| LedgerError::File { path: self.path.clone(), source };
        let mut text = String::new();
        for entry in entries {
            text += &serde_json::to_string(entry).map_err(|e| error(e.into()))?;
            text.push('\n');
        }
        // One write for each batch: several agents append to this file.
        (&**self.file).write_all(text.as_bytes()).map_err(error)?;
        self.own.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(entries);
        Ok(())
    }

    /// The entry that a child is to write about itself.
    pub(crate) fn note(&self, what: &str) -> Note {
        let what = serde_json::Value::from(what).to_string();
        let line = format!(
            "{{\"kind\":\"process\",\"what\":{what},\"pid\":{:width$}}}\n",
            "",
            width = DIGITS
        );
        Note { file: self.file.clone(), line: line.into_bytes() }
    }

    /// Undoes everything in the ledger, other agents' entries included, and removes it, if this
    /// agent made the ledger; problems keep it for a later reset. An agent that only takes part
    /// undoes what it recorded itself, except processes.
    pub fn undo(&self) -> Undone {
        if self.is_owner {
            return undo_file(&self.path, &self.run);
        }
        let own = std::mem::take(&mut *self.own.lock().unwrap_or_else(PoisonError::into_inner));
        let mut undone = Undone::default();
        undo_entries(&own, &mut undone);
        undone
    }
}

/// Undoes the ledger at `path`.
pub(crate) fn undo_file(path: &Path, run: &str) -> Undone {
    let (entries, mut problems) = match read(path) {
        Ok(content) => content,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Undone::default(),
        Err(error) => (vec![], vec![format!("cannot read {}: {error}", path.display())]),
    };
    let mut undone = undo(run, &entries);
    undone.problems.append(&mut problems);
    if undone.problems.is_empty()
        && let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        undone.problems.push(format!("cannot remove {}: {error}", path.display()));
    }
    undone
}

/// Entries of a ledger, and what in it could not be read. A last line without its newline was never
/// finished, so what it announces was never made.
pub(crate) fn read(path: &Path) -> io::Result<(Vec<Entry>, Vec<String>)> {
    let text = String::from_utf8_lossy(&fs::read(path)?).into_owned();
    let (mut entries, mut problems) = (vec![], vec![]);
    for (i, line) in text.split_inclusive('\n').enumerate().filter(|(_, l)| l.ends_with('\n')) {
        match serde_json::from_str(line) {
            Ok(entry) => entries.push(entry),
            Err(error) => problems.push(format!(
                "{}:{}: {error}; another version of loopscope may know this entry",
                path.display(),
                i + 1
            )),
        }
    }
    Ok((entries, problems))
}

/// Takes the lock that says "an agent of this run lives". `None` if the file was removed meanwhile.
fn lock_shared(file: File) -> io::Result<Option<Flock<File>>> {
    let file = Flock::lock(file, FlockArg::LockShared).map_err(|(_, errno)| errno)?;
    Ok((file.metadata()?.nlink() > 0).then_some(file))
}

/// Room for the largest process number.
const DIGITS: usize = 10;

/// The line that a child writes about itself between fork and exec, where it may not allocate.
pub(crate) struct Note {
    file: Arc<Flock<File>>,
    line: Vec<u8>,
}

impl Note {
    /// Writes the entry of process `pid`. Allocates nothing and takes no lock.
    pub(crate) fn write(&mut self, pid: i32) -> io::Result<()> {
        let mut at = self.line.len() - "}\n".len();
        let mut rest = pid.unsigned_abs();
        loop {
            at -= 1;
            self.line[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if nix::unistd::write(&**self.file, &self.line)? != self.line.len() {
            return Err(io::Error::from_raw_os_error(nix::libc::ENOSPC));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Identity {
        Identity::of(std::process::id().cast_signed()).unwrap()
    }

    #[test]
    fn directories_are_recorded_first_and_undone_once() {
        let state = tempfile::tempdir().unwrap();
        let made = state.path().join("made");
        let ledger = Ledger::create(state.path(), "r1", here()).unwrap();
        ledger.make(&[Entry::Directory { path: made.clone() }]).unwrap();
        fs::write(made.join("file"), "x").unwrap();
        let (entries, problems) = read(&ledger.path).unwrap();
        assert!(matches!(entries[0], Entry::Owner { .. }));
        assert_eq!(entries[1], Entry::Directory { path: made.clone() });
        assert_eq!(problems, [""; 0]);
        let first = ledger.undo();
        assert_eq!(first.removed, [format!("directory {}", made.display())]);
        assert!(!made.exists() && !ledger.path.exists());
        let second = ledger.undo();
        assert!(second.removed.is_empty() && second.problems.is_empty(), "{second:?}");
    }

    #[test]
    fn what_could_not_be_made_is_recorded_all_the_same() {
        let state = tempfile::tempdir().unwrap();
        let ledger = Ledger::create(state.path(), "r1", here()).unwrap();
        let entry = Entry::Directory { path: state.path().join("no/such/folder") };
        assert!(matches!(ledger.make(std::slice::from_ref(&entry)), Err(LedgerError::Make { .. })));
        assert_eq!(read(&ledger.path).unwrap().0.last(), Some(&entry));
        assert!(ledger.undo().problems.is_empty());
    }

    #[test]
    fn what_somebody_else_made_is_neither_recorded_nor_removed() {
        let state = tempfile::tempdir().unwrap();
        let theirs = state.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        let ledger = Ledger::create(state.path(), "r1", here()).unwrap();
        let refused = ledger.make(&[Entry::Directory { path: theirs.clone() }]);
        assert!(matches!(refused, Err(LedgerError::Taken(_))));
        ledger.undo();
        assert!(theirs.exists());
    }

    #[test]
    fn a_note_is_a_process_entry() {
        let state = tempfile::tempdir().unwrap();
        let ledger = Ledger::create(state.path(), "r1", here()).unwrap();
        for pid in [1, 47, 4_194_304, i32::MAX] {
            ledger.note("a \"b\"").write(pid).unwrap();
            let (entries, problems) = read(&ledger.path).unwrap();
            assert_eq!(problems, [""; 0]);
            assert_eq!(entries.last(), Some(&Entry::Process { what: "a \"b\"".into(), pid }));
        }
    }

    #[test]
    fn an_unfinished_last_line_is_no_entry_but_nonsense_is_a_problem() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join("x.jsonl");
        fs::write(&path, "{\"kind\":\"namespace\",\"name\":\"a\"}\n{\"kind\":\"names").unwrap();
        let (entries, problems) = read(&path).unwrap();
        assert_eq!((entries.len(), problems.len()), (1, 0));
        fs::write(&path, "{\"kind\":\"moon-phase\"}\n").unwrap();
        let undone = undo_file(&path, "x");
        assert!(undone.problems[0].contains("moon-phase"), "{undone:?}");
        assert!(path.exists(), "a ledger that was not understood must stay");
    }

    #[test]
    fn a_run_has_one_ledger_and_only_living_ledgers_are_joined() {
        let state = tempfile::tempdir().unwrap();
        assert!(matches!(Ledger::join(state.path(), "r1"), Err(LedgerError::Missing(_))));
        let owner = Ledger::create(state.path(), "r1", here()).unwrap();
        let again = Ledger::create(state.path(), "r1", here());
        assert!(matches!(again, Err(LedgerError::Exists(_))));
        let member = Ledger::join(state.path(), "r1").unwrap();
        let made = state.path().join("of-member");
        member.make(&[Entry::Directory { path: made.clone() }]).unwrap();
        let of_owner = state.path().join("of-owner");
        owner.make(&[Entry::Directory { path: of_owner.clone() }]).unwrap();
        member.undo();
        assert!(!made.exists() && of_owner.exists());
        member.make(&[Entry::Directory { path: made.clone() }]).unwrap();
        owner.undo();
        assert!(!made.exists() && !of_owner.exists());
    }
}
