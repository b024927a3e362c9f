//! Programs that know nothing of the stack, with and without the library. Needs root.

#[path = "../../../tests/skip.rs"]
mod skip;
#[path = "../../stack-service/tests/world/mod.rs"]
mod world;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use nix::unistd::geteuid;
use serde_json::Value;
use tempfile::TempDir;
use world::{Machine, OWN, PATIENCE, Serving, network};

fn in_thread(test: impl FnOnce() + Send + 'static) {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    std::thread::spawn(test).join().expect("the test did not fail");
}

/// The library, which cargo has built beside this program.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().and_then(Path::parent).unwrap();
    let library = folder.join("libloopscope_preload.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

/// The program of `talk.c`.
fn talk() -> &'static Path {
    static TALK: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = TALK.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("talk");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/talk.c");
        let made = Command::new("cc")
            .args(["-O2", "-D_FORTIFY_SOURCE=2", "-pthread", source, "-o"])
            .arg(&path)
            .status()
            .expect("there is a C compiler");
        assert!(made.success());
        (folder, path)
    });
    path
}

/// Two machines; each may have a service.
struct World {
    machine: Machine,
    here: Option<Serving>,
    there: Option<Serving>,
    folder: TempDir,
}

/// Where a program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Here,
    There,
}
use At::{Here, There};

impl World {
    fn make(services: bool) -> World {
        let machine = network();
        let here = services.then(Serving::start);
        let there = services.then(|| machine.run(Serving::start));
        World { machine, here, there, folder: tempfile::tempdir().unwrap() }
    }

    fn explain(&self, at: At) -> PathBuf {
        self.folder.path().join(if at == Here { "here" } else { "there" })
    }

    /// Has a program run there; `preload`: with the library.
    fn start(&self, at: At, preload: bool, program: impl AsRef<Path>, words: &[&str]) -> Running {
        let mut command = Command::new(program.as_ref());
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        if preload {
            let serving = if at == Here { &self.here } else { &self.there };
            let path = serving.as_ref().map_or(Path::new("/nonexistent"), Serving::at);
            command
                .env("LD_PRELOAD", library())
                .env("LOOPSCOPE_STACK", path)
                .env("LOOPSCOPE_STACK_EXPLAIN", self.explain(at));
        }
        let mut spawn = || command.spawn().expect("it starts");
        let mut child = if at == Here { spawn() } else { self.machine.run(spawn) };
        let out = BufReader::new(child.stdout.take().unwrap());
        Running { child, out }
    }

    fn talk(&self, at: At, preload: bool, words: &str) -> Running {
        self.start(at, preload, talk(), &words.split(' ').collect::<Vec<_>>())
    }

    /// The lines of the sockets that were connected.
    fn explained(&self, at: At) -> Vec<Value> {
        let text = std::fs::read_to_string(self.explain(at)).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str(line).expect(line));
        lines.filter(|line: &Value| !line["peer"].is_null()).collect()
    }

    /// The one connection of a program.
    fn connection(&self, at: At) -> Value {
        let lines = self.explained(at);
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.into_iter().next().unwrap()
    }
}

struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    /// Waits for a line.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// What it says until it ends without an error.
    fn end(mut self) -> String {
        let mut said = String::new();
        self.out.read_to_string(&mut said).unwrap();
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}: {said}");
                return said.trim().to_owned();
            }
            assert!(begin.elapsed() < PATIENCE, "it does not end: {said}");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether the stack had nearly all of what came, by the kernel's count.
fn assert_accelerated(line: &Value) {
    let [stack, all] = ["received_by_stack", "received"].map(|key| line[key].as_u64());
    let (stack, all) = stack.zip(all).unwrap_or_else(|| panic!("{line}"));
    assert!(stack as f64 >= 0.99 * all as f64, "{stack} of {all}: {line}");
    let [stack, all] = ["written_to_stack", "written"].map(|key| line[key].as_u64().unwrap());
    assert!(stack as f64 >= 0.99 * all as f64, "{stack} of {all}: {line}");
}

/// A pair of `talk.c`: one that answers there, one that calls here. What both say.
fn pair(world: &World, preload: [bool; 2], answer: &str, call: &str) -> [String; 2] {
    let [here, there] = preload;
    let mut answering = world.talk(There, there, &format!("answer {answer} 10.0.0.2 7000"));
    assert_eq!(answering.line(), "ready");
    let (act, words) = call.split_once(' ').unwrap_or((call, ""));
    let words = format!("call {act} 10.0.0.2 7000 {words}");
    let said = world.talk(Here, here, words.trim()).end();
    [said, answering.end()]
}

#[test]
fn programs_in_c_talk_as_before() {
    in_thread(|| {
        for services in [[true, true], [true, false], [false, true]] {
            let world = World::make(true);
            pair(&world, services, "echo", "trips 20000 64");
            for (at, preload) in [Here, There].into_iter().zip(services) {
                if preload {
                    assert_accelerated(&world.connection(at));
                }
            }
        }
        let _ = OWN;
    });
}
