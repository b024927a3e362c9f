//! The output of one stream: a trace directory, its account and its triggers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use loopscope_ctf::packet::{self, RECORDS, get_u32};
use loopscope_ctf::{EventClass, Metadata, StreamClass};
use loopscope_time::Counter;
use serde::Serialize;
use uuid::Uuid;

use crate::cells::{FINAL_CLASS, Final, packets};
use crate::cost::Cost;
use crate::journal::Past;
use crate::stream::{Kind, MAIN, StreamSpec};
use crate::stream_file::{OpenFiles, StreamFile, is_full};
use crate::trigger::Trigger;
use crate::{Error, Identity, LossReport, ProcessLoss};

/// Triggers that are listed: a program can trigger as often as it likes.
const MOST_TRIGGERS: usize = 1 << 14;
/// Kept free, each, for what must be written even when the disk is full.
const RESERVE: usize = 256 << 10;
/// For classes that are declared late.
pub(crate) const FOR_METADATA: &str = ".reserve-metadata";
/// For the account, until the end.
pub(crate) const FOR_ACCOUNT: &str = ".reserve-account";

/// Where a stream goes.
pub(crate) struct Output {
    pub(crate) spec: StreamSpec,
    dir: PathBuf,
    trace: PathBuf,
    metadata: Metadata,
    names: BTreeSet<String>,
    closed: BTreeMap<u32, ProcessLoss>,
    triggers: Vec<Trigger>,
    /// How many of them an earlier collector saw.
    resumed: usize,
    /// Records that were written, by the trigger's instant.
    written: BTreeMap<u64, u64>,
    /// Triggers that nobody has been told of yet.
    pub(crate) fresh: Vec<Trigger>,
    pub(crate) problems: Vec<String>,
    /// Declared classes that the file does not have.
    stale: bool,
    open_files: OpenFiles,
}

/// A process's name as the beginning of a file's.
fn file_prefix(process: &str) -> String {
    let keep = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let process: String = process.chars().map(keep).collect();
    // Readers pass over hidden files.
    process.trim_start_matches('.').to_owned()
}

/// The stream class of a stream file; `None` if there is no whole packet's head in it.
fn stream_id(path: &Path) -> Option<u32> {
    let mut head = [0; RECORDS];
    std::fs::File::open(path).and_then(|file| file.read_exact_at(&mut head, 0)).ok()?;
    Some(get_u32(&head, packet::STREAM_ID))
}

/// The folder of a stream's output in that of the recording.
pub(crate) fn folder(out: &Path, name: &str) -> PathBuf {
    if name == MAIN { out.to_owned() } else { out.join("streams").join(name) }
}

/// The path of a stream's file in the recording's folder.
fn path_in_recording(stream: &str, name: &str) -> String {
    folder(Path::new(""), stream).join(name).to_string_lossy().into_owned()
}

/// Makes the file at `path` of the one at `reserve`, which is at least as long and there.
fn put(reserve: &Path, text: &[u8], path: &Path) -> io::Result<()> {
    let file = std::fs::File::options().write(true).open(reserve)?;
    if file.metadata()?.len() < text.len() as u64 {
        return Err(io::ErrorKind::StorageFull.into());
    }
    file.write_all_at(text, 0)?;
    file.set_len(text.len() as u64)?;
    std::fs::rename(reserve, path)
}

