//! From the logs of a run to its clock maps: reading, joining, solving, and the log of estimates.

mod run;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::path::{Path, PathBuf};

use loopscope_ctf::{
    EventClass, FieldType, Metadata, PacketError, Packets, ParseError, Records, StreamClass, Value,
};
use loopscope_time::Counter;

use crate::anchor::Anchor;
use crate::counter::{CounterEvent, Disturbance};
use crate::exchange::Exchange;
use crate::offline::{Solution, SolveError};
use crate::record::{
    self, Identity, Moment, Observation, RecordError, Source, TraceFile, Writer, event,
};
use crate::{Span, pairs};

pub use run::{
    HostClock, MeshEdge, Surveyed, reference_clock, solve_run, solve_run_with, survey_mesh,
};

/// Why a run's clocks cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The system refused.
    #[error("cannot read {path}: {source}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A metadata file that is not loopscope's.
    #[error("{path}: {source}")]
    Metadata {
        /// File.
        path: PathBuf,
        /// Where and what.
        source: ParseError,
    },
    /// A damaged stream.
    #[error("{path}: {source}")]
    Stream {
        /// File.
        path: PathBuf,
        /// Where and what.
        source: PacketError,
    },
    /// A trace of something else.
    #[error("{0} is no probe log: its events are not those of clock probes")]
    NotProbes(PathBuf),
    /// Nothing to take the counter's frequency from.
    #[error(
        "the reference host has no trace under {host} (looked for clock/probes, trace and kernel \
         there): the frequency of its counter is unknown"
    )]
    NoReference {
        /// The reference's directory.
        host: PathBuf,
    },
    /// Other hosts probed a reference that left no probe log.
    #[error(
        "the reference host {reference} has no clock/probes, but {host} has: was {reference} the \
         reference of this run?"
    )]
    NoReferenceProbes {
        /// The reference.
        reference: String,
        /// A follower.
        host: String,
    },
    /// The probes of a host give no map.
    #[error("the clock of {host}: {source}")]
    Solve {
        /// The follower.
        host: String,
        /// Why.
        source: SolveError,
    },
    /// A host of a mesh without a clock of its own.
    #[error("{0} has no clock of its own in this run, so no loop closes over it")]
    NoClock(String),
    /// The estimates cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The caller has cancelled.
    #[error("stopped")]
    Stopped,
}

/// One side's probe log, read back.
#[derive(Clone, Debug)]
pub struct ProbeLog {
    /// What it declares.
    pub identity: Identity,
    /// In the order of logging.
    pub observations: Vec<Observation>,
    /// Readings of other clocks, in the order of logging.
    pub anchors: Vec<Anchor>,
    /// What happened to the counter.
    pub counter_events: Vec<CounterEvent>,
    /// How far the counters of two of the host's processors may be apart, in ticks; `None` where it
    /// does not say, as an old one.
    pub apart: Option<u64>,
    /// Size of what no longer reads as packets at the end of its stream: its writer was killed in
    /// the middle of one.
    pub torn_bytes: usize,
}

impl ProbeLog {
    /// [`Self::apart`] in nanoseconds.
    fn apart_ns(&self) -> Option<f64> {
        self.apart.map(|ticks| ticks as f64 * self.identity.frequency.ns_per_tick())
    }

    /// Reads a `clock/probes` directory.
    pub fn read(directory: &Path) -> Result<ProbeLog, LogError> {
        let metadata = read_metadata(directory)?;
        let class = probe_class(&metadata).ok_or_else(|| LogError::NotProbes(directory.into()))?;
        let records = Records::new(class);
        let identity = Identity {
            host: metadata.host.clone(),
            trace_uuid: metadata.uuid,
            clock_uuid: metadata.clock_uuid,
            frequency: metadata.frequency,
        };
        let mut log = ProbeLog {
            identity,
            observations: Vec::new(),
            anchors: Vec::new(),
            counter_events: Vec::new(),
            apart: None,
            torn_bytes: 0,
        };
        for path in streams(directory)? {
            let bytes = std::fs::read(&path).map_err(io_error(&path))?;
            let stream_error = |source| LogError::Stream { path: path.clone(), source };
            let mut packets = Packets::new(&bytes);
            let mut good = 0;
            while let Some(packet) = packets.next() {
                let Ok((context, content)) = packet else {
                    log.torn_bytes += bytes.len() - good;
                    break;
                };
                let decoded = records.decode(&context, content, |record| {
                    log.take(&class.events[record.class], &record);
                });
                decoded.map_err(stream_error)?;
                good = packets.offset();
            }
        }
        Ok(log)
    }

