//! Competing load in an experiment's phases. What it does is tested with the real program, in
//! addition to that.

mod programs;

use programs::{Component, phase};
use serde_json::json;

#[test]
fn the_program() {
    programs::be_the_program();
}

#[test]
fn the_load_lasts_to_the_end_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let with = json!({"threads": 1, "cpu-share": "5%"});
    let mut load = Component::start_in(dir.path(), "load", "burn", with, &["run"]);
    // Done when it has begun.
    phase("run", &mut [&mut load], &mut json!({}));
    let ended = load.end();
    assert!(ended.success, "{}", ended.stderr);
    assert_eq!(ended.stdout[0], "burning");
    assert!(ended.stdout.last().unwrap().starts_with("burn: "), "{:?}", ended.stdout);
    let result = Component::result(dir.path());
    assert_eq!(result["asked_share"], 0.05);
    assert_eq!(result["threads"].as_array().unwrap().len(), 1);
}

#[test]
fn the_load_ends_before_the_phase_that_is_to_be_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let words = "burn --begin loaded --end after";
    let with = json!({"cpu-share": "5%"});
    let mut load = Component::start_in(dir.path(), "load", words, with, &["loaded", "after"]);
    phase("loaded", &mut [&mut load], &mut json!({}));
    assert!(!dir.path().join("result.json").exists());
    phase("after", &mut [&mut load], &mut json!({}));
    assert_eq!(Component::result(dir.path())["program"], "burn");
    assert!(load.end().success);
}

#[test]
fn a_duration_holds_the_phase() {
    let dir = tempfile::tempdir().unwrap();
    let with = json!({"cpu-share": "5%", "duration": "50ms"});
    let mut load = Component::start_in(dir.path(), "load", "burn", with, &["run"]);
    phase("run", &mut [&mut load], &mut json!({}));
    let result = Component::result(dir.path());
    assert!(result["wall_s"].as_f64().unwrap() >= 0.05);
    assert!(load.end().success);

    let mut load = Component::start("load", "burn", json!({"cpu-share": 50}), &["run"]);
    load.enter("run", &json!({}));
    assert!(load.failure("run").contains("`cpu-share`: `50` is not a ratio: it has no unit"));
}
