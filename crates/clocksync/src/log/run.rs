//! The clocks of a run's hosts, solved from their probe logs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use loopscope_ctf::packet;
use loopscope_time::{ClockMap, Counter, Frequency};

use super::{LogError, ProbeLog, io_error, join, names, read_metadata, streams, write_estimates};
use crate::Span;
use crate::anchor::Anchor;
use crate::constraint::Message;
use crate::counter::CounterEvent;
use crate::exchange::Exchange;
use crate::loops::{Edge, Survey};
use crate::offline::{self, solve, solve_between};

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
    /// The map from its counter to global time.
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
