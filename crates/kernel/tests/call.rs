//! System calls, as programs in this machine's kernel record them. Needs root, tracefs and a build
//! with clang, and says so where it cannot.

mod place;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::thread;
use std::time::{Duration, Instant};

use loopscope_ctf::Value;
use loopscope_kernel::programs::{self, CALL};
use loopscope_kernel::recorder::Recorder;
use loopscope_kernel::transcode::transcode;
use loopscope_time::source::read_counter;
use place::{Place, skip};

/// A system call that is over.
#[derive(Debug)]
struct Call {
    over: u64,
    duration: u64,
    within: u64,
    result: i64,
    name: String,
}

/// Each call of a thread is there once, between its own readings of the counter, with its result and
/// for as long as it took; those of a namespace that is not measured are not.
#[test]
fn each_call_is_there_with_its_time_and_result() {
    const TIMES: usize = 500;
    let Some(mut place) = Place::make() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut request = place.request(folder.path(), "call", 16 << 20, &["sched/sched_switch"]);
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
    request.programs = Some(programs::Request {
        classes: BTreeMap::from([(CALL.to_owned(), vec!["bpf/system_call".to_owned()])]),
        namespaces: vec![u32::try_from(namespace).unwrap()],
        numbers: vec![],
        chosen: programs::Chosen::default(),
    });
    let (recorder, recording) = Recorder::start(&request).unwrap();
    if let Some(error) = recorder.without.get(CALL) {
        skip::skipped(&error.to_string());
        return;
    }
    assert_eq!(recording.absent, Vec::<String>::new());
    place::check_cost(&recorder, "call:system_call");
    let own = i64::from(nix::unistd::gettid().as_raw());
    let mut calls = vec![];
    let since = Instant::now();
    for number in 0..TIMES {
        let before = read_counter().0;
        let sleep = number % 10 == 0;
        if sleep {
            thread::sleep(Duration::from_millis(1));
        } else {
            nix::unistd::close(-1).unwrap_err();
        }
        calls.push((before, read_counter().0, sleep));
    }
    let elapsed = since.elapsed();
    // Another namespace, whose calls are none of ours.
    let other = thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        for _ in 0..TIMES {
            let _ = nix::unistd::getppid();
        }
        i64::from(nix::unistd::gettid().as_raw())
    });
    let other = other.join().unwrap();
    let account = recorder.finish().unwrap();
    transcode(folder.path(), folder.path()).unwrap();
    if !recording.threads_known {
        skip::skipped("threads have other numbers here than the kernel gives them");
        return;
    }
    let (mut found, mut of_other) = (vec![], 0);
    place::records(&folder.path().join("trace"), |_, class, record, fields| {
        if class.name != "system_call" {
            return;
        }
        let values: BTreeMap<&str, Value> = class.values(fields).collect();
        let number = |name: &str| match values[name] {
            Value::Unsigned(number) => number,
            Value::Signed(number) => number.cast_unsigned(),
            ref other => panic!("{name} is {other:?}"),
        };
        let Value::String(name) = values["syscall"] else { panic!("{values:?}") };
        let name = String::from_utf8_lossy(name).into_owned();
        of_other += usize::from(record.id == other && name == "getppid");
        if record.id == own && matches!(name.as_str(), "close" | "clock_nanosleep") {
            found.push(Call {
                over: record.counter.0,
                duration: number("duration_ns"),
                within: number("within_ns"),
                result: number("result").cast_signed(),
                name,
            });
        }
    });
    assert_eq!(of_other, 0);
    let lost: u64 = account.classes[CALL].values().map(|counts| counts.dropped).sum();
    assert_eq!(lost, 0);
    found.sort_by_key(|call| call.over);
    let first = calls[0].0;
    found.retain(|call| call.over > first && (call.result == -9 || call.name != "close"));
    assert_eq!(found.len(), TIMES);
    // Ticks of the counter in a ns, as well as the calls of the loop tell it.
    let rate = (calls[TIMES - 1].1 - first) as f64 / elapsed.as_nanos() as f64;
    for (call, (before, after, sleep)) in found.iter().zip(calls) {
        let inexact = call.within as f64 + call.duration as f64 * 1e-3 + 1.0;
        let slack = (inexact * rate) as u64;
        assert!(before <= call.over + slack && call.over <= after + slack, "{call:?}");
        let begun = call.over as f64 - call.duration as f64 * rate;
        assert!(begun + slack as f64 >= before as f64, "{call:?} {before}");
        if sleep {
            assert_eq!((call.name.as_str(), call.result), ("clock_nanosleep", 0));
            assert!(call.duration >= 1_000_000, "{call:?}");
        } else {
            assert_eq!((call.name.as_str(), call.result), ("close", -9));
        }
    }
}
