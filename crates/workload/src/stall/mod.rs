//! Takes a CPU at given times: a planted cause, whose effect an analysis must find.
//!
//! # Real time
//!
//! The thread sleeps and stalls at SCHED_FIFO, so that nothing ordinary keeps it from the CPU. It
//! never takes all of it: the kernel's throttle would then stop it for 50 ms at a stretch, and the
//! planted cause would be another one. What could come near that is refused. At priority 0 the
//! thread is an ordinary one and takes what the scheduler gives it.
//!
//! # Events
//!
//! With the stall's number from 1 as id: the interval `stall:stall`; `stall:began` with `late_ns`
//! after its intended begin; `stall:ended` with the CPU time that it really had; `stall:skipped`
//! for one whose time was over before the thread woke.
//!
//! # Phases
//!
//! One, `run` unless `--begin` says otherwise; times count from its begin. With a number of stalls
//! it is done when they are over; without, at once, and stalls go on until the run ends.

mod budget;
mod plan;
mod report;
mod taking;
mod thread;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use loopscope_phase::{Config, Phase, Session};
use loopscope_trace::{describe, describe_group};

use crate::program::run;
use crate::quantity;
use crate::settings::Settings;
use crate::stop::{Background, Stop};
use budget::Budget;
use plan::{Begins, Plan};
use report::Report;

describe_group!("stall", "A CPU that is taken on purpose.");
describe!("stall", "stall", "", "The thread takes the CPU.");
describe!("stall", "began", "", "A stall has begun.");
describe!("stall", "ended", "", "A stall has ended.");
describe!("stall", "skipped", "", "The thread woke too late for a stall, or for its budget.");

const KEYS: [&str; 9] =
    ["cpu", "priority", "at", "every", "count", "length", "jitter", "seed", "json"];

/// The longest stall, or distance between two.
const LONGEST: Duration = Duration::from_secs(3600);

/// A CPU to take at given times.
#[derive(Clone, Debug, clap::Args)]
pub struct StallArgs {
    /// The CPU to take; by default whichever the scheduler chooses
    #[arg(long)]
    pub cpu: Option<u64>,
    /// SCHED_FIFO priority, 1 to 99; 0: an ordinary thread
    #[arg(long, default_value_t = 50)]
    pub priority: u64,
    /// When to begin, counted from the begin of the phase, or of the program, as in 1s,2.5s
    #[arg(long)]
    pub at: Option<String>,
    /// Instead of --at: the time from one stall's begin to the next one's
    #[arg(long, value_parser = quantity::duration)]
    pub every: Option<Duration>,
    /// Stalls, with --every; by default until Ctrl-C or the end of the run
    #[arg(long)]
    pub count: Option<u64>,
    /// Length of each
    #[arg(long, default_value = "5ms", value_parser = quantity::duration)]
    pub length: Duration,
    /// Begin each up to so much later, evenly distributed
    #[arg(long, default_value = "0s", value_parser = quantity::duration)]
    pub jitter: Duration,
    /// Seed of the jitter
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// In an experiment: the phase from whose begin times count
    #[arg(long, default_value = "run", value_name = "PHASE")]
    pub begin: String,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// The settings, laid over each other and checked.
struct Order {
    plan: Plan,
    cpu: Option<usize>,
    /// 0: ordinary.
    priority: i32,
    json: bool,
}

/// Stalls as asked for and prints a report.
pub fn main_stall(args: &StallArgs) -> Result<()> {
    let stop = Stop::new()?;
    let session = Session::connect(&[args.begin.as_str()], Config::default())?;
    let alone = session.component().is_none();
    let mut background = None;
    let outcome = run(session, |_: &Phase, config: &Config| {
        let begin = Instant::now();
        let order = Order::read(args, &Settings::new(config, &KEYS)?)?;
        stop.heed_signals()?;
        let endless = matches!(order.plan.begins, Begins::Every { count: None, .. });
        if alone || !endless {
            order.carry_out(begin, &stop)?;
        } else {
            let heeded = Arc::clone(&stop);
            background = Some(Background::start(&stop, move || order.carry_out(begin, &heeded)));
        }
        Ok(vec![])
    });
    let ended = background.map_or(Ok(()), Background::finish);
    outcome.and(ended)?;
    stop.exit_if_interrupted();
    Ok(())
}

impl Order {
    fn read(args: &StallArgs, settings: &Settings) -> Result<Order> {
        let nanoseconds = |key: &str, given: Duration| -> Result<u64> {
            let duration = settings.duration(key, given)?;
            ensure!(duration <= LONGEST, "`{key}` is longer than an hour");
            Ok(duration.as_nanos() as u64)
        };
        let at = settings.text("at", args.at.clone())?;
        let every = settings.optional("every", args.every, quantity::duration)?;
        let count = match args.count.is_some() || settings.has("count") {
            true => Some(settings.number("count", args.count.unwrap_or(0), 1, 1 << 32)?),
            false => None,
        };
        let begins = match (at, every) {
            (Some(at), None) => {
                ensure!(count.is_none(), "`count` is for `every`; `at` says each begin itself");
                let times =
                    at.split(',').map(|text| Ok(quantity::duration(text)?.as_nanos() as u64));
                Begins::At(times.collect::<Result<_>>().context("`at`")?)
            }
            (None, Some(every)) => {
                let every = nanoseconds("every", every)?;
                ensure!(every > 0, "`every` is 0 ns; it must be longer");
                Begins::Every { every, count }
            }
            (None, None) => bail!("say when to stall: by `at`, as in 1s,2.5s, or by `every`"),
            (Some(_), Some(_)) => bail!("`at` and `every` both say when; give one of them"),
        };
        let plan = Plan {
            begins,
            length: nanoseconds("length", args.length)?,
            jitter: nanoseconds("jitter", args.jitter)?,
            seed: settings.number("seed", args.seed, 0, i64::MAX as u64)?,
        };
        ensure!(plan.length > 0, "`length` is 0 ns; it must be longer");
        plan.check()?;
        let cpu = match args.cpu.is_some() || settings.has("cpu") {
            true => Some(settings.number("cpu", args.cpu.unwrap_or(0), 0, 1 << 16)? as usize),
            false => None,
        };
        let priority = settings.number("priority", args.priority, 0, 99)? as i32;
        let order = Order { plan, cpu, priority, json: settings.switch("json", args.json)? };
        if let Some(budget) = order.budget()? {
            budget.check(&order.plan)?;
        }
        Ok(order)
    }

    /// The budget of a real-time thread.
    fn budget(&self) -> Result<Option<Budget>> {
        (self.priority > 0).then(Budget::of_kernel).transpose()
    }

    fn carry_out(self, begin: Instant, stop: &Stop) -> Result<()> {
        let budget = self.budget()?;
        let stalls = std::thread::scope(|scope| {
            // A thread of its own, so that no other part of the program is real-time.
            let name = std::thread::Builder::new().name("stall".to_owned());
            let thread = name.spawn_scoped(scope, || {
                if let Err(problem) = loopscope_trace::thread_init() {
                    eprintln!("warning: {problem}; this thread's events are lost, and counted");
                }
                if let Some(cpu) = self.cpu {
                    thread::stay_on(cpu)?;
                }
                if self.priority > 0 {
                    thread::take_fifo(self.priority)?;
                }
                taking::follow(&self.plan, budget, begin, stop)
            })?;
            thread.join().map_err(|_| anyhow!("the stalling thread has panicked"))?
        })?;
        Report { stalls, length_ns: self.plan.length, cpu: self.cpu, priority: self.priority }
            .print(self.json)
    }
}
