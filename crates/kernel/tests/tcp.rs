//! The ledger of TCP on this machine's kernel. Needs root, tracefs and a build with clang, and says
//! so where it cannot.

mod place;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use loopscope_ctf::Value;
use loopscope_kernel::programs::{self, TCP};
use loopscope_kernel::recorder::Recorder;
use loopscope_kernel::recording::{Account, Recording};
use loopscope_kernel::transcode::transcode;
use loopscope_time::source::read_counter;
use place::{Place, skip};

const KINDS: [&str; 7] =
    ["tcp_send", "tcp_receive", "tcp_ready", "tcp_read", "tcp_resend", "segment_out", "segment_in"];

#[derive(Debug)]
struct Event {
    name: String,
    counter: u64,
    tid: i64,
    /// Ticks by which the counter may be off: the test's counter has one for a nanosecond.
    within: u64,
    numbers: BTreeMap<String, u64>,
    texts: BTreeMap<String, String>,
}

fn events(trace: &Path) -> Vec<Event> {
    let mut found = vec![];
    place::records(trace, |_, class, record, fields| {
        let mut event = Event {
            name: class.name.clone(),
            counter: record.counter.0,
            tid: record.id,
            within: 0,
            numbers: BTreeMap::new(),
            texts: BTreeMap::new(),
        };
        for (name, value) in class.values(fields) {
            match value {
                Value::Unsigned(number) => {
                    event.numbers.insert(name.to_owned(), number);
                }
                Value::String(text) => {
                    let text = String::from_utf8_lossy(text).into_owned();
                    event.texts.insert(name.to_owned(), text);
                }
                other => panic!("{name} is {other:?}"),
            }
        }
        event.within = event.numbers.remove("within_ns").unwrap_or_default();
        found.push(event);
    });
    found.sort_by_key(|event| event.counter);
    found
}

/// Two ends of a connection, on loopback.
fn connection(address: SocketAddr) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nodelay(true).unwrap();
    let (far, _) = listener.accept().unwrap();
    (near, far)
}

/// Records what `work` does; `None`, loudly, where that is not possible.
fn recorded(test: &str, buffer: u64, work: impl FnOnce()) -> Option<(Vec<Event>, Account)> {
    let mut place = Place::make()?;
    let folder = tempfile::tempdir().unwrap();
    let mut request = place.request(folder.path(), test, buffer, &[]);
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
    let asked = KINDS.iter().map(|name| format!("bpf/{name}")).collect();
    request.programs = Some(programs::Request {
        classes: BTreeMap::from([(TCP.to_owned(), asked)]),
        namespaces: vec![u32::try_from(namespace).unwrap()],
    });
    let (recorder, recording) = Recorder::start(&request).unwrap();
    if let Some(error) = recorder.without.get(TCP) {
        skip::skipped(&error.to_string());
        return None;
    }
    assert_eq!(recording.absent, [""; 0]);
    place::check_cost(&recorder, TCP);
    assert_eq!(recording.classes[TCP].programs.len(), KINDS.len());
    work();
    let account = recorder.finish().unwrap();
    assert_eq!(account.problems, [""; 0]);
    transcode(folder.path(), folder.path()).unwrap();
    if !Recording::load(folder.path()).unwrap().threads_known {
        skip::skipped("threads have other numbers here than the kernel gives them");
        return None;
    }
    Some((events(&folder.path().join("trace")), account))
}

fn counted(account: &Account) -> (u64, u64) {
    let of_class = account.classes[TCP].values();
    of_class.fold((0, 0), |sum, each| (sum.0 + each.recorded, sum.1 + each.dropped))
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
        let ways = ["tcp_send", "segment_out", "segment_in", "tcp_receive"];
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
