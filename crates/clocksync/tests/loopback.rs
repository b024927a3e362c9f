//! Prober and responder over loopback: what they count, write and refuse.

mod run;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use loopscope_clocksync::exchange::Exchange;
use loopscope_clocksync::log::{LogError, ProbeLog, join, solve_run};
use loopscope_clocksync::offline::DEFAULT_WANDER;
use loopscope_clocksync::probe::{Cause, Counts, ProbeError, Prober, ProberConfig, Responder};
use loopscope_clocksync::record::{Filter, Moment, RecordError, Source};
use loopscope_clocksync::skew;
use loopscope_clocksync::synthetic::SyntheticClock;
use loopscope_time::Counter;
use loopscope_time::source::read_counter;
use run::{babeltrace_count, frequency, probes, side};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn responder(hosts: &Path, address: IpAddr) -> Responder {
    Responder::start(side(hosts, "ref", address, frequency(), None)).unwrap()
}

fn config(hosts: &Path, host: &str, reference: SocketAddr) -> ProberConfig {
    let side = side(hosts, host, reference.ip(), frequency(), None);
    ProberConfig {
        side,
        reference,
        rate_hz: 50.0,
        burst: 20,
        load_burst: 20,
        wander: DEFAULT_WANDER,
        observer: None,
    }
}

fn lost(counts: &Counts, cause: Cause) -> u64 {
    counts.lost.get(&cause).copied().unwrap_or(0)
}

fn of(log: &ProbeLog, moment: Moment) -> usize {
    log.observations.iter().filter(|o| o.moment == moment).count()
}

/// Every probe and stamp is in the logs or among the counted losses, babeltrace2 reads the same
/// number, and the joined exchanges give a map. On both families of addresses.
#[test]
fn all_that_was_sent_is_logged_or_counted() {
    for address in [LOOPBACK, IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let run = tempfile::tempdir().unwrap();
        let responder = responder(run.path(), address);
        let first = Prober::start(config(run.path(), "a", responder.address())).unwrap();
        let second = Prober::start(config(run.path(), "b", responder.address())).unwrap();
        assert!(first.answered() > 0 && first.answered() <= 20);
        let counts = [first.stop().unwrap(), second.stop().unwrap()];
        let reference_counts = responder.stop().unwrap();
        let reference = ProbeLog::read(&probes(run.path(), "ref")).unwrap();
        for (host, counts) in ["a", "b"].into_iter().zip(&counts) {
            assert!(counts.sent >= 40, "two bursts: {counts:?}");
            assert_eq!(counts.sent, counts.answered + lost(counts, Cause::NoReply));
            let directory = probes(run.path(), host);
            let log = ProbeLog::read(&directory).unwrap();
            assert_eq!(of(&log, Moment::ProbeSent) as u64, counts.sent);
            assert_eq!(of(&log, Moment::ReplyReceived) as u64, counts.answered);
            let user = log.observations.iter().filter(|o| o.source == Source::User).count();
            let causes = [Cause::NoTxStamp, Cause::NoRxStamp, Cause::ClockStep];
            assert!((user as u64) < counts.sent, "loopback is stamped by the kernel: {counts:?}");
            let stamps: u64 = causes.into_iter().map(|c| lost(counts, c)).sum();
            assert_eq!(user as u64, stamps, "{counts:?}");
            assert!(log.observations.iter().all(|o| o.span.lo <= o.span.hi));
            if let Some(count) = babeltrace_count(&directory, "clock:probe_sent") {
                assert_eq!(count as u64, counts.sent);
            }
            let joined = join(&log, &reference);
            assert_eq!(joined.ambiguous, 0);
            let complete = |e: &&Exchange| e.is_complete();
            assert_eq!(joined.exchanges.iter().filter(complete).count() as u64, counts.answered);
        }
        assert_eq!(of(&reference, Moment::ProbeReceived) as u64, reference_counts.answered);
        assert_eq!(of(&reference, Moment::ReplySent) as u64, reference_counts.sent);
        if let Some(count) = babeltrace_count(&probes(run.path(), "ref"), "clock:reply_sent") {
            assert_eq!(count as u64, reference_counts.sent);
        }

        // One counter serves all three.
        let clocks = solve_run(run.path(), "ref", DEFAULT_WANDER).unwrap();
        assert_eq!(clocks.keys().collect::<Vec<_>>(), ["a", "b", "ref"]);
        for (host, counts) in ["a", "b"].into_iter().zip(&counts) {
            let clock = &clocks[host];
            assert_eq!((clock.rejected, &clock.disturbances[..]), (0, &[][..]));
            assert_eq!(clock.exchanges as u64, counts.answered);
            for knot in clock.map.knots() {
                let (ts, bound) = clock.map.map(knot.counter);
                let truth = clocks["ref"].map.map(knot.counter).0;
                assert!((ts - truth).unsigned_abs() <= bound.ns() + 1);
            }
            let estimates = run.path().join(host).join("clock/estimates");
            if let Some(count) = babeltrace_count(&estimates, "clock:estimate") {
                assert_eq!(count, clock.map.knots().len());
            }
        }
        // Solving again replaces the estimates.
        assert!(solve_run(run.path(), "ref", DEFAULT_WANDER).is_ok());
    }
}

