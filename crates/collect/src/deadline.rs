//! Deadlines of paths, watched while messages arrive: a message that took too long triggers a
//! flight recorder.
//!
//! Records are seen ring by ring, so that a message's last event may be seen before its first one.
//! Both wait for each other, in bounded memory.
//!
//! Where a path begins on another host, that host's collector hands out what departs
//! ([`Activity::departures`](crate::Activity)), and the one where it ends is told
//! ([`Collector::departed`]): as intervals of its own counter, since the clocks of two hosts agree
//! only so far.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use loopscope_ctf::EventClass;
use loopscope_time::Counter;
use serde::Deserialize;

use crate::stream::{MAIN, ticks};
use crate::{Cause, Collector, Error, Why};

/// A deadline of messages between two events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Name of the path, for people.
    pub path: String,
    /// The flight recorder that a late message triggers.
    pub stream: String,
    /// The path's first event.
    pub first: Point,
    /// Its last event.
    pub last: Point,
    /// The time that a message may take from one to the other.
    pub limit: Duration,
    /// The end of the path that is on this host; `None`: both.
    pub role: Option<Role>,
}

/// An end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It begins here.
    First,
    /// It ends here.
    Last,
}

/// A message's first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The message.
    pub id: i64,
    /// The instant is not before this tick of the host's counter.
    pub lo: Counter,
    /// The instant is not after the end of this tick. The same as `lo` for an event of the host
    /// itself.
    pub hi: Counter,
}

/// An entity of a process.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// The name that its source gives, or the program's short name.
    pub process: String,
    /// `group:name`.
    pub entity: String,
}

/// A deadline under watch.
#[derive(Debug)]
pub(crate) struct Watched {
    deadline: Deadline,
    /// The limit.
    ticks: u64,
    messages: Messages,
    /// What departs from here for another host, not handed out yet.
    departures: Vec<Departure>,
    /// Arrival and id of messages that were too late, not told yet.
    late: Vec<(Counter, i64)>,
}

/// A class of a process's records that is an end of a deadline's path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) class: usize,
    pub(crate) deadline: usize,
    /// The last event, not the first.
    pub(crate) last: bool,
}

/// The ends of deadlines among the classes of a process.
pub(crate) fn ends(process: &str, classes: &[EventClass], deadlines: &[Watched]) -> Vec<End> {
    let mut found = Vec::new();
    for (class, event) in classes.iter().enumerate() {
        let entity = format!("{}:{}", event.group, event.name);
        for (deadline, watched) in deadlines.iter().enumerate() {
            let is = |point: &Point| point.process == process && point.entity == entity;
            let Deadline { first, last, role, .. } = &watched.deadline;
            let of = |last| End { class, deadline, last };
            found.extend((is(first) && *role != Some(Role::Last)).then(|| of(false)));
            found.extend((is(last) && *role != Some(Role::First)).then(|| of(true)));
        }
    }
    found
}

impl Watched {
    pub(crate) fn see(&mut self, last: bool, id: i64, at: Counter) {
        let departure = Departure { id, lo: at, hi: at };
        match (last, self.deadline.role) {
            (true, _) => {
                let arrived = self.messages.arrives(id, at);
                self.judge(id, arrived);
            }
            (false, None) => self.departs(departure),
            (false, Some(_)) => self.departures.push(departure),
        }
    }

    fn departs(&mut self, departure: Departure) {
        let arrived = self.messages.departs(departure);
        self.judge(departure.id, arrived);
    }

    fn judge(&mut self, id: i64, arrived: Option<Arrived>) {
        if let Some(Arrived { at, .. }) = arrived.filter(|arrived| arrived.took > self.ticks) {
            self.late.push((at, id));
        }
    }

    /// What nobody can tell of the path.
    pub(crate) fn problem(&self) -> Option<String> {
        let (count, path) = (self.messages.forgotten(), &self.deadline.path);
        (count > 0).then(|| {
            format!(
                "path {path}: {count} messages were not watched for its deadline: more than {MOST} \
                 were on their way at once, or never arrived"
            )
        })
    }
}

impl Collector {
    /// Watches a deadline from now on: triggers its stream when a message between two events that
    /// the stream `main` records took longer. Nothing if it is watched already.
    pub fn watch(&mut self, deadline: Deadline) {
        let known = |Watched { deadline: known, .. }: &Watched| {
            // What departs is told once, however many limits there are for it.
            let begins = deadline.role == Some(Role::First) && known.role == deadline.role;
            *known == deadline || (begins && known.path == deadline.path)
        };
        if self.deadlines.iter().any(known) {
            return;
        }
        let ticks = ticks(deadline.limit, self.identity.frequency);
        let (messages, departures, late) = (Messages::new(), Vec::new(), Vec::new());
        self.deadlines.push(Watched { deadline, ticks, messages, departures, late });
    }

