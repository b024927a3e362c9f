//! What the sender is asked for, checked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use loopscope_phase::Config;

use super::pacer::AfterStall;
use super::packet;
use super::schedule::{Distribution, Interval, Plan};
use crate::quantity;
use crate::settings::Settings;

/// How packets travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// A datagram each
    Udp,
    /// Blocks of a stream
    Tcp,
}

/// How packets follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DistributionKind {
    /// At equal intervals
    Constant,
    /// At exponentially distributed intervals, which have the interval as their mean
    Poisson,
    /// At equal intervals for --on, then none for --off, and so on
    OnOff,
    /// At the intervals of the file --trace, over and over
    Trace,
}

/// How the sender waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimerKind {
    /// Sleep until the instant; late by some ten microseconds
    Sleep,
    /// Sleep until shortly before, for a time learned from how late sleeps end, then spin
    SleepThenSpin,
    /// Spin; takes all of a CPU
    Spin,
    /// Hand packets to the kernel ahead of time (SO_TXTIME); needs fq or etf on the device
    Kernel,
    /// Send, sleep one interval, send: drifts, for comparison
    Naive,
}

/// Settings of the sender.
#[derive(Clone, Debug, clap::Args)]
pub struct SendArgs {
    /// Where to send: a component of the experiment, or host:port
    #[arg(long)]
    pub to: Option<String>,
    /// Time between packets [default: 1ms]
    #[arg(long, value_parser = quantity::duration, conflicts_with = "rate")]
    pub interval: Option<Duration>,
    /// Rate instead of the interval, of what the packets contain (without headers)
    #[arg(long, value_parser = quantity::rate)]
    pub rate: Option<u64>,
    /// Content of a packet, 44B or more
    #[arg(long, default_value = "1000B", value_parser = quantity::size)]
    pub size: u64,
    /// How long to send [default: 10s, or as long as --count takes]
    #[arg(long, value_parser = quantity::duration)]
    pub duration: Option<Duration>,
    /// Packets to send
    #[arg(long)]
    pub count: Option<u64>,
    /// How they travel
    #[arg(long, value_enum, default_value = "udp")]
    pub protocol: Protocol,
    /// How they follow each other
    #[arg(long, value_enum, default_value = "constant")]
    pub distribution: DistributionKind,
    /// Length of a burst, for on-off
    #[arg(long, value_parser = quantity::duration)]
    pub on: Option<Duration>,
    /// Silence after a burst, for on-off
    #[arg(long, value_parser = quantity::duration)]
    pub off: Option<Duration>,
    /// File of intervals, one a line as in 120us, for trace
    #[arg(long)]
    pub trace: Option<PathBuf>,
    /// Seed of random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How to wait for a packet's time
    #[arg(long, value_enum, default_value = "sleep-then-spin")]
    pub timer: TimerKind,
    /// What becomes of packets that are overdue after a stall (100us and one and a half intervals
    /// or more)
    #[arg(long, value_enum, default_value = "skip")]
    pub after_stall: AfterStall,
    /// Processes that share the packets, one after the other
    #[arg(long, default_value_t = 1)]
    pub processes: u64,
    /// CPU to stay on; of several processes each has the next one
    #[arg(long)]
    pub cpu: Option<u64>,
    /// Real-time priority (SCHED_FIFO), 1 to 99
    #[arg(long)]
    pub priority: Option<u64>,
    /// Say so often on standard error how it goes, whole seconds
    #[arg(long, value_parser = quantity::duration)]
    pub every: Option<Duration>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Settings that only exist as keys of `with:` under the same names.
const KEYS: [&str; 18] = [
    "to",
    "interval",
    "rate",
    "size",
    "duration",
    "count",
    "protocol",
    "distribution",
    "on",
    "off",
    "trace",
    "seed",
    "timer",
    "after-stall",
    "processes",
    "cpu",
    "priority",
    "every",
];

/// How long a run is that nobody has limited.
const DURATION: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_millis(1);

/// The largest datagram's content over IPv4, and a block of a stream.
const UDP_LIMIT: usize = 65_507;
const TCP_LIMIT: usize = 16 << 20;

/// A real-time thread has to sleep between its packets; below this there is no sleep.
const PRIORITY_INTERVAL_NS: f64 = 100_000.0;

/// All that a sender has to know.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) to: String,
    pub(super) protocol: Protocol,
    pub(super) plan: Plan,
    pub(super) size: usize,
    pub(super) timer: TimerKind,
    pub(super) after_stall: AfterStall,
    pub(super) processes: u64,
    pub(super) cpu: Option<usize>,
    pub(super) priority: Option<i32>,
    pub(super) every_s: Option<u64>,
    pub(super) json: bool,
}

