//! A channel's items on another host: the home's and the mirror's side in shared memory.
//!
//! Callers carry the messages of one side to the other, see [`loopscope_stm::Feed`].

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loopscope_stm::{Feed, Got, Mirror, NewItem, Slot, Time, ToHome, ToMirror};

use crate::attached::{Attached, Awaited, Changes, PutBy, Until, never};
use crate::channel::Shared;
use crate::error::{ConnectError, PutError, Unusable};
use crate::events::{Relay, Spell};
use crate::futex;
use crate::mapping::AtHome;

/// A home's side of one mirror. It ends its connection when it is dropped.
pub struct HomeEnd {
    inner: Arc<Attached>,
    feed: Mutex<Feed>,
    /// It has received something.
    received: Condvar,
}

impl HomeEnd {
    /// The home's side of a new mirror, which knows nothing yet.
    pub fn new(shared: &Shared) -> HomeEnd {
        let inner = Arc::clone(&shared.inner);
        let feed = Mutex::new(Feed::new(inner.owner));
        HomeEnd { feed, inner, received: Condvar::new() }
    }

    /// Carries out a message of the mirror.
    ///
    /// # Errors
    /// The channel has no room for its connection, or cannot be used.
    pub fn receive(&self, message: ToHome) -> Result<(), ConnectError> {
        let mut feed = lock(&self.feed);
        let tells =
            self.inner.operate(Changes::Freed, |channel| feed.receive(channel, message))??;
        drop(feed);
        if tells {
            self.received.notify_all();
            self.inner.signal(Changes::Came)?;
        }
        Ok(())
    }

    /// The next message for the mirror, if there is one. After an item, call `sent`.
    ///
    /// # Errors
    /// The channel cannot be used.
    pub fn next(&self) -> Result<Option<ToMirror>, Unusable> {
        let mut feed = lock(&self.feed);
        let Ok(next) = self.inner.operate(Changes::Nothing, |channel| never(feed.next(channel)))?;
        if let (Some(events), Some(ToMirror::Item(got))) = (self.inner.events, next) {
            events.sent(got.item.time, got.item.length);
        }
        Ok(next)
    }

    /// Records that a datagram of so many bytes with one of the parts of an item is about to be sent. The
    /// thread that sends it calls this just before.
    pub fn sends_datagram(&self, time: Time, part: u32, parts: u32, bytes: u32) {
        if let Some(events) = self.inner.events {
            events.datagram(time, part, parts, bytes);
        }
    }

    /// The bytes of an item that is to be sent.
    ///
    /// # Errors
    /// The channel cannot be used.
    pub fn bytes(&self, got: &Got) -> Result<&[u8], Unusable> {
        self.inner.payload.read(got.slot, got.item.length as usize).ok_or(Unusable::Damaged)
    }

    /// Releases an item whose bytes are not needed any more.
    ///
    /// # Errors
    /// The channel cannot be used.
    pub fn sent(&self, got: &Got) -> Result<(), Unusable> {
        let mut feed = lock(&self.feed);
        let time = got.item.time;
        let Ok(is_free) =
            self.inner.operate(Changes::Nothing, |channel| never(feed.sent(channel, time)))?;
        if is_free { self.inner.signal(Changes::Freed) } else { Ok(()) }
    }

    /// Ends its connection: the mirror is gone. What it alone wanted is collected.
    pub fn end(&self) {
        let mut feed = lock(&self.feed);
        _ = self.inner.operate(Changes::All, |channel| {
            feed.end(channel);
            never(())
        });
        self.received.notify_all();
    }

    /// Records until it is dropped what a thread of the service does.
    pub fn relays(&self, what: Relay) -> Spell {
        self.inner.relays(what)
    }

    /// A number that changes when there may be more to tell; to be asked for before `next`.
    pub fn seen(&self) -> u32 {
        futex::value(&self.inner.control.head().came.0)
    }

    /// Waits until the number is another one, or for a time. No put ends it while the mirror wants nothing.
    pub fn wait(&self, seen: u32, most: Duration) {
        let _waits = self.relays(Relay::Waits);
        let feed = lock(&self.feed);
        if feed.is_idle() {
            _ = self.received.wait_timeout(feed, most);
            return;
        }
        drop(feed);
        futex::wait(&self.inner.control.head().came.0, seen, most);
    }
}

impl Drop for HomeEnd {
    fn drop(&mut self) {
        self.end();
    }
}

/// A mirror's side. Its items stay when it is dropped.
pub struct MirrorEnd {
    inner: Arc<Attached>,
    mirror: Mutex<Mirror>,
}

