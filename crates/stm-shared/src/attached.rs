//! A channel that a process has opened: does one operation at a time, waits, and ends the connections of
//! processes that were killed.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use loopscope_stm::{Channel, Config, NewItem, Slot, Time};

use crate::clock::now_ns;
use crate::error::Unusable;
use crate::events::{Call, Calling, Events, Interval, Relay, Spell};
use crate::lock::{self, Left, Word as _};
use crate::mapping::{AtHome, Control, Head, Own, Payload, Words};
use crate::newest::Seen;
use crate::{futex, parties};

/// Until when an operation waits that is not possible yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It does not wait.
    Now,
    /// Until an instant.
    Deadline(Instant),
    /// For as long as it takes.
    Forever,
}

/// What an operation changes for others that wait.
#[derive(Clone, Copy)]
pub(crate) enum Changes {
    /// Nothing.
    Nothing,
    /// There is more to get.
    Came,
    /// There is more room.
    Freed,
    /// Both.
    All,
}

/// What an operation waits for.
#[derive(Clone, Copy)]
pub(crate) enum Awaited {
    /// An item to be got.
    Item,
    /// Room for an item that is to be put.
    Room,
}

/// Says who puts an item into shared memory.
#[derive(Clone, Copy)]
pub(crate) enum PutBy {
    Program,
    /// The service, for a program on another host.
    Service,
}

/// The mappings of a channel's files, and the process's entry in it.
pub(crate) struct Attached {
    pub(crate) control: Control,
    pub(crate) payload: Payload,
    pub(crate) own: Own,
    pub(crate) owner: u32,
    pub(crate) channel: Mutex<Channel<Words>>,
    pub(crate) config: Config,
    /// It has the items of a channel on another host.
    pub(crate) is_mirror: bool,
    /// What is recorded; None where the channel has no name that events can have.
    pub(crate) events: Option<Events>,
    /// Its files, for the next service to find.
    pub(crate) _kept: Option<[File; 2]>,
}

impl Attached {
    /// Does an operation with the lock, and wakes those for whom it changes something.
    pub(crate) fn operate<T, E>(
        &self,
        changes: Changes,
        operation: impl FnOnce(&mut Channel<Words>) -> Result<T, E>,
    ) -> Result<Result<T, E>, Unusable> {
        if !self.own.is_ours() {
            return Err(Unusable::Forked);
        }
        let head = self.control.head();
        let synchronises = self.synchronises();
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        let is_gone = |owner| parties::is_gone(self.control.entries(), owner);
        let left = lock::take(&head.lock.0, self.owner, is_gone);
        drop(synchronises);
        // Items are collected at their home.
        let tells = self.events.filter(|_| !self.is_mirror);
        let tells = tells.filter(|events| events.collected.enabled());
        channel.tell_collected(tells.is_some());
        let done = catch_unwind(AssertUnwindSafe(|| {
            if left == Left::Unfinished {
                channel.recover();
                finish(&self.control, &mut channel);
            }
            operation(&mut channel)
        }));
        let changes = match (&done, left) {
            (_, Left::Unfinished) => Changes::All,
            (Ok(Ok(_)), Left::Whole) => changes,
            _ => Changes::Nothing,
        };
        if done.is_err() {
            // What was read made no sense. The words are as they were before, or as senseless.
            _ = catch_unwind(AssertUnwindSafe(|| channel.recover()));
            head.newest.write(None, &[]);
        }
        if !matches!(changes, Changes::Nothing) {
            _ = catch_unwind(AssertUnwindSafe(|| self.show_newest(&channel)));
        }
        if let Some(events) = tells
            && done.is_ok()
        {
            channel.take_collected().into_iter().for_each(|item| events.collected(item));
        }
        let (came, freed) = match changes {
            Changes::Nothing => (false, false),
            Changes::Came => (true, false),
            Changes::Freed => (false, true),
            Changes::All => (true, true),
        };
        let _synchronises = self.synchronises();
        let came = came && futex::change(&head.came.0);
        let freed = freed && futex::change(&head.freed.0);
        lock::give(&head.lock.0);
        drop(channel);
        for (is_waited_for, signal) in [(came, &head.came.0), (freed, &head.freed.0)] {
            if is_waited_for {
                signal.wake(i32::MAX.cast_unsigned());
            }
        }
        done.map_err(|_| Unusable::Damaged)
    }