impl Task {
    pub(super) fn read(args: &SendArgs, config: &Config) -> Result<Task> {
        let settings = Settings::new(config, &KEYS)?;
        let number = |key, given: Option<u64>, least, most| {
            let absent = given.is_none() && config.get(key).is_none();
            let number = || settings.number(key, given.unwrap_or(least), least, most);
            (!absent).then(number).transpose()
        };
        let duration = |key, given| settings.optional(key, given, quantity::duration);
        let to = settings.text("to", args.to.clone())?;
        let to = to.context("there is no `to`: say where to send, by --to or `with: {to}`")?;
        let protocol = settings.choice("protocol", args.protocol)?;
        let limit = if protocol == Protocol::Udp { UDP_LIMIT } else { TCP_LIMIT };
        let size = settings.size("size", args.size, packet::HEAD, limit)?;
        let count = number("count", args.count, 1, i64::MAX as u64)?;
        let limit = duration("duration", args.duration)?;
        ensure!(limit != Some(Duration::ZERO), "`duration` is 0; it must be above 0");
        let limit = limit.or(count.is_none().then_some(DURATION));
        let every = duration("every", args.every)?;
        let whole = every.is_none_or(|every| every.subsec_nanos() == 0 && every.as_secs() > 0);
        ensure!(whole, "`every` must be whole seconds, as in 1s");
        let task = Task {
            to,
            protocol,
            plan: Plan {
                distribution: distribution(args, config, &settings, size as u64)?,
                seed: settings.number("seed", args.seed, 0, u64::MAX)?,
                count: count.unwrap_or(u64::MAX),
                duration_ns: limit.map_or(u64::MAX, nanoseconds),
            },
            size,
            timer: settings.choice("timer", args.timer)?,
            after_stall: settings.choice("after-stall", args.after_stall)?,
            processes: settings.number("processes", args.processes, 1, 256)?,
            cpu: number("cpu", args.cpu, 0, 1023)?.map(|cpu| cpu as usize),
            priority: number("priority", args.priority, 1, 99)?.map(|priority| priority as i32),
            every_s: every.map(|every| every.as_secs()),
            json: args.json,
        };
        task.check()?;
        Ok(task)
    }

    /// Mean time between two packets of one process.
    pub(super) fn own_interval_ns(&self) -> f64 {
        self.plan.distribution.interval_ns() * self.processes as f64
    }

    fn check(&self) -> Result<()> {
        if self.timer == TimerKind::Kernel {
            ensure!(
                self.protocol == Protocol::Udp,
                "the kernel paces datagrams: `timer: kernel` needs `protocol: udp`"
            );
        }
        if self.priority.is_some() {
            ensure!(
                self.timer != TimerKind::Spin,
                "a real-time thread that spins takes its CPU from everything else, and the kernel \
                 then stops it for 50 ms in each second: leave `priority` or `timer: spin` away"
            );
            ensure!(
                self.own_interval_ns() >= PRIORITY_INTERVAL_NS,
                "a real-time thread has to sleep between packets, and there are only {:.1} us \
                 between them: take more `processes`, so that there are 100 us, or leave \
                 `priority` away",
                self.own_interval_ns() / 1e3
            );
        }
        Ok(())
    }
}

