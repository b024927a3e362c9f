//! A program in its role: from its start to its last word.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::account::Account;
use crate::cgroup;
use crate::core_dump;
use crate::dialogue::{EnterError, Peers};
use crate::events::{EventSender, Moment, monotonic_ns};
use crate::ledger::Note;
use crate::output::{self, Log};
use crate::phase_link::PhaseLink;
use crate::ports::Ports;
use crate::proto::{Exited, Ready, event::What, exited::How, readiness::Rule};
use crate::spawn::{self, Outfit};

/// How long output is waited for after the program's end: a descendant may hold the pipe for ever.
/// A pipe holds 64 KiB, which take far less; the cause of a failed run is not to wait for more.
const DRAIN: Duration = Duration::from_millis(100);

/// The program to start. Everything has been looked up and checked.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    /// The command line as written, for people; the first word is the program's argument zero.
    pub(crate) words: Vec<String>,
    /// All of the environment, except the phase socket.
    pub(crate) environment: Vec<(String, String)>,
    /// Where its logs go; it runs in `files/` below.
    pub(crate) folder: PathBuf,
    pub(crate) rule: Rule,
    /// The line that begins the phase dialogue, for a program that speaks it.
    pub(crate) configure: Option<Vec<u8>>,
    /// The account that it runs as; `None`: the agent's user.
    pub(crate) account: Option<Account>,
    /// Its cgroup; `None`: the agent's.
    pub(crate) cgroup: Option<PathBuf>,
    /// Bytes that are kept of each output; `None`: all.
    pub(crate) output_limit: Option<u64>,
    /// Whether it has the agent's capabilities, see [`crate::rights`].
    pub(crate) has_rights: bool,
}

/// A started program.
#[derive(Debug)]
pub(crate) struct Component {
    pub(crate) pid: u32,
    orders: mpsc::UnboundedSender<Order>,
    /// Becomes true after its last event.
    over: watch::Receiver<bool>,
    phases: Option<Arc<PhaseLink>>,
    /// Those of the last phase that it was told to begin.
    peers: Mutex<Option<Peers>>,
}

/// An order that ends a component.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// The phase protocol's `end`; nothing for other programs.
    End,
    /// To the whole process group.
    Signal(Signal),
}

impl Order {
    /// The order's name in `exit.json`.
    fn name(self) -> &'static str {
        match self {
            Order::End => "end",
            Order::Signal(signal) => signal.as_str(),
        }
    }

    /// Whether a program that was given this order ended in exactly that way.
    fn is_how(self, how: Option<How>) -> bool {
        matches!((self, how), (Order::Signal(signal), Some(How::Signal(ended))) if signal as i32 == ended)
    }
}

/// Why a phase was not entered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PhaseError {
    #[error("does not speak the phase protocol")]
    Mute,
    #[error("has ended")]
    Over,
    #[error(transparent)]
    Enter(#[from] EnterError),
}

