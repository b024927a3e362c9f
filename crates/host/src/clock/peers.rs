//! Followers that check their times against each other's, with no experiment around them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::Context as _;
use loopscope_clocksync::loops::Residuals;
use loopscope_clocksync::online::Online;
use loopscope_clocksync::probe::{
    MESH_BURST, MESH_RATE_HZ, Mesh, MeshConfig, Peer, ReplyTime, Responder, Side,
};

use super::counts::print_counts;
use super::place::{Place, own_address};

/// Pairs of followers that check each other.
#[derive(clap::Args)]
pub struct Arguments {
    /// Answer other followers on this UDP port, so that they can check their time against this
    /// host's
    #[arg(long, value_name = "PORT")]
    answer: Option<u16>,
    /// Check this host's time against that of a follower which answers there, ten times a second;
    /// may be given for several
    #[arg(long = "peer", value_name = "HOST:PORT")]
    peers: Vec<String>,
}

/// What runs for it.
pub(super) struct Peers {
    answers: Option<Responder>,
    probes: Option<Mesh>,
    places: Vec<Place>,
    /// Peers whose first agreement, and peers whose first contradiction was reported.
    agreed: BTreeSet<String>,
    contradicted: BTreeSet<String>,
}

impl Peers {
    /// `own` is the side of the probes that the host's time rests on, `online` that time.
    pub(super) fn start(
        arguments: &Arguments,
        own: &Side,
        online: &Arc<Mutex<Online>>,
    ) -> anyhow::Result<Peers> {
        let side = |address, log: &str| {
            let directory = own.directory.as_ref().map(|directory| directory.join(log));
            Side { address, directory, ..own.clone() }
        };
        let (mut peers, mut places) = (Vec::new(), Vec::new());
        for name in &arguments.peers {
            let place = Place::of(name)?;
            let address = place.address();
            let side = side(SocketAddr::new(own_address(address)?, 0), &format!("mesh/{name}"));
            peers.push(Peer { name: name.clone(), address, side });
            places.push(place);
        }
        let answer = |port| {
            let side = side(SocketAddr::new(own.address.ip(), port), "answers");
            Responder::with_time(side, ReplyTime::Global(online.clone()))
        };
        let answers = arguments.answer.map(answer).transpose().context("--answer")?;
        if let Some(answers) = &answers {
            println!("answering other followers on {}", answers.address());
        }
        let (rate_hz, burst) = (MESH_RATE_HZ, MESH_BURST);
        let config = MeshConfig { rate_hz, burst, online: online.clone(), witness: None };
        let probes = (!peers.is_empty()).then(|| Mesh::start(peers, &config)).transpose()?;
        let (agreed, contradicted) = (BTreeSet::new(), BTreeSet::new());
        Ok(Peers { answers, probes, places, agreed, contradicted })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.answers.as_ref().is_some_and(Responder::has_ended)
    }

    /// Follows peers whose names have other addresses, and tells what is seen of one for the first
    /// time.
    pub(super) fn look(&mut self) {
        let Some(probes) = &mut self.probes else { return };
        for (peer, last) in probes.last_answers() {
            for place in self.places.iter_mut().filter(|place| place.name() == peer) {
                let redirect = |own, to| probes.redirect(&peer, own, to);
                place.follow(&format!("the peer {peer}"), last, Instant::now(), redirect);
            }
        }
        for (peer, seen) in probes.residuals() {
            if let Some(newest) = seen.newest
                && self.agreed.insert(peer.clone())
            {
                let (apart, hard) = (newest.ns, newest.hard_ns);
                println!(
                    "{peer}: its time and this host's are {apart:.0} ns apart, +-{hard:.0} ns"
                );
            }
            if seen.contradictions > 0 && self.contradicted.insert(peer.clone()) {
                eprintln!(
                    "loopscope-host: {peer}: its time and this host's contradict each other: a clock \
                     or a stamp of one of the two, or of the reference, is wrong"
                );
            }
        }
    }

    pub(super) fn stop(self) -> anyhow::Result<()> {
        let ends = self.probes.map(Mesh::stop).transpose()?;
        for (peer, end) in ends.into_iter().flatten() {
            match end.counts {
                Ok(counts) => print_counts(&format!("probes to {peer}"), &counts),
                Err(error) => eprintln!("loopscope-host: {peer}: {error}"),
            }
            let Residuals { known, unknown, contradictions, .. } = end.residuals;
            println!(
                "{peer}: {known} times compared, {contradictions} contradictions, {unknown} not known"
            );
        }
        if let Some(answers) = self.answers {
            print_counts("replies to followers", &answers.stop()?);
        }
        Ok(())
    }
}
