//! What is consumed, and what becomes of items that nobody wants any more.

use std::ops::Range;

use crate::channel::{Channel, NO_INPUT};
use crate::layout::{AHEAD, ALL_AHEAD, COLLECTED, FLOOR, HELD, HIDDEN, INPUTS, LATE, Set, VISIBLE};
use crate::ring::Ring;
use crate::types::{Collected, ConsumeError, InputId, Orphans, Time};
use crate::words::Words;

impl<W: Words> Channel<W> {
    /// Consumes one time for a connection.
    ///
    /// # Errors
    /// The connection has left, or too many times without an item are consumed.
    pub fn consume(&mut self, input: InputId, time: Time) -> Result<(), ConsumeError> {
        self.whole(|channel| {
            let place = channel.input(input).ok_or(ConsumeError::NotConnected)?;
            if let Ok(at) = channel.find(time) {
                channel.remove(channel.slot_at(at), Set::Wanted, place);
                channel.collect_one(at);
                return Ok(());
            }
            let late = channel.memory.time(LATE);
            let floor = channel.memory.time(channel.layout.floor(place)).max(late);
            if time < floor
                || channel.is_gone(time)
                || channel.consumed_ahead(place, time).is_some()
            {
                return Ok(());
            }
            let most = channel.layout.config.ahead as usize;
            if channel.ahead(place) >= most {
                channel.forget_ahead(place, late);
            }
            let count = channel.ahead(place);
            if count >= most {
                return Err(ConsumeError::TooManyAhead);
            }
            channel.memory.set_time(channel.layout.ahead(place, count), time);
            channel.memory.set(channel.layout.input(place, AHEAD), count as u64 + 1);
            let every = channel.memory.get(ALL_AHEAD);
            channel.memory.set(ALL_AHEAD, every + 1);
            Ok(())
        })
    }

    /// Consumes all times up to one for a connection.
    ///
    /// # Errors
    /// The connection has left.
    pub fn consume_until(&mut self, input: InputId, time: Time) -> Result<(), ConsumeError> {
        self.whole(|channel| {
            let place = channel.input(input).ok_or(ConsumeError::NotConnected)?;
            channel.consume_below(place, time.saturating_add(1));
            Ok(())
        })
    }

    /// Ends the hold of the item of a time.
    ///
    /// # Errors
    /// The connection has left, or holds none.
    pub fn release(&mut self, input: InputId, time: Time) -> Result<(), ConsumeError> {
        self.whole(|channel| {
            let place = channel.any_input(input).ok_or(ConsumeError::NotConnected)?;
            let at = channel.find(time).map_err(|_| ConsumeError::NotHeld)?;
            let slot = channel.slot_at(at);
            if !channel.has(slot, Set::Held, place) {
                return Err(ConsumeError::NotHeld);
            }
            channel.remove(slot, Set::Held, place);
            let held = channel.layout.input(place, HELD);
            let count = channel.memory.get(held);
            channel.memory.set(held, count - 1);
            channel.collect_one(at);
            Ok(())
        })
    }

    /// Raises the floor of an input connection.
    pub(crate) fn consume_below(&mut self, place: usize, floor: Time) {
        let at = self.layout.floor(place);
        let before = self.memory.time(at);
        if floor <= before {
            return;
        }
        self.memory.set_time(at, floor);
        self.forget_ahead(place, floor);
        // It wants nothing below the floor that it had.
        let passed = self.first_from(before)..self.first_from(floor);
        for at in passed.clone() {
            self.remove(self.slot_at(at), Set::Wanted, place);
        }
        if before == self.memory.time(FLOOR) {
            self.raise_floor();
        }
        self.collect(passed);
    }

    /// Forgets the times below a floor that a connection has consumed without an item.
    pub(crate) fn forget_ahead(&mut self, place: usize, floor: Time) {
        for number in (0..self.ahead(place)).rev() {
            if self.memory.time(self.layout.ahead(place, number)) < floor {
                self.forget(place, number);
            }
        }
    }

    /// Forgets all times that a connection has consumed without an item.
    pub(crate) fn forget_all_ahead(&mut self, place: usize) {
        let count = self.ahead(place) as u64;
        let every = self.memory.get(ALL_AHEAD);
        self.memory.set(ALL_AHEAD, every - count);
        self.memory.set(self.layout.input(place, AHEAD), 0);
    }

    /// Forgets one of these times; the last one takes its place.
    pub(crate) fn forget(&mut self, place: usize, number: usize) {
        let at = self.layout.input(place, AHEAD);
        let last = self.memory.get(at) - 1;
        let time = self.memory.time(self.layout.ahead(place, last as usize));
        self.memory.set_time(self.layout.ahead(place, number), time);
        self.memory.set(at, last);
        let every = self.memory.get(ALL_AHEAD);
        self.memory.set(ALL_AHEAD, every - 1);
    }

    /// The number of a time among those that a connection has consumed without an item.
    pub(crate) fn consumed_ahead(&self, place: usize, time: Time) -> Option<usize> {
        (0..self.ahead(place))
            .find(|number| self.memory.time(self.layout.ahead(place, *number)) == time)
    }

    /// How many times a connection has consumed without an item.
    fn ahead(&self, place: usize) -> usize {
        // Mostly no connection has any, and one word tells so.
        match self.memory.get(ALL_AHEAD) {
            0 => 0,
            _ => self.memory.get(self.layout.input(place, AHEAD)) as usize,
        }
    }

