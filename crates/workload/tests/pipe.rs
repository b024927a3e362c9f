//! The pipeline as processes on loopback.

mod programs;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use programs::{Component, Event, Program, events, phase};
use serde_json::{Value, json};

const RECEIVER: [&str; 3] = ["listen", "connect", "run"];
const SOURCE: [&str; 2] = ["connect", "run"];

#[test]
fn the_program() {
    programs::be_the_program();
}

/// The events of one entity, whose ids must be 1, 2, … `count` in this order.
fn entity(all: &[Event], entity: &str, count: usize, size: u32) -> Vec<Event> {
    let events: Vec<Event> = all.iter().filter(|e| e.entity == entity).cloned().collect();
    let ids: Vec<i64> = events.iter().map(|e| e.id).collect();
    assert_eq!(ids, (1..=count as i64).collect::<Vec<_>>(), "{entity}");
    for event in &events {
        assert_eq!(event.fields, "uint32_t:size");
        assert_eq!(event.payload, size.to_le_bytes());
    }
    events
}

#[test]
fn every_message_goes_through_every_program_in_order() {
    for (count, period, size) in [(300, "500us", 6), (30, "0s", 300_000)] {
        let dirs: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
        let mut sink = Program::recorded("pipe sink --address 127.0.0.1", dirs[3].path());
        let to = sink.address();
        let mut node2 = Program::recorded(&format!("pipe node --to {to}"), dirs[2].path());
        let to = node2.address();
        let mut node1 = Program::recorded(&format!("pipe node --to {to}"), dirs[1].path());
        let to = node1.address();
        let words =
            format!("pipe source --to {to} --count {count} --period {period} --size {size}B");
        let source = Program::recorded(&words, dirs[0].path());

        let ended = [source, node1, node2, sink].map(Program::end);
        for program in &ended {
            assert!(program.success, "{}", program.stderr);
            assert_eq!(program.stdout.len(), 1, "{:?}", program.stdout);
        }
        let line = &ended[0].stdout[0];
        assert!(line.starts_with(&format!("source: sent {count} messages in ")), "{line}");
        assert!(line.contains(" s, largest lateness of a send "), "{line}");
        assert_eq!(ended[1].stdout[0], format!("node: forwarded {count} messages"));
        assert_eq!(ended[3].stdout[0], format!("sink: received {count} messages"));

        let recorded: Vec<Vec<Event>> = dirs.iter().map(|dir| events(dir.path())).collect();
        let of = |program: usize, name| entity(&recorded[program], name, count, size);
        let way = [
            of(0, "pipe:sent"),
            of(1, "pipe:received"),
            of(1, "pipe:sent"),
            of(2, "pipe:received"),
            of(2, "pipe:sent"),
            of(3, "pipe:received"),
        ];
        assert_eq!(recorded.iter().map(Vec::len).sum::<usize>(), 6 * count);
        for hop in way.windows(2) {
            for (from, to) in hop[0].iter().zip(&hop[1]) {
                assert!(to.since(from) > 0, "{from:?} then {to:?}");
            }
        }
    }
}

