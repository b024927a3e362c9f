//! `loopscope-host record`.

mod controller;

use std::path::Path;
use std::process::{Command, Output};

use controller::BINARY;

fn record(out: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(["record", "-o"]).arg(out).args(arguments);
    command.env("BINARY", BINARY).output().unwrap()
}

#[test]
fn the_programs_own_exit_code_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let code = |out: &str, script| {
        let output = record(&folder.path().join(out), &["--", "sh", "-c", script]);
        assert!(String::from_utf8_lossy(&output.stderr).contains("0 events emitted"));
        output.status.code()
    };
    assert_eq!(code("a", "exit 7"), Some(7));
    assert_eq!(code("b", "kill -9 $$"), Some(128 + 9));
    let taken = record(&folder.path().join("a"), &["true"]);
    assert_eq!(taken.status.code(), Some(2), "the command comes after --");
    let taken = record(&folder.path().join("a"), &["--", "true"]);
    assert!(String::from_utf8_lossy(&taken.stderr).contains("already holds a trace"));
    assert_eq!(taken.status.code(), Some(1));
    let missing = record(&folder.path().join("c"), &["--", "no-such-program"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no-such-program"));
    assert_eq!(missing.status.code(), Some(1));
}

#[test]
fn events_that_match_are_recorded_and_balance() {
    let folder = tempfile::tempdir().unwrap();
    // The sink says on standard error where it listens.
    let script = "$BINARY pipe sink --address 127.0.0.1 2> where & \
         until grep -q listening where; do :; done; \
         $BINARY pipe source --to \"$(sed -n 's/listening on //p' where)\" --count 50 --period 0ms \
         || kill $!; wait";
    let run = |out: &str, pattern: &str| {
        let out = folder.path().join(out);
        std::fs::create_dir(&out).unwrap();
        let script = format!("cd {}; {script}", out.display());
        let output = record(&out, &["-e", pattern, "--", "sh", "-c", &script]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let loss = std::fs::read_to_string(out.join("loss.json")).unwrap();
        let loss: serde_json::Value = serde_json::from_str(&loss).unwrap();
        (loss["recorded"].as_u64().unwrap(), said)
    };
    let (recorded, said) = run("all", "pipe:*");
    assert_eq!(recorded, 100);
    assert!(said.contains("100 events emitted = 100 recorded + 0 dropped"), "{said}");
    assert_eq!(run("sent", "*:sent").0, 50);
}
