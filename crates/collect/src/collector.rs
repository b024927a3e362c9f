//! The collector of one host.

mod discover;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use loopscope_time::Counter;

use crate::cost::Cost;
use crate::deadline::{Departure, Watched};
use crate::folder::{Folder, State};
use crate::handover::{Begun, Lock, Place, Program, closed, is_closed, lock};
use crate::journal::{Entry, Journal};
use crate::loss::Losses;
use crate::output::{FOR_ACCOUNT, FOR_METADATA, Output, folder};
use crate::process::{Process, With};
use crate::stream::{MAIN, StreamSpec, validate};
use crate::stream_file::OpenFiles;
use crate::subbuffer::LATEST;
use crate::sweep::not_in_memory;
use crate::trigger::{Cause, Trigger};
use crate::{Error, Identity};

/// A never decreasing map of the host's counter to a synthetic one.
pub type ClockMap = Box<dyn Fn(Counter) -> Counter + Send>;

/// How long a live thread may take to finish an event once recording has ended; an event that takes
/// longer counts as torn.
const SETTLE: Duration = Duration::from_millis(100);

/// Pauses between two looks at the rings.
const BUSY: Duration = Duration::from_millis(1);
const CALM: Duration = Duration::from_millis(20);
/// More than programs write into one ring: so long a smallest ring lasts at least.
const FASTEST: f64 = 500e6;

/// Processes that are recorded at once, and that are told to be left out.
const MOST_PROCESSES: usize = 1 << 13;

/// What [`Collector::poll`] found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Activity {
    /// Sub-buffers copied.
    pub copied: u64,
    /// How full the fullest ring was, 0 to 1.
    pub fill: f64,
    /// Bytes of the smallest ring; `None` without rings.
    pub capacity: Option<u64>,
    /// Triggers of flight recorders, by name of the stream.
    pub triggers: Vec<(String, Trigger)>,
    /// Messages that departed for the host where their path ends, by path; see
    /// [`Collector::departed`].
    pub departures: Vec<(String, Vec<Departure>)>,
}

impl Activity {
    /// When to look again: at once after a ring was more than half full, soon while anything
    /// happens, and before the smallest ring can have filled up in any case.
    pub fn pause(&self) -> Duration {
        if self.fill > 0.5 {
            Duration::ZERO
        } else if self.copied > 0 {
            BUSY
        } else {
            let lasts =
                self.capacity.map_or(CALM, |bytes| Duration::from_secs_f64(bytes as f64 / FASTEST));
            lasts.clamp(BUSY, CALM)
        }
    }
}

/// Programs to record.
pub(crate) struct Source {
    /// Runtime directory.
    pub(crate) dir: PathBuf,
    pub(crate) folder: Arc<Folder>,
    /// User id: only process directories of this user count. `None`: those of all users. It is set
    /// for a directory in which other users may make process directories too.
    pub(crate) owner: Option<u32>,
    pub(crate) process: Option<String>,
    pub(crate) seen: BTreeSet<OsString>,
    pub(crate) streams: Vec<StreamSpec>,
    /// Where the streams go.
    pub(crate) outputs: Vec<usize>,
    /// The process that was attached to and its children, by the names of their directories; `None`
    /// for a directory that belongs to the collector with all that is in it.
    pub(crate) family: Option<BTreeSet<OsString>>,
    /// The streams were changed since programs may have read of them.
    pub(crate) changed: bool,
    /// The state of `dir` when it was last listed; `None`: it has to be listed.
    pub(crate) listed: Option<State>,
}

/// Drains the rings of all programs of one host into trace directories, one per stream.
pub struct Collector {
    pub(crate) out: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) clock: Option<ClockMap>,
    pub(crate) sources: Vec<Source>,
    pub(crate) processes: Vec<Process>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) problems: Vec<String>,
    pub(crate) journal: Journal,
    pub(crate) deadlines: Vec<Watched>,
    cost: Option<Cost>,
    next_process: u32,
    resumed: bool,
    /// Processes that could not be recorded.
    left_out: usize,
    open_files: OpenFiles,
    pub(crate) copies: RefCell<Vec<u8>>,
    /// All that any process has registered, by name.
    pub(crate) entities: BTreeSet<String>,
}

