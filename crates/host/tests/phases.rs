//! The phase protocol between an agent and the programs that it has started.

mod controller;

use controller::{Agent, Watcher, start, stop};
use loopscope_agent::proto::event::What;
use loopscope_agent::proto::exited::How;
use loopscope_agent::proto::readiness::Rule;
use loopscope_agent::proto::{EnterPhaseRequest, PhaseDone, PhaseFailed, PhaseHello};
use serde_json::{Value, json};
use tonic::Code;

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
    client.enter_phase(enter("listen")).await.unwrap();
    let events = watcher.until("a", |w| matches!(w, What::PhaseDone(_))).await;
    let done = PhaseDone { phase: "listen".to_owned(), values_json: r#"{"port":7}"#.to_owned() };
    assert_eq!(events.last(), Some(&What::PhaseDone(done)));
    client.enter_phase(enter("run")).await.unwrap();
    let events = watcher.until("a", |w| matches!(w, What::PhaseFailed(_))).await;
    let failed = PhaseFailed { phase: "run".to_owned(), error: "no peer".to_owned() };
    assert_eq!(events.last(), Some(&What::PhaseFailed(failed)));
    client.enter_phase(enter("break")).await.unwrap();
    let events = watcher.until("a", |w| matches!(w, What::PhaseFailed(_))).await;
    let Some(What::PhaseFailed(failed)) = events.last() else { unreachable!() };
    assert_eq!(failed.phase, "break");
    assert!(failed.error.contains(r#"{"type": "done", "phase": "sleep"}"#), "{}", failed.error);

    let refused = client.enter_phase(enter("connect")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
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
    let after = client.enter_phase(enter("listen")).await.unwrap_err();
    assert!(after.message().contains("has ended"), "{}", after.message());
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
            client.enter_phase(request).await.unwrap();
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
    let refused = client.enter_phase(enter("a", "run", None)).await.unwrap_err();
    assert!(refused.message().contains("has no peers yet"), "{}", refused.message());

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
        client.enter_phase(enter(name, "run", given)).await.unwrap();
        let events = watcher.until(name, |w| matches!(w, What::PhaseDone(_))).await;
        let Some(What::PhaseDone(done)) = events.last() else { unreachable!() };
        let values: Value = serde_json::from_str(&done.values_json).unwrap();
        let got: Value = serde_json::from_str(values["peers"].as_str().unwrap()).unwrap();
        assert_eq!(&got, wanted, "{name}");
    }
    client.enter_phase(enter("a", "no such", Some(&third))).await.unwrap_err();
    client.enter_phase(enter("a", "run", None)).await.unwrap();
    let events = watcher.until("a", |w| matches!(w, What::PhaseDone(_))).await;
    let Some(What::PhaseDone(done)) = events.last() else { unreachable!() };
    assert!(done.values_json.contains(r#"\"port\": 3"#), "{}", done.values_json);
    let nonsense =
        EnterPhaseRequest { peers_json: Some("{".to_owned()), ..enter("a", "run", None) };
    let refused = client.enter_phase(nonsense).await.unwrap_err();
    assert!(refused.message().contains("the peers are not JSON"), "{}", refused.message());
    stop(&mut client, 10.0).await.unwrap();
}
