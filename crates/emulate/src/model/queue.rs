//! What waits for its turn. A packet's leaving is planned as soon as nothing that may still come
//! can change it: with drop-tail on arrival, with CoDel once a largest frame stands behind it. Each
//! plan keeps what was before it, so that new settings can take back what has not yet happened.

use std::collections::VecDeque;

use loopscope_time::MonotonicNs;

use super::codel::Codel;
use super::delay::Delay;
use super::line::Entry;
use super::service::{Service, State};
use super::{Fate, Packet};
use crate::settings::{Discipline, Limit, Settings};

#[derive(Debug)]
pub(crate) struct Queue<P> {
    terms: Terms,
    walk: Walk,
    /// Packets in the line whose time of leaving is known.
    planned: VecDeque<Planned>,
    planned_bytes: u64,
    /// The others: at most a largest frame's bytes, and one packet.
    open: VecDeque<Entry<P>>,
    open_bytes: u64,
}

/// What settings say.
#[derive(Debug)]
pub(crate) struct Terms {
    service: Service,
    /// None: nothing waits.
    limit: Option<Limit>,
    codel: Option<Codel>,
    largest_frame: u64,
}

/// What goes on from packet to packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    state: State,
    codel: Option<Codel>,
    /// The latest that a packet is due: where order is kept the next ones are not before it.
    floor: MonotonicNs,
}

#[derive(Debug)]
struct Planned {
    leaves: MonotonicNs,
    size: u64,
    before: Walk,
}

/// What becomes of the packet at the head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// When that is decided.
    pub begins: MonotonicNs,
    /// When it has left, or been dropped.
    pub leaves: MonotonicNs,
    pub dropped: bool,
}

impl Terms {
    pub(crate) fn new(settings: &Settings, service: Service, delay: &Delay) -> Terms {
        let largest_frame = settings.largest_frame();
        let queue = settings.queue.as_ref();
        let asked = queue.and_then(|queue| queue.limit);
        let limit = service.mean_bps().map(|bps| {
            asked.unwrap_or_else(|| Limit::Bytes(default_bytes(bps, delay, largest_frame)))
        });
        let codel = match queue.map(|queue| queue.discipline) {
            Some(Discipline::Codel { target_ns, interval_ns }) => {
                Some(Codel::new(target_ns, interval_ns, largest_frame))
            }
            Some(Discipline::DropTail) | None => None,
        };
        Terms { service, limit, codel, largest_frame }
    }

    fn turn(&self, walk: &mut Walk, size: u64, arrived: MonotonicNs, behind: u64) -> Turn {
        let called = walk.codel.and_then(|codel| codel.called());
        let begins = called.unwrap_or_else(|| self.service.ready(walk.state, size, arrived));
        if walk.codel.as_mut().is_some_and(|codel| codel.drops(begins, arrived, behind)) {
            return Turn { begins, leaves: begins, dropped: true };
        }
        let leaves = self.service.serve(&mut walk.state, size, begins);
        Turn { begins, leaves, dropped: false }
    }
}

/// What senders that wait for answers have under way when they fill the rate: twice the delay, if
/// the way back is like the way there, and 20 ms for hosts and what else is on the way. Less would
/// drop behind their back what they need to fill it.
fn default_bytes(bps: f64, delay: &Delay, largest_frame: u64) -> u64 {
    const MORE_NS: f64 = 20e6;
    const LEAST_FRAMES: u64 = 100;
    let round_trip_ns = 2.0 * delay.usual_high_ns() as f64 + MORE_NS;
    ((bps / 8.0 * round_trip_ns / 1e9).ceil() as u64).max(LEAST_FRAMES * largest_frame)
}

impl<P: Packet> Queue<P> {
    /// Before nothing.
    pub(crate) fn new(now: MonotonicNs) -> Queue<P> {
        let plain = Settings::default();
        let terms = Terms::new(&plain, Service::Wire, &Delay::new(&plain, None, now));
        let walk = Walk { state: Service::Wire.begin(now), codel: None, floor: now };
        let (planned, open) = (VecDeque::new(), VecDeque::new());
        Queue { terms, walk, planned, planned_bytes: 0, open, open_bytes: 0 }
    }

