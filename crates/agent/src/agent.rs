//! The parts of an agent: its host or its machine, and how they are ended.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use loopscope_collect::Identity;
use thiserror::Error;
use tokio::sync::{Mutex, mpsc};

use crate::host::Host;
use crate::kernel::{Begun, Kernel, KernelError};
use crate::ledger::{Ledger, LedgerError};
use crate::machine::Machine;
use crate::proto::StartKernelRequest;
use crate::rights::Invoker;
use crate::rootless::RootlessError;
use crate::testbed::SHARED_KERNEL;

/// Time between SIGTERM and SIGKILL if the agent ends without an order to stop components.
const LAST_GRACE: Duration = Duration::from_millis(500);

/// How an agent is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// A directory to make before all else, and to remove at the end; `socket` and `dir` may lie
    /// in it.
    pub scratch: Option<PathBuf>,
    /// The Unix socket that it answers on; `None`: it has one connection, over standard input and
    /// output, and ends with it.
    pub socket: Option<PathBuf>,
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
    /// The SHA-256 of that file, in hexadecimal digits; none: it is not known yet.
    pub sha256: Option<String>,
    /// What [`crate::scope::enter`] returned.
    pub no_scope: Option<String>,
    /// See [`crate::ledger::state_dir`].
    pub state_dir: PathBuf,
    /// The user whose agent it is, where it has more rights than that user.
    pub invoker: Option<Invoker>,
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
    /// The namespaces of a user who is not root.
    #[error(transparent)]
    Rootless(#[from] RootlessError),
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
    /// The guardian.
    #[error("cannot start the process that cleans up after this one: {source}")]
    Guardian {
        /// The system's error.
        source: io::Error,
    },
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
    pub(crate) sha256: Option<String>,
    pub(crate) host: Option<Arc<Host>>,
    /// `None` for the agent of a host.
    pub(crate) machine: Option<Arc<Machine>>,
    pub(crate) kernel: Kernel,
    pub(crate) ends: mpsc::UnboundedSender<&'static str>,
    pub(crate) ledger: Arc<Ledger>,
    /// Problems of undoing, once it has been tried.
    pub(crate) closed: Mutex<Option<Vec<String>>>,
}

impl Agent {
    /// Records the kernel of this host, or the one that this machine's hosts share.
    pub(crate) fn start_kernel(&self, request: &StartKernelRequest) -> Result<Begun, KernelError> {
        let (folder, identity) = match (&self.host, &self.machine) {
            (Some(host), _) => (host.folder.clone(), host.clock.identity()),
            (None, Some(machine)) => {
                let identity = Identity::of_this_machine()?;
                (machine.dir.join("hosts").join(SHARED_KERNEL), identity)
            }
            (None, None) => return Err(KernelError::NoHost),
        };
        let identity = Identity { host: request.host.clone(), ..identity };
        let host = self.host.as_ref();
        self.kernel.start(request, &folder.join("kernel"), host, identity, &self.ledger)
    }

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
        // Its instances can go when nobody reads them.
        if let Err(error) = tokio::task::block_in_place(|| self.kernel.finish()) {
            problems.push(error.to_string());
        }
        let undone = tokio::task::block_in_place(|| self.ledger.undo());
        problems.extend(undone.problems);
        problems.extend(undone.left.into_iter().map(|what| format!("left alone: {what}")));
        if let Some(host) = &self.host {
            host.events.close();
        }
        *closed = Some(problems.clone());
        problems
    }
}
