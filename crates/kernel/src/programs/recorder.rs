//! Takes the programs' records out of their ring, and writes those of each processor to a file.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use loopscope_time::source::read_counter;
use nix::time::{ClockId, clock_gettime};

use super::loaded::{Chosen, How, Number, Programs, ProgramsError, Structures};
use super::place::Reading;
use super::record::{self, Kind};
use super::symbols::{Functions, Symbols};
use super::{DROP, GROUP, TCP, UDP};
use crate::cost::{self, Cost, Link};
use crate::error::RecorderError;
use crate::output::{Output, Replaced};
use crate::recording::{BufferCounts, Class, Recording, RecordingError, failed};

/// What to record.
#[derive(Clone, Debug)]
pub struct Request {
    /// Events as `bpf/NAME`, by class ([`super::CLASSES`]).
    pub classes: BTreeMap<String, Vec<String>>,
    /// Network namespaces whose sockets, devices and threads are measured, by their inodes.
    pub namespaces: Vec<u32>,
    /// Where messages have their number; at most 256.
    pub numbers: Vec<Number>,
    /// What of these classes is recorded alone.
    pub chosen: Chosen,
}

/// A class that is being recorded.
pub(crate) struct ProgramRecorder {
    pub(crate) class: String,
    /// Those that are recorded.
    kinds: Vec<Kind>,
    programs: Programs,
    namespaces: Vec<u32>,
    files: BTreeMap<u32, Output>,
    counts: BTreeMap<u32, BufferCounts>,
    /// What a flight recorder has not written, of each processor.
    replaced: BTreeMap<u32, Replaced>,
    /// Records of each processor that were taken out of the ring.
    taken: BTreeMap<u32, u64>,
    readings: Output,
    /// Those of functions in the records, and where they go.
    symbols: Symbols,
    symbols_path: PathBuf,
    room: u64,
    /// The counter just before the ring was emptied last, and at the last look at the counts.
    emptied: u64,
    looked: u64,
}

impl ProgramRecorder {
    /// Makes it ready. What of it there is, as a class of the recording; and what there is not.
    pub(crate) fn make(
        request: &Request,
        structures: &Structures,
        class: &str,
        events: &[String],
        folder: &Path,
        buffer: u64,
    ) -> Result<(ProgramRecorder, Class, Vec<String>), RecorderError> {
        let name = |kind: &Kind| format!("{GROUP}/{}", kind.name());
        let asked = |kind: &Kind| kind.class() == class && events.contains(&name(kind));
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(asked).collect();
        let known: Vec<String> = kinds.iter().map(name).collect();
        let processors = Programs::processors()?;
        let room = buffer.saturating_mul(processors.len() as u64);
        let mut programs = Programs::load(structures, class, &kinds, room, &request.chosen)?;
        programs.number(&request.numbers)?;
        let absent: Vec<Kind> = programs.absent.iter().map(|(kind, _)| *kind).collect();
        let kinds: Vec<Kind> = kinds.into_iter().filter(|kind| !absent.contains(kind)).collect();
        let mut absent: Vec<String> = absent.iter().map(name).collect();
        absent.extend(events.iter().filter(|event| !known.contains(event)).cloned());
        let found = Class {
            programs: kinds.iter().map(|kind| kind.name().to_owned()).collect(),
            processors: processors.clone(),
            ..Class::default()
        };
        fs::create_dir(folder.join(class)).map_err(failed("make", &folder.join(class)))?;
        let file = |&cpu: &u32| Ok((cpu, Output::make(Recording::pages(folder, class, cpu))?));
        let files = processors.iter().map(file).collect::<Result<_, RecorderError>>()?;
        let readings = Output::make(Recording::readings(folder, class))?;
        let zero = |&cpu: &u32| (cpu, BufferCounts::default());
        let recorder = ProgramRecorder {
            class: class.to_owned(),
            kinds,
            programs,
            namespaces: request.namespaces.clone(),
            files,
            counts: processors.iter().map(zero).collect(),
            replaced: BTreeMap::new(),
            taken: BTreeMap::new(),
            readings,
            symbols: Symbols::default(),
            symbols_path: Recording::symbols(folder, class),
            room,
            emptied: 0,
            looked: 0,
        };
        Ok((recorder, found, absent))
    }