impl MirrorEnd {
    /// The mirror's side of a new connection, of a channel that was made as a mirror.
    ///
    /// # Errors
    /// The channel has another one, or cannot be used.
    pub fn new(shared: &Shared) -> Result<MirrorEnd, ConnectError> {
        let inner = Arc::clone(&shared.inner);
        let (owner, head) = (inner.owner, inner.control.head());
        let output = inner.operate(Changes::Nothing, |channel| {
            channel.join_output(owner).inspect(|_| head.set_at_home(AtHome::Asked))
        })??;
        Ok(MirrorEnd { inner, mirror: Mutex::new(Mirror::new(output)) })
    }

    /// The next message for the home, if there is one.
    ///
    /// # Errors
    /// The channel cannot be used.
    pub fn next(&self) -> Result<Option<ToHome>, Unusable> {
        let mut mirror = lock(&self.mirror);
        let Ok(next) = self.inner.operate(Changes::Nothing, |channel| {
            mirror.look(self.inner.control.head().questions());
            let next = mirror.next(channel);
            self.says(&mirror);
            never(next)
        })?;
        Ok(next)
    }

    /// Memory for an item that comes; waits for it.
    ///
    /// # Errors
    /// There is none for so long, or the channel cannot be used.
    pub fn room(&self, until: Until) -> Result<Room<'_>, PutError> {
        let attempt = || {
            let mirror = lock(&self.mirror);
            let lent = self.inner.operate(Changes::Nothing, |channel| mirror.loan(channel))?;
            Ok(lent?)
        };
        let slot = self.inner.wait(until, Awaited::Room, PutError::may_end, attempt, |_| None)?;
        Ok(Room { inner: &self.inner, slot })
    }

    /// Puts an item that came into memory that is lent; waits for room.
    ///
    /// # Errors
    /// There is no room for so long, and the memory is lent still; or the channel cannot be used.
    pub fn put(&self, room: &Room<'_>, item: NewItem, until: Until) -> Result<(), PutError> {
        let (inner, slot) = (&self.inner, room.slot);
        let show = |is_newest| inner.show(slot, item, is_newest, PutBy::Service);
        let attempt = || {
            let mut mirror = lock(&self.mirror);
            let put =
                inner.operate(Changes::Came, |channel| mirror.put(channel, slot, item, show))?;
            Ok(put?)
        };
        let tells = inner.wait(until, Awaited::Room, PutError::may_end, attempt, |_| None)?;
        if tells {
            inner.signal(Changes::Freed)?;
        }
        Ok(())
    }

    /// Knows that an item which it was told of does not come.
    ///
    /// # Errors
    /// The channel cannot be used.
    pub fn lose(&self, time: Time) -> Result<(), Unusable> {
        let mut mirror = lock(&self.mirror);
        let Ok(done) = self.inner.operate(Changes::All, |channel| {
            mirror.lose(channel, time);
            never(())
        })?;
        Ok(done)
    }

    /// Carries out a message of the home that is not an item.
    ///
    /// # Errors
    /// The channel cannot be used.
    pub fn receive(&self, message: ToMirror) -> Result<(), Unusable> {
        let mut mirror = lock(&self.mirror);
        let Ok(done) = self.inner.operate(Changes::All, |channel| {
            mirror.receive(channel, message);
            self.says(&mirror);
            if let ToMirror::Looked(question) = message {
                self.inner.control.head().set_answered(question);
            }
            never(())
        })?;
        Ok(done)
    }

    /// Tells those that join whether the home knows; called with the channel's lock, so that who joins
    /// afterwards is counted in what the mirror tells next.
    fn says(&self, mirror: &Mirror) {
        let is = if mirror.is_joined() { AtHome::Joined } else { AtHome::Asked };
        self.inner.control.head().set_at_home(is);
    }

    /// Records until it is dropped what a thread of the service does.
    pub fn relays(&self, what: Relay) -> Spell {
        self.inner.relays(what)
    }

    /// A number that changes when there may be more to tell; to be asked for before `next`.
    pub fn seen(&self) -> u32 {
        futex::value(&self.inner.control.head().freed.0)
    }

    /// Waits until the number is another one, or for a time.
    pub fn wait(&self, seen: u32, most: Duration) {
        let _waits = self.relays(Relay::Waits);
        futex::wait(&self.inner.control.head().freed.0, seen, most);
    }
}

impl Drop for MirrorEnd {
    fn drop(&mut self) {
        let output = lock(&self.mirror).output();
        _ = self.inner.operate(Changes::All, |channel| {
            self.inner.control.head().set_at_home(AtHome::Away);
            channel.leave_output(output)
        });
    }
}

/// Memory for an item that comes.
pub struct Room<'a> {
    inner: &'a Attached,
    slot: Slot,
}

impl Deref for Room<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let payload = &self.inner.payload;
        payload.read(self.slot, payload.slot_bytes).unwrap_or_default()
    }
}

impl DerefMut for Room<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.inner.payload.write(self.slot).unwrap_or_default()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
