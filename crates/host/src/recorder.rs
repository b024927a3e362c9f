//! What `record` and `attach` have in common: what to record, and being reached while they do.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use loopscope_agent::control::{Description, Reply, Request, Server};
use loopscope_agent::ledger;
use loopscope_collect::record::Each;
use loopscope_collect::stream::{Choice, Kind};
use loopscope_collect::{
    Activity, Cause, Collector, Cost, Identity, LossReport, Losses, RecordingSpec, StreamSpec,
    Trigger, Unmatched,
};

/// What to record, and where to.
#[derive(clap::Args)]
pub struct Terms {
    /// Record entities whose group:name matches this shell pattern, or with ! before it none that
    /// does; repeat for more, the last that matches decides [default: all]
    #[arg(short, long, value_name = "GLOB")]
    enable: Vec<String>,
    /// Record the streams that this file describes, as schema/streams.md has it; - is standard
    /// input
    #[arg(long, value_name = "FILE", conflicts_with = "enable")]
    streams: Option<PathBuf>,
    /// Where to write; must not hold a trace already
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Print nothing but what is wrong: who calls this reads loss.json
    #[arg(long)]
    pub quiet: bool,
}

impl Terms {
    /// The streams to record.
    pub fn streams(&self, identity: &Identity) -> anyhow::Result<Vec<StreamSpec>> {
        let Some(path) = &self.streams else {
            let spec = StreamSpec::default();
            if self.enable.is_empty() {
                return Ok(vec![spec]);
            }
            let entities = self.enable.iter().map(|pattern| Choice::parse(pattern)).collect();
            return Ok(vec![StreamSpec { entities, ..spec }]);
        };
        let mut text = String::new();
        if path.as_os_str() == "-" {
            let mut input = std::io::stdin();
            if input.is_terminal() {
                bail!("--streams -: describe the streams on standard input");
            }
            input.read_to_string(&mut text).context("cannot read the streams")?;
        } else {
            text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            close(path);
        }
        let recording = RecordingSpec::from_json(&text, identity.frequency)
            .with_context(|| format!("--streams {}", path.display()))?;
        if !recording.deadlines.is_empty() {
            bail!("--streams {}: deadlines are for the agent of a host", path.display());
        }
        Ok(recording.streams)
    }
}

/// Closes a descriptor that was given by its path: the program that is recorded is not to have it.
fn close(path: &Path) {
    let number = path.strip_prefix("/proc/self/fd").ok().and_then(Path::to_str);
    if let Some(number) = number.and_then(|number| number.parse::<i32>().ok()).filter(|n| *n > 2) {
        // It was read a moment ago, so it is there.
        let _ = nix::unistd::close(number);
    }
}

/// Tells people what it costs and which flight recorders were triggered, and obeys them.
pub struct Attendant {
    server: Option<Server>,
    description: Description,
    quiet: bool,
    /// Triggers so far.
    triggers: u32,
    begun: Instant,
    /// Patterns that match nothing have been told.
    told_unmatched: bool,
}

/// How long a program may take to register its entities before patterns that match none are told.
const REGISTERS: Duration = Duration::from_secs(1);

/// Triggers that are told one by one; all are in triggers.json.
const TOLD: u32 = 10;

impl Attendant {
    /// `pids` are numbers by which people call the recording, besides those of this process, of its
    /// parent and of the processes that are recorded.
    pub fn new(
        kind: &str,
        what: String,
        pids: &[u32],
        streams: &[StreamSpec],
        quiet: bool,
    ) -> Attendant {
        let own = [std::process::id(), std::os::unix::process::parent_id()];
        let flight = |spec: &&StreamSpec| spec.kind == Kind::FlightRecorder;
        let server = Server::bind(&ledger::state_dir())
            .map_err(|error| {
                eprintln!(
                    "loopscope-host: `loopscope trigger`, `enable` and `disable` cannot reach this \
                     recording: no socket in {}: {error}",
                    ledger::state_dir().display()
                );
            })
            .ok();
        let description = Description {
            kind: kind.to_owned(),
            pids: own.iter().chain(pids).copied().collect(),
            what,
            flight_recorders: streams.iter().filter(flight).map(|s| s.name.clone()).collect(),
        };
        let (begun, told_unmatched) = (Instant::now(), false);
        Attendant { server, description, quiet, triggers: 0, begun, told_unmatched }
    }

    /// To be called whenever the rings have been looked at.
    pub fn attend(&mut self, collector: &mut Collector, activity: &Activity) {
        for (stream, trigger) in &activity.triggers {
            self.triggers += 1;
            if self.triggers <= TOLD {
                eprintln!("loopscope-host: {}", describe(stream, trigger));
            } else if self.triggers == TOLD + 1 {
                eprintln!("loopscope-host: further triggers go without a line here");
            }
        }
        if !self.told_unmatched && self.begun.elapsed() > REGISTERS {
            self.told_unmatched = true;
            for found in collector.unmatched() {
                eprintln!("loopscope-host: {} It may still appear.", sentence(&found));
            }
        }
        if let Some(server) = &self.server {
            server.answer(|request| match request {
                Request::Describe => Reply::Description(self.described(collector)),
                Request::Trigger { stream } => {
                    match collector.trigger(stream.as_deref(), Cause::Command, None) {
                        Ok(triggered) => Reply::Triggered(triggered),
                        Err(error) => Reply::Refused(chain(&error)),
                    }
                }
                Request::Choose { stream, patterns } => choose(collector, &stream, &patterns),
                Request::Links | Request::SetLink { .. } => {
                    Reply::Refused("no links are emulated here".into())
                }
            });
        }
    }

