//! A switch between emulated links: frames and the time go in, frames come out.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use loopscope_time::MonotonicNs;
use serde::Serialize;
use serde_json::{Map, Value};

use super::course::Links;
use super::events::{self, Place};
use crate::EmulateError;
use crate::address::Address;
use crate::frame::{self, Frame};
use crate::hosts::Hosts;
use crate::model::{Fate, Link, Outcome, Packet as _};
use crate::mover::endpoint;
use crate::record::{Achieved, Left, Record};
use crate::settings::{Document, MessageField, Settings};

/// Addresses that the switch learns; what lies beyond goes to all ports.
const ADDRESSES: usize = 1 << 14;

/// A switch with a link from each port to each other one.
#[derive(Debug)]
pub struct Router {
    hosts: Hosts,
    seed: u64,
    /// The host that impairs what it sends itself, and nothing else.
    sender: Option<String>,
    /// The host that forwards what others send.
    router: Option<String>,
    message: MessageField,
    /// Frames to addresses that no bridge forwards, by port.
    reserved: Vec<u64>,
    start: MonotonicNs,
    table: HashMap<Address, usize>,
    /// From each to each, by [`Router::index`]; made when first needed where the document has none.
    wires: Vec<Option<Box<Wire>>>,
    /// When which wire is to be looked at. Entries other than its wire's `agreed` are void.
    agenda: BinaryHeap<Reverse<(MonotonicNs, usize)>>,
}

#[derive(Debug)]
struct Wire {
    link: Link<Frame>,
    record: Record,
    /// Packets that came.
    number: u64,
    asked_for: bool,
    agreed: Option<MonotonicNs>,
}

/// A packet whose time has come.
#[derive(Debug)]
pub struct Departure {
    /// Where it came in.
    pub from: usize,
    /// Where it goes out.
    pub to: usize,
    /// The packet.
    pub outcome: Outcome<Frame>,
    /// Set by the mover where it has to give it up.
    pub lost: bool,
}

/// A link and what became of its packets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// Host.
    pub from: String,
    /// Host.
    pub to: String,
    /// Oldest first.
    pub segments: Vec<Achieved>,
}

impl Shown {
    pub(crate) fn new(hosts: &Hosts, link: usize, segments: Vec<Achieved>) -> Shown {
        let (from, to) = hosts.ports(link);
        let name = |port: usize| hosts.names()[port].clone();
        Shown { from: name(from), to: name(to), segments }
    }
}

impl Router {
    /// A router for the document's ports and links, used from `now` on.
    pub fn new(document: &Document, now: MonotonicNs) -> Result<Router, EmulateError> {
        let hosts = Hosts::of(document)?;
        let mut wires = Vec::new();
        wires.resize_with(hosts.count() * hosts.count(), || None);
        let mut router = Router {
            hosts,
            seed: document.seed,
            sender: document.sender.clone(),
            router: document.router.clone(),
            message: document.message,
            reserved: vec![0; document.ports.len()],
            start: now,
            table: known(document),
            wires,
            agenda: BinaryHeap::new(),
        };
        router.hosts.clone().each_link(document, |index, link| {
            router.wires[index] = Some(router.wire(index, link.settings.clone(), true)?);
            Ok(())
        })?;
        Ok(router)
    }

    /// A frame came in by port `from`. Earlier than the last one it must not be.
    pub fn arrive(&mut self, now: MonotonicNs, from: usize, frame: Frame) {
        let (Some(source), Some(destination)) =
            (frame::source(frame.bytes()), frame::destination(frame.bytes()))
        else {
            return;
        };
        if !source.is_group() && (self.table.len() < ADDRESSES || self.table.contains_key(&source))
        {
            self.table.insert(source, from);
        }
        if destination.is_reserved() {
            self.reserved[from] += 1;
            return;
        }
        match self.table.get(&destination) {
            Some(to) if !destination.is_group() => {
                // One that its own port has asked for has arrived already.
                if *to != from {
                    self.enqueue(now, from, *to, frame);
                }
            }
            _ => {
                let last = (0..self.hosts.count()).rev().find(|to| *to != from);
                for to in 0..self.hosts.count() {
                    if to != from && Some(to) != last {
                        self.enqueue(now, from, to, frame.duplicate());
                    }
                }
                if let Some(to) = last {
                    self.enqueue(now, from, to, frame);
                }
            }
        }
    }

    /// Frames that came in by each port to addresses that no bridge forwards.
    pub fn reserved(&self) -> &[u64] {
        &self.reserved
    }

    fn enqueue(&mut self, now: MonotonicNs, from: usize, to: usize, frame: Frame) {
        let index = self.hosts.index(from, to);
        if self.wires[index].is_none() {
            // Without impairments nothing can be wrong with it.
            self.wires[index] = self.wire(index, Settings::default(), false).ok();
        }
        let Some(wire) = &mut self.wires[index] else { return };
        wire.record.came(now, frame.size());
        wire.number += 1;
        events::enqueued(Place { number: wire.number, from, to }, &frame, self.message, now);
        wire.link.enqueue(now, frame);
        self.agree(index);
    }

