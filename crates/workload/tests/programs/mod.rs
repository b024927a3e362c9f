//! Starts workload programs as processes of their own and looks at all that they do.

#![allow(dead_code, unused_imports)] // Each test binary uses its part.

mod events;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

use clap::Parser;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

pub use events::{Event, events};

/// The hosts in the form of `loopscope-host`.
#[derive(clap::Parser)]
enum Host {
    Pattern(loopscope_workload::PatternArgs),
    Pipe(loopscope_workload::PipeArgs),
    Stimulus(loopscope_workload::StimulusArgs),
    Pace(loopscope_workload::PaceArgs),
    Ettcp(loopscope_workload::EttcpArgs),
    Burn(loopscope_workload::BurnArgs),
    Stall(loopscope_workload::StallArgs),
}

/// The line before the program's own.
const MARK: &str = "the program:";

/// Where this process was started by [`Program::start`], runs the program and exits.
pub fn be_the_program() {
    let Ok(words) = std::env::var("WORKLOAD_WORDS") else { return };
    // Behind what the test harness says.
    println!("\n{MARK}");
    let result = match Host::parse_from(["host"].into_iter().chain(words.split(' '))) {
        Host::Pattern(args) => loopscope_workload::main_pattern(args),
        Host::Pipe(args) => loopscope_workload::main_pipe(args),
        Host::Stimulus(args) => loopscope_workload::main_stimulus(args),
        Host::Pace(args) => loopscope_workload::main_pace(args),
        Host::Ettcp(args) => loopscope_workload::main_ettcp(args),
        Host::Burn(args) => loopscope_workload::main_burn(&args),
        Host::Stall(args) => loopscope_workload::main_stall(&args),
    };
    if let Err(error) = &result {
        eprintln!("{error:#}");
    }
    std::process::exit(result.is_err().into());
}

pub struct Program {
    child: Child,
    stderr: BufReader<ChildStderr>,
    stdout: JoinHandle<String>,
    said: String,
}

pub struct Ended {
    pub success: bool,
    /// `None` where a signal has ended it.
    pub code: Option<i32>,
    /// The program's own lines.
    pub stdout: Vec<String>,
    pub stderr: String,
}

impl Program {
    /// Starts `words` (as behind `loopscope-host`) without an agent.
    pub fn start(words: &str) -> Program {
        Program::spawn(words, Stdio::null(), |command| command)
    }

    /// The same, recording its events below `runtime_dir`.
    pub fn recorded(words: &str, runtime_dir: &Path) -> Program {
        let streams = "stream 0 main normal\nenable *\n";
        std::fs::write(runtime_dir.join("streams"), streams).unwrap();
        Program::spawn(words, Stdio::null(), |c| c.env("LOOPSCOPE_RUNTIME_DIR", runtime_dir))
    }

    fn spawn(
        words: &str,
        stdin: Stdio,
        more: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Program {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "the_program", "--nocapture"]).env("WORKLOAD_WORDS", words);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = more(&mut command).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let stdout = child.stdout.take().unwrap();
        // Read all the time, so that a program that says much does not stop.
        let stdout = std::thread::spawn(|| read_all(stdout));
        Program { child, stderr, stdout, said: String::new() }
    }

    /// Waits until the program listens, and says where.
    pub fn address(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        self.said.push_str(&line);
        let address = line.trim().strip_prefix("listening on ");
        let address = address.unwrap_or_else(|| panic!("instead of listening it said {line}"));
        address.replace("0.0.0.0", "127.0.0.1")
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// The next line that it says on standard error.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        self.said.push_str(&line);
        line
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    pub fn end(mut self) -> Ended {
        self.stderr.read_to_string(&mut self.said).unwrap();
        let status = self.child.wait().unwrap();
        let stdout = self.stdout.join().unwrap();
        let lines = stdout.lines().skip_while(|line| *line != MARK).skip(1);
        Ended {
            success: status.success(),
            code: status.code(),
            stdout: lines.map(str::to_owned).collect(),
            stderr: self.said,
        }
    }

    /// Ends the program, which must have failed, and returns its last line.
    pub fn error(self) -> String {
        let ended = self.end();
        assert!(!ended.success, "{}", ended.stderr);
        ended.stderr.lines().last().unwrap_or_default().to_owned()
    }
}

fn read_all(mut from: ChildStdout) -> String {
    let mut text = String::new();
    from.read_to_string(&mut text).unwrap();
    text
}

/// A program together with the agent's end of its socket.
pub struct Component {
    pub name: String,
    pub program: Program,
    socket: BufReader<UnixStream>,
}

impl Component {
    /// Starts `words` as a component and goes as far as its hello, which names `phases`.
    pub fn start(name: &str, words: &str, with: Value, phases: &[&str]) -> Component {
        Component::spawn(name, words, with, phases, |command| command)
    }

    /// The same in a working directory, as an agent does it.
    pub fn start_in(
        dir: &Path,
        name: &str,
        words: &str,
        with: Value,
        phases: &[&str],
    ) -> Component {
        Component::spawn(name, words, with, phases, |command| {
            command.current_dir(dir).env("LOOPSCOPE_COMPONENT", name)
        })
    }

    fn spawn(
        name: &str,
        words: &str,
        with: Value,
        phases: &[&str],
        more: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Component {
        let (socket, theirs) = UnixStream::pair().unwrap();
        let stdin = Stdio::from(OwnedFd::from(theirs));
        let program = Program::spawn(words, stdin, |c| more(c.env("LOOPSCOPE_PHASE_FD", "0")));
        let socket = BufReader::new(socket);
        let mut component = Component { name: name.to_owned(), program, socket };
        component.send(json!({
            "type": "configure", "version": 1, "component": name, "host": "h", "config": with
        }));
        assert_eq!(component.answer(), json!({"type": "hello", "version": 1, "phases": phases}));
        component
    }

    fn send(&mut self, message: Value) {
        self.socket.get_mut().write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    pub fn enter(&mut self, phase: &str, peers: &Value) {
        let measured = phase == "run";
        self.send(json!({"type": "phase", "phase": phase, "measured": measured, "peers": peers}));
    }

    pub fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.socket.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("`{line}` from {}", self.name))
    }

    /// The reason that the program gives for its failure in `phase`; it must then exit.
    pub fn failure(mut self, phase: &str) -> String {
        let answer = self.answer();
        assert_eq!(answer["type"], "failed", "{answer}");
        assert_eq!(answer["phase"], phase, "{answer}");
        let reason = answer["error"].as_str().unwrap().to_owned();
        let line = self.program.error();
        assert_eq!(line, format!("phase {phase} failed: {reason}"));
        reason
    }

    /// The JSON object that the program has left in its working directory.
    pub fn result(dir: &Path) -> Value {
        serde_json::from_str(&std::fs::read_to_string(dir.join("result.json")).unwrap()).unwrap()
    }

    pub fn end(mut self) -> Ended {
        self.send(json!({"type": "end"}));
        self.program.end()
    }
}

/// Takes `components` through a phase, all at once, and adds what they publish to `peers`.
pub fn phase(name: &str, components: &mut [&mut Component], peers: &mut Value) {
    for component in components.iter_mut() {
        component.enter(name, peers);
    }
    for component in components {
        let answer = component.answer();
        assert_eq!(answer["type"], "done", "{}: {answer}", component.name);
        assert_eq!(answer["phase"], name);
        for (key, value) in answer["values"].as_object().into_iter().flatten() {
            peers[&component.name]["values"][key] = value.clone();
        }
    }
}
