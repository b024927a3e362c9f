//! The machine's agent: makes local testbeds and keeps the agents of their hosts.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr};

use crate::console::{READY, print_line};
use crate::environment;
use crate::lacking;
use crate::ledger::{Entry, Ledger, LedgerError, RUN_MARK};
use crate::machine_proto::{BuildTestbedReply, BuildTestbedRequest, TestbedHost};
use crate::spawn::{self, Outfit};
use crate::testbed::{Host, Joint, Plan, Probes, ROUTER, Router, TestbedError, prefix};

/// How long a host's agent may take to answer, and to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// `sockaddr_un` has room for this many bytes and a zero.
pub(crate) const SOCKET_PATH_LIMIT: usize = 107;

/// Why there is no testbed.
#[derive(Debug, Error)]
pub(crate) enum MachineError {
    #[error("this agent has made its testbed already")]
    Twice,
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(
        "the socket path {0} is longer than {SOCKET_PATH_LIMIT} bytes; use a shorter directory"
    )]
    SocketPath(String),
    #[error("cannot tell the hosts each other's names by {path}, which may be empty: {source}")]
    Names { path: String, source: std::io::Error },
    #[error("cannot start the agent of host {host}: {reason}")]
    Agent { host: String, reason: String },
}

/// Makes testbeds.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The run directory, or the part of it that the hosts' folders are in.
    pub(crate) dir: PathBuf,
    /// This very binary.
    pub(crate) program: PathBuf,
    /// Where the hosts' sockets go.
    pub(crate) sockets: PathBuf,
    pub(crate) state_dir: PathBuf,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) agents: tokio::sync::Mutex<Vec<HostAgent>>,
}

/// The agent of one host. Lives as long as its standard input is open.
#[derive(Debug)]
pub(crate) struct HostAgent {
    host: String,
    child: Child,
}

impl Machine {
    pub(crate) async fn build(
        &self,
        request: &BuildTestbedRequest,
    ) -> Result<BuildTestbedReply, MachineError> {
        let mut agents = self.agents.lock().await;
        if !agents.is_empty() {
            return Err(MachineError::Twice);
        }
        let run = self.ledger.run();
        let mtu = (request.data_mtu != 0).then_some(request.data_mtu);
        let (data, clock) = (&request.data_network, &request.clock_network);
        let joint = if request.router { Joint::Router } else { Joint::Bridge };
        let probes = if request.probes_on_data { Probes::OnData } else { Probes::Apart };
        let mut plan = Plan::new(run, &request.hosts, data, clock, mtu, joint, probes)?;
        plan.know_clocks(request.clock_pairs.iter().map(|pair| (&*pair.a, &*pair.b)))?;
        let folder = self.sockets.join(prefix(run));
        let names = folder.join("names");
        let mut made: Vec<TestbedHost> = plan.hosts.iter().map(described).collect();
        made.extend(plan.router.as_ref().map(described_router));
        for host in &mut made {
            let socket = folder.join(format!("{}.sock", host.name));
            check_socket_path(&socket)?;
            host.agent_socket = socket.display().to_string();
        }
        let program = self.program.clone();
        // One hash for all the hosts.
        let sha256 = tokio::task::spawn_blocking(move || environment::sha256(&program));
        tokio::task::block_in_place(|| {
            plan.build(&self.ledger)?;
            self.ledger.make(&[Entry::Directory { path: folder.clone() }])?;
            write_names(&plan, &names)
        })?;
        let sha256 = sha256.await.ok().flatten();
        let mut starting = vec![];
        // The router, which comes last, is on both networks.
        let clocks = plan.hosts.iter().map(|host| host.clock_namespace.as_deref()).chain([None]);
        for (host, clock) in made.iter().zip(clocks) {
            starting.push(self.start_agent(host, clock, &names, sha256.as_deref(), request)?);
        }
        for starting in starting {
            agents.push(starting.ready().await?);
        }
        let router = if plan.router.is_some() { made.pop() } else { None };
        let lacking = lacking::find(self.ledger.why_no_cgroup());
        let lacking = lacking.into_iter().map(Into::into).collect();
        let neighbours = plan.knows_neighbours();
        Ok(BuildTestbedReply { hosts: made, router, neighbours, lacking })
    }

