//! Two machines on which programs run, with and without the library.
#![allow(dead_code)] // Each test program uses a part of it.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;
use tempfile::TempDir;

use crate::skip;
use crate::world::{Machine, PATIENCE, Serving, network};

pub fn in_thread(test: impl FnOnce() + Send + 'static) {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    std::thread::spawn(test).join().expect("the test did not fail");
}

/// The library, which cargo has built next to this program.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let library = folder.join("libloopscope_preload.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// The program of `talk.c`.
pub fn talk() -> &'static Path {
    static TALK: OnceLock<Compiled> = OnceLock::new();
    &TALK.get_or_init(|| compile("talk.c", &[])).path
}

/// A program that was compiled.
pub struct Compiled {
    pub path: PathBuf,
    _folder: TempDir,
}

/// Compiles a program of this folder, with these words as well.
pub fn compile(source: &str, words: &[&str]) -> Compiled {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    let sources = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"));
    let made = Command::new("cc")
        .args(["-O2", "-D_FORTIFY_SOURCE=2", "-pthread"])
        .args(words)
        .arg(sources.join(source))
        .arg("-o")
        .arg(&path)
        .status()
        .expect("there is a C compiler");
    assert!(made.success());
    Compiled { path, _folder: folder }
}

/// Two machines; each may have a service.
pub struct World {
    /// How threads wait.
    pub receive: &'static str,
    pub machine: Machine,
    pub here: Option<Serving>,
    pub there: Option<Serving>,
    pub folder: TempDir,
}

/// Where a program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum At {
    Here,
    There,
}
pub use At::{Here, There};

impl World {
    pub fn make(services: bool) -> World {
        let machine = network();
        let here = services.then(Serving::start);
        let there = services.then(|| machine.run(Serving::start));
        let world = World {
            receive: "adaptive",
            machine,
            here,
            there,
            folder: tempfile::tempdir().unwrap(),
        };
        // Programs become other users, who write their lines as well.
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        mode(world.folder.path(), 0o755);
        for at in [Here, There] {
            std::fs::write(world.explain(at), "").unwrap();
            mode(&world.explain(at), 0o666);
        }
        world
    }

    pub fn explain(&self, at: At) -> PathBuf {
        self.folder.path().join(if at == Here { "here" } else { "there" })
    }

    /// Has a program run there; `preload`: with the library.
    pub fn start(
        &self,
        at: At,
        preload: bool,
        program: impl AsRef<Path>,
        words: &[&str],
    ) -> Running {
        let mut command = Command::new(program.as_ref());
        self.spawn(at, preload, command.args(words).stdin(Stdio::null()))
    }

    /// Has a prepared command run there; `preload`: with the library.
    pub fn spawn(&self, at: At, preload: bool, command: &mut Command) -> Running {
        let serving = if at == Here { &self.here } else { &self.there };
        let path = serving.as_ref().map_or(Path::new("/nonexistent"), Serving::at);
        self.run(preload.then_some(path), at, command)
    }

    /// Has a program run there, with the library and a service at this path.
    pub fn start_by(&self, path: &Path, at: At, program: &Path, words: &[&str]) -> Running {
        self.run(Some(path), at, Command::new(program).args(words).stdin(Stdio::null()))
    }

    fn run(&self, service: Option<&Path>, at: At, command: &mut Command) -> Running {
        // With all that it starts, it can be ended.
        command.stdout(Stdio::piped()).process_group(0);
        if let Some(path) = service {
            command
                .env("LD_PRELOAD", library())
                .env("LOOPSCOPE_STACK", path)
                .env("LOOPSCOPE_STACK_RECEIVE", self.receive)
                .env("LOOPSCOPE_STACK_EXPLAIN", self.explain(at));
        }
        let mut spawn = || command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut child = if at == Here { spawn() } else { self.machine.run(spawn) };
        let out = BufReader::new(child.stdout.take().unwrap());
        Running { child, out }
    }

