use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use loopscope_time::Frequency;
use nix::sys::socket::getsockopt;

use super::*;
use crate::counter::CounterError;
use crate::key::Key;
use crate::log::{ProbeLog, solve_run};
use crate::offline::DEFAULT_WANDER;
use crate::probe::{ProbeError, Prober, ProberConfig, ReplyTime, Responder};
use crate::record::Identity;
use crate::skew::tests::ASSUMED;
use crate::skew::{Ahead, LIMIT_NS, Skew};

fn side(hosts: &std::path::Path, host: &str, frequency: Frequency) -> Side {
    let identity =
        Identity { host: host.into(), trace_uuid: [1; 16], clock_uuid: [2; 16], frequency };
    let directory = hosts.join(host).join("clock/probes");
    Side {
        address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
        directory: Some(directory),
        identity,
        key: Key::new(&[7; 32]).unwrap(),
        filter: None,
        faults: None,
        own_interface: false,
        before_stamps: None,
    }
}

fn any_frequency() -> Frequency {
    Frequency::from_hz(1_000_000_000).unwrap()
}

fn next_departure(socket: &mut StampedSocket) -> Departure {
    let (mut control, _open) = io::pipe().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(departure) = socket.departure().unwrap() {
            return departure;
        }
        assert!(Instant::now() < deadline, "no stamp came");
        wait(&[&*socket], &mut control, Some(deadline)).unwrap();
    }
}

/// Numbers of stamps match their packets, also after a packet that could not be sent.
#[test]
fn stamps_find_their_packets_after_a_failed_send() {
    let hosts = tempfile::tempdir().unwrap();
    let mut socket = StampedSocket::bind(&side(hosts.path(), "a", any_frequency())).unwrap();
    let own = socket.address();
    // From a loopback address no packet leaves the machine.
    let elsewhere: SocketAddr = "192.0.2.1:9".parse().unwrap();
    for round in 0..3 {
        for packet in 0..=round {
            let sent = socket.send(b"x", own).unwrap();
            assert_eq!(sent.key, Some(packet));
            let departure = next_departure(&mut socket);
            assert_eq!(Some(departure.key), sent.key);
            assert!(departure.read > sent.user.lo);
        }
        assert!(socket.send(b"x", elsewhere).is_err());
    }
}

/// What the network sees of each packet, and what is counted of it.
#[test]
fn packets_are_marked_and_counted() {
    for (address, headers) in [("127.0.0.1", 28), ("::1", 48)] {
        let hosts = tempfile::tempdir().unwrap();
        let mut side = side(hosts.path(), "a", any_frequency());
        side.address = SocketAddr::new(address.parse().unwrap(), 0);
        let mut socket = StampedSocket::bind(&side).unwrap();
        let class = match side.address {
            SocketAddr::V4(_) => getsockopt(&socket.socket, sockopt::Ipv4Tos),
            SocketAddr::V6(_) => getsockopt(&socket.socket, sockopt::Ipv6TClass),
        };
        assert_eq!(class.unwrap(), 46 << 2);
        let own = socket.address();
        socket.send(b"twelve bytes", own).unwrap();
        socket.send(b"and", own).unwrap();
        assert_eq!(socket.traffic(), Traffic { packets: 2, bytes: 2 * headers + 15 });
    }
}

/// How a kernel or a driver can fail to stamp.
#[derive(Clone, Copy)]
enum Missing {
    /// The option is refused.
    Option,
    /// It is taken, but no stamps come.
    Stamps,
}

fn unstamped(side: &Side, missing: Missing) -> StampedSocket {
    let mut socket = StampedSocket::bind(side).unwrap();
    setsockopt(&socket.socket, sockopt::Timestamping, &TimestampingFlag::empty()).unwrap();
    socket.stamping = matches!(missing, Missing::Stamps);
    socket
}

/// Without kernel stamps the program's own serve: counted, marked in the log, and still hard.
#[test]
fn without_kernel_stamps_the_programs_own_serve() {
    for missing in [Missing::Option, Missing::Stamps] {
        let hosts = tempfile::tempdir().unwrap();
        // The counter's watch compares it with other clocks.
        let hz = crate::tests::measured_frequency();
        let side = |host| side(hosts.path(), host, hz);
        let responder =
            Responder::on(unstamped(&side("ref"), missing), side("ref"), ReplyTime::Nothing)
                .unwrap();
        let config = ProberConfig {
            side: side("a"),
            reference: responder.address(),
            rate_hz: 100.0,
            burst: 20,
            load_burst: 20,
            wander: DEFAULT_WANDER,
            observer: None,
        };
        let prober = Prober::on(unstamped(&config.side, missing), config).unwrap();
        let counts = prober.stop().unwrap();
        let reference = responder.stop().unwrap();
        assert!(counts.answered >= 40, "{counts:?}");
        for counts in [&counts, &reference] {
            assert_eq!(counts.lost[&Cause::NoTxStamp], counts.sent);
            assert_eq!(counts.lost[&Cause::NoRxStamp], counts.answered);
        }
        for host in ["a", "ref"] {
            let log = ProbeLog::read(&side(host).directory.unwrap()).unwrap();
            assert!(log.observations.iter().all(|o| o.source == Source::User));
        }
        let clocks = solve_run(hosts.path(), "ref", 1e-6).unwrap();
        let clock = &clocks["a"];
        assert_eq!((clock.rejected, clock.exchanges as u64), (0, counts.sent));
        for knot in clock.map.knots() {
            let (ts, bound) = clock.map.map(knot.counter);
            let truth = clocks["ref"].map.map(knot.counter).0;
            assert!((ts - truth).unsigned_abs() <= bound.ns() + 1);
        }
    }
}

/// Neither a reference nor a follower begins on a machine whose processors' counters differ by more
/// than is allowed: 1500 ns to 2500 ns here.
#[test]
fn processors_that_disagree_are_refused_at_every_start() {
    let pair = Ahead { processors: [0, 1], least: 1_500, most: 2_500 };
    let skew = Box::leak(Box::new(Skew { pairs: vec![pair], each: true, step: 0 }));
    ASSUMED.set(Some(skew));
    let hosts = tempfile::tempdir().unwrap();
    let side = |host| side(hosts.path(), host, any_frequency());
    let config = || ProberConfig {
        side: side("a"),
        reference: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9),
        rate_hz: 100.0,
        burst: 20,
        load_burst: 20,
        wander: DEFAULT_WANDER,
        observer: None,
    };
    let refused = |error: Option<ProbeError>| match error {
        Some(ProbeError::Counter(CounterError::Processors { processors, ns, limit_ns })) => {
            assert_eq!((processors, ns, limit_ns), ([0, 1], 1_500, LIMIT_NS));
        }
        other => panic!("{other:?}"),
    };
    refused(Responder::start(side("ref")).err());
    refused(Responder::with_time(side("ref"), ReplyTime::Nothing).err());
    refused(Prober::start(config()).err());
    refused(Prober::begin(config()).err());
    assert!(std::fs::read_dir(hosts.path()).unwrap().next().is_none());
}
