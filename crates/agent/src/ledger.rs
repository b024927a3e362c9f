//! The ledger: what a run does to a machine, written before it is done, so that it can be undone
//! after any crash.
//!
//! One file for each run, `<state dir>/ledger/<run>.jsonl`, one [`Entry`] a line. Every agent of
//! the run holds a shared lock on it while it lives; who gets the exclusive lock knows that none
//! does. What can be made, and how it is undone, is [`Entry`]'s business alone.

mod entry;
mod note;
mod settings;
mod state;
mod undo;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nix::fcntl::{AT_FDCWD, Flock, FlockArg, RenameFlags, renameat2};
use thiserror::Error;
use uuid::Uuid;

pub use entry::Entry;
use entry::PREFIXES;
pub use entry::prefix;
pub(crate) use note::Note;
pub(crate) use settings::changed_settings;
pub(crate) use state::{boot_id, check_own, folder, make_own};
pub use state::{state_dir, state_dir_by};
pub use undo::Undone;
pub(crate) use undo::{owned, undo_file};

use crate::cgroup;
use crate::namespace;
use crate::processes::Identity;
use crate::setting::MachineLock;

/// Environment variable that every process of a run carries.
pub const RUN_MARK: &str = "LOOPSCOPE_RUN";

/// Why the ledger, or what it stands for, could not be made.
#[derive(Debug, Error)]
pub enum LedgerError {
    /// The file.
    #[error("cannot use the ledger {path}: {source}")]
    File {
        /// The ledger.
        path: PathBuf,
        /// The system's error.
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
        /// The problem.
        what: String,
        /// Why not.
        reason: String,
    },
    /// A setting of the machine could not be given a value.
    #[error("cannot set {what}: {reason}")]
    Set {
        /// The setting.
        what: String,
        /// Why not.
        reason: String,
        /// The system's number for it, where the system has refused it.
        errno: Option<i32>,
    },
    /// A setting of the machine became another one than it was given. It has its value back.
    #[error("cannot set {what}: it became {became:?} when it was given {value:?}")]
    Changed {
        /// The setting.
        what: String,
        /// What it was given.
        value: String,
        /// Its value then.
        became: String,
    },
}

