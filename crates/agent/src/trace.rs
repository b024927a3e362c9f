//! Recording: one collector for all programs of the host, drained by a thread of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use loopscope_collect::{
    Cause, ClockMap, Collector, Cost, Departure, Error, Identity, LossReport, MAIN, RecordingSpec,
    Trigger, Why,
};
use thiserror::Error as ThisError;

use crate::events::EventSender;
use crate::global::GlobalClock;
use crate::proto::{self, Departures, Triggered, event::What};

/// The longest that a new source waits to be looked at.
const CALM: Duration = Duration::from_millis(50);
/// Between two looks while nothing on the host can be recorded: an order ends it.
const ORDERS_ONLY: Duration = Duration::from_secs(60);
/// Departures that are told at once: some 100 kB.
const BATCH: usize = 4096;

/// Why there is no trace, or no more of it.
#[derive(Debug, ThisError)]
pub(crate) enum TraceError {
    #[error("the trace of this host is finished already")]
    Finished,
    #[error("cannot record: {}", with_sources(.0))]
    Collect(#[from] Error),
    #[error("cannot start the collector's thread: {0}")]
    Thread(std::io::Error),
    #[error("the collector's thread panicked: please report this")]
    Panicked,
}

/// An error with what caused it, in one line.
fn with_sources(error: &Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

/// The host's recording.
pub(crate) enum Trace {
    /// Nothing to record yet.
    Idle,
    Running(Recorder),
    Finished(LossReport),
}

impl Trace {
    /// Also records the programs of `source`. `out` gets `trace/` and `loss.json`. Triggers and
    /// departures that begin on this host go to the reporter. After an error, such as a full disk,
    /// nothing of `source` is recorded.
    pub(crate) fn add(
        &mut self,
        source: Source,
        out: &Path,
        identity: Identity,
        filter: Option<ClockMap>,
        reporter: impl FnOnce() -> HostReporter,
    ) -> Result<(), TraceError> {
        if let Trace::Idle = self {
            let mut collector = Collector::new(out, identity.clone(), filter)?;
            if let Some(cost) = Cost::measure(identity.frequency) {
                collector.set_cost(cost);
            }
            *self = Trace::Running(Recorder::start(collector, reporter())?);
        }
        let Trace::Running(recorder) = self else { return Err(TraceError::Finished) };
        let (sender, answer) = channel();
        // A thread that has panicked drops the sender.
        let _ = recorder.orders.send(Order::Add { source, answer: sender });
        Ok(answer.recv().map_err(|_| TraceError::Panicked)??)
    }

    /// Triggers the flight recorder `stream`, or all; `host` is where it began, if elsewhere.
    /// Whether any program's was triggered now.
    pub(crate) fn trigger(&self, stream: Option<String>, host: Option<String>) -> bool {
        let Trace::Running(recorder) = self else { return false };
        let (sender, answer) = channel();
        // A thread that has ended drops the sender.
        let _ = recorder.orders.send(Order::Trigger { stream, host, answer: sender });
        answer.recv().unwrap_or(false)
    }

    /// Messages of a path that ends here have departed. Whether there is a recording that they can
    /// be watched in, or was.
    pub(crate) fn departed(&self, path: &str, departures: Vec<Departure>) -> bool {
        match self {
            Trace::Idle => false,
            Trace::Running(recorder) => {
                // A thread that has ended says why when it is finished.
                let _ = recorder.orders.send(Order::Departed(path.to_owned(), departures));
                true
            }
            Trace::Finished(_) => true,
        }
    }

    /// Ends the recording. The account, empty where nothing was to be recorded.
    pub(crate) fn finish(&mut self) -> Result<LossReport, TraceError> {
        let report = match std::mem::replace(self, Trace::Idle) {
            Trace::Idle => return Ok(LossReport::default()),
            Trace::Finished(report) => report,
            Trace::Running(recorder) => recorder.finish()?,
        };
        *self = Trace::Finished(report.clone());
        Ok(report)
    }
}

/// Programs to record.
pub(crate) struct Source {
    /// Their runtime directory, with its `streams` file.
    pub(crate) runtime: PathBuf,
    /// Name of the processes.
    pub(crate) process: String,
    /// The content of the `streams` file, and what is watched.
    pub(crate) recording: RecordingSpec,
}

enum Order {
    Add { source: Source, answer: Sender<Result<(), Error>> },
    Departed(String, Vec<Departure>),
    Trigger { stream: Option<String>, host: Option<String>, answer: Sender<bool> },
}

/// The collector's thread. It ends when this is dropped.
pub(crate) struct Recorder {
    orders: Sender<Order>,
    thread: JoinHandle<Result<LossReport, Error>>,
}

impl Recorder {
    fn start(collector: Collector, reporter: HostReporter) -> Result<Recorder, TraceError> {
        let (orders, given) = channel();
        let thread = std::thread::Builder::new()
            .name("collector".to_owned())
            .spawn(move || collect(collector, &given, reporter))
            .map_err(TraceError::Thread)?;
        Ok(Recorder { orders, thread })
    }

    fn finish(self) -> Result<LossReport, TraceError> {
        drop(self.orders);
        Ok(self.thread.join().map_err(|_| TraceError::Panicked)??)
    }
}

fn collect(
    mut collector: Collector,
    given: &Receiver<Order>,
    mut reporter: HostReporter,
) -> Result<LossReport, Error> {
    let mut failed = None;
    let mut pause = CALM;
    loop {
        // After a failure rings fill up, and what does not fit is counted.
        let done = match given.recv_timeout(pause) {
            Ok(Order::Add { source: Source { runtime, process, recording }, answer }) => {
                recording.deadlines.into_iter().for_each(|deadline| collector.watch(deadline));
                let added = collector.add_source(&runtime, Some(process), &recording.streams);
                // The program does not start where this is an error, so the recording goes on.
                let _ = answer.send(added);
                Ok(())
            }
            Ok(Order::Trigger { stream, host, answer }) => {
                let cause = if host.is_some() { Cause::Host } else { Cause::Command };
                let why = Why { host, ..cause.into() };
                collector.trigger(stream.as_deref(), why, None).map(|triggered| {
                    // The caller may have gone.
                    let _ = answer.send(triggered);
                })
            }
            Ok(Order::Departed(path, departures)) => {
                collector.departed(&path, &departures);
                Ok(())
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if failed.is_none() {
            match done.and_then(|()| collector.poll()) {
                Ok(activity) => {
                    pause = if collector.has_sources() { activity.pause() } else { ORDERS_ONLY };
                    for (path, departures) in activity.departures {
                        reporter.departures(&path, &departures);
                    }
                    for (stream, trigger) in activity.triggers {
                        reporter.trigger(stream, trigger);
                    }
                }
                Err(error) => {
                    failed = Some(error);
                    pause = CALM;
                }
            }
        }
    }
    // What was counted until a failure, and since, is in the account.
    match (collector.finish(), failed) {
        (Err(_), Some(first)) => Err(first),
        (losses, failed) => losses.map(|losses| {
            let mut report = losses.into_stream(MAIN);
            report.problems.extend(failed.map(|error| TraceError::from(error).to_string()));
            report.problems.extend(reporter.problems());
            report
        }),
    }
}

/// Tells other hosts, by way of the watcher, what they have to know of this one.
pub(crate) struct HostReporter {
    sender: EventSender,
    global: GlobalClock,
    /// Departures of paths that were before the exchange of probes.
    untimed: BTreeMap<String, u64>,
}

impl HostReporter {
    pub(crate) fn new(sender: EventSender, global: GlobalClock) -> HostReporter {
        HostReporter { sender, global, untimed: BTreeMap::new() }
    }

    /// Pulls a trigger that no other host has reported.
    fn trigger(&self, stream: String, trigger: Trigger) {
        let cause = match trigger.cause {
            Cause::Entity => "entity",
            Cause::Path => "path",
            Cause::Command | Cause::Signal => "command",
            Cause::Host | Cause::End | Cause::Death => return,
        };
        let (entity, id) = (trigger.entity.unwrap_or_default(), trigger.id.unwrap_or_default());
        let cause = cause.to_owned();
        self.sender.send(What::Triggered(Triggered { stream, cause, entity, id }));
    }

    fn departures(&mut self, path: &str, departures: &[Departure]) {
        for batch in departures.chunks(BATCH) {
            let told = batch.iter().filter_map(|departure| self.global.encode(*departure));
            let departures: Vec<proto::Departure> = told.collect();
            let untimed = batch.len() - departures.len();
            if untimed > 0 {
                *self.untimed.entry(path.to_owned()).or_default() += untimed as u64;
            }
            if !departures.is_empty() {
                self.sender
                    .send(What::Departures(Departures { path: path.to_owned(), departures }));
            }
        }
    }

    fn problems(self) -> impl Iterator<Item = String> {
        self.untimed.into_iter().map(|(path, count)| {
            format!(
                "path {path}: {count} messages were not watched for its deadline: when they \
                 departed the host's time was not known (before the exchange of probes, or while \
                 probes contradicted each other)"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use loopscope_clocksync::online::Online;
    use loopscope_time::{Counter, Frequency};

    use super::*;
    use crate::events::Events;

    /// Each departure is told once, in messages of bounded size; what cannot be timed is counted.
    #[test]
    fn departures_are_told_or_counted() {
        let frequency = Frequency::from_hz(1_000_000_000).unwrap();
        let global = GlobalClock::new(None, frequency);
        let events = Events::new(global.clone());
        let mut reporter = HostReporter::new(events.sender(""), global.clone());
        let departures: Vec<Departure> = (0..10_000)
            .map(|id| Departure { id, lo: Counter(id as u64), hi: Counter(id as u64) })
            .collect();
        reporter.departures("early", &departures[..7]);
        global.begin(Arc::new(Mutex::new(Online::reference(frequency))));
        reporter.departures("loop", &departures);
        let mut told = Vec::new();
        let mut receiver = events.watch().unwrap();
        while let Ok(Some(event)) = receiver.try_recv() {
            let Some(What::Departures(batch)) = event.what else { panic!("{event:?}") };
            assert_eq!(batch.path, "loop");
            assert!(batch.departures.len() <= BATCH);
            told.extend(batch.departures);
        }
        assert!(told.iter().map(|each| each.id).eq(0..10_000));
        assert!(told.iter().all(|each| each.global_ns == each.id && each.within_ns < 10));
        let problems: Vec<String> = reporter.problems().collect();
        assert!(problems[0].contains("path early: 7 messages were not watched"), "{problems:?}");
        assert_eq!(problems.len(), 1);
    }
}