impl Collector {
    /// Writes to `out`, in which there must be no trace yet. With `clock`, every stamp goes through
    /// it.
    pub fn new(
        out: &Path,
        identity: Identity,
        clock: Option<ClockMap>,
    ) -> Result<Collector, Error> {
        std::fs::create_dir_all(out).map_err(Error::file("make", out))?;
        if ["trace", "streams"].iter().any(|name| out.join(name).exists()) {
            return Err(Error::TraceExists(out.to_owned()));
        }
        Ok(Collector::with(out, identity, clock, Journal::create(out)?, false))
    }

    /// Takes up a recording to `out` whose collector was killed: nothing of it is doubled, and of
    /// what the programs' memory holds nothing is lost. The same sources are to be added, or
    /// programs attached to, as before. The identity is that of the traces that are there.
    pub fn resume(
        out: &Path,
        identity: Identity,
        clock: Option<ClockMap>,
    ) -> Result<Collector, Error> {
        Ok(Collector::with(out, identity, clock, Journal::resume(out)?, true))
    }

    pub(crate) fn with(
        out: &Path,
        identity: Identity,
        clock: Option<ClockMap>,
        journal: Journal,
        resumed: bool,
    ) -> Collector {
        // A program can stamp its records with anything; the map need not reach beyond all
        // counters.
        let clock = clock.map(|clock| -> ClockMap {
            Box::new(move |counter| clock(Counter(counter.0.min(LATEST))))
        });
        Collector {
            out: out.to_owned(),
            identity,
            clock,
            sources: Vec::new(),
            processes: Vec::new(),
            outputs: Vec::new(),
            problems: Vec::new(),
            deadlines: Vec::new(),
            cost: None,
            next_process: journal.next_process(),
            journal,
            resumed,
            left_out: 0,
            open_files: OpenFiles::default(),
            copies: RefCell::default(),
            entities: BTreeSet::new(),
        }
    }

    /// Notes what another recorder needs to go on. As long as the lock is held, none does.
    pub(crate) fn begin(&mut self, place: Place, streams: &[StreamSpec]) -> Result<Lock, Error> {
        let path = Journal::path(&self.out);
        let held = lock(&path).map_err(Error::file("lock", &path))?;
        let taken = || Error::StillRecording { out: self.out.clone(), recorder: None };
        let held = held.ok_or_else(taken)?;
        self.journal.note_recorder()?;
        self.journal.note(&Entry::Begun(Begun::new(place, streams, &self.identity)))?;
        Ok(held)
    }

    /// Notes the program whose end is that of the recording.
    pub(crate) fn note_program(&mut self, pid: u32) -> Result<(), Error> {
        Program::of(pid).map_or(Ok(()), |program| self.journal.note(&Entry::Program(program)))
    }

    /// Whether any process is known and not closed.
    pub(crate) fn has_processes(&self) -> bool {
        !self.processes.is_empty()
    }

    /// Whether there is any directory in which programs may be found.
    pub fn has_sources(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Process numbers of the programs that are recorded now.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().map(|process| process.pid)
    }

    /// Adds a runtime directory whose `streams` file asks for these streams
    /// ([`crate::stream::write`]). Its processes are called `process`, or by their programs' short
    /// names. The directory belongs to the collector from now on: [`Collector::finish`] removes it.
    pub fn add_source(
        &mut self,
        runtime_dir: &Path,
        process: Option<String>,
        streams: &[StreamSpec],
    ) -> Result<(), Error> {
        validate(streams)?;
        let outputs =
            streams.iter().map(|spec| self.output_of(spec)).collect::<Result<Vec<_>, _>>()?;
        let mut dir = runtime_dir.to_owned();
        if self.resumed && !dir.exists() {
            // The recording was about to end.
            dir = closed(&dir);
        }
        if let Some(problem) = not_in_memory(&dir)
            && !self.sources.iter().any(|source| not_in_memory(&source.dir).is_some())
        {
            self.problems.push(problem);
        }
        let folder = Arc::new(Folder::open(&dir).map_err(Error::file("read", &dir))?);
        self.sources.push(Source {
            dir,
            folder,
            owner: None,
            process,
            seen: BTreeSet::new(),
            streams: streams.to_vec(),
            outputs,
            family: None,
            // Programs that had read the old ones may not have been told.
            changed: self.journal.past.streams.is_some(),
            listed: None,
        });
        Ok(())
    }

    /// Tells in the accounts what an event costs on this machine.
    pub fn set_cost(&mut self, cost: Cost) {
        self.cost = Some(cost);
    }

