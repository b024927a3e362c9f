//! One direction of a link as a value: packets and the time go in, packets come out.
//!
//! A packet meets its impairments in the order of [`Settings`]: MTU, loss, duplication, corruption,
//! the queue before the rate, and the line that delays it. All instants are virtual: when a packet
//! is due follows from when it came, however late somebody asks.

mod choices;
mod codel;
mod delay;
mod jitter;
mod line;
mod loss;
mod normal;
mod queue;
mod random;
mod service;

use loopscope_time::MonotonicNs;

use crate::settings::{Limit, Settings};
use crate::traces::Files;
use choices::{Choices, OfCopy};
use delay::Delay;
use line::{Entry, Line};
use queue::{Queue, Terms};
use service::Service;

/// Bytes of an Ethernet header: what a frame is larger than its IP packet.
pub const ETHERNET: u64 = 14;
/// MTU of links that set none, where a largest frame is needed, in bytes.
pub const MTU: u32 = 1500;

/// What a link carries: a frame, or in tests a number.
pub trait Packet {
    /// Bytes of the Ethernet frame without preamble and check sequence.
    fn size(&self) -> usize;
    /// A second one like it.
    fn duplicate(&self) -> Self;
    /// Flips bit `bit` (modulo the payload's bits) of what lies behind the Ethernet header.
    fn flip(&mut self, bit: u64);
}

/// A packet of a link that carries none and is only asked about.
#[derive(Debug)]
pub(crate) struct Nothing;

impl Packet for Nothing {
    fn size(&self) -> usize {
        0
    }
    fn duplicate(&self) -> Nothing {
        Nothing
    }
    fn flip(&mut self, _: u64) {}
}

/// [`Link::longest_ns`] of a link of these settings. The error is for a person.
pub fn longest_ns(settings: &Settings) -> Result<u64, String> {
    Ok(Link::<Nothing>::new(settings.clone(), 0, "")?.longest_ns())
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<P> {
    /// The packet.
    pub packet: P,
    /// Its number on this link, from 1, in the order of arrival; a duplicate has its original's.
    pub number: u64,
    /// When it came.
    pub enqueued: MonotonicNs,
    /// When this was due.
    pub due: MonotonicNs,
    /// What it is.
    pub fate: Fate,
    /// Whether it is the second of two.
    pub duplicate: bool,
    /// Whether one of its bits was flipped.
    pub corrupted: bool,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on its way.
    Departs,
    /// It does not, for this reason.
    Dropped(Drop),
}

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Drop {
    /// Larger than the MTU.
    Mtu,
    /// By the loss that was asked for.
    Loss,
    /// The queue was full.
    Queue,
    /// CoDel.
    Codel,
}

impl Drop {
    /// The name in links.json and in events.
    pub fn name(self) -> &'static str {
        match self {
            Drop::Mtu => "mtu",
            Drop::Loss => "loss",
            Drop::Queue => "queue",
            Drop::Codel => "codel",
        }
    }
}

/// What has been through a link, outcomes that nobody has asked for yet left out: at every instant
/// `arrived + duplicated = departed + dropped + held`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets given to [`Link::enqueue`].
    pub arrived: u64,
    /// Second ones made.
    pub duplicated: u64,
    /// Outcomes that departed, duplicates among them.
    pub departed: u64,
    /// Outcomes that were dropped, duplicates among them.
    pub dropped: u64,
    /// Packets that are in the link.
    pub held: u64,
}

/// What a link may hold at one time, for the caller, which provides the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// In the queue; none without a rate.
    pub queue: Option<Limit>,
    /// In addition as many packets as come in this time: the longest on the line, but for one
    /// jittered packet in a million.
    pub line_ns: u64,
}

/// One direction between two hosts.
#[derive(Debug)]
pub struct Link<P> {
    settings: Settings,
    /// When the last packet or change came.
    now: MonotonicNs,
    /// The latest instant whose outcomes may be known outside.
    polled: MonotonicNs,
    /// Whether files and counts have their origin.
    begun: bool,
    choices: Choices,
    queue: Queue<P>,
    delay: Delay,
    line: Line<P>,
    counts: Counts,
}

