//! Message patterns as processes on loopback; the tests' own sockets stand in for one side or the
//! other.

mod programs;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use programs::{Component, Event, Program, events, phase};
use serde_json::{Value, json};

const TABLE: &str = "\
name,  transport,     group,            port, size,   period, target, producers, consumers
slow,  tcp,           ,                 ,     500B,   40ms,   ,       p q,       c1
large, tcp,           ,                 ,     300kB,  25ms,   ,       p,         c1 c2
quick, tcp-nodelay,   ,                 ,     10B,    2ms,    ,       p,         c2
group, udp-multicast, 239.255.77.1:7791,,     4kB,    10ms,   ,       p,         c1 c2
each,  udp,           ,                 ,     100B,   20ms,   ,       q,         c1 c2
";

/// Types of `TABLE` by consumer, with how many producers each has.
const CONSUMED: [(&str, &[(u16, u16)]); 2] =
    [("c1", &[(0, 2), (1, 1), (3, 1), (4, 1)]), ("c2", &[(1, 1), (2, 1), (3, 1), (4, 1)])];
const PERIODS_NS: [i64; 5] = [40_000_000, 25_000_000, 2_000_000, 10_000_000, 20_000_000];

#[test]
fn the_program() {
    programs::be_the_program();
}

fn written(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn json_of(lines: &[String]) -> Value {
    assert_eq!(lines.len(), 1, "{lines:?}");
    serde_json::from_str(&lines[0]).unwrap()
}

/// Id, type, producer, and what else an event's payload holds.
struct Record {
    id: i64,
    message_type: u16,
    producer: u16,
    late_ns: i64,
}

fn records(events: &[Event], entity: &str) -> Vec<Record> {
    let u16_at = |event: &Event, at: usize| {
        u16::from_le_bytes(event.payload[at..at + 2].try_into().unwrap())
    };
    let of = events.iter().filter(|event| event.entity == entity);
    of.map(|event| {
        let late = event.payload.get(4..12).map_or([0; 8], |bytes| bytes.try_into().unwrap());
        Record {
            id: event.id,
            message_type: u16_at(event, 0),
            producer: u16_at(event, 2),
            late_ns: i64::from_le_bytes(late),
        }
    })
    .collect()
}

#[test]
fn every_message_of_every_type_arrives_at_each_of_its_consumers() {
    let scale = 2;
    let dirs: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    let table = written(dirs[0].path(), "t.csv", TABLE);
    let table = table.display();
    let consumer = |name: &str, address: &str, dir: &Path| {
        let words = "pattern consume --linger 60s --json --table";
        let words = format!("{words} {table} --as {name} --address {address} --scale {scale}");
        Program::recorded(&words, dir)
    };
    let mut consumers =
        [consumer("c1", "127.0.0.1", dirs[0].path()), consumer("c2", "127.0.0.2", dirs[1].path())];
    let at = consumers.each_mut().map(|consumer| consumer.address());
    let producer = |name: &str, dir: &Path| {
        let to = format!("--to c1={} --to c2={}", at[0], at[1]);
        let words = format!("pattern produce --table {table} --as {name} --scale {scale}");
        Program::recorded(&format!("{words} {to} --duration 300ms --json"), dir)
    };
    let producers = [producer("p", dirs[2].path()), producer("q", dirs[3].path())];
    let producers = producers.map(Program::end);
    let consumers = consumers.map(Program::end);
    for program in producers.iter().chain(&consumers) {
        assert!(program.success, "{}", program.stderr);
    }

    let mut sent: BTreeMap<u16, BTreeSet<i64>> = BTreeMap::new();
    for dir in &dirs[2..] {
        let mut last: BTreeMap<i64, Record> = BTreeMap::new();
        for record in records(&events(dir.path()), "pattern:sent") {
            // The type's number from the top, then the producer's, then its own from 1.
            assert_eq!(record.id >> 48, i64::from(record.message_type));
            assert_eq!((record.id >> 32) & 0xffff, i64::from(record.producer));
            assert!(record.late_ns >= 0);
            last.insert(record.id, record);
        }
        for record in last.into_values() {
            assert!(sent.entry(record.message_type).or_default().insert(record.id));
        }
    }
    // 300 ms hold so many deadlines, whichever part of a period the first is at.
    for (message_type, period_ns) in (0_u16..).zip(PERIODS_NS) {
        let producers = scale * if message_type == 0 { 2 } else { 1 };
        let each = 300_000_000 / period_ns;
        let n = sent[&message_type].len() as i64;
        assert!((each * producers..=(each + 1) * producers).contains(&n), "{message_type}: {n}");
        let of = |producer: i64| {
            sent[&message_type].iter().filter(move |id| (*id >> 32) & 0xffff == producer)
        };
        for producer in 0..producers {
            let numbers: Vec<i64> = of(producer).map(|id| id & 0xffff_ffff).collect();
            assert_eq!(numbers, (1..=numbers.len() as i64).collect::<Vec<_>>());
        }
    }
    for ((_, types), (dir, ended)) in CONSUMED.iter().zip(dirs.iter().zip(&consumers)) {
        let told = json_of(&ended.stdout);
        assert_eq!(told["foreign"], 0);
        let received = records(&events(dir.path()), "pattern:received");
        for (place, (message_type, producers)) in types.iter().enumerate() {
            let of_type = received.iter().filter(|each| each.message_type == *message_type);
            let ids: Vec<i64> = of_type.map(|each| each.id).collect();
            assert_eq!(ids.iter().copied().collect::<BTreeSet<_>>(), sent[message_type]);
            assert_eq!(ids.len(), sent[message_type].len());
            let told = &told["types"][place];
            assert_eq!(told["received"], ids.len());
            assert_eq!((&told["lost"], &told["duplicates"]), (&json!(0), &json!(0)));
            assert_eq!(told["producers"], i64::from(*producers) * scale);
        }
    }
    let told = json_of(&producers[0].stdout);
    let types: Vec<&str> =
        told["types"].as_array().unwrap().iter().map(|t| t["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["slow", "large", "quick", "group"]);
    assert_eq!(told["types"][2]["sent"], sent[&2].len());
}

fn peers(addresses: &[(&str, &str)]) -> Value {
    let peers = addresses.iter().map(|(name, address)| {
        (name.to_string(), json!({"host": format!("h-{name}"), "address": address, "values": {}}))
    });
    Value::Object(peers.collect())
}

#[test]
fn an_agent_takes_a_pattern_through_its_phases() {
    // A group of its own: tests run concurrently.
    let text = TABLE.replace("239.255.77.1:7791", "239.255.77.3:7793");
    let table = json!({"file": "t.csv", "text": text});
    let receiver = json!({"table": table, "linger": "60s"});
    let sender = json!({"table": table, "duration": "100ms", "timer": "sleep-then-spin"});
    let produce = ["connect", "run"];
    let consume = ["listen", "connect", "run"];
    let dirs = [(); 4].map(|()| tempfile::tempdir().unwrap());
    let [of_p, of_q, of_c1, of_c2] = dirs.each_ref().map(|dir| dir.path());
    let mut p = Component::start_in(of_p, "p", "pattern produce", sender.clone(), &produce);
    let mut q = Component::start_in(of_q, "q", "pattern produce", sender, &produce);
    let mut c1 = Component::start_in(of_c1, "c1", "pattern consume", receiver.clone(), &consume);
    let mut c2 = Component::start_in(of_c2, "c2", "pattern consume", receiver, &consume);
    let mut peers =
        peers(&[("p", "127.0.0.1"), ("q", "127.0.0.1"), ("c1", "127.0.0.1"), ("c2", "127.0.0.2")]);
    phase("listen", &mut [&mut c1, &mut c2], &mut peers);
    phase("connect", &mut [&mut p, &mut q, &mut c1, &mut c2], &mut peers);
    phase("run", &mut [&mut p, &mut q, &mut c1, &mut c2], &mut peers);
    let results = dirs.each_ref().map(|dir| Component::result(dir.path()));
    for program in [p, q, c1, c2].map(Component::end) {
        assert!(program.success, "{}", program.stderr);
        assert!(program.stdout[0].starts_with("type "), "{:?}", program.stdout);
    }
    let count = |result: &Value, name: &str, key: &str| {
        let types = result["types"].as_array().unwrap();
        types.iter().find(|each| each["type"] == name).unwrap()[key].as_u64().unwrap()
    };
    let [p, q, c1, c2] = &results;
    let slow = count(p, "slow", "sent") + count(q, "slow", "sent");
    assert_eq!(count(c1, "slow", "received"), slow);
    assert_eq!(count(c2, "group", "received"), count(p, "group", "sent"));
    assert_eq!(count(c1, "each", "received"), count(q, "each", "sent"));
}

/// A table with one type for the test's own side.
fn one_type(row: &str) -> String {
    format!("name,transport,group,port,size,period,producers,consumers\n{row}\n")
}

fn id(message_type: u64, producer: u64, number: u64) -> u64 {
    message_type << 48 | producer << 32 | number
}

fn greet(link: &mut TcpStream, id: u64, size: u32) -> u16 {
    link.write_all(&id.to_le_bytes()).unwrap();
    link.write_all(&size.to_le_bytes()).unwrap();
    let mut port = [0; 2];
    link.read_exact(&mut port).unwrap();
    u16::from_le_bytes(port)
}

#[test]
fn lost_doubled_and_foreign_datagrams_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let table = written(dir.path(), "t.csv", &one_type("a,udp,,,20B,1s,p,c"));
    let words = format!("pattern consume --table {} --as c --linger 50ms", table.display());
    let mut consumer = Program::start(&format!("{words} --address 127.0.0.1 --json"));
    let mut link = TcpStream::connect(consumer.address()).unwrap();
    let port = greet(&mut link, id(0, 0, 0), 20);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |id: u64, size: usize| {
        let mut message = vec![0; size];
        message[..8].copy_from_slice(&id.to_le_bytes());
        socket.send_to(&message, ("127.0.0.1", port)).unwrap();
    };
    for number in [1, 3, 3, 7] {
        send(id(0, 0, number), 20);
    }
    // Too long, another producer's, another type's, no message's, no id.
    send(id(0, 0, 2), 21);
    send(id(0, 1, 2), 20);
    send(id(1, 0, 2), 20);
    send(id(0, 0, 0), 20);
    send(u64::MAX, 20);
    socket.send_to(&[1, 2, 3], ("127.0.0.1", port)).unwrap();
    link.write_all(&9_u64.to_le_bytes()).unwrap();
    // It closes when it has given up what is missing.
    assert_eq!(link.read(&mut [0]).unwrap(), 0);
    let ended = consumer.end();
    assert!(ended.success, "{}", ended.stderr);
    let told = json_of(&ended.stdout);
    assert_eq!(told["foreign"], 6);
    let counts = ["received", "lost", "duplicates"].map(|key| told["types"][0][key].clone());
    assert_eq!(counts, [3, 6, 1].map(Value::from));
}

#[test]
fn a_producer_that_is_interrupted_ends_its_flows_and_reports() {
    let dir = tempfile::tempdir().unwrap();
    let rows = "a,udp,,,20B,10ms,p,c\nlong,tcp,,,20B,1h,p,c";
    let table = written(dir.path(), "t.csv", &one_type(rows));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let words = format!("pattern produce --table {} --as p --to c={to}", table.display());
    let producer = Program::start(&format!("{words} --duration 1h --json"));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let mut links: Vec<TcpStream> = (0..2).map(|_| listener.accept().unwrap().0).collect();
    for (link, port) in links.iter_mut().zip([port, 0]) {
        link.read_exact(&mut [0; 12]).unwrap();
        link.write_all(&port.to_le_bytes()).unwrap();
    }
    // It runs.
    assert_eq!(socket.recv(&mut [0; 30]).unwrap(), 20);
    producer.signal(Signal::SIGINT);
    let mut told = [0; 8];
    links[0].read_exact(&mut told).unwrap();
    drop(links);
    let ended = producer.end();
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let sent = json_of(&ended.stdout)["types"][0]["sent"].clone();
    assert_eq!(sent, u64::from_le_bytes(told));
    assert!(sent.as_u64().unwrap() >= 1);
}

#[test]
fn a_connection_that_takes_nothing_delays_its_own_type_only() {
    let rows = "large,tcp,,,16MiB,5ms,p,c\nquick,tcp-nodelay,,,8B,1ms,p,c";
    let dir = tempfile::tempdir().unwrap();
    let table = written(dir.path(), "t.csv", &one_type(rows));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let words = format!("pattern produce --table {} --as p --to c={to}", table.display());
    let producer = Program::start(&format!("{words} --duration 30ms --json"));
    let mut links: Vec<TcpStream> = (0..2).map(|_| listener.accept().unwrap().0).collect();
    for (message_type, (link, size)) in links.iter_mut().zip([16 << 20, 8_u32]).enumerate() {
        let mut hello = [0; 12];
        link.read_exact(&mut hello).unwrap();
        assert_eq!(hello[..8], id(message_type as u64, 0, 0).to_le_bytes());
        assert_eq!(hello[8..], size.to_le_bytes());
        link.write_all(&[0, 0]).unwrap();
    }
    // All of the small type, to its end, which is not told yet: nobody has read the large one.
    let mut last = 0;
    while last < 29 {
        let mut message = [0; 8];
        links[1].read_exact(&mut message).unwrap();
        last += 1;
        assert_eq!(u64::from_le_bytes(message), id(1, 0, last));
    }
    let mut large = Vec::new();
    links[0].read_to_end(&mut large).unwrap();
    let mut rest = Vec::new();
    links[1].read_to_end(&mut rest).unwrap();
    drop(links);
    let ended = producer.end();
    assert!(ended.success, "{}", ended.stderr);
    let told = json_of(&ended.stdout);
    let sent = |place: usize| told["types"][place]["sent"].as_u64().unwrap();
    assert_eq!(29 + rest.len() as u64 / 8, sent(1));
    let messages: Vec<&[u8]> = large.chunks(16 << 20).collect();
    assert_eq!(messages.len() as u64, sent(0));
    for (message, number) in messages.iter().zip(1..) {
        assert_eq!(message.len(), 16 << 20);
        assert_eq!(message[..8], id(0, 0, number).to_le_bytes());
        assert!(message[8..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn groups_are_joined_on_the_connections_interface_only() {
    let row = "a,udp-multicast,239.255.77.2:7792,,20B,1s,p,c";
    let dir = tempfile::tempdir().unwrap();
    let table = written(dir.path(), "t.csv", &one_type(row));
    let words = format!("pattern consume --table {} --as c --linger 50ms", table.display());
    let mut consumer = Program::start(&format!("{words} --address 127.0.0.1 --json"));
    let mut link = TcpStream::connect(consumer.address()).unwrap();
    assert_eq!(greet(&mut link, id(0, 0, 0), 20), 0);
    // Datagrams to the port that are not to the group do not get in.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    let socket = UdpSocket::from(socket);
    let mut message = [0; 20];
    for (number, to) in [(1, "239.255.77.2:7792"), (2, "127.0.0.1:7792")] {
        message[..8].copy_from_slice(&id(0, 0, number).to_le_bytes());
        socket.send_to(&message, to.parse::<SocketAddr>().unwrap()).unwrap();
    }
    link.write_all(&2_u64.to_le_bytes()).unwrap();
    assert_eq!(link.read(&mut [0]).unwrap(), 0);
    let told = json_of(&consumer.end().stdout);
    assert_eq!((&told["types"][0]["received"], &told["types"][0]["lost"]), (&json!(1), &json!(1)));
    assert_eq!(told["foreign"], 0);
}

#[test]
fn what_does_not_fit_together_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let right = written(dir.path(), "right.csv", &one_type("a,tcp,,,20B,1s,p,c"));
    let wrong = written(dir.path(), "wrong.csv", &one_type("a,tcp,,,20,1s,p,c"));
    let (right, wrong) = (right.display(), wrong.display());
    for (words, said) in [
        ("consume".into(), "there is no name: say by --as"),
        ("consume --as c".into(), "there is no message table: give one by --table"),
        (format!("consume --as c --table {wrong}"), "wrong.csv:2:1: `size`: `20` is not a size"),
        (format!("consume --as p --table {right}"), "`p` consumes nothing in "),
        (format!("produce --as c --table {right}"), "`c` produces nothing in "),
        (format!("produce --as p --table {right}"), "where is `c`, a consumer of `a`?"),
        (format!("produce --as p --to c --table {right}"), "`c` is no NAME=HOST:PORT"),
        (format!("consume --as c --scale 0 --table {right}"), "`scale` is 0"),
        ("consume --as c --table none.csv".into(), "cannot read the message table none.csv"),
    ] {
        let error = Program::start(&format!("pattern {words}")).error();
        assert!(error.contains(said), "{said}: {error}");
    }
    for (hello, size, said) in [
        (id(0, 0, 0), 21, "messages `a` of 21 B, this one of 20 B: give both the same table"),
        (id(0, 1, 0), 20, "wants to send what c does not consume"),
        (id(1, 0, 0), 20, "wants to send what c does not consume"),
        (id(0, 0, 1), 20, "wants to send what c does not consume"),
    ] {
        let words = format!("pattern consume --as c --address 127.0.0.1 --table {right}");
        let mut consumer = Program::start(&words);
        let mut link = TcpStream::connect(consumer.address()).unwrap();
        link.write_all(&hello.to_le_bytes()).unwrap();
        link.write_all(&u32::to_le_bytes(size)).unwrap();
        let error = consumer.error();
        assert!(error.contains(said), "{said}: {error}");
    }
}

#[test]
fn messages_out_of_turn_end_a_consumer() {
    let dir = tempfile::tempdir().unwrap();
    let table = written(dir.path(), "t.csv", &one_type("a,tcp,,,20B,1s,p,c"));
    let start = || {
        let words = format!("pattern consume --as c --table {}", table.display());
        let mut consumer = Program::start(&format!("{words} --address 127.0.0.1"));
        let mut link = TcpStream::connect(consumer.address()).unwrap();
        assert_eq!(greet(&mut link, id(0, 0, 0), 20), 0);
        (consumer, link)
    };
    let (consumer, mut link) = start();
    let mut message = [0; 20];
    message[..8].copy_from_slice(&id(0, 0, 2).to_le_bytes());
    link.write_all(&message).unwrap();
    let error = consumer.error();
    assert!(error.contains("number: 2") && error.contains("was due"), "{error}");
    let (consumer, mut link) = start();
    link.write_all(&message[..9]).unwrap();
    drop(link);
    let error = consumer.error();
    assert!(error.contains("closed the connection within a message, after 9 of its 20 bytes"));
}
