//! An agent's process: its connections, its signals, and its end.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use loopscope_clocksync::probe::BeforeStamps;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, umask};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::Server;

use crate::agent::{Agent, AgentError, Options};
use crate::clock::HostClock;
use crate::console::{READY, print_line};
use crate::guardian::Guardian;
use crate::host::Host;
use crate::kernel::Kernel;
use crate::lacking::{self, Lack};
use crate::ledger::{Entry, Ledger};
use crate::machine::{Machine, MachineError, check_socket_path};
use crate::machine_proto::machine_server::MachineServer;
use crate::processes::Identity;
use crate::proto::agent_server::AgentServer;
use crate::provisioning::Provisioning;
use crate::reset::reset_abandoned;
use crate::service::Service;
use crate::setting::{Setting, stamps};
use crate::testbed::is_name;
use crate::{dialogue, disk, launcher, namespace, rootless, spawn, stdio, view};

/// After so much silence of the controller a host ends what it does for it.
const SILENCE: Duration = Duration::from_secs(15);
/// So often a host asks the controller for a sign of life, by which it gives one itself.
const HEARTBEAT: Duration = Duration::from_secs(1);

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
    let (socket, dir) =
        (options.socket.as_deref().map(absolute).transpose()?, absolute(&options.dir)?);
    if let Some(socket) = &socket {
        check_socket_path(socket).map_err(|e: MachineError| AgentError::Socket(e.to_string()))?;
    }
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
    let run = options.run.clone().unwrap_or_else(new_run);
    if options.netns.is_none()
        && let Ok(report) = reset_abandoned(&state_dir)
    {
        // They stay in their ledgers, for `loopscope reset`. Of a folder that cannot be used, the next
        // step says so.
        report
            .problems
            .iter()
            .for_each(|problem| print_line(&format!("an earlier run: {problem}")));
    }
    let ledger = Arc::new(match &options.netns {
        Some(_) => Ledger::join(&state_dir, &run)?,
        None => Ledger::create(&state_dir, &run, controller()?)?,
    });
    let owned = match options.netns {
        Some(_) => Ok(None),
        None => {
            // A host of a machine without root is one for its own user, and needs no namespaces.
            let rootless = options.host.is_none() && rootless::is_needed();
            let (program, no_scope) = (&options.program, options.no_scope.as_deref());
            own(program, &ledger, rootless, options.invoker.is_some(), no_scope)
        }
    };
    let (guardian, outcome) = match owned {
        Ok(guardian) => (guardian, live(options, socket.as_deref(), &dir, state_dir, &ledger)),
        Err(error) => (None, Err(error)),
    };
    if outcome.is_err() {
        // No other process would undo it; the error that is reported is the one that led here.
        ledger.undo();
    }
    if let Some(guardian) = guardian {
        guardian.dismiss();
    }
    outcome
}

/// Has all that this process makes end with it, also if it is killed: by a guardian, which it returns
/// or leaves to a launcher, or, without root, by namespaces that it enters. There must be one thread.
fn own(
    program: &Path,
    ledger: &Ledger,
    rootless: bool,
    has_rights: bool,
    no_scope: Option<&str>,
) -> Result<Option<Guardian>, AgentError> {
    let guardian = if rootless {
        rootless::enter(|| drop(ledger.undo()))?;
        None
    } else {
        let started = Guardian::start(program, ledger, has_rights);
        Some(started.map_err(|source| AgentError::Guardian { source })?)
    };
    ledger.own_by_cgroup(no_scope)?;
    match guardian {
        Some(guardian) if ledger.why_no_cgroup().is_some() => {
            launcher::keep(guardian).map_err(|source| AgentError::Guardian { source })?;
            Ok(None)
        }
        other => Ok(other),
    }
}

/// What the hosts of a testbed could not do that this user made here; nothing of the attempt is
/// left. `program` is this binary. An error says why there can be no testbed. There must be one
/// thread.
pub fn probe(
    program: &Path,
    state_dir: &Path,
    no_scope: Option<&str>,
) -> Result<Vec<Lack>, AgentError> {
    let ledger = Ledger::create(state_dir, &new_run(), controller()?)?;
    let owned = own(program, &ledger, rootless::is_needed(), false, no_scope);
    let (guardian, found) = match owned {
        Ok(guardian) => {
            let found = namespace::try_out().map(|()| lacking::find(ledger.why_no_cgroup()));
            (guardian, found.map_err(AgentError::from))
        }
        Err(error) => (None, Err(error)),
    };
    ledger.undo();
    if let Some(guardian) = guardian {
        guardian.dismiss();
    }
    found
}

