//! What is recorded of a channel: events of the group that has the channel's name.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use loopscope_stm::{Collected, Time, Watch};
use loopscope_trace::{FieldType, Kind, Refused, RuntimeSite, Value};

/// The id of a wait that ended without an item.
const NOTHING: i64 = i64::MIN;

/// The call sites of a channel; `schema/stm.md` says when each is hit.
#[derive(Clone, Copy)]
pub(crate) struct Events {
    put: RuntimeSite,
    got: RuntimeSite,
    looked: RuntimeSite,
    consumed: RuntimeSite,
    pub(crate) collected: RuntimeSite,
    sent: RuntimeSite,
    received: RuntimeSite,
    datagram: RuntimeSite,
    call: Interval,
    /// A get waits for an item.
    pub(crate) get_wait: Interval,
    /// A put or a loan waits for room.
    pub(crate) put_wait: Interval,
    message: Interval,
    message_wait: Interval,
    /// What the parts of calls and messages cost; None where no events can have the group's name.
    inside: Option<Inside>,
}

/// Call sites of the group that has the channel's name and `_inside` behind it.
#[derive(Clone, Copy)]
struct Inside {
    synchronisation: Interval,
    memory: Interval,
}

/// What a thread of a service does that relays items.
#[derive(Clone, Copy)]
pub enum Relay {
    /// It waits for a message, or for something to tell.
    Waits,
    /// It sends messages.
    Sends,
    /// It receives a message.
    Receives,
    /// It takes a lock of what it relays by.
    Locks,
}

/// Records until it is dropped what a thread does.
pub struct Spell {
    interval: Option<Interval>,
    id: i64,
}

/// The call sites of an interval.
#[derive(Clone, Copy)]
pub(crate) struct Interval {
    begin: RuntimeSite,
    end: RuntimeSite,
}

/// What a thread calls, as the id of the interval `call` says it.
#[derive(Clone, Copy)]
pub(crate) enum Call {
    Loan = 1,
    Put,
    Get,
    Look,
    Consume,
    Release,
    Bound,
    Collected,
}

/// Records a call when it is dropped.
pub(crate) struct Calling {
    interval: Option<Interval>,
    call: Call,
    over_ns: u64,
}

impl Events {
    /// The call sites of a channel of a name; None where no events can have it.
    pub(crate) fn of(channel: &str) -> Option<Events> {
        // A site lives as long as the process.
        static MADE: Mutex<BTreeMap<String, Events>> = Mutex::new(BTreeMap::new());
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(events) = made.get(channel) {
            return Some(*events);
        }
        let events = Events::new(channel).ok()?;
        made.insert(channel.into(), events);
        Some(events)
    }

    fn new(channel: &str) -> Result<Events, Refused> {
        let site = |name: &str, kind| RuntimeSite::new(channel, name, kind, file!(), line!());
        let bytes = &[("bytes", FieldType::U32)];
        let datagram = &["part", "parts", "bytes"].map(|field| (field, FieldType::U32));
        let interval = |name: &str| Interval::new(channel, name);
        Ok(Events {
            put: site("put", Kind::FlowOut(bytes))?,
            got: site("got", Kind::FlowIn(bytes))?,
            looked: site("looked", Kind::FlowIn(bytes))?,
            consumed: site("consumed", Kind::Event(&[("until", FieldType::U8)]))?,
            collected: site("collected", Kind::Event(&[("dropped", FieldType::U8)]))?,
            sent: site("sent", Kind::FlowOut(bytes))?,
            received: site("received", Kind::FlowIn(bytes))?,
            datagram: site("datagram", Kind::Event(datagram))?,
            call: interval("call")?,
            get_wait: interval("get_wait")?,
            put_wait: interval("put_wait")?,
            message: interval("message")?,
            message_wait: interval("message_wait")?,
            inside: Inside::new(&format!("{channel}_inside")).ok(),
        })
    }

    /// A thread of a service does something, until the answer is dropped.
    pub(crate) fn relays(&self, what: Relay) -> Spell {
        match what {
            Relay::Waits => Spell::new(Some(self.message_wait), NOTHING),
            Relay::Sends => Spell::new(Some(self.message), 1),
            Relay::Receives => Spell::new(Some(self.message), 2),
            Relay::Locks => self.synchronises(),
        }
    }

