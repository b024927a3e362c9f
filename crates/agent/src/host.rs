//! One host: its components, and what they are given.

mod phases;
mod stop;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use loopscope_collect::{ClockMap, Departure, LossReport, RUNTIME_DIR, RecordingSpec, stream};
use loopscope_time::source::{VARIABLE, counter_kind};
use serde_json::Value;
use thiserror::Error;

use crate::account::Account;
use crate::clock::{ClockError, HostClock, Started};
use crate::component::{Component, Launch, PhaseError};
use crate::control::{self, Description, Reply, Request, Server};
use crate::dialogue::{self, Peers};
use crate::events::Events;
use crate::ledger::{Entry, Ledger, LedgerError, RUN_MARK};
use crate::ports::Ports;
use crate::program::{self, LookupError, is_sender};
use crate::proto::{Departures, StartClockRequest, StartRequest, readiness::Rule};
use crate::rights::Invoker;
use crate::testbed::{is_name, prefix};
use crate::trace::{HostReporter, Source, Trace, TraceError};
use crate::variables::{self, Sources};

/// Variables that say what a program of a run is. None is passed on from the agent's own
/// environment.
const HOST_MARK: &str = "LOOPSCOPE_HOST";
const COMPONENT_MARK: &str = "LOOPSCOPE_COMPONENT";
const PHASE_FD: &str = "LOOPSCOPE_PHASE_FD";
const CLOCK_PAGE: &str = "LOOPSCOPE_CLOCK";
/// The page's file in the folder that is its own.
const PAGE: &str = "page";

/// One host of the run.
pub(crate) struct Host {
    pub(crate) name: String,
    /// `hosts/<host>/` of the run directory.
    pub(crate) folder: PathBuf,
    pub(crate) events: Events,
    pub(crate) clock: HostClock,
    namespace: Option<String>,
    /// This very binary.
    program: PathBuf,
    /// The user whose host it is, where the agent has more rights than that user.
    invoker: Option<Invoker>,
    ledger: Arc<Ledger>,
    components: Mutex<BTreeMap<String, Arc<Component>>>,
    /// Those that came last: the host's other components get the same, most often.
    peers: Mutex<Peers>,
    ports: Ports,
    trace: Arc<Mutex<TraceFolders>>,
}

/// The recording, and how many runtime directories it has been given.
struct TraceFolders {
    state: Trace,
    folders: u32,
    /// `loopscope trigger` reaches it.
    controlled: bool,
}

