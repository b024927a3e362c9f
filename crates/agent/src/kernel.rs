//! Recording the machine's kernel: the instances of tracefs are entries of the ledger, and gone with
//! it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use loopscope_collect::Identity;
use loopscope_kernel::programs;
use loopscope_kernel::recorder::{Flight, Recorder, RecorderError, Request};
use loopscope_kernel::recording::{Account, Recording};
use loopscope_kernel::samples::{self, Sampler};
use loopscope_kernel::tracefs::{self, Instance};
use thiserror::Error;

use crate::cgroup;
use crate::host::Host;
use crate::ledger::{Entry, Ledger, LedgerError, prefix};
use crate::namespace;
use crate::proto::begun_kernel_class::Found;
use crate::proto::{
    BegunKernelClass, KernelClass, KernelFilters, MessageLength, MessageNumber, StartKernelRequest,
};

/// Looking at threads more often than that would be most of what this machine does.
const SHORTEST_PERIOD_NS: u64 = 100_000;

/// Why there are no kernel events.
#[derive(Debug, Error)]
pub(crate) enum KernelError {
    #[error("this kernel is being recorded already")]
    Twice,
    #[error("{0:?} cannot name a class of kernel events: lower-case letters")]
    Name(String),
    #[error("messages cannot have their number there: {0:?}")]
    Number(MessageNumber),
    #[error("there are no such ports: {0:?}")]
    Filters(KernelFilters),
    #[error("tracefs cannot be used: {0}")]
    Tracefs(io::Error),
    #[error("tracefs cannot be mounted, which takes root: {0}")]
    Mount(LedgerError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("this agent neither is a host nor makes any")]
    NoHost,
    #[error("the frequency of the machine's counter is not known: {0}")]
    Counter(#[from] loopscope_collect::Error),
    #[error("cannot make {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot tell which network namespaces are the hosts': {0}")]
    Namespaces(io::Error),
    #[error("cannot tell the number of the run's cgroup: {0}")]
    Cgroup(io::Error),
    #[error(transparent)]
    Recorder(#[from] RecorderError),
}

/// What was begun.
pub(crate) struct Begun {
    pub(crate) recording: Recording,
    /// What became of the classes that were asked for.
    pub(crate) classes: Vec<BegunKernelClass>,
}

/// What is being recorded.
#[derive(Debug)]
enum Recorded {
    Events(Recorder),
    Counts(Sampler),
}

/// The recording of a kernel, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    recorded: Mutex<Option<Recorded>>,
}

impl Kernel {
    /// Begins to record into `folder`, which is made. `host`: this is its agent, and its network is
    /// measured; else that of the hosts of the run.
    pub(crate) fn start(
        &self,
        request: &StartKernelRequest,
        folder: &Path,
        host: Option<&Arc<Host>>,
        identity: Identity,
        ledger: &Ledger,
    ) -> Result<Begun, KernelError> {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.is_some() {
            return Err(KernelError::Twice);
        }
        let make = || {
            fs::create_dir_all(folder)
                .map_err(|source| KernelError::Folder { path: folder.to_owned(), source })
        };
        if request.classes.iter().any(|class| class.name == samples::CLASS) {
            let host = host.map(Arc::clone).ok_or(KernelError::NoHost)?;
            make()?;
            let (sampler, recording) = Sampler::start(samples::Request {
                folder: folder.to_owned(),
                host: identity.host,
                clock_uuid: identity.clock_uuid,
                frequency: identity.frequency,
                period: Duration::from_nanos(request.period_ns.max(SHORTEST_PERIOD_NS)),
                roots: Box::new(move || processes(&host)),
            })?;
            *recorded = Some(Recorded::Counts(sampler));
            return Ok(Begun { recording, classes: vec![] });
        }
        let names = request.classes.iter().map(|class| &class.name);
        for name in names {
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase()) {
                return Err(KernelError::Name(name.clone()));
            }
        }
        let tracefs = mounted(ledger)?;
        make()?;
        let mut classes = BTreeMap::new();
        let by_programs = |class: &&KernelClass| programs::CLASSES.contains(&class.name.as_str());
        let (by_programs, others): (Vec<_>, Vec<_>) = request.classes.iter().partition(by_programs);
        for class in others {
            let name = format!("{}-{}", prefix(ledger.run()), class.name);
            let path = tracefs.join("instances").join(name);
            let entry = Entry::TraceInstance { path: path.clone() };
            ledger.make_by(&entry, || Instance::make(&path))?;
            classes.insert(class.name.clone(), (path, class.events.clone()));
        }
        let mut asked = None;
        let mut namespaces = vec![];
        if request.histograms || !by_programs.is_empty() {
            namespaces = measured(host.is_some(), &prefix(ledger.run()))?;
        }
        if !by_programs.is_empty() {
            // The network of a host that has a kernel of its own is that of other programs too.
            let cgroup = host.and_then(|_| ledger.cgroup()).map_or(Ok(0), cgroup::number);
            let cgroup = cgroup.map_err(KernelError::Cgroup)?;
            let classes = by_programs.iter().map(|each| (each.name.clone(), each.events.clone()));
            asked = Some(programs::Request {
                classes: classes.collect(),
                namespaces: namespaces.clone(),
                numbers: request.numbers.iter().map(number).collect::<Result<_, _>>()?,
                chosen: chosen(request.filters.as_ref(), cgroup)?,
            });
        }
        let (begun, recording) = Recorder::start(&Request {
            tracefs,
            folder: folder.to_owned(),
            host: identity.host,
            clock_uuid: identity.clock_uuid,
            frequency: identity.frequency,
            classes,
            programs: asked,
            histograms: request.histograms.then_some(namespaces),
            buffer: request.buffer,
            flight: request.flight.map(|flight| Flight {
                keep: Duration::from_nanos(flight.keep_ns),
                at_end: flight.at_end,
            }),
        })?;
        let known = begun.event_ns.iter().map(|(name, found)| match found {
            Ok(ns) => (name, Found::EventNs(*ns)),
            Err(why) => (name, Found::CostUnknown(why.clone())),
        });
        let without = begun.without.iter();
        let without = without.map(|(name, why)| (name, Found::Unrecorded(why.to_string())));
        let class = |(name, found): (&String, Found)| BegunKernelClass {
            name: name.clone(),
            found: Some(found),
        };
        let classes = known.chain(without).map(class).collect();
        *recorded = Some(Recorded::Events(begun));
        Ok(Begun { recording, classes })
    }

