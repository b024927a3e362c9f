//! `loopscope-host stack serve`, from its start to its end. Needs root.

#[path = "../../../tests/skip.rs"]
mod skip;

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use loopscope_engine::Engine;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

fn devices() -> String {
    let shown = Command::new("ip").args(["-o", "link"]).output().expect("ip runs");
    String::from_utf8(shown.stdout).expect("it is text")
}

fn serve(socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loopscope-host"));
    command.args(["stack", "serve", "--socket"]).arg(socket);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What `stack status` says, and on standard error.
fn shown(socket: &Path, words: &[&str]) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loopscope-host"));
    let done = command.args(["stack", "status", "--socket"]).arg(socket).args(words).output();
    let done = done.expect("it runs");
    assert_eq!(done.status.success(), done.stderr.is_empty());
    let [out, err] = [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap());
    (out, err)
}

fn first_line(service: &mut Child) -> String {
    let mut line = String::new();
    let out = service.stdout.as_mut().expect("it is a pipe");
    BufReader::new(out).read_line(&mut line).expect("it is text");
    line
}

#[test]
fn it_leaves_nothing() {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace can be made");
        let before = devices();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("made").join("stack.sock");
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGKILL] {
            let mut service = serve(&socket).spawn().unwrap();
            let line = first_line(&mut service);
            assert_eq!(line, format!("serving programs at {}\n", socket.display()));
            let engine = Engine::connect(&socket).unwrap();
            assert_ne!(devices(), before);
            assert_eq!(shown(&socket, &[]).0, "0 connections of 1 program by the stack\n");
            let json = serde_json::from_str::<serde_json::Value>(&shown(&socket, &["--json"]).0);
            assert_eq!(json.unwrap(), serde_json::json!({ "programs": 1, "connections": [] }));
            let second = serve(&socket).output().unwrap();
            let why = String::from_utf8(second.stderr).unwrap();
            assert!(!second.status.success() && why.contains("another service is there"), "{why}");
            kill(Pid::from_raw(service.id().cast_signed()), signal).unwrap();
            let status = service.wait().unwrap();
            assert_eq!(status.success(), signal != Signal::SIGKILL, "{signal}: {status}");
            let begin = Instant::now();
            // That which was killed has a keeper.
            while devices() != before {
                assert!(begin.elapsed() < Duration::from_secs(10), "{signal}: {}", devices());
            }
            assert_eq!(folder.path().join("made").exists(), signal == Signal::SIGKILL);
            drop(engine);
            let (_, why) = shown(&socket, &[]);
            assert!(why.contains("no service of the stack answers"), "{why}");
            assert!(why.contains("start one as root: loopscope-host stack serve"), "{why}");
        }
    })
    .join()
    .expect("the test did not fail");
}

#[test]
fn an_ordinary_user_is_told_why_not() {
    if !geteuid().is_root() {
        return skip::skipped("another user needs root");
    }
    let folder = tempfile::tempdir().unwrap();
    let public = Command::new("chmod").arg("777").arg(folder.path()).status().unwrap();
    assert!(public.success());
    let done = serve(&folder.path().join("stack.sock")).uid(65534).gid(65534).output().unwrap();
    let why = String::from_utf8(done.stderr).unwrap();
    assert!(!done.status.success() && why.contains("root"), "{why}");
}
