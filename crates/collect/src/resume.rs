//! Going on with a recording whose recorder was killed.

use std::path::{Path, PathBuf};

use loopscope_time::Frequency;
use nix::sys::signal::Signal;

use crate::attach::{Attended, End};
use crate::handover::{Begun, Lock, OWNER, Place, Program, closed, lock};
use crate::journal::Journal;
use crate::record::Each;
use crate::signals::Signals;
use crate::{Collector, Cost, Error, Identity, Losses, StreamSpec};

/// A recording that nobody goes on with but the holder of this.
#[derive(Debug)]
pub struct Killed {
    out: PathBuf,
    place: Place,
    streams: Vec<StreamSpec>,
    identity: Identity,
    program: Option<Program>,
    journal: Journal,
    /// Locks of the journal, and of the recorder's own runtime directory.
    locks: Vec<Lock>,
}

impl Killed {
    /// The recording to `out`, which [`crate::record::run`], [`crate::attach::run`] or
    /// [`Killed::resume`] began and did not end. Fails with [`Error::NotKilled`] where there is
    /// none, with [`Error::StillRecording`] while its recorder lives, and with [`Error::Gone`]
    /// where the programs' memory is not there any more.
    pub fn find(out: &Path) -> Result<Killed, Error> {
        let none = || Error::NotKilled(out.to_owned());
        let path = Journal::path(out);
        let held = match lock(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(none()),
            locked => locked.map_err(Error::file("lock", &path))?,
        };
        let Some(held) = held else {
            let recorder = Journal::read(out).ok().and_then(|past| past.recorder);
            return Err(Error::StillRecording { out: out.to_owned(), recorder });
        };
        let mut journal = Journal::resume(out)?;
        let past = &journal.past;
        let begun = past.begun.clone().ok_or_else(none)?;
        let identity = begun.identity().ok_or_else(none)?;
        let Begun { place, streams, .. } = begun;
        let streams = past.streams.clone().unwrap_or(streams);
        let mut locks = vec![held];
        let gone = |dir: &Path| Error::Gone { out: out.to_owned(), place: dir.to_owned() };
        if let Place::Process(dirs) = &place
            && let Some(dir) = dirs.iter().find(|dir| !past.is_closed(dir) && !dir.is_dir())
        {
            return Err(gone(dir));
        }
        if let Place::Own(dir) = &place {
            let there = [dir.clone(), closed(dir)].into_iter().find(|dir| dir.is_dir());
            let path = there.ok_or_else(|| gone(dir))?.join(OWNER);
            let held = lock(&path).map_err(Error::file("lock", &path))?;
            // `reset` looks at it, or is removing it.
            let busy = || Error::StillRecording { out: out.to_owned(), recorder: None };
            locks.push(held.ok_or_else(busy)?);
        }
        let program = past.program;
        journal.note_recorder()?;
        Ok(Killed { out: out.to_owned(), place, streams, identity, program, journal, locks })
    }

    /// What is recorded.
    pub fn streams(&self) -> &[StreamSpec] {
        &self.streams
    }

    /// The nominal frequency of the counter.
    pub fn frequency(&self) -> Frequency {
        self.identity.frequency
    }

    /// Process number of the program, also where it has ended; `None` where the recorder was killed
    /// while it started it.
    pub fn pid(&self) -> Option<u32> {
        self.program.map(|program| program.pid)
    }

    /// Goes on until the program ends or a signal comes, as [`crate::attach::run`] does. A program
    /// that has ended has left what it recorded.
    pub fn resume(self, cost: Option<Cost>, each: &mut Each) -> Result<(End, Losses), Error> {
        let Killed { out, place, streams, identity, program, journal, locks } = self;
        let ends = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
        let signals = Signals::block(ends.into_iter().chain([Signal::SIGUSR1]))?;
        let mut collector = Collector::with(&out, identity, None, journal, true);
        if let Some(cost) = cost {
            collector.set_cost(cost);
        }
        match place {
            Place::Own(dir) => collector.add_source(&dir, None, &streams)?,
            Place::Process(dirs) => {
                dirs.iter().try_for_each(|dir| collector.attach(dir, None, &streams))?;
            }
        }
        // It knows the processes afterwards.
        let activity = collector.poll()?;
        each(&mut collector, &activity);
        let attended = Attended { program, until: None }.attend(&mut collector, signals, each);
        let finished = collector.finish();
        drop(locks);
        Ok((attended?, finished?))
    }
}
