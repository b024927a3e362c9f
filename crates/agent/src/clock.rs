//! The host's clock: what its streams declare about it, and the exchange of probes.

use std::collections::BTreeMap;
use std::net::{AddrParseError, IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use loopscope_clocksync::key::{Key, KeyError};
use loopscope_clocksync::page::{GAP, PageError, Published, Publisher, Role, Service};
use loopscope_clocksync::probe::{
    BeforeStamps, ClockSet, Counts, EdgeEnd, Faults, MESH_BURST, Mesh, MeshConfig, Peer,
    ProbeError, Prober, ProberConfig, ReplyStatistics, ReplyTime, Responder, Side,
};
use loopscope_clocksync::record::{Filter, Identity};
use loopscope_clocksync::state::Status;
use loopscope_clocksync::synthetic::SyntheticClock;
use loopscope_clocksync::utc::Standing;
use loopscope_time::source::read_counter;
use loopscope_time::{Bound, Counter, Frequency};
use thiserror::Error;

use crate::global::GlobalClock;
use crate::namespace;
use crate::proto::start_clock_request::Role as Asked;
use crate::proto::{AnswerPeersRequest, ClockPeer, ProbePeersRequest, StartClockRequest};

/// The longest time between two publications of a page: a tenth of its lease.
const LONGEST_GAP: Duration = Duration::from_millis(100);

/// The properties that all streams of one host have in common.
pub(crate) struct HostClock {
    host: String,
    uuid: [u8; 16],
    frequency: Frequency,
    synthetic: Option<SyntheticClock>,
    /// The network namespace of the probes; `None`: the agent's.
    namespace: Option<String>,
    before_stamps: Option<BeforeStamps>,
    global: GlobalClock,
    running: Mutex<Option<Running>>,
}

/// An exchange that goes on, and the page that programs of this host read.
struct Running {
    exchange: Exchange,
    _page: Publisher,
}

enum Exchange {
    Reference(Responder),
    Follower { prober: Prober, mesh: Box<Edges> },
}

/// A follower's edges with other followers.
struct Edges {
    address: IpAddr,
    past_links: bool,
    answers: Option<Responder>,
    probes: Option<Mesh>,
}

/// Why there are no probes.
#[derive(Debug, Error)]
pub(crate) enum ClockError {
    #[error("the clock request has no role")]
    NoRole,
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("{text:?} is no address: {source}")]
    Address { text: String, source: AddrParseError },
    #[error("{0} is no port")]
    Port(u32),
    #[error("the clock of host {0} has been started already")]
    Twice(String),
    #[error("the clock of host {0} is not running")]
    NotRunning(String),
    #[error("host {0} does not follow another's clock, or has peers already")]
    NoPeers(String),
    #[error("cannot enter the network namespace {name}: {source}")]
    Namespace { name: String, source: std::io::Error },
    #[error("host {host}: {source}")]
    Probe { host: String, source: ProbeError },
    #[error("host {host}: {source}")]
    Page { host: String, source: PageError },
}

/// The result of starting a clock.
pub(crate) enum Started {
    /// Port of the reference.
    Port(u16),
    /// Exchanges that the first burst of a follower completed.
    Answered(u64),
}

impl HostClock {
    /// The clock of `host`; a hidden one if there is a seed. `namespace` is that of the probes'
    /// network; `before_stamps` is called before stamps of an interface are switched on.
    pub(crate) fn new(
        host: &str,
        frequency: Frequency,
        seed: Option<u64>,
        namespace: Option<String>,
        before_stamps: Option<BeforeStamps>,
    ) -> HostClock {
        let synthetic = seed.map(|seed| SyntheticClock::new(seed, host));
        HostClock {
            host: host.to_owned(),
            uuid: uuid::Uuid::new_v4().into_bytes(),
            frequency,
            synthetic,
            namespace,
            before_stamps,
            global: GlobalClock::new(synthetic, frequency),
            running: Mutex::default(),
        }
    }

    /// The identity that one more trace directory declares.
    pub(crate) fn identity(&self) -> loopscope_collect::Identity {
        loopscope_collect::Identity {
            host: self.host.clone(),
            trace_uuid: uuid::Uuid::new_v4().into_bytes(),
            clock_uuid: self.uuid,
            frequency: self.frequency,
        }
    }

    /// Nominal frequency of the counter.
    pub(crate) fn frequency(&self) -> Frequency {
        self.frequency
    }

    /// The host's estimate of the global clock during the run.
    pub(crate) fn global(&self) -> GlobalClock {
        self.global.clone()
    }

