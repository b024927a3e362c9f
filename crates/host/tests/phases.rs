//! The phase protocol between an agent and the programs that it has started.

mod controller;

use controller::{Agent, Watcher, start, stop};
use loopscope_agent::proto::event::What;
use loopscope_agent::proto::exited::How;
use loopscope_agent::proto::readiness::Rule;
use loopscope_agent::proto::{EnterPhaseRequest, HelloRequest, PhaseDone, PhaseFailed, PhaseHello};
use serde_json::{Value, json};

/// Answers phases as the protocol asks, and shows on stdout what it got.
const PROGRAM: &str = r#"
import json, os, socket, sys
s = socket.socket(fileno=int(os.environ["LOOPSCOPE_PHASE_FD"]))
def say(**message): s.sendall(json.dumps(message).encode() + b"\n")
for line in s.makefile():
    print(line, end="", flush=True)
    message = json.loads(line)
    if message["type"] == "configure": say(type="hello", version=1, phases=["listen", "run", "break"])
    elif message["type"] == "end": sys.exit(0)
    elif message["phase"] == "listen": say(type="done", phase="listen", values={"port": 7})
    elif message["phase"] == "run": say(type="failed", phase="run", error="no peer")
    else: say(type="done", phase="sleep")
"#;

#[tokio::test]
async fn phases_go_there_and_back() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    let mut watcher = Watcher::of(&mut client).await;
    let mut request = start("a", &["python3", "-c", PROGRAM], Rule::Phases(true));
    request.config_json = r#"{"to": "b"}"#.to_owned();
    client.start(request).await.unwrap();
    let events = watcher.until_ready("a").await;
    let phases = ["listen", "run", "break"].map(str::to_owned).to_vec();
    assert!(events.contains(&What::PhaseHello(PhaseHello { phases })), "{events:?}");

    let enter = |phase: &str| EnterPhaseRequest {
        component: "a".to_owned(),
        phase: phase.to_owned(),
        measured: true,
        peers_json: Some(r#"{"b": {"host": "h2"}}"#.to_owned()),
        start_global_ns: None,
    };
    watcher.enter(enter("listen"));
    let events = watcher.until("a", |w| matches!(w, What::PhaseDone(_))).await;
    let done = PhaseDone { phase: "listen".to_owned(), values_json: r#"{"port":7}"#.to_owned() };
    assert_eq!(events.last(), Some(&What::PhaseDone(done)));
    watcher.enter(enter("run"));
    let events = watcher.until("a", |w| matches!(w, What::PhaseFailed(_))).await;
    let failed = PhaseFailed { phase: "run".to_owned(), error: "no peer".to_owned() };
    assert_eq!(events.last(), Some(&What::PhaseFailed(failed)));
    watcher.enter(enter("break"));
    let events = watcher.until("a", |w| matches!(w, What::PhaseFailed(_))).await;
    let Some(What::PhaseFailed(failed)) = events.last() else { unreachable!() };
    assert_eq!(failed.phase, "break");
    assert!(failed.error.contains(r#"{"type": "done", "phase": "sleep"}"#), "{}", failed.error);

    watcher.enter(enter("connect"));
    let refused = watcher.until_refused("a").await;
    assert_eq!(refused.phase, "connect");
    assert!(refused.error.starts_with("it takes part in the phases "), "{}", refused.error);
    stop(&mut client, 10.0).await.unwrap();
    let exited = watcher.until_exit("a").await.1;
    assert_eq!((exited.how, exited.stopped_by_us), (Some(How::Code(0)), true));
    let heard = agent.file("hosts/h1/components/a/stdout.log");
    let heard: Vec<Value> = heard.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        heard[0],
        json!({"type": "configure", "version": 1, "component": "a", "host": "h1",
                           "config": {"to": "b"}})
    );
    assert_eq!(
        heard[1],
        json!({"type": "phase", "phase": "listen", "measured": true,
                           "peers": {"b": {"host": "h2"}}})
    );
    assert_eq!(heard.last().unwrap(), &json!({"type": "end"}));
    watcher.enter(enter("listen"));
    assert_eq!(watcher.until_refused("a").await.error, "it has ended");
    let nobody = EnterPhaseRequest { component: "nobody".to_owned(), ..enter("listen") };
    watcher.enter(nobody);
    let refused = watcher.until_refused("nobody").await;
    assert!(refused.error.contains("no component nobody"), "{}", refused.error);
}

#[tokio::test]
async fn a_program_that_breaks_off_the_dialogue_has_failed_the_phase() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    let mut watcher = Watcher::of(&mut client).await;
    let close = PROGRAM.replace(r#"say(type="done", phase="listen", values={"port": 7})"#, "break")
        + "s.shutdown(socket.SHUT_RDWR)\nimport time\ntime.sleep(600)";
    let flood = PROGRAM.replace("s.makefile()", "[]") + "s.sendall(b'x' * 70000)\ns.recv(1)";
    let nonsense = PROGRAM.replace("s.makefile()", "[]") + "s.sendall(b'hello?\\n')\ns.recv(1)";
    for (name, program) in [("close", &close), ("flood", &flood), ("nonsense", &nonsense)] {
        let request = start(name, &["python3", "-c", program], Rule::Phases(true));
        client.start(request).await.unwrap();
        if name == "close" {
            watcher.until_ready(name).await;
            let (component, phase) = (name.to_owned(), "listen".to_owned());
            let peers_json = Some("{}".to_owned());
            let request = EnterPhaseRequest {
                component,
                phase,
                measured: false,
                peers_json,
                start_global_ns: None,
            };
            watcher.enter(request);
        }
        let events = watcher.until(name, |w| matches!(w, What::PhaseFailed(_))).await;
        let Some(What::PhaseFailed(failed)) = events.last() else { unreachable!() };
        let wanted = match name {
            "close" => "closed its phase socket",
            "flood" => "a line of more than 65536 bytes: xxx",
            _ => "hello?",
        };
        assert!(failed.error.contains(wanted), "{name}: {}", failed.error);
    }
}

/// Takes part in one phase again and again, and publishes the peers that it gets.
const ECHO: &str = r#"
import json, os, socket
s = socket.socket(fileno=int(os.environ["LOOPSCOPE_PHASE_FD"]))
def say(**message): s.sendall(json.dumps(message).encode() + b"\n")
for line in s.makefile():
    message = json.loads(line)
    if message["type"] == "configure": say(type="hello", version=1, phases=["run"])
    elif message["type"] == "end": break
    else: say(type="done", phase="run", values={"peers": json.dumps(message["peers"])})
"#;

#[tokio::test]
async fn phases_begin_in_the_order_in_which_they_were_asked_for() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    let mut watcher = Watcher::of(&mut client).await;
    client.start(start("b", &["python3", "-c", ECHO], Rule::Phases(true))).await.unwrap();
    watcher.until_ready("b").await;
    let enter = |phase: &str| EnterPhaseRequest {
        component: "b".to_owned(),
        phase: phase.to_owned(),
        measured: false,
        peers_json: Some("{}".to_owned()),
        start_global_ns: None,
    };
    for number in 0..50 {
        watcher.enter(enter(&format!("no such {number}")));
    }
    watcher.enter(enter("run"));
    let seen = watcher.until("b", |w| matches!(w, What::PhaseDone(_))).await;
    let refused: Vec<String> = seen
        .into_iter()
        .filter_map(|what| match what {
            What::PhaseRefused(refused) => Some(refused.phase),
            _ => None,
        })
        .collect();
    assert_eq!(refused, (0..50).map(|n| format!("no such {n}")).collect::<Vec<_>>());
    stop(&mut client, 10.0).await.unwrap();
}

/// A message that cannot be read ends the events with the reason, and not the agent.
#[tokio::test]
async fn a_request_that_is_too_long_ends_the_events_with_the_reason() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    let mut watcher = Watcher::of(&mut client).await;
    watcher.enter(EnterPhaseRequest {
        component: "a".to_owned(),
        peers_json: Some(" ".repeat(40 << 20)),
        ..EnterPhaseRequest::default()
    });
    let failure = watcher.failure().await;
    assert!(failure.message().contains("too large"), "{failure:?}");
    client.hello(HelloRequest {}).await.unwrap();
}

