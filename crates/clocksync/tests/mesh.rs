//! A mesh over loopback: three followers of one reference, peers that come late, go away or never
//! are there.

mod run;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use loopscope_clocksync::log::{MeshEdge, solve_run, survey_mesh};
use loopscope_clocksync::loops::Residuals;
use loopscope_clocksync::offline::DEFAULT_WANDER;
use loopscope_clocksync::probe::{
    Cause, Mesh, MeshConfig, Peer, Prober, ProberConfig, ReplyTime, Responder, Side,
};
use loopscope_time::Frequency;
use run::{babeltrace_count, frequency, side};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

struct Hosts<'a> {
    folder: &'a Path,
    frequency: Frequency,
    reference: Responder,
}

impl Hosts<'_> {
    fn new(folder: &Path) -> Hosts<'_> {
        let frequency = frequency();
        let reference = Responder::start(side(folder, "ref", LOOPBACK, frequency, None)).unwrap();
        Hosts { folder, frequency, reference }
    }

    fn follower(&self, name: &str) -> Prober {
        let side = side(self.folder, name, LOOPBACK, self.frequency, None);
        let reference = self.reference.address();
        let (rate_hz, burst, wander) = (50.0, 20, DEFAULT_WANDER);
        let (load_burst, observer) = (burst, None);
        Prober::start(ProberConfig {
            side,
            reference,
            rate_hz,
            burst,
            load_burst,
            wander,
            observer,
        })
        .unwrap()
    }

    fn side(&self, name: &str, log: &str) -> Side {
        let directory = Some(self.folder.join(name).join("clock").join(log));
        Side { directory, ..side(self.folder, name, LOOPBACK, self.frequency, None) }
    }

    fn answers(&self, name: &str, follower: &Prober) -> Responder {
        Responder::with_time(self.side(name, "answers"), ReplyTime::Global(follower.online()))
            .unwrap()
    }

    fn mesh(&self, name: &str, follower: &Prober, peers: &[(&str, SocketAddr)]) -> Mesh {
        let peer = |(peer, address): &(&str, SocketAddr)| Peer {
            name: (*peer).to_owned(),
            address: *address,
            side: self.side(name, &format!("mesh/{peer}")),
        };
        let config =
            MeshConfig { rate_hz: 100.0, burst: 20, online: follower.online(), witness: None };
        Mesh::start(peers.iter().map(peer).collect(), &config).unwrap()
    }

    fn surveyed(&self) -> BTreeMap<String, MeshEdge> {
        let clocks = solve_run(self.folder, "ref", DEFAULT_WANDER).unwrap();
        let edges = survey_mesh(self.folder, &clocks, DEFAULT_WANDER, &mut || true).unwrap();
        edges.into_iter().map(|edge| (edge.peer.clone(), edge)).collect()
    }
}

