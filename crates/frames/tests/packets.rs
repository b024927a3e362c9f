//! Rings of packet sockets on the loopback device of a network namespace. Needs root.

#[path = "../../../tests/skip.rs"]
mod skip;

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use loopscope_frames::packets::{Bound, Summed};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;

const LOOPBACK: u32 = 1;
/// Bytes of the headers of Ethernet, IPv4 and UDP.
const HEADERS: usize = 14 + 20 + 8;

/// In a namespace of its own, whose loopback device is up.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    let test = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace can be made");
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.expect("it runs").success());
        test();
    };
    std::thread::spawn(test).join().expect("the test did not fail");
}

#[test]
fn small_and_large_frames_come_in_their_order() {
    in_namespace(|| {
        let mut packets = Bound::open(LOOPBACK).unwrap().map().unwrap();
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        // More than the rings have room for, a few at a time.
        for turn in 0..1000_u32 {
            let sizes = [4, 60_000, 4, 4, 1900 - HEADERS, 1901 - HEADERS, 30_000];
            for (number, size) in sizes.into_iter().enumerate() {
                let mut bytes = vec![number as u8; size];
                bytes[..4].copy_from_slice(&turn.to_be_bytes());
                sender.send(&bytes).unwrap();
            }
            let (mut found, begin) = (vec![], Instant::now());
            // Each is seen when it leaves and when it comes.
            while found.len() < 2 * sizes.len() {
                packets.receive(3, |frame| {
                    assert_eq!(frame.bytes[HEADERS..][..4], turn.to_be_bytes());
                    assert_eq!(frame.summed, Summed::Unfinished);
                    found.push(frame.bytes.len() - HEADERS);
                });
                assert!(begin.elapsed() < Duration::from_secs(20), "{found:?}");
            }
            let expected: Vec<_> = sizes.into_iter().flat_map(|size| [size, size]).collect();
            assert_eq!(found, expected, "turn {turn}");
            assert_eq!(packets.receive(1, |frame| panic!("{frame:?}")), 0);
        }
    });
}
