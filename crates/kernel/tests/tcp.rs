//! The ledger of TCP on this machine's kernel. Needs root, tracefs and a build with clang, and says
//! so where it cannot.

mod place;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::Duration;

use loopscope_kernel::programs::TCP;
use loopscope_kernel::recording::Account;
use loopscope_time::source::read_counter;
use place::programs::{self, Event};

const KINDS: [&str; 8] = [
    "tcp_send",
    "tcp_receive",
    "tcp_ready",
    "tcp_read",
    "tcp_resend",
    "segment_queued",
    "segment_out",
    "segment_in",
];

/// Two ends of a connection, on loopback.
fn connection(address: SocketAddr) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nodelay(true).unwrap();
    let (far, _) = listener.accept().unwrap();
    (near, far)
}

fn recorded(test: &str, buffer: u64, work: impl FnOnce()) -> Option<(Vec<Event>, Account)> {
    programs::recorded(TCP, &KINDS, &[], test, buffer, work)
}

fn counted(account: &Account) -> (u64, u64) {
    programs::counted(account, TCP)
}

/// Each message goes from the writer's call to the segment to the other socket to the reader, in
/// this order, between the readings of the counter around it, to within what placing adds.
#[test]
fn a_message_is_followed_from_the_call_that_wrote_it_to_the_one_that_read_it() {
    const MESSAGES: usize = 20_000;
    for address in [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), (Ipv6Addr::LOCALHOST, 0).into()] {
        let own = i64::from(nix::unistd::gettid().as_raw());
        let mut calls = Vec::with_capacity(MESSAGES);
        let mut ends = (String::new(), String::new());
        let found = recorded("way", 64 << 20, || {
            let (mut near, mut far) = connection(address);
            ends = (near.local_addr().unwrap().to_string(), far.local_addr().unwrap().to_string());
            for number in 0..MESSAGES {
                let bytes = vec![7; 1 + number % 1000];
                let before = read_counter().0;
                near.write_all(&bytes).unwrap();
                far.read_exact(&mut vec![0; bytes.len()]).unwrap();
                calls.push((before, read_counter().0, bytes.len() as u64));
                if number % 2_000 == 0 {
                    sleep(Duration::from_millis(60));
                }
            }
        });
        let Some((events, account)) = found else { return };
        let (recorded, dropped) = counted(&account);
        assert_eq!((dropped, recorded), (0, events.len() as u64));
        let mine = |event: &&Event| {
            let end = |name: &str| event.texts.get(name).map(String::as_str);
            let here = [end("local"), end("source")].contains(&Some(&ends.0));
            let there = [end("local"), end("source")].contains(&Some(&ends.1));
            event.tid == own && (here || there) && event.numbers.get("bytes") != Some(&0)
        };
        // Acknowledgements and their ends are left out: of these the kernel decides.
        let sent: Vec<&Event> = events.iter().filter(mine).collect();
        let mut places: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for event in sent {
            places.entry(&event.name).or_default().push(event);
        }
        assert!(!places.contains_key("tcp_resend"));
        // A call that copies piece by piece tells of each, with the bytes that are left.
        let upto = |send: &Event| (send.numbers["seq"] + send.numbers["bytes"]) % (1 << 32);
        places.get_mut("tcp_send").unwrap().dedup_by_key(|send| upto(send));
        // A read that finds nothing new adjusts nothing, and the end of a connection is ready too.
        let ways = ["tcp_send", "segment_queued", "segment_out", "segment_in", "tcp_receive"];
        for name in ways {
            assert_eq!(places[name].len(), MESSAGES, "{name}");
        }
        let reads: BTreeMap<u64, &Event> =
            places["tcp_read"].iter().map(|read| (read.numbers["copied_seq"], *read)).collect();
        for (number, (before, after, bytes)) in calls.into_iter().enumerate() {
            let way: Vec<&Event> = ways.iter().map(|name| places[name][number]).collect();
            let (first, last) = (way[0], way[way.len() - 1]);
            assert!(before <= first.counter + first.within, "{number}: {before} {first:?}");
            for pair in way.windows(2) {
                let late = pair[1].counter + pair[1].within + pair[0].within;
                assert!(pair[0].counter <= late, "{number}: {pair:?}");
                assert_eq!(pair[0].numbers["seq"], pair[1].numbers["seq"]);
            }
            assert!(way.iter().all(|event| event.numbers["bytes"] == bytes));
            let end = (last.numbers["seq"] + bytes) % (1 << 32);
            let read = reads.get(&end).unwrap_or_else(|| panic!("nobody read message {number}"));
            assert!(last.counter <= read.counter + read.within + last.within, "{number}");
            assert!(read.counter <= after + read.within, "{number}: {read:?} {after}");
        }
    }
}

/// What finds no room is counted, and what was recorded is there: with a ring that is much too
/// small, all records are one or the other.
#[test]
fn what_finds_no_room_is_counted() {
    const MESSAGES: u64 = 50_000;
    let mut port = 0;
    let found = recorded("room", 1, || {
        let (mut near, mut far) = connection((Ipv4Addr::LOCALHOST, 0).into());
        port = near.local_addr().unwrap().port();
        for _ in 0..MESSAGES {
            near.write_all(b"x").unwrap();
            far.read_exact(&mut [0]).unwrap();
        }
    });
    let Some((events, account)) = found else { return };
    let (recorded, dropped) = counted(&account);
    assert_eq!(recorded, events.len() as u64);
    assert!(dropped > 0, "the test makes too few events");
    // Others may have used loopback meanwhile, which only adds.
    assert!(recorded + dropped >= MESSAGES * 5, "{recorded} + {dropped}");
    let gaps = account.classes[TCP].values().flat_map(|counts| &counts.gaps);
    assert_eq!(gaps.map(|gap| gap.2).sum::<u64>(), dropped);
}
