//! Connections of a thread that get items, and items that it has.

use std::convert::Infallible;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loopscope_stm::{
    ConsumeError, GetError as NoItem, Got, InputCounts, InputId, NewItem, Time, Which,
};

use crate::attached::{Attached, Awaited, Changes, Until};
use crate::derive::{Follower, Source};
use crate::error::{ConnectionError, GetError, Unusable};
use crate::events::Call;

/// How often an input connection looks without the lock before it takes it once.
const UNLOCKED: u32 = 4096;

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
    /// By how much that may be wrong at most, ns: 0 where the item was put on this machine.
    pub put_error_ns: i64,
    /// Its bytes; more than were copied, if there was too little room.
    pub bytes: usize,
}

impl Attached {
    fn consumed(&self, time: Time, until: bool) {
        if let Some(events) = self.events {
            events.consumed(time, until);
        }
    }

    fn looked(&self, item: &NewItem) -> Look {
        let NewItem { time, half_width, length, put_ns, put_error_ns } = *item;
        if let Some(events) = self.events {
            events.looked(time, length);
        }
        Look { time, half_width, put_ns, put_error_ns, bytes: length as usize }
    }
}

struct InputConnection {
    inner: Arc<Attached>,
    id: InputId,
    /// How many times an item is in use, of which the channel knows one hold.
    uses: Mutex<Vec<(Time, u32)>>,
    /// For outputs whose promises follow what is due to this.
    source: Source,
}

impl Input {
    pub(crate) fn new(inner: Arc<Attached>, id: InputId, floor: Time) -> Input {
        let source = Source::new(Arc::clone(&inner), id);
        let connection = Arc::new(InputConnection { inner, id, uses: Mutex::default(), source });
        let known = Known { consumed: floor, alone: Time::MIN, given: Time::MIN, unlocked: 0 };
        Input { connection, floor, known }
    }

    pub(crate) fn derives(&self, output: &Arc<Follower>) -> Result<(), ConnectionError> {
        self.connection.source.add(output)
    }

    /// An item, which is held until it is dropped. Waits for it to come.
    ///
    /// # Errors
    /// See [`GetError`].
    pub fn get(&mut self, which: Which, until: Until) -> Result<Item, GetError> {
        let connection = &self.connection;
        let InputConnection { inner, id, uses, .. } = &**connection;
        let mut call = inner.calls(Call::Get);
        let known = &mut self.known;
        if let Some(seen) = inner.newest()
            && known.is_over(which, seen.item.time)
            && until == Until::Now
            && !connection.source.is_followed()
            && !known.takes_lock()
        {
            call.finds_nothing();
            return Err(NoItem::NotYet.into());
        }
        // The newest unseen consumes others.
        let is_unseen = which == Which::Unseen;
        let changes = if is_unseen { Changes::Freed } else { Changes::Nothing };
        let item = inner.wait(
            until,
            Awaited::Item,
            |error: &GetError| *error == GetError::Get(NoItem::NotYet),
            || {
                let mut uses = lock(uses);
                let got = inner.operate(changes, |channel| channel.get(*id, which))?;
                if got.is_err() || is_unseen {
                    connection.source.tell();
                }
                let got = got?;
                let time = got.item.time;
                known.given = known.given.max(time.saturating_add(1));
                known.consumed = known.consumed.max(if is_unseen { time } else { Time::MIN });
                connection.item(&mut uses, got)
            },
            |item| Some(item.time()),
        );
        match &item {
            Ok(item) => connection.recorded(item),
            Err(GetError::Get(NoItem::NotYet)) if until == Until::Now => call.finds_nothing(),
            Err(_) => (),
        }
        item
    }

