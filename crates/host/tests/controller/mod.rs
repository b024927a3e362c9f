//! A small controller: starts the built binary and asks it for things.

// Each test file uses its own part of this.
#![allow(dead_code)]

#[path = "../../../../tests/skip.rs"]
mod skip;

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use loopscope_agent::machine_proto::machine_client::MachineClient;
use loopscope_agent::machine_proto::{BuildTestbedRequest, ClockPair, TestbedHost};
use loopscope_agent::proto::agent_client::AgentClient;
use loopscope_agent::proto::event::What;
use loopscope_agent::proto::readiness::Rule;
use loopscope_agent::proto::{
    EnterPhaseRequest, Event, Exited, PhaseRefused, Readiness, StartRequest, StopRequest,
};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

/// Says loudly that a test did not run.
pub fn skipped(why: &str) {
    skip::skipped(why);
}

pub const BINARY: &str = env!("CARGO_BIN_EXE_loopscope-host");

/// An agent, and the folder that everything of it is in.
pub struct Agent {
    pub run: String,
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    folder: TempDir,
}

impl Agent {
    pub fn start(arguments: &[&str]) -> Agent {
        Agent::start_in(arguments, &[])
    }

    /// With more variables in its environment.
    pub fn start_in(arguments: &[&str], environment: &[(&str, &str)]) -> Agent {
        let folder = tempfile::Builder::new().prefix("ls").tempdir_in("/tmp").unwrap();
        // The folder's name is random and its own.
        let name = folder.path().file_name().unwrap().to_str().unwrap();
        let run = format!("test-{}", name.trim_start_matches("ls"));
        Agent::spawn(folder, run, arguments, environment)
    }

    /// Starts an agent for a run of this name.
    pub fn start_as(run: &str) -> Agent {
        let folder = tempfile::Builder::new().prefix("ls").tempdir_in("/tmp").unwrap();
        Agent::spawn(folder, run.to_owned(), &[], &[])
    }

    fn spawn(
        folder: TempDir,
        run: String,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Agent {
        let mut child = Command::new(BINARY)
            .args(["agent", "--run", &run])
            .arg("--socket")
            .arg(folder.path().join("a.sock"))
            .arg("--dir")
            .arg(folder.path())
            .args(arguments)
            .env("LOOPSCOPE_STATE_DIR", folder.path().join("state"))
            .envs(environment.iter().copied())
            .current_dir(folder.path())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        assert_eq!(&ready, b"ready\n");
        let stdin = child.stdin.take();
        Agent { run, child, stdin, folder }
    }

    /// Kills the agent's whole process group.
    pub fn kill(&mut self) {
        let group = Pid::from_raw(self.child.id().cast_signed());
        killpg(group, Signal::SIGKILL).unwrap();
        self.child.wait().unwrap();
    }

    /// Kills first the process that would clean up, then the agent's process group.
    pub fn kill_with_guardian(&mut self) {
        let pid = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let is_guardian = |child: &&str| {
            let words = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            words.split(|&byte| byte == 0).nth(1) == Some(b"guardian")
        };
        let guardian = children.split_whitespace().find(is_guardian).expect("no guardian");
        kill(Pid::from_raw(guardian.parse().unwrap()), Signal::SIGKILL).unwrap();
        self.kill();
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn file(&self, relative: &str) -> String {
        std::fs::read_to_string(self.path().join(relative)).unwrap()
    }

    pub fn state_dir(&self) -> PathBuf {
        self.path().join("state")
    }

    pub async fn client(&self) -> AgentClient<Channel> {
        connect(&self.path().join("a.sock")).await
    }

    /// The client of the service that makes testbeds.
    pub async fn machine(&self) -> MachineClient<Channel> {
        MachineClient::new(channel(&self.path().join("a.sock")).await)
    }

    /// Runs `loopscope-host reset --json` on this agent's ledgers.
    pub fn reset(&self) -> Reset {
        let output = Command::new(BINARY)
            .args(["reset", "--json"])
            .env("LOOPSCOPE_STATE_DIR", self.state_dir())
            .output()
            .unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let list = |name: &str| {
            let texts = report[name].as_array().unwrap().iter();
            let texts = texts.map(|text| text.as_str().unwrap().to_owned());
            // Other tests' programs, which are of no run.
            let own = |text: &String| !text.ends_with("of a program that was killed");
            texts.filter(own).collect::<Vec<_>>()
        };
        Reset { removed: list("removed"), in_use: list("in_use"), problems: list("problems") }
    }

    /// The run's cgroup, if it exists.
    pub fn cgroup(&self) -> Option<PathBuf> {
        let own = loopscope_agent::cgroup::own().unwrap()?;
        Some(own.join(loopscope_agent::testbed::prefix(&self.run))).filter(|path| path.exists())
    }

    /// Namespaces and processes of this run that exist now.
    pub fn remains(&self) -> Vec<String> {
        let mut found = vec![];
        let prefix = format!("{}-", loopscope_agent::testbed::prefix(&self.run));
        for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with(&prefix) {
                found.push(format!("namespace {name}"));
            }
        }
        for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with(&prefix) {
                found.push(format!("directory {name}"));
            }
        }
        let mark = format!("LOOPSCOPE_RUN={}", self.run);
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.split(|&b| b == 0).any(|e| e == mark.as_bytes()) {
                found.push(format!("process {}", entry.file_name().display()));
            }
        }
        found
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // Also when a test has failed: nothing may be left behind.
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
pub struct Reset {
    pub removed: Vec<String>,
    pub in_use: Vec<String>,
    pub problems: Vec<String>,
}

pub async fn connect(socket: &Path) -> AgentClient<Channel> {
    AgentClient::new(channel(socket).await)
}

pub async fn channel(socket: &Path) -> Channel {
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
    endpoint.connect().await.unwrap()
}

/// The events of one host, and the phases that its components are to begin.
pub struct Watcher {
    stream: Streaming<Event>,
    requests: mpsc::UnboundedSender<EnterPhaseRequest>,
}

impl Watcher {
    pub async fn of(client: &mut AgentClient<Channel>) -> Watcher {
        let (requests, sent) = mpsc::unbounded_channel();
        let sent = UnboundedReceiverStream::new(sent);
        Watcher { stream: client.watch(sent).await.unwrap().into_inner(), requests }
    }