fn distribution(
    args: &SendArgs,
    config: &Config,
    settings: &Settings,
    size: u64,
) -> Result<Distribution> {
    // Either key replaces whichever the command line has.
    let replaced = config.get("interval").is_some() || config.get("rate").is_some();
    let given = |given| if replaced { None } else { given };
    let interval =
        settings.optional("interval", given(args.interval.map(nanoseconds)), |text| {
            quantity::duration(text).map(nanoseconds)
        })?;
    let rate = settings.optional("rate", given(args.rate), quantity::rate)?;
    let kind = settings.choice("distribution", args.distribution)?;
    let on = settings.optional("on", args.on, quantity::duration)?;
    let off = settings.optional("off", args.off, quantity::duration)?;
    let trace: Option<PathBuf> = settings.text("trace", args.trace.clone())?;
    ensure!(
        kind == DistributionKind::OnOff || (on.is_none() && off.is_none()),
        "`on` and `off` are settings of `distribution: on-off`"
    );
    if kind == DistributionKind::Trace {
        let file = trace.context("`distribution: trace` needs a `trace`, a file of intervals")?;
        ensure!(
            interval.is_none() && rate.is_none(),
            "`interval` and `rate` mean nothing with `distribution: trace`; its file has the \
             intervals"
        );
        return Ok(Distribution::Trace(read_trace(&file)?.into()));
    }
    ensure!(trace.is_none(), "`trace` is a setting of `distribution: trace`");
    let interval = match (interval, rate) {
        (Some(_), Some(_)) => {
            bail!("`interval` and `rate` are two ways to say one thing: give one")
        }
        (Some(0), None) => bail!("`interval` is 0; `ettcp` sends as fast as it can"),
        (None, Some(0)) => bail!("`rate` is 0; it must be above 0"),
        (Some(ns), None) => Interval::of_ns(ns),
        (None, Some(rate)) => {
            let interval = Interval::of_rate(size, rate);
            interval.context("a packet takes more than 584 years at this `rate`")?
        }
        (None, None) => Interval::of_ns(nanoseconds(INTERVAL)),
    };
    ensure!(interval.ns() >= 1.0, "packets of {size} B at this `rate` are less than 1 ns apart");
    Ok(match kind {
        DistributionKind::Constant => Distribution::Constant(interval),
        DistributionKind::Poisson => Distribution::Poisson(interval),
        _ => {
            let needed = "`distribution: on-off` needs `on` and `off`, two durations";
            let (on, off) = (on.context(needed)?, off.context(needed)?);
            ensure!(on > Duration::ZERO, "`on` is 0: there would be no packets");
            let (on_ns, off_ns) = (nanoseconds(on), nanoseconds(off));
            let cycle = on_ns.checked_add(off_ns);
            cycle.context("`on` and `off` together are more than 584 years")?;
            Distribution::OnOff { interval, on_ns, off_ns }
        }
    })
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Intervals in nanoseconds, one a line; empty lines and what follows a `#` do not count.
fn read_trace(file: &Path) -> Result<Vec<u64>> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the trace {}", file.display()))?;
    let mut intervals = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let interval = quantity::duration(line)
            .with_context(|| format!("{}, line {}", file.display(), number + 1))?;
        intervals.push(nanoseconds(interval));
    }
    ensure!(
        intervals.iter().any(|&ns| ns > 0),
        "{} has no interval above 0: write one a line, as in 120us",
        file.display()
    );
    Ok(intervals)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SendArgs,
    }

    fn task(words: &str, with: Value) -> Result<Task, String> {
        let words = words.split_whitespace();
        let line = Line::try_parse_from(["send", "--to", "h:1"].into_iter().chain(words));
        let line = line.map_err(|error| error.to_string())?;
        let Value::Object(with) = with else { panic!("not an object") };
        Task::read(&line.args, &with.into()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_rate_is_an_interval_of_its_packets() {
        let interval = |words, with| match task(words, with).unwrap().plan.distribution {
            Distribution::Constant(interval) => interval.ns(),
            other => panic!("{other:?}"),
        };
        assert_eq!(interval("--rate 400Mbit --size 1000B", json!({})), 20_000.0);
        assert_eq!(interval("--interval 100us", json!({})), 100_000.0);
        assert_eq!(interval("", json!({})), 1_000_000.0);
        // The experiment's way to say it replaces the command line's, whichever that is.
        assert_eq!(interval("--interval 100us", json!({"rate": "8Mbit"})), 1_000_000.0);
        assert_eq!(interval("--rate 400Mbit", json!({"interval": "5us"})), 5_000.0);
    }

    #[test]
    fn a_run_ends() {
        let limits = |words| {
            let plan = task(words, json!({})).unwrap().plan;
            (plan.count, plan.duration_ns)
        };
        assert_eq!(limits(""), (u64::MAX, 10_000_000_000));
        assert_eq!(limits("--count 5"), (5, u64::MAX));
        assert_eq!(limits("--count 5 --duration 2s"), (5, 2_000_000_000));
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (words, with, says) in [
            ("--interval 1ms --rate 1Mbit", json!({}), "cannot be used with"),
            ("", json!({"interval": "1ms", "rate": "1Mbit"}), "give one"),
            ("", json!({"interval": 1}), "has no unit"),
            ("--size 43B", json!({}), "`size` is 43 B; it must be at least 44 B"),
            ("--size 65508B", json!({}), "at most 65507 B"),
            ("--interval 0s", json!({}), "`interval` is 0"),
            ("--rate 0bit", json!({}), "`rate` is 0"),
            ("--duration 0s", json!({}), "`duration` is 0"),
            ("--every 1500ms", json!({}), "whole seconds"),
            ("--timer spin --priority 5", json!({}), "leave `priority` or `timer: spin` away"),
            ("--interval 99us --priority 5", json!({}), "more `processes`"),
            ("--timer kernel --protocol tcp", json!({}), "protocol: udp"),
            ("", json!({"timer": "sundial"}), "must be one of sleep, sleep-then-spin, spin"),
            ("", json!({"after_stall": "skip"}), "`after_stall` is not a setting"),
            ("--on 1s", json!({}), "of `distribution: on-off`"),
            ("--distribution on-off --on 1s", json!({}), "needs `on` and `off`"),
            ("--distribution trace", json!({}), "needs a `trace`"),
            ("--trace /nowhere --distribution trace", json!({}), "cannot read the trace /nowhere"),
            ("--processes 0", json!({}), "`processes` is 0"),
        ] {
            let error = task(words, with).unwrap_err();
            assert!(error.contains(says), "{words}: {error}");
        }
        assert!(task("--interval 50us --processes 2 --priority 5", json!({})).is_ok());
    }

    #[test]
    fn a_trace_is_read_line_by_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "# of a radio\n100us\n\n 2ms # slow\n0s\n").unwrap();
        assert_eq!(read_trace(file.path()).unwrap(), [100_000, 2_000_000, 0]);
        std::fs::write(&file, "100us\n7\n").unwrap();
        let error = format!("{:#}", read_trace(file.path()).unwrap_err());
        assert!(error.contains("line 2: `7` is not a duration: it has no unit"), "{error}");
        std::fs::write(&file, "0s\n").unwrap();
        assert!(read_trace(file.path()).unwrap_err().to_string().contains("no interval above 0"));
    }
}