/// A run's ledger, open for as long as this agent lives.
#[derive(Debug)]
pub struct Ledger {
    run: String,
    path: PathBuf,
    file: Arc<Flock<File>>,
    is_owner: bool,
    /// The run's cgroup, or why there is none. Empty before it is known.
    cgroup: OnceLock<Result<PathBuf, String>>,
    /// Held from the first setting of the machine that this agent changes.
    machine: Mutex<Option<MachineLock>>,
    /// Entries that this agent has recorded.
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
        make_own(&folder).map_err(file_error(&folder))?;
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
            cgroup: OnceLock::new(),
            machine: Mutex::default(),
            own: Mutex::default(),
        };
        ledger.write(&[Entry::Owner { controller, agent, boot: boot_id() }])?;
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
        let cgroup = cgroup_of(&path).ok_or_else(|| "see lacking in manifest.json".to_owned());
        Ok(Ledger {
            run: run.to_owned(),
            path,
            file: file.into(),
            is_owner: false,
            cgroup: cgroup.into(),
            machine: Mutex::default(),
            own: Mutex::default(),
        })
    }

    /// The run that it is for.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Makes a cgroup for the run and moves this process into it, and so all that it starts. Where
    /// that is not possible the run's processes are known by their marks; see
    /// [`why_no_cgroup`](Self::why_no_cgroup). `no_scope`: why systemd gave it none of its own.
    pub(crate) fn own_by_cgroup(&self, no_scope: Option<&str>) -> Result<(), LedgerError> {
        let made = match self.make_cgroup() {
            Ok(path) => Ok(path),
            Err(error @ LedgerError::File { .. }) => return Err(error),
            Err(error) => Err(no_scope.map_or(error.to_string(), |why| format!("{error}; {why}"))),
        };
        // Called once.
        let _ = self.cgroup.set(made);
        Ok(())
    }

    fn make_cgroup(&self) -> Result<PathBuf, LedgerError> {
        let failed = |reason: &str| LedgerError::Make {
            what: "a cgroup".to_owned(),
            reason: reason.to_owned(),
        };
        let find = || cgroup::own().map_err(|error| failed(&error.to_string()));
        let mut above = find()?;
        if above.is_none() {
            let path = self.state_dir().join(format!("{}-cgroup", prefix(&self.run)));
            self.make(&[Entry::Directory { path: path.clone() }])?;
            self.make_by(&Entry::Mount { path: path.clone() }, || cgroup::mount_on(&path))?;
            above = find()?;
        }
        let above = above.ok_or_else(|| failed("no hierarchy of version 2 shows this process"))?;
        let path = above.join(prefix(&self.run));
        let entry = Entry::Cgroup { path: path.clone() };
        // An entry of a group that the processes are not in would hide them from `reset`.
        if let Err(error) = self.make_by(&entry, || cgroup::make(&path)) {
            if matches!(error, LedgerError::Make { .. }) {
                self.disown(&entry)?;
            }
            return Err(error);
        }
        if let Err(error) = cgroup::enter(&path) {
            cgroup::remove(&path).map_err(|error| failed(&error.to_string()))?;
            self.disown(&entry)?;
            return Err(failed(&error.to_string()));
        }
        Ok(path)
    }

    /// The run's cgroup, if it has one.
    pub(crate) fn cgroup(&self) -> Option<&Path> {
        self.cgroup.get()?.as_deref().ok()
    }

    /// Why the run has no cgroup; `None` if it has.
    pub(crate) fn why_no_cgroup(&self) -> Option<&str> {
        self.cgroup.get()?.as_ref().err().map(String::as_str)
    }

    /// Its file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The state directory that it lies in.
    pub fn state_dir(&self) -> &Path {
        let folder = self.path.parent().and_then(Path::parent);
        folder.unwrap_or(Path::new("/"))
    }

    /// The outermost directory of the run that `path` lies in.
    pub(crate) fn directory_above(&self, path: &Path) -> Option<PathBuf> {
        let (entries, _) = read(&self.path).ok()?;
        let above = entries.iter().filter_map(|entry| match entry.unmarked() {
            Entry::Directory { path: above } if path.starts_with(above) => Some(above.clone()),
            _ => None,
        });
        above.min_by_key(|above| above.components().count())
    }

    /// The process number of the controller, which is responsible for the run.
    pub fn controller(&self) -> Option<u32> {
        let (entries, _) = read(&self.path).ok()?;
        entries.into_iter().find_map(|entry| match entry {
            Entry::Owner { controller, .. } => Some(controller.pid.cast_unsigned()),
            _ => None,
        })
    }

    /// Records each of `entries`, then makes it. Refuses what exists already: undoing would remove
    /// somebody else's.
    pub fn make(&self, entries: &[Entry]) -> Result<(), LedgerError> {
        entries.iter().try_for_each(|entry| self.make_marked(entry, || ()))
    }

    /// Makes a namespace or directory without its name, records `entry` with the mark of what was
    /// made, calls `recorded`, and gives it the name then: whatever has the name in the end, and
    /// wherever this process dies, the mark tells whose it is.
    fn make_marked(
        &self,
        entry: &Entry,
        recorded: impl FnOnce() + Send,
    ) -> Result<(), LedgerError> {
        self.check_free(entry)?;
        let mut line = entry.clone();
        let mut unwritten = None;
        let record = |mark: Option<u64>| {
            // A kernel without cookies: the name has to do.
            if let Some(mark) = mark {
                line = Entry::Marked { entry: Box::new(entry.clone()), mark };
            }
            self.write(std::slice::from_ref(&line)).map_err(|error| {
                unwritten = Some(error);
                io::Error::other("the ledger cannot be written")
            })?;
            recorded();
            Ok(())
        };
        let made = match entry {
            Entry::Namespace { name } => namespace::add_recorded(name, record),
            Entry::Directory { path } => self.place(path, record),
            _ => record(None),
        };
        match unwritten {
            Some(error) => Err(error),
            None => made.map_err(|error| self.not_made(entry, &line, &error)),
        }
    }

    /// Makes a directory under a name that nobody else can know, and gives it its own when `record`
    /// has its inode.
    fn place(
        &self,
        path: &Path,
        record: impl FnOnce(Option<u64>) -> io::Result<()>,
    ) -> io::Result<()> {
        let staged = path.with_file_name(format!("ls-staged-{}", Uuid::new_v4().simple()));
        self.record(&Entry::Directory { path: staged.clone() }).map_err(io::Error::other)?;
        DirBuilder::new().mode(0o700).create(&staged)?;
        let named = record(Some(staged.symlink_metadata()?.ino())).and_then(|()| {
            let only_new = RenameFlags::RENAME_NOREPLACE;
            Ok(renameat2(AT_FDCWD, &staged, AT_FDCWD, path, only_new)?)
        });
        named.inspect_err(|_| {
            let _ = fs::remove_dir(&staged);
        })
    }

    /// Records `entry`, then has `make` make it, which fails where it exists. What somebody else
    /// was first to make is theirs.
    pub(crate) fn make_by<T>(
        &self,
        entry: &Entry,
        make: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, LedgerError> {
        self.check_free(entry)?;
        self.write(std::slice::from_ref(entry))?;
        make().map_err(|error| self.not_made(entry, entry, &error))
    }

    /// Refuses what is not loopscope's to make, and what exists.
    fn check_free(&self, entry: &Entry) -> Result<(), LedgerError> {
        if !entry.is_ours() {
            let reason = format!(
                "its name must begin with {}, so that `loopscope reset` knows it for loopscope's",
                PREFIXES.join(" or ")
            );
            return Err(LedgerError::Make { what: entry.describe(), reason });
        }
        if entry.exists() {
            return Err(LedgerError::Taken(entry.describe()));
        }
        Ok(())
    }

    /// Why `entry`, of which the ledger has `line`, was not made.
    fn not_made(&self, entry: &Entry, line: &Entry, error: &io::Error) -> LedgerError {
        match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::AddrInUse => match self.disown(line) {
                Ok(()) => LedgerError::Taken(entry.describe()),
                Err(failed) => failed,
            },
            _ => LedgerError::Make { what: entry.describe(), reason: error.to_string() },
        }
    }

    /// Takes back the last record of `entry`.
    fn disown(&self, entry: &Entry) -> Result<(), LedgerError> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = own.iter().rposition(|each| each == entry) {
            own.remove(last);
        }
        drop(own);
        self.append(&[Entry::NotOurs { entry: Box::new(entry.clone()) }])
    }

    /// Records what this process is about to make, whatever is there now.
    pub(crate) fn record(&self, entry: &Entry) -> Result<(), LedgerError> {
        self.write(std::slice::from_ref(entry))
    }

    fn write(&self, entries: &[Entry]) -> Result<(), LedgerError> {
        self.append(entries)?;
        self.own.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(entries);
        Ok(())
    }

    fn append(&self, entries: &[Entry]) -> Result<(), LedgerError> {
        let error = |source: io::Error| LedgerError::File { path: self.path.clone(), source };
        let mut text = String::new();
        for entry in entries {
            text += &serde_json::to_string(entry).map_err(|e| error(e.into()))?;
            text.push('\n');
        }
        // One write for each batch: several agents append to this file.
        (&**self.file).write_all(text.as_bytes()).map_err(error)
    }

    /// The entry that a child is to write about itself.
    pub(crate) fn note(&self, what: &str) -> Note {
        let what = serde_json::Value::from(what).to_string();
        let line = format!(
            "{{\"kind\":\"process\",\"what\":{what},\"pid\":{:width$}}}\n",
            "",
            width = note::DIGITS
        );
        Note::new(self.file.clone(), line.into_bytes())
    }

    /// Undoes everything in the ledger, other agents' entries included, and removes it, if this
    /// agent made the ledger; problems keep it for a later reset. An agent that only takes part
    /// undoes what it recorded itself, except processes.
    pub fn undo(&self) -> Undone {
        if self.is_owner {
            let machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner).take();
            return undo::undo_file(&self.path, &self.run, machine);
        }
        let own = std::mem::take(&mut *self.own.lock().unwrap_or_else(PoisonError::into_inner));
        let mut undone = Undone::default();
        undo::undo_entries(&own, &mut undone);
        undone
    }
}