    /// Tells a component to begin a phase.
    pub fn enter(&self, request: EnterPhaseRequest) {
        self.requests.send(request).unwrap();
    }

    /// Why the next phase that `component` was told to begin was refused.
    pub async fn until_refused(&mut self, component: &str) -> PhaseRefused {
        let mut seen = self.until(component, |w| matches!(w, What::PhaseRefused(_))).await;
        let Some(What::PhaseRefused(refused)) = seen.pop() else { unreachable!() };
        refused
    }

    pub async fn next(&mut self) -> Option<Event> {
        let patience = std::time::Duration::from_secs(30);
        let event = tokio::time::timeout(patience, self.stream.next()).await;
        event.expect("no event within 30 s").map(Result::unwrap)
    }

    /// The error with which the events end.
    pub async fn failure(&mut self) -> Status {
        while let Some(event) = self.stream.next().await {
            if let Err(status) = event {
                return status;
            }
        }
        panic!("the events ended in good order");
    }

    /// Events of `component` up to the first that `last` accepts.
    pub async fn until(&mut self, component: &str, last: impl Fn(&What) -> bool) -> Vec<What> {
        let mut seen = vec![];
        while let Some(event) = self.next().await {
            if event.component == component {
                let what = event.what.unwrap();
                let is_last = last(&what);
                seen.push(what);
                if is_last {
                    return seen;
                }
            }
        }
        panic!("the events ended after {seen:?}");
    }

    pub async fn until_exit(&mut self, component: &str) -> (Vec<What>, Exited) {
        let mut seen = self.until(component, |what| matches!(what, What::Exited(_))).await;
        let Some(What::Exited(exited)) = seen.pop() else { unreachable!() };
        (seen, exited)
    }

    pub async fn until_ready(&mut self, component: &str) -> Vec<What> {
        self.until(component, |what| matches!(what, What::Ready(_))).await
    }
}

/// Lines of one of the two outputs.
pub fn lines<'a>(events: &'a [What], of_stderr: bool) -> Vec<&'a str> {
    let line = |what: &'a What| match what {
        What::Output(output) if output.stderr == of_stderr => Some(output.line.as_str()),
        _ => None,
    };
    events.iter().filter_map(line).collect()
}

pub fn start(component: &str, command: &[&str], rule: Rule) -> StartRequest {
    StartRequest {
        component: component.to_owned(),
        command: command.iter().map(|&word| word.to_owned()).collect(),
        readiness: Some(Readiness { rule: Some(rule) }),
        inherit: vec!["*".to_owned()],
        ..StartRequest::default()
    }
}

pub async fn stop(client: &mut AgentClient<Channel>, grace_s: f64) -> Result<(), Status> {
    let request = StopRequest { components: vec![], grace_s };
    client.stop(request).await.map(|_| ())
}

/// What to record: one stream.
pub fn streams(pattern: &str) -> String {
    format!(r#"{{"version": 1, "streams": [{{"entities": ["{pattern}"]}}]}}"#)
}

/// Whether this test may make namespaces; says so if not.
pub fn has_root(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        skip::skipped(&format!("{test} needs root to make network namespaces"));
    }
    root
}

pub async fn build(agent: &Agent, hosts: &[&str]) -> Vec<TestbedHost> {
    build_with_seed(agent, hosts, None).await
}

pub async fn build_with_seed(
    agent: &Agent,
    hosts: &[&str],
    synthetic_seed: Option<u64>,
) -> Vec<TestbedHost> {
    let request = BuildTestbedRequest {
        hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        data_network: "10.77.0.0/24".to_owned(),
        clock_network: "10.78.0.0/24".to_owned(),
        data_mtu: 1400,
        synthetic_seed,
        path: std::env::var("PATH").unwrap(),
        clock_pairs: hosts[1..]
            .iter()
            .map(|&other| ClockPair { a: hosts[0].to_owned(), b: other.to_owned() })
            .collect(),
        ..BuildTestbedRequest::default()
    };
    agent.machine().await.build_testbed(request).await.unwrap().into_inner().hosts
}
