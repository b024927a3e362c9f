//! The paced sender and its receiver as processes on loopback.

mod programs;
#[path = "../../../tests/skip.rs"]
mod skip;

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use nix::sys::signal::Signal;
use programs::{Component, Ended, Event, Program, events, phase};
use serde_json::{Value, json};

#[test]
fn the_program() {
    programs::be_the_program();
}

/// What a packet says.
#[derive(Clone, Copy, Debug)]
struct Packet {
    number: u64,
    intended: i64,
    sent: i64,
    sequence: u64,
    process: u16,
}

/// A receiver in the test: sees each packet as it comes.
struct Wire(UdpSocket);

impl Wire {
    fn new() -> (Wire, SocketAddr) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let address = socket.local_addr().unwrap();
        (Wire(socket), address)
    }

    /// The next packet of `size` bytes; `None`: a process's end, which is confirmed.
    fn next(&self, size: usize) -> Option<Packet> {
        let mut bytes = [0; 2000];
        let (mut length, mut from) = self.0.recv_from(&mut bytes).unwrap();
        while bytes[40..44] == *b"lpH1" {
            self.0.send_to(&bytes[..length], from).unwrap();
            (length, from) = self.0.recv_from(&mut bytes).unwrap();
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        if bytes[40..44] == *b"lpE1" {
            self.0.send_to(&bytes[..length], from).unwrap();
            return None;
        }
        assert_eq!((&bytes[40..44], length), (&b"lpP1"[..], size));
        assert_eq!(u32::from_le_bytes(bytes[36..40].try_into().unwrap()), size as u32);
        Some(Packet {
            number: word(0),
            intended: word(8).cast_signed(),
            sent: word(16).cast_signed(),
            sequence: word(24) & ((1 << 48) - 1),
            process: (word(24) >> 48) as u16,
        })
    }

    /// All packets until `processes` have ended, in the order of their numbers.
    fn all(&self, size: usize, processes: usize) -> Vec<Packet> {
        let (mut packets, mut ends) = (Vec::new(), 0);
        while ends < processes {
            match self.next(size) {
                Some(packet) => packets.push(packet),
                None => ends += 1,
            }
        }
        packets.sort_by_key(|packet| packet.number);
        packets
    }
}

/// The JSON that a program has printed; it must have succeeded.
fn result(program: Program) -> Value {
    printed(program.end())
}

fn printed(ended: Ended) -> Value {
    assert!(ended.success, "{}", ended.stderr);
    assert_eq!(ended.stdout.len(), 1, "{:?}", ended.stdout);
    serde_json::from_str(&ended.stdout[0]).unwrap()
}

fn number(result: &Value, key: &str) -> u64 {
    result[key].as_u64().unwrap_or_else(|| panic!("{key} in {result}"))
}

fn ids(all: &[Event], entity: &str) -> Vec<i64> {
    all.iter().filter(|event| event.entity == entity).map(|event| event.id).collect()
}

#[test]
fn every_packet_is_accounted_for_at_both_ends() {
    for protocol in ["udp", "tcp"] {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let words = format!("pace receive --address 127.0.0.1 --protocol {protocol} --json");
        let mut receiver = Program::recorded(&words, dirs[1].path());
        let to = receiver.address();
        let words = format!(
            "pace send --to {to} --protocol {protocol} --interval 200us --count 2000 --size 300B \
             --after-stall burst --json"
        );
        let sent = result(Program::recorded(&words, dirs[0].path()));
        let received = result(receiver);
        assert_eq!(number(&sent, "sent"), 2000);
        assert_eq!(number(&sent, "asked"), 2000);
        assert_eq!(number(&sent, "bytes"), 600_000);
        assert_eq!(sent["confirmed"], true);
        assert_eq!(received["complete"], true);
        assert_eq!(number(&received, "sent"), 2000);
        assert_eq!(number(&received, "received") + number(&received, "lost"), 2000);
        assert_eq!(number(&received, "lost"), number(&received, "socket_drops"));
        assert_eq!(number(&received, "bytes"), 300 * number(&received, "received"));
        assert_eq!(received["unstamped"], 0);
        assert_eq!(received["delay_ns"]["same_clock"], true);
        assert_eq!(received["delay_ns"]["negative"], 0);
        assert_eq!(number(&received, "foreign") + number(&received, "duplicates"), 0);

        let recorded = events(dirs[0].path());
        assert_eq!(ids(&recorded, "pace:sent"), (1..=2000).collect::<Vec<_>>());
        let event = recorded.iter().find(|event| event.entity == "pace:sent").unwrap();
        assert_eq!(event.fields, "int64_t:late_ns,uint32_t:size");
        assert_eq!(event.payload[8..], 300_u32.to_le_bytes());
        let seconds: Vec<&Event> =
            recorded.iter().filter(|event| event.entity == "pace:second").collect();
        let table = sent["per_second"].as_array().unwrap();
        assert_eq!(seconds.len(), table.len());
        for (event, row) in seconds.iter().zip(table) {
            assert_eq!(event.id, row["second"].as_i64().unwrap());
            assert_eq!(event.payload[..8], number(row, "packets").to_le_bytes());
        }
        let received_ids = ids(&events(dirs[1].path()), "pace:received");
        assert_eq!(received_ids.len() as u64, number(&received, "received"));
    }
}

