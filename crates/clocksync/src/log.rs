//! From the logs of a run to its clock maps: reading, joining, solving, and the log of estimates.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use loopscope_ctf::{
    EventClass, FieldType, Metadata, PacketError, Packets, ParseError, Records, StreamClass, Value,
    packet,
};
use loopscope_time::{ClockMap, Counter, Frequency};

use crate::anchor::Anchor;
use crate::constraint::Message;
use crate::counter::{CounterEvent, Disturbance};
use crate::exchange::Exchange;
use crate::loops::{Edge, Survey};
use crate::offline::{self, Solution, SolveError, solve, solve_between};
use crate::record::{
    self, Identity, Moment, Observation, RecordError, Source, TraceFile, Writer, event,
};
use crate::{Span, pairs};

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

/// A disturbance of the reference's counter, on a follower's: after the last message before it, and
/// before the first one after it.
fn on_follower(event: &CounterEvent, exchanges: &[Exchange]) -> CounterEvent {
    let mut within = Span::ANY;
    for Message { own, reference, .. } in exchanges.iter().flat_map(Exchange::messages) {
        if reference.hi < event.within.lo {
            within.lo = within.lo.max(Counter(own.hi.0 + 1));
        } else if reference.lo > event.within.hi {
            within.hi = within.hi.min(Counter(own.lo.0.saturating_sub(1)));
        }
    }
    CounterEvent { within, after: Span { lo: within.hi, hi: within.hi }, ..*event }
}

/// One host's clock in a run.
#[derive(Clone, Debug)]
pub struct HostClock {
    /// From its counter to global time.
    pub map: ClockMap,
    /// Exchanges used; 0 for the reference.
    pub exchanges: usize,
    /// How many messages contradicted the others and were left out.
    pub rejected: usize,
    /// See [`crate::offline::Solution::disturbances`].
    pub disturbances: Vec<offline::Disturbance>,
    /// See [`crate::offline::Solution::unbelievable_ppm`].
    pub unbelievable_ppm: Option<f64>,
    /// Nominal frequency of its counter.
    pub frequency: Frequency,
    /// See [`Joined::ambiguous`].
    pub ambiguous: usize,
    /// See [`ProbeLog::torn_bytes`].
    pub torn_bytes: usize,
    /// See [`ProbeLog::anchors`].
    pub anchors: Vec<Anchor>,
    /// See [`ProbeLog::counter_events`].
    pub counter_events: Vec<CounterEvent>,
}

/// The clocks of all hosts under `hosts` (a run's `hosts/` directory) that have probed, and of
/// `reference`, which need not have been probed. Writes each follower's `clock/estimates`, in place
/// of an earlier one. `wander`: see [`crate::offline`].
pub fn solve_run(
    hosts: &Path,
    reference: &str,
    wander: f64,
) -> Result<BTreeMap<String, HostClock>, LogError> {
    solve_run_with(hosts, reference, wander, &BTreeMap::new(), hosts, &mut || true)
}

