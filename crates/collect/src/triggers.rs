//! Triggers of flight recorders: seen, passed on, and answered with a snapshot.

use std::sync::atomic::Ordering;

use loopscope_time::Counter;
use loopscope_time::source::read_counter;
use loopscope_trace::layout::{FREE, Stream};

use crate::collector::{Activity, Collector};
use crate::journal::Entry;
use crate::output::Output;
use crate::process::{Process, With};
use crate::process_stream::ProcessStream;
use crate::site::Site;
use crate::trigger::{Cause, Trigger};
use crate::{ClockMap, Error};

/// A thread that looked at the clock before the freeze may finish what it then began.
const GRACE_NS: u64 = 1_000_000;

/// Why a flight recorder is triggered from outside its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// In a word.
    pub cause: Cause,
    /// Entity and id of the hit, where it was one.
    pub by: Option<(String, i64)>,
    /// The host on which it began, if it is another.
    pub host: Option<String>,
    /// Name and id of the process that triggered or ended.
    pub process: Option<(String, u32)>,
}

impl From<Cause> for Why {
    fn from(cause: Cause) -> Why {
        Why { cause, by: None, host: None, process: None }
    }
}

/// A process's id and the slot of one of its streams.
pub(crate) type Due = (u32, usize);

impl Collector {
    /// Triggers the flight recorder `stream`, or all of them, at the instant `at` of the host's
    /// counter; now if that is not given. Returns whether it was triggered in any process: not
    /// where all wait for an earlier trigger's snapshot.
    pub fn trigger(
        &mut self,
        stream: Option<&str>,
        why: impl Into<Why>,
        at: Option<Counter>,
    ) -> Result<bool, Error> {
        let at = at.unwrap_or_else(read_counter);
        let why = why.into();
        // Processes that have made a directory by now are included.
        self.discover()?;
        let mut any = false;
        for output in 0..self.outputs.len() {
            let spec = &self.outputs[output].spec;
            let asked = stream.is_none_or(|name| name == spec.name);
            let deaf = why.cause == Cause::Signal && !spec.on_signal;
            if !asked || deaf || !self.outputs[output].is_flight_recorder() {
                continue;
            }
            if self.pass_on(output, at) {
                self.outputs[output].note(self.clock.as_ref(), at, why.clone());
                any = true;
            }
        }
        Ok(any)
    }

    /// Triggers the stream in all processes in which it is not yet; whether there were any.
    fn pass_on(&mut self, output: usize, at: Counter) -> bool {
        let mut any = false;
        for process in &self.processes {
            for recorded in process.streams.iter().filter(|r| r.output == output) {
                let stream = recorded.slot(process.control.get());
                // Acquire pairs with the release store of who set the stream up.
                if stream.state.load(Ordering::Acquire) != FREE {
                    any |= pull(stream, at);
                }
            }
        }
        any
    }

    /// The streams that have been frozen for long enough to be written.
    pub(crate) fn due_snapshots(&self) -> Vec<Due> {
        let now = read_counter();
        let grace = GRACE_NS * self.identity.frequency.hz() / 1_000_000_000;
        let mut due = Vec::new();
        for process in &self.processes {
            for recorded in process.streams.iter().filter(|r| self.is_flight(r)) {
                // Acquire pairs with the release store in pull_trigger (record.c), which comes
                // last: zero means that there is no trigger, or it is under way.
                let freeze = recorded.slot(process.control.get()).freeze.load(Ordering::Acquire);
                if freeze != 0 && now.0 >= freeze.saturating_add(grace) {
                    due.push((process.id, recorded.slot));
                }
            }
        }
        due
    }

    fn is_flight(&self, recorded: &ProcessStream) -> bool {
        self.outputs[recorded.output].is_flight_recorder()
    }

    /// Notes what processes have triggered by themselves, and passes it on to the others.
    pub(crate) fn see_triggers(&mut self) -> Result<(), Error> {
        let outputs = &self.outputs;
        let mut seen = Vec::new();
        for process in &mut self.processes {
            let frozen = |slot: usize| {
                // Acquire: as above.
                process.control.get().streams[slot].freeze.load(Ordering::Acquire) != 0
            };
            let flights = process.streams.iter().filter(|r| outputs[r.output].is_flight_recorder());
            let slots: Vec<_> = flights.map(|r| (r.slot, r.output)).collect();
            let slots: Vec<_> = slots.into_iter().filter(|(slot, _)| frozen(*slot)).collect();
            if !slots.is_empty() {
                // The call site that triggered may have been registered since the last look.
                process.read_sites();
            }
            for (slot, output) in slots {
                let stream = &process.control.get().streams[slot];
                let at = Counter(stream.trigger.load(Ordering::Relaxed));
                seen.push((output, at, entity(process, stream)));
            }
        }
        for (output, at, by) in seen {
            if self.outputs[output].note(self.clock.as_ref(), at, by) {
                self.pass_on(output, at);
            }
        }
        Ok(())
    }

