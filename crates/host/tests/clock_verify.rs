//! The scenarios of `clock verify`, by the real program: bounds, statuses, attributions and epochs.
//! How small the errors are is not asked here, on a machine that others share, but in `make soak`
//! (tests/system/test_clock_service.py), which keeps what it measured.

#[path = "../../../tests/skip.rs"]
mod skip;

use std::collections::VecDeque;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::thread;

use nix::unistd::Uid;
use serde_json::Value;

/// Scenarios that go on at the same time: they mostly wait. What is asked here holds on a busy
/// machine too.
const AT_ONCE: usize = 4;

fn verify(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loopscope-host"));
    command.args(["clock", "verify"]).args(words).output().unwrap()
}

fn scenarios(words: &[&str]) -> Vec<Value> {
    let done = verify(words);
    let errors = String::from_utf8_lossy(&done.stderr);
    let told: Value = serde_json::from_slice(&done.stdout)
        .unwrap_or_else(|error| panic!("{error}; it said: {errors}"));
    told["scenarios"].as_array().unwrap().clone()
}

/// The exit code says whether all is met; what is asked of any machine is here.
fn holds(scenario: &Value) {
    let name = &scenario["name"];
    assert_eq!(scenario["violations"], 0, "{name}: {scenario:#}");
    assert!(scenario["instants"].as_u64().unwrap() >= 1_000_000, "{name}");
    for side in ["offline", "online"] {
        let figures = &scenario[side];
        assert!(figures["known"].as_u64().unwrap() > 50_000, "{name}: {figures:#}");
        assert!(figures["hard_half_width_ns"].as_f64().unwrap() > 0.0, "{name}");
    }
    let checks = scenario["checks"].as_array().unwrap();
    assert!(!checks.is_empty(), "{name}");
    let missed: Vec<&Value> = checks.iter().filter(|check| check["met"] != true).collect();
    assert!(missed.is_empty(), "{name}: {missed:#?}; changes told: {}", scenario["changes"]);
}

#[test]
#[ignore = "half a minute; run by make test-all"]
fn what_is_told_holds_whatever_happens() {
    if !Uid::effective().is_root() {
        skip::skipped("needs root to make network namespaces");
        return;
    }
    // The longest first. A change of the path shows in what comes for seconds after it.
    let (quick, long) = ("3s", "12s");
    let all = Mutex::new(VecDeque::from([
        ("holdover", quick),
        ("asymmetry-step", long),
        ("loaded", quick),
        ("eight", quick),
        ("lossy", quick),
        ("asymmetry", quick),
        ("counter-step", quick),
        ("rate-step", quick),
        ("forged", quick),
        ("idle", quick),
    ]));
    let next = || all.lock().unwrap().pop_front();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((name, duration)) = next() {
                    let told = scenarios(&[name, "--json", "--duration", duration]);
                    assert_eq!(told.len(), 1, "{name}");
                    told.iter().for_each(holds);
                }
            });
        }
    });
}

#[test]
fn a_name_that_is_none_is_met_with_the_nearest() {
    let done = verify(&["assymetry-step"]);
    assert_eq!(done.status.code(), Some(2));
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("no scenario assymetry-step: did you mean asymmetry-step?"), "{said}");
}
