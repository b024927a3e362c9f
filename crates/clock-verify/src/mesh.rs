//! Followers that probe each other too, and the residuals of the loops that they close.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use loopscope_clocksync::log::{HostClock, MeshEdge, survey_mesh};
use loopscope_clocksync::loops::Residual;
use loopscope_clocksync::offline::DEFAULT_WANDER;
use loopscope_clocksync::probe::{
    MESH_BURST, MESH_RATE_HZ, Mesh, MeshConfig, Peer, ReplyTime, Responder, Side, Witness,
};

use super::bed::Bed;
use super::follower::Follower;
use super::score::Spread;

pub(super) struct Meshed {
    /// By follower.
    probes: BTreeMap<String, Mesh>,
    answers: Vec<Responder>,
    seen: Arc<Mutex<Vec<Residual>>>,
}

/// Results of the followers' probes during the measurement.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) edges: usize,
    pub(super) residuals: Vec<Residual>,
    /// Answered probes without one.
    pub(super) unknown: u64,
}

impl Meshed {
    /// Has each follower answer, and probe those before it.
    pub(super) fn start(bed: &Bed, followers: &BTreeMap<String, Follower>) -> Result<Meshed> {
        let seen = Arc::<Mutex<Vec<Residual>>>::default();
        let (mut probes, mut answers) = (BTreeMap::new(), Vec::new());
        let mut before: Vec<(String, SocketAddr)> = Vec::new();
        for (name, follower) in followers {
            let side = |log: &str| -> Result<Side> {
                let directory = Some(bed.hosts().join(name).join("clock").join(log));
                Ok(Side { directory, ..bed.side(name, follower.clock(), None)? })
            };
            let peer = |(peer, address): &(String, SocketAddr)| {
                let (side, name, address) =
                    (side(&format!("mesh/{peer}"))?, peer.clone(), *address);
                Ok(Peer { name, address, side })
            };
            let peers: Vec<Peer> = before.iter().map(peer).collect::<Result<_>>()?;
            let (answers_side, online) = (side("answers")?, follower.online());
            let told = ReplyTime::Global(online.clone());
            let responder = bed.within(name, || Ok(Responder::with_time(answers_side, told)?))?;
            before.push((name.clone(), responder.address()));
            answers.push(responder);
            if peers.is_empty() {
                continue;
            }
            let witness: Witness = {
                let seen = seen.clone();
                Arc::new(move |_, residual| {
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push(*residual);
                })
            };
            let (rate_hz, burst) = (MESH_RATE_HZ, MESH_BURST);
            let config = MeshConfig { rate_hz, burst, online, witness: Some(witness) };
            let mesh = bed.within(name, || Ok(Mesh::start(peers, &config)?))?;
            probes.insert(name.clone(), mesh);
        }
        Ok(Meshed { probes, answers, seen })
    }

    pub(super) fn stop(self) -> Result<Seen> {
        let mut seen = Seen::default();
        for (name, mesh) in self.probes {
            for (peer, end) in mesh.stop()? {
                end.counts.with_context(|| format!("{name} could not probe {peer}"))?;
                seen.edges += 1;
                seen.unknown += end.residuals.unknown;
            }
        }
        for responder in self.answers {
            responder.stop()?;
        }
        let mut residuals = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.residuals = std::mem::take(&mut residuals);
        Ok(seen)
    }
}

/// Residuals of all edges of a scenario.
pub(super) struct Loops {
    pub(super) edges: usize,
    pub(super) offline: LoopFigures,
    pub(super) online: LoopFigures,
}

/// Offline of instants, online of exchanges. Not a number where nothing was known.
pub(super) struct LoopFigures {
    /// Residuals; offline those of the worst edge.
    pub(super) residual: Spread,
    /// Median, offline the worst edge's.
    pub(super) hard_half_width_ns: f64,
    pub(super) known: u64,
    pub(super) unknown: u64,
    pub(super) contradictions: u64,
}

impl Loops {
    pub(super) fn of(
        hosts: &Path,
        clocks: &BTreeMap<String, HostClock>,
        seen: &Seen,
    ) -> Result<Loops> {
        let mut sizes: Vec<f64> = seen.residuals.iter().map(|r| r.ns.abs()).collect();
        let mut widths: Vec<f64> = seen.residuals.iter().map(|r| r.hard_ns).collect();
        let online = LoopFigures {
            residual: Spread::of(&mut sizes),
            hard_half_width_ns: Spread::of(&mut widths).p50_ns,
            known: seen.residuals.len() as u64,
            unknown: seen.unknown,
            contradictions: seen.residuals.iter().filter(|r| r.is_contradiction()).count() as u64,
        };
        let mut offline = LoopFigures {
            residual: Spread { p50_ns: 0.0, p99_ns: 0.0, p999_ns: f64::NAN, max_ns: 0.0 },
            hard_half_width_ns: 0.0,
            known: 0,
            unknown: 0,
            contradictions: 0,
        };
        for MeshEdge { host, peer, found } in
            survey_mesh(hosts, clocks, DEFAULT_WANDER, &mut || true)?
        {
            let survey = found.with_context(|| format!("the edge of {host} and {peer}"))?.survey;
            let figures = survey.figures.context("an edge without residuals")?;
            let Spread { p50_ns, p99_ns, max_ns, .. } = &mut offline.residual;
            *p50_ns = p50_ns.max(figures.p50_ns);
            *p99_ns = p99_ns.max(figures.p99_ns);
            *max_ns = max_ns.max(figures.max_ns);
            offline.hard_half_width_ns = offline.hard_half_width_ns.max(figures.hard_ns);
            offline.known += survey.instants - survey.unknown;
            offline.unknown += survey.unknown;
            offline.contradictions += survey.contradictions;
        }
        Ok(Loops { edges: seen.edges, offline, online })
    }

    pub(super) fn contradictions(&self) -> u64 {
        self.offline.contradictions + self.online.contradictions
    }
}
