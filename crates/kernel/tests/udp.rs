//! Datagrams of UDP and dropped packets on this machine's kernel. Needs root, tracefs and a build
//! with clang, and says so where it cannot.

mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use loopscope_kernel::programs::{DROP, UDP};
use loopscope_time::source::read_counter;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{setsockopt, sockopt};
use place::programs::{Event, counted, recorded};
use place::skip;

const PACKETS: [&str; 3] = ["datagram_queued", "datagram_out", "datagram_in"];
const SOCKETS: [&str; 2] = ["datagram_ready", "datagram_read"];
const KINDS: [&str; 5] = [PACKETS[0], PACKETS[1], PACKETS[2], SOCKETS[0], SOCKETS[1]];

/// Two sockets on loopback.
fn sockets(address: SocketAddr) -> (UdpSocket, UdpSocket) {
    let made = || UdpSocket::bind(address).unwrap();
    let (near, far) = (made(), made());
    far.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    (near, far)
}

/// The events of the datagrams from an address to another one, by name, and those of the socket that
/// has this; of fragments without ports, these between the machines.
fn between<'a>(events: &'a [Event], near: &str, far: &str) -> BTreeMap<&'a str, Vec<&'a Event>> {
    let machine = |address: &str| format!("{}:0", address.rsplit_once(':').unwrap().0);
    let mut found: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in events {
        let end = |name: &str| event.texts.get(name).map(String::as_str);
        let ends = (end("source"), end("target"));
        let parts = (Some(&*machine(near)), Some(&*machine(far)));
        if ends == (Some(near), Some(far)) || ends == parts || end("local") == Some(far) {
            found.entry(&event.name).or_default().push(event);
        }
    }
    found
}

/// Each datagram goes from the call that sent it to the queue of the device, out of it, in at the
/// other one, to the call that read it, in this order, between the readings of the counter around
/// it; and is the same by its length and its first bytes, which others are not.
#[test]
fn a_datagram_is_followed_from_the_call_that_sent_it_to_the_one_that_read_it() {
    const DATAGRAMS: usize = 10_000;
    for address in [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), (Ipv6Addr::LOCALHOST, 0).into()] {
        for connected in [false, true] {
            let own = i64::from(nix::unistd::gettid().as_raw());
            let mut calls = Vec::with_capacity(DATAGRAMS);
            let mut ends = (String::new(), String::new());
            let found = recorded(UDP, &KINDS, &[], "datagrams", 64 << 20, || {
                let (near, far) = sockets(address);
                let to = far.local_addr().unwrap();
                ends = (near.local_addr().unwrap().to_string(), to.to_string());
                if connected {
                    near.connect(to).unwrap();
                }
                for number in 0..DATAGRAMS {
                    let mut bytes = vec![7; number % 1_000];
                    let numbered = number.to_le_bytes();
                    let count = bytes.len().min(numbered.len());
                    bytes[..count].copy_from_slice(&numbered[..count]);
                    let before = read_counter().0;
                    let sent = if connected { near.send(&bytes) } else { near.send_to(&bytes, to) };
                    assert_eq!(sent.unwrap(), bytes.len());
                    assert_eq!(far.recv(&mut vec![0; 2_000]).unwrap(), bytes.len());
                    calls.push((before, read_counter().0, bytes));
                }
            });
            let Some((events, account)) = found else { return };
            assert_eq!(counted(&account, UDP), (events.len() as u64, 0));
            let places = between(&events, &ends.0, &ends.1);
            let mut hashes = BTreeMap::new();
            for (number, (before, after, bytes)) in calls.into_iter().enumerate() {
                let way: Vec<&Event> = KINDS.iter().map(|name| places[name][number]).collect();
                for event in &way {
                    assert_eq!(event.tid, own);
                    assert!(before <= event.counter + event.within, "{number}: {before} {event:?}");
                    assert!(event.counter <= after + event.within, "{number}: {event:?} {after}");
                    let length = bytes.len() as u64;
                    if SOCKETS.contains(&&*event.name) {
                        let sockets = [event.numbers["socket"], way[4].numbers["socket"]];
                        assert_eq!(sockets[0], sockets[1]);
                        continue;
                    }
                    assert_eq!([event.numbers["bytes"], event.numbers["length"]], [length; 2]);
                    assert_eq!(event.numbers["hashed"], length.min(32));
                    assert_eq!(event.numbers["hash"], way[0].numbers["hash"]);
                }
                assert_eq!(way[4].numbers["bytes"], bytes.len() as u64);
                for pair in way.windows(2) {
                    let late = pair[1].counter + pair[1].within + pair[0].within;
                    assert!(pair[0].counter <= late, "{number}: {pair:?}");
                }
                let first = bytes[..bytes.len().min(32)].to_vec();
                let hash = way[0].numbers["hash"];
                assert_eq!(*hashes.entry(first.clone()).or_insert(hash), hash, "{first:?}");
            }
            // Zeros at the end alone are not told from no bytes; the length tells.
            let distinct: BTreeSet<u64> = hashes.values().copied().collect();
            assert!(distinct.len() + 16 > hashes.len(), "{} {}", distinct.len(), hashes.len());
            for name in KINDS {
                assert_eq!(places[name].len(), DATAGRAMS, "{name}");
            }
        }
    }
}

