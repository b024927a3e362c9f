//! A testbed whose agent is killed while it is made, and testbeds that are made at the same time.

mod controller;

use std::time::{Duration, Instant};

use controller::{Agent, build, connect, has_root, start};
use loopscope_agent::machine_proto::BuildTestbedRequest;
use loopscope_agent::machine_proto::machine_client::MachineClient;
use loopscope_agent::namespace;
use loopscope_agent::proto::readiness::Rule;
use tonic::transport::Channel;

fn request(hosts: usize) -> BuildTestbedRequest {
    BuildTestbedRequest {
        hosts: (1..=hosts).map(|i| format!("h{i}")).collect(),
        data_network: "10.77.0.0/24".to_owned(),
        clock_network: "10.78.0.0/24".to_owned(),
        path: std::env::var("PATH").unwrap(),
        ..BuildTestbedRequest::default()
    }
}

/// Has the testbed made by a task of its own, which ends when the agent does.
fn begin(mut machine: MachineClient<Channel>, hosts: usize) {
    tokio::spawn(async move { machine.build_testbed(request(hosts)).await.map(drop) });
}

#[tokio::test]
async fn reset_undoes_what_an_agent_left_that_was_killed_at_any_moment_of_the_making() {
    if !has_root("reset_undoes_what_an_agent_left_that_was_killed_at_any_moment_of_the_making") {
        return;
    }
    let (tries, hosts) =
        if std::env::var_os("LOOPSCOPE_SOAK").is_some() { (200, 8) } else { (8, 3) };
    let whole = {
        let agent = Agent::start(&[]);
        let began = Instant::now();
        agent.machine().await.build_testbed(request(hosts)).await.unwrap();
        began.elapsed()
    };
    for part in 0..tries {
        let mut agent = Agent::start(&[]);
        begin(agent.machine().await, hosts);
        // Not synchronisation: the moment is what the test is about.
        tokio::time::sleep(whole * part / tries).await;
        // Once the guardian and `reset` do it at the same time, once `reset` does it alone.
        if part % 2 == 0 {
            agent.kill()
        } else {
            agent.kill_with_guardian()
        }
        let reset = agent.reset();
        assert_eq!(reset.problems, [""; 0], "part {part} of {tries}");
        assert_eq!(agent.remains(), [""; 0], "part {part} of {tries}: {reset:?}");
        assert_eq!(agent.cgroup(), None, "part {part} of {tries}: {reset:?}");
        let again = agent.reset();
        assert_eq!(again.removed, [""; 0], "part {part} of {tries}");
    }
}

/// Its components and its hosts' agents end by themselves, the rest is undone for it, though its whole process group was
/// killed.
#[tokio::test]
async fn what_a_killed_agent_leaves_is_undone_without_reset() {
    if !has_root("what_a_killed_agent_leaves_is_undone_without_reset") {
        return;
    }
    let mut agent = Agent::start(&[]);
    let hosts = build(&agent, &["h1", "h2"]).await;
    let mut client = connect(std::path::Path::new(&hosts[0].agent_socket)).await;
    let escaped = "env -i setsid sleep 600 & exec sleep 600";
    client.start(start("a", &["sh", "-c", escaped], Rule::Started(true))).await.unwrap();
    let ledger = agent.state_dir().join("ledger").join(format!("{}.jsonl", agent.run));
    assert!(ledger.exists() && agent.remains().len() > 4);
    agent.kill();
    let until = Instant::now() + Duration::from_secs(30);
    while ledger.exists() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!ledger.exists());
    assert_eq!((agent.remains(), agent.cgroup()), (vec![], None));
    assert_eq!(agent.reset().removed, [""; 0]);
}

/// Its guardian was killed, too.
#[tokio::test]
async fn the_next_agent_undoes_what_a_killed_one_has_left_and_nothing_of_the_living() {
    if !has_root("the_next_agent_undoes_what_a_killed_one_has_left_and_nothing_of_the_living") {
        return;
    }
    let mut killed = Agent::start(&[]);
    build(&killed, &["h1"]).await;
    killed.kill_with_guardian();
    let state = killed.state_dir().display().to_string();
    let next = Agent::start_in(&[], &[("LOOPSCOPE_STATE_DIR", &state)]);
    // The hosts' agents of the killed one may have held its ledger still; the one after finds it free.
    while !killed.remains().is_empty() {
        drop(Agent::start_in(&[], &[("LOOPSCOPE_STATE_DIR", &state)]));
    }
    assert_eq!(killed.cgroup(), None);
    build(&next, &["h1"]).await;
    drop(Agent::start_in(&[], &[("LOOPSCOPE_STATE_DIR", &state)]));
    assert_eq!(next.remains().iter().filter(|what| what.starts_with("namespace")).count(), 3);
}

/// Runs of a sweep differ in the beginnings of their names only.
#[tokio::test]
async fn runs_whose_names_end_alike_are_made_at_the_same_time() {
    if !has_root("runs_whose_names_end_alike_are_made_at_the_same_time") {
        return;
    }
    let agents = [Agent::start_as("aaaaaap100r1"), Agent::start_as("bbbbbbp100r1")];
    let mut hosts = vec![];
    for agent in &agents {
        hosts.extend(build(agent, &["h1"]).await);
    }
    let [first, second] = agents;
    drop(first);
    assert!(second.remains().iter().any(|what| what.ends_with(&hosts[1].namespace)));
    connect(std::path::Path::new(&hosts[1].agent_socket)).await;
    drop(second);
}

#[test]
fn a_namespace_is_made_by_one_of_several() {
    if !has_root("a_namespace_is_made_by_one_of_several") {
        return;
    }
    let name = format!("ls-test-{}", std::process::id());
    let tries: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| namespace::add(&name))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(tries.iter().filter(|made| made.is_ok()).count(), 1, "{tries:?}");
    let lost = |error: &std::io::Error| error.kind() == std::io::ErrorKind::AlreadyExists;
    assert!(tries.iter().filter_map(|made| made.as_ref().err()).all(lost), "{tries:?}");
    let devices = namespace::within(&name, || std::fs::read_to_string("/proc/thread-self/net/dev"));
    let devices = devices.unwrap().unwrap();
    assert_eq!(devices.lines().skip(2).count(), 1, "{devices}");
    assert!(namespace::delete(&name).unwrap() && !namespace::delete(&name).unwrap());
}