    /// Takes true counters to those of the hidden clock.
    pub(crate) fn filter(&self) -> Option<impl Fn(Counter) -> Counter + Send + Sync + 'static> {
        self.synthetic.map(|clock| move |counter| clock.apply(counter))
    }

    /// Begins to answer or to send probes, logged under `folder`, and to publish the time on
    /// `page`. Blocks until the first burst of a follower is complete.
    pub(crate) fn start(
        &self,
        request: StartClockRequest,
        folder: &Path,
        page: &Path,
    ) -> Result<Started, ClockError> {
        let role = request.role.ok_or(ClockError::NoRole)?;
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_some() {
            return Err(ClockError::Twice(self.host.clone()));
        }
        let frequency = self.frequency;
        let clock_set = request
            .realtime_step
            .map(|step| ClockSet { after: Duration::from_nanos(step.after_ns), ns: step.by_ns });
        let faults = clock_set.map(|_| Faults { clock_set, ..Faults::default() });
        let past_links = request.past_links;
        let side = |address: SocketAddr, key: Key| Side {
            faults,
            ..self.side(address, past_links, key, &folder.join("probes"))
        };
        // A page is published as often as probes say something new.
        let gap = match &role {
            Asked::Reference(_) => GAP,
            Asked::Follower(follower) => Duration::try_from_secs_f64(1.0 / follower.rate_hz)
                .map_or(LONGEST_GAP, |gap| gap.clamp(GAP, LONGEST_GAP)),
        };
        let (role, online, exchange, started) = match role {
            Asked::Reference(reference) => {
                let address = SocketAddr::new(parse(&reference.address)?, port(reference.port)?);
                let side = side(address, Key::root(&request.key)?);
                let responder = self.on_the_network(|| Responder::start(side))?;
                let online = responder.online();
                let started = Started::Port(responder.address().port());
                (Role::Reference, online, Exchange::Reference(responder), started)
            }
            Asked::Follower(follower) => {
                let address: IpAddr = parse(&follower.address)?;
                let config = ProberConfig {
                    side: side(
                        SocketAddr::new(address, 0),
                        Key::pair(&request.key, follower.number)?,
                    ),
                    reference: parse::<SocketAddr>(&follower.reference)?,
                    rate_hz: follower.rate_hz,
                    burst: follower.burst,
                    load_burst: follower.load_burst,
                    wander: follower.wander_ppm * 1e-6,
                    observer: None,
                };
                let prober = self.on_the_network(|| Prober::start(config))?;
                let (online, started) = (prober.online(), Started::Answered(prober.answered()));
                let mesh = Box::new(Edges { address, past_links, answers: None, probes: None });
                (Role::Follower, online, Exchange::Follower { prober, mesh }, started)
            }
        };
        self.global.begin(online.clone());
        // A run does not need UTC, and asking for it would take time from the programs.
        let service = Service { role, utc: Standing::default() };
        let publish = move |now| {
            let online = online.lock().unwrap_or_else(PoisonError::into_inner);
            Published { state: online.state(now), service }
        };
        let page = Publisher::start(page, frequency, self.synthetic, publish)
            .map_err(|source| ClockError::Page { host: self.host.clone(), source })?;
        page.set_gap(gap);
        *running = Some(Running { exchange, _page: page });
        Ok(started)
    }

    /// How well the host's time is known now, `None` where it is not at all, and what that comes
    /// from, for people.
    pub(crate) fn read(&self) -> Result<(Option<Bound>, String), ClockError> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Running { exchange, .. }) = &*running else {
            return Err(ClockError::NotRunning(self.host.clone()));
        };
        let (status, known) = self.global.read(read_counter());
        let why = match exchange {
            Exchange::Reference(_) => "it is the reference".to_owned(),
            Exchange::Follower { prober, .. } => {
                let replies = prober.reply_statistics();
                let replies = replies.lock().unwrap_or_else(PoisonError::into_inner);
                why(status, &replies, Instant::now())
            }
        };
        Ok((known, why))
    }

    /// Begins to answer other followers, logged under `folder`; the port.
    pub(crate) fn answer_peers(
        &self,
        request: &AnswerPeersRequest,
        folder: &Path,
    ) -> Result<u16, ClockError> {
        let (key, port) = (Key::root(&request.key)?, port(request.port)?);
        self.of_follower(|prober, mesh| {
            if mesh.answers.is_some() {
                return Err(ClockError::NoPeers(self.host.clone()));
            }
            let address = SocketAddr::new(mesh.address, port);
            let side = self.side(address, mesh.past_links, key, &folder.join("answers"));
            let told = ReplyTime::Global(prober.online());
            let responder = self.on_the_network(|| Responder::with_time(side, told))?;
            let port = responder.address().port();
            mesh.answers = Some(responder);
            Ok(port)
        })
    }

    /// Begins to probe other followers, logged under `folder`.
    pub(crate) fn probe_peers(
        &self,
        ProbePeersRequest { peers, rate_hz }: ProbePeersRequest,
        folder: &Path,
    ) -> Result<(), ClockError> {
        self.of_follower(|prober, mesh| {
            if mesh.probes.is_some() {
                return Err(ClockError::NoPeers(self.host.clone()));
            }
            let peer = |ClockPeer { name, address, key, number }| {
                let (folder, key) = (folder.join("mesh").join(&name), Key::pair(&key, number)?);
                let own = SocketAddr::new(mesh.address, 0);
                let side = self.side(own, mesh.past_links, key, &folder);
                Ok(Peer { name, address: parse(&address)?, side })
            };
            let peers = peers.into_iter().map(peer).collect::<Result<Vec<Peer>, ClockError>>()?;
            let (burst, online) = (MESH_BURST, prober.online());
            let config = MeshConfig { rate_hz, burst, online, witness: None };
            mesh.probes = Some(self.on_the_network(|| Mesh::start(peers, &config))?);
            Ok(())
        })
    }

    /// Ends that with a last burst; what came of each peer.
    pub(crate) fn stop_peers(&self) -> Result<BTreeMap<String, EdgeEnd>, ClockError> {
        let probes = self.of_follower(|_, mesh| Ok(mesh.probes.take()))?;
        let ends = probes.map_or(Ok(BTreeMap::new()), Mesh::stop);
        ends.map_err(|source| self.probe_error(source))
    }

    fn of_follower<T>(
        &self,
        with: impl FnOnce(&Prober, &mut Edges) -> Result<T, ClockError>,
    ) -> Result<T, ClockError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *running {
            None => Err(ClockError::NotRunning(self.host.clone())),
            Some(Running { exchange: Exchange::Reference(_), .. }) => {
                Err(ClockError::NoPeers(self.host.clone()))
            }
            Some(Running { exchange: Exchange::Follower { prober, mesh }, .. }) => {
                with(prober, mesh)
            }
        }
    }

    /// The clock's side for an exchange that has a log of its own.
    fn side(&self, address: SocketAddr, past_links: bool, key: Key, directory: &Path) -> Side {
        let loopscope_collect::Identity { host, clock_uuid, trace_uuid, frequency } =
            self.identity();
        Side {
            address,
            directory: Some(directory.to_owned()),
            identity: Identity { host, clock_uuid, trace_uuid, frequency },
            key,
            filter: self.filter().map(|filter| Arc::new(filter) as Filter),
            faults: None,
            own_interface: past_links,
            before_stamps: self.before_stamps.clone(),
        }
    }

    /// Runs `begin` on the network of the probes, where its sockets and threads stay, and returns
    /// its result.
    fn on_the_network<T: Send>(
        &self,
        begin: impl FnOnce() -> Result<T, ProbeError> + Send,
    ) -> Result<T, ClockError> {
        let begun = match &self.namespace {
            None => begin(),
            Some(name) => namespace::within(name, begin)
                .map_err(|source| ClockError::Namespace { name: name.clone(), source })?,
        };
        begun.map_err(|source| self.probe_error(source))
    }

    fn probe_error(&self, source: ProbeError) -> ClockError {
        ClockError::Probe { host: self.host.clone(), source }
    }

    /// Ends the exchange, a follower's with a last burst, and its answers to others.
    pub(crate) fn stop(&self) -> Result<Counts, ClockError> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let counts = match running.map(|running| running.exchange) {
            None => return Err(ClockError::NotRunning(self.host.clone())),
            Some(Exchange::Reference(responder)) => responder.stop(),
            Some(Exchange::Follower { prober, mesh }) => {
                let answers = mesh.answers.map_or(Ok(Counts::default()), Responder::stop);
                prober.stop().and_then(|counts| Ok(counts.and(answers?)))
            }
        };
        counts.map_err(|source| self.probe_error(source))
    }

    /// Ends the exchange at once, if there is one.
    pub(crate) fn abandon(&self) {
        drop(self.running.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// The cause of a follower's width.
fn why(status: Status, replies: &ReplyStatistics, now: Instant) -> String {
    let Some((last, (best, recent))) = replies.last().zip(replies.round_trips_ns()) else {
        return "the reference has answered none of its probes yet".to_owned();
    };
    let state = match status {
        Status::Synchronised => "it is synchronised",
        Status::Holdover => "the reference does not answer any more",
        Status::Unknown => "its probes contradict each other, or the clock was disturbed",
    };
    let age = duration(now.saturating_duration_since(last));
    let [best, recent] = [best, recent].map(|ns| duration(Duration::from_nanos(ns)));
    format!("{state}; last answered {age} ago; its probes take {best} at best, {recent} lately")
}

fn duration(of: Duration) -> String {
    let ns = of.as_nanos() as f64;
    match ns {
        ..1e6 => format!("{:.1} us", ns / 1e3),
        ..1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.1} s", ns / 1e9),
    }
}

fn port(number: u32) -> Result<u16, ClockError> {
    number.try_into().map_err(|_| ClockError::Port(number))
}

fn parse<T: std::str::FromStr<Err = AddrParseError>>(text: &str) -> Result<T, ClockError> {
    text.parse().map_err(|source| ClockError::Address { text: text.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_that_suits_them() {
        let texts =
            [250, 999_900, 12_345_678, 2_500_000_000].map(|ns| duration(Duration::from_nanos(ns)));
        assert_eq!(texts, ["0.2 us", "999.9 us", "12.3 ms", "2.5 s"]);
    }

    #[test]
    fn before_the_first_answer_there_is_no_round_trip_to_tell_of() {
        let text = why(Status::Unknown, &ReplyStatistics::default(), Instant::now());
        assert_eq!(text, "the reference has answered none of its probes yet");
    }
}
