//! A whole experiment: the pipeline over three hosts with hidden clocks, traced and probed.

mod controller;

use std::collections::BTreeMap;
use std::path::Path;

use controller::{Agent, Watcher, build_with_seed, connect, has_root, start, stop, streams};
use loopscope_agent::machine_proto::TestbedHost;
use loopscope_agent::proto::agent_client::AgentClient;
use loopscope_agent::proto::event::What;
use loopscope_agent::proto::readiness::Rule;
use loopscope_agent::proto::start_clock_request::Role;
use loopscope_agent::proto::{
    ClockFollower, ClockReference, EnterPhaseRequest, FinishTraceReply, FinishTraceRequest,
    ShutdownRequest, StartClockRequest, StopClockRequest,
};
use loopscope_clocksync::key::Key;
use loopscope_clocksync::log::solve_run;
use loopscope_clocksync::synthetic::SyntheticClock;
use loopscope_ctf::{Metadata, Packets};
use loopscope_time::{Counter, source::read_counter};
use serde_json::json;
use tonic::transport::Channel;

const SEED: u64 = 11;
const COUNT: u64 = 500;
/// Component, the host that it is on, its verb and its configuration.
const PROGRAMS: [(&str, usize, &str, &str); 3] = [
    ("source", 0, "source", r#"{"to": "node", "count": 500, "period": "1ms"}"#),
    ("node", 1, "node", r#"{"to": "sink"}"#),
    ("sink", 2, "sink", "{}"),
];

struct Host {
    of: TestbedHost,
    client: AgentClient<Channel>,
    watcher: Watcher,
}

#[tokio::test]
async fn a_traced_pipeline_over_hidden_clocks_is_put_on_one_time_line() {
    if !has_root("a_traced_pipeline_over_hidden_clocks_is_put_on_one_time_line") {
        return;
    }
    let agent = Agent::start(&[]);
    let mut machine = agent.client().await;
    let mut hosts = vec![];
    for of in build_with_seed(&agent, &["h1", "h2", "h3"], Some(SEED)).await {
        let mut client = connect(Path::new(&of.agent_socket)).await;
        let watcher = Watcher::of(&mut client).await;
        hosts.push(Host { of, client, watcher });
    }
    start_clocks(&mut hosts).await;
    for (component, host, verb, config) in PROGRAMS {
        let command = ["loopscope-host", "pipe", verb];
        let mut request = start(component, &command, Rule::Phases(true));
        config.clone_into(&mut request.config_json);
        request.streams_json = streams("pipe:*");
        hosts[host].client.start(request).await.unwrap();
        hosts[host].watcher.until_ready(component).await;
    }
    let begin = read_counter();
    run_phases(&mut hosts).await;
    let end = read_counter();
    let mut accounts = vec![];
    for host in &mut hosts {
        stop(&mut host.client, 10.0).await.unwrap();
        let account = host.client.finish_trace(FinishTraceRequest {}).await.unwrap();
        accounts.push(account.into_inner());
        let counts = host.client.stop_clock(StopClockRequest {}).await.unwrap().into_inner();
        assert!(counts.answered > 0, "{counts:?}");
    }
    for ((_, host, ..), count) in PROGRAMS.iter().zip([COUNT, 2 * COUNT, COUNT]) {
        let account =
            FinishTraceReply { emitted: count, recorded: count, ..FinishTraceReply::default() };
        assert_eq!(accounts[*host], account);
        let name = &hosts[*host].of.name;
        let loss = agent.file(&format!("hosts/{name}/loss.json"));
        let loss: serde_json::Value = serde_json::from_str(&loss).unwrap();
        assert_eq!(loss["recorded"], count);
        check_stamps(&agent.path().join("hosts").join(name), name, begin, end);
    }
    check_clocks(&agent.path().join("hosts"), begin, end);
    let problems = machine.shutdown(ShutdownRequest {}).await.unwrap().into_inner().problems;
    assert_eq!(problems, [""; 0]);
    assert_eq!(agent.remains(), [""; 0]);
}

async fn start_clocks(hosts: &mut [Host]) {
    let mut reference = String::new();
    for (number, host) in (0..).zip(hosts) {
        let address = host.of.clock_address.clone();
        let role = if reference.is_empty() {
            Role::Reference(ClockReference { address: address.clone(), port: 0 })
        } else {
            let reference = reference.clone();
            Role::Follower(ClockFollower {
                address: address.clone(),
                reference,
                rate_hz: 50.0,
                burst: 50,
                load_burst: 50,
                wander_ppm: 1.0,
                number,
            })
        };
        let root = [7; 32];
        let key = match role {
            Role::Reference(_) => root,
            Role::Follower(_) => Key::root(&root).unwrap().derived(number),
        };
        let key = key.to_vec();
        let request =
            StartClockRequest { role: Some(role), key, realtime_step: None, past_links: false };
        let reply = host.client.start_clock(request).await.unwrap().into_inner();
        if reference.is_empty() {
            reference = format!("{address}:{}", reply.port);
        } else {
            assert!((1..=50).contains(&reply.answered), "{reply:?}");
        }
    }
}

/// Enters each phase where it is taken part in and waits for all.
async fn run_phases(hosts: &mut [Host]) {
    let mut values = BTreeMap::<&str, serde_json::Value>::new();
    for (phase, parts) in [
        ("listen", &["node", "sink"][..]),
        ("connect", &["source", "node", "sink"]),
        ("run", &["source", "node", "sink"]),
    ] {
        let peers = PROGRAMS.map(|(name, host, ..)| {
            let of = &hosts[host].of;
            let values = values.get(name).cloned().unwrap_or_else(|| json!({}));
            (name, json!({"host": of.name, "address": of.data_address, "values": values}))
        });
        let peers_json = json!(BTreeMap::from(peers)).to_string();
        let taking_part = PROGRAMS.iter().filter(|(name, ..)| parts.contains(name));
        for (name, host, ..) in taking_part.clone() {
            let (component, phase) = ((*name).to_owned(), phase.to_owned());
            let peers_json = peers_json.clone();
            let request = EnterPhaseRequest {
                component,
                phase,
                measured: true,
                peers_json: Some(peers_json),
                start_global_ns: None,
            };
            hosts[*host].watcher.enter(request);
        }
        for (name, host, ..) in taking_part {
            let is_end =
                |w: &What| matches!(w, What::PhaseDone(_) | What::PhaseFailed(_) | What::Exited(_));
            let events = hosts[*host].watcher.until(name, is_end).await;
            let Some(What::PhaseDone(done)) = events.last() else {
                panic!("{name} in phase {phase}: {events:?}");
            };
            let new: serde_json::Value = serde_json::from_str(&done.values_json).unwrap();
            if new.as_object().is_some_and(|new| !new.is_empty()) {
                values.insert(name, new);
            }
        }
    }
}

/// Every packet was written on the host's hidden clock, under the same clock as the probes.
fn check_stamps(folder: &Path, host: &str, begin: Counter, end: Counter) {
    let hidden = SyntheticClock::new(SEED, host);
    let metadata = |of: &str| {
        let text = std::fs::read_to_string(folder.join(of).join("metadata")).unwrap();
        Metadata::parse(&text).unwrap()
    };
    let (trace, probes) = (metadata("trace"), metadata("clock/probes"));
    assert_eq!((&trace.host, trace.clock_uuid), (&probes.host, probes.clock_uuid));
    assert_ne!(trace.uuid, probes.uuid);
    let mut packets = 0;
    for entry in std::fs::read_dir(folder.join("trace")).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("metadata") {
            continue;
        }
        for packet in Packets::new(&std::fs::read(path).unwrap()) {
            let (context, _) = packet.unwrap();
            assert!(hidden.apply(begin) <= context.begin && context.end <= hidden.apply(end));
            packets += 1;
        }
    }
    assert!(packets > 0);
}

/// The maps that are made of the probes agree with the hidden clocks within their own bounds.
fn check_clocks(folder: &Path, begin: Counter, end: Counter) {
    let clocks = solve_run(folder, "h1", loopscope_clocksync::offline::DEFAULT_WANDER).unwrap();
    let at =
        |host: &str, t: Counter| clocks[host].map.map(SyntheticClock::new(SEED, host).apply(t));
    for host in ["h2", "h3"] {
        for tenth in 0..=10 {
            let t = Counter(begin.0 + (end.0 - begin.0) / 10 * tenth);
            let ((here, err), (truth, _)) = (at(host, t), at("h1", t));
            // One tick of rounding in each hidden clock.
            assert!(
                (here - truth).unsigned_abs() <= err.ns() + 2,
                "{host}: {here:?} ± {err}, not {truth:?}"
            );
            // A bound that says something: veth pairs on one machine.
            assert!(err.ns() < 10_000_000, "{host}: {err}");
        }
    }
}
