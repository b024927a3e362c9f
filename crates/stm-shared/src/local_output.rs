//! Connections of a thread that put items into shared memory, and slots to fill in place.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loopscope_stm::{Channel, NewItem, OutputId, Slot, Time};

use crate::attached::{Attached, Awaited, Changes, PutBy, Until, never};
use crate::clock::now_ns;
use crate::derive::Follower;
use crate::error::{ConnectionError, PutError, Unusable};
use crate::events::{Call, Relay, Spell};

/// Bytes of an item that are copied while the channel's lock is held, at most.
const AT_ONCE: usize = 4096;

/// A connection of a process of the channel's home. It ends when it is dropped, and its loans are.
pub struct LocalOutput {
    connection: Arc<OutputConnection>,
}

struct OutputConnection {
    inner: Arc<Attached>,
    id: OutputId,
    /// What it promises because of inputs.
    follower: Arc<Follower>,
    /// Items that it has put and that were not told to be collected; None: nobody asks.
    outstanding: Mutex<Option<BTreeSet<Time>>>,
}

impl LocalOutput {
    pub(crate) fn new(inner: Arc<Attached>, id: OutputId) -> LocalOutput {
        let promises = Arc::clone(&inner);
        // Where the output has left or its channel is damaged, its next call says so.
        let promise = move |time| {
            _ = promises.operate(Changes::Came, |channel| channel.bound(id, time));
        };
        let follower = Arc::new(Follower::new(promise));
        let outstanding = Mutex::default();
        LocalOutput { connection: Arc::new(OutputConnection { inner, id, follower, outstanding }) }
    }

    /// The times of items that it has put since the first call and that were collected since the last
    /// one, the lowest, `most` at most.
    ///
    /// # Errors
    /// The channel cannot be used.
    pub fn collected(&self, most: usize) -> Result<Vec<Time>, ConnectionError> {
        let OutputConnection { inner, .. } = &*self.connection;
        let _call = inner.calls(Call::Collected);
        let mut outstanding = self.connection.outstanding();
        let outstanding = outstanding.get_or_insert_default();
        if outstanding.is_empty() {
            return Ok(vec![]);
        }
        let Ok(collected) = inner.operate(Changes::Nothing, |channel| {
            let collected = outstanding.iter().copied().filter(|time| !channel.has_item(*time));
            never(collected.take(most).collect::<Vec<_>>())
        })?;
        collected.iter().for_each(|time| _ = outstanding.remove(time));
        Ok(collected)
    }

    /// Memory for an item, which is filled in place. Waits for a free slot.
    ///
    /// # Errors
    /// There is none, the connection has as many as it may, or the channel cannot be used.
    pub fn loan(&mut self, until: Until) -> Result<LocalLoan, PutError> {
        let _call = self.connection.inner.calls(Call::Loan);
        self.lend(until)
    }

    fn lend(&self, until: Until) -> Result<LocalLoan, PutError> {
        let OutputConnection { inner, id, .. } = &*self.connection;
        let slot = inner.wait(
            until,
            Awaited::Room,
            PutError::may_end,
            || Ok(inner.operate(Changes::Nothing, |channel| channel.loan(*id))??),
            |_| None,
        )?;
        if inner.payload.write(slot).is_none() {
            return Err(Unusable::Damaged.into());
        }
        Ok(LocalLoan { connection: Arc::clone(&self.connection), slot, is_put: false })
    }

    /// Puts a copy of some bytes. `half_width` is by how much the time may be wrong at most, in its
    /// units. Waits for room.
    ///
    /// # Errors
    /// See [`PutError`].
    pub fn put(
        &mut self,
        time: Time,
        half_width: u32,
        bytes: &[u8],
        until: Until,
    ) -> Result<(), PutError> {
        let OutputConnection { inner, .. } = &*self.connection;
        let _call = inner.calls(Call::Put);
        let length = PutError::length_of(bytes.len(), inner.payload.slot_bytes)?;
        if bytes.len() > AT_ONCE {
            let mut loan = self.lend(until)?;
            loan[..bytes.len()].copy_from_slice(bytes);
            return loan
                .shown(|| new_item(time, half_width, length), PutBy::Program, until)
                .map_err(|(_, error)| error);
        }
        let attempt = || self.put_copy(new_item(time, half_width, length), bytes, PutBy::Program);
        inner.wait(until, Awaited::Room, PutError::may_end, attempt, |()| Some(time))?;
        self.connection.has_put(time);
        Ok(())
    }

    /// Puts a copy of an item of a program on another host, if it has few bytes. False: it is not put, and
    /// `loan` and `relay` say why.
    pub fn relay_copy(&self, item: NewItem, bytes: &[u8]) -> bool {
        let is_put = bytes.len() <= AT_ONCE && self.put_copy(item, bytes, PutBy::Service).is_ok();
        if is_put {
            self.connection.has_put(item.time);
        }
        is_put
    }