/// Why something could not be done with a component.
#[derive(Debug, Error)]
pub(crate) enum HostError {
    #[error("{0:?} cannot name a component: letters, digits, '-', '_' and '.', at most 64")]
    BadName(String),
    #[error("component {0} has been started already")]
    Exists(String),
    #[error("there is no component {0} on this host")]
    Unknown(String),
    #[error("component {component}: {what}")]
    Invalid { component: String, what: String },
    #[error("component {component} ({command}): {source}")]
    Lookup { component: String, command: String, source: LookupError },
    #[error("component {component}: cannot start {command}: {source}{hint}")]
    Spawn { component: String, command: String, hint: &'static str, source: std::io::Error },
    #[error("component {component} {source}")]
    Phase { component: String, source: PhaseError },
    #[error(transparent)]
    Clock(#[from] ClockError),
    #[error("host {host}: no place for its clock page: {source}")]
    ClockPage { host: String, source: LedgerError },
    #[error("component {component}: {source}")]
    Trace { component: String, source: TraceError },
    #[error("path {path}: messages were not watched for its deadline: on host {host} {what}")]
    NotWatched { path: String, host: String, what: &'static str },
    #[error("cannot make {path}: {source}")]
    Folder { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl Host {
    /// `folder` must exist.
    pub(crate) fn new(
        name: String,
        folder: PathBuf,
        namespace: Option<String>,
        program: PathBuf,
        invoker: Option<Invoker>,
        ledger: Arc<Ledger>,
        clock: HostClock,
    ) -> Host {
        let events = Events::new(clock.global());
        let (components, peers, ports) = (Mutex::default(), Mutex::default(), Ports::default());
        let trace = TraceFolders { state: Trace::Idle, folders: 0, controlled: false };
        let trace = Arc::new(Mutex::new(trace));
        Host {
            name,
            folder,
            events,
            clock,
            namespace,
            program,
            invoker,
            ledger,
            components,
            peers,
            ports,
            trace,
        }
    }

    pub(crate) fn components(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Component>>> {
        self.components.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the exchange of probes and makes the page that components read.
    pub(crate) fn start_clock(&self, request: StartClockRequest) -> Result<Started, HostError> {
        let folder = self.clock_folder();
        let made = self.ledger.make(&[Entry::Directory { path: folder.clone() }]);
        made.map_err(|source| HostError::ClockPage { host: self.name.clone(), source })?;
        // Components may be other users'.
        through(&folder)?;
        Ok(self.clock.start(request, &self.clock_logs(), &folder.join(PAGE))?)
    }

    /// Where logs of probes go.
    pub(crate) fn clock_logs(&self) -> PathBuf {
        self.folder.join("clock")
    }

    /// Where the clock page is, for as long as there is one.
    fn clock_folder(&self) -> PathBuf {
        memory().join(format!("{}-{}-clock", prefix(self.ledger.run()), self.name))
    }

    /// Starts a component; its process number. Must be called inside the runtime.
    pub(crate) fn start(&self, request: StartRequest) -> Result<u32, HostError> {
        let component = request.component.clone();
        if !is_name(&component) {
            return Err(HostError::BadName(component));
        }
        // Held until it is entered, so that two requests cannot both start it.
        let mut components = self.components();
        if components.contains_key(&component) {
            return Err(HostError::Exists(component));
        }
        let launch = self.prepare(request)?;
        let (command, is_other) = (launch.words.join(" "), launch.account.is_some());
        let note = self.ledger.note(&format!("component {component} of host {}", self.name));
        let sender = self.events.sender(&component);
        let started = Component::start(launch, note, sender, &self.ports);
        let started = started.map_err(|source| HostError::Spawn {
            component: component.clone(),
            command,
            // The program itself has been found.
            hint: match source.raw_os_error() {
                Some(nix::libc::ENOENT) => "; the interpreter in its first line does not exist",
                Some(nix::libc::EACCES) if is_other => {
                    "; its user may not execute it, or not enter a folder on the way to it"
                }
                Some(nix::libc::ENOEXEC) => "; it is neither a binary nor begins with #!",
                _ => "",
            },
            source,
        })?;
        let pid = started.pid;
        components.insert(component, Arc::new(started));
        Ok(pid)
    }

    fn prepare(&self, request: StartRequest) -> Result<Launch, HostError> {
        let component = request.component;
        let invalid = |what: String| HostError::Invalid { component: component.clone(), what };
        let words = words(request.command).ok_or_else(|| invalid("no command".to_owned()))?;
        let rule = request.readiness.and_then(|r| r.rule).unwrap_or(Rule::Started(true));
        if let Rule::Port(port @ (0 | 65536..)) = rule {
            return Err(invalid(format!("{port} is no port")));
        }
        let account = Some(request.user.as_str()).filter(|user| !user.is_empty());
        let account = account.map(Account::find).transpose().map_err(|e| invalid(e.to_string()))?;
        let has_rights =
            self.invoker.is_some() && account.is_none() && is_sender(&words, &request.config_json);
        let mut environment = if has_rights {
            variables::of_rights(self.ledger.state_dir())
        } else {
            let sources = Sources {
                inherit: &request.inherit,
                account: account.as_ref(),
                given: request.environment.into_iter().collect(),
                own_folder: self.called().parent(),
            };
            sources.variables(self.own_variables())
        };
        for (name, value) in self.marks(Some(&component)) {
            environment.insert(name.to_owned(), value.to_owned());
        }
        let directory = std::env::current_dir()
            .map_err(|e| invalid(format!("the working directory is gone: {e}")))?;
        let called = if has_rights { &self.program } else { self.called() };
        let program = program::find(&words[0], &directory, &environment["PATH"], called).map_err(
            |source| HostError::Lookup {
                component: component.clone(),
                command: words.join(" "),
                source,
            },
        )?;
        let words = program::from_folder(words, &directory);
        let mut configure = None;
        if matches!(rule, Rule::Phases(_)) {
            let json = Some(request.config_json.as_str()).filter(|json| !json.is_empty());
            let config: Value = serde_json::from_str(json.unwrap_or("{}"))
                .map_err(|e| invalid(format!("its configuration is not JSON: {e}")))?;
            let line = dialogue::configure(&component, &self.name, &config);
            configure = Some(line.map_err(|length| {
                let limit = dialogue::LIMIT_TO_PROGRAM;
                invalid(format!("its configuration has {length} bytes; {limit} are allowed"))
            })?);
        }
        // Empty: dormant. Without the variable a program would wait for an attach, and leave its
        // directory behind when it is killed.
        let mut runtime = String::new();
        if !request.streams_json.is_empty() {
            let folder = self.prepare_trace(&component, &request.streams_json, account.as_ref())?;
            runtime = folder.display().to_string();
        }
        environment.insert(RUNTIME_DIR.to_owned(), runtime);
        environment.insert(VARIABLE.to_owned(), counter_kind().to_string());
        // The machine's own service knows another time than the run.
        let page = self.clock_folder().join(PAGE).display().to_string();
        environment.insert(CLOCK_PAGE.to_owned(), page);
        let folder = self.folder.join("components").join(&component);
        if account.is_some() {
            self.let_through(&folder)?;
        }
        let cgroup = self.make_cgroup(&component)?;
        let environment = environment.into_iter().collect();
        let output_limit = Some(request.output_limit).filter(|&limit| limit != 0);
        Ok(Launch {
            program,
            words,
            environment,
            folder,
            rule,
            configure,
            account,
            cgroup,
            output_limit,
            has_rights,
        })
    }

    /// The agent's own variables that components can inherit; where sudo has started it, the user's.
    fn own_variables(&self) -> impl Iterator<Item = (String, String)> {
        let own = match &self.invoker {
            Some(invoker) => invoker.variables.clone(),
            None => variables::of_process(),
        };
        own.into_iter().filter(|(name, _)| ![PHASE_FD, RUNTIME_DIR].contains(&name.as_str()))
    }

    /// What components call `loopscope-host`.
    fn called(&self) -> &Path {
        self.invoker.as_ref().map_or(&self.program, |invoker| &invoker.program)
    }

    /// Makes a component's folder, and lets every user go through it and those above it that the
    /// run has made, so that its program finds its own files by their paths. None can list them.
    fn let_through(&self, folder: &Path) -> Result<(), HostError> {
        std::fs::create_dir_all(folder)
            .map_err(|source| HostError::Folder { path: folder.to_owned(), source })?;
        let scratch = self.ledger.directory_above(folder);
        let outermost = scratch.as_deref().unwrap_or(&self.folder);
        folder.ancestors().take_while(|path| path.starts_with(outermost)).try_for_each(through)
    }

    /// The cgroup of the host's components, or of one, if the run has one.
    fn cgroup(&self, component: Option<&str>) -> Option<PathBuf> {
        let host = self.ledger.cgroup()?.join(&self.name);
        Some(component.map_or(host.clone(), |component| host.join(component)))
    }

    /// Makes the cgroup of a component.
    fn make_cgroup(&self, component: &str) -> Result<Option<PathBuf>, HostError> {
        let Some(path) = self.cgroup(Some(component)) else { return Ok(None) };
        std::fs::create_dir_all(&path)
            .map_err(|source| HostError::Folder { path: path.clone(), source })?;
        Ok(Some(path))
    }

    fn marks<'a>(&'a self, component: Option<&'a str>) -> Vec<(&'static str, &'a str)> {
        let mut marks = vec![(RUN_MARK, self.ledger.run()), (HOST_MARK, self.name.as_str())];
        marks.extend(component.map(|component| (COMPONENT_MARK, component)));
        marks
    }

    /// A fresh runtime directory for the component's instrumentation, which is recorded from now
    /// on.
    fn prepare_trace(
        &self,
        component: &str,
        streams: &str,
        account: Option<&Account>,
    ) -> Result<PathBuf, HostError> {
        let of_component = |source| HostError::Trace { component: component.to_owned(), source };
        let identity = self.clock.identity();
        let recording = RecordingSpec::from_json(streams, identity.frequency)
            .map_err(|error| of_component(error.into()))?;
        let mut trace = self.trace();
        let prefix = prefix(self.ledger.run());
        let place = loopscope_collect::sweep::memory();
        let folder = place.join(format!("{prefix}-{}-{}", self.name, trace.folders));
        self.ledger.make(&[Entry::Directory { path: folder.clone() }])?;
        trace.folders += 1;
        // One level below: the collector renames it in the end, and that must stay in the folder
        // that the ledger knows.
        let runtime = folder.join("runtime");
        std::fs::create_dir(&runtime)
            .map_err(|source| HostError::Folder { path: runtime.clone(), source })?;
        stream::write(&recording.streams, &runtime, identity.frequency)
            .map_err(|error| of_component(error.into()))?;
        if let Some(account) = account {
            let error = |source| HostError::Folder { path: runtime.clone(), source };
            through(&folder)?;
            // What it reads there is no secret of the agent's.
            std::fs::set_permissions(runtime.join(stream::FILE), Permissions::from_mode(0o644))
                .and_then(|()| account.own(&runtime))
                .map_err(error)?;
        }
        let filter = self.clock.filter().map(|filter| Box::new(filter) as ClockMap);
        let source = Source { runtime: runtime.clone(), process: component.to_owned(), recording };
        let reporter = || HostReporter::new(self.events.sender(""), self.clock.global());
        let flight_recorders: Vec<String> = source
            .recording
            .streams
            .iter()
            .filter(|spec| spec.kind == stream::Kind::FlightRecorder)
            .map(|spec| spec.name.clone())
            .collect();
        let added = trace.state.add(source, &self.folder, identity, filter, reporter);
        added.map_err(of_component)?;
        if !flight_recorders.is_empty() && !trace.controlled {
            self.open_control(flight_recorders)?;
            trace.controlled = true;
        }
        Ok(runtime)
    }

    /// Lets `loopscope trigger` reach the flight recorders of this host.
    fn open_control(&self, flight_recorders: Vec<String>) -> Result<(), HostError> {
        let state_dir = self.ledger.state_dir();
        let path = control::path(state_dir);
        let error = |source| HostError::Folder { path: path.clone(), source };
        // No other process has this process's number, so an existing file belongs to no living one.
        self.ledger.record(&Entry::Socket { path: path.clone() })?;
        let server = Server::bind(state_dir).map_err(error)?;
        let description = Description {
            kind: "run".to_owned(),
            pids: [Some(std::process::id()), self.ledger.controller()]
                .into_iter()
                .flatten()
                .collect(),
            what: self.ledger.run().to_owned(),
            flight_recorders,
        };
        let trace = self.trace.clone();
        let serve = move || loop {
            server.wait();
            server.answer(|request| match request {
                Request::Describe => Reply::Description(description.clone()),
                Request::Trigger { stream } => {
                    let trace = trace.lock().unwrap_or_else(PoisonError::into_inner);
                    Reply::Triggered(trace.state.trigger(stream, None))
                }
                Request::Choose { .. } => {
                    Reply::Refused("what a run records is in its experiment file".to_owned())
                }
                Request::Links | Request::SetLink { .. } => {
                    Reply::Refused("a run's links are emulated by another process".to_owned())
                }
            });
        };
        // It ends with the process; the ledger has the socket.
        std::thread::Builder::new().name("control".to_owned()).spawn(serve).map_err(error)?;
        Ok(())
    }

    fn trace(&self) -> std::sync::MutexGuard<'_, TraceFolders> {
        self.trace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Triggers the flight recorder `stream`, or all; see [`Trace::trigger`].
    pub(crate) fn trigger(&self, stream: Option<String>, host: Option<String>) -> bool {
        self.trace().state.trigger(stream, host)
    }

    /// Watches messages of a path that ends here and began on another host.
    pub(crate) fn departed(&self, told: &Departures) -> Result<(), HostError> {
        let unwatched =
            |what| HostError::NotWatched { path: told.path.clone(), host: self.name.clone(), what };
        let global = self.clock.global();
        let heard = told.departures.iter().map(|departure| global.decode(departure)).collect();
        let heard: Option<Vec<Departure>> = heard;
        let heard = heard.ok_or_else(|| {
            unwatched("the time is not known yet, or while probes contradict each other")
        })?;
        if self.trace().state.departed(&told.path, heard) {
            Ok(())
        } else {
            Err(unwatched("nothing was recorded yet"))
        }
    }

    /// Ends the recording; blocks until all is written.
    pub(crate) fn finish_trace(&self) -> Result<LossReport, TraceError> {
        self.trace().state.finish()
    }

    fn component(&self, name: &str) -> Result<Arc<Component>, HostError> {
        self.components().get(name).cloned().ok_or_else(|| HostError::Unknown(name.to_owned()))
    }
}

/// Lets every user go through a folder, but not look into it.
fn through(path: &Path) -> Result<(), HostError> {
    std::fs::set_permissions(path, Permissions::from_mode(0o711))
        .map_err(|source| HostError::Folder { path: path.to_owned(), source })
}

/// Where files do not go to a disk.
fn memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

/// The command as words. A single word with a blank in it is a line for the shell.
fn words(command: Vec<String>) -> Option<Vec<String>> {
    match command.as_slice() {
        [] => None,
        [line] if line.trim().is_empty() => None,
        [line] if line.contains(char::is_whitespace) => {
            Some(vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()])
        }
        _ => Some(command),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_with_blanks_is_for_the_shell() {
        let of = |words_of: &[&str]| words(words_of.iter().map(|&w| w.to_owned()).collect());
        assert_eq!(of(&["a", "b c"]).unwrap(), ["a", "b c"]);
        assert_eq!(of(&["a"]).unwrap(), ["a"]);
        assert_eq!(of(&["a | b"]).unwrap(), ["/bin/sh", "-c", "a | b"]);
        assert_eq!((of(&[]), of(&[" "])), (None, None));
    }
}