    /// Wakes those that wait for such a change, though nothing changes.
    pub(crate) fn signal(&self, changes: Changes) -> Result<(), Unusable> {
        let Ok(done) = self.operate(changes, |_| never(()))?;
        Ok(done)
    }

    /// Records until it is dropped what a thread of a service does.
    pub(crate) fn relays(&self, what: Relay) -> Spell {
        self.events.map_or_else(Spell::none, |events| events.relays(what))
    }

    fn synchronises(&self) -> Spell {
        self.events.map_or_else(Spell::none, |events| events.synchronises())
    }

    /// Records until it is dropped that a thread calls something.
    pub(crate) fn calls(&self, call: Call) -> Calling {
        Calling::new(self.events, call)
    }

    /// The newest item, if it is seen without the lock.
    pub(crate) fn newest(&self) -> Option<Seen> {
        self.own.is_ours().then(|| self.control.head().newest.read())?
    }

    /// Copies as many bytes of an item as there is room for; whether they are its own.
    pub(crate) fn copy(&self, seen: &Seen, into: &mut [u8]) -> bool {
        let bytes = into.len().min(seen.item.length as usize);
        let into = &mut into[..bytes];
        match seen.bytes() {
            Some(kept) => {
                into.copy_from_slice(&kept[..bytes]);
                true
            }
            None => self.payload.copy(seen.slot, into) && self.control.head().newest.is_still(seen),
        }
    }

    /// Records that an item is being put, and shows it if it is the newest one.
    pub(crate) fn show(&self, slot: Slot, item: NewItem, is_newest: bool, by: PutBy) {
        if let Some(events) = self.events {
            match by {
                PutBy::Program => events.put(item.time, item.length),
                PutBy::Service => events.received(item.time, item.length),
            }
        }
        if is_newest && let Some(bytes) = self.payload.read(slot, item.length as usize) {
            self.control.head().newest.write(Some((slot, item)), bytes);
        }
    }

    /// Shows the newest item to those that look at it without the lock.
    fn show_newest(&self, channel: &Channel<Words>) {
        let shown = &self.control.head().newest;
        let newest = channel.newest();
        if newest.map(|(_, item)| item.time) != shown.time() {
            let bytes = |(slot, item): (_, NewItem)| self.payload.read(slot, item.length as usize);
            match newest.and_then(bytes) {
                Some(bytes) => shown.write(newest, bytes),
                None => shown.write(None, &[]),
            }
        }
    }

    /// Repeats an attempt while it is answered by what may change, until an instant. `time_of`: of the
    /// item that the thread has waited for.
    pub(crate) fn wait<T, E: std::convert::From<Unusable>>(
        &self,
        until: Until,
        awaited: Awaited,
        may_change: impl Fn(&E) -> bool,
        mut attempt: impl FnMut() -> Result<T, E>,
        time_of: impl Fn(&T) -> Option<Time>,
    ) -> Result<T, E> {
        let head = self.control.head();
        let (signal, recorded) = match awaited {
            Awaited::Item => (&head.came.0, self.events.map(|events| events.get_wait)),
            Awaited::Room => (&head.freed.0, self.events.map(|events| events.put_wait)),
        };
        let mut begun: Option<Interval> = None;
        let done = loop {
            let value = futex::value(signal);
            let error = match attempt() {
                Err(error) if may_change(&error) => error,
                done => break done,
            };
            match self.looks() {
                Ok(false) => (),
                Ok(true) => continue,
                Err(error) => break Err(error.into()),
            }
            let left = match until {
                Until::Now => Duration::ZERO,
                Until::Deadline(at) => at.saturating_duration_since(Instant::now()),
                Until::Forever => parties::LOOK_EVERY,
            };
            if left.is_zero() {
                break Err(error);
            }
            if begun.is_none() {
                begun = recorded.inspect(|wait| wait.begins());
            }
            futex::wait(signal, value, left.min(parties::next_look(&head.looked, now_ns())));
        };
        if let Some(wait) = begun {
            wait.ends(done.as_ref().ok().and_then(time_of));
        }
        done
    }

