//! One process directory: a program's control file, call sites and streams.

mod find_rings;
mod sites;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use loopscope_ctf::{EventClass, Records, StreamClass};
use loopscope_time::Counter;
use loopscope_time::source::{CounterKind, VARIABLE, counter_kind, read_counter};
use loopscope_trace::layout::{Control, FREE, MAX_SITES, STREAMS};

use crate::alive::{Life, has_heirs};
use crate::cells::finals;
use crate::deadline::{End, Watched, ends};
use crate::doubts::Doubts;
use crate::folder::{Folder, Id, State};
use crate::journal::{Entry, Journal};
use crate::mapping::Mapping;
use crate::output::Output;
use crate::process_stream::{Level, Of, Ours, ProcessStream};
use crate::progress::ProgressFile;
use crate::shortage::reason;
use crate::sink::Tools;
use crate::site::{LONGEST_LINE, Site, description};
use crate::{ClockMap, Error, ProcessLoss};

/// A process under collection.
#[derive(Debug)]
pub(crate) struct Process {
    /// The runtime directory, and the process directory in it.
    runtime: Arc<Folder>,
    pub(crate) dir: OsString,
    dir_id: Id,
    /// Index of the source that it was found in.
    pub(crate) source: usize,
    /// Number of its stream class, in each of the outputs.
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) pid: u32,
    life: Life,
    pub(crate) control: Mapping<Control>,
    pub(crate) sites: Vec<Site>,
    pub(crate) streams: Vec<ProcessStream>,
    classes: Vec<EventClass>,
    groups: BTreeMap<String, String>,
    records: Records,
    /// Classes that deadlines are about, and of how many classes and deadlines they are.
    ends: ((usize, usize), Vec<End>),
    /// The outputs know all of it.
    declared: bool,
    /// What is applied to call sites from outside.
    pub(crate) text: Option<CString>,
    /// Call sites that it was applied to.
    pub(crate) applied: usize,
    /// Call sites that were refused while the runtime directory was there.
    refused: Option<u32>,
    /// Nothing in its directory can be believed any more: it is left alone.
    lost: bool,
    /// No more of its call sites can be read.
    sites_end: bool,
    /// Call sites whose entities the collector has noted.
    noted: usize,
    doubts: Doubts,
    /// When its directory was listed last, in what state it was and how many streams there were;
    /// `None`: it has to be listed.
    listed: Option<(State, usize)>,
}

/// Bytes of a `sites` file: every call site with half of the longest line.
pub(crate) const LARGEST_SITES: u64 = (MAX_SITES * LONGEST_LINE / 2) as u64;

/// Refuses a program whose hits are stamped by another counter than this recording's.
fn check_counter(control: &Control) -> io::Result<()> {
    let own = counter_kind();
    let theirs = CounterKind::of_number(control.counter.load(Ordering::Relaxed).into());
    if theirs == Some(own) {
        return Ok(());
    }
    let stamped = match theirs {
        Some(kind) => format!("its events are stamped with the counter {kind}"),
        None => format!("{VARIABLE} in its environment names no kind of counter"),
    };
    Err(io::Error::other(format!(
        "{stamped}, and this recording's counter is {own}: start the program with {VARIABLE}={own}, or \
         both without {VARIABLE}"
    )))
}