/// The same with messages of programs, between the followers that are named and the reference. The
/// estimates are written under `out` in place of `hosts`. `go_on` is asked before each host.
pub fn solve_run_with(
    hosts: &Path,
    reference: &str,
    wander: f64,
    messages: &BTreeMap<String, Vec<Message>>,
    out: &Path,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<BTreeMap<String, HostClock>, LogError> {
    let mut clocks = BTreeMap::new();
    clocks.insert(reference.to_owned(), reference_clock(&hosts.join(reference))?);
    let reference_probes = hosts.join(reference).join("clock/probes");
    let reference_log =
        reference_probes.is_dir().then(|| ProbeLog::read(&reference_probes)).transpose()?;
    for host in names(hosts)? {
        let probes = hosts.join(&host).join("clock/probes");
        if host == reference || !probes.is_dir() {
            continue;
        }
        if !go_on() {
            return Err(LogError::Stopped);
        }
        let Some(reference_log) = &reference_log else {
            return Err(LogError::NoReferenceProbes { reference: reference.into(), host });
        };
        let log = ProbeLog::read(&probes)?;
        let frequency = log.identity.frequency;
        let joined = join(&log, reference_log);
        let messages = messages.get(&host).map_or(&[][..], Vec::as_slice);
        let hz = reference_log.identity.frequency;
        // Also where the reference's counter was disturbed, in between messages.
        let far = reference_log.counter_events.iter();
        let disturbed: Vec<CounterEvent> = log
            .counter_events
            .iter()
            .copied()
            .chain(far.map(|event| on_follower(event, &joined.exchanges)))
            .collect();
        let own_ns = log.apart_ns();
        let wider_ns = own_ns.unwrap_or(0.0) + 0.5 * reference_log.apart_ns().unwrap_or(0.0);
        let solution =
            solve_between(&joined.exchanges, messages, frequency, hz, wander, &disturbed)
                .map_err(|source| LogError::Solve { host: host.clone(), source })?
                .of_any_processor(wider_ns, own_ns);
        let directory = out.join(&host).join("clock/estimates");
        write_estimates(&directory, &log.identity, &solution)?;
        let clock = HostClock {
            map: solution.map,
            exchanges: solution.exchanges,
            rejected: solution.rejected.len(),
            disturbances: solution.disturbances,
            unbelievable_ppm: solution.unbelievable_ppm,
            frequency,
            ambiguous: joined.ambiguous,
            torn_bytes: log.torn_bytes,
            anchors: log.anchors,
            counter_events: log.counter_events,
        };
        clocks.insert(host, clock);
    }
    if let (Some(log), Some(clock)) = (reference_log, clocks.get_mut(reference)) {
        let own_ns = log.apart_ns();
        clock.map = clock.map.clone().of_any_processor(0.5 * own_ns.unwrap_or(0.0), own_ns);
        clock.torn_bytes = log.torn_bytes;
        clock.anchors = log.anchors;
        clock.counter_events = log.counter_events;
    }
    Ok(clocks)
}

/// An edge between two followers, in a run.
#[derive(Debug)]
pub struct MeshEdge {
    /// The host that probed.
    pub host: String,
    /// The host that answered.
    pub peer: String,
    /// Residuals of the loop that it closes, or why there are none.
    pub found: Result<Surveyed, LogError>,
}

/// What was found on an edge.
#[derive(Clone, Debug)]
pub struct Surveyed {
    /// Exchanges that the edge's map rests on.
    pub exchanges: usize,
    /// How many messages contradicted the others and were left out.
    pub rejected: usize,
    /// Its residuals.
    pub survey: Survey,
}

/// The edges under `hosts`, each `HOST/clock/mesh/PEER` with the peer's `clock/answers`, against
/// the `clocks` of the run. What is wrong with an edge is that edge's. `go_on` is asked before
/// each.
pub fn survey_mesh(
    hosts: &Path,
    clocks: &BTreeMap<String, HostClock>,
    wander: f64,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Vec<MeshEdge>, LogError> {
    let mut edges = Vec::new();
    let mut answers: BTreeMap<String, ProbeLog> = BTreeMap::new();
    for host in names(hosts)? {
        let mesh = hosts.join(&host).join("clock/mesh");
        let peers = if mesh.is_dir() { names(&mesh)? } else { Vec::new() };
        for peer in peers {
            if !go_on() {
                return Err(LogError::Stopped);
            }
            let mut found = || {
                let clock =
                    |name: &str| clocks.get(name).ok_or_else(|| LogError::NoClock(name.to_owned()));
                let (own, its) = (clock(&host)?, clock(&peer)?);
                let answered = match answers.entry(peer.clone()) {
                    Entry::Occupied(read) => read.into_mut(),
                    Entry::Vacant(place) => {
                        place.insert(ProbeLog::read(&hosts.join(&peer).join("clock/answers"))?)
                    }
                };
                let joined = join(&ProbeLog::read(&mesh.join(&peer))?, answered);
                let edge = format!("{host} against {peer}");
                let solution = solve(&joined.exchanges, &[], own.frequency, its.frequency, wander)
                    .map_err(|source| LogError::Solve { host: edge, source })?;
                let edge = Edge {
                    host: &own.map,
                    peer: &its.map,
                    peer_frequency: its.frequency,
                    between: &solution.map,
                };
                Ok(Surveyed {
                    exchanges: solution.exchanges,
                    rejected: solution.rejected.len(),
                    survey: edge.survey(),
                })
            };
            let found = found();
            edges.push(MeshEdge { host: host.clone(), peer, found });
        }
    }
    Ok(edges)
}

/// The clock of a host that is its own reference, from whatever trace it left in its directory.
pub fn reference_clock(host: &Path) -> Result<HostClock, LogError> {
    for kind in ["clock/probes", "trace", "kernel"] {
        let directory = host.join(kind);
        if !directory.join("metadata").is_file() {
            continue;
        }
        let frequency = read_metadata(&directory)?.frequency;
        let mut near = Counter(0);
        for path in streams(&directory)? {
            // Only the first packet's head: a trace may be large.
            let mut head = Vec::new();
            File::open(&path)
                .and_then(|file| file.take(packet::RECORDS as u64).read_to_end(&mut head))
                .map_err(io_error(&path))?;
            if head.len() == packet::RECORDS && packet::get_u32(&head, 0) == packet::MAGIC {
                near = Counter(packet::get_u64(&head, packet::TIMESTAMP_BEGIN));
                break;
            }
        }
        return Ok(HostClock {
            map: ClockMap::reference(frequency, near),
            exchanges: 0,
            rejected: 0,
            disturbances: Vec::new(),
            unbelievable_ppm: None,
            frequency,
            ambiguous: 0,
            torn_bytes: 0,
            anchors: Vec::new(),
            counter_events: Vec::new(),
        });
    }
    Err(LogError::NoReference { host: host.into() })
}

/// Fields of `clock:estimate`: those of [`offline::Estimate`] in their order, then its knot's.
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
