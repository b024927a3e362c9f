//! Finding processes in runtime directories, and taking them up.

use std::ffi::OsStr;
use std::sync::atomic::Ordering;

use super::{Collector, MOST_PROCESSES};
use crate::journal::{Entry, Taken};
use crate::process::{Process, process_of};
use crate::shortage::{failed, reason};
use crate::{Error, ProcessLoss};

impl Collector {
    /// Finds new processes; whether there are directories that their programs are still making.
    pub(crate) fn discover(&mut self) -> Result<bool, Error> {
        let mut unfinished = false;
        for index in 0..self.sources.len() {
            // A child may be listed before its parent is known to belong to the source.
            loop {
                let before = self.processes.len();
                unfinished |= self.discover_in(index)?;
                if self.sources[index].family.is_none() || self.processes.len() == before {
                    break;
                }
            }
        }
        Ok(unfinished)
    }

    pub(super) fn discover_in(&mut self, index: usize) -> Result<bool, Error> {
        let mut unfinished = false;
        let source = &self.sources[index];
        let foreign = source.family.is_some();
        let list = || {
            let state = source.folder.state()?;
            if source.listed == Some(state) {
                return Ok(None);
            }
            // Before the names are read: what comes meanwhile is another state.
            let is_final = state.is_final();
            Ok(Some((source.folder.names()?, is_final.then_some(state))))
        };
        let (names, mut state) = match list() {
            Ok(None) => return Ok(false),
            Ok(Some(listed)) => listed,
            // A directory of the recorder's own: the error is returned. The error below may be
            // caused by another user, so it must not end the recording.
            Err(error) if !foreign => return Err(Error::file("read", &source.dir)(error)),
            Err(error) => {
                let what =
                    format!("cannot look for processes in {}: {error}", source.dir.display());
                if !self.problems.contains(&what) {
                    self.problems.push(what);
                }
                return Ok(false);
            }
        };
        for name in names {
            let source = &mut self.sources[index];
            if process_of(&name).is_none() || source.seen.contains(&name) {
                continue;
            }
            let listed = state.take();
            let known = self.journal.past.processes.get(&*name.to_string_lossy()).cloned();
            let id = known.as_ref().map_or(self.next_process, |(id, _)| *id);
            let opened = Process::open(&source.folder, &name, index, id, source.process.as_deref());
            match opened {
                Ok(None) => {
                    let foreign = source.family.is_some();
                    let dir = source.folder.child(&name).ok().filter(|_| !foreign);
                    let Some(error) = dir.and_then(|dir| failed(&dir)) else {
                        unfinished |= !foreign;
                        continue;
                    };
                    self.problems.push(format!(
                        "a program ({}) was not recorded, and how many hits it had is not known: it \
                         could not make what it counts in: {}",
                        name.display(),
                        reason(error, &source.dir)
                    ));
                }
                Ok(Some(process)) => {
                    let owner = process.folder().map_or(u32::MAX, |folder| folder.owner);
                    if !source.adopts(&name, owner, process.control.get()) {
                        continue;
                    }
                    if self.processes.len() >= MOST_PROCESSES {
                        let what = format!("there are {MOST_PROCESSES} others");
                        self.leave_out(index, &name, &what);
                    } else {
                        self.take_up(index, &name, process, known)?;
                    }
                }
                // In a shared directory this may be another user's process: the error is ignored.
                Err(_) if foreign => continue,
                Err(error) => self.leave_out(index, &name, &error.to_string()),
            }
            self.sources[index].seen.insert(name);
            state = listed;
        }
        // One that was not seen now may be seen without a change of the directory.
        self.sources[index].listed = state;
        Ok(unfinished)
    }

    /// Records a process from now on.
    pub(super) fn take_up(
        &mut self,
        index: usize,
        name: &OsStr,
        mut process: Process,
        known: Option<(u32, Vec<Taken>)>,
    ) -> Result<(), Error> {
        let source = &self.sources[index];
        let foreign = source.family.is_some();
        if foreign {
            let slots = known.as_ref().map_or(&[][..], |(_, slots)| slots.as_slice());
            let pid = process.control.get().parent_pid.load(Ordering::Relaxed);
            let of = |p: &&Process| p.source == index && p.pid == pid;
            let parent = self.processes.iter().find(of).map(|p| p.streams.as_slice());
            let frequency = self.identity.frequency;
            match process.take_slots(source, slots, parent, frequency) {
                // The program that was attached to is the first one: only its error is returned to
                // the caller.
                Err(error) if !source.seen.is_empty() => {
                    self.leave_out(index, name, &error.in_a_line());
                    return Ok(());
                }
                taken => taken?,
            }
        } else {
            process.record_slots(&source.outputs);
            if source.changed {
                process.configure(source, self.identity.frequency);
            }
        }
        if known.is_none() {
            self.next_process += 1;
            let slots = process.slots_in(source);
            let dir = name.to_string_lossy().into_owned();
            self.journal.note(&Entry::Process { id: process.id, dir, slots })?;
        }
        if self.journal.past.closed.contains_key(&process.id) {
            // All of it is taken but its files.
            self.let_go(&process);
        } else {
            self.processes.push(process);
        }
        Ok(())
    }

    /// Leaves a process out, and says so in the accounts.
    pub(super) fn leave_out(&mut self, index: usize, name: &OsStr, why: &str) {
        let source = &self.sources[index];
        let pid = process_of(name).map_or(0, |(pid, _)| pid);
        let name = name.to_string_lossy();
        let process = source.process.clone().unwrap_or_else(|| name.to_string());
        let why = format!("it could not be recorded: {why}");
        if self.left_out == MOST_PROCESSES {
            // Each is the like of those before.
            return;
        }
        self.left_out += 1;
        for output in &source.outputs {
            let loss = ProcessLoss::nothing_known(process.clone(), pid, why.clone());
            self.outputs[*output].closed(self.next_process, loss);
        }
        self.next_process += 1;
    }

    /// Removes what a recorded process has left, or its part in one that lives.
    pub(super) fn let_go(&mut self, process: &Process) {
        let gone = match self.sources[process.source].family {
            None => process.remove(),
            Some(_) => {
                let lives = !process.has_ended();
                process.release(lives || process.has_heirs())
            }
        };
        if let Err(error) = gone {
            let path = process.path();
            self.problems.push(format!("cannot remove the files of {}: {error}", path.display()));
        }
    }
}
