//! What the kernel does to packets, from what is seen of them before and after. Frames and times go
//! in, an account comes out.
//!
//! A frame that leaves is the oldest one with the same bytes that came for this port and has not
//! left yet; where several were waiting it has no delay, for it may be any of them. Another one
//! with these bytes is a duplicate. netem flips one bit of what it corrupts, so one half of such a
//! frame stays as it was: it is told which one came by that, once it is certain that this one does
//! not leave unharmed.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hasher as _};

use loopscope_time::MonotonicNs;

use crate::EmulateError;
use crate::address::Address;
use crate::frame;
use crate::hosts::Hosts;
use crate::record::{Left, Record};
use crate::router::Shown;
use crate::settings::{Document, Settings};

/// How late the kernel may be: packets that take different CPUs overtake each other by as much, and
/// one that is not there so long after its time does not come any more.
const SLACK_NS: u64 = 100_000_000;

/// A switch's ports, watched.
#[derive(Debug)]
pub struct Observer {
    hosts: Hosts,
    table: HashMap<Address, usize>,
    start: MonotonicNs,
    /// By [`Hosts::index`]; made when first needed where the document has none.
    lines: Vec<Option<Box<Line>>>,
    /// By port and bytes.
    equals: HashMap<(usize, Bytes), Equals>,
    /// Packets that have left and belong to no bytes that came.
    strays: Vec<Stray>,
    unseen: u64,
}

/// A frame's bytes, as good as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Bytes {
    size: usize,
    halves: [u64; 2],
}

/// A link's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    link: usize,
    number: u64,
}

/// Packets of the same bytes for the same port.
#[derive(Debug, Default)]
struct Equals {
    /// Have not left, oldest first.
    waiting: VecDeque<Name>,
    /// The latest that has.
    left: Option<Name>,
}

#[derive(Debug)]
struct Line {
    record: Record,
    asked_for: bool,
    /// How long the kernel may hold what comes now.
    longest_ns: u64,
    in_order: bool,
    /// The number of the oldest arrival, less one.
    before: u64,
    arrivals: VecDeque<Arrival>,
    /// Changes of the settings so far, and the latest: only between them order is kept.
    changes: usize,
    changed: MonotonicNs,
    /// The latest arrival since the last change of those that have left.
    passed: Option<MonotonicNs>,
}

#[derive(Debug)]
struct Arrival {
    at: MonotonicNs,
    bytes: Bytes,
    until: MonotonicNs,
    changes: usize,
    /// The packet has left, or another one has left in its place.
    left: bool,
    /// The queue that it may have been in was thrown away.
    discarded: bool,
}

/// What is known of a packet that leaves.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    timed: bool,
    duplicate: bool,
    corrupted: bool,
}

#[derive(Debug)]
struct Stray {
    to: usize,
    /// Its sender's port, as far as its bytes say so.
    from: Option<usize>,
    at: MonotonicNs,
    bytes: Bytes,
    until: MonotonicNs,
    /// The latest that came with a half of its bytes.
    like: Option<(Name, MonotonicNs)>,
    /// Whether one at most of those has not left.
    alone: bool,
}

impl Observer {
    /// An observer of the document's ports, which need addresses, and links, from `start` on.
    pub fn new(document: &Document, start: MonotonicNs) -> Result<Observer, EmulateError> {
        let hosts = Hosts::of(document)?;
        let mut table = HashMap::new();
        for (i, port) in document.ports.iter().enumerate() {
            let Some(address) = port.address else {
                return Err(EmulateError::Document(format!(
                    "`ports[{i}].address`: with mover netem the Ethernet address of {} is needed, as \
                     in \"02:00:00:00:00:01\"",
                    port.host
                )));
            };
            if let Some(other) = table.insert(address, i) {
                let (one, other) = (&port.host, &document.ports[other].host);
                return Err(EmulateError::Document(format!(
                    "`ports[{i}].address`: {one} and {other} have the same, {address}"
                )));
            }
        }
        let mut lines = Vec::new();
        lines.resize_with(hosts.count() * hosts.count(), || None);
        hosts.each_link(document, |index, link| {
            lines[index] = Some(Line::new(start, link.settings.clone()));
            Ok(())
        })?;
        let equals = HashMap::new();
        Ok(Observer { hosts, table, start, lines, equals, strays: vec![], unseen: 0 })
    }

