//! Connections of a thread to a channel, and the items that it puts and gets.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use loopscope_stm::{
    Channel, GetError as NoItem, Got, InputCounts, InputId, NewItem, OutputId, Slot, Time, Which,
};
use rustix::time::{ClockId, clock_gettime};

use crate::attached::{Attached, Changes, Until};
use crate::error::{ConnectionError, GetError, PutError, Unusable};

/// Bytes of an item that are copied while the channel's lock is held, at most.
const AT_ONCE: usize = 4096;
/// How often an input connection looks without the lock before it takes it once.
const UNLOCKED: u32 = 4096;

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
            PutError::may_end,
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
        let OutputConnection { inner, id } = &*self.connection;
        let room = inner.payload.slot_bytes;
        let length = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= room);
        let length = length.ok_or(PutError::TooLong { bytes: bytes.len(), room })?;
        if bytes.len() > AT_ONCE {
            let mut loan = self.loan(until)?;
            loan[..bytes.len()].copy_from_slice(bytes);
            return loan.put(time, half_width, bytes.len(), until).map_err(|(_, error)| error);
        }
        inner.wait(
            until,
            |head| &head.freed.0,
            PutError::may_end,
            || {
                let item = NewItem { time, half_width, length, put_ns: now_ns() };
                let fill = |slot| {
                    let memory = inner.payload.write(slot).ok_or(Unusable::Damaged)?;
                    memory[..bytes.len()].copy_from_slice(bytes);
                    Ok(())
                };
                let show = |slot| inner.show(slot, item);
                inner.operate(Changes::All, |channel| channel.put_new(*id, item, fill, show))?
            },
        )
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
            PutError::may_end,
            || {
                let item = NewItem { time, half_width, length, put_ns: now_ns() };
                // It may drop another item, or be collected at once: a slot is free then.
                let show = || inner.show(self.slot, item);
                let put = |channel: &mut Channel<_>| channel.put_shown(*id, self.slot, item, show);
                Ok(inner.operate(Changes::All, put)??)
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
    known: Known,
}

/// What an input connection knows of itself without the channel's lock.
struct Known {
    /// It has consumed all times below this.
    consumed: Time,
    /// The greatest time that it has consumed alone.
    alone: Time,
    /// It was given nothing from this time on.
    given: Time,
    /// How often it has not taken the lock one time after the other.
    unlocked: u32,
}

impl Known {
    /// Whether the lock is to be taken: sometimes in any case, because the owner may have been killed.
    fn takes_lock(&mut self) -> bool {
        self.unlocked = (self.unlocked + 1) % UNLOCKED;
        self.unlocked == 0
    }

    /// Whether an item is such that there is nothing for the connection to get.
    fn is_over(&self, which: Which, newest: Time) -> bool {
        match which {
            Which::Newest => newest < self.consumed,
            Which::Unseen => newest < self.consumed.max(self.given),
            _ => false,
        }
    }
}

/// A copy of an item's bytes was made; what else is known of the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Its time.
    pub time: Time,
    /// By how much the time may be wrong at most, in its units.
    pub half_width: u32,
    /// When it was put, ns of CLOCK_MONOTONIC.
    pub put_ns: i64,
    /// Its bytes; more than were copied, if there was too little room.
    pub bytes: usize,
}

impl Look {
    fn of(item: &NewItem) -> Look {
        let NewItem { time, half_width, length, put_ns } = *item;
        Look { time, half_width, put_ns, bytes: length as usize }
    }
}

struct InputConnection {
    inner: Arc<Attached>,
    id: InputId,
    /// How many times an item is in use, of which the channel knows one hold.
    uses: Mutex<Vec<(Time, u32)>>,
}

impl Input {
    pub(crate) fn new(inner: Arc<Attached>, id: InputId, floor: Time) -> Input {
        let connection = Arc::new(InputConnection { inner, id, uses: Mutex::default() });
        let known = Known { consumed: floor, alone: Time::MIN, given: Time::MIN, unlocked: 0 };
        Input { connection, floor, known }
    }