impl Component {
    /// Starts it. Must be called inside the runtime.
    pub(crate) fn start(
        launch: Launch,
        note: Note,
        sender: EventSender,
        ports: &Ports,
    ) -> std::io::Result<Component> {
        let sender = Arc::new(sender);
        let files = launch.folder.join("files");
        std::fs::create_dir_all(&files)?;
        if let Some(account) = &launch.account {
            account.own(&files)?;
        }
        let log = |is_stderr| Log::create(&launch.folder, is_stderr, launch.output_limit);
        let logs = [log(false)?, log(true)?].map(Arc::new);
        let mut command = std::process::Command::new(&launch.program);
        std::os::unix::process::CommandExt::arg0(&mut command, &launch.words[0]);
        command
            .args(&launch.words[1..])
            .current_dir(&files)
            .env_clear()
            .envs(launch.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let (mut own_end, mut its_end) = (None, None);
        if let Some(configure) = launch.configure {
            let (own, its) = std::os::unix::net::UnixStream::pair()?;
            let its = std::os::fd::OwnedFd::from(its);
            let number = std::os::fd::AsRawFd::as_raw_fd(&its).to_string();
            command.env("LOOPSCOPE_PHASE_FD", number);
            (own_end, its_end) = (Some((own, configure)), Some(its));
        }
        let entrance = launch.cgroup.as_deref().map(cgroup::entrance).transpose()?;
        let (account, has_rights) = (launch.account, launch.has_rights);
        let outfit = Outfit { inherited: its_end, account, cgroup: entrance, has_rights };
        spawn::prepare(&mut command, note, outfit);
        let started_ns = monotonic_ns();
        let mut command = tokio::process::Command::from(command);
        // If it cannot be watched it must not run.
        command.kill_on_drop(true);
        let mut child = command.spawn()?;
        // Closes this side's copy of the program's end of the socket.
        drop(command);
        let pid = child.id().unwrap_or_default();
        let (ended_sender, ended) = watch::channel(false);
        let (over_sender, over) = watch::channel(false);
        let (orders, order_receiver) = mpsc::unbounded_channel();
        let mut tails = vec![];
        let mut phases = None;
        if let Some((socket, configure)) = own_end {
            let (link, listener) =
                PhaseLink::open(socket, configure, sender.clone(), ended.clone())?;
            phases = Some(Arc::new(link));
            tails.push(listener);
        }
        let line = match &launch.rule {
            Rule::Line(text) => Some(text.clone()),
            _ => None,
        };
        if let Some(pipe) = child.stdout.take() {
            tails.push(tokio::spawn(output::copy(pipe, logs[0].clone(), sender.clone(), line)));
        }
        if let Some(pipe) = child.stderr.take() {
            tails.push(tokio::spawn(output::copy(pipe, logs[1].clone(), sender.clone(), None)));
        }
        match launch.rule {
            Rule::Started(_) => sender.send(What::Ready(Ready {})),
            Rule::Port(port) => {
                if let Ok(port) = u16::try_from(port) {
                    ports.wait_for(port, sender.clone(), ended);
                }
            }
            Rule::Phases(_) | Rule::Line(_) | Rule::Exit(_) => {}
        }
        let supervisor = Supervisor {
            child,
            pid: pid.cast_signed(),
            words: launch.words,
            folder: launch.folder,
            cgroup: launch.cgroup,
            ready_exit: if let Rule::Exit(code) = launch.rule { Some(code) } else { None },
            started_ns,
            sender,
            phases: phases.clone(),
            tails,
            logs,
        };
        tokio::spawn(supervisor.run(order_receiver, ended_sender, over_sender));
        Ok(Component { pid, orders, over, phases, peers: Mutex::default() })
    }

    /// Whether it has said its last word.
    pub(crate) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    pub(crate) fn speaks_phases(&self) -> bool {
        self.phases.is_some()
    }

    pub(crate) fn order(&self, order: Order) {
        // After its end there is nothing to end.
        let _ = self.orders.send(order);
    }

    /// Waits for its last event, at most `patience`; whether it came.
    pub(crate) async fn wait(&self, patience: Duration) -> bool {
        let mut over = self.over.clone();
        tokio::time::timeout(patience, over.wait_for(|&over| over)).await.is_ok()
    }

    /// The peers that were kept last.
    pub(crate) fn peers(&self) -> Option<Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps peers for phases that come without any.
    pub(crate) fn keep_peers(&self, peers: Peers) {
        *self.peers.lock().unwrap_or_else(PoisonError::into_inner) = Some(peers);
    }

    pub(crate) fn enter_phase(
        &self,
        phase: &str,
        measured: bool,
        peers: &Peers,
        start_ns: Option<i64>,
    ) -> Result<(), PhaseError> {
        let link = self.phases.as_ref().ok_or(PhaseError::Mute)?;
        if self.is_over() {
            return Err(PhaseError::Over);
        }
        Ok(link.enter(phase, measured, peers, start_ns)?)
    }
}

/// Waits for the program's end and is the only one to signal it, so that no signal goes to a
/// process number that has been given away.
struct Supervisor {
    child: Child,
    pid: i32,
    words: Vec<String>,
    folder: PathBuf,
    cgroup: Option<PathBuf>,
    ready_exit: Option<i32>,
    started_ns: i64,
    sender: Arc<EventSender>,
    phases: Option<Arc<PhaseLink>>,
    /// Threads that still read its output.
    tails: Vec<JoinHandle<()>>,
    /// The logs of stdout and stderr.
    logs: [Arc<Log>; 2],
}

impl Supervisor {
    async fn run(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Order>,
        ended: watch::Sender<bool>,
        over: watch::Sender<bool>,
    ) {
        let mut asked = None;
        let status = loop {
            tokio::select! {
                // Its end is seen before an order that came at the same time.
                biased;
                status = self.child.wait() => break status,
                Some(order) = orders.recv() => {
                    asked = Some(order);
                    self.obey(order);
                }
            }
        };
        let ended_at = Moment::now();
        let ended_ns = ended_at.monotonic_ns();
        let cpu = self.cgroup.as_deref().map_or(Value::Null, cgroup::cpu_time);
        ended.send_replace(true);
        for tail in self.tails {
            // The ones after the first have had the same second already.
            let left = DRAIN.saturating_sub(elapsed_since(ended_ns));
            let _ = tokio::time::timeout(left, tail).await;
        }
        let dumped = status.as_ref().is_ok_and(ExitStatusExt::core_dumped);
        let core = if dumped { core_dump::place(&self.folder, self.pid) } else { String::new() };
        let how = status.ok().and_then(how);
        // On a busy machine the program's end may be seen before the order that ended it.
        let mut late = std::iter::from_fn(|| orders.try_recv().ok());
        asked = late.find(|order| order.is_how(how)).or(asked);
        let [stdout_left_out, stderr_left_out] = self.logs.map(|log| log.settle(&self.sender));
        let facts = Facts {
            pid: self.pid,
            asked,
            started_ns: self.started_ns,
            ended_ns,
            left_out: [stdout_left_out, stderr_left_out],
            core: &core,
            cpu,
        };
        if let Err(error) = write_exit(&self.folder, &self.words, how, &facts) {
            let line = format!("loopscope: cannot write exit.json: {error}");
            self.sender.send(What::Output(crate::proto::Output { line, stderr: true }));
        }
        if let (Some(How::Code(code)), Some(wanted)) = (how, self.ready_exit)
            && code == wanted
        {
            self.sender.send(What::Ready(Ready {}));
        }
        let stopped_by_us = asked.is_some();
        let exited = Exited { how, stopped_by_us, stdout_left_out, stderr_left_out, core };
        self.sender.send_last(ended_at, What::Exited(exited));
        over.send_replace(true);
    }

