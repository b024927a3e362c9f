//! Connections of a thread to a channel, and the items that it puts and gets.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use loopscope_stm::{
    GetError as NoItem, Got, InputCounts, InputId, LoanError, NewItem, OutputId,
    PutError as NotPut, Slot, Time, Which,
};
use rustix::time::{ClockId, clock_gettime};

use crate::attached::{Attached, Changes, Until};
use crate::error::{ConnectionError, GetError, PutError, Unusable};

/// A connection that puts items. It ends when it is dropped, and its loans are.
pub struct Output {
    connection: Arc<OutputConnection>,
}

struct OutputConnection {
    inner: Arc<Attached>,
    id: OutputId,
}

impl Output {
    pub(crate) fn new(inner: Arc<Attached>, id: OutputId) -> Output {
        Output { connection: Arc::new(OutputConnection { inner, id }) }
    }

    /// Memory for an item, which is filled in place. Waits for a free slot.
    ///
    /// # Errors
    /// There is none, the connection has as many as it may, or the channel cannot be used.
    pub fn loan(&mut self, until: Until) -> Result<Loan, PutError> {
        let OutputConnection { inner, id } = &*self.connection;
        let slot = inner.wait(
            until,
            |head| &head.freed.0,
            |error: &PutError| *error == PutError::Loan(LoanError::NoSlot),
            || Ok(inner.operate(Changes::Nothing, |channel| channel.loan(*id))??),
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
        let mut loan = self.loan(until)?;
        let room = loan.len();
        let too_long = PutError::TooLong { bytes: bytes.len(), room };
        loan.get_mut(..bytes.len()).ok_or(too_long)?.copy_from_slice(bytes);
        loan.put(time, half_width, bytes.len(), until).map_err(|(_, error)| error)
    }

    /// Promises that this connection puts nothing below a time any more; what it has promised so far.
    ///
    /// # Errors
    /// The connection has ended, or the channel cannot be used.
    pub fn bound(&mut self, time: Time) -> Result<Time, ConnectionError> {
        let OutputConnection { inner, id } = &*self.connection;
        Ok(inner.operate(Changes::Came, |channel| channel.bound(*id, time))??)
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
        let OutputConnection { inner, id } = &*self.connection;
        inner.wait(
            until,
            |head| &head.freed.0,
            |error: &PutError| *error == PutError::Put(NotPut::Full),
            || {
                let item = NewItem { time, half_width, length, put_ns: now_ns() };
                // It may drop another item, or be collected at once: a slot is free then.
                Ok(inner.operate(Changes::All, |channel| channel.put(*id, self.slot, item))??)
            },
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
            let OutputConnection { inner, id } = &*self.connection;
            _ = inner.operate(Changes::Freed, |channel| channel.give_back(*id, self.slot));
        }
    }
}

/// A connection that gets items. It ends when it is dropped, and its items are.
pub struct Input {
    connection: Arc<InputConnection>,
    /// All times below this were consumed when it joined.
    pub floor: Time,
}

struct InputConnection {
    inner: Arc<Attached>,
    id: InputId,
    /// How many times an item is in use, of which the channel knows one hold.
    uses: Mutex<Vec<(Time, u32)>>,
}

impl Input {
    pub(crate) fn new(inner: Arc<Attached>, id: InputId, floor: Time) -> Input {
        Input { connection: Arc::new(InputConnection { inner, id, uses: Mutex::default() }), floor }
    }

    /// An item, which is held until it is dropped. Waits for it to come.
    ///
    /// # Errors
    /// See [`GetError`].
    pub fn get(&mut self, which: Which, until: Until) -> Result<Item, GetError> {
        let connection = &self.connection;
        let InputConnection { inner, id, uses } = &**connection;
        // The newest unseen consumes others.
        let changes = if which == Which::Unseen { Changes::Freed } else { Changes::Nothing };
        inner.wait(
            until,
            |head| &head.came.0,
            |error: &GetError| *error == GetError::Get(NoItem::NotYet),
            || {
                let mut uses = uses.lock().unwrap_or_else(PoisonError::into_inner);
                let got = inner.operate(changes, |channel| channel.get(*id, which))??;
                connection.item(&mut uses, got)
            },
        )
    }