    /// Messages of a path that ends here have departed from the host where it begins.
    pub fn departed(&mut self, path: &str, departures: &[Departure]) {
        let ends_here = |watched: &&mut Watched| {
            watched.deadline.path == path && watched.deadline.role == Some(Role::Last)
        };
        for watched in self.deadlines.iter_mut().filter(ends_here) {
            departures.iter().for_each(|departure| watched.departs(*departure));
        }
    }

    /// Looks at what is new in the stream `main`, and triggers for messages that were too late.
    /// Returns the messages that departed for other hosts, by path.
    pub(crate) fn watch_deadlines(&mut self) -> Result<Vec<(String, Vec<Departure>)>, Error> {
        let main = self.outputs.iter().position(|output| output.spec.name == MAIN);
        let (Some(main), false) = (main, self.deadlines.is_empty()) else {
            return Ok(Vec::new());
        };
        for process in &mut self.processes {
            process.observe(main, &mut self.deadlines);
        }
        let (mut late, mut departures) = (Vec::new(), Vec::new());
        for watched in &mut self.deadlines {
            // The earliest is the one to freeze for; the others find the recorder triggered.
            watched.late.sort_unstable();
            let Deadline { path, stream, last, .. } = &watched.deadline;
            if !watched.departures.is_empty() {
                departures.push((path.clone(), std::mem::take(&mut watched.departures)));
            }
            late.extend(watched.late.drain(..).map(|(at, id)| {
                let by = Some((last.entity.clone(), id));
                (stream.clone(), at, Why { by, ..Cause::Path.into() })
            }));
        }
        for (stream, at, why) in late {
            self.trigger(Some(&stream), why, Some(at))?;
        }
        Ok(departures)
    }
}

/// Messages of one path of which only one end has been seen.
#[derive(Debug)]
pub(crate) struct Messages {
    departed: Waiting<Departure>,
    arrived: Waiting<Counter>,
}

/// A message of which both ends have been seen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) at: Counter,
    /// The least that it can have taken, in ticks.
    pub(crate) took: u64,
}

fn arrived(departure: Departure, at: Counter) -> Arrived {
    Arrived { at, took: at.0.saturating_sub(departure.hi.0) }
}

/// How many ends of either kind wait: at 1000 messages a second, a minute's worth.
const MOST: usize = 1 << 16;

impl Messages {
    pub(crate) fn new() -> Messages {
        Messages { departed: Waiting::new(MOST), arrived: Waiting::new(MOST) }
    }

    /// Handles a message's first event. Returns how long the message took if its last event has
    /// been seen.
    pub(crate) fn departs(&mut self, departure: Departure) -> Option<Arrived> {
        let arrival = self.arrived.take(departure.id);
        // One from before is of an earlier message of this id, or a double.
        if let Some(arrival) = arrival.filter(|arrival| *arrival >= departure.lo) {
            return Some(arrived(departure, arrival));
        }
        self.departed.put(departure.id, departure);
        None
    }

    /// Handles a message's last event. Returns how long the message took if its first event has
    /// been seen.
    pub(crate) fn arrives(&mut self, id: i64, at: Counter) -> Option<Arrived> {
        match self.departed.take(id) {
            Some(departure) if departure.lo <= at => Some(arrived(departure, at)),
            earlier => {
                // The first event of the id's next message is still waiting for its own arrival.
                if let Some(departure) = earlier {
                    self.departed.put(id, departure);
                }
                self.arrived.put(id, at);
                None
            }
        }
    }

    /// Messages of which nobody knows how long they took, because too many were under way.
    pub(crate) fn forgotten(&self) -> u64 {
        self.departed.forgotten
    }
}

/// What waits, by id, at most so many; the oldest entry makes room.
#[derive(Debug)]
struct Waiting<T> {
    most: usize,
    by_id: HashMap<i64, (u64, T)>,
    /// Number and id of entries, in their order; those that have been taken are left out later.
    order: VecDeque<(u64, i64)>,
    next: u64,
    forgotten: u64,
}

impl<T> Waiting<T> {
    fn new(most: usize) -> Waiting<T> {
        Waiting { most, by_id: HashMap::new(), order: VecDeque::new(), next: 0, forgotten: 0 }
    }

