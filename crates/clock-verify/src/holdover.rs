//! The reference is stopped; the follower's daemon is stopped, killed in the middle of a write and
//! started again. What programs read from its page is held against the truth all the time.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use loopscope_clock::{Page, Status};
use loopscope_clocksync::page::LEASE;
use loopscope_clocksync::stamp::ordered_counter;
use loopscope_clocksync::synthetic::SyntheticClock;
use loopscope_time::Counter;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Run;
use super::bed::{Bed, Process, REFERENCE, probes};
use super::measure::ticks;
use super::score::{Estimate, Sample, Tally, Truth};

const FOLLOWER: &str = "h2";
/// Between two reads of the page.
const READING: Duration = Duration::from_micros(500);
/// One of so many reads is drawn.
const SAMPLED: usize = 8;
/// Instants that are mapped by each: since the last one.
const INSTANTS: u64 = 16;
/// After a change of the circumstances: the estimator's own second, and what processes of a busy
/// machine take to notice.
const GRACE: Duration = Duration::from_millis(1500);
/// The longest that one may take to know the time again, on a busy machine.
const RECOVERY: Duration = Duration::from_secs(30);
/// Time that the reference is away.
const OUTAGE: Duration = Duration::from_secs(20);

/// Expected statuses in a part of the time.
struct Part {
    what: &'static str,
    until: Counter,
    allowed: &'static [Status],
}

/// A reading of the page, with its time.
pub(super) struct Read {
    at: Counter,
    status: Status,
    epoch: u32,
    estimate: Option<Estimate>,
}

pub(super) struct Measured {
    pub(super) bed: Bed,
    pub(super) reference: SyntheticClock,
    pub(super) follower: SyntheticClock,
    pub(super) begin: Counter,
    /// When the first daemon was killed, whose log this is.
    pub(super) killed: Counter,
    /// Errors of what the page said.
    pub(super) online: Tally,
    /// Some of that.
    pub(super) samples: Vec<Sample>,
    /// Parts of the time, and the reads of each that had a wrong status, for people; empty: none.
    pub(super) wrong: Vec<(&'static str, String)>,
    /// Epochs of the daemon that was killed, and of the one that followed.
    pub(super) epochs: [u32; 2],
}

pub(super) fn measure(run: &Run) -> Result<Measured> {
    use Status::{Holdover, Synchronised, Unknown};
    let bed = Bed::build(&[REFERENCE.to_owned(), FOLLOWER.to_owned()])?;
    let page = bed.directory.join("page");
    let log = |name: &str| probes(&bed.hosts(), name);
    let mut reference = start(&bed, run, REFERENCE, log(REFERENCE), None)?;
    let address = reference.listening()?;
    let follow = |log| {
        let mut daemon = start(&bed, run, FOLLOWER, log, Some((&address, &page)))?;
        daemon.listening()?;
        Ok::<_, anyhow::Error>(daemon)
    };
    let mut daemon = follow(log(FOLLOWER))?;

    let truth =
        Truth { reference: SyntheticClock::new(run.seed, REFERENCE), frequency: bed.frequency };
    let ended = Arc::new(AtomicBool::new(false));
    let reader = {
        let page = Page::open(Some(&page)).map_err(|error| anyhow!("{error}"))?;
        let ended = ended.clone();
        std::thread::spawn(move || read(&page, truth, &ended))
    };
    let _end = EndReader(ended.clone());
    let seen = Page::open(Some(&page)).map_err(|error| anyhow!("{error}"))?;
    // What comes next is about the status of who knows the time: how soon that is depends on load.
    let recovered = || {
        let begun = Instant::now();
        while seen.now().status != Synchronised && begun.elapsed() < RECOVERY {
            run.sleep(Duration::from_millis(10))?;
        }
        Ok::<_, anyhow::Error>(())
    };
    let mut parts: Vec<Part> = Vec::new();
    let mut part = |what, allowed: &'static [Status], time: Duration| {
        run.sleep(time)?;
        parts.push(Part { what, until: ordered_counter(), allowed });
        Ok::<_, anyhow::Error>(())
    };
    let calm = run.duration / 6;
    let outage = if run.duration < OUTAGE { GRACE * 2 } else { OUTAGE };
    let any = &[Unknown, Synchronised, Holdover];
    eprintln!("  the reference answers, is stopped for {} s and goes on", outage.as_secs_f64());
    part("at the begin", any, GRACE)?;
    let begin = ordered_counter();
    part("while the reference answers", &[Synchronised], calm)?;
    signal(&reference, Signal::SIGSTOP)?;
    part("when the reference stops", &[Synchronised, Holdover], GRACE)?;
    part("while the reference is stopped", &[Holdover], outage - GRACE)?;
    signal(&reference, Signal::SIGCONT)?;
    recovered()?;
    part("when the reference goes on", any, GRACE)?;
    part("while the reference answers again", &[Synchronised], calm)?;
    eprintln!("  the follower's daemon is stopped, goes on, is killed and started anew");
    signal(&daemon, Signal::SIGSTOP)?;
    part("when the daemon stops", &[Synchronised, Holdover], LEASE + GRACE)?;
    part("while the daemon is stopped", &[Holdover], GRACE)?;
    signal(&daemon, Signal::SIGCONT)?;
    recovered()?;
    part("when the daemon goes on", any, GRACE)?;
    part("while the daemon works again", &[Synchronised], calm)?;
    // Most of its time it is in the middle of a write then.
    let stdin = daemon.0.stdin.as_mut().context("the daemon hears nothing")?;
    stdin.write_all(b"b")?;
    part("while the daemon writes without pause", &[Synchronised], Duration::from_millis(300))?;
    daemon.0.kill().context("cannot kill the daemon")?;
    daemon.0.wait()?;
    let killed = ordered_counter();
    part("when the daemon is killed", &[Synchronised, Holdover], LEASE + GRACE)?;
    part("while there is no daemon", &[Holdover], GRACE)?;
    let restarted = ordered_counter();
    let daemon = follow(bed.directory.join("restarted"))?;
    recovered()?;
    part("when the daemon is started anew", any, GRACE)?;
    part("while the new daemon works", &[Synchronised], calm)?;

