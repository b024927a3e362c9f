//! Sends items in datagrams, and again what was lost, until each item's deadline.
//!
//! When a datagram is taken for lost, and what is done where nothing is acknowledged, is as in RFC 9002
//! (packet threshold, time threshold, probe timeout). How many may be on their way is told from the share
//! that is lost, as for live media (draft-ietf-rmcat-gcc-02, 6): below 2 % more, above 10 % fewer. So what a
//! wireless link loses does not make a stream slow. There are fewer, too, where answers take longer because
//! a queue has grown on the way. Instants are nanoseconds of any clock.

use std::collections::{BTreeMap, VecDeque};

use loopscope_stm::NewItem;

use crate::datagrams::packet::{Part, part_of, parts_of};

/// A datagram is lost if one that was sent so many later has come (RFC 9002, 6.1.1): at first, and at most,
/// where datagrams were found to overtake others.
const REORDERED: u64 = 3;
const MOST_REORDERED: u64 = 1000;
/// The least time that an answer takes to be late (RFC 9002, 6.1.2).
const GRANULARITY_NS: i64 = 1_000_000;
/// For how long a mirror may keep an acknowledgement back.
pub(crate) const ACKNOWLEDGED_WITHIN_NS: i64 = 1_000_000;
/// Before the first answer (RFC 9002, 6.2.2 has 333 ms, for the Internet).
const FIRST_RTT_NS: i64 = 20_000_000;
/// Datagrams that may be on their way at first, at least, and at most.
const FIRST_WINDOW: f64 = 32.0;
const LEAST_WINDOW: f64 = 8.0;
const MOST_WINDOW: f64 = 8192.0;
/// The share that is lost below which, and above which, the window changes.
const FEW_LOST: f64 = 0.02;
const MANY_LOST: f64 = 0.1;
/// What is added to the window in each round trip, if few are lost.
const GROWTH: f64 = 0.05;
/// A queue has grown where answers take the shortest time twice, and so much longer.
const QUEUED_NS: i64 = 10_000_000;
/// The window's share that is left then.
const WHERE_QUEUED: f64 = 0.85;
/// The shortest time of an answer is that of the last one or two such times.
const SHORTEST_OF_NS: i64 = 10_000_000_000;
/// Probes without an answer after which all that was sent is taken for lost.
const MOST_PROBES: u32 = 6;

/// The items that a home sends to one mirror, and what became of their datagrams.
pub(crate) struct Sender {
    items: BTreeMap<u64, Sending>,
    /// Items of which nothing was sent, no more than `most_waiting`; the latest is sent first.
    waiting: VecDeque<u64>,
    most_waiting: usize,
    /// The one that is being sent, and its next part.
    current: Option<(u64, u32)>,
    /// Parts that are to be sent again.
    again: VecDeque<(u64, u32)>,
    on_their_way: BTreeMap<u64, Sent>,
    /// Those that were taken for lost lately. One that comes after all was overtaken.
    lost: BTreeMap<u64, Sent>,
    reordered: u64,
    /// The largest number that has come.
    largest: Option<u64>,
    next_serial: u64,
    next_number: u64,
    /// The number of datagrams that may be on their way, and the number above which it grows slowly.
    window: f64,
    threshold: f64,
    trip: Trip,
    rtt: Option<Rtt>,
    /// Since when no answer has come, and how many probes were sent since.
    waits_since: i64,
    probes: u32,
    /// Probes that may be sent though the window is full.
    extra: u32,
}

struct Sending {
    item: NewItem,
    bytes: Vec<u8>,
    deadline: i64,
    has_come: Vec<bool>,
    left: u32,
}

struct Sent {
    serial: u64,
    part: u32,
    at: i64,
}

/// What became of datagrams since the window was looked at last.
#[derive(Default)]
struct Trip {
    /// It is looked at again when this one has come.
    until: u64,
    came: u32,
    lost: u32,
    /// Datagrams waited because as many were on their way as may be.
    was_full: bool,
}

#[derive(Clone, Copy)]
struct Rtt {
    smoothed: i64,
    variation: i64,
    latest: i64,
    /// The shortest ones of this time and of the one before, and since when this one is.
    shortest: [i64; 2],
    since: i64,
}

impl Sender {
    /// One that keeps so many items of which nothing was sent.
    pub(crate) fn new(most_waiting: usize) -> Sender {
        Sender {
            items: BTreeMap::new(),
            waiting: VecDeque::new(),
            most_waiting,
            current: None,
            again: VecDeque::new(),
            on_their_way: BTreeMap::new(),
            lost: BTreeMap::new(),
            reordered: REORDERED,
            largest: None,
            next_serial: 0,
            next_number: 0,
            window: FIRST_WINDOW,
            threshold: f64::INFINITY,
            trip: Trip::default(),
            rtt: None,
            waits_since: 0,
            probes: 0,
            extra: 0,
        }
    }

