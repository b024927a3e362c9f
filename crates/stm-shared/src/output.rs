//! Connections of a thread that put items, and memory to fill in place.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use loopscope_stm::{Channel, NewItem, OutputId, Slot, Time};

use crate::attached::{Attached, Awaited, Changes, Until};
use crate::clock::now_ns;
use crate::derive::Follower;
use crate::error::{ConnectionError, PutError, Unusable};
use crate::events::Call;
use crate::input::Input;

/// Bytes of an item that are copied while the channel's lock is held, at most.
const AT_ONCE: usize = 4096;

/// A connection that puts items. It ends when it is dropped, and its loans are.
pub struct Output {
    connection: Arc<OutputConnection>,
}

struct OutputConnection {
    inner: Arc<Attached>,
    id: OutputId,
    /// What it promises because of inputs.
    follower: Arc<Follower>,
}

impl Output {
    pub(crate) fn new(inner: Arc<Attached>, id: OutputId) -> Output {
        let follower = Arc::new(Follower::new(Arc::clone(&inner), id));
        Output { connection: Arc::new(OutputConnection { inner, id, follower }) }
    }

    /// Memory for an item, which is filled in place. Waits for a free slot.
    ///
    /// # Errors
    /// There is none, the connection has as many as it may, or the channel cannot be used.
    pub fn loan(&mut self, until: Until) -> Result<Loan, PutError> {
        let _call = self.connection.inner.calls(Call::Loan);
        self.lend(until)
    }

    fn lend(&self, until: Until) -> Result<Loan, PutError> {
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
        Ok(Loan { connection: Arc::clone(&self.connection), slot, is_put: false })
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
        let OutputConnection { inner, id, .. } = &*self.connection;
        let _call = inner.calls(Call::Put);
        let room = inner.payload.slot_bytes;
        let length = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= room);
        let length = length.ok_or(PutError::TooLong { bytes: bytes.len(), room })?;
        if bytes.len() > AT_ONCE {
            let mut loan = self.lend(until)?;
            loan[..bytes.len()].copy_from_slice(bytes);
            loan.attempt(time, half_width, bytes.len(), until)?;
            loan.is_put = true;
            return Ok(());
        }
        inner.wait(
            until,
            Awaited::Room,
            PutError::may_end,
            || {
                let item = new_item(time, half_width, length);
                let fill = |slot| {
                    let memory = inner.payload.write(slot).ok_or(Unusable::Damaged)?;
                    memory[..bytes.len()].copy_from_slice(bytes);
                    Ok(())
                };
                let show = |slot, is_newest| inner.show(slot, item, is_newest);
                inner.operate(Changes::All, |channel| channel.put_new(*id, item, fill, show))?
            },
            |()| Some(time),
        )
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

    /// Has the promise of this connection follow what a thread gets: it puts nothing below the lowest
    /// time of which an input connection has an item or may get one. With several inputs it is the
    /// lowest of theirs.
    ///
    /// # Errors
    /// The input has left, or its channel cannot be used.
    pub fn derives(&self, from: &Input) -> Result<(), ConnectionError> {
        from.derives(&self.connection.follower)
    }
}

impl Drop for OutputConnection {
    fn drop(&mut self) {
        _ = self.inner.operate(Changes::All, |channel| channel.leave_output(self.id));
    }
}

/// Memory for an item, to be filled. It is given back when it is dropped.
pub struct Loan {
    connection: Arc<OutputConnection>,
    slot: Slot,
    is_put: bool,
}

impl Loan {
    /// Makes its first bytes an item. `half_width` is by how much the time may be wrong at most, in its
    /// units. Waits for room.
    ///
    /// # Errors
    /// See [`PutError`]; the memory is there still.
    pub fn put(
        mut self,
        time: Time,
        half_width: u32,
        bytes: usize,
        until: Until,
    ) -> Result<(), (Loan, PutError)> {
        let _call = self.connection.inner.calls(Call::Put);
        match self.attempt(time, half_width, bytes, until) {
            Ok(()) => {
                self.is_put = true;
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }

    fn attempt(
        &self,
        time: Time,
        half_width: u32,
        bytes: usize,
        until: Until,
    ) -> Result<(), PutError> {
        let length = u32::try_from(bytes).ok().filter(|_| bytes <= self.len());
        let length = length.ok_or(PutError::TooLong { bytes, room: self.len() })?;
        let OutputConnection { inner, id, .. } = &*self.connection;
        inner.wait(
            until,
            Awaited::Room,
            PutError::may_end,
            || {
                let item = new_item(time, half_width, length);
                // It may drop another item, or be collected at once: a slot is free then.
                let show = |is_newest| inner.show(self.slot, item, is_newest);
                let put = |channel: &mut Channel<_>| channel.put_shown(*id, self.slot, item, show);
                Ok(inner.operate(Changes::All, put)??)
            },
            |()| Some(time),
        )
    }
}

impl Deref for Loan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let payload = &self.connection.inner.payload;
        payload.read(self.slot, payload.slot_bytes).unwrap_or_default()
    }
}

impl DerefMut for Loan {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.connection.inner.payload.write(self.slot).unwrap_or_default()
    }
}

impl Drop for Loan {
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