    fn take(&mut self, class: &EventClass, record: &loopscope_ctf::Record) {
        let mut fields = Fields(class.values(record.fields).map(|(_, value)| value));
        // `probe_class` has checked what the fields are.
        let _ = match Moment::ALL.into_iter().find(|m| m.name() == class.name) {
            Some(moment) => {
                fields.observation(moment, record.id).map(|o| self.observations.push(o))
            }
            None if class.name == "processors" => {
                fields.unsigned().map(|apart| self.apart = Some(apart))
            }
            None if class.name == "anchor" => fields.anchor().map(|a| self.anchors.push(a)),
            None => fields.counter_event().map(|e| self.counter_events.push(e)),
        };
    }
}

fn probe_class(metadata: &Metadata) -> Option<&StreamClass> {
    let mut classes = metadata.streams.values();
    let class = classes.next()?;
    let known = record::classes();
    let is_known = |e: &EventClass| {
        let same = |k: &EventClass| k.name == e.name && k.fields == e.fields;
        e.group == "clock" && known.iter().any(same)
    };
    (classes.next().is_none() && class.events.iter().all(is_known)).then_some(class)
}

/// A record's values, one after the other.
struct Fields<I>(I);

impl<'a, I: Iterator<Item = Value<'a>>> Fields<I> {
    fn unsigned(&mut self) -> Option<u64> {
        match self.0.next()? {
            Value::Unsigned(value) => Some(value),
            _ => None,
        }
    }

