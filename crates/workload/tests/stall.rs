//! Stalls as processes.

mod programs;
#[path = "../../../tests/skip.rs"]
mod skip;

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use programs::{Component, Ended, Program, events, phase};
use serde_json::{Value, json};

#[test]
fn the_program() {
    programs::be_the_program();
}

const MS: u64 = 1_000_000;

fn result(ended: &Ended) -> Value {
    assert_eq!(ended.stdout.len(), 1, "{:?} {}", ended.stdout, ended.stderr);
    serde_json::from_str(&ended.stdout[0]).unwrap()
}

/// Intended begin, begin and end of each; no two overlap and none is early or short.
fn stalls(result: &Value, length: u64) -> Vec<(u64, u64, u64)> {
    let ns = |value: &Value| value.as_u64().unwrap();
    let stalls: Vec<(u64, u64, u64)> = result["stalls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stall| {
            let taken = &stall["taken"];
            assert!(ns(&taken["cpu_ns"]) > 0);
            (ns(&stall["intended_ns"]), ns(&taken["begin_ns"]), ns(&taken["end_ns"]))
        })
        .collect();
    for (intended, begin, end) in &stalls {
        assert!(begin >= intended, "{stalls:?}");
        assert!(end - begin >= length, "{stalls:?}");
    }
    for pair in stalls.windows(2) {
        assert!(pair[1].1 >= pair[0].2, "{stalls:?}");
    }
    stalls
}

#[test]
fn an_ordinary_thread_stalls_when_it_should_and_says_so_in_events() {
    let dir = tempfile::tempdir().unwrap();
    // So far apart that only a stall of the machine itself makes it skip one.
    let words = "stall --priority 0 --at 20ms,1s,2s --length 10ms --json";
    let ended = Program::recorded(words, dir.path()).end();
    assert!(ended.success, "{}", ended.stderr);
    let result = result(&ended);
    assert_eq!(result["policy"], "other");
    let stalls = stalls(&result, 10 * MS);
    let intended: Vec<u64> = stalls.iter().map(|stall| stall.0).collect();
    assert_eq!(intended, [20 * MS, 1000 * MS, 2000 * MS]);
    let events = events(dir.path());
    for entity in ["stall:began", "stall:stall", "stall:ended"] {
        let ids: Vec<i64> = events.iter().filter(|e| e.entity == entity).map(|e| e.id).collect();
        assert_eq!(ids, [1, 2, 3], "{entity}");
    }
    let began = events.iter().filter(|event| event.entity == "stall:began");
    for (event, (intended, begin, _)) in began.zip(&stalls) {
        assert_eq!(u64::from_le_bytes(event.payload[..8].try_into().unwrap()), begin - intended);
    }
}

/// Policy and priority of the program's thread that stalls, once there is one.
fn scheduling(pid: i32) -> Option<(u32, u32)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    for task in tasks.flatten() {
        let comm = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if comm.trim() != "stall" {
            continue;
        }
        let stat = fs::read_to_string(task.path().join("stat")).ok()?;
        // Behind the name in brackets: the state is field 3, rt_priority 40, policy 41 of proc(5).
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        return Some((fields[41 - 3].parse().ok()?, fields[40 - 3].parse().ok()?));
    }
    None
}

#[test]
fn a_real_time_thread_is_one() {
    let words = "stall --priority 7 --every 200ms --count 5 --length 50ms --json";
    let program = Program::start(words);
    let mut seen = None;
    // Until the thread is real-time or the program has ended.
    while Path::new(&format!("/proc/{}/task", program.pid())).exists() && seen != Some((1, 7)) {
        seen = scheduling(program.pid());
        if fs::read_to_string(format!("/proc/{}/stat", program.pid()))
            .is_ok_and(|stat| stat.contains(") Z "))
        {
            break;
        }
    }
    let ended = program.end();
    if !ended.success && ended.stderr.contains("is not permitted; run as root") {
        skip::skipped("needs root or an rtprio limit for SCHED_FIFO");
        return;
    }
    assert!(ended.success, "{}", ended.stderr);
    // SCHED_FIFO is 1.
    assert_eq!(seen, Some((1, 7)));
    let result = result(&ended);
    assert_eq!((&result["policy"], &result["priority"]), (&json!("fifo"), &json!(7)));
    assert_eq!(stalls(&result, 50 * MS).len(), 5);
}

#[test]
fn what_cannot_be_is_refused_with_the_remedy() {
    for (words, reason) in [
        // Nearly all of a CPU: the throttle would cut in, for every user.
        ("--every 100ms --length 95ms", "make them shorter or rarer, or take priority 0"),
        ("--at 0s --length 1s", "of what the kernel's throttle allows (sched_rt_runtime_us)"),
        ("--at 1s,1s --length 1ms", "would overlap 0 ms apart"),
        ("--every 10ms --length 5ms --jitter 6ms", "with jitter 6 ms would overlap 10 ms apart"),
        ("", "say when to stall: by `at`, as in 1s,2.5s, or by `every`"),
        ("--at 1s --every 1s", "`at` and `every` both say when"),
        ("--at 1s --count 3", "`count` is for `every`"),
        ("--at 1s,soon", "`at`: `soon` is not a duration"),
        ("--every 1s --count 1 --priority 0 --cpu 60000", "`cpu` is 60000"),
        ("--every 1s --priority 100", "`priority` is 100; it must be at most 99"),
    ] {
        let words = format!("stall {words}");
        let error = Program::start(words.trim()).error();
        assert!(error.contains(reason), "{words}: {error}");
    }
}

#[test]
fn an_interrupted_program_reports_what_it_did() {
    let dir = tempfile::tempdir().unwrap();
    let words = "stall --priority 0 --every 1h --json";
    let program = Program::recorded(words, dir.path());
    // Its thread is there, so it heeds signals.
    while scheduling(program.pid()).is_none() {
        std::thread::yield_now();
    }
    program.signal(Signal::SIGINT);
    let ended = program.end();
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert_eq!(result(&ended)["stalls"], json!([]));
}

#[test]
fn in_an_experiment_times_count_from_its_phase() {
    // A number of stalls holds the phase.
    let dir = tempfile::tempdir().unwrap();
    let with = json!({"at": "5ms", "length": "1ms", "priority": 0});
    let mut component = Component::start_in(dir.path(), "cause", "stall", with, &["run"]);
    phase("run", &mut [&mut component], &mut json!({}));
    assert_eq!(stalls(&Component::result(dir.path()), MS)[0].0, 5 * MS);
    assert!(component.end().success);

    // Endless ones go on behind it.
    let dir = tempfile::tempdir().unwrap();
    let with = json!({"every": "20ms", "length": "1ms", "priority": 0, "json": true});
    let mut component =
        Component::start_in(dir.path(), "cause", "stall --begin steady", with, &["steady"]);
    phase("steady", &mut [&mut component], &mut json!({}));
    assert!(!dir.path().join("result.json").exists());
    let ended = component.end();
    assert!(ended.success, "{}", ended.stderr);
    assert_eq!(result(&ended), Component::result(dir.path()));

    let mut component =
        Component::start("cause", "stall", json!({"every": "1s", "lenght": "1ms"}), &["run"]);
    component.enter("run", &json!({}));
    assert!(component.failure("run").contains("`lenght` is not a setting"));
}
