//! Counts of threads, as an ordinary user may read them.

mod place;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use loopscope_ctf::Value;
use loopscope_kernel::recording::Recording;
use loopscope_kernel::samples::{CLASS, Request, Sampler};
use loopscope_kernel::transcode::transcode;
use loopscope_time::Frequency;
use loopscope_time::source::read_counter;

/// Begins to look at a program.
fn looks_at(root: u32, folder: &Path) -> (Sampler, Recording) {
    Sampler::start(Request {
        folder: folder.to_owned(),
        host: "h1".to_owned(),
        clock_uuid: [7; 16],
        frequency: Frequency::from_hz(1_000_000_000).unwrap(),
        period: Duration::from_millis(2),
        roots: Box::new(move || vec![root]),
    })
    .unwrap()
}

/// A process that runs for a while and then sleeps, and one that it has started: the counts of both
/// are there, grow, are stamped between the begin and the end, and as many as the account says.
#[test]
fn counts_of_a_process_and_of_those_that_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done; sleep 20 & sleep 20";
    let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
    let (root, begin) = (child.id(), read_counter().0);
    let (sampler, recording) = looks_at(root, folder.path());
    assert_eq!(recording.classes.keys().collect::<Vec<_>>(), [CLASS, "tcpinfo"]);
    let patience = Instant::now() + Duration::from_secs(20);
    let children = || {
        let path = format!("/proc/{root}/task/{root}/children");
        std::fs::read_to_string(path).unwrap().split_whitespace().count()
    };
    while children() < 2 && Instant::now() < patience {
        sleep(Duration::from_millis(20));
    }
    sleep(Duration::from_millis(300));
    let account = sampler.finish().unwrap();
    let end = read_counter().0;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(account.problems, [""; 0]);
    transcode(folder.path(), folder.path()).unwrap();
    let mut found: Vec<(i64, u64, u64, u64, String)> = vec![];
    place::records(&folder.path().join("trace"), |_, class, record, fields| {
        if class.name == "tcp_info" {
            return;
        }
        assert_eq!((class.group.as_str(), class.name.as_str()), ("kernel", CLASS));
        let values: BTreeMap<&str, Value> = class.values(fields).collect();
        let number = |name: &str| match values[name] {
            Value::Unsigned(number) => number,
            ref other => panic!("{name} is {other:?}"),
        };
        let Value::String(name) = values["comm"] else { panic!("{:?}", values["comm"]) };
        assert_eq!(number("root"), u64::from(root));
        assert!((begin..end).contains(&record.counter.0));
        assert!(record.counter.0 + number("took_ns") <= end);
        let name = String::from_utf8_lossy(name).into_owned();
        found.push((record.id, record.counter.0, number("run_ns"), number("slices"), name));
    });
    let counts = &account.classes[CLASS][&0];
    assert_eq!((counts.recorded, counts.dropped), (found.len() as u64, 0));
    assert!(found.is_sorted_by_key(|each| each.1));
    let of_root: Vec<_> = found.iter().filter(|each| each.0 == i64::from(root)).collect();
    let (first, last) = (of_root[0], of_root[of_root.len() - 1]);
    assert!(last.2 > first.2 + 10_000_000, "{first:?} {last:?}");
    assert!(of_root.is_sorted_by_key(|each| (each.2, each.3)), "{of_root:?}");
    assert!(found.iter().any(|each| each.0 != i64::from(root) && each.4 == "sleep"), "{found:?}");
}

/// A connection whose reader takes nothing for a while: the kernel counts for how long the reader's
/// window was full, and what was acknowledged; and only the connections of the program are there.
#[test]
fn counts_of_the_connections_of_a_process() {
    const LENGTH: usize = 8 << 20;
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script =
        format!("exec 3<>/dev/tcp/127.0.0.1/{port}; head -c {LENGTH} /dev/zero >&3; read x <&3");
    let mut child = Command::new("bash").args(["-c", &script]).spawn().unwrap();
    let (root, begin) = (child.id(), read_counter().0);
    let (mut stream, program) = listener.accept().unwrap();
    let (sampler, _) = looks_at(root, folder.path());
    sleep(Duration::from_millis(600));
    stream.read_exact(&mut vec![0; LENGTH]).unwrap();
    sleep(Duration::from_millis(50));
    stream.write_all(b"\n").unwrap();
    let account = sampler.finish().unwrap();
    let end = read_counter().0;
    child.wait().unwrap();
    assert_eq!(account.problems, [""; 0]);
    transcode(folder.path(), folder.path()).unwrap();
    let mut found: Vec<BTreeMap<String, u64>> = vec![];
    place::records(&folder.path().join("trace"), |_, class, record, fields| {
        if class.name != "tcp_info" {
            return;
        }
        assert!((begin..end).contains(&record.counter.0));
        assert_eq!(record.id, i64::from(root));
        let mut numbers = BTreeMap::new();
        for (name, value) in class.values(fields) {
            match value {
                Value::Unsigned(number) => {
                    numbers.insert(name.to_owned(), number);
                }
                Value::String(text) => {
                    let address =
                        if name == "local" { program } else { listener.local_addr().unwrap() };
                    assert_eq!(String::from_utf8_lossy(text), address.to_string());
                }
                other => panic!("{name} is {other:?}"),
            }
        }
        found.push(numbers);
    });
    let counts = &account.classes["tcpinfo"][&0];
    assert_eq!((counts.recorded, counts.dropped), (found.len() as u64, 0));
    let last = found.last().unwrap();
    // The first byte and the last of a connection are its SYN and its FIN.
    assert!((LENGTH..LENGTH + 3).contains(&(last["bytes_acked"] as usize)), "{last:?}");
    assert!(last["rwnd_limited_us"] > 400_000, "{last:?}");
    assert_eq!(last["notsent_bytes"], 0, "{last:?}");
    assert!(last["snd_mss"] > 0 && last["snd_cwnd"] > 0 && last["rtt_us"] > 0, "{last:?}");
}
