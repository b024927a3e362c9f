//! Links that the kernel makes, made: bridge, classes, filters, watching and taking off are the
//! shipped ones. Only the innermost queue is one that every kernel has, since many lack netem: a
//! rate is `tbf`, all else a queue that does nothing. Needs root.

#[path = "../../../tests/skip.rs"]
mod skip;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use loopscope_emulate::control::{Control, channel};
use loopscope_emulate::frame::{Pool, source};
use loopscope_emulate::iproute;
use loopscope_emulate::kernel::Kernel;
use loopscope_emulate::model::{Fate, Outcome};
use loopscope_emulate::mover::Mover as _;
use loopscope_emulate::mover::packet::Packets;
use loopscope_emulate::record::Achieved;
use loopscope_emulate::report::Report;
use loopscope_emulate::router::Departure;
use loopscope_emulate::run::read_value;
use loopscope_emulate::settings::{Document, Mistake, Port, Settings};
use loopscope_timer::now;
use nix::sched::{CloneFlags, unshare};
use serde_json::{Map, Value, json};

/// Bytes of a frame.
const SIZE: usize = 1000;
const RATE: u64 = 2_000_000;
/// Bytes that pass a rate at once, and that wait for it.
const BURST: usize = 2000;
const LIMIT: usize = 20_000;

fn queue(settings: &Settings) -> Result<String, Mistake> {
    let problem = || Mistake { key: "mtu".into(), problem: "this queue has none".into() };
    match (settings.mtu, settings.rate_bps) {
        (Some(_), _) => Err(problem()),
        (None, Some(rate)) => Ok(format!("tbf rate {rate}bit burst {BURST} limit {LIMIT}")),
        (None, None) => Ok("pfifo limit 1000".into()),
    }
}

/// Runs `test` in a network namespace with three hosts' ports and their other ends, which is gone
/// afterwards.
fn with_ports(test: impl FnOnce(&mut Packets) + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        skip::skipped("needs root to make network namespaces");
        return;
    }
    let inside = move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        // Only this thread's namespace is changed; without IPv6 there is nothing to disable.
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        let mut batch = String::new();
        for i in 1..=3 {
            batch += &format!("link add d{i} type veth peer name p{i}\n");
            batch += &iproute::up(&format!("d{i}"), "");
            batch += &iproute::up(&format!("p{i}"), "");
        }
        iproute::run("ip", &[], &batch).unwrap();
        let end =
            |i| Port { host: format!("h{i}"), device: format!("p{i}"), address: None, ip: None };
        test(&mut Packets::open(&[1, 2, 3].map(end)).unwrap());
    };
    thread::spawn(inside).join().unwrap();
}

fn document(links: Value) -> Document {
    let port = |i: u8| {
        json!({"host": format!("h{i}"), "device": format!("d{i}"),
               "address": format!("02:00:00:00:00:0{i}")})
    };
    let document = json!({"version": 1, "seed": 1, "mover": "netem",
        "ports": [port(1), port(2), port(3)], "links": links});
    read_value(&document).unwrap()
}

/// The links at work in a thread of their own; its end.
fn started(document: Document) -> (Control, thread::JoinHandle<Report>) {
    let (control, commands) = channel().unwrap();
    let mut kernel = Kernel::open(&document, queue, now()).unwrap();
    let work = move || {
        kernel.run(&commands).unwrap();
        kernel.report(&document, ("netem", "asked for".into()))
    };
    (control, thread::spawn(work))
}

fn ended(control: &Control, work: thread::JoinHandle<Report>) -> Report {
    control.tell(loopscope_emulate::control::Command::End);
    work.join().unwrap()
}

/// So many frames from host `from` to host `to`, each with another number.
fn send(ends: &mut Packets, from: u8, to: u8, numbers: std::ops::Range<u64>) {
    let pool = Pool::default();
    for number in numbers {
        let mut bytes = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5];
        if to == 0xff {
            bytes[..6].fill(0xff);
        }
        bytes.extend(number.to_le_bytes());
        bytes.resize(SIZE, 7);
        let at = now();
        let outcome = Outcome {
            packet: pool.frame(&bytes),
            number,
            enqueued: at,
            due: at,
            fate: Fate::Departs,
            duplicate: false,
            corrupted: false,
        };
        let (from, to) = (usize::from(from - 1), usize::from(from - 1));
        let mut batch = [Departure { from, to, outcome, lost: false }];
        ends.transmit(&mut batch).unwrap();
        assert!(!batch[0].lost);
    }
}

