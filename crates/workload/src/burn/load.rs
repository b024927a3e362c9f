//! The whole load: its threads, from begin to end.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use loopscope_trace::event;

use super::Kind;
use super::compile::{self, Processes, Row};
use super::cpu::{self, Thread};
use super::disk::{self, Disk};
use crate::cpu_time::CpuTime;
use crate::program::print;
use crate::stop::Stop;

/// The settings, laid over each other and checked.
pub(super) struct Load {
    pub(super) kind: Kind,
    pub(super) threads: u64,
    pub(super) share: f64,
    pub(super) period: Duration,
    pub(super) working_set: u64,
    pub(super) disk: Option<PathBuf>,
    pub(super) disk_rate: Option<u64>,
    pub(super) disk_size: u64,
    pub(super) job: Duration,
    pub(super) duration: Option<Duration>,
    pub(super) seed: u64,
    pub(super) json: bool,
}

/// A load whose files are there.
pub(super) struct Prepared {
    load: Load,
    disk: Option<File>,
    source: Option<File>,
}

/// What a thread of the load did.
pub(super) enum Done {
    Thread(Thread),
    Processes(Processes),
    Disk(Disk),
}

/// What a load has done, and what it has cost.
pub(super) struct Report<'a> {
    pub(super) load: &'a Load,
    pub(super) done: Vec<Done>,
    pub(super) wall_s: f64,
    pub(super) own: CpuTime,
    /// CPU time of compile-like processes.
    pub(super) children: CpuTime,
}

impl Load {
    /// Makes what can fail for want of a setting.
    pub(super) fn begin(self) -> Result<Prepared> {
        let disk = self.disk.as_deref().map(disk::on_disk).transpose()?;
        let source = match self.kind {
            Kind::Compile if self.threads > 0 => {
                Some(compile::source(self.directory(), self.seed)?)
            }
            _ => None,
        };
        Ok(Prepared { load: self, disk, source })
    }

    /// Begins and runs it.
    pub(super) fn run(self, stop: &Stop) -> Result<()> {
        self.begin()?.run(stop)
    }

    /// Where compile-like processes have their files.
    fn directory(&self) -> &Path {
        self.disk.as_deref().unwrap_or(Path::new("."))
    }
}

impl Prepared {
    /// Loads until the time is over or the stop is set, and reports.
    pub(super) fn run(self, stop: &Stop) -> Result<()> {
        let Prepared { load, disk, source } = &self;
        let before = Usage::now()?;
        let begin = Instant::now();
        let end = load.duration.map(|duration| begin + duration);
        let done = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            let mut start = |name: String, work: Box<dyn FnOnce() -> Result<Done> + Send>| {
                let body = move || {
                    if let Err(problem) = loopscope_trace::thread_init() {
                        eprintln!("warning: {problem}; this thread's events are lost, and counted");
                    }
                    let done = work();
                    if done.is_err() {
                        // The load is not what was asked for any more.
                        stop.set();
                    }
                    done
                };
                let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, body);
                threads.push(thread.context("cannot start a thread")?);
                anyhow::Ok(())
            };
            for number in 0..load.threads {
                let work = match source {
                    Some(source) => load.row(number, source, end, stop),
                    None => load.thread(end, stop),
                };
                start(format!("burn-{number}"), work)?;
            }
            if let Some(file) = disk {
                let (size, rate, seed) = (load.disk_size, load.disk_rate, load.seed);
                let work = move || Ok(Done::Disk(disk::load(file, size, rate, seed, end, stop)?));
                start("burn-disk".to_owned(), Box::new(work))?;
            }
            if !load.json {
                print(format_args!("burning"))?;
            }
            watch(begin, end, stop)?;
            let join = |thread: std::thread::ScopedJoinHandle<Result<Done>>| {
                thread.join().map_err(|_| anyhow!("a thread has panicked"))?
            };
            threads.into_iter().map(join).collect::<Result<Vec<Done>>>()
        })?;
        let used = Usage::now()?.since(&before);
        let wall_s = begin.elapsed().as_secs_f64();
        Report { load, done, wall_s, own: used.own, children: used.children }.print()
    }
}

impl Load {
    fn row<'a>(
        &'a self,
        number: u64,
        source: &'a File,
        end: Option<Instant>,
        stop: &'a Stop,
    ) -> Box<dyn FnOnce() -> Result<Done> + Send + 'a> {
        let row = Row {
            source,
            directory: self.directory(),
            job: self.job,
            share: self.share,
            seed: self.seed.wrapping_add(number),
            number,
        };
        Box::new(move || Ok(Done::Processes(row.run(end, stop)?)))
    }

    fn thread<'a>(
        &'a self,
        end: Option<Instant>,
        stop: &'a Stop,
    ) -> Box<dyn FnOnce() -> Result<Done> + Send + 'a> {
        let (kind, set, share, period) = (self.kind, self.working_set, self.share, self.period);
        Box::new(move || Ok(Done::Thread(cpu::burn(kind, set, share, period, end, stop)?)))
    }
}

/// CPU time of this process and of those that it has waited for.
struct Usage {
    own: CpuTime,
    children: CpuTime,
}

impl Usage {
    fn now() -> Result<Usage> {
        Ok(Usage { own: CpuTime::of_process()?, children: CpuTime::of_children()? })
    }

    fn since(&self, earlier: &Usage) -> Usage {
        Usage { own: self.own.since(earlier.own), children: self.children.since(earlier.children) }
    }
}

/// Notes each second's CPU time until the end.
fn watch(begin: Instant, end: Option<Instant>, stop: &Stop) -> Result<()> {
    let mut last = Usage::now()?;
    for second in 1_u32.. {
        let due = begin + Duration::from_secs(second.into());
        let over = stop.sleep_until(end.map_or(due, |end| due.min(end)))?;
        if over || end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        let now = Usage::now()?;
        let used = now.since(&last);
        let cpu_ns = ((used.own.total_s() + used.children.total_s()) * 1e9) as u64;
        event!("burn", "second", second, cpu_ns = cpu_ns);
        last = now;
    }
    Ok(())
}