/// The name of a run that has not been given one.
fn new_run() -> String {
    uuid::Uuid::new_v4().simple().to_string().split_off(26)
}

fn live(
    options: Options,
    socket: Option<&Path>,
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
        kernel: Kernel::default(),
        host: host.transpose()?,
        machine: socket.filter(|_| options.host.is_none()).map(|socket| {
            Arc::new(Machine {
                dir: dir.to_owned(),
                program: options.program.clone(),
                sockets: socket.parent().unwrap_or(Path::new("/")).to_owned(),
                state_dir,
                ledger: ledger.clone(),
                agents: Mutex::default(),
            })
        }),
        program: options.program,
        sha256: options.sha256,
        ends: ends.clone(),
        closed: Mutex::default(),
        ledger: ledger.clone(),
    };
    let listener = socket.map(|path| listen(path, ledger)).transpose()?;
    let _held = hold(dir).map_err(|source| AgentError::Path { path: dir.to_owned(), source })?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let agent = Arc::new(agent);
        if let Some(host) = agent.host.as_ref().filter(|_| options.netns.is_none()) {
            tokio::spawn(disk::watch(host.folder.clone(), host.events.sender("")));
        }
        let Some(listener) = listener else {
            let (connection, stdio) = stdio::connect(ends)?;
            // After it there is no other, and no end of them either.
            let connections = tokio_stream::once(Ok(connection)).chain(tokio_stream::pending());
            let problems = serve(agent, connections, Some(SILENCE), &mut reasons).await;
            stdio.finish();
            return problems;
        };
        watch_stdin(ends);
        let connections = UnixListenerStream::new(tokio::net::UnixListener::from_std(listener)?);
        // The reader of standard output may have gone.
        let _ = io::stdout().write_all(READY).and_then(|()| io::stdout().flush());
        serve(agent, connections, None, &mut reasons).await
    })
}

/// `silence`: how long a client may say nothing, asked or unasked, until its connection is closed.
async fn serve(
    agent: Arc<Agent>,
    connections: impl Stream<Item = io::Result<UnixStream>> + Send + 'static,
    silence: Option<Duration>,
    reasons: &mut mpsc::UnboundedReceiver<&'static str>,
) -> Result<Vec<String>, AgentError> {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let provisioning = agent.machine.clone().map(Provisioning::new).map(MachineServer::new);
    let mut server = tokio::spawn(
        Server::builder()
            .http2_keepalive_interval(silence.map(|_| HEARTBEAT))
            .http2_keepalive_timeout(silence.map(|silence| silence - HEARTBEAT))
            .add_service(
                AgentServer::new(Service::new(agent.clone()))
                    .max_decoding_message_size(2 * dialogue::LIMIT_TO_PROGRAM),
            )
            .add_optional_service(provisioning)
            .serve_with_incoming_shutdown(connections, async {
                // Dropped or sent, both mean the end.
                let _ = stopped.await;
            }),
    );
    let mut children = signal(SignalKind::child())?;
    loop {
        tokio::select! {
            _ = reasons.recv() => break,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            failure = &mut server => {
                let failure =
                    failure.map_err(io::Error::other).and_then(|r| r.map_err(io::Error::other));
                print_line(&format!("the agent's socket failed: {failure:?}"));
                break;
            }
            _ = children.recv() => {
                if let Some(machine) = &agent.machine {
                    machine.reap();
                }
            }
        }
    }
    if let Some(host) = &agent.host {
        // What ends from here on ends because of the agent: it is no cause of anything.
        host.events.close();
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
    let before_stamps = options.netns.is_none().then(|| {
        let ledger = ledger.clone();
        let record = move |interface: &str, before, on| {
            let setting = Setting::Stamps { interface: interface.to_owned() };
            let recorded = ledger.record_setting(&setting, &stamps(before), &stamps(on));
            recorded.map_err(io::Error::other)
        };
        Arc::new(record) as BeforeStamps
    });
    let clock_netns = options.clock_netns.clone();
    let clock = HostClock::new(name, frequency, options.synthetic_seed, clock_netns, before_stamps);
    let (netns, program, invoker) =
        (options.netns.clone(), options.program.clone(), options.invoker.clone());
    let (name, ledger) = (name.to_owned(), ledger.clone());
    Ok(Arc::new(Host::new(name, folder, netns, program, invoker, ledger, clock)))
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
