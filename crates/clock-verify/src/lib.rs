//! `loopscope-host clock verify`: how right the clocks are, on this machine, against hidden clocks
//! that only the scorer knows.

mod attack;
mod bed;
mod daemon;
mod follower;
mod holdover;
mod measure;
mod mesh;
mod relay;
mod report;
mod scenario;
mod score;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use loopscope_quantity as quantity;
use signal_hook::consts::{SIGINT, SIGTERM};

pub use daemon::{Arguments as HostArguments, run as run_host};
use scenario::Scenario;

/// Measured time of a scenario.
const SHORT: Duration = Duration::from_secs(25);
const LONG: Duration = Duration::from_secs(180);

/// Score the clocks against the truth.
///
/// Makes a testbed of network namespaces, gives each host a hidden clock of its own (offset, rate,
/// wander), probes over it, and holds the mapped time of very many instants against the truth: that
/// of the log, solved afterwards, and that which was known at each instant. Ends with 1 if a target
/// was missed or a hard bound was wrong, with 2 if there is no such scenario. Needs root.
#[derive(clap::Args)]
pub struct Arguments {
    /// Scenarios by name; all of them by default
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Print {"scenarios": [...], "scored": {...}}
    #[arg(long)]
    json: bool,
    /// Seed of the hidden clocks, the faults and the instants
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Three minutes of each scenario instead of less than one
    #[arg(long)]
    long: bool,
    /// Measured time of each scenario, as in 10s, 3s at least
    #[arg(long, value_name = "TIME", value_parser = quantity::duration, conflicts_with = "long")]
    duration: Option<Duration>,
    /// Write errors and widths over time to SCENARIO.csv in this directory
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Settings of all scenarios.
struct Run {
    seed: u64,
    duration: Duration,
    interrupted: Arc<AtomicBool>,
}

impl Run {
    /// One of several that follow each other, with hidden clocks of its own.
    fn part(&self, number: u32, of: u32) -> Run {
        Run {
            seed: self.seed.wrapping_add(u64::from(number) << 32),
            duration: self.duration / of,
            interrupted: self.interrupted.clone(),
        }
    }

    fn check(&self) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted; the testbed is removed");
        }
        Ok(())
    }

    /// Sleeps, unless interrupted.
    fn sleep(&self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }
}

/// Runs the scenarios and prints what came of them.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut chosen: Vec<&Scenario> = Vec::new();
    for name in &arguments.scenarios {
        match scenario::named(name) {
            Ok(scenario) => chosen.push(scenario),
            Err(problem) => {
                eprintln!("loopscope-host: {problem}");
                return Ok(ExitCode::from(2));
            }
        }
    }
    if chosen.is_empty() {
        chosen.extend(&scenario::ALL);
    }
    let duration = arguments.duration.unwrap_or(if arguments.long { LONG } else { SHORT });
    if duration < Duration::from_secs(3) {
        bail!("--duration is less than 3s, which is too short for anything to happen in it");
    }
    if let Some(directory) = &arguments.output {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, interrupted.clone()).context("cannot heed signals")?;
    }
    let run = Run { seed: arguments.seed, duration, interrupted };
    let mut outcomes = Vec::new();
    for (i, scenario) in chosen.iter().enumerate() {
        eprintln!("{} of {}: {}: {}", i + 1, chosen.len(), scenario.name, scenario.about);
        let outcome = scenario
            .run(&run)
            .with_context(|| format!("scenario {} could not be run", scenario.name))?;
        if let Some(directory) = &arguments.output {
            report::write_csv(&directory.join(format!("{}.csv", scenario.name)), &outcome)?;
        }
        outcomes.push(outcome);
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report::json(&outcomes))?);
    } else {
        print!("{}", report::table(&outcomes));
    }
    let met = outcomes.iter().all(scenario::Outcome::is_met);
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
