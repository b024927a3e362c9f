//! The library's decisions, without a program.
#![allow(dead_code)] // What is not tested here is used by the library.

#[path = "../src/habit.rs"]
mod habit;
#[path = "../src/options.rs"]
mod options;
#[path = "../src/ports.rs"]
mod ports;
#[path = "../src/receive.rs"]
mod receive;
#[path = "../src/timeout.rs"]
mod timeout;

use std::net::SocketAddr;
use std::time::Duration;

use habit::Habit;
use loopscope_stack::Algorithm;
use options::{
    How, Way, algorithm, control, events, forbids, is_told, receiving, sending, setting,
    setting_datagrams,
};
use ports::Ports;
use receive::Receive;

#[test]
fn a_thread_that_looks_in_vain_looks_ever_less_often() {
    let mut habit = Habit::new();
    let mut looks = 0;
    for _ in 0..100_000 {
        if habit.begin() {
            looks += 1;
            habit.looked(false);
        }
    }
    assert!((50..150).contains(&looks), "{looks} looks");
    // Once looks help, it looks each time.
    while !habit.begin() {}
    habit.looked(true);
    for _ in 0..20 {
        assert!(habit.begin());
        habit.looked(true);
    }
    // One that does not help costs a few waits without a look.
    assert!(habit.begin());
    habit.looked(false);
    let without = (0..).take_while(|_| !habit.begin()).count();
    assert!((1..10).contains(&without), "{without} waits without a look");
}

#[test]
fn the_environment_says_how_threads_wait() {
    for (word, receive) in [
        ("", Receive::Adaptive),
        ("adaptive", Receive::Adaptive),
        ("spin", Receive::Spin),
        ("block", Receive::Block),
    ] {
        assert_eq!(Receive::parse(word), Ok(receive));
    }
    let wrong = Receive::parse("Spin").unwrap_err();
    assert_eq!(wrong, r#"LOOPSCOPE_STACK_RECEIVE is "Spin", and not adaptive, spin or block"#);
}

#[test]
fn the_environment_says_the_least_timeout() {
    for (text, us) in [
        ("100us", 100),
        ("1ms", 1000),
        (" 1.5 ms ", 1500),
        ("0.2s", 200_000),
        ("120s", 120_000_000),
    ] {
        assert_eq!(timeout::parse(text), Ok(Some(Duration::from_micros(us))), "{text}");
    }
    assert_eq!(timeout::parse(""), Ok(None));
    for text in ["1", "ms", "99us", "121s", "-1ms", "1 m", "nanms", "1ms2", "infs", "1e400s"] {
        let wrong = timeout::parse(text).unwrap_err();
        assert!(wrong.starts_with(&format!("LOOPSCOPE_STACK_RTO_MIN is {text:?}")), "{wrong}");
    }
}

#[test]
fn a_congestion_control_that_the_program_has_asked_for_is_kept() {
    assert_eq!(algorithm("reno", Some("bbr")), Ok(Algorithm::Reno));
    assert_eq!(algorithm("cubic", Some("bbr")), Ok(Algorithm::Cubic));
    // Nobody has asked for it.
    assert_eq!(algorithm("bbr", Some("bbr")), Ok(Algorithm::Cubic));
    for default in [Some("cubic"), None] {
        let why = algorithm("bbr", default).unwrap_err();
        assert_eq!(why, "TCP_CONGESTION is bbr, and the stack has cubic and reno");
    }
}

#[test]
fn flags_that_the_stack_does_not_know_are_the_kernels() {
    let plain = How::default();
    assert_eq!(receiving(0, false), Some(plain));
    assert_eq!(receiving(libc::MSG_WAITALL, false), Some(How { all: true, ..plain }));
    assert_eq!(receiving(libc::MSG_DONTWAIT, false), Some(How { at_once: true, ..plain }));
    for flags in [libc::MSG_PEEK, libc::MSG_OOB, libc::MSG_TRUNC, libc::MSG_ERRQUEUE] {
        assert_eq!(receiving(flags, false), None);
        assert_eq!(receiving(flags | libc::MSG_DONTWAIT, false), None);
    }
    assert_eq!(sending(libc::MSG_NOSIGNAL | libc::MSG_MORE, false), Some(plain));
    assert_eq!(sending(libc::MSG_DONTWAIT, false), Some(How { at_once: true, ..plain }));
    for flags in [libc::MSG_OOB, libc::MSG_ZEROCOPY, libc::MSG_FASTOPEN] {
        assert_eq!(sending(flags, false), None);
    }
    // MSG_MORE makes other datagrams of them.
    for flags in [libc::MSG_MORE, libc::MSG_CONFIRM, libc::MSG_DONTROUTE, libc::MSG_ZEROCOPY] {
        assert_eq!(sending(flags, true), None);
    }
    assert_eq!(receiving(libc::MSG_TRUNC, true), Some(How { whole: true, ..plain }));
    for flags in [libc::MSG_PEEK, libc::MSG_ERRQUEUE] {
        assert_eq!(receiving(flags, true), None);
    }
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        assert_eq!(setting_datagrams(libc::SOL_SOCKET, name), Way::Timeout);
    }
    for (level, name) in [
        (libc::SOL_SOCKET, libc::SO_PRIORITY),
        (libc::SOL_SOCKET, libc::SO_REUSEADDR),
        (libc::IPPROTO_IP, libc::IP_TOS),
        (libc::IPPROTO_UDP, libc::UDP_GRO),
    ] {
        assert_eq!(setting_datagrams(level, name), Way::GiveBack);
    }
    assert_eq!(setting_datagrams(libc::IPPROTO_UDP, libc::UDP_SEGMENT), Way::Segment);
}