    fn put_copy(&self, item: NewItem, bytes: &[u8], by: PutBy) -> Result<(), PutError> {
        let OutputConnection { inner, id, .. } = &*self.connection;
        let fill = |slot| {
            let memory = inner.payload.write(slot).ok_or(Unusable::Damaged)?;
            memory[..bytes.len()].copy_from_slice(bytes);
            Ok(())
        };
        let show = |slot, is_newest| inner.show(slot, item, is_newest, by);
        inner.operate(Changes::All, |channel| channel.put_new(*id, item, fill, show))?
    }

    /// Promises that this connection puts nothing below a time any more; what it has promised so far.
    ///
    /// # Errors
    /// The connection has ended, or the channel cannot be used.
    pub fn bound(&mut self, time: Time) -> Result<Time, ConnectionError> {
        let OutputConnection { inner, id, .. } = &*self.connection;
        let _call = inner.calls(Call::Bound);
        Ok(inner.operate(Changes::Came, |channel| channel.bound(*id, time))??)
    }

    /// What has its promise follow inputs.
    pub(crate) fn follower(&self) -> &Arc<Follower> {
        &self.connection.follower
    }

    /// Records until it is dropped what a thread of the service does.
    pub fn relays(&self, what: Relay) -> Spell {
        self.connection.inner.relays(what)
    }
}

impl OutputConnection {
    fn outstanding(&self) -> MutexGuard<'_, Option<BTreeSet<Time>>> {
        self.outstanding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_put(&self, time: Time) {
        if let Some(outstanding) = &mut *self.outstanding() {
            outstanding.insert(time);
        }
    }
}

impl Drop for OutputConnection {
    fn drop(&mut self) {
        _ = self.inner.operate(Changes::All, |channel| channel.leave_output(self.id));
    }
}

/// A slot for an item, to be filled. It is given back when it is dropped.
pub struct LocalLoan {
    connection: Arc<OutputConnection>,
    slot: Slot,
    is_put: bool,
}

impl LocalLoan {
    pub(crate) fn put(
        self,
        time: Time,
        half_width: u32,
        bytes: usize,
        until: Until,
    ) -> Result<(), (LocalLoan, PutError)> {
        let connection = Arc::clone(&self.connection);
        let _call = connection.inner.calls(Call::Put);
        match PutError::length_of(bytes, self.len()) {
            Ok(length) => self.shown(|| new_item(time, half_width, length), PutBy::Program, until),
            Err(error) => Err((self, error)),
        }
    }

    /// Makes its first bytes the item of a program on another host. Waits for room.
    ///
    /// # Errors
    /// See [`PutError`]; the slot is there still.
    pub fn relay(self, item: NewItem, until: Until) -> Result<(), (LocalLoan, PutError)> {
        self.shown(|| item, PutBy::Service, until)
    }

    fn shown(
        mut self,
        item: impl Fn() -> NewItem,
        by: PutBy,
        until: Until,
    ) -> Result<(), (LocalLoan, PutError)> {
        match self.attempt(item, by, until) {
            Ok(time) => {
                self.is_put = true;
                self.connection.has_put(time);
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }

    fn attempt(
        &self,
        item: impl Fn() -> NewItem,
        by: PutBy,
        until: Until,
    ) -> Result<Time, PutError> {
        let OutputConnection { inner, id, .. } = &*self.connection;
        inner.wait(
            until,
            Awaited::Room,
            PutError::may_end,
            || {
                let item = item();
                // It may drop another item, or be collected at once: a slot is free then.
                let show = |is_newest| inner.show(self.slot, item, is_newest, by);
                let put = |channel: &mut Channel<_>| channel.put_shown(*id, self.slot, item, show);
                inner.operate(Changes::All, put)??;
                Ok(item.time)
            },
            |time| Some(*time),
        )
    }
}

impl Deref for LocalLoan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let payload = &self.connection.inner.payload;
        payload.read(self.slot, payload.slot_bytes).unwrap_or_default()
    }
}

impl DerefMut for LocalLoan {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.connection.inner.payload.write(self.slot).unwrap_or_default()
    }
}

impl Drop for LocalLoan {
    fn drop(&mut self) {
        if !self.is_put {
            let OutputConnection { inner, id, .. } = &*self.connection;
            _ = inner.operate(Changes::Freed, |channel| channel.give_back(*id, self.slot));
        }
    }
}

fn new_item(time: Time, half_width: u32, length: u32) -> NewItem {
    NewItem { time, half_width, length, put_ns: now_ns(), put_error_ns: 0 }
}
