//! Network namespaces as hosts, and that nothing of them stays.

mod controller;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use controller::{Agent, Watcher, build, channel, connect, has_root, lines, start, stop, streams};
use loopscope_agent::machine_proto::machine_client::MachineClient;
use loopscope_agent::machine_proto::{BuildTestbedRequest, TestbedHost};
use loopscope_agent::proto::exited::How;
use loopscope_agent::proto::readiness::Rule;
use loopscope_agent::proto::{HelloRequest, ShutdownRequest};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tonic::Code;
use tonic::transport::Channel;

const STARTED: Rule = Rule::Started(true);

fn up() -> Rule {
    Rule::Line("up".to_owned())
}

/// Starts programs on the hosts that resist being ended: they ignore SIGTERM, leave their session,
/// and forget their environment. All processes in the hosts' namespaces, their agents included.
async fn start_stubborn(hosts: &[TestbedHost]) -> Vec<PathBuf> {
    let mut inhabitants = vec![];
    for host in hosts {
        let mut client = connect(Path::new(&host.agent_socket)).await;
        let mut watcher = Watcher::of(&mut client).await;
        let script = "trap '' TERM; setsid env -i sleep 600 & sleep 600 & echo up; wait";
        let mut request = start("stubborn", &["sh", "-c", script], up());
        request.streams_json = streams("*");
        client.start(request).await.unwrap();
        watcher.until_ready("stubborn").await;
        let namespace = Path::new("/run/netns").join(&host.namespace).metadata().unwrap().ino();
        let lives_there = |process: &PathBuf| {
            process.join("ns/net").metadata().is_ok_and(|its| its.ino() == namespace)
        };
        let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        let found: Vec<PathBuf> = processes.filter(lives_there).collect();
        // The agent, the shell, and what each of the two sleeps in.
        assert_eq!(found.len(), 4, "{found:?}");
        inhabitants.extend(found);
    }
    inhabitants
}

/// Processes that still run. A zombie has no namespaces any more.
fn alive(processes: &[PathBuf]) -> Vec<&PathBuf> {
    processes.iter().filter(|process| process.join("ns/net").metadata().is_ok()).collect()
}

