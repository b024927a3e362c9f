//! The stimulus-response programs as processes on loopback.

mod programs;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use programs::{Component, Event, Program, events, phase};
use serde_json::json;

#[test]
fn the_program() {
    programs::be_the_program();
}

/// The events of one entity, whose ids must be 1, 2, … `count` in this order.
fn entity(all: &[Event], entity: &str, count: i64) -> Vec<Event> {
    let events: Vec<Event> = all.iter().filter(|e| e.entity == entity).cloned().collect();
    let ids: Vec<i64> = events.iter().map(|e| e.id).collect();
    assert_eq!(ids, (1..=count).collect::<Vec<_>>(), "{entity}");
    events
}

fn i64_of(event: &Event) -> i64 {
    i64::from_le_bytes(event.payload[..].try_into().unwrap())
}

#[test]
fn every_stimulus_is_compared_and_acknowledged() {
    for (size, count) in [("48B", 50), ("100kB", 20)] {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let words = format!(
            "stimulus server --address 127.0.0.1 --count {count} --period 1ms --size {size}"
        );
        let mut server = Program::recorded(&words, dirs[0].path());
        let to = server.address();
        let client = Program::recorded(&format!("stimulus client --to {to}"), dirs[1].path());
        let [server, client] = [server, client].map(Program::end);
        assert!(server.success && client.success, "{}{}", server.stderr, client.stderr);
        assert_eq!(server.stdout, [format!("server: sent {count} stimuli, all acknowledged")]);

        let [sent, answered] = dirs.map(|dir| events(dir.path()));
        assert_eq!((sent.len(), answered.len()), (2 * count as usize, 3 * count as usize));
        let way = [
            entity(&sent, "stimulus:sent", count),
            entity(&answered, "stimulus:received", count),
            entity(&answered, "stimulus:difference", count),
            entity(&answered, "stimulus:acknowledging", count),
            entity(&sent, "stimulus:acknowledged", count),
        ];
        for hop in way.windows(2) {
            for (from, to) in hop[0].iter().zip(&hop[1]) {
                assert!(to.since(from) > 0, "{from:?} then {to:?}");
            }
        }
        assert_eq!(way[0][0].payload, way[1][0].payload);
        assert_eq!(way[2][0].fields, "int64_t:difference_ns");

        // What is printed is what is recorded.
        let differences: Vec<i64> = way[2].iter().map(i64_of).collect();
        let mut lines: Vec<String> = (1..)
            .zip(&differences)
            .map(|(number, ns)| format!("stimulus {number}: difference {ns} ns"))
            .collect();
        let negative = differences.iter().filter(|&&ns| ns < 0).count();
        let mean = differences.iter().sum::<i64>() as f64 / count as f64;
        lines.push(format!(
            "client: {count} stimuli, {negative} negative, difference min {} ns, mean {mean:.1} ns, \
             max {} ns",
            differences.iter().min().unwrap(),
            differences.iter().max().unwrap(),
        ));
        assert_eq!(client.stdout, lines);
        assert_eq!(client.stderr.lines().count(), negative, "{}", client.stderr);
    }
}

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64
}

fn stimulus(number: u64, count: u64, time: i64) -> Vec<u8> {
    let mut message = [number.to_le_bytes(), count.to_le_bytes(), time.to_le_bytes()].concat();
    message.extend(48_u32.to_le_bytes());
    message.resize(48, 0);
    message
}

/// A client of a server that this test plays.
fn client() -> (Program, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let client = Program::start(&format!("stimulus client --to {to}"));
    (client, listener.accept().unwrap().0)
}

#[test]
fn a_difference_that_is_negative_is_an_error_line() {
    let (client, mut server) = client();
    let ahead = Duration::from_secs(3600).as_nanos() as i64;
    for (number, time) in [(1, now_ns() - ahead), (2, now_ns() + ahead)] {
        server.write_all(&stimulus(number, 2, time)).unwrap();
        let mut acknowledgement = [0; 8];
        server.read_exact(&mut acknowledgement).unwrap();
        assert_eq!(acknowledgement, number.to_le_bytes());
    }
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    let ended = client.end();
    assert!(ended.success);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.starts_with("error: stimulus 2 arrived 35"), "{}", ended.stderr);
    assert!(ended.stdout[1].starts_with("stimulus 2: difference -35"), "{:?}", ended.stdout);
    assert!(ended.stdout[2].starts_with("client: 2 stimuli, 1 negative, difference min -35"));
}