#[test]
fn processes_share_one_grid() {
    let (wire, to) = Wire::new();
    // 3 packets take 8000/7 us: nothing that nanoseconds could add up.
    let sender = Program::start(&format!(
        "pace send --to {to} --rate 2100kbit --size 100B --count 1000 --processes 3 \
         --after-stall burst --json"
    ));
    let packets = wire.all(100, 3);
    let sent = result(sender);
    assert_eq!((number(&sent, "sent"), packets.len()), (1000, 1000));
    for (at, packet) in packets.iter().enumerate() {
        let at = at as u64;
        assert_eq!(packet.number, at + 1);
        assert_eq!((u64::from(packet.process), packet.sequence), (at % 3, at / 3));
        let offset = (packet.intended - packets[0].intended) as u64;
        // Each process relates its clocks by itself, to some nanoseconds.
        assert!(
            offset.abs_diff(at * 8_000_000 / 21) < 2_000,
            "packet {at} is meant for {offset} ns"
        );
        assert!(packet.sent >= packet.intended, "{packet:?}");
    }
    let shares: Vec<u64> =
        sent["of_processes"].as_array().unwrap().iter().map(|one| number(one, "sent")).collect();
    assert_eq!(shares, [334, 333, 333]);
}

#[test]
fn after_a_stall_each_policy_does_what_it_says() {
    for policy in ["skip", "spread", "burst"] {
        let (wire, to) = Wire::new();
        let sender = Program::start(&format!(
            "pace send --to {to} --interval 1ms --count 600 --size 44B --timer sleep \
             --after-stall {policy} --json"
        ));
        let mut packets: Vec<Packet> = (0..100).filter_map(|_| wire.next(44)).collect();
        sender.signal(Signal::SIGSTOP);
        // The stall itself.
        std::thread::sleep(Duration::from_millis(50));
        sender.signal(Signal::SIGCONT);
        packets.extend(wire.all(44, 1));
        let sent = result(sender);
        let (count, skipped) = (number(&sent, "sent"), number(&sent, "skipped"));
        assert_eq!((number(&sent, "asked"), count + skipped), (600, 600), "{policy}");
        assert_eq!(packets.len() as u64, count, "{policy}");
        // Packets that were sent stay on the grid and in order.
        for pair in packets.windows(2) {
            let slots = (pair[1].number - pair[0].number) as i64;
            assert_eq!(pair[1].intended - pair[0].intended, 1_000_000 * slots, "{policy}");
            assert_eq!(pair[1].sequence, pair[0].sequence + 1, "{policy}");
        }
        let late = |packet: &Packet| packet.sent - packet.intended;
        match policy {
            "skip" => {
                assert!(skipped >= 46, "{skipped} skipped");
                // Two at once at most, whenever the CPU is taken away: the third one's time is half
                // an interval after that of the lateness at which packets are skipped.
                for three in packets.windows(3) {
                    assert!(three[2].sent - three[0].sent > 450_000, "{three:?}");
                }
                assert!(packets.iter().all(|packet| late(packet) < 1_500_000));
            }
            "spread" => {
                assert_eq!(skipped, 0);
                assert!(packets.iter().any(|packet| late(packet) > 45_000_000));
                // Twice the rate, and at most two at once for being a little late before.
                for four in packets.windows(4) {
                    assert!(four[3].sent - four[0].sent > 900_000, "{four:?}");
                }
            }
            _ => {
                assert_eq!(skipped, 0);
                assert!(number(&sent, "longest_burst") >= 46, "{sent}");
            }
        }
    }
}

