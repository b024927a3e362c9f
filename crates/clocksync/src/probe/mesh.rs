//! Edges between followers: one thread for all peers that a host probes, seldom, separate from the
//! prober that its clock rests on.

use std::collections::BTreeMap;
use std::io::PipeReader;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::outcome::Outcome;
use super::pace::Pace;
use super::probing::Probing;
use super::reply_statistics::ReplyStatistics;
use super::socket::{self, StampedSocket};
use super::{Counts, Order, ProbeError, Side, Worker};
use crate::loops::{Residual, Residuals};
use crate::online::Online;

/// Exchanges a second with each peer between the bursts.
pub const MESH_RATE_HZ: f64 = 10.0;
/// Exchanges of each burst: enough for a short run.
pub const MESH_BURST: u32 = 20;

/// Somebody to probe.
pub struct Peer {
    /// Host name.
    pub name: String,
    /// Where its responder is.
    pub address: SocketAddr,
    /// Own side, with a directory for this edge alone.
    pub side: Side,
}

/// Is told the residual of each exchange that has one, and with which peer that was, on the thread
/// that probes.
pub type Witness = Arc<dyn Fn(&str, &Residual) + Send + Sync>;

/// How peers are probed.
#[derive(Clone)]
pub struct MeshConfig {
    /// The rate of probes, see [`super::ProberConfig::rate_hz`].
    pub rate_hz: f64,
    /// The length of a burst, see [`super::ProberConfig::burst`]; load causes none.
    pub burst: u32,
    /// The prober's own time.
    pub online: Arc<Mutex<Online>>,
    /// Called with each exchange.
    pub witness: Option<Witness>,
}

/// A running mesh, of one host. Dropping it ends it at once, without the last bursts.
pub struct Mesh {
    residuals: BTreeMap<String, Arc<Mutex<Residuals>>>,
    /// The sides of the edges that could begin, by peer.
    sides: BTreeMap<String, (Side, Arc<Mutex<ReplyStatistics>>)>,
    elsewhere: Elsewhere,
    worker: Worker<Ends>,
}

/// Where to probe peers from now on, for the thread to take.
type Elsewhere = Arc<Mutex<BTreeMap<String, (StampedSocket, SocketAddr)>>>;

type Ends = BTreeMap<String, Result<Counts, ProbeError>>;

/// What came of an edge.
#[derive(Debug)]
pub struct EdgeEnd {
    /// Why it could not begin or go on, else its counts.
    pub counts: Result<Counts, ProbeError>,
    /// By its replies.
    pub residuals: Residuals,
}

impl Mesh {
    /// Begins to probe. An edge that cannot begin keeps no other from it. Who does not answer is
    /// asked again and again.
    pub fn start(peers: Vec<Peer>, config: &MeshConfig) -> Result<Mesh, ProbeError> {
        let pace = Pace::of(config.rate_hz, config.burst)?;
        let Some(address) = peers.first().map(|peer| peer.side.address) else {
            return Err(ProbeError::Setting("a mesh needs peers".into()));
        };
        let (mut edges, mut ended) = (Vec::new(), Ends::new());
        let (mut residuals, mut sides) = (BTreeMap::new(), BTreeMap::new());
        for Peer { name, address, side } in peers {
            let shared = Arc::<Mutex<Residuals>>::default();
            residuals.insert(name.clone(), shared.clone());
            let report = judged_by(name.clone(), config.clone(), shared);
            let probing = StampedSocket::bind(&side)
                .and_then(|socket| Probing::new(socket, side.clone(), address, pace, report));
            match probing {
                Ok(probing) => {
                    sides.insert(name.clone(), (side, probing.reply_statistics()));
                    edges.push((name, probing));
                }
                Err(error) => {
                    ended.insert(name, Err(error));
                }
            }
        }
        let elsewhere = Elsewhere::default();
        let to = elsewhere.clone();
        let work = move |control| run(edges, ended, control, &to, address);
        let worker = Worker::spawn("clock-mesh", work)
            .map_err(|source| ProbeError::System { address, source })?;
        Ok(Mesh { residuals, sides, elsewhere, worker })
    }

    /// When each peer whose edge could begin answered last.
    pub fn last_answers(&self) -> BTreeMap<String, Option<Instant>> {
        let last = |reply_statistics: &Arc<Mutex<ReplyStatistics>>| {
            reply_statistics.lock().unwrap_or_else(PoisonError::into_inner).last()
        };
        self.sides
            .iter()
            .map(|(name, (_, reply_statistics))| (name.clone(), last(reply_statistics)))
            .collect()
    }