    pub(crate) fn take_snapshots(
        &mut self,
        due: &[Due],
        activity: &mut Activity,
    ) -> Result<(), Error> {
        self.tell_triggers(activity)?;
        for (id, slot) in due {
            let Some(process) = self.processes.iter_mut().find(|p| p.id == *id) else { continue };
            // The process or the collector that triggered stored this before the freeze, which was
            // seen.
            let at = Counter(process.control.get().streams[*slot].trigger.load(Ordering::Relaxed));
            let at = self.clock.as_ref().map_or(at, |clock| clock(at));
            let before = process.stored(*slot);
            activity.copied += process.snapshot(
                *slot,
                &mut self.outputs,
                With {
                    clock: self.clock.as_ref(),
                    progress: &self.journal.progress,
                    copies: &self.copies,
                },
            )?;
            let records = process.stored(*slot) - before;
            for recorded in process.streams.iter().filter(|r| r.slot == *slot) {
                self.outputs[recorded.output].wrote(at, records);
                arm(recorded.slot(process.control.get()));
            }
        }
        Ok(())
    }

    /// Tells of triggers that are new.
    pub(crate) fn tell_triggers(&mut self, activity: &mut Activity) -> Result<(), Error> {
        for output in &mut self.outputs {
            for trigger in output.fresh.drain(..) {
                let stream = output.spec.name.clone();
                let (entry, told) = (stream.clone(), trigger.clone());
                self.journal.note(&Entry::Trigger { stream: entry, trigger: told })?;
                activity.triggers.push((stream, trigger));
            }
        }
        Ok(())
    }

    /// Writes the flight recorders of a process that records no more, if they were triggered or are
    /// to be written in the end.
    pub(crate) fn take_last(
        &mut self,
        process: &mut Process,
        cause: Cause,
        activity: &mut Activity,
    ) -> Result<(), Error> {
        let flights = process.streams.iter().filter(|r| self.is_flight(r));
        let slots: Vec<(usize, usize)> = flights.map(|r| (r.slot, r.output)).collect();
        for (slot, output) in slots {
            let stream = &process.control.get().streams[slot];
            // Acquire pairs with the compare-and-swap in pull_trigger (record.c), whose process has
            // ended.
            let at = stream.trigger.load(Ordering::Acquire);
            let by = entity(process, stream);
            if at != 0 {
                self.outputs[output].note(self.clock.as_ref(), Counter(at), by);
            } else if !self.outputs[output].spec.on_death {
                continue;
            }
            let before = process.stored(slot);
            let written = process.snapshot(
                slot,
                &mut self.outputs,
                With {
                    clock: self.clock.as_ref(),
                    progress: &self.journal.progress,
                    copies: &self.copies,
                },
            )?;
            activity.copied += written;
            let records = process.stored(slot) - before;
            if at != 0 {
                let at = self.clock.as_ref().map_or(Counter(at), |clock| clock(Counter(at)));
                self.outputs[output].wrote(at, records);
            } else if written > 0 {
                // On the trace's clock already.
                let end = process.last(slot);
                let why =
                    Why { process: Some((process.name.clone(), process.pid)), ..cause.into() };
                self.outputs[output].note(None, end, why);
                self.outputs[output].wrote(end, records);
            }
        }
        Ok(())
    }
}

impl Output {
    /// Notes a trigger; whether it is a new one.
    fn note(&mut self, clock: Option<&ClockMap>, at: Counter, why: Why) -> bool {
        let counter = clock.map_or(at, |clock| clock(at)).0;
        let (entity, id) = why.by.unzip();
        let (process, pid) = why.process.unzip();
        let host = why.host.unwrap_or_else(|| self.host().to_owned());
        let cause = why.cause;
        self.triggered(Trigger { counter, cause, entity, id, host, process, pid, events: None })
    }
}

/// The entity and the id of the hit that triggered.
fn entity(process: &Process, stream: &Stream) -> Why {
    let site = stream.trigger_site.load(Ordering::Relaxed).checked_sub(1);
    let entity = site.and_then(|site| process.sites.get(site as usize)).map(Site::entity);
    let by = entity.map(|entity| (entity, stream.trigger_id.load(Ordering::Relaxed)));
    // Without one it was triggered from outside, and that is noted already.
    let process = by.is_some().then(|| (process.name.clone(), process.pid));
    Why { by, process, ..Cause::Entity.into() }
}

/// Triggers a process's stream from outside, as pull_trigger (record.c) does from inside. Returns
/// false if it was triggered already.
fn pull(stream: &Stream, at: Counter) -> bool {
    // Pairs with the compare-and-swap in pull_trigger and with the store in `arm`.
    let (some, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
    let pulled = stream.trigger.compare_exchange(0, at.0, some, relaxed).is_ok();
    if pulled {
        let freeze = at.0.saturating_add(stream.post.load(Ordering::Relaxed));
        // Release pairs with the acquire load in open_subbuffer (record.c).
        stream.freeze.store(freeze, Ordering::Release);
    }
    pulled
}

/// Lets the rings go on after a snapshot.
fn arm(stream: &Stream) {
    stream.trigger_site.store(0, Ordering::Relaxed);
    stream.freeze.store(0, Ordering::Relaxed);
    // Release pairs with the compare-and-swap in pull_trigger (record.c): the next trigger finds
    // the rest cleared.
    stream.trigger.store(0, Ordering::Release);
}
