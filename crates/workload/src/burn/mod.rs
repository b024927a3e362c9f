//! Competing load on CPU, memory and disk, for others to be measured under: steady threads, a disk
//! that is written and read, or a compiler's mix of both.
//!
//! # Kinds
//!
//! `arithmetic`, `cache` and `memory` keep threads busy for a share of each period. `compile` runs
//! short processes one after the other in each thread, as make -j does; each reads source, computes
//! and writes an object (`compile.rs`). `--disk` adds a thread that writes, syncs and reads a file.
//! Files have no name, so that nothing of them stays, whatever ends the program; its processes die
//! with it.
//!
//! # Events
//!
//! `burn:second` with the CPU time of each second. `burn:process` for each compile-like process, an
//! interval with its number as id. `burn:sync` for each fsync, an interval.
//!
//! # Phases
//!
//! The load begins with the phase `run`, or the one that `--begin` names. With a duration that phase
//! is done when the time is over; without, at once, and the load goes on until the phase that `--end`
//! names begins, or the run ends.

mod compile;
mod cpu;
mod disk;
mod load;
mod period;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use loopscope_phase::{Config, Phase, Session};
use loopscope_trace::{describe, describe_group};

pub use compile::{CompileOneArgs, main_compile_one};

use crate::program::run;
use crate::quantity;
use crate::settings::Settings;
use crate::stop::{Background, Stop};
use load::Load;

describe_group!("burn", "Competing load.");
describe!("burn", "second", "", "A second of the load has passed.");
describe!("burn", "process", "", "A compile-like process runs.");
describe!("burn", "sync", "", "The disk's file is synced.");

const KEYS: [&str; 12] = [
    "kind",
    "threads",
    "cpu-share",
    "period",
    "working-set",
    "disk",
    "disk-rate",
    "disk-size",
    "job",
    "duration",
    "seed",
    "json",
];

/// What threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Compute in registers.
    Arithmetic,
    /// Read and write memory that fits into a cache.
    Cache,
    /// Read and write memory that fits into none.
    Memory,
    /// Run short processes that read files, compute and write files, as a compilation does.
    Compile,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Arithmetic => "arithmetic",
            Kind::Cache => "cache",
            Kind::Memory => "memory",
            Kind::Compile => "compile",
        }
    }
}

/// Competing load on CPU, memory and disk.
#[derive(Clone, Debug, clap::Args)]
pub struct BurnArgs {
    /// What the threads do
    #[arg(long, value_enum, default_value_t = Kind::Arithmetic)]
    pub kind: Kind,
    /// Threads, or processes at a time; 0 for load on the disk alone
    #[arg(long, default_value_t = 1)]
    pub threads: u64,
    /// Share of a CPU that each thread takes
    #[arg(long, default_value = "100%", value_parser = quantity::ratio)]
    pub cpu_share: f64,
    /// The share is kept in each period; what others keep a thread from in one is not made up for
    #[arg(long, default_value = "10ms", value_parser = quantity::duration)]
    pub period: Duration,
    /// Memory of each thread; by default 256KiB for cache, 64MiB for memory
    #[arg(long, value_parser = quantity::size)]
    pub working_set: Option<u64>,
    /// Load the disk too, by a nameless file in this directory
    #[arg(long, value_name = "DIR")]
    pub disk: Option<PathBuf>,
    /// Bytes per second to write, and as many to read, as in 10MB/s; by default unlimited
    #[arg(long, value_parser = quantity::throughput)]
    pub disk_rate: Option<u64>,
    /// Size of that file
    #[arg(long, default_value = "64MiB", value_parser = quantity::size)]
    pub disk_size: u64,
    /// Mean CPU time of a compile-like process
    #[arg(long, default_value = "50ms", value_parser = quantity::duration)]
    pub job: Duration,
    /// How long; by default until Ctrl-C or the end of the run
    #[arg(long, value_parser = quantity::duration)]
    pub duration: Option<Duration>,
    /// Seed of whatever is drawn
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// In an experiment: the phase with which the load begins
    #[arg(long, default_value = "run", value_name = "PHASE")]
    pub begin: String,
    /// In an experiment: the phase before which it ends; by default it lasts to the end of the run
    #[arg(long, value_name = "PHASE")]
    pub end: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Loads the machine and prints what that came to.
pub fn main_burn(args: &BurnArgs) -> Result<()> {
    let stop = Stop::new()?;
    let phases: Vec<&str> =
        [Some(args.begin.as_str()), args.end.as_deref()].into_iter().flatten().collect();
    let session = Session::connect(&phases, Config::default())?;
    let alone = session.component().is_none();
    let mut background: Option<Background> = None;
    let outcome = run(session, |phase: &Phase, config: &Config| {
        if phase.name != args.begin {
            // Alone there is nothing to end: the load had its time.
            return background.take().map_or(Ok(()), Background::finish).map(|()| vec![]);
        }
        let load = read(args, &Settings::new(config, &KEYS)?)?;
        stop.heed_signals()?;
        if alone || load.duration.is_some() {
            load.run(&stop)?;
        } else {
            let (heeded, begun) = (Arc::clone(&stop), load.begin()?);
            background = Some(Background::start(&stop, move || begun.run(&heeded)));
        }
        Ok(vec![])
    });
    let ended = background.map_or(Ok(()), Background::finish);
    outcome.and(ended)?;
    stop.exit_if_interrupted();
    Ok(())
}

fn read(args: &BurnArgs, settings: &Settings) -> Result<Load> {
    let kind = settings.choice("kind", args.kind)?;
    let working_set = settings.optional("working-set", args.working_set, quantity::size)?;
    let share = settings.optional("cpu-share", Some(args.cpu_share), quantity::ratio)?;
    let load = Load {
        kind,
        threads: settings.number("threads", args.threads, 0, 4096)?,
        share: share.unwrap_or(args.cpu_share),
        period: settings.duration("period", args.period)?,
        working_set: working_set.unwrap_or(match kind {
            Kind::Memory => 64 << 20,
            _ => 256 << 10,
        }),
        disk: settings.text("disk", args.disk.clone())?,
        disk_rate: settings.optional("disk-rate", args.disk_rate, quantity::throughput)?,
        disk_size: settings.size("disk-size", args.disk_size, disk::BLOCK, 1 << 40)? as u64,
        job: settings.duration("job", args.job)?,
        duration: settings.optional("duration", args.duration, quantity::duration)?,
        seed: settings.number("seed", args.seed, 0, i64::MAX as u64)?,
        json: settings.switch("json", args.json)?,
    };
    ensure!(
        load.share > 0.0 && load.share <= 1.0,
        "`cpu-share` is {} %; it must be above 0 % and at most 100 %, of each thread",
        load.share * 100.0
    );
    ensure!(
        (Duration::from_millis(1)..=Duration::from_secs(10)).contains(&load.period),
        "`period` is {:?}; it must be between 1ms and 10s",
        load.period
    );
    ensure!(
        load.working_set >= 4096,
        "`working-set` is {} B; it must be at least 4KiB",
        load.working_set
    );
    ensure!(
        load.threads > 0 || load.disk.is_some(),
        "with `threads: 0` and no `disk` there is no load"
    );
    ensure!(load.disk_rate != Some(0), "`disk-rate` is 0 B/s; it must be at least 1 B/s");
    if load.kind == Kind::Compile {
        ensure!(
            (Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&load.job),
            "`job` is {:?}; it must be between 1ms and 1h",
            load.job
        );
    }
    Ok(load)
}