/// Entries of a ledger that were not taken back, and what in it could not be read. A last line
/// without its newline was never finished, so what it announces was never made.
pub(crate) fn read(path: &Path) -> io::Result<(Vec<Entry>, Vec<String>)> {
    let text = String::from_utf8_lossy(&fs::read(path)?).into_owned();
    let (mut entries, mut problems) = (Vec::<Entry>::new(), vec![]);
    for (i, line) in text.split_inclusive('\n').enumerate().filter(|(_, l)| l.ends_with('\n')) {
        match serde_json::from_str::<Entry>(line) {
            Ok(Entry::NotOurs { entry }) => {
                if let Some(last) = entries.iter().rposition(|each| *each == *entry) {
                    entries.remove(last);
                }
            }
            Ok(entry) if entry.is_ours() => entries.push(entry),
            Ok(entry) => problems.push(format!(
                "{}:{}: loopscope makes no such {}; it is left alone",
                path.display(),
                i + 1,
                entry.describe()
            )),
            Err(error) => problems.push(format!(
                "{}:{}: {error}; another version of loopscope may know this entry",
                path.display(),
                i + 1
            )),
        }
    }
    Ok((entries, problems))
}

/// The run's cgroup by its ledger. It is among the first that an agent makes, or takes back.
fn cgroup_of(path: &Path) -> Option<PathBuf> {
    let lines = BufReader::new(File::open(path).ok()?).lines().map_while(Result::ok);
    let mut found = None;
    for entry in lines.take(8).filter_map(|line| serde_json::from_str(&line).ok()) {
        match entry {
            Entry::Cgroup { path } => found = Some(path),
            Entry::NotOurs { entry } if matches!(*entry, Entry::Cgroup { .. }) => found = None,
            _ => {}
        }
    }
    found
}

/// Takes the lock that says "an agent of this run lives". `None` if the file was removed meanwhile.
fn lock_shared(file: File) -> io::Result<Option<Flock<File>>> {
    let file = Flock::lock(file, FlockArg::LockShared).map_err(|(_, errno)| errno)?;
    Ok((file.metadata()?.nlink() > 0).then_some(file))
}

#[cfg(test)]
mod tests;