#[test]
fn the_source_keeps_its_deadlines_and_its_bytes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let source =
        Program::start(&format!("pipe source --to {to} --count 3 --period 40ms --size 8B"));
    let (mut stream, _) = listener.accept().unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    drop(stream);
    assert_eq!(
        bytes,
        [
            [0, 0, 0, 8, 1, 0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 8, 2, 0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat()
        .into_iter()
        .chain([0, 0, 0, 0])
        .collect::<Vec<u8>>()
    );
    let ended = source.end();
    assert!(ended.success, "{}", ended.stderr);
    let (_, seconds) = ended.stdout[0].split_once(" in ").unwrap();
    let (seconds, _) = seconds.split_once(" s,").unwrap();
    // The third message is not sent before two periods have passed.
    assert!(seconds.parse::<f64>().unwrap() >= 0.08, "{seconds}");
}

fn peers(addresses: &[(&str, &str)]) -> Value {
    let peers = addresses.iter().map(|(name, address)| {
        (name.to_string(), json!({"host": format!("h-{name}"), "address": address, "values": {}}))
    });
    Value::Object(peers.collect())
}

#[test]
fn an_agent_takes_the_pipeline_through_its_phases() {
    let with = json!({"to": "node1", "count": 20, "period": "1ms", "size": "9B"});
    // The experiment overrules the command line.
    let mut source = Component::start("source", "pipe source --count 7", with, &SOURCE);
    let mut node1 = Component::start("node1", "pipe node", json!({"to": "sink"}), &RECEIVER);
    let mut sink = Component::start("sink", "pipe sink", json!({}), &RECEIVER);
    let mut peers =
        peers(&[("source", "127.0.0.1"), ("node1", "127.0.0.2"), ("sink", "127.0.0.1")]);
    phase("listen", &mut [&mut node1, &mut sink], &mut peers);
    let port = peers["node1"]["values"]["port"].as_u64().unwrap();
    phase("connect", &mut [&mut source, &mut node1, &mut sink], &mut peers);
    phase("run", &mut [&mut source, &mut node1, &mut sink], &mut peers);

    let ended = [source, node1, sink].map(Component::end);
    for program in &ended {
        assert!(program.success, "{}", program.stderr);
    }
    assert!(ended[0].stdout[0].starts_with("source: sent 20 messages"), "{:?}", ended[0].stdout);
    assert_eq!(ended[2].stdout, ["sink: received 20 messages"]);
    // On the host's data address and nowhere else.
    assert_eq!(ended[1].stderr, format!("listening on 127.0.0.2:{port}\n"));
}

#[test]
fn bad_settings_fail_the_phase_that_would_use_them() {
    let peers = peers(&[("source", "127.0.0.1"), ("sink", "127.0.0.1")]);
    for (with, reason) in [
        (json!({"to": "sink", "period": 2}), "`period`: `2` is not a duration: it has no unit"),
        (json!({"to": "sink", "period": "2 parsecs"}), "`parsecs` is no unit"),
        (json!({"to": "sink", "size": "5B"}), "`size` is 5 B; it must be at least 6 B"),
        (json!({"to": "sink", "size": "1GiB"}), "it must be at most 16777216 B"),
        (json!({"to": "sink", "count": 0}), "`count` is 0; it must be at least 1"),
        (json!({"to": "sink", "count": "ten"}), "`count` is \"ten\"; it must be a whole number"),
        (json!({"to": "sink", "perod": "2ms"}), "`perod` is not a setting of this program"),
        (json!({}), "there is no `to`"),
        (json!({"to": "snk"}), "no component `snk`; the experiment has sink, source"),
        (json!({"to": "sink"}), "component `sink` has published no port"),
    ] {
        let mut source = Component::start("source", "pipe source", with, &SOURCE);
        source.enter("connect", &peers);
        let error = source.failure("connect");
        assert!(error.contains(reason), "{error}");
    }
    let with = json!({"port": 70000});
    let mut sink = Component::start("sink", "pipe sink", with, &RECEIVER);
    sink.enter("listen", &peers);
    assert!(sink.failure("listen").contains("`port` is 70000; it must be at most 65535"));
    let mut sink = Component::start("sink", "pipe sink", json!({}), &RECEIVER);
    sink.enter("run", &peers);
    assert!(sink.failure("run").contains("an earlier phase is missing"));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let sink = Program::start(&format!("pipe sink --address 127.0.0.1 --port {port}"));
    let error = sink.error();
    assert!(
        error.starts_with(&format!("phase listen failed: cannot listen on 127.0.0.1:{port}: ")),
        "{error}"
    );
}

#[test]
fn nobody_to_connect_to_is_named() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = Program::start(&format!("pipe source --to {nobody}")).error();
    assert!(error.contains(&format!("cannot connect to {nobody} within 3 s: ")), "{error}");
    let error = Program::start("pipe source --to nowhere").error();
    assert!(error.contains("`nowhere` is no address; write host:port"), "{error}");
}

#[test]
fn a_sink_that_nobody_connects_to_fails() {
    let mut sink = Component::start("sink", "pipe sink", json!({}), &RECEIVER);
    let mut peers = peers(&[("sink", "127.0.0.1")]);
    phase("listen", &mut [&mut sink], &mut peers);
    sink.enter("connect", &peers);
    assert!(sink.failure("connect").contains("no component connected within 4 s"));
}

