//! Prober and responder where the network, the kernel, strangers or a restart do them harm. Both
//! share one counter, so the truth is known: whatever happens, it stays inside the width.

mod run;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use loopscope_clocksync::anchor::ForeignClock;
use loopscope_clocksync::exchange::Pair;
use loopscope_clocksync::foreign::{ForeignMap, Step};
use loopscope_clocksync::key::Key;
use loopscope_clocksync::log::{HostClock, ProbeLog, join, solve_run};
use loopscope_clocksync::offline::DEFAULT_WANDER;
use loopscope_clocksync::others::{self, Measured};
use loopscope_clocksync::probe::{
    Cause, ClockSet, Counts, Faults, Observer, Outcome, Prober, ProberConfig, Responder, Side,
};
use loopscope_clocksync::record::Moment;
use loopscope_clocksync::stamp::{Reading, ordered_counter};
use loopscope_clocksync::state::Status;
use loopscope_time::{Counter, Frequency};
use run::{babeltrace_count, frequency, probes, side};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn lost(counts: &Counts, cause: Cause) -> u64 {
    counts.lost.get(&cause).copied().unwrap_or(0)
}

fn config(side: Side, reference: SocketAddr) -> ProberConfig {
    ProberConfig {
        side,
        reference,
        rate_hz: 1000.0,
        burst: 100,
        load_burst: 100,
        wander: DEFAULT_WANDER,
        observer: None,
    }
}

fn bound_to_any() -> UdpSocket {
    UdpSocket::bind((LOOPBACK, 0)).unwrap()
}

/// Host `a`'s clock agrees with the reference's wherever it says so.
fn clock_of_a(hosts: &Path) -> HostClock {
    let mut clocks = solve_run(hosts, "ref", DEFAULT_WANDER).unwrap();
    let (clock, reference) = (clocks.remove("a").unwrap(), clocks.remove("ref").unwrap());
    assert_eq!((clock.rejected, clock.disturbances.len()), (0, 0));
    for knot in clock.map.knots() {
        let (ts, bound) = clock.map.map(knot.counter);
        let truth = reference.map.map(knot.counter).0;
        assert!((ts - truth).unsigned_abs() <= bound.ns() + 1);
    }
    clock
}

fn collector() -> (Observer, Arc<Mutex<Vec<Outcome>>>) {
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let into = outcomes.clone();
    (Arc::new(move |outcome: &Outcome| into.lock().unwrap().push(*outcome)), outcomes)
}

/// What the follower knows online is what both logs say afterwards: stamps, pairs and order.
#[test]
fn outcomes_are_what_the_logs_say() {
    let run = tempfile::tempdir().unwrap();
    let hz = frequency();
    let responder = Responder::start(side(run.path(), "ref", LOOPBACK, hz, None)).unwrap();
    let (observer, outcomes) = collector();
    let own = side(run.path(), "a", LOOPBACK, hz, None);
    let mut config = config(own, responder.address());
    config.observer = Some(observer);
    let counts = Prober::start(config).unwrap().stop().unwrap();
    responder.stop().unwrap();
    let outcomes = outcomes.lock().unwrap();
    let [follower, reference] =
        ["a", "ref"].map(|host| ProbeLog::read(&probes(run.path(), host)).unwrap());
    let logged = join(&follower, &reference).exchanges;
    assert_eq!(outcomes.len() as u64, counts.sent);
    assert!(outcomes.is_sorted_by_key(|outcome| outcome.seq));
    let mut sent: Vec<u64> = follower
        .observations
        .iter()
        .filter(|o| o.moment == Moment::ProbeSent)
        .map(|o| o.seq)
        .collect();
    sent.sort_unstable();
    let (mut clean, mut alone) = (0, 0);
    for (outcome, (seq, logged)) in outcomes.iter().zip(sent.into_iter().zip(&logged)) {
        assert_eq!((outcome.seq, outcome.reference), (seq, hz));
        let mut expected = *logged;
        if outcome.exchange.t3.is_none() {
            // The very last replies, whose stamps no later packet reported.
            assert!(seq + 2 >= outcomes.last().unwrap().seq, "{seq}");
            (expected.t3, expected.back) = (None, Pair::Alone);
        } else if outcome.exchange.back == Pair::Alone {
            // Its partner is one of these.
            expected.back = Pair::Alone;
        }
        assert_eq!(outcome.exchange, expected);
        clean += usize::from(logged.forward == Pair::Clean);
        alone += usize::from(outcome.exchange.back != logged.back);
    }
    assert!(alone <= 2, "{alone}");
    assert!(clean > 0 && outcomes.iter().all(|o| o.session == outcomes[0].session));
}