    /// An item, which is held until it is dropped. Waits for it to come.
    ///
    /// # Errors
    /// See [`GetError`].
    pub fn get(&mut self, which: Which, until: Until) -> Result<Item, GetError> {
        let connection = &self.connection;
        let InputConnection { inner, id, uses } = &**connection;
        let known = &mut self.known;
        if let Some(seen) = inner.newest()
            && known.is_over(which, seen.item.time)
            && until == Until::Now
            && !known.takes_lock()
        {
            return Err(NoItem::NotYet.into());
        }
        // The newest unseen consumes others.
        let is_unseen = which == Which::Unseen;
        let changes = if is_unseen { Changes::Freed } else { Changes::Nothing };
        inner.wait(
            until,
            |head| &head.came.0,
            |error: &GetError| *error == GetError::Get(NoItem::NotYet),
            || {
                let mut uses = uses.lock().unwrap_or_else(PoisonError::into_inner);
                let got = inner.operate(changes, |channel| channel.get(*id, which))??;
                let time = got.item.time;
                known.given = known.given.max(time.saturating_add(1));
                known.consumed = known.consumed.max(if is_unseen { time } else { Time::MIN });
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
        let given = got.last().map_or(Time::MIN, |got| got.item.time.saturating_add(1));
        self.known.given = self.known.given.max(given);
        let items: Vec<_> = got.into_iter().map(|got| connection.item(&mut uses, got)).collect();
        drop(uses);
        items.into_iter().collect()
    }

    /// Copies the newest item, which is not held then and does not count as one that was got.
    ///
    /// It is `NotYet` where its time is not later than `after`. As many bytes are copied as there is room
    /// for. Does not wait, and takes no lock but for a look in many: a thread may call it as often as it
    /// can.
    ///
    /// # Errors
    /// See [`GetError`].
    pub fn look(&mut self, after: Option<Time>, into: &mut [u8]) -> Result<Look, GetError> {
        let is_later = |time| after.is_none_or(|after| after < time);
        let InputConnection { inner, id, .. } = &*self.connection;
        let known = &mut self.known;
        if !known.takes_lock()
            && let Some(seen) = inner.newest()
        {
            if known.is_over(Which::Newest, seen.item.time) || !is_later(seen.item.time) {
                return Err(NoItem::NotYet.into());
            }
            if seen.item.time > known.alone && inner.copy(&seen, into) {
                return Ok(Look::of(&seen.item));
            }
        }
        inner.looks()?;
        inner.operate(Changes::Nothing, |channel| {
            let Got { slot, item } = channel.look(*id)?;
            if !is_later(item.time) {
                return Err(NoItem::NotYet.into());
            }
            let bytes = into.len().min(item.length as usize);
            let from = inner.payload.read(slot, bytes).ok_or(Unusable::Damaged)?;
            into[..bytes].copy_from_slice(from);
            Ok(Look::of(&item))
        })?
    }

    /// Consumes one time, of which an item may come or have come.
    ///
    /// # Errors
    /// See [`ConnectionError`].
    pub fn consume(&mut self, time: Time) -> Result<(), ConnectionError> {
        let InputConnection { inner, id, .. } = &*self.connection;
        inner.operate(Changes::Freed, |channel| channel.consume(*id, time))??;
        self.known.alone = self.known.alone.max(time);
        Ok(())
    }

    /// Consumes all times up to one.
    ///
    /// # Errors
    /// The connection has ended, or the channel cannot be used.
    pub fn consume_until(&mut self, time: Time) -> Result<(), ConnectionError> {
        let InputConnection { inner, id, .. } = &*self.connection;
        inner.operate(Changes::Freed, |channel| channel.consume_until(*id, time))??;
        self.known.consumed = self.known.consumed.max(time.saturating_add(1));
        Ok(())
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