impl Process {
    /// Opens a process directory; `None` while the program is still making it.
    pub(crate) fn open(
        runtime: &Arc<Folder>,
        dir: &OsStr,
        source: usize,
        id: u32,
        name: Option<&str>,
    ) -> io::Result<Option<Process>> {
        let folder = runtime.child(dir)?;
        let opened = folder.write(OsStr::new("control"));
        let control = match opened.and_then(|file| Mapping::<Control>::of(&file, CONTROL_SIZE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
            Ok(None) => return Ok(None),
            Ok(Some(control)) => control,
        };
        let name = name.map_or_else(|| short_name(control.get()), ToOwned::to_owned);
        let pid = control.get().pid.load(Ordering::Relaxed);
        if control.is_cut() {
            return Err(io::Error::other("its control file was cut short"));
        }
        // Before its stamp is compared with this process's counter.
        check_counter(control.get())?;
        let stamp = process_of(dir).map_or(u64::MAX, |(_, stamp)| stamp);
        let namespace = control.get().pid_namespace.load(Ordering::Relaxed);
        let life = Life::of(pid, stamp, namespace);
        Ok(Some(Process {
            runtime: runtime.clone(),
            dir: dir.to_owned(),
            dir_id: folder.id,
            source,
            id,
            pid,
            life,
            records: records_of(&[]),
            name,
            control,
            sites: Vec::new(),
            streams: Vec::new(),
            classes: Vec::new(),
            groups: BTreeMap::new(),
            ends: ((0, 0), Vec::new()),
            declared: false,
            text: None,
            applied: 0,
            refused: None,
            lost: false,
            sites_end: false,
            noted: 0,
            doubts: Doubts::default(),
            listed: None,
        }))
    }

    /// The process directory: the same one each time.
    pub(crate) fn folder(&self) -> io::Result<Folder> {
        let folder = self.runtime.child(&self.dir)?;
        if folder.id != self.dir_id {
            return Err(io::Error::other("another directory has taken its place"));
        }
        Ok(folder)
    }

    /// For messages.
    pub(crate) fn path(&self) -> PathBuf {
        self.runtime.path().join(&self.dir)
    }

    /// Leaves the process alone from now on; the others are recorded as before.
    fn lose(&mut self, why: &str) {
        self.lost = true;
        self.streams.iter_mut().for_each(ProcessStream::abandon);
        self.doubts.add(format!("{why}; what it recorded then is not known"));
    }

    /// Whether the process is left alone.
    fn is_lost(&mut self) -> bool {
        if !self.lost && self.control.is_cut() {
            self.lose("its control file was cut short");
        }
        self.lost
    }

    /// Whether the process is known to have ended. Only where its pid counts in this collector's
    /// own pid namespace can that be known.
    pub(crate) fn has_ended(&self) -> bool {
        self.life.has_ended()
    }

    /// Whether forked children use this process's directory although it has ended.
    pub(crate) fn has_heirs(&self) -> bool {
        has_heirs(self.control.get(), &self.dir)
    }

    /// Whether forked children count their hits in this process's tables, so that its account may
    /// grow when it has ended.
    pub(crate) fn has_orphans(&self) -> bool {
        // Before the drops are read that orphans count. Their count is atomic by itself.
        self.control.get().orphans.load(Ordering::Acquire) > 0
    }

    /// Records the streams that the process has taken from its `streams` file: by slot, the output.
    pub(crate) fn record_slots(&mut self, outputs: &[usize]) {
        for (slot, output) in outputs.iter().enumerate().take(STREAMS) {
            let stream = &self.control.get().streams[slot];
            // Acquire pairs with the release store of the state (config.c): the rest is there.
            if stream.state.load(Ordering::Acquire) == FREE
                || self.streams.iter().any(|recorded| recorded.slot == slot)
            {
                continue;
            }
            let generation = stream.generation.load(Ordering::Relaxed);
            self.streams.push(ProcessStream::new(slot, generation, *output));
            self.declared = false;
        }
    }

    /// Finds new rings and marks how far each has got.
    pub(crate) fn look(
        &mut self,
        outputs: &mut [Output],
        journal: &mut Journal,
    ) -> Result<Level, Error> {
        if self.is_lost() {
            return Ok(Level::default());
        }
        if let Err(error) = self.find_rings(outputs, journal)? {
            self.lose(&format!("its directory cannot be read: {error}"));
            return Ok(Level::default());
        }
        let mut level = Level::default();
        for recorded in &mut self.streams {
            let found = recorded.mark();
            level.fill = level.fill.max(found.fill);
            level.capacity = match (level.capacity, found.capacity) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        Ok(level)
    }

    /// Shows the deadlines what the marks cover and they have not seen.
    pub(crate) fn observe(&mut self, output: usize, deadlines: &mut [Watched]) {
        let known = (self.classes.len(), deadlines.len());
        if self.ends.0 != known {
            self.ends = (known, ends(&self.name, &self.classes, deadlines));
        }
        let ends = &self.ends.1;
        for recorded in self.streams.iter_mut().filter(|r| r.output == output) {
            recorded.observe(&self.records, |class, at, id| {
                for end in ends.iter().filter(|end| end.class == class) {
                    deadlines[end.deadline].see(end.last, id, at);
                }
            });
        }
    }

    /// Copies what the marks cover. Returns the sub-buffers copied.
    pub(crate) fn drain(&mut self, outputs: &mut [Output], with: With) -> Result<u64, Error> {
        let mut copied = 0;
        for recorded in &mut self.streams {
            let output = &mut outputs[recorded.output];
            let tools = tools(&self.records, &self.classes, with, output);
            copied += recorded.drain(tools)?;
            if recorded.was_full() {
                output.tell_full();
            }
        }
        Ok(copied)
    }

    /// Writes what the flight recorder in `slot` held when it was last looked at.
    pub(crate) fn snapshot(
        &mut self,
        slot: usize,
        outputs: &mut [Output],
        with: With,
    ) -> Result<u64, Error> {
        let mut packets = 0;
        for recorded in self.streams.iter_mut().filter(|r| r.slot == slot) {
            let output = &mut outputs[recorded.output];
            let tools = tools(&self.records, &self.classes, with, output);
            packets += recorded.snapshot(tools)?;
        }
        Ok(packets)
    }

    /// Records that were written of the stream in `slot`.
    pub(crate) fn stored(&self, slot: usize) -> u64 {
        self.streams.iter().filter(|r| r.slot == slot).map(ProcessStream::stored).sum()
    }

    /// End of the newest packet of the stream in `slot`, on the trace's clock.
    pub(crate) fn last(&self, slot: usize) -> Counter {
        let of = self.streams.iter().filter(|r| r.slot == slot);
        of.map(ProcessStream::last).max().unwrap_or(Counter(0))
    }

    /// The outputs are told again.
    pub(crate) fn undeclare(&mut self) {
        self.declared = false;
    }

    /// Disables every event in the streams, for good.
    pub(crate) fn disable(&mut self) {
        self.text = None;
        if self.is_lost() {
            return;
        }
        self.streams.iter().for_each(|recorded| recorded.disable(self.control.get()));
    }

    /// Whether no thread is inside an event. Everything must have been drained.
    pub(crate) fn is_settled(&self) -> bool {
        self.lost || self.streams.iter().all(|recorded| recorded.is_settled(&self.records))
    }

    /// Takes all that is left, and gives each output its account. Where the process `lives`,
    /// threads may go on.
    pub(crate) fn close(
        &mut self,
        outputs: &mut [Output],
        with: With,
        lives: bool,
    ) -> Result<Vec<(String, ProcessLoss)>, Error> {
        let mut losses = Vec::new();
        // A program that cuts it may die of that at once, before anything was read behind the cut.
        self.control.touch_end();
        self.is_lost();
        let folder = self.folder();
        if let Err(error) = &folder
            && !self.lost
        {
            self.lose(&format!("its directory cannot be read: {error}"));
        }
        let unknown = self.doubts.texts();
        let path = self.path();
        if lives {
            self.streams.iter().for_each(ProcessStream::revoke);
        }
        let control = self.control.get();
        // A process that has ended had its last state when it wrote its last record.
        let last = self.streams.iter().map(ProcessStream::last).max().filter(|last| last.0 > 0);
        let now = match last {
            Some(last) if !lives => last,
            _ => with.clock.map_or(read_counter(), |clock| clock(read_counter())),
        };
        for recorded in &mut self.streams {
            let output = &mut outputs[recorded.output];
            let tools = tools(&self.records, &self.classes, with, output);
            let of = Of {
                process: &self.name,
                pid: self.pid,
                dir: &path,
                control,
                sites: &self.sites,
                classes: &self.classes,
                lives,
                unknown: &unknown,
            };
            let mut problems = Vec::new();
            let mut loss = recorded.close(&of, tools, &mut problems)?;
            output.problems.append(&mut problems);
            let described = |site: &Site| description(&self.sites, site);
            let (slot, generation) = (recorded.slot, recorded.generation);
            let mut doubts = Doubts::default();
            let finals = folder.as_ref().map_or(Vec::new(), |folder| {
                finals(folder, slot, generation, &self.sites, described, &mut doubts)
            });
            loss.unknown.extend(doubts.texts());
            if !finals.is_empty() {
                let at = recorded.last().max(now);
                loss.finals = output.write_finals(self.id, self.pid, &finals, at)?;
            }
            if loss.sites.iter().any(|site| site.dropped.contains_key(crate::loss::DISK_FULL)) {
                output.tell_full();
            }
            losses.push((output.spec.name.clone(), loss.clone()));
            output.closed(self.id, loss);
        }
        Ok(losses)
    }

    /// Call sites that could not be registered are a problem from now on no more: the runtime
    /// directory goes away.
    pub(crate) fn fix_refused(&mut self) {
        self.refused = Some(self.control.get().sites_refused.load(Ordering::Relaxed));
    }

    /// None of them are.
    pub(crate) fn forget_refused(&mut self) {
        self.refused = Some(0);
    }

    /// What the program could not tell otherwise.
    pub(crate) fn refused(&self) -> Option<String> {
        let now = || self.control.get().sites_refused.load(Ordering::Relaxed);
        let refused = self.refused.unwrap_or_else(now);
        let error = self.control.get().sites_error.load(Ordering::Relaxed).cast_signed();
        let why = match error {
            0 => format!("a process has room for {MAX_SITES}, and their names must be printable"),
            error => reason(error, &self.path()),
        };
        (refused > 0).then(|| {
            format!(
                "{refused} call sites of {} ({}) could not be registered and recorded nothing: {why}",
                self.name, self.pid
            )
        })
    }

    /// Removes the process directory.
    pub(crate) fn remove(&self) -> io::Result<()> {
        self.folder()?;
        self.runtime.remove_child(&self.dir)
    }
}

const CONTROL_SIZE: usize = size_of::<Control>();

/// The process number and the counter's stamp in the name of a process directory,
/// `<pid>-<hex stamp>`.
pub(crate) fn process_of(name: &OsStr) -> Option<(u32, u64)> {
    let (pid, stamp) = name.to_str()?.split_once('-')?;
    Some((pid.parse().ok()?, u64::from_str_radix(stamp, 16).ok()?))
}

/// What is the same for all processes.
#[derive(Clone, Copy)]
pub(crate) struct With<'a> {
    pub(crate) clock: Option<&'a ClockMap>,
    pub(crate) progress: &'a ProgressFile,
    pub(crate) copies: &'a RefCell<Vec<u8>>,
}

/// The stream file of a ring: that of an earlier collector, or a new one.
fn ours(
    output: &mut Output,
    journal: &mut Journal,
    (id, process, pid): (u32, &str, u32),
    ring: &OsStr,
    n: &str,
) -> Result<Ours, Error> {
    let ring = ring.to_string_lossy().into_owned();
    if let Some((number, file)) = journal.past.rings.get(&(id, ring.clone())) {
        let stream = output.known_stream_file(id, pid, file);
        return Ok(Ours { stream, number: *number, resumed: true });
    }
    let stream = output.stream_file(id, process, pid, n);
    let number = journal.number_ring();
    let file = stream.name();
    journal.note(&Entry::Ring { process: id, ring, number, file })?;
    Ok(Ours { stream, number, resumed: false })
}

fn tools<'a>(
    records: &'a Records,
    classes: &'a [EventClass],
    with: With<'a>,
    output: &Output,
) -> Tools<'a> {
    let With { clock, progress, copies } = with;
    Tools { records, classes, clock, progress, copies, blocked: !output.is_complete() }
}

fn records_of(classes: &[EventClass]) -> Records {
    Records::new(&StreamClass {
        id: 0,
        process: String::new(),
        kernel: false,
        events: classes.to_vec(),
    })
}

fn short_name(control: &Control) -> String {
    let bytes: Vec<u8> = control
        .process
        .iter()
        .map(|byte| byte.load(Ordering::Relaxed))
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