/// Lost and overtaken packets and lost stamps of sending cost samples and nothing else, on either
/// side; what is drawn is drawn again with the same seed.
#[test]
fn faults_cost_samples_and_nothing_else() {
    let run = tempfile::tempdir().unwrap();
    let hz = frequency();
    let faulty = |host, seed| {
        let faults = Faults { seed, loss: 0.3, reordering: 0.1, lost_stamps: 0.2, clock_set: None };
        Side { faults: Some(faults), ..side(run.path(), host, LOOPBACK, hz, None) }
    };
    let responder = Responder::start(faulty("ref", 1)).unwrap();
    let (observer, outcomes) = collector();
    let mut config = config(faulty("a", 2), responder.address());
    (config.burst, config.observer) = (1000, Some(observer));
    let counts = Prober::start(config).unwrap().stop().unwrap();
    let reference = responder.stop().unwrap();
    assert_eq!(counts.sent, counts.answered + lost(&counts, Cause::NoReply));
    let share = |part: u64, of: u64| part as f64 / of as f64;
    let answered = share(counts.answered, counts.sent);
    // 0.7² of them, less those that were held back at the very end.
    assert!((0.44..0.54).contains(&answered), "{counts:?}");
    for (counts, what) in [(&counts, counts.sent), (&reference, reference.sent)] {
        let unstamped = share(lost(counts, Cause::NoTxStamp), what);
        assert!((0.15..0.25).contains(&unstamped), "{counts:?}");
    }
    let clock = clock_of_a(run.path());
    assert!(clock.exchanges as u64 >= counts.answered);
    let outcomes = outcomes.lock().unwrap();
    let complete = outcomes.iter().filter(|o| o.exchange.t3.is_some() && o.exchange.t4.is_some());
    // A reply that is lost takes the stamp with it that it was to tell; one that is given up comes
    // too late.
    let complete = share(complete.count() as u64, counts.answered);
    assert!((0.46..0.66).contains(&complete), "{complete} of {}", counts.answered);
    assert!(lost(&counts, Cause::UntoldStamp) > 0);
}

/// What a packet is for: a byte of it.
fn kind(bytes: &[u8]) -> u8 {
    bytes[5]
}

const REPLY: u8 = 2;
const GREETING: u8 = 3;