/// How many came to host `to` from each, once none comes any more.
fn received(ends: &mut Packets, to: usize) -> [u64; 3] {
    let mut counts = [0; 3];
    let mut quiet = Instant::now();
    while quiet.elapsed() < Duration::from_millis(300) {
        ends.look().unwrap();
        let mut sink = |_, bytes: &[u8]| {
            let from = source(bytes).unwrap().0[5];
            counts[usize::from(from) - 1] += 1;
        };
        if ends.receive(to - 1, &mut sink).unwrap() > 0 {
            quiet = Instant::now();
        }
    }
    counts
}

fn segments(report: &Report, from: &str, to: &str) -> Vec<Achieved> {
    let link = report.links.iter().find(|link| link.from == from && link.to == to);
    let segments = link.unwrap_or_else(|| panic!("{from} -> {to}")).segments.clone();
    let sum = |each: fn(&Achieved) -> u64| segments.iter().map(each).sum::<u64>();
    let dropped = sum(|s| s.dropped.queue + s.dropped.loss + s.dropped.kernel);
    let went = sum(|s| s.left.packets) - sum(|s| s.duplicated) + dropped + sum(|s| s.queued);
    assert_eq!(sum(|s| s.came.packets), went, "{segments:?}");
    segments
}

fn said(program: &str, words: &str) -> String {
    let output = Command::new(program).args(words.split(' ')).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn nothing_is_left() {
    assert_eq!(said("tc", "qdisc show").matches("htb").count(), 0);
    assert!(!said("ip", "link show").contains("ls-netem"));
    assert!(!said("ip", "link show").contains("master"));
}

#[test]
fn a_rate_is_one_links_and_its_account_is_what_the_ends_see() {
    with_ports(|ends| {
        let links = json!([{"from": "h1", "to": "h3", "settings": {"rate_bps": RATE}}]);
        let (control, work) = started(document(links));
        send(ends, 1, 3, 0..200);
        send(ends, 2, 3, 0..200);
        let came = received(ends, 3);
        assert_eq!(received(ends, 2), [0; 3], "a frame to a known host goes to no other");
        let report = ended(&control, work);
        assert_eq!((report.missed, &report.problems), (Some(0), &vec![]));

        let narrow = &segments(&report, "h1", "h3")[0];
        let (left, bytes) = (narrow.left.packets, narrow.left.bytes);
        assert_eq!((narrow.came.packets, left), (200, came[0]));
        assert_eq!(narrow.dropped.queue, 200 - left);
        // More than the burst and the queue together hold came at once.
        assert!((LIMIT / SIZE..200).contains(&(left as usize)), "{narrow:?}");
        // No more than the rate, whatever the machine does.
        let span = narrow.last_ns.unwrap() - narrow.first_ns.unwrap();
        assert!((bytes as i64 - BURST as i64) * 8_000_000_000 / RATE as i64 <= span, "{narrow:?}");
        assert!(narrow.delay_ns.max.unwrap() > 50_000_000, "{narrow:?}");
        assert_eq!((narrow.queued, narrow.reordered, narrow.late_ns.p50), (0, 0, None));

        let wide = &segments(&report, "h2", "h3")[0];
        assert_eq!((wide.came.packets, wide.left.packets, came[1]), (200, 200, 200));
        nothing_is_left();
    });
}

#[test]
fn links_are_changed_while_they_carry() {
    with_ports(|ends| {
        let jitter = |shape: &str| json!({"distribution": shape, "ns": 1000});
        let links = json!([{"from": "h1", "to": "h3",
            "settings": {"delay_ns": 1000, "jitter": jitter("normal")}}]);
        let (control, work) = started(document(links));
        let set = |from: &str, change: Value| {
            let Value::Object(change): Value = change else { panic!("an object") };
            control.set(from, "h3", Map::from_iter(change))
        };
        let queues = || said("tc", "qdisc show dev d3");
        send(ends, 1, 3, 0..10);
        assert_eq!(received(ends, 3), [10, 0, 0]);
        // One that had no class gets one, and what was in others stays.
        set("h2", json!({"rate_bps": RATE})).unwrap();
        assert!(queues().contains("tbf 3: parent 1:2 rate 2Mbit"), "{}", queues());
        set("h2", json!({"rate_bps": 2 * RATE})).unwrap();
        assert!(queues().contains("tbf 3: parent 1:2 rate 4Mbit"), "{}", queues());
        // netem keeps its table: there is another one then, which is told by its handle.
        set("h1", json!({"jitter": jitter("pareto")})).unwrap();
        assert!(queues().contains("pfifo 2: parent 1:1 "), "{}", queues());
        set("h1", json!({"jitter": jitter("uniform")})).unwrap();
        assert!(queues().contains("pfifo 8002: parent 1:1 "), "{}", queues());
        set("h1", json!({"jitter": null})).unwrap();
        // What cannot be is refused, and nothing is changed.
        let refused = set("h1", json!({"mtu": 1000})).unwrap_err();
        assert_eq!(refused, "`mtu`: this queue has none");
        // The kernel's no as well: it cannot make one queue another one.
        let before = queues();
        let refused = set("h1", json!({"rate_bps": RATE})).unwrap_err();
        assert!(refused.starts_with("tc: ") && !refused.contains("not back"), "{refused}");
        assert_eq!(queues(), before);
        send(ends, 1, 3, 10..30);
        send(ends, 2, 3, 0..5);
        assert_eq!(received(ends, 3), [20, 5, 0]);
        let report = ended(&control, work);
        let packets = |segments: &[Achieved]| -> Vec<_> {
            segments.iter().map(|segment| (segment.came.packets, segment.left.packets)).collect()
        };
        let one = segments(&report, "h1", "h3");
        assert_eq!(packets(&one), [(10, 10), (0, 0), (0, 0), (20, 20)]);
        assert_eq!(one[3].asked.jitter, None);
        let other = segments(&report, "h2", "h3");
        assert_eq!(packets(&other), [(0, 0), (0, 0), (5, 5)]);
        assert_eq!(other[2].asked.rate_bps, Some(2 * RATE));
        assert_eq!(report.problems, Vec::<String>::new());
        nothing_is_left();
    });
}

#[test]
fn steps_come_in_their_time_and_a_broadcast_goes_over_each_receivers_link() {
    with_ports(|ends| {
        let links = json!([{"from": "h1", "to": "h2", "settings": {},
            "steps": [{"at_ns": 0, "set": {"delay_ns": 7}}]}]);
        let (control, work) = started(document(links));
        send(ends, 1, 0xff, 0..20);
        assert_eq!((received(ends, 2), received(ends, 3)), ([20, 0, 0], [20, 0, 0]));
        control.measured(now()).unwrap();
        let shown = || control.show().unwrap()[0]["segments"].as_array().unwrap().len();
        while shown() < 2 {
            thread::yield_now();
        }
        send(ends, 1, 0xff, 20..50);
        assert_eq!((received(ends, 2), received(ends, 3)), ([30, 0, 0], [30, 0, 0]));
        let report = ended(&control, work);
        let near = segments(&report, "h1", "h2");
        assert_eq!((near[0].left.packets, near[1].left.packets), (20, 30));
        assert!(near[0].since_ns < 0 && near[1].since_ns >= 0);
        assert_eq!(segments(&report, "h1", "h3")[0].left.packets, 50);
    });
}

#[test]
fn what_cannot_be_made_leaves_nothing() {
    with_ports(|_| {
        let good = json!([{"from": "h1", "to": "h2", "settings": {"rate_bps": RATE}}]);
        let nonsense = |_: &Settings| Ok("nonsense limit 5".to_owned());
        let error = Kernel::open(&document(good.clone()), nonsense, now()).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("cannot make the link h1 -> h2: tc: "), "{text}");
        nothing_is_left();
        let steps = json!([{"from": "h1", "to": "h2", "settings": {},
            "steps": [{"at_ns": 5, "set": {"mtu": 1000}}]}]);
        let error = Kernel::open(&document(steps), queue, now()).unwrap_err().to_string();
        assert_eq!(error, "step of h1 -> h2 at 5 ns: `mtu`: this queue has none");
        // Somebody else's bridge is not touched.
        let running = Kernel::open(&document(good.clone()), queue, now()).unwrap();
        let error = Kernel::open(&document(good), queue, now()).unwrap_err().to_string();
        assert!(error.contains("ip link del ls-netem"), "{error}");
        assert_eq!(said("tc", "qdisc show").matches("htb").count(), 3);
        drop(running);
        nothing_is_left();
    });
}