    /// What an event costs, ns, or why that is not known: by the class's name, or by that of the
    /// event as `CLASS:NAME`. Nothing that it records is kept.
    pub(crate) fn event_ns(&mut self) -> Result<Vec<(String, Cost)>, RecorderError> {
        let link = match self.class.as_str() {
            TCP => Some(Link::Tcp),
            UDP => Some(Link::Udp),
            DROP => Some(Link::Dropped),
            _ => None,
        };
        if let Some(link) = link {
            return Ok(vec![(self.class.clone(), self.priced(link, How::Unfiltered)?)]);
        }
        let mut costs = vec![];
        for kind in self.kinds.clone() {
            let how = match kind {
                Kind::Uninterruptible => How::AsRare,
                Kind::Throttled => How::AsThrottled,
                _ => How::Unfiltered,
            };
            let cost = self.priced(Link::Unix, how)?;
            costs.push((format!("{}:{}", self.class, kind.name()), cost));
        }
        Ok(costs)
    }

    fn priced(&mut self, link: Link, how: How) -> Result<Cost, RecorderError> {
        const ROUNDS: usize = 6;
        let own = Path::new("/proc/thread-self/ns/net");
        let own = fs::metadata(own).map_err(failed("read", own))?.ino() as u32;
        let mut rounds = vec![];
        for _ in 0..ROUNDS {
            let without = cost::turns(link, cost::BLOCKS / ROUNDS);
            self.programs.measure(&[own], how)?;
            let with = cost::turns(link, cost::BLOCKS / ROUNDS);
            self.programs.end()?;
            match without.and_then(|without| Ok((without, with?))) {
                Ok(round) => rounds.push(round),
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
        let counts = self.programs.counts()?;
        self.programs.forget()?;
        let of = rounds.first().and_then(|(_, with)| counts.get(&with.processor));
        let (recorded, dropped) = of.copied().unwrap_or_default();
        Ok(cost::event_ns(link, &rounds, recorded + dropped))
    }

    /// Begins to record.
    pub(crate) fn begin(&mut self) -> Result<(), RecorderError> {
        self.readings.put(&reading()?.to_bytes());
        let now = read_counter().0;
        (self.emptied, self.looked) = (now, now);
        Ok(self.programs.measure(&self.namespaces, How::Measured)?)
    }

    /// Goes on to record, or stops for a time.
    pub(crate) fn measure(&mut self, on: bool) -> Result<(), RecorderError> {
        if on { Ok(self.programs.measure(&self.namespaces, How::Measured)?) } else { self.end() }
    }

    /// Ends that. What was recorded can be taken yet.
    pub(crate) fn end(&mut self) -> Result<(), RecorderError> {
        Ok(self.programs.end()?)
    }

    /// The files of its records.
    pub(crate) fn files(&mut self) -> impl Iterator<Item = &mut Output> {
        self.files.values_mut()
    }

    /// What is held of its records is never written.
    pub(crate) fn replace(&mut self) {
        for (processor, file) in &mut self.files {
            file.replace(records_in, self.replaced.entry(*processor).or_default());
        }
    }

    /// Takes what is in the ring; the part of it that was in use. `all`: and writes it. A flight
    /// recorder holds what came in the last `keep` ticks of the counter.
    pub(crate) fn take(&mut self, all: bool, keep: u64) -> Result<f64, RecorderError> {
        let mut bytes = 0;
        // Records came while it was emptied.
        let begin = std::mem::replace(&mut self.emptied, read_counter().0);
        // Where as many are made as are taken, it ends after a round of the ring.
        while bytes < self.room || all {
            let Some(found) = self.programs.take() else { break };
            bytes += record::SIZE as u64;
            *self.taken.entry(found.processor()).or_default() += 1;
            found.addresses().for_each(|address| self.symbols.meet(address));
            if let Some(file) = self.files.get_mut(&found.processor()) {
                file.put(found.bytes());
                if file.is_full() {
                    file.write()?;
                }
            }
        }
        let now = read_counter().0;
        let oldest = now.saturating_sub(keep);
        for (processor, file) in &mut self.files {
            let replaced = self.replaced.entry(*processor).or_default();
            file.came((begin, now), oldest, records_in, replaced);
        }
        self.readings.put(&reading()?.to_bytes());
        if all {
            self.files.values_mut().try_for_each(Output::write)?;
        }
        if all || self.readings.is_full() {
            self.readings.write()?;
        }
        Ok(bytes as f64 / self.room as f64)
    }

    /// Looks at what the programs have counted.
    pub(crate) fn look(&mut self) -> Result<(), RecorderError> {
        let now = read_counter().0;
        for (processor, (recorded, dropped)) in self.programs.counts()? {
            let Some(counts) = self.counts.get_mut(&processor) else { continue };
            if dropped > counts.dropped {
                counts.gaps.push((self.looked, now, dropped - counts.dropped));
            }
            (counts.recorded, counts.dropped) = (recorded, dropped);
        }
        self.looked = now;
        Ok(())
    }

    /// The account of each processor after the last look, and what else may have been lost. The names
    /// of functions come from `functions`.
    pub(crate) fn account(
        mut self,
        functions: &Functions,
    ) -> (BTreeMap<u32, BufferCounts>, Vec<String>) {
        let now = read_counter().0;
        for (processor, counts) in &mut self.counts {
            let taken = self.taken.get(processor).copied().unwrap_or_default();
            let unwritten = self.files.get_mut(processor).map(Output::give_up).unwrap_or_default();
            // What nobody took, and what could not be written.
            let kept = taken.saturating_sub(records_in(&unwritten));
            let lost = counts.recorded.saturating_sub(kept);
            counts.recorded -= lost;
            counts.dropped += lost;
            if lost > 0 {
                counts.gaps.push((self.emptied, now, lost));
            }
            if let Some(replaced) = self.replaced.get(processor) {
                replaced.account(counts);
            }
        }
        let (known, class) = (self.programs.missed(), &self.class);
        let missed = known.values().sum::<u64>();
        let names: Vec<String> = known.keys().map(|name| format!("{class}:{name}")).collect();
        let problem = format!(
            "{missed} events {} came while the program for them was running on their processor; \
             which processors these were is not told",
            names.join(", ")
        );
        if let Some(counts) = self.counts.values_mut().next().filter(|_| missed > 0) {
            counts.dropped += missed;
            counts.known = known;
        }
        let mut problems: Vec<String> = (missed > 0).then_some(problem).into_iter().collect();
        if let Err(error) = name_functions(&mut self.symbols, functions, &self.symbols_path) {
            problems.push(format!("names of the kernel's functions: {error}"));
        }
        (self.counts, problems)
    }
}

/// How many records there are in some bytes.
fn records_in(bytes: &[u8]) -> u64 {
    (bytes.len() / record::SIZE) as u64
}

/// Finds the names of functions, and writes them to a file.
fn name_functions(
    symbols: &mut Symbols,
    functions: &Functions,
    path: &Path,
) -> Result<(), RecordingError> {
    if symbols.is_empty() {
        return Ok(());
    }
    symbols.find(functions).map_err(failed("read", Path::new("/proc/kallsyms")))?;
    fs::write(path, symbols.to_text()).map_err(failed("write", path))
}

/// The clock of the records between two readings of the counter: the closest of some.
fn reading() -> Result<Reading, RecorderError> {
    let one = |_| {
        let before = read_counter().0;
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC);
        let after = read_counter().0;
        let now = now.map_err(|error| RecorderError::Pages(format!("CLOCK_MONOTONIC: {error}")))?;
        let at = now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs();
        Ok(Reading { before, at, after })
    };
    let found = (0..5).map(one).collect::<Result<Vec<_>, RecorderError>>()?;
    let closest = found.into_iter().min_by_key(|each| each.after.saturating_sub(each.before));
    Ok(closest.expect("there are five"))
}

impl From<ProgramsError> for RecorderError {
    fn from(error: ProgramsError) -> RecorderError {
        RecorderError::Programs(error)
    }
}