    /// Index of the output of a stream; made if there is none yet.
    pub(crate) fn output_of(&mut self, spec: &StreamSpec) -> Result<usize, Error> {
        if let Some(at) = self.outputs.iter().position(|o| o.spec.name == spec.name) {
            if self.outputs[at].spec.kind != spec.kind {
                let what = "another source records it as the other kind of stream".into();
                return Err(Error::Stream { name: spec.name.clone(), what });
            }
            return Ok(at);
        }
        let open_files = self.open_files.clone();
        let output = if self.resumed {
            Output::resume(&self.out, spec, &self.identity, open_files, &self.journal.past)?
        } else {
            Output::create(&self.out, spec, &self.identity, open_files)?
        };
        self.outputs.push(output);
        Ok(self.outputs.len() - 1)
    }

    /// Copies what is complete. To be called so often that no ring fills in between, see
    /// [`Activity::pause`].
    pub fn poll(&mut self) -> Result<Activity, Error> {
        // A process that has ended by now has made all its files and stores.
        self.discover()?;
        let sources = &self.sources;
        // A daemon is reached by way of the directory of the process that forked it.
        let reaches = |p: &Process| sources[p.source].family.is_some() && p.has_heirs();
        let over = |p: &&Process| p.has_ended() && !p.has_orphans() && !reaches(p);
        let ended: Vec<u32> = self.processes.iter().filter(over).map(|p| p.id).collect();
        let due = self.due_snapshots();
        let mut activity = self.copy()?;
        self.see_triggers()?;
        self.take_snapshots(&due, &mut activity)?;
        for id in ended {
            if let Some(at) = self.processes.iter().position(|p| p.id == id) {
                let process = self.processes.remove(at);
                self.close(process, Cause::Death, &mut activity)?;
            }
        }
        Ok(activity)
    }

    /// One round over all known processes: rings are marked, then call sites read, then metadata
    /// written, then packets up to the marks copied. In this order no record is read or persisted
    /// before its class is known.
    pub(crate) fn copy(&mut self) -> Result<Activity, Error> {
        let mut activity = Activity::default();
        for process in &mut self.processes {
            let level = process.look(&mut self.outputs, &mut self.journal)?;
            activity.fill = activity.fill.max(level.fill);
            activity.capacity = match (activity.capacity, level.capacity) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            process.read_sites();
            process.apply();
            process.declare(&mut self.outputs);
        }
        self.note_entities();
        for output in &mut self.outputs {
            output.write_metadata()?;
        }
        activity.departures = self.watch_deadlines()?;
        let (clock, progress) = (self.clock.as_ref(), &self.journal.progress);
        let with = With { clock, progress, copies: &self.copies };
        for process in &mut self.processes {
            activity.copied += process.drain(&mut self.outputs, with)?;
        }
        Ok(activity)
    }

    fn close(
        &mut self,
        mut process: Process,
        cause: Cause,
        activity: &mut Activity,
    ) -> Result<(), Error> {
        self.take_last(&mut process, cause, activity)?;
        self.tell_triggers(activity)?;
        let lives = !process.has_ended();
        let (clock, progress) = (self.clock.as_ref(), &self.journal.progress);
        let with = With { clock, progress, copies: &self.copies };
        let losses = process.close(&mut self.outputs, with, lives)?;
        self.journal.note(&Entry::Closed { process: process.id, losses })?;
        self.problems.extend(process.refused());
        self.let_go(&process);
        Ok(())
    }

    /// Ends the recording of the program that was attached to in `process_dir`, and of its
    /// children: their call sites and memory are as before.
    pub fn detach(&mut self, process_dir: &Path) -> Result<(), Error> {
        let of = |source: &Source| {
            let names = source.family.as_ref();
            let name = process_dir.file_name();
            Some(source.dir.as_path()) == process_dir.parent()
                && names.zip(name).is_some_and(|(names, name)| names.contains(name))
        };
        let leaves: Vec<bool> = self.sources.iter().map(of).collect();
        self.settle(&leaves)?;
        let (leaving, staying) = std::mem::take(&mut self.processes)
            .into_iter()
            .partition(|p: &Process| leaves[p.source]);
        self.processes = staying;
        let mut activity = Activity::default();
        self.close_all(leaving, &mut activity)?;
        for (source, leaves) in self.sources.iter_mut().zip(leaves) {
            if leaves {
                // The source stays, because processes know theirs by its number, and finds no more.
                source.family = Some(BTreeSet::new());
            }
        }
        Ok(())
    }

