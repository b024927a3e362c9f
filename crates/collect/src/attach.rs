//! Recording a program that runs already.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::collector::remove_output;
use crate::entities::directories_of;
use crate::handover::{Place, Program};
use crate::record::Each;
use crate::signals::Signals;
use crate::{Cause, Collector, Cost, Error, Identity, Losses, StreamSpec};

/// What to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program's process id.
    pub pid: u32,
    /// The output directory, see [`crate::record::Options::out`].
    pub out: PathBuf,
    /// What to record.
    pub streams: Vec<StreamSpec>,
    /// The trace's identity; see [`Identity::of_this_machine`].
    pub identity: Identity,
    /// What an event costs here, for the accounts.
    pub cost: Option<Cost>,
    /// For how long; until the program ends if that is not given.
    pub duration: Option<Duration>,
}

/// What ended a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The program's own end.
    Program,
    /// A signal to the recorder.
    Signal,
    /// Its time was up.
    Time,
}

/// Records the program and the children that it makes from now on, until it ends, the duration is
/// over, or SIGINT, SIGTERM, SIGHUP or SIGQUIT comes. The program goes on as it was before. SIGUSR1
/// triggers the flight recorders. For a process with no other threads; `each` as in
/// [`crate::record::run`].
pub fn run(options: &Options, each: &mut Each) -> Result<(End, Losses), Error> {
    let program = Program::of(options.pid);
    let process_dirs = directories_of(options.pid)?;
    let mut collector = Collector::new(&options.out, options.identity.clone(), None)?;
    let _lock = collector.begin(Place::Process(process_dirs.clone()), &options.streams)?;
    collector.note_program(options.pid)?;
    if let Some(cost) = options.cost {
        collector.set_cost(cost);
    }
    let ends = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
    let signals = Signals::block(ends.into_iter().chain([Signal::SIGUSR1]))?;
    let mut attach = |dir: &PathBuf| collector.attach(dir, None, &options.streams);
    if let Err(error) = process_dirs.iter().try_for_each(&mut attach) {
        // Nothing was recorded: the directory stays free for another try.
        collector.finish().and(remove_output(&options.out, &options.streams))?;
        return Err(error);
    }
    let until = options.duration.map(|duration| Instant::now() + duration);
    let attended = Attended { program, until }.attend(&mut collector, signals, each);
    let finished = collector.finish();
    Ok((attended?, finished?))
}

/// A program that somebody else has started.
pub(crate) struct Attended {
    /// `None` where its number is not known: it ends with the last process of the recording.
    pub(crate) program: Option<Program>,
    pub(crate) until: Option<Instant>,
}

impl Attended {
    pub(crate) fn attend(
        &self,
        collector: &mut Collector,
        mut signals: Signals,
        each: &mut Each,
    ) -> Result<End, Error> {
        loop {
            // Before the look at its rings, which then is the last.
            let ended = self.program.map_or(!collector.has_processes(), |program| !program.runs());
            let activity = collector.poll()?;
            each(collector, &activity);
            let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            if ended {
                return Ok(End::Program);
            }
            if left == Some(Duration::ZERO) {
                return Ok(End::Time);
            }
            for came in
                signals.wait(left.map_or(activity.pause(), |left| left.min(activity.pause())))?
            {
                if came.signal != Signal::SIGUSR1 {
                    return Ok(End::Signal);
                }
                collector.trigger(None, Cause::Signal, None)?;
            }
        }
    }
}