#[test]
fn nobody_there_is_an_error_that_names_the_address() {
    let run = tempfile::tempdir().unwrap();
    // Bound but never read: no answer, and no other process can take the port.
    let silent = UdpSocket::bind((LOOPBACK, 0)).unwrap();
    let reference = silent.local_addr().unwrap();
    let error = Prober::start(config(run.path(), "a", reference)).unwrap_err();
    assert!(matches!(error, ProbeError::NoAnswer { .. }));
    assert!(error.to_string().contains(&reference.to_string()), "{error}");
}

#[test]
fn an_address_of_somebody_else_is_an_error_that_names_it() {
    let run = tempfile::tempdir().unwrap();
    let foreign: IpAddr = "192.0.2.7".parse().unwrap();
    let error = Responder::start(side(run.path(), "ref", foreign, frequency(), None)).unwrap_err();
    assert!(error.to_string().contains("192.0.2.7"), "{error}");
}

#[test]
fn settings_are_checked() {
    let run = tempfile::tempdir().unwrap();
    let config = || config(run.path(), "a", SocketAddr::new(LOOPBACK, 9));
    let rate = Prober::start(ProberConfig { rate_hz: 0.0, ..config() }).unwrap_err();
    assert!(rate.to_string().contains("0 Hz"), "{rate}");
    let burst = Prober::start(ProberConfig { burst: 0, ..config() }).unwrap_err();
    assert!(matches!(burst, ProbeError::Setting(_)));
}

#[test]
fn a_log_is_not_written_over_another() {
    let run = tempfile::tempdir().unwrap();
    responder(run.path(), LOOPBACK).stop().unwrap();
    let again = side(run.path(), "ref", LOOPBACK, frequency(), None);
    let error = Responder::start(again).unwrap_err();
    assert!(matches!(error, ProbeError::Log(RecordError::Taken(_))), "{error}");
}

/// How far the counters of processors may be apart is in every width, offline and online: that of the
/// own host, and half of the reference's.
#[test]
fn what_processors_are_apart_is_in_every_width() {
    let run = tempfile::tempdir().unwrap();
    let responder = responder(run.path(), LOOPBACK);
    let prober = Prober::start(config(run.path(), "a", responder.address())).unwrap();
    let online = prober.online();
    let apart = skew::of_this_machine().within() as f64 * frequency().ns_per_tick();
    let known = || online.lock().unwrap().to_global(read_counter());
    let deadline = Instant::now() + Duration::from_secs(30);
    while known().is_none() {
        assert!(Instant::now() < deadline, "the follower learns nothing");
    }
    // The frequency is measured anew each time.
    assert!(known().unwrap().1.ns() as f64 > 1.49 * apart);
    let told = [online.clone(), responder.online()]
        .map(|online| online.lock().unwrap().state(read_counter()).apart_ns);
    assert!(told.iter().all(|told| (told - apart).abs() <= 0.01 * apart), "{told:?} for {apart}");
    prober.stop().unwrap();
    responder.stop().unwrap();
    let log = ProbeLog::read(&probes(run.path(), "a")).unwrap();
    assert_eq!(log.apart, Some(skew::of_this_machine().within()));
    let clocks = solve_run(run.path(), "ref", DEFAULT_WANDER).unwrap();
    for (host, share) in [("a", 1.49), ("ref", 0.49)] {
        let map = &clocks[host].map;
        let least = map.knots().iter().map(|k| map.map(k.counter).1.ns()).min().unwrap();
        assert!(least as f64 > share * apart, "{host}: {least} for {apart}");
        // Also in an interval on it, whole: its ends may be of two processors.
        assert!((map.apart_ns().unwrap() - apart).abs() <= 0.01 * apart, "{host}: {map:?}");
        assert!(map.interval_bound(0).ns() as f64 >= 0.99 * apart, "{host}");
    }
    assert!(clocks["ref"].map.map(read_counter()).1.ns() as f64 <= 0.51 * apart + 2.0);
}

/// While the probes go on, what a follower tells of its hidden clock is what the reference's says,
/// and the other way round.
#[test]
fn a_follower_knows_the_references_clock_at_once() {
    let run = tempfile::tempdir().unwrap();
    let frequency = frequency();
    let hidden = |host| SyntheticClock::new(7, host);
    let with = |host| {
        let filter: Filter = Arc::new(move |counter| hidden(host).apply(counter));
        side(run.path(), host, LOOPBACK, frequency, Some(filter))
    };
    let responder = Responder::start(with("ref")).unwrap();
    let config = ProberConfig { side: with("a"), ..config(run.path(), "a", responder.address()) };
    let prober = Prober::start(config).unwrap();
    let online = prober.online();
    for _ in 0..1000 {
        let now = read_counter();
        let (own, global) = (hidden("a").apply(now), frequency.scale(hidden("ref").apply(now)));
        let online = online.lock().unwrap();
        let (told, bound) = online.to_global(own).unwrap();
        assert!((told - global).unsigned_abs() <= bound.ns(), "{told:?} {bound}, not {global:?}");
        // With one stamp of the true counter it would be as wide as the clocks are apart.
        assert!(bound.ns() < 100_000_000, "{bound}");
        let span = online.to_own(global, 0).unwrap();
        assert!(span.lo <= own && own <= span.hi, "{span:?}, not {own:?}");
    }
    prober.stop().unwrap();
    responder.stop().unwrap();
}

