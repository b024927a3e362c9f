//! Bulk transfers as processes on loopback.

mod programs;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::socket::getsockopt;
use nix::{getsockopt_impl, libc, sockopt_impl};
use programs::{Component, Ended, Event, Program, events, phase};
use serde_json::{Value, json};

const SEND: [&str; 2] = ["connect", "run"];
const RECEIVE: [&str; 3] = ["listen", "connect", "run"];

#[test]
fn the_program() {
    programs::be_the_program();
}

fn result(ended: &Ended) -> Value {
    assert!(ended.success, "{}", ended.stderr);
    assert_eq!(ended.stdout.len(), 1, "{:?}", ended.stdout);
    serde_json::from_str(&ended.stdout[0]).unwrap()
}

/// Id and first field of an entity's events, by id.
fn blocks(all: &[Event], entity: &str) -> HashMap<i64, u64> {
    let events: Vec<&Event> = all.iter().filter(|event| event.entity == entity).collect();
    let blocks: HashMap<i64, u64> = events
        .iter()
        .map(|event| (event.id, u64::from_le_bytes(event.payload[..8].try_into().unwrap())))
        .collect();
    assert_eq!(blocks.len(), events.len(), "an id of {entity} came twice");
    blocks
}

#[test]
fn what_is_sent_is_received_byte_by_byte_and_block_by_block() {
    for (protocol, more, block) in
        [("tcp", "--nodelay", 4096), ("tcp", "--random --seed 9", 777), ("udp", "--random", 1000)]
    {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let words = format!(
            "ettcp receive --address 127.0.0.1 --protocol {protocol} --verify --buffer 4MiB --json"
        );
        let mut receiver = Program::recorded(&words, dirs[1].path());
        let to = receiver.address();
        let bytes = if protocol == "udp" { 60_007 } else { 1_000_007 };
        let words = format!(
            "ettcp send --to {to} --protocol {protocol} --streams 3 --bytes {bytes}B --block-size \
             {block}B --json {more}"
        );
        let sender = Program::recorded(&words, dirs[0].path()).end();
        let receiver = receiver.end();
        let (sent, received) = (result(&sent_ok(sender)), result(&receiver));
        // A packet has a head at least.
        let expected = if protocol == "udp" { 60_016 } else { bytes };
        for total in [&sent["total"], &sent["receiver"], &received["total"]] {
            assert_eq!(total["bytes"], expected, "{total}");
        }
        assert_eq!(received["total"]["wrong_at_byte"], Value::Null);
        let streams = received["streams"].as_array().unwrap();
        assert_eq!(streams.len(), 3);
        for (stream, other) in streams.iter().zip(sent["streams"].as_array().unwrap()) {
            assert_eq!(stream["stream"], other["stream"]);
            assert_eq!(stream["bytes"], other["bytes"]);
            assert_eq!(stream["bytes"], other["receiver"]["bytes"]);
            assert_eq!(stream["verified_bytes"], other["receiver"]["verified_bytes"]);
            assert_eq!(other["tcp"].is_object(), protocol == "tcp");
            if protocol == "tcp" {
                assert_eq!(stream["verified_bytes"], stream["bytes"]);
            } else {
                assert_eq!(stream["arrivals"]["lost"], 0);
            }
        }
        let by_second = sent["seconds"].as_array().unwrap().iter();
        let by_second: u64 = by_second.map(|second| second["bytes"].as_u64().unwrap()).sum();
        assert_eq!(by_second, expected);

        let recorded = dirs.map(|dir| events(dir.path()));
        let written = blocks(&recorded[0], "ettcp:write");
        assert_eq!(written, blocks(&recorded[1], "ettcp:read"), "{protocol}");
        assert_eq!(written.values().sum::<u64>(), expected);
        for stream in 0..3_i64 {
            let count = written.keys().filter(|&&id| id >> 48 == stream).count() as i64;
            assert!((1..=count).all(|number| written.contains_key(&(stream << 48 | number))));
        }
        let seconds = recorded[0].iter().filter(|event| event.entity == "ettcp:second");
        let seconds: u64 =
            seconds.map(|event| u64::from_le_bytes(event.payload[..8].try_into().unwrap())).sum();
        assert_eq!(seconds, expected);
    }
}

fn sent_ok(ended: Ended) -> Ended {
    assert!(ended.success, "{}", ended.stderr);
    ended
}

