//! The testbed of a scenario: namespaces, a folder for logs, and the load in them, all in a ledger.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use loopscope_agent::ledger::{self, Entry, Ledger, RUN_MARK};
use loopscope_agent::testbed::{Host, Joint, Plan, Probes};
use loopscope_agent::{Identity, namespace};
use loopscope_clocksync::key::Key;
use loopscope_clocksync::probe::{Faults, Side};
use loopscope_clocksync::record;
use loopscope_clocksync::synthetic::SyntheticClock;
use loopscope_time::Frequency;

/// The reference among the hosts.
pub(super) const REFERENCE: &str = "h1";
const TCP_PORT: u16 = 5001;

/// Removed when dropped, with every process in it.
pub(super) struct Bed {
    plan: Plan,
    ledger: Ledger,
    /// Directory of logs, the key and pages.
    pub(super) directory: PathBuf,
    pub(super) frequency: Frequency,
}

impl Bed {
    pub(super) fn build(hosts: &[String]) -> Result<Bed> {
        let pid = std::process::id();
        let run = format!("clock-verify-{pid:06x}");
        let (data, clock) = ("10.78.0.0/24", "10.79.0.0/24");
        let plan = Plan::new(&run, hosts, data, clock, None, Joint::Bridge, Probes::Apart)?;
        let own = Identity::of(pid.cast_signed()).context("/proc is not mounted")?;
        let ledger = Ledger::create(&ledger::state_dir(), &run, own)?;
        let directory = std::env::temp_dir().join(format!("loopscope-{run}"));
        let frequency = loopscope_collect::frequency::nominal()?;
        // From here on dropping removes what was made.
        let bed = Bed { plan, ledger, directory, frequency };
        bed.ledger.make(&[Entry::Directory { path: bed.directory.clone() }])?;
        bed.plan.build(&bed.ledger)?;
        bed.make_key()?;
        Ok(bed)
    }

    fn make_key(&self) -> Result<()> {
        let mut key = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(self.key_path());
        file.and_then(|mut file| file.write_all(&key)).context("cannot write the probes' key")
    }

    pub(super) fn key_path(&self) -> PathBuf {
        self.directory.join("key")
    }

    /// The directory that corresponds to a run's `hosts/`.
    pub(super) fn hosts(&self) -> PathBuf {
        self.directory.join("hosts")
    }

    pub(super) fn host(&self, name: &str) -> Result<&Host> {
        let found = self.plan.hosts.iter().find(|host| host.name == name);
        found.ok_or_else(|| anyhow!("the testbed has no host {name}"))
    }

    pub(super) fn clock_address(&self, name: &str) -> Result<Ipv4Addr> {
        Ok(self.host(name)?.clock)
    }

    /// Runs `work` where a host's probes are.
    pub(super) fn within<T: Send>(
        &self,
        host: &str,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let namespace = self.host(host)?.clock_namespace.as_ref();
        let namespace = namespace.with_context(|| format!("{host} has no clock link"))?;
        namespace::within(namespace, work).with_context(|| format!("cannot enter {namespace}"))?
    }

    /// The settings of probes of `host`.
    pub(super) fn side(
        &self,
        host: &str,
        clock: SyntheticClock,
        faults: Option<Faults>,
    ) -> Result<Side> {
        let address = self.clock_address(host)?;
        let key = Key::read(&self.key_path())?;
        let directory = probes(&self.hosts(), host);
        Ok(side(host, address, directory, key, self.frequency, clock, faults))
    }

    /// Starts this program with other words where a host's probes are.
    pub(super) fn start(&self, host: &str, words: &[String], stdin: Stdio) -> Result<Process> {
        self.within(host, || self.spawn(words, stdin))
    }

    /// In the namespace of the calling thread.
    fn spawn(&self, words: &[String], stdin: Stdio) -> Result<Process> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args(words).env(RUN_MARK, self.ledger.run()).stdin(stdin);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().with_context(|| format!("cannot start {}", words[0]))?;
        Ok(Process(child))
    }

    /// Every processor busy, and a TCP stream over the data network from `from` to the reference as
    /// fast as it goes, until the result is dropped.
    pub(super) fn load(&self, from: &str) -> Result<Vec<Process>> {
        let processors = std::thread::available_parallelism()?;
        let sink = self.host(REFERENCE)?.data;
        let start = |host: &str, words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let namespace = &self.host(host)?.namespace;
            namespace::within(namespace, || self.spawn(&words, Stdio::null()))
                .with_context(|| format!("cannot enter {namespace}"))?
        };
        let burn = start(from, &format!("burn --threads {processors}"))?;
        let mut receiver =
            start(REFERENCE, &format!("ettcp receive --address {sink} --port {TCP_PORT}"))?;
        receiver.listening()?;
        let sender = start(from, &format!("ettcp send --to {sink}:{TCP_PORT}"))?;
        Ok(vec![burn, receiver, sender])
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for problem in self.ledger.undo().problems {
            eprintln!("loopscope-host: {problem}; `loopscope reset` tries again");
        }
    }
}

pub(super) fn side(
    host: &str,
    address: Ipv4Addr,
    directory: PathBuf,
    key: Key,
    frequency: Frequency,
    clock: SyntheticClock,
    faults: Option<Faults>,
) -> Side {
    let byte = host.bytes().fold(7u8, |hash, b| hash.wrapping_mul(31).wrapping_add(b));
    Side {
        address: (address, 0).into(),
        directory: Some(directory),
        identity: record::Identity {
            host: host.to_owned(),
            trace_uuid: [byte; 16],
            clock_uuid: [byte ^ 0x55; 16],
            frequency,
        },
        key,
        filter: Some(Arc::new(move |counter| clock.apply(counter))),
        faults,
        own_interface: false,
        before_stamps: None,
    }
}

pub(super) fn probes(hosts: &Path, host: &str) -> PathBuf {
    hosts.join(host).join("clock/probes")
}

/// Killed when dropped.
pub(super) struct Process(pub(super) Child);

impl Process {
    /// Waits until it says that it listens, and where.
    pub(super) fn listening(&mut self) -> Result<String> {
        let mut said = BufReader::new(self.0.stderr.as_mut().context("the process is mute")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        match line.trim_end().strip_prefix("listening on ") {
            Some(address) => Ok(address.to_owned()),
            None => {
                said.read_to_string(&mut line)?;
                bail!("a process of the testbed has ended early: {}", line.trim_end())
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended, which is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
