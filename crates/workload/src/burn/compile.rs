//! A compilation's load: many short processes, each reading source, computing and writing an
//! object.
//!
//! A process is this program once more, by its hidden verb `compile-one`: exec, page faults and
//! exit are as real as a compiler's. It reads pieces of a source of 4 MiB as headers are, all over
//! the place, hashes and sorts their words until it has used its CPU time, and writes an object of
//! up to 256 KiB. Source and object are nameless files that it has as standard input and output.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use loopscope_trace::interval;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, getppid};
use serde::Serialize;

use super::disk::nameless;
use crate::quantity;
use crate::stop::Stop;

/// All the source that there is.
const SOURCE: usize = 4 << 20;

/// A header, so to say.
const PIECE: usize = 32 << 10;

/// The largest object.
const OBJECT: usize = 256 << 10;

/// What a row of processes did.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Processes {
    pub(super) processes: u64,
    /// Cut off by the end of the load.
    pub(super) cut: u64,
    pub(super) written_bytes: u64,
    pub(super) wall_s: f64,
}

/// Source that every process reads; it stays in the page cache, as headers do.
pub(super) fn source(directory: &Path, seed: u64) -> Result<File> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut file = nameless(directory)?;
    let mut text = String::with_capacity(SOURCE + 16);
    while text.len() < SOURCE {
        for _ in 0..random.u32(1..12) {
            text.push(random.lowercase());
        }
        text.push(if random.u32(..8) == 0 { '\n' } else { ' ' });
    }
    file.write_all(&text.as_bytes()[..SOURCE]).context("cannot write the source")?;
    Ok(file)
}

/// Settings of a row of processes.
pub(super) struct Row<'a> {
    pub(super) source: &'a File,
    pub(super) directory: &'a Path,
    /// Mean CPU time of a process.
    pub(super) job: Duration,
    /// After each process the row rests for what makes this share of a CPU.
    pub(super) share: f64,
    pub(super) seed: u64,
    /// The row's number, in the processes' ids.
    pub(super) number: u64,
}

impl Row<'_> {
    /// Runs processes one after the other until `end` or the stop.
    pub(super) fn run(&self, end: Option<Instant>, stop: &Stop) -> Result<Processes> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut done = Processes::default();
        let begin = Instant::now();
        let over = || stop.is_set() || end.is_some_and(|end| Instant::now() >= end);
        while !over() {
            let object = nameless(self.directory)?;
            let job = self.job.mul_f64(random.f64() + 0.5);
            let from = Instant::now();
            let whole = interval!("burn", "process", (self.number << 32) + done.processes + 1);
            let child = self.start(&object, job, random.u64(..))?;
            let ended = wait(child, end, stop)?;
            drop(whole);
            if ended {
                done.processes += 1;
            } else {
                done.cut += 1;
            }
            done.written_bytes += object.metadata().context("cannot look at the object")?.len();
            let rest = from.elapsed().mul_f64(1.0 / self.share - 1.0);
            let rested = Instant::now() + rest;
            stop.sleep_until(end.map_or(rested, |end| rested.min(end)))?;
        }
        done.wall_s = begin.elapsed().as_secs_f64();
        Ok(done)
    }

    fn start(&self, object: &File, job: Duration, seed: u64) -> Result<Child> {
        Command::new("/proc/self/exe")
            .arg0("loopscope-host")
            .args(["compile-one", "--parent", &std::process::id().to_string()])
            .args(["--cpu", &format!("{}ns", job.as_nanos()), "--seed", &seed.to_string()])
            // The load is measured, not its instrumentation.
            .env("LOOPSCOPE_RUNTIME_DIR", "")
            .env_remove("LOOPSCOPE_PHASE_FD")
            .stdin(Stdio::from(self.source.try_clone().context("cannot share the source")?))
            .stdout(Stdio::from(object.try_clone().context("cannot share the object")?))
            .stderr(Stdio::piped())
            // Ctrl-C is for the program that started it.
            .process_group(0)
            .spawn()
            .context("cannot start a compile-like process")
    }
}

/// Waits for the process; whether it came to its end by itself.
fn wait(mut child: Child, end: Option<Instant>, stop: &Stop) -> Result<bool> {
    // Hangs up when the process is gone.
    let mut said = child.stderr.take().context("a process without standard error")?;
    let mut cut = false;
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let timeout = match left {
            Some(left) => PollTimeout::try_from(left.as_millis().min(1 << 30) as i32 + 1)?,
            None => PollTimeout::NONE,
        };
        let files = &mut [
            PollFd::new(said.as_fd(), PollFlags::POLLIN),
            PollFd::new(stop.fd(), PollFlags::empty()),
        ];
        match poll(files, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("cannot wait for a process"),
        }
        if files[0].any() == Some(true) {
            break;
        }
        if stop.is_set() || end.is_some_and(|end| Instant::now() >= end) {
            cut = true;
            child.kill().context("cannot end a process")?;
            break;
        }
    }
    let mut error = String::new();
    said.read_to_string(&mut error).context("cannot read what a process says")?;
    let status = child.wait().context("cannot wait for a process")?;
    if !cut && !status.success() {
        bail!("a compile-like process failed ({status}): {}", error.trim());
    }
    Ok(!cut)
}

/// A compile-like process; `burn` starts it.
#[derive(Clone, Debug, clap::Args)]
pub struct CompileOneArgs {
    /// Process number of its parent
    #[arg(long)]
    parent: i32,
    /// CPU time to use
    #[arg(long, value_parser = quantity::duration)]
    cpu: Duration,
    /// What it reads and how much it writes
    #[arg(long)]
    seed: u64,
}

/// Reads source from standard input, computes, and writes an object to standard output.
pub fn main_compile_one(args: &CompileOneArgs) -> Result<()> {
    set_pdeathsig(Signal::SIGKILL).context("cannot ask to end with burn")?;
    // A parent that died before this call sends no signal any more.
    ensure!(getppid() == Pid::from_raw(args.parent), "burn is gone");
    let source = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut random = fastrand::Rng::with_seed(args.seed);
    let mut piece = vec![0; PIECE];
    let mut symbols = std::collections::BTreeMap::<u64, u32>::new();
    let length = source.metadata().context("standard input is no source")?.len();
    ensure!(length >= PIECE as u64, "the source has only {length} B");
    loop {
        source.read_exact_at(&mut piece, random.u64(..=length - PIECE as u64))?;
        for word in piece.split(u8::is_ascii_whitespace) {
            // FNV-1a.
            let hash = word.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            *symbols.entry(hash).or_default() += 1;
        }
        // Where its start has taken all of its time it writes an object too.
        if cpu_time()? >= args.cpu {
            break;
        }
    }
    let mut object: Vec<u8> = symbols
        .iter()
        .flat_map(|(hash, count)| [&hash.to_le_bytes()[..], &count.to_le_bytes()].concat())
        .collect();
    object.truncate(random.usize(OBJECT / 16..=OBJECT));
    std::io::stdout().write_all(&object).context("cannot write the object")
}

/// CPU time of this process.
fn cpu_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).context("cannot read the CPU time")?.into())
}
