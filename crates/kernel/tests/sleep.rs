//! On what threads sleep, as programs in this machine's kernel record it. Needs root, tracefs and a
//! build with clang, and says so where it cannot.

mod place;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use loopscope_ctf::Value;
use loopscope_kernel::programs::{self, SLEEP, THROTTLED};
use loopscope_kernel::recorder::Recorder;
use loopscope_kernel::transcode::transcode;
use loopscope_time::source::read_counter;
use nix::sys::resource::{UsageWho, getrusage};
use place::{Place, skip};

/// A thread that leaves its processor to wait.
#[derive(Debug)]
struct Sleep {
    interruptible: bool,
    counter: u64,
    tid: i64,
    within: u64,
    syscall: String,
    stack: String,
}

/// What programs recorded, and what tracefs says of the same: thread and counter.
fn read(trace: &Path) -> (Vec<Sleep>, Vec<(i64, u64)>) {
    let (mut sleeps, mut switches) = (vec![], vec![]);
    place::records(trace, |_, class, record, fields| {
        let values: BTreeMap<&str, Value> = class.values(fields).collect();
        let text = |name: &str| match values[name] {
            Value::String(text) => String::from_utf8_lossy(text).into_owned(),
            ref other => panic!("{name} is {other:?}"),
        };
        let number = |name: &str| match values[name] {
            Value::Unsigned(number) => number,
            Value::Signed(number) => number.cast_unsigned(),
            ref other => panic!("{name} is {other:?}"),
        };
        match class.name.as_str() {
            name @ ("interruptible_sleep" | "uninterruptible_sleep") => sleeps.push(Sleep {
                interruptible: name == "interruptible_sleep",
                counter: record.counter.0,
                tid: record.id,
                within: number("within_ns"),
                syscall: text("syscall"),
                stack: text("stack"),
            }),
            "sched_switch" if number("prev_state") & 0x0f != 0 => {
                switches.push((record.id, record.counter.0));
            }
            _ => {}
        }
    });
    sleeps.sort_by_key(|sleep| sleep.counter);
    switches.sort_unstable();
    (sleeps, switches)
}

/// The most ticks of the counter in so many nanoseconds: no processor's counts faster than 10 GHz.
const fn ticks(nanoseconds: u64) -> u64 {
    10 * nanoseconds
}

