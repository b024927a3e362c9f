//! `record::run` around a command: its exit, the signals it is sent, its output directory. Blocking
//! signals needs a process with one thread, so this test has a `main` of its own.

mod lab;

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lab::Lab;
use loopscope_collect::attach::{self, End};
use loopscope_collect::record::{Exit, Options, Outcome, run};
use loopscope_collect::{Error, LossReport, MAIN, StreamSpec};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn options(lab: &Lab, program: impl AsRef<Path>, arguments: &str) -> Options {
    let tally = lab.tally().into_os_string();
    let arguments = arguments.split_whitespace().map(OsString::from);
    let command = [program.as_ref().as_os_str().to_owned(), tally].into_iter().chain(arguments);
    Options {
        command: command.collect(),
        out: lab.out(),
        streams: vec![StreamSpec::default()],
        identity: lab::identity(),
        cost: None,
    }
}

fn main_loss(outcome: &Outcome) -> LossReport {
    outcome.losses.clone().into_stream(MAIN)
}

fn record(lab: &Lab, arguments: &str) -> Result<Outcome, Error> {
    run(&options(lab, lab::emit(), arguments), &mut |_, _| {})
}

fn runtime_dirs() -> Vec<OsString> {
    let Ok(entries) = std::fs::read_dir("/dev/shm") else { return Vec::new() };
    let names = entries.map(|e| e.unwrap().file_name());
    names.filter(|n| n.to_string_lossy().starts_with("loopscope-")).collect()
}

fn exits() {
    let lab = Lab::new(&StreamSpec::default());
    let outcome = record(&lab, "burst 100000").unwrap();
    assert_eq!((outcome.exit, main_loss(&outcome).emitted), (Exit::Code(0), 100_000));
    lab::check(&lab.out(), &main_loss(&outcome));
    let json = std::fs::read(lab.out().join("loss.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["emitted"], 100_000);
    assert_eq!(json["recorded"], main_loss(&outcome).recorded);
    assert_eq!(json["processes"][0]["process"], "emit");
    assert_eq!(json["processes"][0]["sites"][0]["entity"], "tally:handler");

    let taken = record(&lab, "burst 1").unwrap_err();
    assert!(matches!(taken, Error::TraceExists(_)), "{taken}");

    let lab = Lab::new(&StreamSpec::default());
    let outcome = record(&lab, "no-such-mode").unwrap();
    assert_eq!((outcome.exit, main_loss(&outcome).emitted), (Exit::Code(2), 0));

    let lab = Lab::new(&StreamSpec::default());
    let outcome = record(&lab, "killed 5").unwrap();
    assert_eq!((outcome.exit, main_loss(&outcome).recorded), (Exit::Signal(libc::SIGKILL), 5));

    let lab = Lab::new(&StreamSpec::default());
    let absent = run(&options(&lab, "/no/such/program", ""), &mut |_, _| {}).unwrap_err();
    assert_eq!(absent.to_string(), "cannot start \"/no/such/program\"");
    // Nothing is in the way of another try.
    assert_eq!(record(&lab, "burst 3").unwrap().losses.into_stream(MAIN).recorded, 3);
}

/// The program takes SIGTERM itself, emits once more, and exits with 7; this process, which the
/// signal was sent to, goes on.
fn forwards_signals() {
    let lab = Lab::new(&StreamSpec::default());
    let mut options = options(&lab, lab::emit(), "signal 10");
    let (ready, write_end) = std::io::pipe().unwrap();
    // Through a shell, so that the program's output reaches the pipe and not this test's output.
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&write_end);
    nix::fcntl::fcntl(&write_end, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))
        .unwrap();
    let script = format!("exec \"$0\" \"$@\" >&{descriptor}");
    options.command.splice(0..0, ["sh".into(), "-c".into(), script.into()]);
    let killer = Command::new("sh")
        .args(["-c", "read line && kill -TERM \"$0\""])
        .arg(std::process::id().to_string())
        .stdin(Stdio::from(ready))
        .spawn();
    let outcome = run(&options, &mut |_, _| {}).unwrap();
    drop(write_end);
    assert!(killer.unwrap().wait().unwrap().success());
    assert_eq!((outcome.exit, main_loss(&outcome).recorded), (Exit::Code(7), 20));
}

/// Signals are the caller's own again afterwards.
fn gives_signals_back() {
    let lab = Lab::new(&StreamSpec::default());
    record(&lab, "burst 1").unwrap();
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    // A blocked mask would be inherited, and the child would sleep on.
    let mut waited = Duration::ZERO;
    while child.try_wait().unwrap().is_none() {
        if waited > Duration::from_secs(20) {
            child.kill().unwrap();
            panic!("SIGTERM is still blocked");
        }
        std::thread::sleep(Duration::from_millis(5));
        waited += Duration::from_millis(5);
    }
}

/// A program that runs already is recorded for a while, and goes on.
fn attaches() {
    let lab = Lab::with(&[]);
    std::fs::remove_file(lab.runtime().join("streams")).unwrap();
    let mut child = lab.tallied(lab::emit(), "steady 1").spawn().unwrap();
    let done = || {
        let there = std::fs::metadata(lab.tally()).is_ok_and(|tally| tally.len() > 0);
        if there { lab.slots().iter().map(|slot| slot.done).sum::<u64>() } else { 0 }
    };
    while done() == 0 {
        std::thread::yield_now();
    }
    let mut options = attach::Options {
        pid: child.id(),
        out: lab.out(),
        streams: vec![StreamSpec::default()],
        identity: lab::identity(),
        cost: None,
        duration: None,
    };
    // A signal ends it.
    let own = Pid::this();
    let mut begin = None;
    let losses = attach::run(&options, &mut |_, _| {
        if done() > *begin.get_or_insert_with(&done) + 6000 {
            kill(own, Signal::SIGTERM).unwrap();
        }
    });
    let (end, losses) = losses.unwrap();
    assert_eq!(end, End::Signal);
    let loss = losses.into_stream(MAIN);
    assert!(loss.recorded >= 5000 && loss.processes[0].process == "emit");
    lab::check(&lab.out(), &loss);
    // So does its time.
    options.out = lab.out().with_file_name("second");
    options.duration = Some(Duration::from_millis(50));
    let (end, losses) = attach::run(&options, &mut |_, _| {}).unwrap();
    assert_eq!(end, End::Time);
    lab::check(&options.out, &losses.into_stream(MAIN));
    // So does the program's end.
    options.out = lab.out().with_file_name("third");
    options.duration = None;
    let mut begin = None;
    let ended = attach::run(&options, &mut |_, _| {
        if done() > *begin.get_or_insert_with(&done) + 6000 && child.try_wait().unwrap().is_none() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    });
    let (end, losses) = ended.unwrap();
    assert_eq!(end, End::Program);
    let loss = losses.into_stream(MAIN);
    assert!(loss.recorded >= 5000 && loss.torn <= 1);
    lab::check(&options.out, &loss);
    let gone = attach::run(&options, &mut |_, _| {}).unwrap_err();
    assert!(gone.to_string().contains("no process"), "{gone}");
    options.pid = std::process::id();
    let strange = attach::run(&options, &mut |_, _| {}).unwrap_err();
    assert!(matches!(strange, Error::Entities(_)), "{strange}");
}

fn main() {
    let before = runtime_dirs();
    exits();
    forwards_signals();
    gives_signals_back();
    attaches();
    assert_eq!(runtime_dirs(), before, "runtime directories are left");
    println!("signals: ok");
}