    /// A thread takes a lock, or gives one up and wakes others, until the answer is dropped.
    pub(crate) fn synchronises(&self) -> Spell {
        Spell::new(self.inside.map(|inside| inside.synchronisation), NOTHING)
    }

    /// What tells of slots that are taken and freed.
    pub(crate) fn memory(&self) -> Option<Watch> {
        let memory = self.inside?.memory;
        let tells = move |begins| if begins { memory.begins() } else { memory.ends(None) };
        Some(Box::new(tells))
    }

    /// An item will be there in the next moment.
    pub(crate) fn put(&self, time: Time, bytes: u32) {
        record(self.put, time, &[Value::U32(bytes)]);
    }

    /// A program has an item.
    pub(crate) fn got(&self, time: Time, bytes: u32) {
        record(self.got, time, &[Value::U32(bytes)]);
    }

    /// A program has a copy of an item.
    pub(crate) fn looked(&self, time: Time, bytes: u32) {
        record(self.looked, time, &[Value::U32(bytes)]);
    }

    /// A connection wants nothing of a time any more, or of all times until it.
    pub(crate) fn consumed(&self, time: Time, until: bool) {
        record(self.consumed, time, &[Value::U8(until.into())]);
    }

    /// An item is about to be sent to another host.
    pub(crate) fn sent(&self, time: Time, bytes: u32) {
        record(self.sent, time, &[Value::U32(bytes)]);
    }

    /// A datagram of so many bytes with one of the parts of an item is about to be sent.
    pub(crate) fn datagram(&self, time: Time, part: u32, parts: u32, bytes: u32) {
        record(self.datagram, time, &[Value::U32(part), Value::U32(parts), Value::U32(bytes)]);
    }

    /// An item of another host is here, and will be visible in the next moment.
    pub(crate) fn received(&self, time: Time, bytes: u32) {
        record(self.received, time, &[Value::U32(bytes)]);
    }

    /// The slot of an item is free again.
    pub(crate) fn collected(&self, item: Collected) {
        record(self.collected, item.time, &[Value::U8(item.dropped.into())]);
    }
}

impl Inside {
    fn new(group: &str) -> Result<Inside, Refused> {
        let synchronisation = Interval::new(group, "synchronisation")?;
        Ok(Inside { synchronisation, memory: Interval::new(group, "memory")? })
    }
}

impl Spell {
    fn new(interval: Option<Interval>, id: i64) -> Spell {
        Spell { interval: interval.inspect(Interval::begins), id }
    }

    /// One of a channel without events.
    pub(crate) fn none() -> Spell {
        Spell::new(None, NOTHING)
    }
}

impl Drop for Spell {
    #[inline]
    fn drop(&mut self) {
        if let Some(interval) = self.interval {
            interval.end_over(self.id, 0);
        }
    }
}

impl Interval {
    fn new(group: &str, name: &str) -> Result<Interval, Refused> {
        let site = |kind| RuntimeSite::new(group, name, kind, file!(), line!());
        Ok(Interval { begin: site(Kind::IntervalStart)?, end: site(Kind::IntervalEnd)? })
    }

    #[inline]
    pub(crate) fn begins(&self) {
        if self.begin.enabled() {
            self.begin.start();
        }
    }

    /// `time`: of the item that ended a wait.
    pub(crate) fn ends(&self, time: Option<Time>) {
        self.end_over(time.unwrap_or(NOTHING), 0);
    }

    #[inline]
    fn end_over(&self, id: i64, over_ns: u64) {
        if self.end.enabled() {
            self.end.end(id, over_ns);
        }
    }
}

impl Calling {
    /// A thread calls something of a channel that has these events.
    pub(crate) fn new(events: Option<Events>, call: Call) -> Calling {
        let interval = events.map(|events| events.call).inspect(Interval::begins);
        Calling { interval, call, over_ns: 0 }
    }

    /// Leaves the call out, which did not wait: a thread that polls would record nothing else.
    pub(crate) fn finds_nothing(&mut self) {
        self.over_ns = u64::MAX;
    }
}

impl Drop for Calling {
    #[inline]
    fn drop(&mut self) {
        if let Some(interval) = self.interval {
            interval.end_over(self.call as i64, self.over_ns);
        }
    }
}

/// A hit that nobody asks for costs two loads: `record` looks at the site's kind and fields first.
#[inline]
fn record(site: RuntimeSite, time: Time, fields: &[Value<'_>]) {
    if site.enabled() {
        site.record(time, fields);
    }
}