    fn signed(&mut self) -> Option<i64> {
        match self.0.next()? {
            Value::Signed(value) => Some(value),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<String> {
        match self.0.next()? {
            Value::String(text) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        }
    }

    fn span(&mut self) -> Option<Span> {
        Some(Span { lo: Counter(self.unsigned()?), hi: Counter(self.unsigned()?) })
    }

    fn observation(&mut self, moment: Moment, id: i64) -> Option<Observation> {
        let (peer, span) = (self.unsigned()? as u32, self.span()?);
        let source = Source::of(self.unsigned()?)?;
        Some(Observation { moment, peer, seq: id.cast_unsigned(), span, source })
    }

    fn anchor(&mut self) -> Option<Anchor> {
        let clock = self.text()?.parse().ok()?;
        Some(Anchor { clock, ns: self.signed()?, at: self.span()? })
    }

    fn counter_event(&mut self) -> Option<CounterEvent> {
        let name = self.text()?;
        let disturbance = Disturbance::ALL.into_iter().find(|d| d.name() == name)?;
        let (ns, within) = (self.signed()?, self.span()?);
        let processors = [self.unsigned()? as u32, self.unsigned()? as u32];
        let after = Span { lo: within.hi, hi: within.hi };
        Some(CounterEvent { disturbance, within, after, ns, processors })
    }
}

/// What two logs say about their exchanges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// One for each probe of the follower, by client id and sequence number.
    pub exchanges: Vec<Exchange>,
    /// Observations left out because their log holds the same moment of the same probe twice:
    /// two followers drew one client id.
    pub ambiguous: usize,
}

/// Joins a follower's log with the reference's, which may hold those of other followers too.
pub fn join(follower: &ProbeLog, reference: &ProbeLog) -> Joined {
    let mut joined = Joined::default();
    let mut probes: BTreeMap<(u32, u64), Exchange> = BTreeMap::new();
    let own = |o: &&Observation| matches!(o.moment, Moment::ProbeSent | Moment::ReplyReceived);
    for seen in follower.observations.iter().filter(own) {
        probes.entry((seen.peer, seen.seq)).or_default();
    }
    let mut seen_before: BTreeMap<(u32, u64, Moment), ()> = BTreeMap::new();
    let others = |o: &&Observation| !own(o);
    let all = follower.observations.iter().filter(own);
    for seen in all.chain(reference.observations.iter().filter(others)) {
        let Some(exchange) = probes.get_mut(&(seen.peer, seen.seq)) else { continue };
        let place = match seen.moment {
            Moment::ProbeSent => &mut exchange.t1,
            Moment::ProbeReceived => &mut exchange.t2,
            Moment::ReplySent => &mut exchange.t3,
            Moment::ReplyReceived => &mut exchange.t4,
        };
        match seen_before.entry((seen.peer, seen.seq, seen.moment)) {
            Entry::Vacant(first) => {
                first.insert(());
                *place = Some(seen.span);
            }
            Entry::Occupied(_) => {
                // The first one is withdrawn too, once.
                joined.ambiguous += 1 + usize::from(place.is_some());
                *place = None;
            }
        }
    }
    let clocks = [follower, reference].map(|log| log.identity.frequency);
    let mut probes: Vec<((u32, u64), Exchange)> = probes.into_iter().collect();
    let pair = |a: &((u32, u64), Exchange), b: &((u32, u64), Exchange)| {
        a.0.0 == b.0.0 && a.0.1 == pairs::partner(b.0.1)
    };
    for probes in probes.chunk_by_mut(pair) {
        if let [(_, first), (_, second)] = probes {
            pairs::judge(first, second, clocks[0], clocks[1]);
        }
    }
    joined.exchanges = probes.into_iter().map(|(_, exchange)| exchange).collect();
    joined
}

/// Reads and joins the `clock/probes` directories of a follower and the reference.
pub fn read_exchanges(follower: &Path, reference: &Path) -> Result<Joined, LogError> {
    Ok(join(&ProbeLog::read(follower)?, &ProbeLog::read(reference)?))
}

/// Fields of `clock:estimate`: those of [`crate::offline::Estimate`] in their order, then its knot's.
const ESTIMATE: [(&str, FieldType); 5] = [
    ("offset_ns", FieldType::F64),
    ("rate_ppm", FieldType::F64),
    ("err_ns", FieldType::F64),
    ("calibrated_ns", FieldType::F64),
    ("epoch", FieldType::U32),
];

/// The writer of estimates from packets: any process can make them again at any time, with the same
/// result.
const NOBODY: Writer = Writer { pid: 0, tid: 0 };

/// Writes what a solution estimates as the trace directory `directory`, in place of an earlier one:
/// events `clock:estimate`, id the row's index, stamped with the follower's counter. `probes` is
/// the identity of the probe log that they were made of.
pub fn write_estimates(
    directory: &Path,
    probes: &Identity,
    solution: &Solution,
) -> Result<(), RecordError> {
    match std::fs::remove_dir_all(directory) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(RecordError::Io { path: directory.into(), source });
        }
        _ => {}
    }
    // Another trace than the probes', and the same one each time it is made of them.
    let mut identity = probes.clone();
    identity.trace_uuid[15] ^= 1;
    let events = vec![event(0, "estimate", &ESTIMATE)];
    let mut trace = TraceFile::create(directory, "estimates", &identity, events, NOBODY)?;
    for ((index, row), knot) in (0..).zip(&solution.estimates).zip(solution.map.knots()) {
        // A knot is in an epoch.
        let epoch = solution.map.epoch(knot.counter).unwrap_or_default();
        let numbers = [row.offset_ns, row.rate_ppm, row.err_ns, knot.calibrated_ns];
        let mut fields: Vec<u8> = numbers.into_iter().flat_map(f64::to_le_bytes).collect();
        fields.extend(epoch.to_le_bytes());
        trace.record(0, row.counter, index, &fields)?;
    }
    trace.flush()
}

fn read_metadata(directory: &Path) -> Result<Metadata, LogError> {
    let path = directory.join("metadata");
    let text = std::fs::read_to_string(&path).map_err(io_error(&path))?;
    Metadata::parse(&text).map_err(|source| LogError::Metadata { path, source })
}

/// The stream files of a trace directory, by name.
fn streams(directory: &Path) -> Result<Vec<PathBuf>, LogError> {
    let names = names(directory)?;
    Ok(names.iter().filter(|name| *name != "metadata").map(|name| directory.join(name)).collect())
}

fn names(directory: &Path) -> Result<Vec<String>, LogError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(io_error(directory))? {
        names.push(entry.map_err(io_error(directory))?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> LogError {
    let path = path.to_owned();
    move |source| LogError::Io { path: path.clone(), source }
}

#[cfg(test)]
mod tests;
