//! Promises that a thread carries from what it gets to what it puts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use loopscope_stm::{InputId, Time};

use crate::attached::{Attached, Changes};
use crate::error::ConnectionError;

/// An input connection as outputs follow it.
pub(crate) struct Source {
    inner: Arc<Attached>,
    id: InputId,
    followers: Mutex<Vec<Weak<Follower>>>,
}

/// An output connection whose promise follows what is due to some inputs.
pub(crate) struct Follower {
    /// Promises that the output puts nothing below a time.
    promise: Box<dyn Fn(Time) + Send + Sync>,
    known: Mutex<Known>,
}

struct Known {
    /// Each input, by the address of its `Source`, and the lowest time that is due to it.
    inputs: Vec<(usize, Time)>,
    promised: Time,
}

impl Source {
    pub(crate) fn new(inner: Arc<Attached>, id: InputId) -> Source {
        Source { inner, id, followers: Mutex::default() }
    }

    /// Has an output follow from now on.
    pub(crate) fn add(&self, follower: &Arc<Follower>) -> Result<(), ConnectionError> {
        let mut followers = lock(&self.followers);
        let due = self.inner.operate(Changes::Nothing, |channel| channel.due(self.id))??;
        followers.retain(|each| !std::ptr::eq(each.as_ptr(), Arc::as_ptr(follower)));
        followers.push(Arc::downgrade(follower));
        follower.follow(self.key(), Some(due));
        Ok(())
    }

    /// Whether there are outputs that follow: its promises may be more though there is no other item.
    pub(crate) fn is_followed(&self) -> bool {
        !lock(&self.followers).is_empty()
    }

    /// Tells those that follow what is due now.
    pub(crate) fn tell(&self) {
        let mut followers = lock(&self.followers);
        if followers.is_empty() {
            return;
        }
        // Where it has left or its channel is damaged, the call that this is part of says so.
        if let Ok(Ok(due)) = self.inner.operate(Changes::Nothing, |channel| channel.due(self.id)) {
            followers.retain(|each| {
                let follower = each.upgrade();
                follower.inspect(|it| it.follow(self.key(), Some(due))).is_some()
            });
        }
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let followers: Vec<_> = lock(&self.followers).iter().filter_map(Weak::upgrade).collect();
        followers.iter().for_each(|each| each.follow(self.key(), None));
    }
}

impl Follower {
    pub(crate) fn new(promise: impl Fn(Time) + Send + Sync + 'static) -> Follower {
        let known = Known { inputs: vec![], promised: Time::MIN };
        Follower { promise: Box::new(promise), known: Mutex::new(known) }
    }

    /// Promises what follows from what is due to an input, None: it has left.
    fn follow(&self, input: usize, due: Option<Time>) {
        let mut known = lock(&self.known);
        known.inputs.retain(|each| each.0 != input);
        known.inputs.extend(due.map(|due| (input, due)));
        let lowest = known.inputs.iter().map(|each| each.1).min();
        if let Some(time) = lowest.filter(|time| *time > known.promised) {
            known.promised = time;
            (self.promise)(time);
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