    /// Waits until a program listens at this port there.
    pub fn wait_for(&self, port: u16) {
        let begin = Instant::now();
        let wanted = format!(":{port:04X} ");
        let is_there = || {
            let sockets = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
            // The fourth field, 0A, is the state of a socket that listens.
            sockets.lines().any(|line| {
                let mut fields = line.split_inclusive(' ').filter(|field| field.len() > 1);
                let local = fields.nth(1).unwrap_or_default();
                local.ends_with(&wanted) && fields.nth(1) == Some("0A ")
            })
        };
        while !self.machine.run(is_there) {
            assert!(begin.elapsed() < PATIENCE, "nothing listens at port {port}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn talk(&self, at: At, preload: bool, words: &str) -> Running {
        self.start(at, preload, talk(), &words.split(' ').collect::<Vec<_>>())
    }

    /// The last line of each socket that was connected, in the order of their ends.
    pub fn explained(&self, at: At) -> Vec<Value> {
        let text = std::fs::read_to_string(self.explain(at)).unwrap_or_default();
        let mut last: Vec<Value> = vec![];
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).expect(line);
            let of = |line: &Value| [line["process"].clone(), line["socket"].clone()];
            last.retain(|other| of(other) != of(&line));
            last.push(line);
        }
        last.retain(|line| !line["peer"].is_null());
        last
    }

    /// The one connection of a program.
    pub fn connection(&self, at: At) -> Value {
        let lines = self.explained(at);
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.into_iter().next().unwrap()
    }
}

/// A program that runs. It ends with this, and so do those that it has started.
pub struct Running {
    pub child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    /// Waits for a line.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// What it says until it ends without an error.
    pub fn end(self) -> String {
        text(self.bytes())
    }

    /// The same, which may be no text.
    pub fn bytes(self) -> Vec<u8> {
        let (status, said) = self.wait();
        assert!(status.success(), "{status}: {}", text(said));
        said
    }

    /// Asks it to end; what it says until then.
    pub fn stop(self, signal: Signal) -> String {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
        text(self.wait().1)
    }

    fn wait(mut self) -> (ExitStatus, Vec<u8>) {
        let mut said = vec![];
        let (ended, end) = std::sync::mpsc::channel::<()>();
        let process = Pid::from_raw(self.child.id() as i32);
        // One that hangs says nothing for ever.
        let guard = std::thread::spawn(move || {
            if end.recv_timeout(3 * PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let _ = killpg(process, Signal::SIGKILL);
            }
        });
        self.out.read_to_end(&mut said).unwrap();
        drop(ended);
        guard.join().unwrap();
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, said);
            }
            assert!(begin.elapsed() < PATIENCE, "it does not end: {}", text(said));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn text(said: Vec<u8>) -> String {
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    if said.contains(char::REPLACEMENT_CHARACTER) { format!("{} bytes", said.len()) } else { said }
}

impl Drop for Running {
    fn drop(&mut self) {
        // While nobody has waited for it, its number is no other group's.
        if let Ok(None) = self.child.try_wait() {
            let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// Whether the stack had nearly all of what came, by the kernel's count.
pub fn assert_accelerated(line: &Value) {
    let [stack, all] = ["received_by_stack", "received"].map(|key| line[key].as_u64());
    let (stack, all) = stack.zip(all).unwrap_or_else(|| panic!("{line}"));
    assert!(stack as f64 >= 0.99 * all as f64, "{stack} of {all}: {line}");
    let [stack, all] = ["written_to_stack", "written"].map(|key| line[key].as_u64().unwrap());
    assert!(stack as f64 >= 0.99 * all as f64, "{stack} of {all}: {line}");
}

/// The ends that have the library.
pub const ENDS: [[bool; 2]; 3] = [[true, true], [true, false], [false, true]];

/// The interpreter itself: what finds it may be a script.
pub fn python3() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let words = ["-c", "import sys; print(sys.executable)"];
        let found = Command::new("python3").args(words).output().expect("there is Python");
        String::from_utf8(found.stdout).unwrap().trim().to_owned()
    })
}
