//! Putting an item.

use std::iter;

use crate::channel::Channel;
use crate::layout::{
    BOUND, DROPPED, INPUTS, LATE, LOSSY, LOST, NEXT, PUT, PUT_NS, SIZES, SKIPPED, Set, TIME,
    UNSEEN, VISIBLE,
};
use crate::types::{Full, NewItem, Orphans, OutputId, PutError, Slot, Time};
use crate::words::Words;

impl<W: Words> Channel<W> {
    /// Makes the item of a slot visible, which `loan` has returned.
    ///
    /// # Errors
    /// See [`PutError`]. The slot is still on loan then, if it was.
    pub fn put(&mut self, output: OutputId, slot: Slot, item: NewItem) -> Result<(), PutError> {
        self.whole(|channel| {
            let place = channel.output(output).ok_or(PutError::NotConnected)?;
            let slot = channel.loaned(place, slot).ok_or(PutError::NotLoaned)?;
            channel.put_loaned(place, slot, item)
        })
    }

    fn put_loaned(&mut self, place: usize, slot: usize, item: NewItem) -> Result<(), PutError> {
        let NewItem { time, half_width, length, put_ns } = item;
        if time == Time::MAX {
            return Err(PutError::OutOfRange);
        }
        let bound = self.memory.time(self.layout.output(place, BOUND));
        if time < bound || time < self.memory.time(LATE) || self.is_gone(time) {
            return Err(PutError::Late);
        }
        if self.find(time).is_ok() {
            // One that is gone but held has a gone time.
            return Err(PutError::Exists);
        }
        self.clear(slot, Set::Given);
        self.clear(slot, Set::Held);
        let has_inputs = self.memory.get(INPUTS) > 0;
        if !self.offer(slot, time) && has_inputs {
            return Err(PutError::Late);
        }
        let stays = has_inputs || self.layout.config.orphans == Orphans::Keep;
        if stays && self.items().len(&self.memory) >= self.layout.config.capacity as usize {
            self.make_room(time)?;
        }
        self.end_loan(place);
        let put = self.memory.get(PUT);
        self.memory.set(PUT, put + 1);
        let next = self.memory.time(NEXT).max(time + 1);
        self.memory.set_time(NEXT, next);
        if !stays {
            self.collected(slot);
            self.remember(&[time]);
            return Ok(());
        }
        self.memory.set_time(self.layout.slot(slot, TIME), time);
        self.memory
            .set(self.layout.slot(slot, SIZES), u64::from(half_width) << 32 | u64::from(length));
        self.memory.set(self.layout.slot(slot, PUT_NS), put_ns.cast_unsigned());
        self.set_state(slot, VISIBLE);
        // Its place may be another one since room was made.
        let at = self.first_from(time);
        self.items().insert(&mut self.memory, at, slot as u64);
        Ok(())
    }

    /// Enters which input connections want a slot's item; whether any does.
    fn offer(&mut self, slot: usize, time: Time) -> bool {
        let mut is_wanted = false;
        for (number, at) in self.layout.set(slot, Set::Wanted).enumerate() {
            let mut wanted = 0;
            for bit in 0..64.min(self.layout.config.inputs as usize - 64 * number) {
                let input = 64 * number + bit;
                if self.memory.time(self.layout.floor(input)) > time {
                    if time < self.memory.time(self.layout.input(input, UNSEEN)) {
                        self.add(input, SKIPPED);
                    }
                } else if let Some(number) = self.consumed_ahead(input, time) {
                    // From now on the item's own set says it.
                    self.forget(input, number);
                } else {
                    wanted |= 1 << bit;
                }
            }
            self.memory.set(at, wanted);
            is_wanted |= wanted != 0;
        }
        is_wanted
    }

    /// Drops an item for one of a time.
    fn make_room(&mut self, time: Time) -> Result<(), PutError> {
        let drops = self.layout.config.full == Full::Drop;
        let may_go = |at: &usize| {
            let slot = self.slot_at(*at);
            self.is_empty(slot, Set::Held) && (drops || self.is_for_lossy_alone(slot))
        };
        let at = self.visible().find(may_go).ok_or(PutError::Full)?;
        let slot = self.slot_at(at);
        let oldest = self.slot_time(slot);
        if drops && oldest > time {
            return Err(PutError::Late);
        }
        for at in self.layout.set(slot, Set::Wanted).enumerate() {
            for input in inputs_in(at.0, self.memory.get(at.1)) {
                self.add(input, LOST);
            }
        }
        let dropped = self.memory.get(DROPPED);
        self.memory.set(DROPPED, dropped + 1);
        self.items().remove(&mut self.memory, at);
        self.collected(slot);
        self.remember(&[oldest]);
        Ok(())
    }

    fn is_for_lossy_alone(&self, slot: usize) -> bool {
        let words = self.layout.set(slot, Set::Wanted).enumerate();
        let mut wanted =
            words.flat_map(|(number, at)| inputs_in(number, self.memory.get(at))).peekable();
        wanted.peek().is_some()
            && wanted.all(|input| self.memory.get(self.layout.input(input, LOSSY)) == 1)
    }

    /// Adds 1 to a count of an input connection.
    pub(crate) fn add(&mut self, input: usize, word: usize) {
        let at = self.layout.input(input, word);
        let count = self.memory.get(at);
        self.memory.set(at, count + 1);
    }
}

/// The places of the input connections in one of the words of a set.
fn inputs_in(number: usize, mut word: u64) -> impl Iterator<Item = usize> {
    iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.checked_sub(1)?;
        Some(64 * number + bit)
    })
}