/// What was probed is on disk soon, without stopping: a kill costs little.
#[test]
fn records_reach_the_disk_while_probing() {
    let run = tempfile::tempdir().unwrap();
    let responder = responder(run.path(), LOOPBACK);
    let prober = Prober::start(config(run.path(), "a", responder.address())).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let sizes = ["a", "ref"]
            .map(|host| std::fs::metadata(probes(run.path(), host).join("probes")).unwrap().len());
        if sizes.iter().all(|&size| size > 0) {
            break;
        }
        assert!(Instant::now() < deadline, "nothing was written: {sizes:?}");
        std::thread::yield_now();
    }
    for host in ["a", "ref"] {
        assert!(!ProbeLog::read(&probes(run.path(), host)).unwrap().observations.is_empty());
    }
    // Dropping ends both, with their logs complete.
    drop(prober);
    drop(responder);
    let log = ProbeLog::read(&probes(run.path(), "a")).unwrap();
    assert!(of(&log, Moment::ProbeSent) >= 20);
}

#[test]
fn a_torn_tail_is_said_and_the_rest_is_read() {
    let run = tempfile::tempdir().unwrap();
    let responder = responder(run.path(), LOOPBACK);
    Prober::start(config(run.path(), "a", responder.address())).unwrap().stop().unwrap();
    responder.stop().unwrap();
    let stream = probes(run.path(), "a").join("probes");
    let bytes = std::fs::read(&stream).unwrap();
    let mut torn = bytes.clone();
    torn.extend_from_slice(&bytes[..200]);
    std::fs::write(&stream, torn).unwrap();
    let whole = ProbeLog::read(&probes(run.path(), "a")).unwrap();
    assert_eq!(whole.torn_bytes, 200);
    assert!(of(&whole, Moment::ProbeSent) >= 40);
}

/// A synthetic clock: every counter that leaves has gone through the filter.
#[test]
fn the_filter_is_on_every_counter() {
    let run = tempfile::tempdir().unwrap();
    let responder = responder(run.path(), LOOPBACK);
    let mut config = config(run.path(), "a", responder.address());
    // Far from any true counter.
    let shift = 1u64 << 60;
    config.side.filter = Some(std::sync::Arc::new(move |c: Counter| Counter(c.0 + shift)));
    Prober::start(config).unwrap().stop().unwrap();
    let log = ProbeLog::read(&probes(run.path(), "a")).unwrap();
    assert!(!log.observations.is_empty());
    assert!(log.observations.iter().all(|o| o.span.lo.0 > shift && o.span.hi.0 > shift));
    let bytes = std::fs::read(probes(run.path(), "a").join("probes")).unwrap();
    for packet in loopscope_ctf::Packets::new(&bytes) {
        assert!(packet.unwrap().0.begin.0 > shift);
    }
}

#[test]
fn a_run_of_the_reference_alone_needs_no_probes() {
    let run = tempfile::tempdir().unwrap();
    let none = solve_run(run.path(), "ref", DEFAULT_WANDER).unwrap_err();
    assert!(matches!(none, LogError::NoReference { .. }), "{none}");
    // Any trace of the host's says how fast its counter is.
    responder(run.path(), LOOPBACK).stop().unwrap();
    std::fs::rename(probes(run.path(), "ref"), run.path().join("ref/trace")).unwrap();
    let clocks = solve_run(run.path(), "ref", DEFAULT_WANDER).unwrap();
    assert_eq!(clocks.len(), 1);
    let clock = &clocks["ref"];
    let counter = Counter(12_345_678_901_234);
    let (ts, bound) = clock.map.map(counter);
    assert!((ts - clock.frequency.scale(counter)).unsigned_abs() <= bound.ns() + 1);
}

#[test]
fn followers_of_a_reference_without_probes_are_an_error() {
    let run = tempfile::tempdir().unwrap();
    let responder = responder(run.path(), LOOPBACK);
    Prober::start(config(run.path(), "a", responder.address())).unwrap().stop().unwrap();
    responder.stop().unwrap();
    std::fs::rename(probes(run.path(), "ref"), run.path().join("ref/trace")).unwrap();
    let error = solve_run(run.path(), "ref", DEFAULT_WANDER).unwrap_err();
    assert!(matches!(error, LogError::NoReferenceProbes { .. }), "{error}");
}
