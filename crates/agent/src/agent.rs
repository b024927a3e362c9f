//! An agent's life: from its socket to its last undone entry.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, umask};
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::clock::HostClock;
use crate::host::Host;
use crate::ledger::{Entry, Ledger, LedgerError};
use crate::machine::{Machine, MachineError, check_socket_path};
use crate::processes::Identity;
use crate::proto::agent_server::AgentServer;
use crate::service::Service;
use crate::testbed::is_name;
use crate::{dialogue, namespace, spawn, view};

/// The line that an agent writes to standard output once its socket answers.
pub const READY: &[u8] = b"ready\n";
/// Time between SIGTERM and SIGKILL if the agent ends without an order to stop components.
const LAST_GRACE: Duration = Duration::from_millis(500);

/// How an agent is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// A directory to make before all else, and to remove at the end; `socket` and `dir` may lie
    /// in it.
    pub scratch: Option<PathBuf>,
    /// The Unix socket that it answers on.
    pub socket: PathBuf,
    /// Where it writes `hosts/<host>/`. It holds a shared lock on it while it lives.
    pub dir: PathBuf,
    /// The host that it is; none: it only makes testbeds.
    pub host: Option<String>,
    /// The network namespace that it moves into. It then takes part in the ledger of the agent
    /// that made the namespace.
    pub netns: Option<String>,
    /// The network namespace that its clock probes are in; none: the same.
    pub clock_netns: Option<String>,
    /// The file that its programs read as `/etc/hosts`; `None`: the machine's.
    pub names: Option<PathBuf>,
    /// The run that it belongs to; none: one of its own.
    pub run: Option<String>,
    /// Seed of a hidden clock; none: the machine's own.
    pub synthetic_seed: Option<u64>,
    /// The binary that it is, for starting others.
    pub program: PathBuf,
    /// See [`crate::ledger::state_dir`].
    pub state_dir: PathBuf,
}

