//! Counts of threads, as an ordinary user may read them.

mod place;

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use loopscope_ctf::Value;
use loopscope_kernel::samples::{CLASS, Request, Sampler};
use loopscope_kernel::transcode::transcode;
use loopscope_time::Frequency;
use loopscope_time::source::read_counter;

/// A process that runs for a while and then sleeps, and one that it has started: the counts of both
/// are there, grow, are stamped between the begin and the end, and as many as the account says.
#[test]
fn counts_of_a_process_and_of_those_that_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done; sleep 20 & sleep 20";
    let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
    let (root, begin) = (child.id(), read_counter().0);
    let (sampler, recording) = Sampler::start(Request {
        folder: folder.path().to_owned(),
        host: "h1".to_owned(),
        clock_uuid: [7; 16],
        frequency: Frequency::from_hz(1_000_000_000).unwrap(),
        period: Duration::from_millis(2),
        roots: Box::new(move || vec![root]),
    })
    .unwrap();
    assert_eq!(recording.classes.keys().collect::<Vec<_>>(), [CLASS]);
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
        assert_eq!((class.group.as_str(), class.name.as_str()), ("kernel", CLASS));
        let values: std::collections::BTreeMap<&str, Value> = class.values(fields).collect();
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