#[tokio::test]
async fn two_hosts_talk_over_their_links_and_over_nothing_else() {
    if !has_root("two_hosts_talk_over_their_links_and_over_nothing_else") {
        return;
    }
    let mut agent = Agent::start(&[]);
    let mut client = agent.client().await;
    let hosts = build(&agent, &["h1", "h2"]).await;
    assert_eq!(hosts[1].data_address, "10.77.0.2");
    assert_eq!(hosts[1].clock_address, "10.78.0.2");
    let (mut h1, mut h2) = (
        connect(Path::new(&hosts[0].agent_socket)).await,
        connect(Path::new(&hosts[1].agent_socket)).await,
    );
    let (mut w1, mut w2) = (Watcher::of(&mut h1).await, Watcher::of(&mut h2).await);
    let echo = "import socket\n\
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
        s.bind(('', 5000))\n\
        while True:\n  data, peer = s.recvfrom(2000)\n  s.sendto(data + peer[0].encode(), peer)";
    h2.start(start("echo", &["python3", "-c", echo], Rule::Port(5000))).await.unwrap();
    w2.until_ready("echo").await;
    // By address and by name; the network of the probes is none of the programs'.
    for (name, to, answered) in [
        ("by-address", "10.77.0.2", true),
        ("by-name", "h2", true),
        ("by-clock", "10.78.0.2", false),
    ] {
        let ask = format!(
            "import socket\n\
             s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
             s.settimeout(10)\n\
             try: s.sendto(b'from ', ('{to}', 5000))\n\
             except OSError as error: print(error.strerror)\n\
             else: print(s.recv(2000).decode())"
        );
        h1.start(start(name, &["python3", "-c", &ask], STARTED)).await.unwrap();
        let (events, exited) = w1.until_exit(name).await;
        assert_eq!(exited.how, Some(How::Code(0)), "{events:?}");
        let wanted = if answered { "from 10.77.0.1" } else { "Network is unreachable" };
        assert_eq!(lines(&events, false), [wanted], "{name}");
    }
    // The other host's port is not open here, and there are no links but its own.
    let ls = "ls /proc/sys/net/ipv4/conf /sys/class/net; grep -c 1388 /proc/net/udp";
    h1.start(start("ls", &["sh", "-c", ls], STARTED)).await.unwrap();
    let (events, _) = w1.until_exit("ls").await;
    let mut wanted = vec!["/proc/sys/net/ipv4/conf:", "all", "data0", "default", "lo", ""];
    wanted.extend(["/sys/class/net:", "data0", "lo", "0"]);
    assert_eq!(lines(&events, false), wanted);
    // The rest of /sys is as it was.
    let mounts = "sed -n 's/.* \\(\\/sys\\/[^ ]*\\) .*/\\1/p' /proc/self/mountinfo | sort -u";
    h1.start(start("mounts", &["sh", "-c", mounts], STARTED)).await.unwrap();
    let (events, _) = w1.until_exit("mounts").await;
    let here = std::process::Command::new("sh").args(["-c", mounts]).output().unwrap();
    let here = String::from_utf8(here.stdout).unwrap();
    assert_eq!(lines(&events, false), here.lines().collect::<Vec<_>>());
    // Memory is not shared between hosts, by name or by number.
    let share = "import ctypes\n\
        from multiprocessing import shared_memory\n\
        m = shared_memory.SharedMemory('loopscope-test', create=True, size=1)\n\
        print(ctypes.CDLL(None).shmget(0x10095c0e, 1, 0o1600) >= 0, flush=True)\n\
        input()";
    for (host, watcher) in [(&mut h1, &mut w1), (&mut h2, &mut w2)] {
        host.start(start("share", &["python3", "-c", share], STARTED)).await.unwrap();
        let (events, _) = watcher.until_exit("share").await;
        assert_eq!(lines(&events, false), ["True"], "{events:?}");
    }
    assert!(!Path::new("/dev/shm/loopscope-test").exists());
    let environment = h1.hello(HelloRequest {}).await.unwrap().into_inner().environment_json;
    let environment: serde_json::Value = serde_json::from_str(&environment).unwrap();
    assert_eq!(environment["links"]["data0"]["mtu"], 1400, "{environment:#}");
    assert!(environment["links"]["clock0"].is_null());

    let mut machine = agent.machine().await;
    let again = BuildTestbedRequest { hosts: vec!["h3".to_owned()], ..Default::default() };
    assert_eq!(machine.build_testbed(again).await.unwrap_err().code(), Code::AlreadyExists);
    let problems = client.shutdown(ShutdownRequest {}).await.unwrap().into_inner().problems;
    assert_eq!(problems, [""; 0]);
    assert_eq!(agent.remains(), [""; 0]);
    drop(client);
    assert!(agent.child.wait().unwrap().success());
}

/// Moves frames between two devices, and marks the time by nothing.
const FORWARDER: &str = "import select, socket, sys\n\
    ends = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) for _ in '12']\n\
    for end, device in zip(ends, sys.argv[1:]): end.bind((device, 3))\n\
    print('up', flush=True)\n\
    while True:\n\
    \x20 for end in select.select(ends, [], [])[0]:\n\
    \x20   frame, origin = end.recvfrom(65536)\n\
    \x20   if origin[2] != socket.PACKET_OUTGOING: ends[end is ends[0]].send(frame)";

