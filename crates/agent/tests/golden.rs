//! The agent against the published bytes of `schema/golden`: its side of the phase protocol, and
//! messages of the agent protocol as the controller encodes them.

use std::path::Path;

use loopscope_agent::dialogue::{self, Answer, Dialogue, Peers};
use loopscope_agent::proto;
use prost::Message;
use serde_json::Value;

#[test]
fn the_agent_speaks_the_golden_dialogue() {
    let golden = include_str!("../../../schema/golden/phase/dialogue.txt");
    let mut dialogue = Dialogue::default();
    for line in golden.lines() {
        let (side, text) = line.split_at(2);
        if side == "< " {
            let said = dialogue.receive(text.as_bytes()).unwrap();
            assert!(!matches!(said, Answer::Failed { .. }), "{text}");
            continue;
        }
        let message: Value = serde_json::from_str(text).unwrap();
        let ours = match message["type"].as_str().unwrap() {
            "configure" => dialogue::configure("node1", "h2", &message["config"]).unwrap(),
            "phase" => {
                let (phase, measured) = (&message["phase"], &message["measured"]);
                let measured = measured.as_bool().unwrap();
                let peers: Peers = message["peers"].to_string().parse().unwrap();
                let start_ns = message["start_ns"].as_i64();
                dialogue.enter(phase.as_str().unwrap(), measured, &peers, start_ns).unwrap()
            }
            _ => dialogue::END.to_vec(),
        };
        assert_eq!(String::from_utf8(ours).unwrap(), format!("{text}\n"));
    }
}

fn golden(file: &str) -> Vec<u8> {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/golden/agent");
    std::fs::read(schema.join(file)).unwrap()
}

/// tests/golden holds the controller to the same files.
#[test]
fn the_agent_understands_the_controllers_bytes() {
    let start = proto::StartRequest::decode(&golden("start-request.bin")[..]).unwrap();
    assert_eq!(start.component, "node1");
    assert_eq!(start.command, ["loopscope-host", "pipe", "node"]);
    assert_eq!(start.environment["LANG"], "C");
    assert_eq!(start.config_json, r#"{"to": "node2"}"#);
    let rule = start.readiness.as_ref().and_then(|readiness| readiness.rule.clone());
    assert_eq!(rule, Some(proto::readiness::Rule::Phases(true)));
    let streams = r#"{"version": 1, "streams": [{"entities": ["pipe:*"]}]}"#;
    assert_eq!(start.streams_json, streams);
    assert_eq!((start.user.as_str(), start.output_limit), ("nobody", 1 << 20));
    assert_eq!(start.inherit, ["PATH", "LC_*"]);
    assert_eq!(start.encode_to_vec(), golden("start-request.bin"));

    let event = proto::Event::decode(&golden("event.bin")[..]).unwrap();
    assert_eq!((event.component.as_str(), event.at_monotonic_ns), ("node1", 1_234_567_890_123));
    let at = proto::GlobalInstant { global_ns: 9_876_543_210, within_ns: 1_250 };
    assert_eq!(event.at, Some(at));
    let Some(proto::event::What::Exited(exited)) = &event.what else { panic!("{event:?}") };
    assert_eq!(exited.how, Some(proto::exited::How::Signal(9)));
    assert!(!exited.stopped_by_us);
    assert_eq!((exited.stdout_left_out, exited.stderr_left_out), (7, 0));
    assert_eq!(event.encode_to_vec(), golden("event.bin"));
}