impl<P: Packet> Link<P> {
    /// The link `name` with its own random streams from `seed`; reads the files that the settings
    /// name. The error is for a person.
    pub fn new(settings: Settings, seed: u64, name: &str) -> Result<Link<P>, String> {
        let plain = Settings::default();
        let now = MonotonicNs(0);
        let mut link = Link {
            now,
            polled: now,
            begun: false,
            choices: Choices::new(seed, name),
            delay: Delay::new(&plain, None, now),
            queue: Queue::new(now),
            settings: plain,
            line: Line::new(),
            counts: Counts::default(),
        };
        link.set(now, settings)?;
        Ok(link)
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// From now on other settings. What has left the queue stays as it is, what waits in it is
    /// served by the new ones. Files that are new begin now; if there is an error nothing has
    /// changed.
    pub fn set(&mut self, now: MonotonicNs, settings: Settings) -> Result<(), String> {
        settings.check().map_err(|mistake| mistake.to_string())?;
        let mut files = Files::read(&self.settings, &settings)?;
        self.take_back(now);
        self.choices.change(&self.settings, &settings, &mut files);
        if self.settings.delays == settings.delays {
            self.delay.change(&settings);
        } else {
            self.delay = Delay::new(&settings, files.delays.take(), self.now);
        }
        let kept = self.queue.service().clone();
        let service = match (settings.rate_bps, files.opportunities.take()) {
            (Some(bps), _) => {
                let burst = settings.burst_bytes.unwrap_or(settings.largest_frame());
                Service::bucket(bps, burst)
            }
            (None, Some(at_ms)) => Service::opportunities(at_ms, self.now),
            (None, None) if settings.opportunities.is_some() => kept,
            (None, None) => Service::Wire,
        };
        self.queue.change(self.now, Terms::new(&settings, service, &self.delay));
        self.settings = settings;
        self.settle(self.now);
        Ok(())
    }

    /// Files and counts begin anew at `now`: opportunities, delays, and the loss that is periodic
    /// or from a trace. Until this is called for the first time, at the first packet.
    pub fn restart(&mut self, now: MonotonicNs) {
        self.take_back(now);
        self.begin(self.now);
        self.settle(self.now);
    }

    /// A packet arrives; its number. Its outcome comes by [`Link::poll`]; drops as well, at once.
    /// One that came before an earlier one counts as if it came with it.
    pub fn enqueue(&mut self, now: MonotonicNs, packet: P) -> u64 {
        if !self.begun {
            self.begin(now);
        }
        self.advance(now);
        self.counts.arrived += 1;
        let choice = self.choices.next();
        let largest = self.settings.mtu.map_or(u64::MAX, |mtu| u64::from(mtu) + ETHERNET);
        if packet.size() as u64 > largest {
            self.drop(Drop::Mtu, packet, choice.original);
        } else if choice.lost {
            self.drop(Drop::Loss, packet, choice.original);
        } else {
            let second = choice.duplicate.map(|of| (packet.duplicate(), of));
            self.admit(packet, choice.original, false);
            if let Some((second, of)) = second {
                self.counts.duplicated += 1;
                self.admit(second, of, true);
            }
        }
        self.counts.arrived
    }

    /// The next outcome that is due at `now`. A packet may still be given to [`Link::enqueue`]
    /// afterwards that came before.
    pub fn poll(&mut self, now: MonotonicNs) -> Option<Outcome<P>> {
        self.polled = self.polled.max(now);
        self.settle(now);
        let outcome = self.line.pop(now)?;
        match outcome.fate {
            Fate::Departs => self.counts.departed += 1,
            Fate::Dropped(_) => self.counts.dropped += 1,
        }
        Some(outcome)
    }

    /// When [`Link::poll`] has something again if no packet comes before; `None`: not at all.
    /// Exact: it has nothing before, and something then.
    pub fn next_due(&self) -> Option<MonotonicNs> {
        let mut next = self.line.due();
        let mut floor = self.queue.floor();
        for (entry, turn) in self.queue.ahead() {
            if next.is_some_and(|next| next <= turn.begins) {
                break;
            }
            // CoDel drops nobody who has no more than a largest frame behind.
            let due = self.delay.due(turn.leaves, entry.onward, &mut floor);
            next = Some(next.map_or(due, |next| next.min(due)));
        }
        next
    }

    /// What has been through.
    pub fn counts(&self) -> Counts {
        Counts { held: (self.line.len() + self.queue.open()) as u64, ..self.counts }
    }

    /// What may be in the link at once.
    pub fn needs(&self) -> Needs {
        let jitter = self.settings.jitter.as_ref().map_or(0, |jitter| jitter.ns);
        let high = (jitter as f64 * self.choices.high_deviate()).ceil() as u64;
        Needs { queue: self.queue.limit(), line_ns: self.delay.longest_ns().saturating_add(high) }
    }

    /// The longest that a packet stays in the link by these settings, but for one jittered packet
    /// in a million: behind a full queue, and then on the line.
    pub fn longest_ns(&self) -> u64 {
        let Needs { queue, line_ns } = self.needs();
        let waits_ns = match (queue, self.queue.service().mean_bps()) {
            (Some(Limit::TimeNs(ns)), _) => ns,
            (Some(limit), Some(bps)) => {
                let bytes = match limit {
                    Limit::Packets(packets) => {
                        packets as f64 * self.settings.largest_frame() as f64
                    }
                    Limit::Bytes(bytes) => bytes as f64,
                    Limit::TimeNs(_) => 0.0,
                };
                // A number that is too large becomes the largest.
                (bytes * 8e9 / bps).ceil() as u64
            }
            (None, _) | (_, None) => 0,
        };
        waits_ns.saturating_add(line_ns)
    }

    /// Nothing is planned.
    fn begin(&mut self, now: MonotonicNs) {
        self.begun = true;
        self.choices.restart();
        self.delay.restart(now);
        self.queue.restart(now);
    }

    fn advance(&mut self, now: MonotonicNs) {
        self.now = self.now.max(now);
        self.settle(self.now);
        self.queue.advance(self.now);
    }

    /// Hands on to the line what becomes of those at the head of the queue.
    fn settle(&mut self, now: MonotonicNs) {
        while let Some((mut entry, turn)) = self.queue.take_turn(now) {
            entry.leaves = turn.leaves;
            if turn.dropped {
                entry.outcome.fate = Fate::Dropped(Drop::Codel);
                entry.outcome.due = turn.leaves;
            } else {
                let floor = self.queue.floor_mut();
                entry.outcome.due = self.delay.due(turn.leaves, entry.onward, floor);
            }
            self.line.push(entry);
        }
    }

    /// Back to what has happened until `now`.
    fn take_back(&mut self, now: MonotonicNs) {
        self.advance(now.max(self.polled));
        let waiting = self.line.take_waiting(self.now);
        self.queue.take_back(waiting);
    }

    fn admit(&mut self, mut packet: P, of: OfCopy, duplicate: bool) {
        if let Some(bit) = of.flip {
            packet.flip(bit);
        }
        let size = packet.size() as u64;
        let mut entry = self.entry(packet, of, duplicate);
        if self.queue.admits(self.now, size) {
            self.queue.push(entry);
            self.settle(self.now);
        } else {
            entry.outcome.fate = Fate::Dropped(Drop::Queue);
            self.line.push(entry);
        }
    }

    fn drop(&mut self, drop: Drop, packet: P, of: OfCopy) {
        let mut entry = self.entry(packet, OfCopy { flip: None, ..of }, false);
        entry.outcome.fate = Fate::Dropped(drop);
        self.line.push(entry);
    }

    /// The entry of the packet that arrives now.
    fn entry(&self, packet: P, of: OfCopy, duplicate: bool) -> Entry<P> {
        let outcome = Outcome {
            packet,
            number: self.counts.arrived,
            enqueued: self.now,
            due: self.now,
            fate: Fate::Departs,
            duplicate,
            corrupted: of.flip.is_some(),
        };
        Entry::new(outcome, of.onward)
    }
}