    /// When [`Router::depart`] has something again; `None`: not before a frame comes.
    pub fn next_due(&mut self) -> Option<MonotonicNs> {
        while let Some(Reverse((at, index))) = self.agenda.peek() {
            if self.wires[*index].as_ref().is_some_and(|wire| wire.agreed == Some(*at)) {
                return Some(*at);
            }
            self.agenda.pop();
        }
        None
    }

    /// Appends what is due to `out`, in the order of its times, until there are `limit`.
    pub fn depart(&mut self, now: MonotonicNs, out: &mut Vec<Departure>, limit: usize) {
        while out.len() < limit
            && let Some(due) = self.next_due()
            && due <= now
            && let Some(Reverse((_, index))) = self.agenda.pop()
        {
            let (from, to) = self.hosts.ports(index);
            let Some(wire) = &mut self.wires[index] else { continue };
            wire.agreed = None;
            // Not at `now`: frames whose stamps are earlier may still come.
            if let Some(outcome) = wire.link.poll(due) {
                match outcome.fate {
                    Fate::Departs => out.push(Departure { from, to, outcome, lost: false }),
                    Fate::Dropped(cause) => {
                        let place = Place { number: outcome.number, from, to };
                        wire.record.dropped(&outcome, Some(cause));
                        events::dropped(place, &outcome.packet, self.message, Some(cause));
                    }
                }
            }
            self.agree(index);
        }
    }

    /// The mover has sent it, or lost it: the kernel got it at `given` and had it by `at`.
    pub fn departed(&mut self, departure: &Departure, given: MonotonicNs, at: MonotonicNs) {
        let Departure { from, to, outcome, lost } = departure;
        let index = self.hosts.index(*from, *to);
        let Some(wire) = &mut self.wires[index] else { return };
        let place = Place { number: outcome.number, from: *from, to: *to };
        if *lost {
            wire.record.dropped(outcome, None);
            events::dropped(place, &outcome.packet, self.message, None);
        } else {
            wire.record.left(&Left::of(outcome, at));
            events::departed(place, outcome, self.message, given);
        }
    }

    /// Takes what has not left out of the links, and counts it. The end.
    pub fn close(&mut self) {
        for wire in self.wires.iter_mut().flatten() {
            while let Some(outcome) = wire.link.poll(MonotonicNs(u64::MAX)) {
                wire.record.queued(&outcome);
            }
        }
    }

    /// Has the wire looked at when it next has something.
    fn agree(&mut self, index: usize) {
        let Some(wire) = &mut self.wires[index] else { return };
        let due = wire.link.next_due();
        if due != wire.agreed {
            wire.agreed = due;
            self.agenda.extend(due.map(|due| Reverse((due, index))));
        }
    }

    fn wire(&self, index: usize, asked: Settings, asked_for: bool) -> Result<Box<Wire>, String> {
        let name = self.hosts.link(index);
        let record = Record::new(self.start, asked.clone());
        let link = Link::new(asked, self.seed, &name)?;
        Ok(Box::new(Wire { link, record, asked_for, agreed: None, number: 0 }))
    }
}

/// The addresses that are known before any frame comes, so that none is sent to all ports: those of
/// the hosts' ends, or those that a host of its own gives the others.
fn known(document: &Document) -> HashMap<Address, usize> {
    let is_host = document.sender.is_some() || document.router.is_some();
    let own = |port| is_host.then(|| endpoint::address(port));
    let ports = document.ports.iter().enumerate();
    ports.filter_map(|(port, its)| Some((its.address.or_else(|| own(port))?, port))).collect()
}

impl Links for Router {
    fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    fn set(
        &mut self,
        now: MonotonicNs,
        (from, to): (usize, usize),
        change: &Map<String, Value>,
    ) -> Result<Settings, String> {
        if let Some(sender) = &self.sender
            && self.hosts.names()[from] != *sender
        {
            let other = &self.hosts.names()[from];
            return Err(format!("this is {sender}'s side: {other} impairs what it sends itself"));
        }
        if let Some(router) = &self.router
            && self.hosts.names()[to] == *router
        {
            return Err(format!("{router} forwards: what is sent to it passes no link"));
        }
        let index = self.hosts.index(from, to);
        if self.wires[index].is_none() {
            self.wires[index] = Some(self.wire(index, Settings::default(), false)?);
        }
        let Some(wire) = &mut self.wires[index] else { return Err("there is no such link".into()) };
        let settings = wire.link.settings().changed(change)?;
        wire.link.set(now, settings.clone())?;
        wire.asked_for = true;
        let segment = wire.record.set(now, settings.clone());
        events::set(segment, from, to);
        self.agree(index);
        Ok(settings)
    }

    fn shown(&self, start: MonotonicNs) -> Vec<Shown> {
        let each = |(index, wire): (usize, &Option<Box<Wire>>)| {
            let wire = wire.as_ref().filter(|wire| wire.asked_for || wire.record.is_used())?;
            Some(Shown::new(&self.hosts, index, wire.record.achieved(start)))
        };
        self.wires.iter().enumerate().filter_map(each).collect()
    }

    fn restart(&mut self, now: MonotonicNs) {
        for index in 0..self.wires.len() {
            if let Some(wire) = &mut self.wires[index] {
                wire.link.restart(now);
                self.agree(index);
            }
        }
    }
}