/// What a program prints in the network namespace of a host's data, as JSON.
fn told(namespace: &str, words: &[&str]) -> serde_json::Value {
    let output = std::process::Command::new("ip")
        .args(["netns", "exec", namespace])
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn ip_shows_the_links_and_neighbours_that_were_planned() {
    if !has_root("ip_shows_the_links_and_neighbours_that_were_planned") {
        return;
    }
    let agent = Agent::start(&[]);
    // More neighbours than are told to the kernel at once.
    let names: Vec<String> = (1..=70).map(|i| format!("h{i}")).collect();
    let hosts = build(&agent, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let second = &hosts[1].namespace;
    let links = told(second, &["ip", "-json", "-details", "address", "show"]);
    let of = |name: &str| links.as_array().unwrap().iter().find(|l| l["ifname"] == name).unwrap();
    let (data, lo) = (of("data0"), of("lo"));
    assert_eq!(links.as_array().unwrap().len(), 2, "{links:#}");
    assert_eq!(json!([data["mtu"], data["address"]]), json!([1400, "02:00:00:00:00:02"]));
    assert!([data, lo].iter().all(|link| link["flags"].as_array().unwrap().contains(&json!("UP"))));
    // No IPv6 address, so nothing is asked or told in the middle of a measurement.
    let addresses = data["addr_info"].as_array().unwrap();
    assert_eq!(addresses.len(), 1, "{data:#}");
    let fields = ["local", "prefixlen", "broadcast", "scope"].map(|key| &addresses[0][key]);
    assert_eq!(json!(fields), json!(["10.77.0.2", 24, "10.77.0.255", "global"]));
    let neighbours = told(second, &["ip", "-json", "neighbour", "show", "nud", "permanent"]);
    let known: std::collections::BTreeMap<&str, &str> = neighbours
        .as_array()
        .unwrap()
        .iter()
        .map(|each| (each["dst"].as_str().unwrap(), each["lladdr"].as_str().unwrap()))
        .collect();
    let wanted = hosts.iter().filter(|host| host.name != "h2");
    let wanted = wanted.map(|h| (h.data_address.as_str(), h.data_link_address.as_str())).collect();
    assert_eq!(known, wanted);
    // A follower knows the reference's clock, and nobody else's.
    let clock = |host: &TestbedHost| format!("{}~clock", host.namespace);
    let link = told(&clock(&hosts[0]), &["ip", "-json", "link", "show", "clock0"]);
    let known = told(&clock(&hosts[1]), &["ip", "-json", "neighbour", "show"]);
    let [entry] = &known.as_array().unwrap()[..] else { panic!("{known:#}") };
    assert_eq!(entry["dst"], hosts[0].clock_address.as_str());
    assert_eq!(
        json!([entry["lladdr"], entry["state"]]),
        json!([link[0]["address"], ["PERMANENT"]])
    );
    let switch = second.strip_suffix("h2").unwrap().to_owned() + "net";
    let bridges = told(&switch, &["ip", "-json", "-details", "link", "show", "type", "bridge"]);
    for bridge in bridges.as_array().unwrap() {
        let settings = &bridge["linkinfo"]["info_data"];
        let found = ["stp_state", "forward_delay", "mcast_snooping"].map(|key| &settings[key]);
        assert_eq!(json!(found), json!([0, 0, 0]), "{bridge:#}");
    }
    assert_eq!(bridges.as_array().unwrap().len(), 2, "{bridges:#}");
    // What the host tells of itself is what iproute2 and ethtool tell of it.
    let mut h2 = connect(Path::new(&hosts[1].agent_socket)).await;
    let own = h2.hello(HelloRequest {}).await.unwrap().into_inner().environment_json;
    let own: serde_json::Value = serde_json::from_str(&own).unwrap();
    for (name, link) in own["links"].as_object().unwrap() {
        assert_eq!((&link["mtu"], &link["qdisc"]), (&of(name)["mtu"], &of(name)["qdisc"]));
    }
    let program = own["loopscope"]["program"].as_str().unwrap();
    let hash = std::process::Command::new("sha256sum").arg(program).output().unwrap();
    let hash = String::from_utf8(hash.stdout).unwrap();
    assert_eq!(own["loopscope"]["sha256"].as_str(), hash.split(' ').next());
    let features = std::process::Command::new("ip")
        .args(["netns", "exec", second, "ethtool", "-k", "data0"])
        .output()
        .unwrap();
    if !features.status.success() {
        return controller::skipped("there is no ethtool to compare offloads with");
    }
    let features = String::from_utf8(features.stdout).unwrap();
    for (name, state) in own["links"]["data0"]["offloads"].as_object().unwrap() {
        let line = format!("{name}: {}", state.as_str().unwrap());
        assert!(
            features.lines().any(|shown| shown.trim().starts_with(&line)),
            "{line}\n{features}"
        );
    }
}

/// TCP connects and carries more than a segment only if checksums and segments are whole.
#[tokio::test]
async fn behind_a_router_hosts_talk_through_what_moves_their_packets_only() {
    if !has_root("behind_a_router_hosts_talk_through_what_moves_their_packets_only") {
        return;
    }
    let agent = Agent::start(&[]);
    let mut client = agent.client().await;
    let request = BuildTestbedRequest {
        hosts: vec!["h1".to_owned(), "h2".to_owned()],
        data_network: "10.77.0.0/24".to_owned(),
        clock_network: "10.78.0.0/24".to_owned(),
        path: std::env::var("PATH").unwrap(),
        router: true,
        ..BuildTestbedRequest::default()
    };
    let made = agent.machine().await.build_testbed(request).await.unwrap().into_inner();
    let (hosts, router) = (made.hosts, made.router.unwrap());
    assert_eq!((router.name.as_str(), router.clock_address.as_str()), ("_router", "10.78.0.3"));
    assert_eq!((hosts[1].port.as_str(), router.data_address.as_str()), ("d2", ""));
    let mut h1 = connect(Path::new(&hosts[0].agent_socket)).await;
    let mut h2 = connect(Path::new(&hosts[1].agent_socket)).await;
    let mut between = connect(Path::new(&router.agent_socket)).await;
    let (mut w1, mut w2) = (Watcher::of(&mut h1).await, Watcher::of(&mut h2).await);
    let mut w3 = Watcher::of(&mut between).await;
    let serve = "import socket\n\
        s = socket.create_server(('', 5000))\n\
        while True:\n  c, _ = s.accept()\n  c.sendall(b'x' * 1000000)\n  c.close()";
    h2.start(start("serve", &["python3", "-c", serve], Rule::Port(5000))).await.unwrap();
    w2.until_ready("serve").await;
    let ask = |network: &str| {
        format!(
            "import socket\n\
             c = socket.create_connection(('10.{network}.0.2', 5000), timeout=1)\n\
             n = 0\n\
             while got := len(c.recv(65536)): n += got\n\
             print(n)"
        )
    };
    // Nothing moves packets yet, and there is no way around it.
    for (name, network) in [("clock", "78"), ("data", "77")] {
        h1.start(start(name, &["python3", "-c", &ask(network)], STARTED)).await.unwrap();
        let (events, exited) = w1.until_exit(name).await;
        assert_eq!(exited.how, Some(How::Code(1)), "{events:?}");
    }
    between.start(start("mover", &["python3", "-c", FORWARDER, "d1", "d2"], up())).await.unwrap();
    w3.until_ready("mover").await;
    h1.start(start("moved", &["python3", "-c", &ask("77")], STARTED)).await.unwrap();
    let (events, exited) = w1.until_exit("moved").await;
    assert_eq!(exited.how, Some(How::Code(0)), "{events:?}");
    assert_eq!(lines(&events, false), ["1000000"]);
    let problems = client.shutdown(ShutdownRequest {}).await.unwrap().into_inner().problems;
    assert_eq!(problems, [""; 0]);
    assert_eq!(agent.remains(), [""; 0]);
}

#[tokio::test]
async fn the_end_of_standard_input_is_the_end_of_everything() {
    if !has_root("the_end_of_standard_input_is_the_end_of_everything") {
        return;
    }
    let mut agent = Agent::start(&[]);
    let client = agent.client().await;
    let hosts = build(&agent, &["h1", "h2"]).await;
    let inhabitants = start_stubborn(&hosts).await;
    assert!(agent.remains().len() >= 9, "{:?}", agent.remains());
    drop(client);
    drop(agent.stdin.take());
    assert!(agent.child.wait().unwrap().success());
    assert_eq!(agent.remains(), [""; 0]);
    assert!(alive(&inhabitants).is_empty(), "{:?}", alive(&inhabitants));
    let reset = agent.reset();
    assert!(reset.removed.is_empty() && reset.problems.is_empty(), "{reset:?}");
}

#[tokio::test]
async fn reset_undoes_what_a_killed_agent_left_and_nothing_of_the_living() {
    if !has_root("reset_undoes_what_a_killed_agent_left_and_nothing_of_the_living") {
        return;
    }
    let mut agent = Agent::start(&[]);
    let hosts = build(&agent, &["h1", "h2"]).await;
    let inhabitants = start_stubborn(&hosts).await;
    let living = agent.reset();
    assert_eq!(living.removed, [""; 0]);
    assert_eq!(living.in_use.len(), 1, "{living:?}");
    assert!(living.in_use[0].contains(&agent.run));
    assert_eq!(agent.remains().iter().filter(|r| r.starts_with("namespace")).count(), 5);

    agent.kill_with_guardian();
    let dead = agent.reset();
    assert_eq!(dead.problems, [""; 0]);
    let namespaces = dead.removed.iter().filter(|what| what.starts_with("namespace ls-"));
    assert_eq!(namespaces.count(), 5, "{dead:?}");
    assert_eq!(agent.remains(), [""; 0]);
    assert!(alive(&inhabitants).is_empty(), "{:?}", alive(&inhabitants));
    let again = agent.reset();
    assert!(again.removed.is_empty() && again.problems.is_empty(), "{again:?}");
}

#[tokio::test]
async fn reset_undoes_what_dead_agents_left_when_nobody_of_the_run_lives() {
    if !has_root("reset_undoes_what_dead_agents_left_when_nobody_of_the_run_lives") {
        return;
    }
    let mut agent = Agent::start(&[]);
    let hosts = build(&agent, &["h1"]).await;
    let inhabitants = start_stubborn(&hosts).await;
    // The agent of the host first, so that it cannot clean up.
    let ledger = agent.file(&format!("state/ledger/{}.jsonl", agent.run));
    let entries = ledger.lines().map(serde_json::from_str::<serde_json::Value>);
    let of_host = entries
        .map(Result::unwrap)
        .find(|entry| entry["what"] == "agent of host h1")
        .and_then(|entry| entry["pid"].as_i64())
        .expect("the ledger has no entry of the host's agent");
    kill(Pid::from_raw(i32::try_from(of_host).unwrap()), Signal::SIGKILL).unwrap();
    agent.kill_with_guardian();
    assert!(agent.remains().iter().any(|what| what.starts_with("process")));
    let dead = agent.reset();
    assert_eq!(dead.problems, [""; 0]);
    let stubborn =
        dead.removed.iter().filter(|what| what.contains("(component stubborn of host h1)"));
    assert_eq!(stubborn.count(), 1, "{dead:?}");
    assert!(dead.removed.iter().any(|what| what.starts_with("directory")), "{dead:?}");
    assert_eq!(agent.remains(), [""; 0]);
    assert!(alive(&inhabitants).is_empty(), "{:?}", alive(&inhabitants));
}

/// Neither one on this machine itself nor one in a namespace.
#[tokio::test]
async fn the_agent_of_a_host_does_not_have_the_service_that_makes_testbeds() {
    let refused = |mut machine: MachineClient<Channel>| async move {
        let request = BuildTestbedRequest::default();
        machine.build_testbed(request).await.unwrap_err().code()
    };
    let alone = Agent::start(&["--host", "h1"]);
    assert_eq!(refused(alone.machine().await).await, Code::Unimplemented);
    assert!(alone.client().await.hello(HelloRequest {}).await.is_ok());
    if !has_root("the_agent_of_a_host_does_not_have_the_service_that_makes_testbeds") {
        return;
    }
    let agent = Agent::start(&[]);
    let hosts = build(&agent, &["h1"]).await;
    let of_host = MachineClient::new(channel(Path::new(&hosts[0].agent_socket)).await);
    assert_eq!(refused(of_host).await, Code::Unimplemented);
    // The machine's agent has it, and no components.
    assert_eq!(refused(agent.machine().await).await, Code::AlreadyExists);
    let refused = stop(&mut agent.client().await, 1.0).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn a_testbed_that_cannot_be_made_says_why_and_leaves_nothing() {
    if !has_root("a_testbed_that_cannot_be_made_says_why_and_leaves_nothing") {
        return;
    }
    let agent = Agent::start(&[]);
    let mut client = agent.client().await;
    let mut machine = agent.machine().await;
    let request = |mtu| BuildTestbedRequest {
        hosts: vec!["h1".to_owned()],
        data_network: "10.77.0.0/24".to_owned(),
        clock_network: "10.78.0.0/24".to_owned(),
        data_mtu: mtu,
        ..BuildTestbedRequest::default()
    };
    let mut wrong = request(0);
    wrong.data_network = "10.77.0.1/24".to_owned();
    let refused = machine.build_testbed(wrong).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("10.77.0.0/24?"), "{}", refused.message());
    // Smaller than any Ethernet device allows: the kernel refuses.
    let refused = machine.build_testbed(request(10)).await.unwrap_err();
    let wanted = "link d1 to data0: Invalid argument";
    assert!(refused.message().contains(wanted), "{}", refused.message());
    client.shutdown(ShutdownRequest {}).await.unwrap();
    assert_eq!(agent.remains(), [""; 0]);
}