#[test]
fn the_report_is_ttcps_with_units() {
    let mut receiver = Program::start("ettcp receive");
    let to = receiver.address();
    let sender = Program::start(&format!("ettcp send --to {to} --blocks 100")).end();
    let receiver = receiver.end();
    let text = sender.stdout.join("\n");
    for part in [
        "send: 819200 B in ",
        " s = ",
        " KiB/s = ",
        " Mbit/s\n",
        "send: 100 I/O calls, ",
        " ms/call, ",
        " calls/s\n",
        " s user, ",
        " s system, ",
        " % of a CPU",
        "segments retransmitted, rtt ",
        "receiver: 819200 B in ",
    ] {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
    assert!(receiver.stdout[0].starts_with("receive: 819200 B in "), "{:?}", receiver.stdout);
}

#[test]
fn the_rate_is_never_exceeded_over_the_whole() {
    for protocol in ["tcp", "udp"] {
        let mut receiver =
            Program::start(&format!("ettcp receive --protocol {protocol} --linger 50ms"));
        let to = receiver.address();
        let words = format!(
            "ettcp send --to {to} --protocol {protocol} --rate 8Mbit --duration 700ms --streams 2 \
             --block-size 1000B --json"
        );
        let sent = result(&Program::start(&words).end());
        assert!(receiver.end().success);
        let total = &sent["total"];
        let (bytes, seconds) =
            (total["bytes"].as_f64().unwrap(), total["real_s"].as_f64().unwrap());
        // A block of each stream may be ahead.
        assert!(bytes <= 1e6 * seconds + 2000.0, "{total}");
        assert!(bytes >= 2000.0, "{total}");
    }
}

/// A message as it is framed over TCP.
fn frame(message: &Value) -> Vec<u8> {
    let json = message.to_string();
    [&(json.len() as u32).to_le_bytes()[..], json.as_bytes()].concat()
}

fn read_frame(stream: &mut TcpStream) -> Value {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut json = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut json).unwrap();
    serde_json::from_slice(&json).unwrap()
}

fn hello() -> Value {
    json!({"hello": {"version": 1, "token": 5, "stream": 0, "streams": 1, "block": 100,
                     "seed": null, "background": false}})
}

#[test]
fn a_wrong_byte_is_found_and_named() {
    // ttcp's characters.
    let mut content: Vec<u8> = (b' '..0x7f).cycle().take(1000).collect();
    for wrong in [None, Some(94), Some(95), Some(999)] {
        let mut receiver = Program::start("ettcp receive --verify");
        let mut stream = TcpStream::connect(receiver.address()).unwrap();
        stream.write_all(&frame(&hello())).unwrap();
        assert_eq!(read_frame(&mut stream), json!("ready"));
        if let Some(place) = wrong {
            content[place] ^= 1;
        }
        stream.write_all(&content).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let account = read_frame(&mut stream);
        assert_eq!(account["account"]["bytes"], 1000);
        assert_eq!(account["account"]["wrong_at"], json!(wrong));
        if let Some(place) = wrong {
            content[place] ^= 1;
            let error = receiver.error();
            assert!(
                error.ends_with(&format!("is wrong from byte {place} of stream 0 on")),
                "{error}"
            );
        } else {
            let ended = receiver.end();
            assert!(ended.success, "{}", ended.stderr);
            let text = ended.stdout.join("\n");
            assert!(text.contains("all 1000 B of content compared, all right"), "{text}");
        }
    }
}

sockopt_impl!(
    /// The kernel's state of a connection as far as `tcpi_snd_wnd` of linux/tcp.h.
    TcpInfo, GetOnly, libc::IPPROTO_TCP, libc::TCP_INFO, [u8; 232]
);

/// The window that a receiver with these settings offers.
fn offered(with: Value) -> u32 {
    let mut receiver = Component::start("receiver", "ettcp receive", with, &RECEIVE);
    let mut peers = json!({"receiver": {"host": "h", "address": "127.0.0.1", "values": {}}});
    phase("listen", &mut [&mut receiver], &mut peers);
    let port = peers["receiver"]["values"]["port"].as_u64().unwrap() as u16;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(&frame(&hello())).unwrap();
    phase("connect", &mut [&mut receiver], &mut peers);
    assert_eq!(read_frame(&mut stream), json!("ready"));
    let info = getsockopt(&stream, TcpInfo).unwrap();
    receiver.program.kill();
    receiver.program.end();
    u32::from_ne_bytes(info[228..].try_into().unwrap())
}

#[test]
fn a_clamped_window_is_what_is_offered() {
    assert!(offered(json!({})) > 32 << 10);
    let clamped = offered(json!({"window": "8KiB"}));
    assert!(clamped <= 8 << 10, "{clamped}");
}