    pub(crate) fn service(&self) -> &Service {
        &self.terms.service
    }

    pub(crate) fn limit(&self) -> Option<Limit> {
        self.terms.limit
    }

    /// The latest that a packet is due.
    pub(crate) fn floor(&self) -> MonotonicNs {
        self.walk.floor
    }

    pub(crate) fn floor_mut(&mut self) -> &mut MonotonicNs {
        &mut self.walk.floor
    }

    /// Forgets those that have left.
    pub(crate) fn advance(&mut self, now: MonotonicNs) {
        while let Some(first) = self.planned.front().filter(|first| first.leaves <= now) {
            self.planned_bytes -= first.size;
            self.planned.pop_front();
        }
    }

    /// Packets that wait without being in the line.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether a packet of this size has room. One that need not wait always has.
    pub(crate) fn admits(&self, now: MonotonicNs, size: u64) -> bool {
        let Some(limit) = self.terms.limit else {
            return true;
        };
        let mut state = self.walk.state;
        for entry in &self.open {
            self.terms.service.serve(&mut state, bytes(entry), entry.outcome.enqueued);
        }
        let leaves = self.terms.service.serve(&mut state, size, now);
        if leaves <= now {
            return true;
        }
        match limit {
            Limit::Packets(limit) => ((self.planned.len() + self.open.len()) as u64) < limit,
            Limit::Bytes(limit) => self.planned_bytes + self.open_bytes + size <= limit,
            Limit::TimeNs(limit) => leaves.0 - now.0 <= limit,
        }
    }

    pub(crate) fn push(&mut self, entry: Entry<P>) {
        self.open_bytes += bytes(&entry);
        self.open.push_back(entry);
    }

    /// The packet at the head and what becomes of it, if that is settled.
    pub(crate) fn take_turn(&mut self, now: MonotonicNs) -> Option<(Entry<P>, Turn)> {
        let first = self.open.front()?;
        let (size, arrived) = (bytes(first), first.outcome.enqueued);
        let behind = self.open_bytes - size;
        let before = self.walk;
        let turn = self.terms.turn(&mut self.walk, size, arrived, behind);
        if before.codel.is_some() && turn.begins > now && behind <= self.terms.largest_frame {
            self.walk = before;
            return None;
        }
        self.open_bytes = behind;
        if turn.leaves > now {
            self.planned_bytes += size;
            self.planned.push_back(Planned { leaves: turn.leaves, size, before });
        }
        Some((self.open.pop_front()?, turn))
    }

    /// What becomes of those that are open if nothing comes behind them.
    pub(crate) fn ahead(&self) -> impl Iterator<Item = (&Entry<P>, Turn)> {
        let mut walk = self.walk;
        let mut behind = self.open_bytes;
        self.open.iter().map(move |entry| {
            let size = bytes(entry);
            behind -= size;
            (entry, self.terms.turn(&mut walk, size, entry.outcome.enqueued, behind))
        })
    }

    /// Takes back what has been planned: `waiting`, from the line.
    pub(crate) fn take_back(&mut self, waiting: Vec<Entry<P>>) {
        if let Some(first) = self.planned.front() {
            self.walk = first.before;
        }
        self.planned.clear();
        self.planned_bytes = 0;
        for mut entry in waiting.into_iter().rev() {
            entry.outcome.fate = Fate::Departs;
            self.open_bytes += bytes(&entry);
            self.open.push_front(entry);
        }
    }

    /// Other terms from now on; nothing is planned.
    pub(crate) fn change(&mut self, now: MonotonicNs, terms: Terms) {
        self.walk.state = self.terms.service.hand_over(self.walk.state, &terms.service, now);
        if self.terms.codel != terms.codel {
            self.walk.codel = terms.codel;
        }
        self.terms = terms;
    }

    /// Opportunities begin anew; nothing is planned.
    pub(crate) fn restart(&mut self, now: MonotonicNs) {
        if self.terms.service.restart(now) {
            self.walk.state = self.terms.service.begin(now);
        }
    }
}

fn bytes<P: Packet>(entry: &Entry<P>) -> u64 {
    entry.outcome.packet.size() as u64
}