#[test]
fn the_server_sends_its_time_in_48_bytes_and_waits() {
    let words = "stimulus server --address 127.0.0.1 --count 2 --period 0s";
    let mut server = Program::start(words);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let mut acknowledged = i64::MIN;
    for number in 1..=2 {
        let mut message = [0; 48];
        stream.read_exact(&mut message).unwrap();
        let time = i64::from_le_bytes(message[16..24].try_into().unwrap());
        assert_eq!(message[..], stimulus(number, 2, time));
        assert!((acknowledged..=now_ns()).contains(&time), "{time} is not this moment");
        stream.set_nonblocking(true).unwrap();
        assert!(stream.peek(&mut [0]).is_err(), "something came without an acknowledgement");
        stream.set_nonblocking(false).unwrap();
        acknowledged = now_ns();
        // In two pieces.
        stream.write_all(&number.to_le_bytes()[..3]).unwrap();
        stream.write_all(&number.to_le_bytes()[3..]).unwrap();
    }
    drop(stream);
    assert!(server.end().success);
}

#[test]
fn a_peer_that_breaks_off_is_named_with_the_stimulus() {
    for (bytes, reason) in [
        (&stimulus(2, 9, 0)[..40], "closed the connection 40 bytes into stimulus 2"),
        (&[][..], "closed the connection 0 bytes into stimulus 2"),
        (&stimulus(3, 9, 0), "sent something else where stimulus 2 was due"),
        (&[0; 48], "sent something else where stimulus 2 was due"),
        (&stimulus(2, 9, i64::MIN), "the server's clock is absurd"),
    ] {
        let (client, mut server) = client();
        let to = server.local_addr().unwrap();
        server.write_all(&stimulus(1, 9, 0)).unwrap();
        server.read_exact(&mut [0; 8]).unwrap();
        server.write_all(bytes).unwrap();
        drop(server);
        let error = client.error();
        assert!(error.starts_with("phase run failed: "), "{error}");
        assert!(error.contains(reason), "{error}");
        assert!(error.contains("absurd") || error.contains(&to.to_string()), "{error}");
    }
    for (bytes, reason) in [
        (&[1, 0, 0][..], "closed the connection before acknowledgement 1"),
        (&[2, 0, 0, 0, 0, 0, 0, 0], "acknowledged stimulus 2 where 1 was due"),
    ] {
        let mut server = Program::start("stimulus server --address 127.0.0.1");
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let from = stream.local_addr().unwrap();
        stream.read_exact(&mut [0; 48]).unwrap();
        stream.write_all(bytes).unwrap();
        drop(stream);
        let error = server.error();
        assert!(error.contains(&format!("the peer at {from} {reason}")), "{error}");
    }
}

#[test]
fn an_agent_takes_server_and_client_through_their_phases() {
    let three = ["listen", "connect", "run"];
    let with = json!({"count": 5, "period": "1ms", "size": "64B"});
    let mut server = Component::start("server", "stimulus server", with, &three);
    let with = json!({"to": "server"});
    let mut client = Component::start("client", "stimulus client", with, &three[1..]);
    let mut peers = json!({
        "server": {"host": "h1", "address": "127.0.0.1", "values": {}},
        "client": {"host": "h2", "address": "127.0.0.2", "values": {}},
    });
    phase("listen", &mut [&mut server], &mut peers);
    phase("connect", &mut [&mut server, &mut client], &mut peers);
    phase("run", &mut [&mut server, &mut client], &mut peers);
    let [server, client] = [server, client].map(Component::end);
    assert!(server.success && client.success);
    assert_eq!(server.stdout, ["server: sent 5 stimuli, all acknowledged"]);
    assert_eq!(client.stdout.len(), 6);
    assert!(client.stdout[5].starts_with("client: 5 stimuli, "));
}

#[test]
fn bad_settings_fail_the_phase_that_would_use_them() {
    for (with, reason) in [
        (json!({"size": "27B"}), "`size` is 27 B; it must be at least 28 B"),
        (json!({"period": "1"}), "`period`: `1` is not a duration: it has no unit"),
        (json!({"address": "here"}), "`address` is `here`: invalid IP address"),
        (json!({"to": "client"}), "`to` is not a setting of this program"),
    ] {
        let phases = ["listen", "connect", "run"];
        let mut server = Component::start("server", "stimulus server", with, &phases);
        server.enter("listen", &json!({}));
        let error = server.failure("listen");
        assert!(error.contains(reason), "{error}");
    }
}