#[test]
fn a_sender_with_stalled_processes_loses_only_theirs() {
    let (wire, to) = Wire::new();
    let sender = Program::start(&format!(
        "pace send --to {to} --interval 1ms --duration 1400ms --size 44B --timer sleep \
         --processes 2 --json"
    ));
    let mut packets: Vec<Packet> = (0..100).filter_map(|_| wire.next(44)).collect();
    // The test harness runs the program in a thread.
    let threads = std::fs::read_dir(format!("/proc/{}/task", sender.id())).unwrap();
    let children = threads
        .map(|thread| std::fs::read_to_string(thread.unwrap().path().join("children")).unwrap());
    let children: String = children.collect();
    let first: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
    let first = nix::unistd::Pid::from_raw(first);
    nix::sys::signal::kill(first, Signal::SIGSTOP).unwrap();
    // The other one goes on meanwhile, for more than half of what it is to send.
    let meanwhile: Vec<Packet> = (0..400).filter_map(|_| wire.next(44)).collect();
    let of_other = meanwhile.iter().filter(|packet| packet.process == 1).count() as u64;
    packets.extend(meanwhile);
    nix::sys::signal::kill(first, Signal::SIGCONT).unwrap();
    packets.extend(wire.all(44, 2));
    let sent = result(sender);
    assert_eq!(number(&sent, "sent") + number(&sent, "skipped"), 1400);
    assert_eq!(packets.len() as u64, number(&sent, "sent"));
    let skipped: Vec<u64> =
        sent["of_processes"].as_array().unwrap().iter().map(|one| number(one, "skipped")).collect();
    assert!(of_other >= 390 && skipped[0] >= 390 && skipped[1] <= 700 - of_other, "{skipped:?}");
    let of_second = packets.iter().filter(|packet| packet.process == 1).count() as u64;
    assert_eq!(of_second + skipped[1], 700);
}

#[test]
fn the_sleeping_loop_drifts_and_says_so() {
    let (wire, to) = Wire::new();
    let sender = Program::start(&format!(
        "pace send --to {to} --interval 1ms --duration 1s --size 44B --timer naive --json"
    ));
    let packets = wire.all(44, 1);
    let sent = result(sender);
    assert_eq!(packets.len() as u64, number(&sent, "sent"));
    assert_eq!(number(&sent, "sent") + number(&sent, "unsent"), 1000);
    // A sleep is never too short, so that each packet is later than the one before.
    assert!(number(&sent, "unsent") > 0, "{sent}");
    assert!(sent["drift"]["ppm"].as_f64().unwrap() > 0.0);
    let late: Vec<i64> = packets.iter().map(|packet| packet.sent - packet.intended).collect();
    assert!(late.is_sorted(), "{late:?}");
}

#[test]
fn ctrl_c_ends_with_a_report() {
    for processes in [1, 2] {
        let mut receiver = Program::start("pace receive --address 127.0.0.1 --json");
        let to = receiver.address();
        let sender = Program::start(&format!(
            "pace send --to {to} --interval 1ms --duration 1h --processes {processes} --every 1s \
             --json"
        ));
        let mut sender = sender;
        // The first second is over.
        let line = sender.line();
        assert!(line.starts_with("0-1 s: ") && line.contains(" packets, "), "{line}");
        sender.signal(Signal::SIGINT);
        let ended = sender.end();
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
        let sent: Value = serde_json::from_str(&ended.stdout[0]).unwrap();
        assert_eq!(sent["interrupted"], true);
        let received = result(receiver);
        assert_eq!(number(&received, "sent"), number(&sent, "sent"));
        assert_eq!(
            number(&received, "received") + number(&received, "lost"),
            number(&sent, "sent")
        );
    }
    let mut receiver = Program::start("pace receive --address 127.0.0.1 --json");
    let to = receiver.address();
    // Nothing tells from outside that the run has begun but a packet that comes back.
    let end = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut bytes = [0; 76];
    bytes[36] = 76;
    bytes[40..44].copy_from_slice(b"lpE1");
    bytes[52] = 2;
    end.send_to(&bytes, to).unwrap();
    end.recv(&mut bytes).unwrap();
    receiver.signal(Signal::SIGINT);
    let ended = receiver.end();
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let received: Value = serde_json::from_str(&ended.stdout[0]).unwrap();
    assert_eq!((&received["complete"], &received["received"]), (&json!(false), &json!(0)));
    assert_eq!(received["sent"], Value::Null);
    assert_eq!(received["delay_ns"], Value::Null);
}

