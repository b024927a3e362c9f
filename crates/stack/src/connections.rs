//! The connections of a program: which of them a packet is for, has something to send, or waits.

use std::collections::BTreeMap;
use std::time::Duration;

use foldhash::{HashMap, HashMapExt as _};

use crate::connection::Connection;
use crate::packet::Flow;
use crate::segment::Segment;
use crate::timers::Timer;

/// One of the connections. That of one which was removed is never another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    place: usize,
    generation: u64,
}

impl Id {
    /// Its number, from 1 on, in the order in which connections were added.
    pub fn number(self) -> u64 {
        self.generation
    }

    /// Its place among the connections. Once it is removed, another may have that.
    pub fn place(self) -> usize {
        self.place
    }
}

#[derive(Debug)]
struct Held<T> {
    generation: u64,
    /// The flow of the packets that leave.
    flow: Flow,
    connection: Connection,
    of_user: T,
    /// When it is looked at next, which may be before its deadline.
    looks: Option<Duration>,
    /// Whether it may have something to send.
    is_touched: bool,
}

/// Segments of a connection that are to be sent now.
#[derive(Debug)]
pub struct Leaving<'s, T> {
    /// The connection.
    pub id: Id,
    /// The flow of the packets that leave.
    pub flow: &'s Flow,
    /// The segment, or several as one ([`Connection::poll_train`]).
    pub segment: Segment<'s>,
    /// Bytes of data in each of them but the last.
    pub size: usize,
    /// Whether its data were sent before.
    pub is_again: bool,
    /// The connection as it is once they have left.
    pub connection: &'s Connection,
    /// What the user has with it.
    pub of_user: &'s mut T,
}

/// Connections by their flows, with what the user has with each. Each packet takes one look-up; what none of them waits for or has to
/// send takes no time.
#[derive(Debug)]
pub struct Connections<T = ()> {
    /// By the flow of the packets that come.
    places: HashMap<Flow, usize>,
    held: Vec<Option<Held<T>>>,
    free: Vec<usize>,
    generation: u64,
    touched: Vec<Id>,
    /// Those that have ended, until the user has asked.
    ended: Vec<Id>,
    /// When to look at which: each connection that waits, and some that have been removed or looked
    /// at.
    looks: BTreeMap<Duration, Vec<Id>>,
    /// Empty lists that were in `looks`, for the next instants.
    spare: Vec<Vec<Id>>,
}

impl<T> Default for Connections<T> {
    fn default() -> Connections<T> {
        Connections {
            places: HashMap::new(),
            held: vec![],
            free: vec![],
            generation: 0,
            touched: vec![],
            ended: vec![],
            looks: BTreeMap::new(),
            spare: vec![],
        }
    }
}