/// Why an agent could not live.
#[derive(Debug, Error)]
pub enum AgentError {
    /// An option.
    #[error("{0:?} cannot be used as a name: letters, digits, '-', '_' and '.', at most 64")]
    Name(String),
    /// The namespace.
    #[error("cannot enter the network namespace {name}: {source}")]
    Namespace {
        /// Its name.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// What it sees of the machine.
    #[error(
        "cannot give host {host} a view of its own: {source} (in a container, this needs --privileged)"
    )]
    View {
        /// The host.
        host: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file or folder.
    #[error("cannot use {path}: {source}")]
    Path {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The counter.
    #[error("cannot tell the frequency of this machine's counter")]
    Counter(#[from] loopscope_collect::Error),
    /// The socket's path.
    #[error("{0}")]
    Socket(String),
    /// The system.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// The parts of an agent that its service uses.
pub(crate) struct Agent {
    pub(crate) program: PathBuf,
    pub(crate) host: Option<Arc<Host>>,
    /// `None` for an agent inside a testbed.
    pub(crate) machine: Option<Machine>,
    pub(crate) ends: mpsc::UnboundedSender<&'static str>,
    pub(crate) ledger: Arc<Ledger>,
    /// Problems of undoing, once it has been tried.
    closed: Mutex<Option<Vec<String>>>,
}

impl Agent {
    /// Ends components and hosts and undoes the ledger; what could not be undone. Does it once,
    /// however often it is called.
    pub(crate) async fn close(&self) -> Vec<String> {
        let mut closed = self.closed.lock().await;
        if let Some(problems) = &*closed {
            return problems.clone();
        }
        let mut problems = vec![];
        if let Some(host) = &self.host {
            tokio::task::block_in_place(|| host.clock.abandon());
            match host.stop(&[], LAST_GRACE).await {
                Ok(survivors) => problems.extend(survivors),
                Err(error) => problems.push(error.to_string()),
            }
            // So that what was recorded can be read; no caller is left to receive an error.
            if let Err(error) = tokio::task::block_in_place(|| host.finish_trace()) {
                problems.push(format!("host {}: {error}", host.name));
            }
        }
        if let Some(machine) = &self.machine {
            machine.end_agents().await;
        }
        let undone = tokio::task::block_in_place(|| self.ledger.undo());
        problems.extend(undone.problems);
        if let Some(host) = &self.host {
            host.events.close();
        }
        *closed = Some(problems.clone());
        problems
    }
}

/// Lives until standard input ends, a signal comes or the controller shuts it down. What could not
/// be undone, for people.
pub fn run(options: Options) -> Result<Vec<String>, AgentError> {
    for name in [&options.host, &options.run].into_iter().flatten() {
        if !is_name(name) {
            return Err(AgentError::Name(name.clone()));
        }
    }
    let absolute = |path: &Path| {
        std::path::absolute(path)
            .map_err(|source| AgentError::Path { path: path.to_owned(), source })
    };
    let (socket, dir) = (absolute(&options.socket)?, absolute(&options.dir)?);
    check_socket_path(&socket).map_err(|e: MachineError| AgentError::Socket(e.to_string()))?;
    // From here on other users' programs may run.
    spawn::keep_private();
    // Before there are other threads: they would stay behind.
    if let Some(name) = &options.netns {
        namespace::enter(name)
            .map_err(|source| AgentError::Namespace { name: name.clone(), source })?;
        let host = options.host.clone().unwrap_or_default();
        view::separate(options.names.as_deref())
            .map_err(|source| AgentError::View { host, source })?;
    }
    let state_dir = absolute(&options.state_dir)?;
    let run = options
        .run
        .clone()
        .unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string().split_off(26));
    let ledger = Arc::new(match &options.netns {
        Some(_) => Ledger::join(&state_dir, &run)?,
        None => Ledger::create(&state_dir, &run, controller()?)?,
    });
    let outcome = live(options, &socket, &dir, state_dir, &ledger);
    if outcome.is_err() {
        // No other process would undo it; the error that is reported is the one that led here.
        ledger.undo();
    }
    outcome
}

fn live(
    options: Options,
    socket: &Path,
    dir: &Path,
    state_dir: PathBuf,
    ledger: &Arc<Ledger>,
) -> Result<Vec<String>, AgentError> {
    if let Some(scratch) = &options.scratch {
        let path = std::path::absolute(scratch)
            .map_err(|source| AgentError::Path { path: scratch.clone(), source })?;
        ledger.make(&[Entry::Directory { path }])?;
    }
    let (ends, mut reasons) = mpsc::unbounded_channel();
    let host = options.host.as_ref().map(|name| open_host(name, dir, &options, ledger));
    let agent = Agent {
        host: host.transpose()?,
        machine: options.netns.is_none().then(|| Machine {
            dir: dir.to_owned(),
            program: options.program.clone(),
            sockets: socket.parent().unwrap_or(Path::new("/")).to_owned(),
            state_dir,
            ledger: ledger.clone(),
            agents: Mutex::default(),
        }),
        program: options.program,
        ends: ends.clone(),
        closed: Mutex::default(),
        ledger: ledger.clone(),
    };
    let listener = listen(socket, ledger)?;
    let _held = hold(dir).map_err(|source| AgentError::Path { path: dir.to_owned(), source })?;
    watch_stdin(ends);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(Arc::new(agent), listener, &mut reasons))
}

async fn serve(
    agent: Arc<Agent>,
    listener: UnixListener,
    reasons: &mut mpsc::UnboundedReceiver<&'static str>,
) -> Result<Vec<String>, AgentError> {
    let connections = UnixListenerStream::new(tokio::net::UnixListener::from_std(listener)?);
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut server = tokio::spawn(
        Server::builder()
            .add_service(
                AgentServer::new(Service::new(agent.clone()))
                    .max_decoding_message_size(2 * dialogue::LIMIT_TO_PROGRAM),
            )
            .serve_with_incoming_shutdown(connections, async {
                // Dropped or sent, both mean the end.
                let _ = stopped.await;
            }),
    );
    // The reader of standard output may have gone.
    let _ = io::stdout().write_all(READY).and_then(|()| io::stdout().flush());
    tokio::select! {
        _ = reasons.recv() => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        failure = &mut server => {
            let failure = failure.map_err(io::Error::other).and_then(|r| r.map_err(io::Error::other));
            print_line(&format!("the agent's socket failed: {failure:?}"));
        }
    }
    let problems = agent.close().await;
    // Answers on their way are finished; a client that does not hang up is not waited for.
    let _ = stop.send(());
    if !server.is_finished() {
        let _ = tokio::time::timeout(Duration::from_secs(1), server).await;
    }
    Ok(problems)
}

fn open_host(
    name: &str,
    dir: &Path,
    options: &Options,
    ledger: &Arc<Ledger>,
) -> Result<Arc<Host>, AgentError> {
    let folder = dir.join("hosts").join(name);
    std::fs::create_dir_all(&folder)
        .map_err(|source| AgentError::Path { path: folder.clone(), source })?;
    let frequency = loopscope_collect::frequency::nominal()?;
    let clock =
        HostClock::new(name, frequency, options.synthetic_seed, options.clock_netns.clone());
    let (netns, program) = (options.netns.clone(), options.program.clone());
    Ok(Arc::new(Host::new(name.to_owned(), folder, netns, program, ledger.clone(), clock)))
}

/// Tells who reads what is in `dir` that somebody still writes there.
fn hold(dir: &Path) -> io::Result<Flock<File>> {
    std::fs::create_dir_all(dir)?;
    Flock::lock(File::open(dir)?, FlockArg::LockShared).map_err(|(_, errno)| errno.into())
}

/// The process that started this one.
fn controller() -> Result<Identity, io::Error> {
    let parent = nix::unistd::getppid().as_raw();
    Identity::of(parent).ok_or_else(|| io::Error::other("who started this agent is gone already"))
}

fn listen(path: &Path, ledger: &Ledger) -> Result<UnixListener, AgentError> {
    let bind = || {
        // No other user may connect, not even before a chmod. There is one thread.
        let before = umask(Mode::S_IRWXG | Mode::S_IRWXO | Mode::S_IXUSR);
        let listener = UnixListener::bind(path);
        umask(before);
        listener
    };
    let listener = ledger.make_by(&Entry::Socket { path: path.to_owned() }, bind)?;
    let error = |source| AgentError::Path { path: path.to_owned(), source };
    listener.set_nonblocking(true).map_err(error)?;
    Ok(listener)
}

/// The process that started this agent holds standard input open.
fn watch_stdin(ends: mpsc::UnboundedSender<&'static str>) {
    // A thread, because a blocking read cannot be given up: it ends with the process.
    std::thread::spawn(move || {
        let mut buffer = [0; 256];
        while matches!(io::stdin().read(&mut buffer), Ok(1..)) {}
        let _ = ends.send("end of standard input");
    });
}

/// Writes a line to standard error and ignores failures: the reader may be gone, and that must not
/// stop a cleanup.
pub(crate) fn print_line(text: &str) {
    let _ = writeln!(io::stderr(), "loopscope-host agent: {text}");
}