/// A request without peers has those of the last one for the same component, answered or refused.
#[tokio::test]
async fn a_component_keeps_its_peers_until_it_gets_others() {
    let agent = Agent::start(&["--host", "h1"]);
    let mut client = agent.client().await;
    let mut watcher = Watcher::of(&mut client).await;
    for name in ["a", "b"] {
        client.start(start(name, &["python3", "-c", ECHO], Rule::Phases(true))).await.unwrap();
        watcher.until_ready(name).await;
    }
    let enter = |name: &str, phase: &str, peers: Option<&Value>| EnterPhaseRequest {
        component: name.to_owned(),
        phase: phase.to_owned(),
        measured: true,
        // On several lines: a message to a program is one.
        peers_json: peers.map(|peers| format!("{peers:#}")),
        start_global_ns: None,
    };
    watcher.enter(enter("a", "run", None));
    assert_eq!(watcher.until_refused("a").await.error, "it has no peers yet");

    let ports =
        |port: u16| json!({"a": {"host": "h1", "values": {"port": port}}, "z": {}, "b": {}});
    let (first, second, third) = (ports(1), ports(2), ports(3));
    for (name, given, wanted) in [
        ("a", Some(&first), &first),
        ("a", None, &first),
        ("b", Some(&second), &second),
        ("a", None, &first),
        ("a", Some(&second), &second),
        ("b", None, &second),
        ("b", Some(&third), &third),
        ("a", None, &second),
        ("b", None, &third),
    ] {
        watcher.enter(enter(name, "run", given));
        let events = watcher.until(name, |w| matches!(w, What::PhaseDone(_))).await;
        let Some(What::PhaseDone(done)) = events.last() else { unreachable!() };
        let values: Value = serde_json::from_str(&done.values_json).unwrap();
        let got: Value = serde_json::from_str(values["peers"].as_str().unwrap()).unwrap();
        assert_eq!(&got, wanted, "{name}");
    }
    watcher.enter(enter("a", "no such", Some(&third)));
    watcher.until_refused("a").await;
    watcher.enter(enter("a", "run", None));
    let events = watcher.until("a", |w| matches!(w, What::PhaseDone(_))).await;
    let Some(What::PhaseDone(done)) = events.last() else { unreachable!() };
    assert!(done.values_json.contains(r#"\"port\": 3"#), "{}", done.values_json);
    let nonsense =
        EnterPhaseRequest { peers_json: Some("{".to_owned()), ..enter("a", "run", None) };
    watcher.enter(nonsense);
    let refused = watcher.until_refused("a").await;
    assert!(refused.error.contains("the peers are not JSON"), "{}", refused.error);
    stop(&mut client, 10.0).await.unwrap();
}