#[test]
fn strangers_are_told_apart() {
    for (first, reason) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), "says no hello"),
        (frame(&json!("ready")), "is no ettcp sender"),
        (
            frame(&json!({"hello": {"version": 99, "token": 5, "stream": 0, "streams": 1,
                           "block": 100, "seed": null, "background": false}})),
            "the sender speaks version 99, this is 1",
        ),
    ] {
        let mut receiver = Program::start("ettcp receive");
        let mut stream = TcpStream::connect(receiver.address()).unwrap();
        stream.write_all(&first).unwrap();
        let error = receiver.error();
        assert!(error.contains(reason), "{error}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let sender = Program::start(&format!("ettcp send --to {to}"));
    drop(listener.accept().unwrap());
    let error = sender.error();
    assert!(error.contains("does not answer; is `ettcp receive` there?"), "{error}");
}

/// Numbers and bodies of UDP packets.
fn number(packet: &[u8]) -> u64 {
    u64::from_le_bytes(packet[..8].try_into().unwrap()) & ((1 << 48) - 1)
}

/// Between a sender and `to`: loses every tenth packet, sends every 25th twice and the number 32
/// after 33, and loses the first messages of each kind as well. Ends with the sender's `bye`, or
/// when nothing comes any more.
fn bad_relay(relay: &UdpSocket, to: &str) {
    let onward = UdpSocket::bind("127.0.0.1:0").unwrap();
    onward.connect(to).unwrap();
    for socket in [relay, &onward] {
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    }
    let mut sender = None;
    let mut buffer = vec![0; 65_536];
    let mut held: Option<Vec<u8>> = None;
    let mut messages: HashMap<String, u32> = HashMap::new();
    let mut lose = |packet: &[u8]| {
        let kind = String::from_utf8_lossy(&packet[16..]).chars().take(5).collect();
        let seen = messages.entry(kind).or_default();
        *seen += 1;
        *seen <= 3
    };
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(30) {
        if let Ok((got, from)) = relay.recv_from(&mut buffer) {
            sender = Some(from);
            let packet = &buffer[..got];
            match number(packet) {
                0 if packet.ends_with(b"\"bye\"") => {
                    onward.send(packet).unwrap();
                    return;
                }
                0 if lose(packet) => {}
                number if number != 0 && number % 10 == 0 => {}
                32 => held = Some(packet.to_vec()),
                number => {
                    onward.send(packet).unwrap();
                    if number != 0 && number % 25 == 0 {
                        onward.send(packet).unwrap();
                    }
                    if number == 33 {
                        onward.send(&held.take().unwrap()).unwrap();
                    }
                }
            }
        }
        if let Ok(got) = onward.recv(&mut buffer)
            && !lose(&buffer[..got])
        {
            relay.send_to(&buffer[..got], sender.unwrap()).unwrap();
        }
    }
}

#[test]
fn losses_duplicates_and_reordering_are_counted_exactly_and_the_end_is_found() {
    let mut receiver =
        Program::start("ettcp receive --protocol udp --verify --linger 300ms --json");
    let behind = receiver.address();
    let relay = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = relay.local_addr().unwrap();
    let relay = std::thread::spawn(move || bad_relay(&relay, &behind));
    // So few that they fit into any socket's buffer, however slow the relay is.
    let words = format!(
        "ettcp send --protocol udp --to {to} --blocks 100 --block-size 200B --random --json"
    );
    let sent = result(&Program::start(&words).end());
    let received = result(&receiver.end());
    relay.join().unwrap();
    // None of 10, 20, … 100 comes; 25 and 75 come twice (50 and 100 never).
    let arrivals = json!({"packets": 90, "lost": 10, "duplicates": 2, "reordered": 1, "stale": 0});
    assert_eq!(received["total"]["arrivals"], arrivals);
    assert_eq!(sent["receiver"]["arrivals"], arrivals);
    assert_eq!(received["total"]["bytes"], 90 * 200);
    assert_eq!(received["total"]["verified_bytes"], 90 * (200 - 16));
    assert_eq!(sent["total"]["bytes"], 20_000);
    assert_eq!(received["socket_dropped"], 0);
}

#[test]
fn who_does_not_answer_is_named() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = Program::start(&format!("ettcp send --protocol udp --to {nobody}")).error();
    assert!(error.contains(&format!("{nobody} does not answer within 3 s")), "{error}");
}