    fn start_agent(
        &self,
        host: &TestbedHost,
        clock: Option<&str>,
        names: &Path,
        sha256: Option<&str>,
        request: &BuildTestbedRequest,
    ) -> Result<Starting, MachineError> {
        let mut command = std::process::Command::new(&self.program);
        command
            .arg("agent")
            .args(["--host", &host.name, "--netns", &host.namespace, "--run", self.ledger.run()])
            .args(["--socket", &host.agent_socket])
            .arg("--names")
            .arg(names)
            .arg("--dir")
            .arg(&self.dir)
            .env("LOOPSCOPE_STATE_DIR", &self.state_dir)
            .env(RUN_MARK, self.ledger.run())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(clock) = clock {
            command.args(["--clock-netns", clock]);
        }
        if let Some(sha256) = sha256 {
            command.args(["--sha256", sha256]);
        }
        if let Some(seed) = request.synthetic_seed {
            command.args(["--synthetic-seed", &seed.to_string()]);
        }
        if let Some(kind) = request.counters.get(&host.name) {
            command.args(["--counter", kind]);
        }
        if !request.working_directory.is_empty() {
            command.current_dir(&request.working_directory);
        }
        if !request.path.is_empty() {
            command.env("PATH", &request.path);
        }
        spawn::prepare(
            &mut command,
            self.ledger.note(&format!("agent of host {}", host.name)),
            Outfit::default(),
        );
        let failed = |reason: std::io::Error| MachineError::Agent {
            host: host.name.clone(),
            reason: reason.to_string(),
        };
        let mut child = tokio::process::Command::from(command).spawn().map_err(failed)?;
        let last_words = Arc::new(Mutex::new(String::new()));
        let relay = child
            .stderr
            .take()
            .map(|stderr| tokio::spawn(relay(stderr, host.name.clone(), last_words.clone())));
        let agent = HostAgent { host: host.name.clone(), child };
        Ok(Starting { agent, last_words, relay })
    }

    /// Waits for the children that have ended. The first process of a PID namespace is also given
    /// those of other processes, when these end.
    pub(crate) fn reap(&self) {
        if getpid() != Pid::from_raw(1) {
            return;
        }
        // While a testbed is made they are waited for where they are started.
        let Ok(mut agents) = self.agents.try_lock() else { return };
        for agent in &mut *agents {
            // Nobody asks how it ended: its connection has.
            let _ = agent.child.try_wait();
        }
        let none = Some(WaitPidFlag::WNOHANG);
        while !matches!(waitpid(None, none), Ok(WaitStatus::StillAlive) | Err(_)) {}
    }

    /// Ends the hosts' agents, and with them their components.
    pub(crate) async fn end_agents(&self) {
        let mut agents = std::mem::take(&mut *self.agents.lock().await);
        for agent in &mut agents {
            // An agent ends when its standard input closes.
            drop(agent.child.stdin.take());
        }
        // For all of them together: the caller's patience has an end.
        let deadline = tokio::time::Instant::now() + PATIENCE;
        for agent in &mut agents {
            if tokio::time::timeout_at(deadline, agent.child.wait()).await.is_err() {
                print_line(&format!("the agent of host {} hangs; killing it", agent.host));
                // It may have ended just now, which is as well.
                let _ = agent.child.kill().await;
            }
        }
    }
}

/// Writes the names that the hosts' programs can use for each other.
fn write_names(plan: &Plan, path: &Path) -> Result<(), MachineError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |source| MachineError::Names { path, source }
    };
    let machine = Path::new("/etc/hosts");
    let known = std::fs::read(machine).map_err(failed(machine))?;
    std::fs::write(path, plan.names(&String::from_utf8_lossy(&known))).map_err(failed(path))?;
    // Whatever the umask: it is for every user.
    std::fs::set_permissions(path, Permissions::from_mode(0o644)).map_err(failed(path))
}

fn described(host: &Host) -> TestbedHost {
    TestbedHost {
        name: host.name.clone(),
        data_address: host.data.to_string(),
        clock_address: host.clock.to_string(),
        namespace: host.namespace.clone(),
        port: host.port.clone(),
        data_link_address: host.address.to_string(),
        ..TestbedHost::default()
    }
}

fn described_router(router: &Router) -> TestbedHost {
    TestbedHost {
        name: ROUTER.to_owned(),
        clock_address: router.clock.to_string(),
        namespace: router.namespace.clone(),
        ..TestbedHost::default()
    }
}

/// Refuses what does not fit into a socket's address.
pub(crate) fn check_socket_path(path: &Path) -> Result<(), MachineError> {
    if path.as_os_str().len() > SOCKET_PATH_LIMIT {
        return Err(MachineError::SocketPath(path.display().to_string()));
    }
    Ok(())
}

struct Starting {
    agent: HostAgent,
    last_words: Arc<Mutex<String>>,
    relay: Option<tokio::task::JoinHandle<()>>,
}

impl Starting {
    /// Waits until its socket answers.
    async fn ready(mut self) -> Result<HostAgent, MachineError> {
        let mut word = vec![0; READY.len()];
        let stdout = self.agent.child.stdout.take();
        let listening = async {
            match stdout {
                Some(mut stdout) => stdout.read_exact(&mut word).await.is_ok(),
                None => false,
            }
        };
        let reason = match tokio::time::timeout(PATIENCE, listening).await {
            Ok(true) => return Ok(self.agent),
            Ok(false) => {
                if let Some(relay) = self.relay {
                    // So that its last lines are read; a child of it may hold the pipe.
                    let _ = tokio::time::timeout(Duration::from_secs(1), relay).await;
                }
                self.last_words.lock().unwrap_or_else(PoisonError::into_inner).clone()
            }
            Err(_) => format!("it does not answer within {} s", PATIENCE.as_secs()),
        };
        Err(MachineError::Agent { host: self.agent.host, reason })
    }
}

async fn relay(stderr: ChildStderr, host: String, last_words: Arc<Mutex<String>>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        print_line(&format!("host {host}: {line}"));
        *last_words.lock().unwrap_or_else(PoisonError::into_inner) = line;
    }
}