    /// Has the home of a mirror tell what is so there, if it does not do so anyway, and waits for that
    /// until an instant.
    pub(crate) fn ask_home(&self, until: Instant) -> Result<(), Unusable> {
        let head = self.control.head();
        let Ok(question) = self.operate(Changes::Freed, |_| {
            never((head.at_home() != AtHome::Joined).then(|| head.ask()))
        })?;
        question
            .map_or(Ok(()), |question| self.await_home(until, |head| head.has_answered(question)))
    }

    /// Waits until the home of a mirror has told something, or is away, or until an instant.
    pub(crate) fn await_home(
        &self,
        until: Instant,
        has_told: impl Fn(&Head) -> bool,
    ) -> Result<(), Unusable> {
        let head = self.control.head();
        loop {
            let value = futex::value(&head.came.0);
            let left = until.saturating_duration_since(Instant::now());
            if has_told(head) || head.at_home() == AtHome::Away || left.is_zero() {
                return Ok(());
            }
            // Its service may have been killed.
            self.looks()?;
            futex::wait(&head.came.0, value, left.min(parties::LOOK_EVERY));
        }
    }

    /// Ends the connections of processes that were killed, if nobody has looked for them lately; whether
    /// there were any.
    pub(crate) fn looks(&self) -> Result<bool, Unusable> {
        let looked = &self.control.head().looked;
        Ok(parties::may_look(looked, now_ns()) && self.reap()? > 0)
    }

    /// Ends the connections of processes that were killed; how many there were.
    pub(crate) fn reap(&self) -> Result<usize, Unusable> {
        let entries = self.control.entries();
        let Ok((inputs, outputs)) =
            self.operate(Changes::Nothing, |channel| never((channel.inputs(), channel.outputs())))?;
        let owners = inputs.iter().map(|each| each.owner);
        let owners: BTreeSet<_> = owners.chain(outputs.iter().map(|each| each.owner)).collect();
        // Asked after the connections: who made one has an entry, unless it has left since.
        let there = parties::ended(entries, self.owner);
        let gone: Vec<_> =
            owners.into_iter().filter(|of| there.get(of).is_none_or(|ended| *ended)).collect();
        let mut ended = 0;
        if !gone.is_empty() {
            // A mirror's items are put by its service alone.
            let is_away = self.is_mirror && outputs.iter().any(|each| gone.contains(&each.owner));
            let Ok(count) = self.operate(Changes::All, |channel| {
                if is_away {
                    self.control.head().set_at_home(AtHome::Away);
                }
                never(gone.iter().map(|of| channel.leave_all(*of)).sum::<usize>())
            })?;
            ended = count;
        }
        there.iter().filter(|each| *each.1).for_each(|each| parties::leave(entries, *each.0));
        Ok(ended)
    }
}

/// Finishes a put whose item was shown by a process that was killed before it had put it.
pub(crate) fn finish(control: &Control, channel: &mut Channel<Words>) {
    let Some(seen) = control.head().newest.read() else { return };
    if channel.newest().is_none_or(|(_, item)| item.time < seen.item.time) {
        channel.finish_put(seen.slot, seen.item);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // A process that was forked has the entry of its parent.
        if self.own.is_ours() {
            _ = self.operate(Changes::All, |channel| never(channel.leave_all(self.owner)));
            parties::leave(self.control.entries(), self.owner);
        }
    }
}

/// The answer of an operation that cannot fail.
pub(crate) fn never<T>(answer: T) -> Result<T, Infallible> {
    Ok(answer)
}