#[test]
fn an_interrupted_sender_ends_its_stream_and_reports() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let sender = Program::start(&format!("ettcp send --to {to} --json"));
    let (mut stream, _) = listener.accept().unwrap();
    let hello = read_frame(&mut stream);
    assert_eq!(hello["hello"]["background"], true);
    stream.write_all(&frame(&json!("ready"))).unwrap();
    // It sends, so it heeds signals.
    stream.read_exact(&mut [0; 10_000]).unwrap();
    sender.signal(Signal::SIGINT);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    let bytes = 10_000 + rest.len();
    let account = json!({"account": {"bytes": bytes, "calls": 1, "seconds": 1.0, "arrivals": null,
                                     "verified": null, "wrong_at": null}});
    stream.write_all(&frame(&account)).unwrap();
    let ended = sender.end();
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let sent: Value = serde_json::from_str(&ended.stdout[0]).unwrap();
    assert_eq!(sent["total"]["bytes"], bytes);
    assert_eq!(sent["receiver"]["bytes"], bytes);
}

#[test]
fn a_receiver_that_goes_away_is_named() {
    let mut receiver = Program::start("ettcp receive");
    let to = receiver.address();
    let sender = Program::start(&format!("ettcp send --to {to} --streams 2"));
    receiver.kill();
    let error = sender.error();
    assert!(error.contains(&to), "{error}");
    receiver.end();
}

#[test]
fn load_behind_the_phases_lasts_until_the_end_of_the_run() {
    for protocol in ["tcp", "udp"] {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let with = json!({"to": "receiver", "protocol": protocol, "rate": "20Mbit", "streams": 2});
        let mut sender = Component::start_in(dirs[0].path(), "sender", "ettcp send", with, &SEND);
        let with = json!({"protocol": protocol, "verify": true});
        let mut receiver =
            Component::start_in(dirs[1].path(), "receiver", "ettcp receive", with, &RECEIVE);
        let peer = |name: &str| json!({"host": name, "address": "127.0.0.1", "values": {}});
        let mut peers = json!({"sender": peer("sender"), "receiver": peer("receiver")});
        phase("listen", &mut [&mut receiver], &mut peers);
        phase("connect", &mut [&mut sender, &mut receiver], &mut peers);
        // Done although nothing has an end yet.
        phase("run", &mut [&mut sender, &mut receiver], &mut peers);
        let ended = [sender.end(), receiver.end()];
        for ended in &ended {
            assert!(ended.success, "{}", ended.stderr);
        }
        let sent = Component::result(dirs[0].path());
        let received = Component::result(dirs[1].path());
        assert_eq!(sent["receiver"]["bytes"], received["total"]["bytes"], "{protocol}");
        assert_eq!(sent["total"]["bytes"], received["total"]["bytes"], "{protocol}");
        assert_eq!(received["total"]["wrong_at_byte"], Value::Null);
    }
}

#[test]
fn bad_settings_are_named_with_their_remedy() {
    for (words, reason) in [
        ("--blocks 3 --bytes 3B", "give one of them"),
        ("--bytes 0B", "`bytes` is 0 B"),
        ("--protocol udp --nodelay", "`nodelay` and `congestion` are TCP's"),
        ("--protocol udp --block-size 15B", "`block-size` is 15 B; it must be at least 16 B"),
        ("--protocol udp --block-size 70kB", "at most 65507 B"),
        ("--streams 0", "`streams` is 0; it must be at least 1"),
        ("--rate 0bit", "`rate` is 0 bit/s"),
    ] {
        let error = Program::start(&format!("ettcp send --to 127.0.0.1:9 {words}")).error();
        assert!(error.contains(reason), "{error}");
    }
    let error = Program::start("ettcp send").error();
    assert!(error.contains("there is no `to`"), "{error}");
    let error = Program::start("ettcp receive --linger 5s").error();
    assert!(error.contains("`linger` is 5s; it must be at most 4s"), "{error}");
    let error = Program::start("ettcp receive --protocol udp --window 64KiB").error();
    assert!(error.contains("`window` is TCP's"), "{error}");
    let mut sender =
        Component::start("sender", "ettcp send", json!({"to": "x", "protocol": "sctp"}), &SEND);
    sender.enter("connect", &json!({}));
    let error = sender.failure("connect");
    assert_eq!(error, "`protocol` is `sctp`; it must be one of tcp, udp");
}

#[test]
fn a_congestion_control_that_is_not_there_is_named_with_those_that_are() {
    let mut receiver = Program::start("ettcp receive");
    let to = receiver.address();
    let error = Program::start(&format!("ettcp send --to {to} --congestion nosuch")).error();
    assert!(error.contains("this kernel has no congestion control `nosuch`; it has: "), "{error}");
    receiver.kill();
    receiver.end();
    let mut receiver = Program::start("ettcp receive");
    let to = receiver.address();
    let words = format!("ettcp send --to {to} --congestion reno --blocks 1 --json");
    let sent = result(&Program::start(&words).end());
    assert_eq!(sent["streams"][0]["tcp"]["congestion"], "reno");
    assert!(receiver.end().success);
}