#[test]
fn options_that_the_stack_does_not_know_give_the_connection_back() {
    let (socket, tcp) = (libc::SOL_SOCKET, libc::IPPROTO_TCP);
    assert_eq!(setting(tcp, libc::TCP_NODELAY), Way::Delays);
    assert_eq!(setting(tcp, libc::TCP_CORK), Way::Delays);
    assert_eq!(setting(tcp, libc::TCP_QUICKACK), Way::Quick);
    assert_eq!(setting(socket, libc::SO_RCVTIMEO), Way::Timeout);
    for (level, name) in [
        (socket, libc::SO_KEEPALIVE),
        (socket, libc::SO_SNDBUF),
        (socket, libc::SO_RCVLOWAT),
        (tcp, libc::TCP_CONGESTION),
        (tcp, libc::TCP_USER_TIMEOUT),
        (libc::SOL_TLS, 1),
        (12345, 6789),
    ] {
        assert_eq!(setting(level, name), Way::GiveBack, "{level} {name}");
    }
    // What can be read when the connection is taken over does not stand in the way before.
    assert!(!forbids(socket, libc::SO_KEEPALIVE) && !forbids(tcp, libc::TCP_NODELAY));
    assert!(!forbids(tcp, libc::TCP_CORK) && !forbids(tcp, libc::TCP_CONGESTION));
    assert!(forbids(socket, libc::SO_RCVLOWAT) && forbids(tcp, libc::TCP_REPAIR));
    // The kernel's socket stands still.
    assert!(is_told(socket, libc::SO_ERROR) && !is_told(tcp, libc::TCP_INFO));
    assert_eq!(control(libc::F_SETFL, libc::O_NONBLOCK as usize), (Way::Pass, true));
    assert_eq!(control(libc::F_SETFL, libc::O_ASYNC as usize).0, Way::GiveBack);
    assert_eq!(control(libc::F_DUPFD, 0).0, Way::GiveBack);
}

#[test]
fn one_can_write_when_a_third_is_free() {
    let both = libc::POLLIN | libc::POLLOUT;
    assert_eq!(events(both, 0, 300, 700), 0);
    assert_eq!(events(both, 0, 340, 660), libc::POLLOUT);
    assert_eq!(events(both, 1, 0, 1000), libc::POLLIN);
    assert_eq!(events(libc::POLLOUT, 1, 0, 1000), 0);
}

fn at(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

#[test]
fn only_connections_with_one_of_the_ports_are_taken_over() {
    let lines = include_str!("ports.txt").lines().filter(|line| !line.starts_with('#'));
    let mut count = 0;
    for line in lines {
        count += 1;
        let mut cells = line.split('|');
        let text = cells.next().unwrap();
        let found = Ports::parse(text);
        let ports = |cell: &str| -> Vec<u16> {
            cell.split(' ')
                .filter(|word| !word.is_empty())
                .map(|word| word.parse().unwrap())
                .collect()
        };
        match cells.next().unwrap() {
            "error" => {
                let why = found.expect_err(line);
                assert!(why.contains(&format!("{text:?}")), "{why}");
            }
            among => {
                let found = found.expect(line);
                for port in ports(among) {
                    // At either end.
                    assert_eq!(found.refuses(at(port), at(2)), None, "{line}: {port}");
                    assert_eq!(found.refuses(at(2), at(port)), None, "{line}: {port}");
                }
                for port in ports(cells.next().unwrap()) {
                    assert!(found.refuses(at(port), at(port)).is_some(), "{line}: {port}");
                }
            }
        }
    }
    assert!(count > 20);
    assert_eq!(Ports::parse(""), Ok(Ports::All));
    assert_eq!(Ports::All.refuses(at(1), at(1)), None);
}