    ended.store(true, Ordering::Relaxed);
    let (online, reads) = reader.join().map_err(|_| anyhow!("the page's reader panicked"))?;
    finish(daemon)?;
    finish(reference)?;
    let mut wrong: Vec<(&str, String)> = Vec::new();
    let mut at = 0;
    let hz = bed.frequency.hz() as f64;
    for part in &parts {
        let of_part: Vec<&Read> =
            reads[at..].iter().take_while(|read| read.at < part.until).collect();
        at += of_part.len();
        wrong.push((part.what, misread(&of_part, part.allowed, hz)));
    }
    let newest = |before: Counter| {
        let known = |read: &&Read| read.at < before && read.status != Unknown;
        reads.iter().rfind(known).map_or(0, |read| read.epoch)
    };
    let sample = |read: &Read| Sample {
        host: FOLLOWER.to_owned(),
        time_s: read.at.ticks_since(begin) as f64 / hz,
        offline: None,
        online: read.estimate,
    };
    let samples =
        reads.iter().filter(|read| read.at >= begin).step_by(SAMPLED).map(sample).collect();
    Ok(Measured {
        samples,
        reference: truth.reference,
        follower: SyntheticClock::new(run.seed, FOLLOWER),
        begin,
        killed,
        online,
        wrong,
        epochs: [newest(restarted), newest(Counter(u64::MAX))],
        bed,
    })
}

/// The problem of the statuses that were read in a part of the time; empty if there is none.
fn misread(reads: &[&Read], allowed: &[Status], hz: f64) -> String {
    let Some(begin) = reads.first() else { return "it was not read".to_owned() };
    let wrong: Vec<_> = reads.iter().filter(|read| !allowed.contains(&read.status)).collect();
    let Some(first) = wrong.first() else { return String::new() };
    let after = first.at.ticks_since(begin.at) as f64 / hz;
    let last = wrong[wrong.len() - 1].at.ticks_since(begin.at) as f64 / hz;
    format!(
        "{} of {} reads said {:?} and the like, {after:.3} to {last:.3} s after its begin",
        wrong.len(),
        reads.len(),
        first.status
    )
}

/// Ends the reader with its starter.
struct EndReader(Arc<AtomicBool>);

impl Drop for EndReader {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn start(
    bed: &Bed,
    run: &Run,
    name: &str,
    log: PathBuf,
    follows: Option<(&String, &PathBuf)>,
) -> Result<Process> {
    let mut words = vec!["clock".to_owned(), "verify-host".to_owned()];
    let mut say = |option: &str, value: String| words.extend([format!("--{option}"), value]);
    say("name", name.to_owned());
    say("seed", run.seed.to_string());
    say("address", bed.clock_address(name)?.to_string());
    say("directory", log.display().to_string());
    say("key", bed.key_path().display().to_string());
    say("hz", bed.frequency.hz().to_string());
    if let Some((reference, page)) = follows {
        say("reference", reference.clone());
        say("page", page.display().to_string());
    }
    bed.start(name, &words, Stdio::piped())
}

fn signal(process: &Process, signal: Signal) -> Result<()> {
    kill(Pid::from_raw(process.0.id().cast_signed()), signal)
        .with_context(|| format!("cannot send {signal}"))
}

/// Lets a host end and complete its log.
fn finish(mut process: Process) -> Result<()> {
    drop(process.0.stdin.take());
    process.0.wait().context("a host does not end")?;
    Ok(())
}

/// Reads the page until it is asked to end.
fn read(page: &Page, truth: Truth, ended: &AtomicBool) -> (Tally, Vec<Read>) {
    let (mut tally, mut reads) = (Tally::default(), Vec::new());
    let mut last = ordered_counter();
    while !ended.load(Ordering::Relaxed) {
        std::thread::sleep(READING);
        let now = page.now();
        let step = now.counter.ticks_since(last).max(0).cast_unsigned() / INSTANTS;
        for i in 0..INSTANTS {
            let at = Counter(now.counter.0 - i * step);
            let estimate = if i == 0 { now } else { page.map(at) };
            let scored = (estimate.status != Status::Unknown).then(|| Estimate {
                error_ns: truth.error(at, estimate.best, 0.0),
                above_ns: (estimate.latest - estimate.best) as f64,
                below_ns: (estimate.best - estimate.earliest) as f64,
                calibrated_ns: f64::from(estimate.calibrated_ns),
            });
            match scored {
                Some(estimate) => {
                    tally.take(estimate, truth.cut(), || format!("the page at counter {}", at.0))
                }
                None => tally.unknown += 1,
            }
            if i == 0 {
                reads.push(Read {
                    at,
                    status: estimate.status,
                    epoch: estimate.epoch,
                    estimate: scored,
                });
            }
        }
        last = now.counter;
    }
    (tally, reads)
}

/// The stretch that the log of the first daemon tells of.
pub(super) fn solved_stretch(measured: &Measured) -> (Counter, Counter) {
    let unflushed = ticks(measured.bed.frequency, Duration::from_secs(1));
    (measured.begin, Counter(measured.killed.0 - unflushed))
}