    /// The ports' hosts.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// From now on the kernel may hold the link's packets for so long; those of before as long as
    /// they might.
    pub fn holds(&mut self, link: usize, longest_ns: u64) {
        let line = self.line(link);
        line.longest_ns = line.longest_ns.max(longest_ns);
    }

    /// The link has other settings from now on; the number of its segment. `discarded`: what was in
    /// its queue is lost.
    pub fn set(&mut self, at: MonotonicNs, link: usize, asked: Settings, discarded: bool) -> usize {
        let line = self.line(link);
        line.asked_for = true;
        line.in_order = asked.reorder.is_none();
        line.changes += 1;
        line.changed = at;
        line.passed = None;
        if discarded {
            line.arrivals.iter_mut().for_each(|arrival| arrival.discarded = true);
        }
        line.record.set(at, asked)
    }

    /// A frame came in by port `from`.
    pub fn came(&mut self, at: MonotonicNs, from: usize, frame: &[u8]) {
        let Some(destination) = frame::destination(frame) else { return };
        if is_kept(destination) {
            return;
        }
        let bytes = Bytes::of(frame);
        match self.table.get(&destination) {
            Some(to) if *to == from => {}
            Some(to) => self.arrive(at, from, *to, bytes),
            None => {
                let others = (0..self.hosts.count()).filter(|to| *to != from);
                others.for_each(|to| self.arrive(at, from, to, bytes));
            }
        }
    }

    fn arrive(&mut self, at: MonotonicNs, from: usize, to: usize, bytes: Bytes) {
        let link = self.hosts.index(from, to);
        let line = self.line(link);
        line.record.came(at, bytes.size);
        let until = at.plus(line.longest_ns.saturating_add(SLACK_NS));
        let changes = line.changes - usize::from(at < line.changed);
        let arrival = Arrival { at, bytes, until, changes, left: false, discarded: false };
        line.arrivals.push_back(arrival);
        let number = line.before + line.arrivals.len() as u64;
        let equals = self.equals.entry((to, bytes)).or_default();
        equals.waiting.push_back(Name { link, number });
    }

    /// A frame went out by port `to`.
    pub fn left(&mut self, at: MonotonicNs, to: usize, frame: &[u8]) {
        let Some(source) = frame::source(frame) else { return };
        let bytes = Bytes::of(frame);
        if let Some(equals) = self.equals.get_mut(&(to, bytes)) {
            let alone = equals.waiting.len() == 1;
            if let Some(name) = equals.waiting.pop_front() {
                equals.left = Some(name);
                self.goes(name, at, bytes.size, Marks { timed: alone, ..Marks::default() });
                return;
            }
            if let Some(name) = equals.left {
                let marks = Marks { timed: true, duplicate: true, corrupted: false };
                self.goes(name, at, bytes.size, marks);
                return;
            }
        }
        let from = self.table.get(&source).copied().filter(|from| *from != to);
        let senders = (0..self.hosts.count()).filter(|from| *from != to);
        let links: Vec<usize> = senders.map(|from| self.hosts.index(from, to)).collect();
        let like = links.iter().find_map(|link| self.similar(*link, bytes));
        let waiting = links.iter().filter_map(|link| self.lines[*link].as_deref());
        let waiting = waiting.flat_map(|line| &line.arrivals).filter(|arrival| !arrival.left);
        let alone = waiting.filter(|arrival| arrival.bytes.is_one_flip_from(bytes)).count() < 2;
        let longest = links.iter().filter_map(|link| self.lines[*link].as_deref());
        let longest = longest.map(|line| line.longest_ns).max().unwrap_or(0);
        let until = at.plus(longest.saturating_add(SLACK_NS));
        self.strays.push(Stray { to, from, at, bytes, until, like, alone });
    }

