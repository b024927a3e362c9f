//! The switch and its loop in virtual time, with devices that are lists.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::rc::Rc;

use loopscope_emulate::EmulateError;
use loopscope_emulate::engine::Engine;
use loopscope_emulate::mover::{BATCH, Losses, Mover};
use loopscope_emulate::record::Achieved;
use loopscope_emulate::router::{Departure, Router, Shown};
use loopscope_emulate::run::read_value;
use loopscope_emulate::settings::Document;
use loopscope_time::MonotonicNs;
use proptest::prelude::*;
use serde_json::{Value, json};

const BROADCAST: u8 = 0xff;

/// Frames that wait at each port with their stamps, and what went out.
#[derive(Default)]
struct Lists {
    waiting: [VecDeque<(Option<MonotonicNs>, Vec<u8>)>; 3],
    /// Port, bytes, when.
    sent: Vec<(usize, Vec<u8>, MonotonicNs)>,
    /// Every so-manieth is lost; 0: none.
    loses: usize,
    lost: usize,
}

struct Fake {
    lists: Rc<RefCell<Lists>>,
    time: Rc<Cell<u64>>,
    descriptor: std::fs::File,
    /// Nanoseconds that it takes to take a frame.
    taking: u64,
}

impl Mover for Fake {
    fn look(&mut self) -> Result<(), EmulateError> {
        Ok(())
    }

    fn receive(
        &mut self,
        port: usize,
        sink: &mut impl FnMut(Option<MonotonicNs>, &[u8]),
    ) -> Result<usize, EmulateError> {
        let waiting = &mut self.lists.borrow_mut().waiting[port];
        let count = waiting.len().min(BATCH);
        for (stamp, frame) in waiting.drain(..count) {
            self.time.set(self.time.get() + self.taking);
            sink(stamp, &frame);
        }
        Ok(count)
    }

    fn transmit(&mut self, batch: &mut [Departure]) -> Result<(), EmulateError> {
        assert!(batch.len() <= BATCH);
        let lists = &mut *self.lists.borrow_mut();
        for departure in batch {
            let ordinal = lists.sent.len() + lists.lost + 1;
            if lists.loses > 0 && ordinal.is_multiple_of(lists.loses) {
                departure.lost = true;
                lists.lost += 1;
                continue;
            }
            let bytes = departure.outcome.packet.bytes().to_vec();
            lists.sent.push((departure.to, bytes, MonotonicNs(self.time.get())));
        }
        Ok(())
    }

    fn ready(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn losses(&mut self) -> Vec<Losses> {
        vec![Losses::default(); 3]
    }
}

struct Bench {
    engine: Engine<Fake>,
    lists: Rc<RefCell<Lists>>,
    time: Rc<Cell<u64>>,
}

impl Bench {
    fn new(links: Value) -> Bench {
        Bench::taking(0, links)
    }

    fn taking(taking: u64, links: Value) -> Bench {
        Bench::of(taking, &document(links))
    }

    fn of(taking: u64, document: &Document) -> Bench {
        let (lists, time) = (Rc::<RefCell<Lists>>::default(), Rc::new(Cell::new(1_000_000)));
        let descriptor = std::fs::File::open("/dev/null").unwrap();
        let fake = Fake { lists: lists.clone(), time: time.clone(), descriptor, taking };
        let engine = Engine::new(document, fake, MonotonicNs(time.get())).unwrap();
        Bench { engine, lists, time }
    }

    fn comes(&self, port: usize, frame: Vec<u8>) {
        self.lists.borrow_mut().waiting[port].push_back((None, frame));
    }

    /// Looks at everything, `step` nanoseconds later, as often as it takes.
    fn pass(&mut self, step: u64) {
        self.time.set(self.time.get() + step);
        let time = self.time.clone();
        while self.engine.turn(&|| MonotonicNs(time.get())).unwrap() {}
    }

