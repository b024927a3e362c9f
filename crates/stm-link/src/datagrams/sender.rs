//! Sends items in datagrams, and again what was lost, until each item's deadline.
//!
//! What is acknowledged, when a datagram is taken for lost and how many may be on their way is as in
//! RFC 9002 (packet threshold, time threshold, probe timeout, NewReno), where one reads *bytes*, here
//! datagrams. Instants are nanoseconds of any clock.

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
/// Datagrams on their way at first, and at least.
const FIRST_WINDOW: f64 = 32.0;
const LEAST_WINDOW: f64 = 8.0;
/// Probes without an answer after which all that was sent is taken for lost.
const MOST_PROBES: u32 = 6;

/// A home's side.
pub(crate) struct Sender {
    items: BTreeMap<u64, Sending>,
    /// Items of which nothing was sent; the latest is sent first.
    waiting: Vec<u64>,
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
    /// Datagrams that may be on their way, and above what it grows slowly.
    window: f64,
    threshold: f64,
    /// The loss of a datagram that was sent before this one is that of the same moment.
    recovers: u64,
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

#[derive(Clone, Copy)]
struct Rtt {
    smoothed: i64,
    variation: i64,
    latest: i64,
}

impl Sender {
    pub(crate) fn new() -> Sender {
        Sender {
            items: BTreeMap::new(),
            waiting: vec![],
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
            recovers: 0,
            rtt: None,
            waits_since: 0,
            probes: 0,
            extra: 0,
        }
    }

    /// Takes an item that is to be there before its deadline; its number.
    pub(crate) fn offer(&mut self, item: NewItem, bytes: &[u8], deadline: i64) -> u64 {
        let (serial, parts) = (self.next_serial, parts_of(item.length));
        self.next_serial += 1;
        let has_come = vec![false; parts as usize];
        let sending = Sending { item, bytes: bytes.to_vec(), deadline, has_come, left: parts };
        self.items.insert(serial, sending);
        self.waiting.push(serial);
        serial
    }

    /// The next datagram that may be sent now, and its bytes.
    ///
    /// Where more is to be sent than can be, the latest item is sent after the one that was begun, so that
    /// not all are late.
    pub(crate) fn next(&mut self, now: i64) -> Option<(Part, &[u8])> {
        self.items.retain(|_, sending| sending.deadline > now);
        if self.extra == 0 && self.on_their_way.len() as f64 >= self.window {
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
            self.current = Some((self.waiting.pop()?, 0));
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
                    self.measured(now.saturating_sub(sent.at));
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
        let is_fast = self.window < self.threshold;
        self.window += if is_fast { f64::from(came) } else { f64::from(came) / self.window };
        self.finds_lost(now);
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
        if lost.last().is_some_and(|last| *last >= self.recovers) {
            self.recovers = self.next_number;
            self.window = (self.window / 2.0).max(LEAST_WINDOW);
            self.threshold = self.window;
        }
        self.lose(&lost);
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

    fn measured(&mut self, latest: i64) {
        let latest = latest.max(0);
        // RFC 9002, 5.3.
        self.rtt = Some(match self.rtt {
            None => Rtt { smoothed: latest, variation: latest / 2, latest },
            Some(Rtt { smoothed, variation, .. }) => Rtt {
                smoothed: (7 * smoothed + latest) / 8,
                variation: (3 * variation + (smoothed - latest).abs()) / 4,
                latest,
            },
        });
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