    /// Probes a peer whose edge could begin at `address` from now on, from the address `own`.
    pub fn redirect(
        &mut self,
        peer: &str,
        own: IpAddr,
        address: SocketAddr,
    ) -> Result<(), ProbeError> {
        let Some((side, _)) = self.sides.get(peer) else { return Ok(()) };
        let side = Side { address: SocketAddr::new(own, 0), ..side.clone() };
        let to = (StampedSocket::bind(&side)?, address);
        let mut elsewhere = self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
        elsewhere.insert(peer.to_owned(), to);
        drop(elsewhere);
        self.worker.order(&Order::Redirect);
        Ok(())
    }

    /// What the replies of each peer have said so far.
    pub fn residuals(&self) -> BTreeMap<String, Residuals> {
        let read =
            |shared: &Arc<Mutex<Residuals>>| *shared.lock().unwrap_or_else(PoisonError::into_inner);
        self.residuals.iter().map(|(name, shared)| (name.clone(), read(shared))).collect()
    }

    /// Sends the last bursts and completes the logs.
    pub fn stop(self) -> Result<BTreeMap<String, EdgeEnd>, ProbeError> {
        let Mesh { residuals, worker, .. } = self;
        let mut ends = worker.stop()?;
        let end = |(name, shared): (String, Arc<Mutex<Residuals>>)| {
            let lost = || Err(ProbeError::Panicked);
            let counts = ends.remove(&name).unwrap_or_else(lost);
            let residuals = *shared.lock().unwrap_or_else(PoisonError::into_inner);
            (name, EdgeEnd { counts, residuals })
        };
        Ok(residuals.into_iter().map(end).collect())
    }
}

/// Has the residual of each answered probe taken down.
fn judged_by(
    peer: String,
    config: MeshConfig,
    residuals: Arc<Mutex<Residuals>>,
) -> Box<dyn FnMut(&Outcome) + Send> {
    let MeshConfig { online, witness, .. } = config;
    Box::new(move |Outcome { exchange, reckoning, reference, .. }| {
        if exchange.t4.is_none() {
            return;
        }
        let residual = reckoning.and_then(|theirs| {
            let online = online.lock().unwrap_or_else(PoisonError::into_inner);
            Residual::of(&online, exchange, theirs, *reference)
        });
        residuals.lock().unwrap_or_else(PoisonError::into_inner).take(residual);
        if let (Some(witness), Some(residual)) = (&witness, &residual) {
            witness(&peer, residual);
        }
    })
}

fn run(
    mut edges: Vec<(String, Probing)>,
    mut ended: Ends,
    mut control: PipeReader,
    elsewhere: &Elsewhere,
    address: SocketAddr,
) -> Result<Ends, ProbeError> {
    let mut stopping = false;
    loop {
        let mut until: Option<Instant> = None;
        for (name, mut probing) in std::mem::take(&mut edges) {
            match probing.turn() {
                Ok(Some(due)) => {
                    until = Some(until.map_or(due, |earlier| earlier.min(due)));
                    edges.push((name, probing));
                }
                Ok(None) => {
                    ended.insert(name, probing.end());
                }
                Err(error) => {
                    ended.insert(name, Err(error));
                }
            }
        }
        if stopping && edges.is_empty() {
            return Ok(ended);
        }
        let sockets: Vec<&StampedSocket> = edges.iter().map(|(_, p)| p.socket()).collect();
        let ordered = socket::wait(&sockets, &mut control, until);
        match ordered.map_err(|source| ProbeError::System { address, source })? {
            Some(Order::Stop) => {
                stopping = true;
                edges.iter_mut().for_each(|(_, probing)| probing.last_burst());
            }
            Some(Order::Abandon) => return Ok(ended),
            Some(Order::Redirect) => {
                let mut to =
                    std::mem::take(&mut *elsewhere.lock().unwrap_or_else(PoisonError::into_inner));
                for (name, mut probing) in std::mem::take(&mut edges) {
                    let moved = to
                        .remove(&name)
                        .map_or(Ok(()), |(socket, peer)| probing.redirect(socket, peer));
                    match moved {
                        Ok(()) => edges.push((name, probing)),
                        Err(error) => drop(ended.insert(name, Err(error))),
                    }
                }
            }
            None => {}
        }
    }
}