    /// What went out since the last time: port and the frame's last byte.
    fn sent(&self) -> Vec<(usize, u8)> {
        let sent = std::mem::take(&mut self.lists.borrow_mut().sent);
        sent.into_iter().map(|(port, frame, _)| (port, *frame.last().unwrap())).collect()
    }

    fn links(&self) -> Vec<Shown> {
        self.engine.links()
    }
}

fn document(links: Value) -> Document {
    let ports = [("h1", "d1"), ("h2", "d2"), ("h3", "d3")]
        .map(|(host, device)| json!({"host": host, "device": device}));
    read_value(&json!({"version": 1, "seed": 5, "ports": ports, "links": links})).unwrap()
}

/// From and to the hosts of these numbers; `mark` is what it carries.
fn frame(from: u8, to: u8, mark: u8) -> Vec<u8> {
    let address = |host: u8| if host == BROADCAST { [0xff; 6] } else { [2, 0, 0, 0, 0, host] };
    [&address(to)[..], &address(from), &[0x88, 0xb5, mark]].concat()
}

fn segment<'a>(links: &'a [Shown], from: &str, to: &str) -> &'a Achieved {
    let link = links.iter().find(|link| link.from == from && link.to == to).unwrap();
    link.segments.last().unwrap()
}

fn balance(link: &Shown) -> (i64, i64) {
    let (mut came, mut accounted) = (0, 0);
    for s in &link.segments {
        let d = s.dropped;
        let dropped = d.mtu + d.loss + d.queue + d.codel + d.moving;
        came += s.came.packets as i64;
        accounted += (s.left.packets + dropped + s.queued) as i64 - s.duplicated as i64;
    }
    (came, accounted)
}

#[test]
fn it_learns_where_hosts_are() {
    let mut bench = Bench::new(json!([]));
    bench.comes(0, frame(1, 2, 10));
    bench.pass(1);
    assert_eq!(bench.sent(), [(1, 10), (2, 10)], "nobody knows where host 2 is");
    bench.comes(1, frame(2, 1, 11));
    bench.comes(2, frame(3, 2, 12));
    bench.pass(1);
    assert_eq!(bench.sent(), [(0, 11), (1, 12)]);
    bench.comes(0, frame(1, BROADCAST, 13));
    bench.pass(1);
    assert_eq!(bench.sent(), [(1, 13), (2, 13)]);
    // Host 3 has moved to the port of host 2, and asks for it there.
    bench.comes(1, frame(3, BROADCAST, 14));
    bench.comes(1, frame(3, 2, 15));
    bench.pass(1);
    assert_eq!(bench.sent(), [(0, 14), (2, 14)]);
    bench.comes(0, frame(1, 3, 16));
    bench.pass(1);
    assert_eq!(bench.sent(), [(1, 16)]);
    bench.comes(0, vec![2; 13]);
    bench.pass(1);
    assert_eq!(bench.sent(), [], "too short for a frame");
}

#[test]
fn what_goes_to_a_host_that_has_sent_nothing_goes_there_alone() {
    let mut document = document(json!([]));
    for (port, host) in document.ports.iter_mut().zip(1..) {
        let address = json!(format!("02:00:00:00:00:{host:02}"));
        port.address = Some(serde_json::from_value(address).unwrap());
    }
    let mut bench = Bench::of(0, &document);
    bench.comes(0, frame(1, 2, 10));
    bench.pass(1);
    assert_eq!(bench.sent(), [(1, 10)]);
}