    /// Takes an item that is to be there before its deadline; its number.
    ///
    /// Where more items wait than may, see `gives_up`.
    pub(crate) fn offer(&mut self, item: NewItem, bytes: &[u8], deadline: i64) -> u64 {
        let (serial, parts) = (self.next_serial, parts_of(item.length));
        self.next_serial += 1;
        let has_come = vec![false; parts as usize];
        let sending = Sending { item, bytes: bytes.to_vec(), deadline, has_come, left: parts };
        self.items.insert(serial, sending);
        self.waiting.push_back(serial);
        serial
    }

    /// Gives up the oldest item of which nothing was sent, if more wait than may; its number.
    pub(crate) fn gives_up(&mut self) -> Option<u64> {
        while self.waiting.len() > self.most_waiting {
            let serial = self.waiting.pop_front()?;
            // The mirror knows of one that is late.
            if self.items.remove(&serial).is_some() {
                return Some(serial);
            }
        }
        None
    }

    /// The number of items that it has bytes of.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.items.len()
    }

    /// The next datagram that may be sent now, and its bytes.
    ///
    /// Where more is to be sent than can be, the latest item is sent after the one that was begun, so that
    /// not all are late.
    pub(crate) fn next(&mut self, now: i64) -> Option<(Part, &[u8])> {
        self.items.retain(|_, sending| sending.deadline > now);
        if self.extra == 0 && self.on_their_way.len() as f64 >= self.window {
            self.trip.was_full = true;
            return None;
        }
        let (serial, part) = self.next_part()?;
        self.extra = self.extra.saturating_sub(1);
        let number = self.next_number;
        self.next_number += 1;
        if self.on_their_way.is_empty() {
            self.waits_since = now;
        }
        self.on_their_way.insert(number, Sent { serial, part, at: now });
        let Sending { item, bytes, .. } = self.items.get(&serial)?;
        Some((Part { number, serial, item: *item, part }, part_of(part, bytes)))
    }

    fn next_part(&mut self) -> Option<(u64, u32)> {
        while let Some((serial, part)) = self.again.pop_front() {
            let sending = self.items.get(&serial);
            if sending.is_some_and(|sending| !sending.has_come[part as usize]) {
                return Some((serial, part));
            }
        }
        loop {
            if let Some((serial, part)) = self.current.take()
                && let Some(sending) = self.items.get(&serial)
                && (part as usize) < sending.has_come.len()
            {
                self.current = Some((serial, part + 1));
                return Some((serial, part));
            }
            self.current = Some((self.waiting.pop_back()?, 0));
        }
    }

    /// Learns which datagrams have come.
    pub(crate) fn acknowledged(&mut self, now: i64, ranges: &[(u64, u64)]) {
        let Some(last) = ranges.iter().map(|(_, to)| *to).max() else { return };
        if last >= self.next_number {
            // It was not sent.
            return;
        }
        let largest = self.largest.unwrap_or(0).max(last);
        self.largest = Some(largest);
        let mut came: u32 = 0;
        for (from, to) in ranges {
            for (number, sent) in taken(&mut self.on_their_way, *from, *to) {
                came += 1;
                if number == last {
                    self.measured(now, now.saturating_sub(sent.at));
                }
                self.has_come(&sent);
            }
            for (number, sent) in taken(&mut self.lost, *from, *to) {
                self.reordered = self.reordered.max(largest - number + 1).min(MOST_REORDERED);
                self.has_come(&sent);
            }
        }
        self.lost.retain(|number, _| number + 2 * MOST_REORDERED > largest);
        if came == 0 {
            return;
        }
        (self.waits_since, self.probes, self.extra) = (now, 0, 0);
        self.trip.came += came;
        self.finds_lost(now);
        if largest >= self.trip.until {
            self.has_tripped();
        }
    }

    /// When `timeout` has to be called, if nothing comes until then.
    pub(crate) fn wakes(&self) -> Option<i64> {
        let (number, oldest) = self.on_their_way.first_key_value()?;
        let probe = self.waits_since.saturating_add(self.probe_after());
        let is_overtaken = self.largest.is_some_and(|largest| *number < largest);
        let late = oldest.at.saturating_add(self.late_after());
        Some(if is_overtaken { late.min(probe) } else { probe })
    }

    /// Takes datagrams for lost, or sends probes, if it is time.
    pub(crate) fn timeout(&mut self, now: i64) {
        self.finds_lost(now);
        if self.on_their_way.is_empty() || now < self.waits_since.saturating_add(self.probe_after())
        {
            return;
        }
        self.waits_since = now;
        if self.probes == MOST_PROBES {
            let all: Vec<_> = self.on_their_way.keys().copied().collect();
            self.lose(&all);
            self.window = LEAST_WINDOW;
            return;
        }
        self.probes += 1;
        // The answer to them tells which of the others are lost.
        let oldest: Vec<_> =
            self.on_their_way.values().take(2).map(|sent| (sent.serial, sent.part)).collect();
        self.extra = oldest.len() as u32;
        oldest.into_iter().rev().for_each(|part| self.again.push_front(part));
    }

    fn has_come(&mut self, sent: &Sent) {
        let Some(sending) = self.items.get_mut(&sent.serial) else { return };
        if !std::mem::replace(&mut sending.has_come[sent.part as usize], true) {
            sending.left -= 1;
            if sending.left == 0 {
                self.items.remove(&sent.serial);
            }
        }
    }

    /// Takes for lost what was overtaken by too many or for too long.
    fn finds_lost(&mut self, now: i64) {
        let Some(largest) = self.largest else { return };
        let late = now.saturating_sub(self.late_after());
        let before = self.on_their_way.range(..largest);
        let is_lost = |(number, sent): &(&u64, &Sent)| {
            largest - **number >= self.reordered || sent.at <= late
        };
        let lost: Vec<_> = before.filter(is_lost).map(|each| *each.0).collect();
        self.trip.lost += lost.len() as u32;
        self.lose(&lost);
    }

    /// Looks at what was lost in a round trip.
    fn has_tripped(&mut self) {
        let Trip { came, lost, was_full, .. } = std::mem::take(&mut self.trip);
        self.trip.until = self.next_number;
        let share = f64::from(lost) / f64::from((came + lost).max(1));
        if share > MANY_LOST {
            self.window = (self.window * (1.0 - share / 2.0)).max(LEAST_WINDOW);
            self.threshold = self.window;
        } else if self.is_queued() {
            self.window = (self.window * WHERE_QUEUED).max(LEAST_WINDOW);
            self.threshold = self.window;
        } else if was_full && self.window < self.threshold {
            self.window = (self.window + f64::from(came)).min(MOST_WINDOW);
        } else if was_full && share < FEW_LOST {
            self.window = (self.window * (1.0 + GROWTH)).min(MOST_WINDOW);
        }
    }

    /// Sends datagrams again, before all others.
    fn lose(&mut self, numbers: &[u64]) {
        for number in numbers.iter().rev() {
            if let Some(sent) = self.on_their_way.remove(number) {
                self.again.push_front((sent.serial, sent.part));
                self.lost.insert(*number, sent);
            }
        }
    }

    fn measured(&mut self, now: i64, latest: i64) {
        let latest = latest.max(0);
        let mut rtt = self.rtt.unwrap_or(Rtt {
            smoothed: latest,
            variation: latest / 2,
            latest,
            shortest: [latest; 2],
            since: now,
        });
        // RFC 9002, 5.3.
        rtt.variation = (3 * rtt.variation + (rtt.smoothed - latest).abs()) / 4;
        rtt.smoothed = (7 * rtt.smoothed + latest) / 8;
        rtt.latest = latest;
        if now.saturating_sub(rtt.since) > SHORTEST_OF_NS {
            (rtt.shortest, rtt.since) = ([latest, rtt.shortest[0]], now);
        }
        rtt.shortest[0] = rtt.shortest[0].min(latest);
        self.rtt = Some(rtt);
    }

    /// Whether datagrams wait in a queue.
    fn is_queued(&self) -> bool {
        self.rtt.is_some_and(|rtt| {
            let shortest = rtt.shortest[0].min(rtt.shortest[1]);
            rtt.smoothed - shortest > shortest.max(QUEUED_NS)
        })
    }

    fn late_after(&self) -> i64 {
        let rtt = self.rtt.map_or(FIRST_RTT_NS, |rtt| rtt.smoothed.max(rtt.latest));
        (rtt + rtt / 8).max(GRANULARITY_NS)
    }

    fn probe_after(&self) -> i64 {
        let after = self.rtt.map_or(2 * FIRST_RTT_NS, |Rtt { smoothed, variation, .. }| {
            smoothed + (4 * variation).max(GRANULARITY_NS) + ACKNOWLEDGED_WITHIN_NS
        });
        after << self.probes
    }
}

/// Takes those of a range of numbers out of a map.
fn taken(of: &mut BTreeMap<u64, Sent>, from: u64, to: u64) -> Vec<(u64, Sent)> {
    let numbers: Vec<_> = of.range(from..=to).map(|each| *each.0).collect();
    numbers.into_iter().filter_map(|number| of.remove(&number).map(|sent| (number, sent))).collect()
}