    /// Counts what is certain by now.
    pub fn settle(&mut self, now: MonotonicNs) {
        for link in 0..self.lines.len() {
            while self.lines[link].as_deref().is_some_and(|line| line.is_over(now)) {
                self.give_up(link, None);
            }
        }
        let strays = std::mem::take(&mut self.strays).into_iter();
        let (over, strays): (Vec<_>, Vec<_>) = strays.partition(|stray| stray.until < now);
        self.strays = strays;
        over.iter().for_each(|stray| self.explain(stray));
    }

    /// Whether something that came has not left and may.
    pub fn is_waiting(&self) -> bool {
        let lines = self.lines.iter().flatten();
        lines.flat_map(|line| &line.arrivals).any(|arrival| !arrival.left)
    }

    /// The end: what may still have been on its way is counted as such.
    pub fn close(&mut self, now: MonotonicNs) {
        self.settle(now);
        for link in 0..self.lines.len() {
            while self.lines[link].as_deref().is_some_and(|line| !line.arrivals.is_empty()) {
                self.give_up(link, Some(now));
            }
        }
        for stray in std::mem::take(&mut self.strays) {
            self.explain(&stray);
        }
    }

    /// Frames of the hosts that left and were not seen coming.
    pub fn unseen(&self) -> u64 {
        self.unseen
    }

    /// The links that were asked for and those that carried something, with times from `start` on.
    pub fn shown(&self, start: MonotonicNs) -> Vec<Shown> {
        let each = |(index, line): (usize, &Option<Box<Line>>)| {
            let line = line.as_ref().filter(|line| line.asked_for || line.record.is_used())?;
            Some(Shown::new(&self.hosts, index, line.record.achieved(start)))
        };
        self.lines.iter().enumerate().filter_map(each).collect()
    }

    fn line(&mut self, link: usize) -> &mut Line {
        let start = self.start;
        self.lines[link].get_or_insert_with(|| {
            let mut line = Line::new(start, Settings::default());
            line.asked_for = false;
            line
        })
    }

    fn similar(&self, link: usize, bytes: Bytes) -> Option<(Name, MonotonicNs)> {
        let line = self.lines[link].as_deref()?;
        let fits = |arrival: &Arrival| arrival.bytes.is_one_flip_from(bytes);
        let place = line.arrivals.iter().rposition(fits)?;
        let number = line.before + 1 + place as u64;
        Some((Name { link, number }, line.arrivals[place].at))
    }

    fn goes(&mut self, name: Name, at: MonotonicNs, size: usize, marks: Marks) {
        let Some(line) = &mut self.lines[name.link] else { return };
        let Some(arrival) = line.arrival(name.number) else { return };
        arrival.left = true;
        let (came, changes, number) = (arrival.at, arrival.changes, name.number);
        if changes == line.changes {
            line.passed = line.passed.max(Some(came));
        }
        let Marks { timed, duplicate, corrupted } = marks;
        line.record.left(&Left { came, timed, at, due: None, number, size, duplicate, corrupted });
    }