    /// All items from one time to another, in their order, which are held until they are dropped.
    ///
    /// # Errors
    /// See [`GetError`].
    pub fn range(&mut self, first: Time, last: Time) -> Result<Vec<Item>, GetError> {
        let connection = &self.connection;
        let InputConnection { inner, id, uses } = &**connection;
        let mut uses = uses.lock().unwrap_or_else(PoisonError::into_inner);
        let got = inner.operate(Changes::Nothing, |channel| channel.range(*id, first, last))??;
        let items: Vec<_> = got.into_iter().map(|got| connection.item(&mut uses, got)).collect();
        drop(uses);
        items.into_iter().collect()
    }

    /// Consumes one time, of which an item may come or have come.
    ///
    /// # Errors
    /// See [`ConnectionError`].
    pub fn consume(&mut self, time: Time) -> Result<(), ConnectionError> {
        let InputConnection { inner, id, .. } = &*self.connection;
        Ok(inner.operate(Changes::Freed, |channel| channel.consume(*id, time))??)
    }

    /// Consumes all times up to one.
    ///
    /// # Errors
    /// The connection has ended, or the channel cannot be used.
    pub fn consume_until(&mut self, time: Time) -> Result<(), ConnectionError> {
        let InputConnection { inner, id, .. } = &*self.connection;
        Ok(inner.operate(Changes::Freed, |channel| channel.consume_until(*id, time))??)
    }

    /// What was counted.
    ///
    /// # Errors
    /// The connection has ended, or the channel cannot be used.
    pub fn counts(&self) -> Result<InputCounts, ConnectionError> {
        let InputConnection { inner, id, .. } = &*self.connection;
        Ok(inner.operate(Changes::Nothing, |channel| channel.input_counts(*id))??)
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // Items that are in use keep the connection; it wants nothing any more.
        if Arc::strong_count(&self.connection) > 1 {
            _ = self.consume_until(Time::MAX);
        }
    }
}

impl InputConnection {
    fn item(self: &Arc<Self>, uses: &mut Vec<(Time, u32)>, got: Got) -> Result<Item, GetError> {
        if self.inner.payload.read(got.slot, got.item.length as usize).is_none() {
            return Err(Unusable::Damaged.into());
        }
        match uses.iter_mut().find(|each| each.0 == got.item.time) {
            Some(each) => each.1 += 1,
            None => uses.push((got.item.time, 1)),
        }
        Ok(Item { connection: Arc::clone(self), got })
    }

    fn release(&self, time: Time) {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = uses.iter().position(|each| each.0 == time) else { return };
        uses[at].1 -= 1;
        if uses[at].1 == 0 {
            uses.swap_remove(at);
            _ = self.inner.operate(Changes::Freed, |channel| channel.release(self.id, time));
        }
    }
}

impl Drop for InputConnection {
    fn drop(&mut self) {
        _ = self.inner.operate(Changes::All, |channel| channel.leave_input(self.id));
    }
}

/// An item that was got. Its bytes stay as they are until it is dropped.
pub struct Item {
    connection: Arc<InputConnection>,
    got: Got,
}

impl Item {
    /// Its time.
    pub fn time(&self) -> Time {
        self.got.item.time
    }

    /// By how much the time may be wrong at most, in its units.
    pub fn half_width(&self) -> u32 {
        self.got.item.half_width
    }

    /// When it was put, ns of CLOCK_MONOTONIC.
    pub fn put_ns(&self) -> i64 {
        self.got.item.put_ns
    }
}

impl Deref for Item {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let Got { slot, item } = self.got;
        self.connection.inner.payload.read(slot, item.length as usize).unwrap_or_default()
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        self.connection.release(self.got.item.time);
    }
}

/// CLOCK_MONOTONIC, ns.
pub(crate) fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
