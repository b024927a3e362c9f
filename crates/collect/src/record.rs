//! Recording one command.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use loopscope_time::source::{VARIABLE, counter_kind};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::collector::{Activity, remove_output};
use crate::handover::{self, Place};
use crate::signals::Signals;
use crate::sweep::{RUNTIME_PREFIX, memory};
use crate::{Cause, Collector, Cost, Error, Identity, Losses, RUNTIME_DIR, StreamSpec, stream};

/// What to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Gets `trace/` and `loss.json` of the stream `main` and `streams/` with those of the others;
    /// made if absent.
    pub out: PathBuf,
    /// What to record.
    pub streams: Vec<StreamSpec>,
    /// The trace's identity; see [`Identity::of_this_machine`].
    pub identity: Identity,
    /// What an event costs here, for the accounts.
    pub cost: Option<Cost>,
}

/// What else is done while a recording goes on: see [`run`].
pub type Each<'a> = dyn FnMut(&mut Collector, &Activity) + 'a;

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// A finished recording.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the program ended.
    pub exit: Exit,
    /// The account of its events, by stream.
    pub losses: Losses,
}

/// Runs the command and records its events and those of its children until it ends. Children that
/// outlive it go on unrecorded.
///
/// SIGINT, SIGTERM, SIGHUP and SIGQUIT go to the program. So does SIGUSR1, unless there are flight
/// recorders: then it triggers them, and the program does not get it. That needs them blocked here,
/// so this is for a process with no other threads.
///
/// `each` is called whenever the rings have been looked at, with what was found: at least every
/// 20 ms while collecting goes well.
pub fn run(options: &Options, each: &mut Each) -> Result<Outcome, Error> {
    let (program, arguments) = options.command.split_first().ok_or(Error::NoCommand)?;
    let runtime = runtime_dir()?;
    stream::write(&options.streams, runtime.path(), options.identity.frequency)?;
    let mut collector = Collector::new(&options.out, options.identity.clone(), None)?;
    let place = Place::Own(runtime.path().to_owned());
    let _locks =
        (collector.begin(place, &options.streams)?, handover::own(runtime.path(), &options.out)?);
    if let Err(error) = collector.add_source(runtime.path(), None, &options.streams) {
        // All that is there is this recording's own, and nothing was recorded.
        drop(collector);
        remove_output(&options.out, &options.streams)?;
        return Err(error);
    }
    if let Some(cost) = options.cost {
        collector.set_cost(cost);
    }

    let mut signals =
        Signals::block(FORWARDED.into_iter().chain([Signal::SIGUSR1, Signal::SIGCHLD]))?;
    let mut command = Command::new(program);
    command.args(arguments).env(RUNTIME_DIR, runtime.path());
    command.env(VARIABLE, counter_kind().name());
    let note = collector.journal.note_caller()?;
    prepare(&mut command, signals.before(), note);
    let ended = match command.spawn() {
        Ok(mut child) => attend(&mut child, &mut collector, &mut signals, each),
        Err(source) => {
            let program = program.to_string_lossy().into_owned();
            Err(Error::Start { program, source })
        }
    };
    drop(signals);
    let finished = collector.finish();
    if let Err(Error::Start { .. }) = ended {
        // Nothing was recorded: the directory stays free for another try.
        remove_output(&options.out, &options.streams)?;
    }
    Ok(Outcome { exit: exit_of(ended?), losses: finished? })
}

const FORWARDED: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// A fresh directory in memory, if there is room, for this user alone.
fn runtime_dir() -> Result<TempDir, Error> {
    let parent = memory();
    let made = tempfile::Builder::new()
        .prefix(RUNTIME_PREFIX)
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir_in(&parent);
    made.map_err(Error::file("make a directory in", &parent))
}

/// The program gets the signals that this process had, not the ones blocked for it, and is noted
/// before it begins: a resumed recording knows it, even if the program kills this process at once.
#[allow(unsafe_code)]
fn prepare(
    command: &mut Command,
    mask: SigSet,
    note: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: the child of a process with no other threads may do what the process may; see `run`.
    // With others, `note` needs no lock but the allocator's, which fork hands over free.
    unsafe {
        command.pre_exec(move || {
            mask.thread_set_mask().map_err(io::Error::from).and_then(|()| note())
        });
    }
}

/// Drains rings and forwards signals until the child has ended. If collecting fails, the child goes
/// on: it is not the recorder's to stop.
fn attend(
    child: &mut Child,
    collector: &mut Collector,
    signals: &mut Signals,
    each: &mut Each,
) -> Result<ExitStatus, Error> {
    let pid = Pid::from_raw(child.id().cast_signed());
    let mut collected = Ok(Activity::default());
    loop {
        if let Some(status) = child.try_wait().map_err(Error::host("wait for the program"))? {
            return collected.map(|_| status);
        }
        if collected.is_ok() {
            collected = collector.poll();
            if let Ok(activity) = &collected {
                each(collector, activity);
            }
        }
        let pause = collected.as_ref().map_or(Duration::from_millis(100), Activity::pause);
        for came in signals.wait(pause)? {
            match came.signal {
                Signal::SIGCHLD => {}
                Signal::SIGUSR1 if collector.has_flight_recorders() => {
                    if let Err(error) = collector.trigger(None, Cause::Signal, None) {
                        collected = collected.and(Err(error));
                    }
                }
                // The program has got its own.
                _ if came.from_terminal => {}
                signal => {
                    // The program may have ended in this moment.
                    let _ = kill(pid, signal);
                }
            }
        }
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or(0)),
    }
}