    /// Ends the recording: disables all events in processes that still run (they go on dormant, and
    /// so do programs that start later with the same environment), takes what is left, writes the
    /// accounts, and removes the runtime directories that are the collector's.
    pub fn finish(mut self) -> Result<Losses, Error> {
        let mut losses = self.take_all();
        for source in self.sources.iter().filter(|source| source.family.is_none()) {
            // Where closing them failed, that is the error to report.
            if let Err(error) = std::fs::remove_dir_all(&source.dir)
                && let Ok(losses) = &mut losses
            {
                let what = format!("cannot remove {}: {error}", source.dir.display());
                losses.problems.push(what);
            }
        }
        losses
    }

    /// Disables all events in the processes of these sources, and copies until no thread is inside
    /// one any more, or has been for too long.
    fn settle(&mut self, sources: &[bool]) -> Result<(), Error> {
        let deadline = Instant::now() + SETTLE;
        loop {
            let unfinished = self.discover()?;
            self.processes.iter_mut().filter(|p| sources[p.source]).for_each(Process::disable);
            self.copy()?;
            let settled = |p: &Process| p.has_ended() || p.is_settled();
            let all = self.processes.iter().filter(|p| sources[p.source]).all(settled);
            if (all && !unfinished) || Instant::now() > deadline {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn close_all(&mut self, processes: Vec<Process>, activity: &mut Activity) -> Result<(), Error> {
        for process in processes {
            let ended = process.has_ended();
            let cause = if ended { Cause::Death } else { Cause::End };
            self.close(process, cause, activity)?;
        }
        Ok(())
    }

    fn take_all(&mut self) -> Result<Losses, Error> {
        self.discover()?;
        self.processes.iter_mut().for_each(Process::fix_refused);
        let known = self.next_process;
        self.close_sources()?;
        self.settle(&vec![true; self.sources.len()])?;
        let mut processes = std::mem::take(&mut self.processes);
        // A process that came in between could not register anything any more.
        processes.iter_mut().filter(|p| p.id >= known).for_each(Process::forget_refused);
        self.close_all(processes, &mut Activity::default())?;
        self.problems.extend(self.deadlines.iter().filter_map(Watched::problem));
        let mut losses = Losses {
            problems: std::mem::take(&mut self.problems),
            unmatched: self.unmatched(),
            ..Losses::default()
        };
        for output in &mut self.outputs {
            let report = output.finish(self.cost)?;
            losses.streams.insert(output.spec.name.clone(), report);
        }
        self.journal.remove()?;
        Ok(losses)
    }

    /// Gives the runtime directories another name, so that programs can make nothing more in them:
    /// what is there now is all.
    fn close_sources(&mut self) -> Result<(), Error> {
        for source in self.sources.iter_mut().filter(|source| source.family.is_none()) {
            if self.resumed && is_closed(&source.dir) {
                continue;
            }
            let closed = closed(&source.dir);
            std::fs::rename(&source.dir, &closed).map_err(Error::file("rename", &source.dir))?;
            source.dir = closed;
        }
        Ok(())
    }

    /// The folder of a stream's output.
    pub fn folder(&self, stream: &str) -> PathBuf {
        folder(&self.out, stream)
    }

    /// Whether any stream is the flight recorder of this recording.
    pub fn has_flight_recorders(&self) -> bool {
        self.outputs.iter().any(Output::is_flight_recorder)
    }
}

/// Removes what a recording that never began has made.
pub(crate) fn remove_output(out: &Path, streams: &[StreamSpec]) -> Result<(), Error> {
    let remove = |path: PathBuf| match std::fs::symlink_metadata(&path) {
        Err(_) => Ok(()),
        Ok(kind) if kind.is_dir() => {
            std::fs::remove_dir_all(&path).map_err(Error::file("remove", &path))
        }
        Ok(_) => std::fs::remove_file(&path).map_err(Error::file("remove", &path)),
    };
    if streams.iter().any(|spec| spec.name == MAIN) {
        let names = ["trace", "loss.json", "triggers.json", FOR_METADATA, FOR_ACCOUNT];
        names.iter().try_for_each(|n| remove(out.join(n)))?;
    }
    Journal::remove_from(out)?;
    remove(out.join("streams"))
}