    /// Records these classes alone from now on.
    pub(crate) fn choose(&self, classes: Vec<String>) {
        let recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Recorded::Events(recorder)) = &*recorded {
            recorder.choose(classes);
        }
    }

    /// Triggers its flight recorder, which goes on to write for `post`.
    pub(crate) fn keep(&self, post: Duration) {
        let recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Recorded::Events(recorder)) = &*recorded {
            recorder.trigger(post);
        }
    }

    /// Ends it; the account, or `None` where nothing is recorded.
    pub(crate) fn finish(&self) -> Result<Option<Account>, KernelError> {
        let recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(match recorded {
            Some(Recorded::Events(recorder)) => Some(recorder.finish()?),
            Some(Recorded::Counts(sampler)) => Some(sampler.finish()?),
            None => None,
        })
    }
}

/// What is recorded alone.
fn chosen(given: Option<&KernelFilters>, cgroup: u64) -> Result<programs::Chosen, KernelError> {
    let Some(given) = given else {
        return Ok(programs::Chosen { cgroup, ..programs::Chosen::default() });
    };
    let wrong = |_| KernelError::Filters(given.clone());
    let ports = given.ports.iter().map(|port| u16::try_from(*port));
    Ok(programs::Chosen {
        ports: ports.collect::<Result<_, _>>().map_err(wrong)?,
        devices: given.devices.clone(),
        shortest_call_ns: given.shortest_call_ns,
        cgroup,
    })
}

/// Where messages have their number.
fn number(given: &MessageNumber) -> Result<programs::Number, KernelError> {
    let wrong = || KernelError::Number(*given);
    let length = |length: MessageLength| {
        let width = u8::try_from(length.width).ok().filter(|width| (1..=8).contains(width));
        Ok::<_, KernelError>(programs::Length {
            offset: length.offset,
            width: width.ok_or_else(wrong)?,
            big_endian: length.big_endian,
            uncounted: length.uncounted,
        })
    };
    Ok(programs::Number {
        protocol: u8::try_from(given.protocol).map_err(|_| wrong())?,
        port: u16::try_from(given.port).map_err(|_| wrong())?,
        from: given.sender,
        offset: given.offset,
        length: given.length.map(length).transpose()?,
    })
}

/// The first processes of a host's components that go on.
fn processes(host: &Host) -> Vec<u32> {
    let components = host.components();
    components.values().filter(|each| !each.is_over()).map(|each| each.pid).collect()
}

/// The inodes of the network namespaces of this host, or of those of a run.
fn measured(on_host: bool, prefix: &str) -> Result<Vec<u32>, KernelError> {
    let found = if on_host {
        vec![PathBuf::from("/proc/self/ns/net")]
    } else {
        namespace::of_hosts(prefix).map_err(KernelError::Namespaces)?
    };
    let inode = |path: PathBuf| {
        let found = fs::metadata(path).map_err(KernelError::Namespaces)?.ino();
        u32::try_from(found).map_err(|e| KernelError::Namespaces(io::Error::other(e)))
    };
    found.into_iter().map(inode).collect()
}

/// Where tracefs is mounted: where it is, or on a folder of the run's.
fn mounted(ledger: &Ledger) -> Result<PathBuf, KernelError> {
    if let Some(found) = tracefs::find().map_err(KernelError::Tracefs)? {
        return Ok(found);
    }
    let path = ledger.state_dir().join(format!("{}-tracefs", prefix(ledger.run())));
    ledger.make(&[Entry::Directory { path: path.clone() }])?;
    let mount = Entry::Mount { path: path.clone() };
    ledger.make_by(&mount, || tracefs::mount_on(&path)).map_err(KernelError::Mount)?;
    Ok(path)
}