    fn put(&mut self, id: i64, what: T) {
        if self.order.len() >= 2 * self.most {
            let by_id = &self.by_id;
            self.order.retain(|(number, id)| by_id.get(id).is_some_and(|(n, _)| n == number));
        }
        while self.by_id.len() >= self.most && !self.by_id.contains_key(&id) {
            let Some((number, oldest)) = self.order.pop_front() else { break };
            if self.by_id.get(&oldest).is_some_and(|(n, _)| *n == number) {
                self.by_id.remove(&oldest);
                self.forgotten += 1;
            }
        }
        self.by_id.insert(id, (self.next, what));
        self.order.push_back((self.next, id));
        self.next += 1;
    }

    fn take(&mut self, id: i64) -> Option<T> {
        self.by_id.remove(&id).map(|(_, what)| what)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use super::*;

    fn departs(messages: &mut Messages, id: i64, at: RangeInclusive<u64>) -> Option<u64> {
        let departure = Departure { id, lo: Counter(*at.start()), hi: Counter(*at.end()) };
        messages.departs(departure).map(|arrived| arrived.took)
    }

    fn arrives(messages: &mut Messages, id: i64, at: u64) -> Option<u64> {
        let arrived = messages.arrives(id, Counter(at));
        arrived.map(|arrived| {
            assert_eq!(arrived.at, Counter(at));
            arrived.took
        })
    }

    /// Only what surely went by counts, and an arrival within the departure's interval is its own.
    #[test]
    fn a_departure_from_another_clock_is_an_interval() {
        let mut messages = Messages::new();
        assert_eq!(departs(&mut messages, 1, 100..=120), None);
        assert_eq!(arrives(&mut messages, 1, 150), Some(30));
        assert_eq!(arrives(&mut messages, 2, 110), None);
        assert_eq!(departs(&mut messages, 2, 100..=120), Some(0));
        assert_eq!(arrives(&mut messages, 3, 99), None);
        assert_eq!(departs(&mut messages, 3, 100..=120), None);
        assert_eq!(arrives(&mut messages, 3, 121), Some(1));
    }

    #[test]
    fn both_orders_of_seeing_give_the_same_time() {
        let mut messages = Messages::new();
        assert_eq!(departs(&mut messages, 7, 100..=100), None);
        assert_eq!(arrives(&mut messages, 7, 130), Some(30));
        assert_eq!(arrives(&mut messages, 8, 250), None);
        assert_eq!(departs(&mut messages, 8, 200..=200), Some(50));
        // Neither is there any more.
        assert_eq!(arrives(&mut messages, 7, 140), None);
        assert_eq!(departs(&mut messages, 8, 300..=300), None);
    }

    #[test]
    fn an_id_that_is_used_again_is_another_message() {
        let mut messages = Messages::new();
        // A double of an earlier arrival stays behind and is older than the next departure.
        assert_eq!(arrives(&mut messages, 1, 10), None);
        assert_eq!(departs(&mut messages, 1, 20..=20), None);
        assert_eq!(arrives(&mut messages, 1, 25), Some(5));
        // The next message's departure is seen before this one's arrival.
        assert_eq!(departs(&mut messages, 2, 90..=90), None);
        assert_eq!(arrives(&mut messages, 2, 70), None);
        assert_eq!(arrives(&mut messages, 2, 95), Some(5));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_is_forgotten_and_counted() {
        let mut waiting = Waiting::new(4);
        for id in 0..6 {
            waiting.put(id, Counter(id as u64));
        }
        assert_eq!((waiting.forgotten, waiting.by_id.len()), (2, 4));
        assert_eq!((waiting.take(1), waiting.take(2)), (None, Some(Counter(2))));
        // Any number of short messages push out no long one.
        for id in 100..1000 {
            waiting.put(id, Counter(0));
            assert_eq!(waiting.take(id), Some(Counter(0)));
            assert!(waiting.order.len() <= 8);
        }
        assert_eq!(waiting.take(3), Some(Counter(3)));
        assert_eq!(waiting.forgotten, 2);
        // An id twice is one entry, as new as the second time.
        let mut waiting = Waiting::new(2);
        waiting.put(1, Counter(1));
        waiting.put(2, Counter(2));
        waiting.put(1, Counter(3));
        waiting.put(4, Counter(4));
        assert_eq!((waiting.take(2), waiting.take(1)), (None, Some(Counter(3))));
    }
}