#[test]
fn each_pair_has_its_own_link() {
    let mut bench = Bench::new(json!([
        {"from": "h1", "to": "h2", "settings": {"delay_ns": 1000}},
        {"from": "h1", "to": "h3", "settings": {"delay_ns": 500}},
    ]));
    bench.comes(0, frame(1, BROADCAST, 20));
    bench.pass(1);
    assert_eq!(bench.sent(), []);
    bench.comes(1, frame(2, BROADCAST, 21));
    bench.pass(1);
    assert_eq!(bench.sent(), [(0, 21), (2, 21)], "no link was asked for here");
    bench.pass(498);
    assert_eq!(bench.sent(), []);
    bench.pass(1);
    assert_eq!(bench.sent(), [(2, 20)]);
    bench.pass(499);
    assert_eq!(bench.sent(), []);
    bench.pass(1);
    assert_eq!(bench.sent(), [(1, 20)]);
    let links = bench.links();
    assert_eq!(links.len(), 4);
    let far = segment(&links, "h1", "h2");
    assert_eq!(
        (far.delay_ns.min, far.delay_ns.max, far.late_ns.max),
        (Some(1000), Some(1000), Some(0))
    );
}

#[test]
fn a_stamp_of_the_kernel_counts_from_when_the_frame_came() {
    let mut bench = Bench::new(json!([{"from": "h1", "to": "h2", "settings": {"delay_ns": 1000}}]));
    bench.comes(0, frame(1, 2, 0));
    bench.pass(0);
    let now = bench.time.get();
    let come = |stamp, mark| {
        let waiting = &mut bench.lists.borrow_mut().waiting[0];
        waiting.push_back((Some(MonotonicNs(stamp)), frame(1, 2, mark)));
    };
    // It was taken 300 ns late; then one with a stamp that goes back, and one from the future.
    come(now + 100, 30);
    come(now + 50, 31);
    come(now + 5000, 32);
    bench.pass(400);
    bench.sent();
    bench.pass(700);
    assert_eq!(bench.sent().iter().filter(|sent| sent.0 == 1).count(), 3);
    bench.pass(299);
    assert_eq!(bench.sent(), []);
    bench.pass(1);
    assert_eq!(bench.sent(), [(1, 32)]);
}