/// A datagram that does not fit into a packet goes in fragments, of which the first alone has its
/// ports; the call that reads it has the whole.
#[test]
fn the_fragments_of_a_datagram_are_known_by_their_number() {
    const LENGTH: usize = 30_000;
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        skip::skipped(&format!("no network namespace can be made: {error}"));
        return;
    }
    let words = ["link", "set", "lo", "up", "mtu", "1500"];
    assert!(Command::new("ip").args(words).status().unwrap().success());
    for address in [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), (Ipv6Addr::LOCALHOST, 0).into()] {
        let mut ends = (String::new(), String::new());
        let found = recorded(UDP, &KINDS, &[], "fragments", 16 << 20, || {
            let (near, far) = sockets(address);
            ends = (near.local_addr().unwrap().to_string(), far.local_addr().unwrap().to_string());
            for number in 0..20 {
                let sent = near.send_to(&vec![number; LENGTH], far.local_addr().unwrap());
                assert_eq!(sent.unwrap(), LENGTH);
                assert_eq!(far.recv(&mut vec![0; LENGTH]).unwrap(), LENGTH);
            }
        });
        let Some((events, _)) = found else { return };
        let places = between(&events, &ends.0, &ends.1);
        let read: Vec<u64> =
            places["datagram_read"].iter().map(|event| event.numbers["bytes"]).collect();
        assert_eq!(read, [LENGTH as u64; 20]);
        for name in PACKETS {
            let firsts: Vec<&&Event> =
                places[name].iter().filter(|event| event.numbers["length"] > 0).collect();
            let hashes: BTreeSet<u64> = firsts.iter().map(|first| first.numbers["hash"]).collect();
            assert_eq!(hashes.len(), 20);
            assert_eq!(firsts.len(), 20, "{name}");
            for first in firsts {
                assert_eq!(first.numbers["length"], LENGTH as u64);
                let id = first.numbers["fragment_id"];
                let same = |event: &&&Event| event.numbers["fragment_id"] == id;
                let parts: Vec<&&Event> = places[name].iter().filter(same).collect();
                let mut upto = 0;
                for part in &parts {
                    // The first has a header of 8 bytes before its content.
                    let header = if upto == 0 { 8 } else { 0 };
                    assert_eq!(part.numbers["fragment_offset"], upto);
                    upto += part.numbers["bytes"] + header;
                    let follow = part.numbers["fragments_follow"] == 1;
                    assert_eq!(follow, upto < LENGTH as u64 + 8, "{part:?}");
                }
                assert_eq!(upto, LENGTH as u64 + 8);
            }
        }
    }
}

/// What a socket has no room for, and what is for no socket, is told with the reason; all that was
/// sent was read or dropped.
#[test]
fn what_is_dropped_is_told_with_the_reason() {
    const DATAGRAMS: u64 = 500;
    let mut read = BTreeSet::new();
    let (mut near_at, mut far_at, mut nobody_at) = (String::new(), String::new(), String::new());
    let found = recorded(DROP, &["packet_drop"], &[], "drops", 16 << 20, || {
        let (near, far) = sockets((Ipv4Addr::LOCALHOST, 0).into());
        let to = far.local_addr().unwrap();
        setsockopt(&far, sockopt::RcvBuf, &0).unwrap();
        for number in 0..DATAGRAMS {
            near.send_to(&number.to_le_bytes(), to).unwrap();
        }
        far.set_nonblocking(true).unwrap();
        let mut bytes = [0; 8];
        while far.recv(&mut bytes).is_ok() {
            read.insert(u64::from_le_bytes(bytes));
        }
        (near_at, far_at) = (near.local_addr().unwrap().to_string(), to.to_string());
        let nobody = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        // Programs of the stack have packets with the second of these marks.
        for mark in [0x6c73, 0x6c74] {
            setsockopt(&near, sockopt::Mark, &mark).unwrap();
            near.send_to(b"nobody", nobody).unwrap();
        }
        nobody_at = nobody.to_string();
    });
    let Some((events, account)) = found else { return };
    assert_eq!(counted(&account, DROP), (events.len() as u64, 0));
    let dropped = between(&events, &near_at, &far_at).remove("packet_drop").unwrap();
    assert!(!read.is_empty() && !dropped.is_empty());
    assert_eq!(read.len() + dropped.len(), DATAGRAMS as usize);
    let hashes: BTreeSet<u64> = dropped.iter().map(|event| event.numbers["hash"]).collect();
    assert_eq!(hashes.len(), dropped.len());
    for event in dropped {
        assert_eq!(event.texts["reason"], "SOCKET_RCVBUFF");
        assert!(event.texts["function"].contains("udp"), "{event:?}");
        assert_eq!(event.numbers["protocol"], 17);
    }
    let unread = between(&events, &near_at, &nobody_at).remove("packet_drop").unwrap();
    let reasons: Vec<&str> = unread.iter().map(|event| event.texts["reason"].as_str()).collect();
    assert_eq!(reasons, ["NO_SOCKET"]);
}
