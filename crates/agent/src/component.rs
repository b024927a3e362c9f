//! A program in its role: from its start to its last word.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::dialogue::EnterError;
use crate::events::{Voice, monotonic_ns};
use crate::ledger::Note;
use crate::output::{self, Log};
use crate::phase_link::PhaseLink;
use crate::ports;
use crate::proto::{Exited, Ready, event::What, exited::How, readiness::Rule};
use crate::spawn;

/// How long output is waited for after the program's end: a descendant may hold the pipe for ever.
const DRAIN: Duration = Duration::from_secs(1);
/// How often ports are looked at.
const PORT_INTERVAL: Duration = Duration::from_millis(20);

/// What to start. Everything has been looked up and checked.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    /// As written, for people; the first is the program's argument zero.
    pub(crate) words: Vec<String>,
    /// All of the environment, except the phase socket.
    pub(crate) environment: Vec<(String, String)>,
    /// Where its logs go; it runs in `files/` below.
    pub(crate) folder: PathBuf,
    pub(crate) rule: Rule,
    /// The line that begins the phase dialogue, for a program that speaks it.
    pub(crate) configure: Option<Vec<u8>>,
}

/// A started program.
#[derive(Debug)]
pub(crate) struct Component {
    pub(crate) pid: u32,
    orders: mpsc::UnboundedSender<Order>,
    /// Becomes true after its last event.
    over: watch::Receiver<bool>,
    phases: Option<Arc<PhaseLink>>,
}

/// What ends a component.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// The phase protocol's `end`; nothing for other programs.
    End,
    /// To the whole process group.
    Signal(Signal),
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
    pub(crate) fn start(launch: Launch, note: Note, voice: Voice) -> std::io::Result<Component> {
        let voice = Arc::new(voice);
        let files = launch.folder.join("files");
        std::fs::create_dir_all(&files)?;
        let logs = (Log::create(&launch.folder, false)?, Log::create(&launch.folder, true)?);
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
        spawn::prepare(&mut command, note, its_end);
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
                PhaseLink::open(socket, configure, voice.clone(), ended.clone())?;
            phases = Some(Arc::new(link));
            tails.push(listener);
        }
        let line = match &launch.rule {
            Rule::Line(text) => Some(text.clone()),
            _ => None,
        };
        if let Some(pipe) = child.stdout.take() {
            tails.push(tokio::spawn(output::copy(pipe, logs.0, voice.clone(), line)));
        }
        if let Some(pipe) = child.stderr.take() {
            tails.push(tokio::spawn(output::copy(pipe, logs.1, voice.clone(), None)));
        }
        match launch.rule {
            Rule::Started(_) => voice.say(What::Ready(Ready {})),
            Rule::Port(port) => drop(tokio::spawn(watch_port(port, voice.clone(), ended))),
            Rule::Phases(_) | Rule::Line(_) | Rule::Exit(_) => {}
        }
        let supervisor = Supervisor {
            child,
            pid: pid.cast_signed(),
            words: launch.words,
            folder: launch.folder,
            ready_exit: if let Rule::Exit(code) = launch.rule { Some(code) } else { None },
            started_ns,
            voice,
            phases: phases.clone(),
            tails,
        };
        tokio::spawn(supervisor.run(order_receiver, ended_sender, over_sender));
        Ok(Component { pid, orders, over, phases })
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

    pub(crate) fn enter_phase(
        &self,
        phase: &str,
        measured: bool,
        peers: &Value,
    ) -> Result<(), PhaseError> {
        let link = self.phases.as_ref().ok_or(PhaseError::Mute)?;
        if self.is_over() {
            return Err(PhaseError::Over);
        }
        Ok(link.enter(phase, measured, peers)?)
    }
}

async fn watch_port(port: u32, voice: Arc<Voice>, ended: watch::Receiver<bool>) {
    let Ok(port) = u16::try_from(port) else { return };
    let mut interval = tokio::time::interval(PORT_INTERVAL);
    while !*ended.borrow() {
        interval.tick().await;
        if ports::is_open(port) {
            return voice.say(What::Ready(Ready {}));
        }
    }
}

/// Waits for the program's end and is the only one to signal it, so that no signal goes to a
/// process number that has been given away.
struct Supervisor {
    child: Child,
    pid: i32,
    words: Vec<String>,
    folder: PathBuf,
    ready_exit: Option<i32>,
    started_ns: i64,
    voice: Arc<Voice>,
    phases: Option<Arc<PhaseLink>>,
    /// Those who still listen to it.
    tails: Vec<JoinHandle<()>>,
}

impl Supervisor {
    async fn run(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Order>,
        ended: watch::Sender<bool>,
        over: watch::Sender<bool>,
    ) {
        let mut stopped_by_us = false;
        let status = loop {
            tokio::select! {
                // Its end is seen before an order that came at the same time.
                biased;
                status = self.child.wait() => break status,
                Some(order) = orders.recv() => {
                    stopped_by_us = true;
                    self.obey(order);
                }
            }
        };
        let ended_ns = monotonic_ns();
        ended.send_replace(true);
        for tail in self.tails {
            // The ones after the first have had the same second already.
            let left = DRAIN.saturating_sub(elapsed_since(ended_ns));
            let _ = tokio::time::timeout(left, tail).await;
        }
        let how = status.ok().and_then(how);
        let facts = Facts { pid: self.pid, stopped_by_us, started_ns: self.started_ns, ended_ns };
        if let Err(error) = write_exit(&self.folder, &self.words, how, &facts) {
            let line = format!("loopscope: cannot write exit.json: {error}");
            self.voice.say(What::Output(crate::proto::Output { line, stderr: true }));
        }
        if let (Some(How::Code(code)), Some(wanted)) = (how, self.ready_exit)
            && code == wanted
        {
            self.voice.say(What::Ready(Ready {}));
        }
        self.voice.say_last(What::Exited(Exited { how, stopped_by_us }));
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

struct Facts {
    pid: i32,
    stopped_by_us: bool,
    started_ns: i64,
    ended_ns: i64,
}

fn write_exit(
    folder: &Path,
    words: &[String],
    how: Option<How>,
    facts: &Facts,
) -> std::io::Result<()> {
    let mut exit = json!({
        "pid": facts.pid,
        "command": words,
        "stopped_by_us": facts.stopped_by_us,
        "started_ns": facts.started_ns,
        "ended_ns": facts.ended_ns,
    });
    match how {
        Some(How::Code(code)) => exit["code"] = code.into(),
        Some(How::Signal(signal)) => exit["signal"] = signal.into(),
        None => {}
    }
    std::fs::write(folder.join("exit.json"), format!("{exit:#}\n"))
}