/// Carries packets between prober and responder, and lets `meddle` do what it likes with each.
struct Between {
    on: Arc<AtomicBool>,
    address: SocketAddr,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Between {
    fn start(
        reference: SocketAddr,
        mut meddle: impl FnMut(&UdpSocket, &[u8], SocketAddr) + Send + 'static,
    ) -> Between {
        let on = Arc::new(AtomicBool::new(true));
        let socket = bound_to_any();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let address = socket.local_addr().unwrap();
        let running = on.clone();
        let thread = std::thread::spawn(move || {
            let (mut bytes, mut follower) = ([0; 2000], None);
            // Only a flag: nothing is published by it.
            while running.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut bytes) else { continue };
                let to = if from == reference {
                    follower
                } else {
                    follower = Some(from);
                    Some(reference)
                };
                if let Some(to) = to {
                    meddle(&socket, &bytes[..length], to);
                }
            }
        });
        Between { on, address, thread: Some(thread) }
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.on.store(false, Ordering::Relaxed);
        self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// Somebody on the way who drops, doubles, cuts and changes replies: each probe is answered or lost
/// by its cause, and nothing that was changed is believed.
#[test]
fn lost_doubled_cut_and_changed_replies_are_told_apart() {
    let run = tempfile::tempdir().unwrap();
    let hz = frequency();
    let responder = Responder::start(side(run.path(), "ref", LOOPBACK, hz, None)).unwrap();
    let reference = responder.address();
    let meddled = Arc::new(Mutex::new([0u64; 5]));
    let done = meddled.clone();
    let mut number = 0;
    let between = Between::start(reference, move |socket, bytes, to| {
        let mut bytes = bytes.to_vec();
        // Replies, that is, and not the first: it is a greeting.
        if to != reference && kind(&bytes) == REPLY {
            let what = number % 5;
            done.lock().unwrap()[what] += 1;
            number += 1;
            match what {
                0 => return,
                1 => drop(socket.send_to(&bytes, to)),
                // When it was received.
                2 => bytes[44] ^= 1,
                3 => drop(bytes.pop()),
                _ => {}
            }
        }
        socket.send_to(&bytes, to).unwrap();
    });
    let own = side(run.path(), "a", LOOPBACK, hz, None);
    let counts = Prober::start(config(own, between.address)).unwrap().stop().unwrap();
    drop(between);
    responder.stop().unwrap();
    let [dropped, doubled, changed, cut, _] = *meddled.lock().unwrap();
    assert_eq!(lost(&counts, Cause::NoReply), dropped + changed + cut, "{counts:?}");
    assert_eq!(lost(&counts, Cause::UnexpectedReply), doubled);
    assert_eq!(lost(&counts, Cause::ForgedPacket), changed);
    assert_eq!(lost(&counts, Cause::MalformedPacket), cut);
    assert_eq!(counts.sent, counts.answered + lost(&counts, Cause::NoReply));
    clock_of_a(run.path());
}

/// Somebody on the same network records all and plays it back to both, from an address of his own
/// and, being on the way, from theirs; and forges more, 10 000 packets a second in all. Nothing
/// comes of it but counts.
#[test]
fn a_forger_who_replays_changes_nothing_but_counts() {
    let run = tempfile::tempdir().unwrap();
    let hz = frequency();
    let responder = Responder::start(side(run.path(), "ref", LOOPBACK, hz, None)).unwrap();
    let reference = responder.address();
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let into = recorded.clone();
    let mut first = true;
    let between = Between::start(reference, move |socket, bytes, to| {
        // What asks for the session is lost once: until it is asked again, only that can be
        // replayed.
        if !std::mem::take(&mut first) {
            socket.send_to(bytes, to).unwrap();
        }
        // What was sent a moment ago once more, on the way where all comes from.
        let mut recorded = into.lock().unwrap();
        if let Some((bytes, to)) = recorded.last() {
            let (bytes, to): (&Vec<u8>, &SocketAddr) = (bytes, to);
            socket.send_to(bytes, *to).unwrap();
        }
        recorded.push((bytes.to_vec(), to));
    });
    let on = Arc::new(AtomicBool::new(true));
    let (running, known) = (on.clone(), recorded.clone());
    let attacker = std::thread::spawn(move || {
        let socket = bound_to_any();
        let (mut at, mut sent) = (0usize, 0u64);
        let begin = Instant::now();
        while running.load(Ordering::Relaxed) {
            let packet = {
                let known = known.lock().unwrap();
                at += 1;
                known.get(at % known.len().max(1)).cloned()
            };
            let Some((mut bytes, to)) = packet else { continue };
            match at % 4 {
                // A session that nobody has, another number, a cut one; else as it was.
                0 => bytes[20] ^= 1,
                1 => bytes[28] ^= 64,
                2 => bytes.truncate(at % 100),
                _ => {}
            }
            // The system may refuse for want of room.
            sent += u64::from(socket.send_to(&bytes, to).is_ok());
            while begin.elapsed() < Duration::from_micros(100) * sent as u32 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        socket.set_nonblocking(true).unwrap();
        let mut bytes = [0; 200];
        let answers = std::iter::from_fn(|| socket.recv(&mut bytes).ok().map(|_| kind(&bytes)));
        (sent, answers.filter(|kind| *kind != GREETING).count() as u64)
    });
    let own = side(run.path(), "a", LOOPBACK, hz, None);
    let prober = Prober::start(config(own, between.address)).unwrap();
    // So long the attack goes on.
    std::thread::sleep(Duration::from_secs(2));
    let counts = prober.stop().unwrap();
    on.store(false, Ordering::Relaxed);
    let (sent, answers) = attacker.join().unwrap();
    drop(between);
    let reference = responder.stop().unwrap();
    assert!(sent > 2_000, "{sent} in two seconds");
    // Only what never arrived from who sent it, for want of room, can come first from him.
    // Greetings he gets too: they tell nothing of the time and change nothing.
    assert!(answers <= lost(&counts, Cause::NoReply), "{answers} {counts:?}");
    // Each probe once: what was answered is what was sent, but for what a full socket lost.
    assert!(reference.answered <= counts.sent, "{reference:?} {counts:?}");
    assert_eq!(reference.answered, reference.sent);
    assert!(counts.answered > counts.sent * 9 / 10, "{counts:?}");
    assert_eq!(counts.sent, counts.answered + lost(&counts, Cause::NoReply));
    for cause in [Cause::ForgedPacket, Cause::ReplayedPacket, Cause::MalformedPacket] {
        assert!(lost(&reference, cause) > 100, "{cause}: {reference:?}");
    }
    let log = ProbeLog::read(&probes(run.path(), "ref")).unwrap();
    let received = log.observations.iter().filter(|o| o.moment == Moment::ProbeReceived);
    assert_eq!(received.count() as u64, reference.answered);
    clock_of_a(run.path());
}

/// Without the key there is no answer; a stranger's packets are counted by what they are.
#[test]
fn without_the_key_there_is_no_answer() {
    let run = tempfile::tempdir().unwrap();
    let hz = frequency();
    let responder = Responder::start(side(run.path(), "ref", LOOPBACK, hz, None)).unwrap();
    let stranger = bound_to_any();
    for bytes in [&b""[..], &[0xff; 100], &[b'l'; 2000]] {
        stranger.send_to(bytes, responder.address()).unwrap();
    }
    let key = Key::new(b"another key altogether").unwrap();
    let own = Side { key, ..side(run.path(), "a", LOOPBACK, hz, None) };
    let error = Prober::start(config(own, responder.address())).unwrap_err().to_string();
    assert!(error.contains("same key"), "{error}");
    let counts = responder.stop().unwrap();
    assert_eq!((counts.sent, counts.answered), (0, 0));
    assert_eq!(lost(&counts, Cause::MalformedPacket), 3);
    assert!(lost(&counts, Cause::ForgedPacket) > 10, "{counts:?}");
}

/// A follower cannot pass for another one: what it codes with its own key is refused and counted.
#[test]
fn a_follower_with_the_key_of_another_pair_is_refused() {
    let run = tempfile::tempdir().unwrap();
    let hz = frequency();
    let key = Key::root(&[3; 32]).unwrap();
    let first = key.derived(1);
    let reference = Side { key, ..side(run.path(), "ref", LOOPBACK, hz, None) };
    let responder = Responder::start(reference).unwrap();
    let start = |host: &str, bytes: &[u8], number| {
        let key = Key::pair(bytes, number).unwrap();
        let own = Side { key, ..side(run.path(), host, LOOPBACK, hz, None) };
        Prober::start(config(own, responder.address()))
    };
    let error = start("b", &first, 2).unwrap_err().to_string();
    assert!(error.contains("same key"), "{error}");
    let prober = start("a", &first, 1).unwrap();
    let counts = prober.stop().unwrap();
    let answered = responder.stop().unwrap();
    // All that was answered came from the one with the right key.
    assert!(counts.answered > 0 && answered.answered <= counts.sent, "{answered:?} {counts:?}");
    assert!(lost(&answered, Cause::ForgedPacket) > 10, "{answered:?}");
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A reference that is started anew is noticed, and followed by its new session; what was recorded
/// before is nothing to it.
#[test]
fn a_restarted_reference_is_noticed_and_followed() {
    let run = tempfile::tempdir().unwrap();
    let hz: Frequency = frequency();
    let begin = |host: &str, address: Option<SocketAddr>| {
        let side = side(run.path(), host, LOOPBACK, hz, None);
        let address = address.unwrap_or(side.address);
        Responder::start(Side { address, ..side }).unwrap()
    };
    let first = begin("ref", None);
    let address = first.address();
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let into = recorded.clone();
    let between = Between::start(address, move |socket, bytes, to| {
        into.lock().unwrap().push(bytes.to_vec());
        // Refused while nobody listens there.
        let _ = socket.send_to(bytes, to);
    });
    let (observer, outcomes) = collector();
    let own = side(run.path(), "a", LOOPBACK, hz, None);
    let mut config = config(own, between.address);
    config.observer = Some(observer);
    let prober = Prober::start(config).unwrap();
    let sessions = || {
        let mut sessions: Vec<u64> = outcomes.lock().unwrap().iter().map(|o| o.session).collect();
        sessions.dedup();
        sessions
    };
    until("no outcome", || sessions().len() == 1);
    first.stop().unwrap();
    let old = recorded.lock().unwrap().clone();
    let second = begin("ref2", Some(address));
    until("the new session is not followed", || sessions().len() == 2);
    let counts = prober.stop().unwrap();
    assert_eq!(lost(&counts, Cause::ReferenceRestarted), 1, "{counts:?}");
    drop(between);
    // Played to the new one, what the old one was told and said.
    let stranger = bound_to_any();
    for bytes in &old {
        stranger.send_to(bytes, address).unwrap();
        std::thread::sleep(Duration::from_micros(100));
    }
    let counts = second.stop().unwrap();
    let log = ProbeLog::read(&probes(run.path(), "ref2")).unwrap();
    let received = log.observations.iter().filter(|o| o.moment == Moment::ProbeReceived);
    assert_eq!(received.count() as u64, counts.answered);
    assert_eq!(lost(&counts, Cause::ReplayedPacket), 0);
    assert!(lost(&counts, Cause::UnknownSession) > 10, "{counts:?}");
}

/// When round trips become longer a burst follows, so that undisturbed exchanges are found among
/// more.
#[test]
fn load_is_met_with_a_burst() {
    let run = tempfile::tempdir().unwrap();
    let hz = frequency();
    let responder = Responder::start(side(run.path(), "ref", LOOPBACK, hz, None)).unwrap();
    let reference = responder.address();
    let slow = Arc::new(AtomicBool::new(false));
    let probes = Arc::new(Mutex::new(Vec::new()));
    let (slowed, sent) = (slow.clone(), probes.clone());
    let between = Between::start(reference, move |socket, bytes, to| {
        if to == reference {
            sent.lock().unwrap().push(Instant::now());
        } else if slowed.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(3));
        }
        socket.send_to(bytes, to).unwrap();
    });
    let own = side(run.path(), "a", LOOPBACK, hz, None);
    let config = ProberConfig { rate_hz: 100.0, ..config(own, between.address) };
    let prober = Prober::start(config).unwrap();
    // Some windows of calm.
    until("no steady probes", || probes.lock().unwrap().len() > 200);
    probes.lock().unwrap().clear();
    slow.store(true, Ordering::Relaxed);
    // At the usual rate twenty pairs take 190 ms at the least.
    until("no burst", || {
        let probes = probes.lock().unwrap();
        probes.windows(40).any(|window| window[39] - window[0] < Duration::from_millis(120))
    });
    prober.stop().unwrap();
}

/// Each side has also noted the other clocks, on the counter that its log shows.
#[test]
fn other_clocks_are_noted() {
    let run = tempfile::tempdir().unwrap();
    let hz = frequency();
    let before = Reading::take();
    let responder = Responder::start(side(run.path(), "ref", LOOPBACK, hz, None)).unwrap();
    let shift = 1u64 << 60;
    let mut own = side(run.path(), "a", LOOPBACK, hz, None);
    own.filter =
        Some(Arc::new(move |c: loopscope_time::Counter| loopscope_time::Counter(c.0 + shift)));
    let prober = Prober::start(config(own, responder.address())).unwrap();
    let meanwhile = Reading::take();
    prober.stop().unwrap();
    responder.stop().unwrap();
    let after = Reading::take();
    for (host, shift) in [("ref", 0), ("a", shift)] {
        let log = ProbeLog::read(&probes(run.path(), host)).unwrap();
        assert_eq!(log.counter_events, []);
        if let Some(count) = babeltrace_count(&probes(run.path(), host), "clock:anchor") {
            assert_eq!(count, log.anchors.len());
        }
        for clock in [ForeignClock::Realtime, ForeignClock::Monotonic] {
            assert!(log.anchors.iter().filter(|a| a.clock == clock).count() >= 2);
        }
        for anchor in log.anchors.iter().filter(|a| a.clock == ForeignClock::Realtime) {
            assert!((before.clock.0..=after.clock.0).contains(&anchor.ns));
            assert!(before.at.lo.0 + shift <= anchor.at.lo.0 && anchor.at.lo <= anchor.at.hi);
            assert!(anchor.at.hi.0 <= after.at.hi.0 + shift);
        }
        let real = ForeignMap::of(ForeignClock::Realtime, &log.anchors, hz);
        assert_eq!(real.steps(), []);
        let ns = |ticks: i64| (ticks.unsigned_abs() as f64 * hz.ns_per_tick()).ceil() as u64 + 1;
        let (told, bound) = real.to_foreign(Counter(meanwhile.at.lo.0 + shift)).unwrap();
        let off = (told - meanwhile.clock.0).unsigned_abs();
        assert!(off <= bound.ns() + ns(meanwhile.at.width()), "{off} ns off, {bound}");
    }
}

/// A host's CLOCK_REALTIME is set by 22 ms in mid-run: it is found, timed and sized, costs a stamp
/// or two, and moves nothing.
#[test]
fn a_clock_that_is_set_is_found_and_moves_nothing() {
    let run = tempfile::tempdir().unwrap();
    let hz = frequency();
    let responder = Responder::start(side(run.path(), "ref", LOOPBACK, hz, None)).unwrap();
    let after = Duration::from_millis(700);
    let clock_set = Some(ClockSet { after, ns: 22_000_000 });
    let faults = Faults { clock_set, ..Faults::default() };
    let own = Side { faults: Some(faults), ..side(run.path(), "a", LOOPBACK, hz, None) };
    let before = ordered_counter();
    let prober = Prober::start(config(own, responder.address())).unwrap();
    let begun = ordered_counter();
    std::thread::sleep(2 * after);
    let counts = prober.stop().unwrap();
    responder.stop().unwrap();
    let steps = lost(&counts, Cause::ClockStep);
    assert!((1..=4).contains(&steps), "{counts:?}");
    let clock = clock_of_a(run.path());
    assert_eq!(clock.exchanges as u64, counts.sent);
    let log = ProbeLog::read(&probes(run.path(), "a")).unwrap();
    let real = ForeignMap::of(ForeignClock::Realtime, &log.anchors, hz);
    let [Step { within, ns: (least, most) }] = real.steps() else {
        panic!("{:?}", real.steps());
    };
    assert!(*least <= 22_000_000 && 22_000_000 <= *most && most - least < 100_000);
    let ticks = hz.hz() * 7 / 10;
    assert!(before.0 + ticks <= within.hi.0 && within.lo.0 <= begun.0 + ticks, "{within:?}");
    assert_eq!(ForeignMap::of(ForeignClock::Monotonic, &log.anchors, hz).steps(), []);

    // On the time line: one event, and the host is ahead of the reference from then on.
    let clocks = solve_run(run.path(), "ref", DEFAULT_WANDER).unwrap();
    assert_eq!(others::events(&clocks["ref"]), []);
    let told = others::events(&clocks["a"]);
    let [event] = &told[..] else { panic!("{told:?}") };
    assert_eq!((event.clock.as_str(), event.kind), ("realtime", "set"));
    assert_eq!(event.ns, Some((*least, *most)));
    for reading in others::readings(&clocks["a"], Some(&clocks["ref"])) {
        let Some(Measured { ns, err_ns }) = reading.offset else {
            assert_ne!(reading.clock, ForeignClock::Realtime);
            continue;
        };
        let ahead = if reading.ts < event.until.unwrap() { 0 } else { 22_000_000 };
        let set_meanwhile = reading.ts >= event.from.unwrap() && ahead == 0;
        assert!(set_meanwhile || (ns - ahead).abs() <= err_ns, "{reading:?} of {event:?}");
    }
}

/// A follower whose reference is silent waits, follows another address when it is told one, and
/// takes who answers there for another reference unless its session is the same.
#[test]
fn a_follower_waits_and_follows_to_another_address() {
    let run = tempfile::tempdir().unwrap();
    let hz = frequency();
    let silent = bound_to_any();
    let config = config(side(run.path(), "a", LOOPBACK, hz, None), silent.local_addr().unwrap());
    let mut prober = Prober::begin(config).unwrap();
    let online = prober.online();
    let epoch = |at_least: u32| {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let state = online.lock().unwrap().state(ordered_counter());
            if state.status == Status::Synchronised && state.epoch >= at_least {
                return state.epoch;
            }
            assert!(Instant::now() < deadline, "{state:?}");
            std::thread::yield_now();
        }
    };
    assert_eq!(online.lock().unwrap().to_global(ordered_counter()), None);
    for epoch_then in 0..2 {
        let name = format!("ref{epoch_then}");
        let responder = Responder::start(side(run.path(), &name, LOOPBACK, hz, None)).unwrap();
        for _ in 0..2 {
            // The same reference twice is no other one.
            prober.redirect(LOOPBACK, responder.address()).unwrap();
            assert_eq!(epoch(epoch_then), epoch_then);
        }
        responder.stop().unwrap();
    }
    let counts = prober.stop().unwrap();
    assert!(counts.answered > 0 && counts.sent >= counts.answered);
    assert!(counts.traffic.packets >= counts.sent, "{counts:?}");
}