    fn obey(&self, order: Order) {
        match order {
            Order::End => {
                if let Some(phases) = &self.phases {
                    phases.end();
                }
            }
            // The program is its group's leader and has not been waited for, so the number is its
            // own still.
            Order::Signal(signal) => {
                let _ = killpg(Pid::from_raw(self.pid), signal);
            }
        }
    }
}

fn elapsed_since(at_ns: i64) -> Duration {
    Duration::from_nanos((monotonic_ns() - at_ns).unsigned_abs())
}

fn how(status: ExitStatus) -> Option<How> {
    status.code().map(How::Code).or_else(|| status.signal().map(How::Signal))
}

struct Facts<'a> {
    pid: i32,
    asked: Option<Order>,
    started_ns: i64,
    ended_ns: i64,
    /// Bytes of stdout and stderr that were not kept.
    left_out: [u64; 2],
    /// Where the core dump is; empty: there is none.
    core: &'a str,
    /// See [`cgroup::cpu_time`].
    cpu: Value,
}

fn write_exit(
    folder: &Path,
    words: &[String],
    how: Option<How>,
    facts: &Facts<'_>,
) -> std::io::Result<()> {
    let mut exit = json!({
        "pid": facts.pid,
        "command": words,
        "stopped_by_us": facts.asked.is_some(),
        "asked": facts.asked.map(Order::name),
        "started_ns": facts.started_ns,
        "ended_ns": facts.ended_ns,
        "stdout_left_out": facts.left_out[0],
        "stderr_left_out": facts.left_out[1],
    });
    if !facts.core.is_empty() {
        exit["core"] = facts.core.into();
    }
    if !facts.cpu.is_null() {
        exit["cpu"] = facts.cpu.clone();
    }
    match how {
        Some(How::Code(code)) => exit["code"] = code.into(),
        Some(How::Signal(signal)) => exit["signal"] = signal.into(),
        None => {}
    }
    // Whole or not at all: half a file on a full disk says nothing of how it ended.
    let draft = folder.join(".exit.json.unfinished");
    let text = format!("{exit:#}\n");
    let written = std::fs::write(&draft, text)
        .and_then(|()| std::fs::rename(&draft, folder.join("exit.json")));
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    written
}