    /// Raises the channel's floor to the lowest of its input connections.
    pub(crate) fn raise_floor(&mut self) {
        let floors = (0..self.layout.config.inputs as usize).map(|place| self.layout.floor(place));
        let lowest = floors.map(|at| self.memory.time(at)).min().unwrap_or(NO_INPUT);
        // A connection's own floor may be as high as this; then nothing of the channel is lower.
        if self.memory.get(INPUTS) == 0 || lowest <= self.memory.time(FLOOR) {
            return;
        }
        self.memory.set_time(FLOOR, lowest);
        let late = self.memory.time(LATE).max(lowest);
        self.memory.set_time(LATE, late);
        let gone = self.gone();
        let count = gone.partition(&self.memory, |time| time.cast_signed() < lowest);
        gone.drop_first(&mut self.memory, count);
    }

    /// Collects the item of a place if nobody wants it.
    fn collect_one(&mut self, at: usize) {
        let slot = self.slot_at(at);
        let (time, was_visible) = (self.slot_time(slot), self.state(slot) == VISIBLE);
        if !self.is_unwanted(slot) {
            return;
        }
        if self.is_empty(slot, Set::Held) {
            self.items().remove(&mut self.memory, at);
            self.collected(slot, time, false);
        } else {
            self.set_state(slot, HIDDEN);
        }
        if was_visible {
            self.remember(&[time]);
        }
    }

    /// Collects the items of some places that nobody wants.
    pub(crate) fn collect(&mut self, places: Range<usize>) {
        let items = self.items();
        let mut gone = vec![];
        // Items that stay move up, onto those that do not.
        let mut into = places.end;
        for at in places.clone().rev() {
            let slot = self.slot_at(at);
            if self.is_unwanted(slot) {
                if self.state(slot) == VISIBLE {
                    gone.push(self.slot_time(slot));
                }
                if self.is_empty(slot, Set::Held) {
                    self.collected(slot, self.slot_time(slot), false);
                    continue;
                }
                self.set_state(slot, HIDDEN);
            }
            into -= 1;
            items.copy(&mut self.memory, at, into);
        }
        let freed = into - places.start;
        if freed > 0 {
            for at in (0..places.start).rev() {
                items.copy(&mut self.memory, at, at + freed);
            }
            items.drop_first(&mut self.memory, freed);
        }
        gone.reverse();
        self.remember(&gone);
    }

    fn is_unwanted(&self, slot: usize) -> bool {
        self.is_empty(slot, Set::Wanted)
            && (self.state(slot) == HIDDEN
                || self.memory.get(INPUTS) > 0
                || self.layout.config.orphans == Orphans::Discard)
    }

    /// Frees a slot whose item was put; `dropped`: to make room.
    pub(crate) fn collected(&mut self, slot: usize, time: Time, dropped: bool) {
        if let Some(told) = &mut self.told {
            told.push(Collected { time, dropped });
        }
        let collected = self.memory.get(COLLECTED);
        self.memory.set(COLLECTED, collected + 1);
        self.free(slot);
    }

    /// Gone times above the channel's floor, in their order.
    pub(crate) fn gone(&self) -> Ring {
        Ring::new(self.layout.gone())
    }

    pub(crate) fn is_gone(&self, time: Time) -> bool {
        let gone = self.gone();
        let at = gone.partition(&self.memory, |each| each.cast_signed() < time);
        at < gone.len(&self.memory) && gone.get(&self.memory, at).cast_signed() == time
    }

    /// Remembers that times are gone, which are in their order.
    ///
    /// Where these are too many the lowest are forgotten, and are late from then on.
    pub(crate) fn remember(&mut self, times: &[Time]) {
        let late = self.memory.time(LATE);
        let news = &times[times.partition_point(|time| *time < late)..];
        let Some(first) = news.first() else {
            return;
        };
        // Those that are above all the new ones stay where they are.
        let gone = self.gone();
        let below = gone.partition(&self.memory, |each| each.cast_signed() < *first);
        let length = gone.len(&self.memory);
        let mut after: Vec<_> =
            (below..length).map(|at| gone.get(&self.memory, at).cast_signed()).collect();
        after.extend(news);
        after.sort_unstable();
        let forgotten = (below + after.len()).saturating_sub(self.layout.gone().2);
        if forgotten > 0 {
            let last = match forgotten.checked_sub(below + 1) {
                Some(place) => after[place],
                None => gone.get(&self.memory, forgotten - 1).cast_signed(),
            };
            self.memory.set_time(LATE, late.max(last + 1));
        }
        let kept = below.saturating_sub(forgotten);
        gone.drop_first(&mut self.memory, below - kept);
        let after = &after[forgotten.saturating_sub(below)..];
        gone.replace_from(&mut self.memory, kept, after.iter().map(|time| time.cast_unsigned()));
    }

    /// Whether the item of a time is not collected yet; it may be gone and held.
    pub fn has_item(&self, time: Time) -> bool {
        self.find(time).is_ok()
    }

    /// The place of the item of a time; else the place that it would have.
    pub(crate) fn find(&self, time: Time) -> Result<usize, usize> {
        let at = self.first_from(time);
        let is_there =
            at < self.items().len(&self.memory) && self.slot_time(self.slot_at(at)) == time;
        if is_there { Ok(at) } else { Err(at) }
    }

    /// How many items have lower times.
    pub(crate) fn first_from(&self, time: Time) -> usize {
        self.items().partition(&self.memory, |slot| self.slot_time(slot as usize) < time)
    }
}