    /// The link's oldest arrival is one no longer. `end`: it is not certain that it will not leave.
    fn give_up(&mut self, link: usize, end: Option<MonotonicNs>) {
        let Some(line) = &mut self.lines[link] else { return };
        let name = Name { link, number: line.before + 1 };
        let Some(arrival) = line.arrivals.front() else { return };
        let (at, bytes, until) = (arrival.at, arrival.bytes, arrival.until);
        let (left, asked) = (arrival.left, !arrival.discarded);
        let (_, to) = self.hosts.ports(link);
        if !left {
            let fits = |stray: &Stray| {
                stray.to == to && at <= stray.at && stray.bytes.is_one_flip_from(bytes)
            };
            if let Some(place) = self.strays.iter().position(fits) {
                let stray = self.strays.remove(place);
                let marks = Marks { timed: stray.alone, duplicate: false, corrupted: true };
                self.goes(name, stray.at, bytes.size, marks);
            } else if end.is_some_and(|end| end <= until) {
                self.line(link).record.waits(at);
            } else {
                self.line(link).record.swallowed(at, asked);
            }
        }
        let line = self.line(link);
        line.arrivals.pop_front();
        line.before += 1;
        if let Some(equals) = self.equals.get_mut(&(to, bytes)) {
            if !left {
                // The first one, but where frames pretend to be another host's.
                match equals.waiting.front() {
                    Some(first) if *first == name => drop(equals.waiting.pop_front()),
                    _ => equals.waiting.retain(|other| *other != name),
                }
            } else if equals.left == Some(name) {
                equals.left = None;
            }
            if equals.waiting.is_empty() && equals.left.is_none() {
                self.equals.remove(&(to, bytes));
            }
        }
    }

    /// No arrival has needed it: it is a duplicate that was corrupted, or it was not seen as it
    /// came. What the switch's own devices have to say is neither.
    fn explain(&mut self, stray: &Stray) {
        let Stray { to, from, at, bytes, like, .. } = stray;
        if let Some((name, came)) = like {
            let left = Left {
                came: *came,
                timed: false,
                at: *at,
                due: None,
                number: name.number,
                size: bytes.size,
                duplicate: true,
                corrupted: true,
            };
            self.line(name.link).record.left(&left);
            return;
        }
        if let Some(from) = from {
            self.unseen += 1;
            let link = self.hosts.index(*from, *to);
            self.line(link).record.appeared(*at, bytes.size);
        }
    }
}

impl Line {
    fn new(start: MonotonicNs, asked: Settings) -> Box<Line> {
        Box::new(Line {
            in_order: asked.reorder.is_none(),
            record: Record::new(start, asked),
            asked_for: true,
            longest_ns: 0,
            before: 0,
            arrivals: VecDeque::new(),
            changes: 0,
            changed: MonotonicNs(0),
            passed: None,
        })
    }

    fn arrival(&mut self, number: u64) -> Option<&mut Arrival> {
        let place = number.checked_sub(self.before + 1)?;
        self.arrivals.get_mut(usize::try_from(place).ok()?)
    }

    /// Whether nothing more can become of its oldest arrival.
    fn is_over(&self, now: MonotonicNs) -> bool {
        let Some(arrival) = self.arrivals.front() else { return false };
        let overtaken = self.in_order
            && arrival.changes == self.changes
            && self.passed.is_some_and(|passed| arrival.at.plus(SLACK_NS) < passed);
        arrival.until < now || overtaken
    }
}

impl Bytes {
    fn of(frame: &[u8]) -> Bytes {
        let (one, other) = frame.split_at(frame.len() / 2);
        let hash = |part: &[u8]| {
            let mut hasher = DefaultHasher::new();
            hasher.write(part);
            hasher.finish()
        };
        Bytes { size: frame.len(), halves: [hash(one), hash(other)] }
    }

    /// Whether one flipped bit may be all the difference.
    fn is_one_flip_from(self, other: Bytes) -> bool {
        let same = self.halves.iter().zip(&other.halves).filter(|(a, b)| a == b).count();
        self.size == other.size && same == 1
    }
}

/// What a bridge does not hand on: IEEE 802.1Q-2018, table 8-1; but for the first of these, that of
/// the spanning tree protocol, where it takes no part in that.
fn is_kept(destination: Address) -> bool {
    let [prefix @ .., last] = destination.0;
    prefix == [0x01, 0x80, 0xc2, 0, 0] && (0x01..=0x0f).contains(&last)
}