#[test]
fn components_find_each_other_and_end_together() {
    let with = json!({"address": "127.0.0.1"});
    let mut receiver = Component::start("rx", "pace receive --json", with, &["listen", "run"]);
    let with = json!({
        "to": "rx", "rate": "8Mbit", "size": "100B", "count": 500, "processes": 2,
        "after-stall": "burst", "timer": "sleep"
    });
    let mut sender = Component::start("tx", "pace send --json", with, &["connect", "run"]);
    let mut peers = json!({
        "rx": {"host": "h1", "address": "127.0.0.1", "values": {}},
        "tx": {"host": "h2", "address": "127.0.0.1", "values": {}}
    });
    phase("listen", &mut [&mut receiver], &mut peers);
    phase("connect", &mut [&mut sender], &mut peers);
    phase("run", &mut [&mut sender, &mut receiver], &mut peers);
    let sent = printed(sender.end());
    let received = printed(receiver.end());
    assert_eq!((number(&sent, "sent"), &sent["timer"]), (500, &json!("sleep")));
    assert_eq!(sent["asked_bit_s"], 8e6);
    assert_eq!(number(&received, "sent"), 500);
}

#[test]
fn results_have_the_keys_that_are_promised() {
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    let mut receiver = Program::start("pace receive --address 127.0.0.1 --json");
    let to = receiver.address();
    let sent = result(Program::start(&format!(
        "pace send --to {to} --interval 10ms --count 3 --distribution poisson --seed 7 --json"
    )));
    let received = result(receiver);
    assert_eq!(
        keys(&sent).join(" "),
        "after_stall asked asked_bit_s asked_packets_s bit_s bytes confirmed distribution drift \
         guard_ns interrupted interval_ns late_ns longest_burst of_processes packets_s per_second \
         processes program protocol refused rejected second_to_second seconds seed sent size \
         skipped timer to unsent version without_spinning"
    );
    assert_eq!(keys(&sent["late_ns"]).join(" "), "max mean p50 p90 p99 p999");
    assert_eq!(
        keys(&received).join(" "),
        "bit_s bytes complete delay_ns duplicates foreign interval_error_ns jitter_ns \
         longest_burst lost lost_ranges lost_ranges_omitted lost_ratio packets_s per_second \
         processes program received reordered seconds sent socket_drops unstamped version"
    );
    assert_eq!(
        keys(&received["delay_ns"]).join(" "),
        "max mean min negative p50 p90 p99 p999 same_clock"
    );
}

#[test]
fn people_are_told_what_is_wrong() {
    for (words, says) in [
        ("pace send", "there is no `to`"),
        ("pace send --to nowhere", "write host:port, as in 127.0.0.1:5000"),
        ("pace send --to 127.0.0.1:9 --size 43B", "`size` is 43 B; it must be at least 44 B"),
        ("pace send --to 127.0.0.1:9 --timer spin --priority 9", "leave `priority` or"),
        ("pace send --to 127.0.0.1:9 --cpu 1000", "cannot stay on CPU 1000"),
        ("pace receive --address 192.0.2.1", "cannot listen on 192.0.2.1:0"),
    ] {
        let error = Program::start(words).error();
        assert!(error.contains(says), "{words}: {error}");
    }
    let ended = Program::start("pace send --to 127.0.0.1:9 --interval 1ms --rate 1Mbit").end();
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("'--interval <INTERVAL>' cannot be used with"),
        "{}",
        ended.stderr
    );
    // No process is at the port of a closed socket.
    let to = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = Program::start(&format!("pace send --to {to} --count 5")).error();
    assert!(error.contains(&format!("nobody listens at {to}; start `pace receive`")), "{error}");
}

#[test]
fn a_receiver_that_goes_away_is_noticed() {
    let (wire, to) = Wire::new();
    let sender = Program::start(&format!(
        "pace send --to {to} --interval 1ms --count 300 --size 44B --json"
    ));
    wire.next(44).unwrap();
    drop(wire);
    let ended = sender.end();
    assert!(ended.success && ended.stderr.contains("nobody listens at"), "{}", ended.stderr);
    let sent: Value = serde_json::from_str(&ended.stdout[0]).unwrap();
    assert_eq!((number(&sent, "asked"), &sent["confirmed"]), (300, &json!(false)));
    assert!(number(&sent, "refused") > 0);
}

#[test]
fn the_kernel_is_not_believed_to_pace_where_it_does_not() {
    let tc = std::process::Command::new("tc").args(["-j", "qdisc", "show", "dev", "lo"]).output();
    let Ok(tc) = tc else {
        skip::skipped("needs tc");
        return;
    };
    if String::from_utf8_lossy(&tc.stdout).contains("fq") {
        skip::skipped("somebody paces loopback");
        return;
    }
    let error = Program::start("pace send --to 127.0.0.1:9 --timer kernel").error();
    assert!(error.contains("does not pace what leaves by lo"), "{error}");
    assert!(error.contains("tc qdisc replace dev lo root fq"), "{error}");
}