/// Each sleep of a thread is there once, at the switch that tracefs tells of, with the system call
/// that it was in.
#[test]
fn each_sleep_has_the_system_call_and_the_functions_it_is_in() {
    const TIMES: usize = 200;
    let Some(mut place) = Place::make() else { return };
    let folder = tempfile::tempdir().unwrap();
    let events = ["sched/sched_switch"];
    let mut request = place.request(folder.path(), "sleep", 16 << 20, &events);
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
    request.programs = Some(programs::Request {
        classes: BTreeMap::from([(
            SLEEP.to_owned(),
            ["interruptible_sleep", "uninterruptible_sleep", THROTTLED]
                .map(|name| format!("bpf/{name}"))
                .to_vec(),
        )]),
        namespaces: vec![u32::try_from(namespace).unwrap()],
        numbers: vec![],
        chosen: programs::Chosen::default(),
    });
    let (recorder, recording) = Recorder::start(&request).unwrap();
    if let Some(error) = recorder.without.get(SLEEP) {
        skip::skipped(&error.to_string());
        return;
    }
    // Not every kernel tells of it.
    if recording.absent.is_empty() {
        place::check_cost(&recorder, "sleep:throttled");
    } else {
        assert_eq!(recording.absent, ["bpf/throttled"]);
    }
    place::check_cost(&recorder, "sleep:interruptible_sleep");
    place::check_cost(&recorder, "sleep:uninterruptible_sleep");
    let own = i64::from(nix::unistd::gettid().as_raw());
    let begin = read_counter().0;
    let switched = || getrusage(UsageWho::RUSAGE_THREAD).unwrap().voluntary_context_switches();
    let before = switched();
    for _ in 0..TIMES {
        thread::sleep(Duration::from_micros(200));
    }
    let slept = usize::try_from(switched() - before).unwrap();
    let pair = Arc::new((Mutex::new(false), Condvar::new()));
    for _ in 0..TIMES {
        let other = Arc::clone(&pair);
        let setter = thread::spawn(move || {
            thread::sleep(Duration::from_millis(1));
            *other.0.lock().unwrap() = true;
            other.1.notify_one();
        });
        let set = pair.1.wait_while(pair.0.lock().unwrap(), |set| !*set).unwrap();
        drop(set);
        *pair.0.lock().unwrap() = false;
        setter.join().unwrap();
    }
    for _ in 0..TIMES {
        // The parent sleeps in the kernel until the child has become another program.
        Command::new("true").status().unwrap();
    }
    let switched = usize::try_from(switched() - before).unwrap();
    let end = read_counter().0;
    let account = recorder.finish().unwrap();
    assert_eq!(account.problems, [""; 0]);
    transcode(folder.path(), folder.path()).unwrap();
    if !recording.threads_known {
        skip::skipped("threads have other numbers here than the kernel gives them");
        return;
    }
    let (sleeps, switches) = read(&folder.path().join("trace"));
    let counts = account.classes[SLEEP].values();
    let (recorded, dropped) =
        counts.fold((0, 0), |sum, each| (sum.0 + each.recorded, sum.1 + each.dropped));
    assert_eq!((recorded, dropped), (sleeps.len() as u64, 0));
    // The two do not begin and end at the same instant.
    let is_mine = |tid: i64, counter: u64| tid == own && (begin..end).contains(&counter);
    let mine: Vec<&Sleep> =
        sleeps.iter().filter(|sleep| is_mine(sleep.tid, sleep.counter)).collect();
    let told: Vec<u64> = switches
        .iter()
        .filter(|&&(tid, counter)| is_mine(tid, counter))
        .map(|(_, counter)| *counter)
        .collect();
    assert_eq!(mine.len(), told.len(), "{mine:?}");
    // Both are recorded at one switch, one after the other: whatever holds up the processor in
    // between, neither lies among the records of the sleep before or of the sleep after.
    let mut before = begin;
    for (sleep, counter) in mine.iter().zip(told) {
        let first = counter.min(sleep.counter);
        assert!(first + ticks(sleep.within) > before, "{before} {counter} {sleep:?}");
        before = counter.max(sleep.counter);
    }
    let of = |syscall: &str, interruptible: bool| {
        let found = mine.iter().filter(|sleep| sleep.interruptible == interruptible);
        found.filter(|sleep| sleep.syscall == syscall).count()
    };
    assert_eq!((mine.len(), of("clock_nanosleep", true)), (switched, slept), "{mine:?}");
    // What a thread waits for may have happened before it sleeps, so some calls do not sleep.
    let in_clone = of("clone3", false) + of("clone", false) + of("vfork", false);
    let seldom = [slept, of("futex", true), in_clone].into_iter().min().unwrap();
    assert!(seldom > TIMES / 4, "{seldom} {mine:?}");
    for sleep in &mine {
        // The kernel tells what it waits for where it does on a program's behalf, and of that only
        // what it is about: neither the program nor what calls it.
        let stack: Vec<&str> = sleep.stack.split(';').collect();
        let born = stack.iter().any(|name| name.contains("clone") || name.contains("fork"));
        let child = ["clone3", "clone", "vfork"].contains(&sleep.syscall.as_str());
        assert_eq!(sleep.interruptible, sleep.stack.is_empty(), "{sleep:?}");
        assert!(sleep.interruptible || !child || born, "{sleep:?}");
        assert!(!sleep.stack.contains("bpf"), "{sleep:?}");
    }
}
