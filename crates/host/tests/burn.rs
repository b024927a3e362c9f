//! Competing load, by the real program: its processes are that program too.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn burn(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loopscope-host"));
    command.arg("burn").args(words.split_whitespace()).stdin(Stdio::null());
    command.env_remove("LOOPSCOPE_PHASE_FD").env_remove("LOOPSCOPE_COMPONENT");
    command
}

fn result(words: &str) -> Value {
    let done = burn(words).arg("--json").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

fn error(words: &str) -> String {
    let done = burn(words).output().unwrap();
    assert!(!done.status.success());
    String::from_utf8(done.stderr).unwrap()
}

/// Starts a load and waits until it burns.
fn burning(command: &mut Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "burning\n");
    (child, stdout)
}

/// On a disk, unlike many a /tmp.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

/// Compile-like processes that `pid` has started, even if their parent is another process now.
fn processes(pid: u32) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // Empty for a zombie, which its reaper has yet to wait for.
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|&byte| byte == 0).collect();
        let started = words
            .windows(2)
            .any(|pair| pair[0] == b"--parent" && pair[1] == pid.to_string().as_bytes());
        if started {
            found.push(number);
        }
    }
    found
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what} does not come");
        std::thread::yield_now();
    }
}

/// Time that a hypervisor gave to others, in seconds of all processors (`man 5 proc_stat`). The
/// kernel counts it as CPU time of the threads that it was taken from.
fn stolen_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks: f64 = stat.split_whitespace().nth(8).unwrap().parse().unwrap();
    ticks / 100.0
}

#[test]
fn threads_take_no_more_than_their_share() {
    for kind in ["arithmetic", "cache", "memory"] {
        let words =
            format!("--kind {kind} --threads 2 --cpu-share 2% --duration 1s --working-set 1MiB");
        let before = stolen_s();
        let result = result(&words);
        let stolen = stolen_s() - before;
        let threads = result["threads"].as_array().unwrap();
        assert_eq!(threads.len(), 2);
        for thread in threads {
            let number = |key: &str| thread[key].as_f64().unwrap();
            // What was stolen in one second is a share, too.
            let share = thread["shares"]["mean"].as_f64().unwrap();
            assert!(share <= 0.03 + stolen, "{thread}");
            // Making the working set is in no period, and takes 10 ms and more on a busy machine. A
            // thread without a bound takes more than this on any.
            assert!(number("cpu_s") <= 0.03 * number("wall_s") + 0.1 + stolen, "{thread}");
            assert!(number("cpu_s") > 0.0);
            assert_eq!(thread["lines"].is_null(), kind == "arithmetic");
        }
        assert!(result["cpu"]["share"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn nothing_is_left_of_a_killed_load() {
    let home = directory();
    let words = "--kind compile --threads 2 --job 1h --disk-size 4MiB --disk .";
    let (mut child, _stdout) = burning(burn(words).current_dir(home.path()));
    until("a process", || !processes(child.id()).is_empty());
    // Not even while it runs is there a name.
    assert!(is_empty(home.path()));
    child.kill().unwrap();
    child.wait().unwrap();
    until("the end of its processes", || processes(child.id()).is_empty());
    assert!(is_empty(home.path()));
}

#[test]
fn a_signal_ends_the_load_with_its_report() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 0)] {
        let home = directory();
        let words = "--kind compile --job 1h --threads 2";
        let (mut child, mut stdout) = burning(burn(words).current_dir(home.path()));
        until("a process", || !processes(child.id()).is_empty());
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        let mut said = String::new();
        stdout.read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert!(said.contains(" cut off by the end"), "{said}");
        assert!(said.lines().last().unwrap().starts_with("burn: "), "{said}");
        assert!(processes(child.id()).is_empty());
        assert!(is_empty(home.path()));
    }
}

#[test]
fn compile_like_processes_come_and_go() {
    let home = directory();
    let words = format!(
        "--kind compile --threads 2 --job 1ms --duration 1s --disk-size 1MiB --disk {} --disk-rate \
         4MiB/s",
        home.path().display()
    );
    let result = result(&words);
    let number = |value: &Value| value.as_f64().unwrap();
    let compile = &result["compile"];
    assert!(number(&compile["processes"]) + number(&compile["cut"]) >= 2.0, "{compile}");
    if number(&compile["processes"]) > 0.0 {
        assert!(number(&compile["written_bytes"]) > 0.0);
        assert!(number(&result["cpu"]["processes"]["user_s"]) > 0.0);
    }
    let disk = &result["disk"];
    // A batch of 1 MiB may be ahead.
    let most = (4 << 20) as f64 * number(&disk["wall_s"]) + (1 << 20) as f64;
    assert!(number(&disk["written_bytes"]) <= most, "{disk}");
    assert_eq!(disk["written_bytes"], disk["read_bytes"]);
    assert_eq!(number(&disk["written_bytes"]), number(&disk["syncs"]) * (1 << 20) as f64);
    assert!(number(&disk["syncs"]) >= 1.0);
    assert!(is_empty(home.path()));
}

#[test]
fn the_disk_is_really_read_and_written() {
    let home = directory();
    let words =
        format!("--threads 0 --disk {} --disk-size 2MiB --disk-rate 8MiB/s", home.path().display());
    let (mut child, _stdout) = burning(&mut burn(&words));
    let io = |key: &str| -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim_start_matches(':').trim().parse().unwrap()
    };
    until("a write", || io("write_bytes") > 0);
    // Reads of the block device, not of the page cache: pages are dropped before they are read.
    until("a read", || io("read_bytes") > 1 << 20);
    assert!(is_empty(home.path()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_empty(home.path()));
}

#[test]
fn bad_settings_are_named_with_their_remedy() {
    for (words, reason) in [
        ("--cpu-share 0%", "`cpu-share` is 0 %; it must be above 0 % and at most 100 %"),
        ("--cpu-share 150%", "`cpu-share` is 150 %"),
        ("--threads 0", "there is no load"),
        ("--period 1us", "`period` is 1µs; it must be between 1ms and 10s"),
        ("--kind compile --job 0s", "`job` is 0ns; it must be between 1ms and 1h"),
        ("--disk /proc", "cannot make a nameless file (O_TMPFILE) in /proc; name a directory"),
        ("--disk . --disk-size 1B", "`disk-size` is 1 B; it must be at least 65536 B"),
        ("--cpu-share 50", "it has no unit"),
    ] {
        let error = error(words);
        assert!(error.contains(reason), "{error}");
    }
    if Path::new("/dev/shm").is_dir() {
        let error = error("--disk /dev/shm");
        assert!(error.contains("/dev/shm is a tmpfs, which is memory"), "{error}");
    }
}

#[test]
fn a_process_without_its_parent_ends() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loopscope-host"));
    command.args(["compile-one", "--parent", "1", "--cpu", "1h", "--seed", "1"]);
    let done = command.output().unwrap();
    assert!(!done.status.success());
    assert!(String::from_utf8_lossy(&done.stderr).contains("burn is gone"));
}