fn wait(mesh: &Mesh, until: impl Fn(&BTreeMap<String, Residuals>) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !until(&mesh.residuals()) {
        assert!(Instant::now() < deadline, "{:?}", mesh.residuals());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One of three peers answers, one goes away in the middle and one is silent: each edge has its own
/// end, and the first two have residuals, online and afterwards.
#[test]
fn a_peer_that_goes_or_is_silent_costs_its_own_edge_alone() {
    let run = tempfile::tempdir().unwrap();
    let hosts = Hosts::new(run.path());
    let followers = ["a", "b", "c"].map(|name| hosts.follower(name));
    let [stays, goes] = [0, 1].map(|i| hosts.answers(["a", "b"][i], &followers[i]));
    let silent = UdpSocket::bind((LOOPBACK, 0)).unwrap();
    let peers =
        [("a", stays.address()), ("b", goes.address()), ("silent", silent.local_addr().unwrap())];
    let mesh = hosts.mesh("c", &followers[2], &peers);
    wait(&mesh, |of| of["a"].known > 40 && of["b"].known > 40);
    goes.stop().unwrap();
    let then = mesh.residuals()["a"].known;
    wait(&mesh, |of| of["a"].known > then + 40);

    let mut ends = mesh.stop().unwrap();
    let [a, b, none] = ["a", "b", "silent"].map(|name| ends.remove(name).unwrap());
    let lost = |counts: &loopscope_clocksync::probe::Counts| {
        counts.lost.get(&Cause::NoReply).copied().unwrap_or(0)
    };
    let counts = a.counts.unwrap();
    assert_eq!(counts.sent, counts.answered + lost(&counts));
    assert!(lost(&counts) < counts.sent / 10, "{counts:?}");
    let log = run.path().join("c/clock/mesh/a");
    if let Some(count) = babeltrace_count(&log, "clock:probe_sent") {
        assert_eq!(count as u64, counts.sent);
    }
    let gone = b.counts.unwrap();
    assert!(gone.answered > 40 && lost(&gone) > 10, "{gone:?}");
    assert_eq!(none.counts.unwrap().answered, 0);
    for residuals in [a.residuals, b.residuals] {
        assert_eq!(residuals.contradictions, 0);
        // A follower says nothing for a moment where a message could be the first after a step.
        assert!(residuals.unknown < residuals.known / 4, "{residuals:?}");
        let newest = residuals.newest.unwrap();
        assert!(newest.ns.abs() <= newest.hard_ns && newest.hard_ns > 0.0, "{newest:?}");
    }
    assert_eq!(none.residuals, Residuals::default());

    stays.stop().unwrap();
    for follower in followers {
        follower.stop().unwrap();
    }
    let edges = hosts.surveyed();
    for peer in ["a", "b"] {
        let found = edges[peer].found.as_ref().unwrap();
        assert!(found.exchanges > 40, "{found:?}");
        assert_eq!((found.survey.unknown, found.survey.contradictions), (0, 0));
    }
    let problem = edges["silent"].found.as_ref().unwrap_err().to_string();
    assert_eq!(problem, "silent has no clock of its own in this run, so no loop closes over it");
}

/// A peer that is not there yet is asked until it is.
#[test]
fn a_peer_may_come_late() {
    let run = tempfile::tempdir().unwrap();
    let hosts = Hosts::new(run.path());
    let followers = ["a", "b"].map(|name| hosts.follower(name));
    // Its port, before it answers there.
    let held = UdpSocket::bind((LOOPBACK, 0)).unwrap();
    let address = held.local_addr().unwrap();
    let mesh = hosts.mesh("b", &followers[1], &[("a", address)]);
    let mut probe = [0; 200];
    held.recv(&mut probe).unwrap();
    drop(held);
    let late = Side { address, ..hosts.side("a", "answers") };
    let late = Responder::with_time(late, ReplyTime::Global(followers[0].online())).unwrap();
    wait(&mesh, |of| of["a"].known > 20);
    assert!(mesh.stop().unwrap()["a"].counts.is_ok());
    late.stop().unwrap();
}

/// A peer whose name has got another address is asked there, and its edge goes on; that it is
/// silent meanwhile shows in when it answered last.
#[test]
fn a_peer_is_followed_to_another_address() {
    let run = tempfile::tempdir().unwrap();
    let hosts = Hosts::new(run.path());
    let followers = ["a", "b"].map(|name| hosts.follower(name));
    let first = hosts.answers("a", &followers[0]);
    let mut mesh = hosts.mesh("b", &followers[1], &[("a", first.address())]);
    wait(&mesh, |of| of["a"].known > 20);
    let answered = mesh.last_answers()["a"].unwrap();
    first.stop().unwrap();
    let second = Side { directory: None, ..hosts.side("a", "answers") };
    let second = Responder::with_time(second, ReplyTime::Global(followers[0].online())).unwrap();
    mesh.redirect("a", LOOPBACK, second.address()).unwrap();
    let then = mesh.residuals()["a"].known;
    wait(&mesh, |of| of["a"].known > then + 20);
    assert!(mesh.last_answers()["a"].unwrap() > answered);
    // No peer of that name is known.
    mesh.redirect("c", LOOPBACK, second.address()).unwrap();
    let end = mesh.stop().unwrap().remove("a").unwrap();
    assert!(end.counts.is_ok() && end.residuals.contradictions == 0, "{end:?}");
    second.stop().unwrap();
}
