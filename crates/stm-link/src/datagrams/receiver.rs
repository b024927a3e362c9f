//! Puts items together that come in datagrams, and says which datagrams have come.

use std::collections::{BTreeMap, BTreeSet};

use loopscope_stm::NewItem;

use crate::datagrams::packet::{PART, Part, RANGES, parts_of};
use crate::datagrams::sender::ACKNOWLEDGED_WITHIN_NS;

/// An acknowledgement is sent after so many datagrams at the latest.
const ACKNOWLEDGED_AFTER: u32 = 8;
/// The number of items that may be on their way at one time; a datagram of a later one is ignored.
const MOST_ITEMS: u64 = 4096;
const MOST_NUMBERS: u64 = 1 << 63;

/// The items that come to a mirror from its home.
pub(crate) struct Receiver {
    item_bytes: usize,
    coming: BTreeMap<u64, Coming>,
    /// All items below it are settled: they are whole, or given up.
    floor: u64,
    settled: BTreeSet<u64>,
    /// Datagrams that have come: ranges, from and to.
    came: BTreeMap<u64, u64>,
    unsaid: u32,
    says_at: Option<i64>,
}

struct Coming {
    item: NewItem,
    bytes: Vec<u8>,
    has_come: Vec<bool>,
    left: u32,
}

/// An item all of whose bytes have come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) serial: u64,
    pub(crate) item: NewItem,
    pub(crate) bytes: Vec<u8>,
}

impl Receiver {
    /// One of a channel whose items have so many bytes at most.
    pub(crate) fn new(item_bytes: usize) -> Receiver {
        Receiver {
            item_bytes,
            coming: BTreeMap::new(),
            floor: 0,
            settled: BTreeSet::new(),
            came: BTreeMap::new(),
            unsaid: 0,
            says_at: None,
        }
    }

    /// Takes what a datagram has; the item, if that makes it whole.
    ///
    /// # Errors
    /// What it says of the item cannot be, or is not what another datagram has said.
    pub(crate) fn arrives(
        &mut self,
        now: i64,
        part: &Part,
        bytes: &[u8],
    ) -> Result<Option<Whole>, &'static str> {
        let Part { number, serial, item, part } = *part;
        let length = item.length as usize;
        let from = part as usize * PART;
        let parts = parts_of(item.length);
        if length > self.item_bytes || part >= parts || bytes.len() != (length - from).min(PART) {
            return Err("a datagram has other bytes than its item");
        }
        if number >= MOST_NUMBERS {
            return Err("a datagram has a number that none can have");
        }
        if serial - self.floor.min(serial) >= MOST_ITEMS {
            // As if it had been lost.
            return Ok(None);
        }
        let is_next = self.came.last_key_value().is_none_or(|(_, to)| number == to + 1);
        self.count(number);
        self.unsaid += 1;
        let whole = self.keeps(serial, item, part, bytes)?;
        let soon = !is_next || self.unsaid >= ACKNOWLEDGED_AFTER || whole.is_some();
        let by = if soon { now } else { now.saturating_add(ACKNOWLEDGED_WITHIN_NS) };
        self.says_at = Some(self.says_at.map_or(by, |at| at.min(by)));
        Ok(whole)
    }

    /// The datagrams that have come, the latest first, if it is time to say so.
    pub(crate) fn acknowledges(&mut self, now: i64) -> Option<Vec<(u64, u64)>> {
        self.says_at.filter(|at| *at <= now)?;
        (self.says_at, self.unsaid) = (None, 0);
        Some(self.came.iter().rev().take(RANGES).map(|(from, to)| (*from, *to)).collect())
    }

    /// When `acknowledges` has something to say.
    pub(crate) fn says_at(&self) -> Option<i64> {
        self.says_at
    }

    /// Does not wait for the rest of an item any more.
    pub(crate) fn give_up(&mut self, serial: u64) {
        self.coming.remove(&serial);
        self.settle(serial);
    }

    /// Whether an item is whole or given up.
    pub(crate) fn is_settled(&self, serial: u64) -> bool {
        serial < self.floor || self.settled.contains(&serial)
    }

    fn keeps(
        &mut self,
        serial: u64,
        item: NewItem,
        part: u32,
        bytes: &[u8],
    ) -> Result<Option<Whole>, &'static str> {
        if self.is_settled(serial) {
            return Ok(None);
        }
        let coming = self.coming.entry(serial).or_insert_with(|| {
            let parts = parts_of(item.length);
            let has_come = vec![false; parts as usize];
            Coming { item, bytes: vec![0; item.length as usize], has_come, left: parts }
        });
        if coming.item != item {
            return Err("two datagrams differ about an item");
        }
        if !std::mem::replace(&mut coming.has_come[part as usize], true) {
            let from = part as usize * PART;
            coming.bytes[from..from + bytes.len()].copy_from_slice(bytes);
            coming.left -= 1;
        }
        if coming.left > 0 {
            return Ok(None);
        }
        let whole = self.coming.remove(&serial);
        self.settle(serial);
        Ok(whole.map(|Coming { item, bytes, .. }| Whole { serial, item, bytes }))
    }

    fn settle(&mut self, serial: u64) {
        if serial >= self.floor {
            self.settled.insert(serial);
        }
        while self.settled.remove(&self.floor) {
            self.floor += 1;
        }
    }

    /// Adds a datagram's number to the ranges. The lowest ones are forgotten if there are many.
    fn count(&mut self, number: u64) {
        let before = self.came.range(..=number).next_back().map(|(from, to)| (*from, *to));
        let joined = match before {
            Some((_, to)) if to >= number => return,
            Some((from, to)) if to + 1 == number => from,
            _ => number,
        };
        let end = self.came.remove(&(number + 1)).unwrap_or(number);
        self.came.insert(joined, end);
        while self.came.len() > RANGES {
            self.came.pop_first();
        }
    }
}