    /// All items from one time to another, in their order, which are held until they are dropped.
    ///
    /// # Errors
    /// See [`GetError`].
    pub fn range(&mut self, first: Time, last: Time) -> Result<Vec<Item>, GetError> {
        let connection = &self.connection;
        let InputConnection { inner, id, uses, .. } = &**connection;
        let _call = inner.calls(Call::Get);
        let mut uses = lock(uses);
        let got = inner.operate(Changes::Nothing, |channel| channel.range(*id, first, last))??;
        let given = got.last().map_or(Time::MIN, |got| got.item.time.saturating_add(1));
        self.known.given = self.known.given.max(given);
        let items: Vec<_> = got.into_iter().map(|got| connection.item(&mut uses, got)).collect();
        drop(uses);
        let items = items.into_iter().collect::<Result<Vec<_>, _>>()?;
        items.iter().for_each(|item| connection.recorded(item));
        Ok(items)
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
        let mut call = self.connection.inner.calls(Call::Look);
        let look = self.look_at(after, into);
        if let Err(GetError::Get(NoItem::NotYet)) = look {
            call.finds_nothing();
        }
        look
    }

    fn look_at(&mut self, after: Option<Time>, into: &mut [u8]) -> Result<Look, GetError> {
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
                return Ok(inner.looked(&seen.item));
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
            Ok(inner.looked(&item))
        })?
    }

    /// Consumes one time, of which an item may come or have come.
    ///
    /// # Errors
    /// See [`ConnectionError`].
    pub fn consume(&mut self, time: Time) -> Result<(), ConnectionError> {
        self.consume_each(&[time])
    }

    /// Consumes some times, one after the other.
    ///
    /// # Errors
    /// See [`ConnectionError`]; those before the one that it is about are consumed then.
    pub fn consume_each(&mut self, times: &[Time]) -> Result<(), ConnectionError> {
        let InputConnection { inner, id, .. } = &*self.connection;
        let _call = inner.calls(Call::Consume);
        let mut count = 0;
        let done = inner.operate(Changes::Freed, |channel| {
            // What was consumed has to be told to others also where not all can be.
            Ok::<_, Infallible>(times.iter().try_for_each(|time| {
                channel.consume(*id, *time)?;
                count += 1;
                Ok::<_, ConsumeError>(())
            }))
        });
        for time in &times[..count] {
            inner.consumed(*time, false);
            self.known.alone = self.known.alone.max(*time);
        }
        let Ok(done) = done?;
        self.connection.source.tell();
        Ok(done?)
    }

    /// Consumes all times up to one.
    ///
    /// # Errors
    /// The connection has ended, or the channel cannot be used.
    pub fn consume_until(&mut self, time: Time) -> Result<(), ConnectionError> {
        let InputConnection { inner, id, .. } = &*self.connection;
        let _call = inner.calls(Call::Consume);
        inner.operate(Changes::Freed, |channel| channel.consume_until(*id, time))??;
        inner.consumed(time, true);
        self.connection.source.tell();
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
            let InputConnection { inner, id, source, .. } = &*self.connection;
            _ = inner.operate(Changes::All, |channel| channel.retire_input(*id));
            source.tell();
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

    fn recorded(&self, item: &Item) {
        if let Some(events) = self.inner.events {
            events.got(item.time(), item.got.item.length);
        }
    }

    fn release(&self, time: Time) {
        let _call = self.inner.calls(Call::Release);
        let mut uses = lock(&self.uses);
        let Some(at) = uses.iter().position(|each| each.0 == time) else { return };
        uses[at].1 -= 1;
        if uses[at].1 == 0 {
            uses.swap_remove(at);
            drop(uses);
            _ = self.inner.operate(Changes::Freed, |channel| channel.release(self.id, time));
            self.source.tell();
        }
    }
}

impl Drop for InputConnection {
    fn drop(&mut self) {
        _ = self.inner.operate(Changes::All, |channel| channel.leave_input(self.id));
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// By how much that may be wrong at most, ns: 0 where the item was put on this machine.
    pub fn put_error_ns(&self) -> i64 {
        self.got.item.put_error_ns
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