impl<T> Connections<T> {
    /// Adds a connection; `flow` is of the packets that come. None: there is one with this flow.
    pub fn add(&mut self, flow: &Flow, connection: Connection, of_user: T) -> Option<Id> {
        if self.places.contains_key(flow) {
            return None;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.held.push(None);
            self.held.len() - 1
        });
        self.generation += 1;
        let id = Id { place, generation: self.generation };
        self.held[place] = Some(Held {
            generation: id.generation,
            flow: Flow { from: flow.to, to: flow.from },
            connection,
            of_user,
            looks: None,
            is_touched: false,
        });
        self.places.insert(*flow, place);
        self.touch(id);
        Some(id)
    }

    /// Removes a connection. None: it was removed before.
    pub fn remove(&mut self, id: Id) -> Option<(Connection, T)> {
        self.find(id)?;
        let held = self.held[id.place].take()?;
        self.places.remove(&Flow { from: held.flow.to, to: held.flow.from });
        self.free.push(id.place);
        Some((held.connection, held.of_user))
    }

    /// Removes all connections.
    pub fn remove_all(&mut self) -> Vec<(Connection, T)> {
        self.places.clear();
        self.free.clear();
        let all = std::mem::take(&mut self.held).into_iter().flatten();
        all.map(|held| (held.connection, held.of_user)).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The connection that packets of a flow are for.
    pub fn of(&self, flow: &Flow) -> Option<Id> {
        let place = *self.places.get(flow)?;
        let held = self.held[place].as_ref()?;
        Some(Id { place, generation: held.generation })
    }

    /// A connection, to be read from.
    pub fn get(&self, id: Id) -> Option<&Connection> {
        let held = self.held.get(id.place)?.as_ref()?;
        (held.generation == id.generation).then_some(&held.connection)
    }

    /// A connection that is given something: a segment, or data to send.
    pub fn change(&mut self, id: Id) -> Option<&mut Connection> {
        self.touch(id);
        self.find(id).map(|held| &mut held.connection)
    }

    /// What the user has with a connection, and that.
    pub fn with(&mut self, id: Id) -> Option<(&Connection, &mut T)> {
        self.find(id).map(|held| (&held.connection, &mut held.of_user))
    }

    /// Hands all that is to be sent to `send`. The data are in `buffer`, which has room for a full
    /// segment.
    pub fn send(&mut self, now: Duration, buffer: &mut [u8], mut send: impl FnMut(Leaving<'_, T>)) {
        let mut touched = std::mem::take(&mut self.touched);
        for id in touched.drain(..) {
            let Some(held) = self.find(id) else { continue };
            held.is_touched = false;
            let Held { flow, connection, of_user, .. } = held;
            let mut sent_again = connection.counts.sent_again;
            while let Some((segment, size)) = connection.poll_train(now, buffer) {
                let before = std::mem::replace(&mut sent_again, connection.counts.sent_again);
                let is_again = sent_again > before;
                send(Leaving { id, flow, segment, size, is_again, connection, of_user });
            }
            if connection.end().is_some() {
                self.ended.push(id);
            }
            self.wait(id, now);
        }
        // It keeps its room.
        self.touched = touched;
    }

    /// Those that [`Connections::send`] has found to have ended ([`Connection::end`]). Each may be
    /// there several times, or be removed.
    pub fn take_ended(&mut self) -> Vec<Id> {
        std::mem::take(&mut self.ended)
    }

    /// When [`Connections::wake`] is to be called, if nothing happens before. It may be too early.
    pub fn deadline(&self) -> Option<Duration> {
        self.looks.keys().next().copied()
    }

    /// Has the connections do what is due, and hands the timers that have expired to `expired`.
    /// [`Connections::send`] comes after it.
    pub fn wake(&mut self, now: Duration, mut expired: impl FnMut(Id, Timer)) {
        while let Some(first) = self.looks.first_entry().filter(|first| *first.key() <= now) {
            let (at, mut ids) = first.remove_entry();
            for id in ids.drain(..) {
                let found = self.find(id).filter(|held| held.looks == Some(at));
                let Some(held) = found else { continue };
                held.looks = None;
                if held.connection.deadline().is_some_and(|deadline| deadline <= now) {
                    held.connection.wake(now).iter().for_each(|timer| expired(id, timer));
                    self.touch(id);
                } else {
                    self.wait(id, now);
                }
            }
            self.spare.push(ids);
        }
    }

    fn find(&mut self, id: Id) -> Option<&mut Held<T>> {
        let held = self.held.get_mut(id.place)?.as_mut()?;
        (held.generation == id.generation).then_some(held)
    }

    fn touch(&mut self, id: Id) {
        if let Some(held) = self.find(id)
            && !std::mem::replace(&mut held.is_touched, true)
        {
            self.touched.push(id);
        }
    }

    /// Sees to it that a connection is looked at when its deadline comes. A deadline that has become
    /// later, which each segment does, leaves the earlier look as it is.
    fn wait(&mut self, id: Id, now: Duration) {
        let Some(held) = self.find(id) else { return };
        let Some(deadline) = held.connection.deadline() else { return };
        if held.looks.is_none_or(|at| deadline < at) {
            let at = look_before(deadline, now);
            held.looks = Some(at);
            let (looks, spare) = (&mut self.looks, &mut self.spare);
            looks.entry(at).or_insert_with(|| spare.pop().unwrap_or_default()).push(id);
        }
    }
}

/// Shorter waits end at the deadline itself.
const SHORT: Duration = Duration::from_millis(1);

/// When to look at a connection first: a little before a deadline that is far away, and then again. So
/// thousands of connections, most of whose deadlines become later before they come, share few
/// instants.
fn look_before(deadline: Duration, now: Duration) -> Duration {
    let left = deadline.saturating_sub(now);
    if left < SHORT {
        return deadline;
    }
    let step = 1 << (left.as_nanos() as u64 / 64).ilog2();
    let at = deadline.as_nanos() as u64;
    Duration::from_nanos(at - at % step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_share_few_instants_which_are_shortly_before_them() {
        let now = Duration::from_millis(123_456);
        let mut all = std::collections::BTreeSet::new();
        for number in 0..10_000 {
            let deadline = now + Duration::from_micros(20 * number);
            let at = look_before(deadline, now);
            assert!(now <= at && at <= deadline && deadline - at <= (deadline - now) / 64);
            assert!(deadline - now >= SHORT || at == deadline);
            all.insert(at);
        }
        assert!(all.len() < 800, "{}", all.len());
    }
}