impl Output {
    /// Makes the folder, in which there must be no trace yet.
    pub(crate) fn create(
        out: &Path,
        spec: &StreamSpec,
        identity: &Identity,
        open_files: OpenFiles,
    ) -> Result<Output, Error> {
        let dir = folder(out, &spec.name);
        let trace = dir.join("trace");
        std::fs::create_dir_all(&dir).map_err(Error::file("make", &dir))?;
        match std::fs::create_dir(&trace) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::TraceExists(dir));
            }
            made => made.map_err(Error::file("make", &trace))?,
        }
        let main = spec.name == MAIN;
        let metadata = Metadata {
            uuid: if main { identity.trace_uuid } else { Uuid::new_v4().into_bytes() },
            host: identity.host.clone(),
            clock_uuid: identity.clock_uuid,
            frequency: identity.frequency,
            streams: BTreeMap::new(),
            groups: BTreeMap::new(),
        };
        let mut output = Output {
            spec: spec.clone(),
            dir,
            trace,
            metadata,
            names: BTreeSet::new(),
            closed: BTreeMap::new(),
            triggers: Vec::new(),
            resumed: 0,
            written: BTreeMap::new(),
            fresh: Vec::new(),
            problems: Vec::new(),
            stale: true,
            open_files,
        };
        output.reserve()?;
        output.write_metadata()?;
        Ok(output)
    }

    /// Takes up the output of an earlier collector; makes it if there is none yet.
    pub(crate) fn resume(
        out: &Path,
        spec: &StreamSpec,
        identity: &Identity,
        open_files: OpenFiles,
        past: &Past,
    ) -> Result<Output, Error> {
        let dir = folder(out, &spec.name);
        let trace = dir.join("trace");
        let path = trace.join("metadata");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // It was killed before it had made all of it.
                match std::fs::remove_dir_all(&trace) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    removed => removed.map_err(Error::file("remove", &trace))?,
                }
                return Output::create(out, spec, identity, open_files);
            }
            Err(error) => return Err(Error::file("read", &path)(error)),
        };
        let metadata = Metadata::parse(&text).map_err(io::Error::other);
        let mut output = Output {
            spec: spec.clone(),
            metadata: metadata.map_err(Error::file("understand", &path))?,
            names: BTreeSet::new(),
            closed: BTreeMap::new(),
            triggers: Vec::new(),
            resumed: 0,
            written: BTreeMap::new(),
            fresh: Vec::new(),
            problems: Vec::new(),
            stale: true,
            open_files,
            dir,
            trace,
        };
        for (id, losses) in &past.closed {
            let of = losses.iter().find(|(name, _)| *name == spec.name);
            output.closed.extend(of.map(|(_, loss)| (*id, loss.clone())));
        }
        let triggers = past.triggers.iter().filter(|(name, _)| *name == spec.name);
        output.triggers.extend(triggers.map(|(_, trigger)| trigger.clone()));
        output.resumed = output.triggers.len();
        output.forget_unfinished()?;
        output.reserve()?;
        output.write_metadata()?;
        Ok(output)
    }

    /// Drops what belongs to the end of processes that are not closed.
    fn forget_unfinished(&mut self) -> Result<(), Error> {
        for class in self.metadata.streams.values_mut() {
            if !self.closed.contains_key(&class.id) {
                class.events.retain(|event| event.id < FINAL_CLASS);
            }
        }
        let trace = &self.trace;
        for entry in std::fs::read_dir(trace).map_err(Error::file("read", trace))? {
            let entry = entry.map_err(Error::file("read", trace))?;
            let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
            if name.starts_with('.') || name == "metadata" {
                continue;
            }
            let open = |class: &StreamClass| {
                let process = file_prefix(&class.process);
                let rest = name.strip_prefix(&process).and_then(|rest| rest.strip_prefix('-'));
                let is_final = rest.is_some_and(|rest| rest.contains("-final"));
                is_final && stream_id(&path) == Some(class.id)
            };
            let unfinished =
                self.metadata.streams.values().filter(|c| !self.closed.contains_key(&c.id));
            if unfinished.into_iter().any(open) {
                std::fs::remove_file(&path).map_err(Error::file("remove", &path))?;
            } else {
                self.names.insert(name);
            }
        }
        Ok(())
    }

    fn reserve(&self) -> Result<(), Error> {
        [FOR_METADATA, FOR_ACCOUNT].into_iter().try_for_each(|name| {
            let path = self.dir.join(name);
            std::fs::write(&path, vec![0; RESERVE]).map_err(Error::file("make", &path))
        })
    }

    /// Whether every declared class is in the metadata's file.
    pub(crate) fn is_complete(&self) -> bool {
        !self.stale
    }

    /// Declares a process, or what it has newly registered.
    pub(crate) fn declare(
        &mut self,
        id: u32,
        process: &str,
        events: &[EventClass],
        groups: &BTreeMap<String, String>,
    ) {
        let class =
            StreamClass { id, process: process.to_owned(), kernel: false, events: events.to_vec() };
        if self.metadata.streams.get(&id) != Some(&class) {
            self.metadata.streams.insert(id, class);
            self.stale = true;
        }
        for (group, description) in groups {
            let known = self.metadata.groups.insert(group.clone(), description.clone());
            self.stale |= known.as_ref() != Some(description);
        }
    }

    /// Writes the metadata if the file does not say all of it. Where the disk is full it stays
    /// incomplete. Hidden while it is written: readers take every other file in the directory for a
    /// stream.
    pub(crate) fn write_metadata(&mut self) -> Result<(), Error> {
        if !self.stale {
            return Ok(());
        }
        let path = self.trace.join("metadata");
        let fresh = self.trace.join(".metadata");
        let text = self.metadata.to_tsdl();
        let write = || std::fs::write(&fresh, &text).and_then(|()| std::fs::rename(&fresh, &path));
        let mut written = write();
        if written.as_ref().is_err_and(is_full) && self.give_up(FOR_METADATA) {
            written = write();
        }
        match written {
            Ok(()) => self.stale = false,
            Err(error) if is_full(&error) => self.tell_full(),
            Err(error) => return Err(Error::file("write", &path)(error)),
        }
        Ok(())
    }

    fn give_up(&self, reserve: &str) -> bool {
        std::fs::remove_file(self.dir.join(reserve)).is_ok()
    }

    /// Notes once that records are lost because the disk is full.
    pub(crate) fn tell_full(&mut self) {
        let text = format!(
            "the file system of {} was full: what it had no room for is counted as dropped, cause \
             disk-full",
            self.dir.display()
        );
        if !self.problems.contains(&text) {
            self.problems.push(text);
        }
    }

    fn file_name(&mut self, process: &str, pid: u32, last: &str) -> String {
        let base = format!("{}-{pid}-{last}", file_prefix(process));
        let mut name = base.clone();
        let mut n = 1;
        while !self.names.insert(name.clone()) {
            n += 1;
            name = format!("{base}-{n}");
        }
        name
    }

    /// A stream file `<process>-<pid>-<n>`, with a number behind where there is one of that name.
    pub(crate) fn stream_file(
        &mut self,
        id: u32,
        process: &str,
        pid: u32,
        last: &str,
    ) -> StreamFile {
        let name = self.file_name(process, pid, last);
        let (path, uuid) = (self.trace.join(name), self.metadata.uuid);
        StreamFile::new(path, uuid, id, pid, self.open_files.clone())
    }

    /// The stream file of this name, which an earlier collector began.
    pub(crate) fn known_stream_file(&mut self, id: u32, pid: u32, name: &str) -> StreamFile {
        self.names.insert(name.to_owned());
        let (path, uuid) = (self.trace.join(name), self.metadata.uuid);
        StreamFile::new(path, uuid, id, pid, self.open_files.clone())
    }

    /// Writes the last state of a process's counters and histograms, `<process>-<pid>-final`, as of
    /// the instant `at` of the trace's clock. Returns the records that there was room for.
    pub(crate) fn write_finals(
        &mut self,
        id: u32,
        pid: u32,
        finals: &[Final],
        at: Counter,
    ) -> Result<u64, Error> {
        let Some(class) = self.metadata.streams.get_mut(&id) else { return Ok(0) };
        class.events.extend(finals.iter().map(|last| last.class.clone()));
        let process = class.process.clone();
        self.stale = true;
        self.write_metadata()?;
        let name = self.file_name(&process, pid, "final");
        let path = self.trace.join(&name);
        let bytes = packets(finals, self.metadata.uuid, id, pid, at);
        let written = if self.stale { Ok(()) } else { std::fs::write(&path, bytes) };
        match written {
            Ok(()) if !self.stale => Ok(finals.len() as u64),
            Err(error) if !is_full(&error) => Err(Error::file("write", &path)(error)),
            _ => {
                // Half a packet is no stream.
                let _ = std::fs::remove_file(&path);
                self.tell_full();
                Ok(0)
            }
        }
    }

    pub(crate) fn closed(&mut self, id: u32, loss: ProcessLoss) {
        self.closed.insert(id, loss);
    }

    pub(crate) fn is_flight_recorder(&self) -> bool {
        self.spec.kind == Kind::FlightRecorder
    }

    /// Notes a trigger, unless it is one that other processes have had too; whether it is not.
    pub(crate) fn triggered(&mut self, trigger: Trigger) -> bool {
        let new = !self.triggers.iter().any(|t| t.counter == trigger.counter);
        if self.triggers.len() >= MOST_TRIGGERS {
            let text = format!("only the first {MOST_TRIGGERS} triggers are in triggers.json");
            if !self.problems.contains(&text) {
                self.problems.push(text);
            }
        } else if new {
            self.fresh.push(trigger.clone());
            self.triggers.push(trigger);
        }
        new
    }

    /// Notes that so many records were written because of the trigger at this instant of the
    /// trace's clock.
    pub(crate) fn wrote(&mut self, trigger: Counter, records: u64) {
        *self.written.entry(trigger.0).or_default() += records;
    }

    /// Writes the metadata, and next to the trace `loss.json` and, of a flight recorder,
    /// `triggers.json`. Returns the account.
    pub(crate) fn finish(&mut self, cost: Option<Cost>) -> Result<LossReport, Error> {
        self.give_up(FOR_METADATA);
        self.write_metadata()?;
        let triggers = self.is_flight_recorder().then(|| {
            let mut all = std::mem::take(&mut self.triggers);
            for trigger in &mut all[self.resumed..] {
                trigger.events = Some(self.written.get(&trigger.counter).copied().unwrap_or(0));
            }
            all
        });
        let closed = std::mem::take(&mut self.closed).into_values().collect();
        let count = triggers.as_ref().map(|all| all.len() as u64);
        let mut report = LossReport { cost, triggers: count, ..LossReport::new(closed) };
        let mut unwritten = BTreeMap::new();
        unwritten.extend(self.write_json("loss.json", &report, Some(FOR_ACCOUNT))?);
        self.give_up(FOR_ACCOUNT);
        if let Some(triggers) = triggers {
            unwritten.extend(self.write_json("triggers.json", &triggers, None)?);
        }
        report.problems.append(&mut self.problems);
        report.unwritten = unwritten;
        Ok(report)
    }

    /// Writes a file whole, into the blocks of a reserve if there is one: what is given back to a
    /// full disk may be another's at once. Returns the file by its path in the recording's folder
    /// if there is no room for it.
    fn write_json(
        &mut self,
        name: &str,
        value: &impl Serialize,
        reserve: Option<&str>,
    ) -> Result<Option<(String, Vec<u8>)>, Error> {
        let path = self.dir.join(name);
        let mut text = serde_json::to_vec_pretty(value).expect("plain data is JSON");
        text.push(b'\n');
        if reserve.is_some_and(|reserve| put(&self.dir.join(reserve), &text, &path).is_ok()) {
            return Ok(None);
        }
        match std::fs::write(&path, &text) {
            Err(error) if is_full(&error) => {
                // Half a file is none. The caller still gets it.
                let _ = std::fs::remove_file(&path);
                self.problems.push(format!("cannot write {}: {error}", path.display()));
                let name = path_in_recording(&self.spec.name, name);
                Ok(Some((name, text)))
            }
            written => written.map(|()| None).map_err(Error::file("write", &path)),
        }
    }

    pub(crate) fn host(&self) -> &str {
        &self.metadata.host
    }
}