    /// The description, with the numbers of the processes that are recorded now.
    fn described(&self, collector: &Collector) -> Description {
        let mut description = self.description.clone();
        let unnamed = collector.pids().filter(|pid| !self.description.pids.contains(pid));
        description.pids.extend(unnamed);
        description
    }

    /// The callback that [`loopscope_collect::record::run`] takes.
    pub fn each(&mut self) -> impl FnMut(&mut Collector, &Activity) + '_ {
        let each: Box<Each> = Box::new(|collector, activity| self.attend(collector, activity));
        each
    }

    /// Says what was measured, and how it ended; quietly, only what was found wrong.
    pub fn report(&self, cost: Option<Cost>, losses: &Losses) {
        for found in &losses.unmatched {
            eprintln!("loopscope-host: {} None appeared.", sentence(found));
        }
        if self.quiet {
            for problem in losses.problems.iter().chain(losses.streams.values().flat_map(unwritten))
            {
                eprintln!("loopscope-host: {problem}");
            }
            return;
        }
        if let Some(cost) = cost {
            let (event, read) = (cost.event_ns, cost.counter_read_ns);
            eprintln!(
                "loopscope-host: an event costs {:.1} ns here ({:.1} to {:.1}), {:.1} of them for \
                 reading the counter",
                event.median, event.p10, event.p90, read.median
            );
        }
        for (name, loss) in &losses.streams {
            print_balance(name, loss);
        }
        for problem in &losses.problems {
            eprintln!("  problem: {problem}");
        }
    }
}

fn choose(collector: &mut Collector, stream: &str, patterns: &[String]) -> Reply {
    let mut streams = collector.streams();
    let known: Vec<String> = streams.iter().map(|spec| spec.name.clone()).collect();
    let Some(spec) = streams.iter_mut().find(|spec| spec.name == stream) else {
        let known = known.join(", ");
        return Reply::Refused(format!("there is no stream {stream:?} (there are: {known})"));
    };
    spec.entities.extend(patterns.iter().map(|pattern| Choice::parse(pattern)));
    match collector.reconfigure(&streams) {
        Ok(()) => {
            let asked = |found: &Unmatched| {
                let is = |pattern: &String| pattern.trim_start_matches('!') == found.pattern;
                found.stream == stream && patterns.iter().any(is)
            };
            let unmatched = collector.unmatched().into_iter().filter(asked);
            Reply::Chosen(unmatched.map(|found| sentence(&found)).collect())
        }
        Err(error) => Reply::Refused(chain(&error)),
    }
}

fn sentence(found: &Unmatched) -> String {
    let text = found.to_string();
    if text.ends_with('?') { text } else { format!("{text}.") }
}

/// Problems that its file does not tell.
fn unwritten(loss: &LossReport) -> impl Iterator<Item = &String> {
    let told: Vec<&String> = loss.processes.iter().flat_map(|each| &each.unknown).collect();
    loss.problems.iter().filter(move |text| !told.iter().any(|what| text.ends_with(what.as_str())))
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn describe(stream: &str, trigger: &Trigger) -> String {
    let why = match trigger.cause {
        Cause::Entity | Cause::Path => {
            let entity = trigger.entity.as_deref().unwrap_or("a hit");
            trigger.id.map_or(entity.to_owned(), |id| format!("{entity} {id}"))
        }
        Cause::Command => "asked for".to_owned(),
        Cause::Host => format!("a trigger on {}", trigger.host),
        Cause::Signal => "a signal".to_owned(),
        Cause::End => "the end of the recording".to_owned(),
        Cause::Death => "the program's end".to_owned(),
    };
    format!("flight recorder {stream} triggered: {why}")
}

fn print_balance(stream: &str, loss: &LossReport) {
    let LossReport { emitted, recorded, overwritten, dropped, .. } = loss;
    let flight =
        if *overwritten > 0 { format!("{overwritten} overwritten + ") } else { String::new() };
    eprintln!(
        "loopscope-host: {stream}: {emitted} events emitted = {recorded} recorded + {flight}{dropped} \
         dropped"
    );
    for process in &loss.processes {
        let name = format!("{} ({})", process.process, process.pid);
        for site in &process.sites {
            for (cause, count) in &site.dropped {
                eprintln!("  {name}: {count} of {} dropped: {cause}", site.entity);
            }
            if site.filtered > 0 {
                eprintln!("  {name}: {} of {} kept out by filters", site.filtered, site.entity);
            }
        }
        if process.torn > 0 {
            eprintln!("  {name}: {} torn: begun and never finished", process.torn);
        }
    }
    for problem in &loss.problems {
        eprintln!("  problem: {problem}");
    }
}