#[test]
fn a_receiver_that_closes_early_is_named_with_the_message() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let source = Program::start(&format!("pipe source --to {to} --count 100000 --period 100us"));
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 35]).unwrap();
    drop(stream);
    let error = source.error();
    assert!(error.starts_with(&format!("phase run failed: lost {to} while sending message ")));
    let (_, number) = error.split_once("message ").unwrap();
    let (number, _) = number.split_once(':').unwrap();
    assert!((4..100_000).contains(&number.parse().unwrap()), "{error}");
}

#[test]
fn a_receiver_that_does_not_take_the_end_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let source = Program::start(&format!("pipe source --to {to} --count 2 --period 0s"));
    let (mut stream, _) = listener.accept().unwrap();
    // All but the last byte: closing with something unread resets the connection.
    stream.read_exact(&mut [0; 23]).unwrap();
    stream.peek(&mut [0]).unwrap();
    drop(stream);
    let error = source.error();
    assert!(error.contains(&format!("lost {to} ")), "{error}");
    assert!(error.contains("the end of the stream after message 2"), "{error}");
}

/// Bytes of messages 1 to `count` of 6 bytes.
fn messages(count: u8) -> Vec<u8> {
    (1..=count).flat_map(|number| [0, 0, 0, 6, number, 0, 0, 0, 0, 0]).collect()
}

#[test]
fn a_sender_that_breaks_off_is_named_with_the_message() {
    for (tail, reason) in [
        (&[][..], "closed the connection before the end of the stream, 0 bytes into message 3"),
        (&[0, 0], "closed the connection before the end of the stream, 2 bytes into message 3"),
        (&[0, 0, 0, 6, 3], "closed the connection in message 3, after 1 of its 6 bytes"),
        (b"GET / HTTP/1.1\r\n", "sent a message of 1195725856 bytes where number 3 was due"),
        (&[0, 0, 0, 5, 3, 0, 0, 0, 0], "sent a message of 5 bytes where number 3 was due"),
        (&[0, 0, 0, 6, 4, 0, 0, 0, 0, 0], "sent message 4 where 3 was due"),
    ] {
        let mut sink = Program::start("pipe sink");
        let mut stream = TcpStream::connect(sink.address()).unwrap();
        let from = stream.local_addr().unwrap();
        stream.write_all(&[&messages(2), tail].concat()).unwrap();
        drop(stream);
        let error = sink.error();
        assert!(error.contains(&format!("the peer at {from} {reason}")), "{error}");
    }
}

#[test]
fn messages_in_pieces_arrive_whole() {
    let mut sink = Program::start("pipe sink");
    let mut stream = TcpStream::connect(sink.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    for byte in messages(20).into_iter().chain([0; 4]) {
        stream.write_all(&[byte]).unwrap();
    }
    // The sink closes once it has the end.
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    let ended = sink.end();
    assert!(ended.success, "{}", ended.stderr);
    assert_eq!(ended.stdout, ["sink: received 20 messages"]);
}

#[test]
fn a_killed_node_fails_both_of_its_neighbours() {
    let mut sink = Program::start("pipe sink");
    let mut to_sink = TcpStream::connect(sink.address()).unwrap();
    // Between node and sink stands this test, to know when the stream flows.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let relay = listener.local_addr().unwrap();
    let mut node = Program::start(&format!("pipe node --to {relay}"));
    let to = node.address();
    let source = Program::start(&format!("pipe source --to {to} --count 1000000 --period 100us"));
    let (mut from_node, _) = listener.accept().unwrap();
    let mut bytes = vec![0; 100];
    from_node.read_exact(&mut bytes).unwrap();
    node.kill();
    from_node.read_to_end(&mut bytes).unwrap();
    to_sink.write_all(&bytes).unwrap();
    let from = to_sink.local_addr().unwrap();
    drop(to_sink);

    let error = sink.error();
    let whole = bytes.len() / 10;
    assert!(error.contains(&format!("the peer at {from} closed the connection ")), "{error}");
    assert!(error.contains(&format!("message {}", whole + 1)), "{error}");
    let error = source.error();
    assert!(error.contains(&format!("lost {to} while sending message ")), "{error}");
    node.end();
}