#[test]
fn what_comes_while_others_are_taken_is_not_early() {
    let delay = json!([{"from": "h1", "to": "h2", "settings": {"delay_ns": 1000}}]);
    let mut bench = Bench::taking(100, delay);
    let start = bench.time.get();
    // The second and third came as the ones before were taken; of the last the kernel said nothing.
    for (stamp, mark) in [(Some(0), 0), (Some(150), 1), (Some(290), 2), (None, 3)] {
        let stamp = stamp.map(|after| MonotonicNs(start + after));
        bench.lists.borrow_mut().waiting[0].push_back((stamp, frame(1, 2, mark)));
    }
    bench.pass(0);
    bench.sent();
    for (until, expected) in [(999, None), (1000, Some(0)), (1149, None), (1150, Some(1))]
        .into_iter()
        .chain([(1289, None), (1290, Some(2)), (1399, None), (1400, Some(3))])
    {
        bench.pass(start + until - bench.time.get());
        assert_eq!(bench.sent(), expected.map(|mark| (1, mark)).into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn steps_and_changes_are_segments() {
    let mut bench = Bench::new(json!([{
        "from": "h1", "to": "h2", "settings": {"delay_ns": 50},
        "steps": [{"at_ns": 1000, "set": {"delay_ns": null}}, {"at_ns": 100, "set": {"delay_ns": 5000}}],
    }]));
    bench.pass(10_000);
    bench.comes(0, frame(1, 2, 1));
    bench.engine.measured(MonotonicNs(bench.time.get()));
    bench.pass(99);
    bench.comes(0, frame(1, 2, 2));
    bench.pass(1);
    bench.pass(48);
    assert_eq!(bench.sent(), [(2, 1), (2, 2)]);
    bench.pass(1);
    assert_eq!(bench.sent(), [(1, 1)]);
    bench.pass(851);
    let asked: Vec<_> =
        to_h2(&bench).segments.iter().map(|s| (s.since_ns, s.asked.delay_ns)).collect();
    assert_eq!(asked, [(-10_000, 50), (100, 5000), (1000, 0)]);
    bench.engine.close();
    let link = to_h2(&bench);
    let counts: Vec<_> =
        link.segments.iter().map(|s| (s.came.packets, s.left.packets, s.queued)).collect();
    assert_eq!(counts, [(1, 1, 0), (1, 0, 1), (0, 0, 0)]);
}

fn to_h2(bench: &Bench) -> Shown {
    bench.links().into_iter().find(|link| link.to == "h2").unwrap()
}

#[test]
fn what_the_document_gets_wrong_is_said() {
    let wrong = |change: &dyn Fn(&mut Value), expected: &[&str]| {
        let port = |host: &str| json!({"host": host, "device": host});
        let mut all = json!({"version": 1, "seed": 1, "ports": [port("h1"), port("h2")],
            "links": [{"from": "h1", "to": "h2", "settings": {"delay_ns": 5}}]});
        change(&mut all);
        let error = read_value(&all)
            .and_then(|document| Router::new(&document, MonotonicNs(0)))
            .map(drop)
            .unwrap_err()
            .to_string();
        expected.iter().for_each(|part| assert!(error.contains(part), "{error}"));
    };
    wrong(&|all| all["version"] = 2.into(), &["`version`", "is 2"]);
    wrong(&|all| all["links"][0]["from"] = "h9".into(), &["links[0]", "\"h9\"", "h1, h2"]);
    wrong(&|all| all["links"][0]["to"] = "h1".into(), &["links[0]", "two hosts"]);
    wrong(&|all| all["ports"][1]["host"] = "h1".into(), &["`ports`", "\"h1\" twice"]);
    wrong(
        &|all| all["links"][0]["settings"]["delay_ns"] = "5".into(),
        &["links[0].settings.delay_ns"],
    );
    wrong(&|all| all["links"][0]["settings"]["dely"] = 5.into(), &["links[0].settings", "dely"]);
    wrong(&|all| all["links"][0]["settings"]["duplicate"] = 1.5.into(), &["links[0]", "duplicate"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the links do and the mover loses, every packet is accounted for, and what goes out
    /// goes out at the ports and in the numbers that the report has.
    #[test]
    fn every_packet_is_accounted_for(
        packets in prop::collection::vec((0..3_usize, 0..4_u8, 0..2_000_u64), 1..300),
        loses in 0..5_usize,
        delay_ns in 0..3_000_u64,
        loss in 0.0..1.0_f64,
        duplicate in 0.0..1.0_f64,
        rate_bps in prop::option::of(1_000_000..1_000_000_000_u64),
        limit in 1..10_u64,
    ) {
        let mut settings = json!({
            "delay_ns": delay_ns, "duplicate": duplicate, "corrupt": 0.5,
            "loss": {"kind": "independent", "probability": loss},
        });
        if let Some(rate) = rate_bps {
            settings["rate_bps"] = rate.into();
            settings["queue"] = json!({"limit": {"packets": limit}});
        }
        let mut bench = Bench::new(json!([
            {"from": "h1", "to": "h2", "settings": settings},
            {"from": "h2", "to": "h3", "settings": settings},
        ]));
        bench.lists.borrow_mut().loses = loses;
        for (port, to, pause) in &packets {
            let to = if *to == 3 { BROADCAST } else { to + 1 };
            bench.comes(*port, frame(*port as u8 + 1, to, 0));
            bench.pass(*pause);
        }
        bench.engine.close();
        let links = bench.links();
        let mut out = [0; 3];
        for link in &links {
            let (came, accounted) = balance(link);
            prop_assert_eq!(came, accounted, "{:?}", link);
            let to = ["h1", "h2", "h3"].iter().position(|host| *host == link.to).unwrap();
            out[to] += link.segments.iter().map(|s| s.left.packets).sum::<u64>() as usize;
        }
        let lists = bench.lists.borrow();
        let moving: u64 = links.iter().flat_map(|l| &l.segments).map(|s| s.dropped.moving).sum();
        prop_assert_eq!(moving, lists.lost as u64);
        for (port, count) in out.iter().enumerate() {
            prop_assert_eq!(lists.sent.iter().filter(|sent| sent.0 == port).count(), *count);
        }
    }
}
