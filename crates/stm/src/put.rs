//! Putting an item, into a slot that was lent for it.

use std::iter;

use crate::channel::Channel;
use crate::layout::{
    BOUND, DROPPED, FREE, FREE_COUNT, INPUTS, LATE, LOANED, LOANS, LOSSY, LOST, NEXT, NEXT_FREE,
    PUT, PUT_ERROR, PUT_NS, SIZES, SKIPPED, Set, TIME, UNSEEN, VISIBLE,
};
use crate::types::{Full, LoanError, NewItem, Orphans, OutputId, PutError, Slot, Time};
use crate::words::Words;

/// What a put does, as it was found before anything has changed.
struct Plan {
    /// Whether the item can be got then.
    stays: bool,
    /// The place of the item that makes room.
    drops: Option<usize>,
}

impl<W: Words> Channel<W> {
    /// A free slot, to be filled and put.
    ///
    /// # Errors
    /// The connection has left or has too many; there is none.
    pub fn loan(&mut self, output: OutputId) -> Result<Slot, LoanError> {
        self.whole(|channel| {
            let place = channel.output(output).ok_or(LoanError::NotConnected)?;
            let slot = channel.slot_for(place)?;
            channel.take_free(slot);
            channel.set_state(slot, LOANED + place as u64);
            let at = channel.layout.output(place, LOANS);
            let loans = channel.memory.get(at);
            channel.memory.set(at, loans + 1);
            Ok(slot as Slot)
        })
    }

    /// The free slot that an output connection would get.
    pub(crate) fn slot_for(&self, place: usize) -> Result<usize, LoanError> {
        let loans = self.memory.get(self.layout.output(place, LOANS));
        if loans >= self.layout.config.loans.into() {
            return Err(LoanError::TooManyLoans);
        }
        let slot = self.memory.get(FREE).checked_sub(1).ok_or(LoanError::NoSlot)?;
        Ok(slot as usize)
    }

    /// Takes the first of the free slots, which is this one.
    pub(crate) fn take_free(&mut self, slot: usize) {
        self.watched(|channel| {
            let next = channel.memory.get(channel.layout.slot(slot, NEXT_FREE));
            channel.memory.set(FREE, next);
            let count = channel.memory.get(FREE_COUNT);
            channel.memory.set(FREE_COUNT, count - 1);
        });
    }

    /// Ends a loan without an item.
    ///
    /// # Errors
    /// The connection has left, or does not have the slot.
    pub fn give_back(&mut self, output: OutputId, slot: Slot) -> Result<(), LoanError> {
        self.whole(|channel| {
            let place = channel.output(output).ok_or(LoanError::NotConnected)?;
            let slot = channel.loaned(place, slot).ok_or(LoanError::NotLoaned)?;
            channel.end_loan(place);
            channel.free(slot);
            Ok(())
        })
    }

    /// The slot, if it is on loan to an output connection.
    pub(crate) fn loaned(&self, place: usize, slot: Slot) -> Option<usize> {
        let is_loaned =
            slot < self.layout.config.slots && self.state(slot as usize) == LOANED + place as u64;
        is_loaned.then_some(slot as usize)
    }

    pub(crate) fn end_loan(&mut self, place: usize) {
        let at = self.layout.output(place, LOANS);
        let loans = self.memory.get(at);
        self.memory.set(at, loans - 1);
    }

    /// Makes the item of a slot visible, which `loan` has returned.
    ///
    /// # Errors
    /// See [`PutError`]. The slot is still on loan then, if it was.
    pub fn put(&mut self, output: OutputId, slot: Slot, item: NewItem) -> Result<(), PutError> {
        self.put_shown(output, slot, item, |_| ())
    }

    /// The same; calls `show` as soon as it is sure of it, with whether the item becomes the newest one.
    ///
    /// Where it does and `show` shows it, and the process ends after that, [`Channel::finish_put`] does
    /// the rest.
    ///
    /// # Errors
    /// See [`PutError`]. `show` has not been called then.
    pub fn put_shown(
        &mut self,
        output: OutputId,
        slot: Slot,
        item: NewItem,
        show: impl FnOnce(bool),
    ) -> Result<(), PutError> {
        self.put_lent(output, self.output(output), slot, item, show)
    }

    /// `put_shown`; `promised`: the connection whose promise counts.
    pub(crate) fn put_lent(
        &mut self,
        output: OutputId,
        promised: Option<usize>,
        slot: Slot,
        item: NewItem,
        show: impl FnOnce(bool),
    ) -> Result<(), PutError> {
        self.whole(|channel| {
            let place = channel.output(output).ok_or(PutError::NotConnected)?;
            let slot = channel.loaned(place, slot).ok_or(PutError::NotLoaned)?;
            let plan = channel.plan(promised, item.time)?;
            show(channel.becomes_newest(&plan, item.time));
            channel.end_loan(place);
            channel.carry_out(plan, slot, item);
            Ok(())
        })
    }

    /// Puts an item into a free slot: `loan` and `put_shown` at once.
    ///
    /// `fill` is to write the item's bytes to the slot, before `show` is called.
    ///
    /// # Errors
    /// `loan` or `put` would fail, or `fill` does. The slot is free then.
    pub fn put_new<E: From<LoanError> + From<PutError>>(
        &mut self,
        output: OutputId,
        item: NewItem,
        fill: impl FnOnce(Slot) -> Result<(), E>,
        show: impl FnOnce(Slot, bool),
    ) -> Result<(), E> {
        self.whole(|channel| {
            let place = channel.output(output).ok_or(LoanError::NotConnected)?;
            let slot = channel.slot_for(place)?;
            let plan = channel.plan(Some(place), item.time)?;
            fill(slot as Slot)?;
            show(slot as Slot, channel.becomes_newest(&plan, item.time));
            channel.take_free(slot);
            channel.carry_out(plan, slot, item);
            Ok(())
        })
    }

    /// Whether a put of a time can succeed, now or when there is room, in whatever connection.
    pub(crate) fn takes(&self, time: Time) -> bool {
        !matches!(self.plan(None, time), Err(error) if error != PutError::Full)
    }

    /// Puts an item that a process has shown which has ended; whether it was not put yet.
    ///
    /// Nothing but `recover` was called since.
    pub fn finish_put(&mut self, slot: Slot, item: NewItem) -> bool {
        let mut outputs = 0..self.layout.config.outputs as usize;
        let place = outputs.find(|place| self.loaned(*place, slot).is_some());
        let put = self.whole(|channel| {
            // The bound was looked at before. An item that was there, and is not any more, has a time
            // that is late: it is not put again.
            let plan = channel.plan(None, item.time)?;
            match place {
                Some(place) => channel.end_loan(place),
                None if channel.memory.get(FREE) == u64::from(slot) + 1 => {
                    channel.take_free(slot as usize);
                }
                None => return Err(PutError::NotLoaned),
            }
            channel.carry_out(plan, slot as usize, item);
            Ok(())
        });
        put.is_ok()
    }

    fn becomes_newest(&self, plan: &Plan, time: Time) -> bool {
        plan.stays && self.newest().is_none_or(|(_, newest)| newest.time < time)
    }

    /// What a put of a time will do, which fails for no other reason; `place`: of the output connection
    /// that has promised something.
    fn plan(&self, place: Option<usize>, time: Time) -> Result<Plan, PutError> {
        if time == Time::MAX {
            return Err(PutError::OutOfRange);
        }
        let bound = |place| self.memory.time(self.layout.output(place, BOUND));
        let bound = place.map_or(Time::MIN, bound);
        if time < bound || time < self.memory.time(LATE) || self.is_gone(time) {
            return Err(PutError::Late);
        }
        if self.find(time).is_ok() {
            // One that is gone but held has a gone time.
            return Err(PutError::Exists);
        }
        let has_inputs = self.memory.get(INPUTS) > 0;
        let mut inputs = 0..self.layout.config.inputs as usize;
        let wants = |input| {
            self.memory.time(self.layout.floor(input)) <= time
                && self.consumed_ahead(input, time).is_none()
        };
        if has_inputs && !inputs.any(wants) {
            return Err(PutError::Late);
        }
        let stays = has_inputs || self.layout.config.orphans == Orphans::Keep;
        let is_full = self.items().len(&self.memory) >= self.layout.config.capacity as usize;
        let drops = if stays && is_full { Some(self.least_wanted(time)?) } else { None };
        Ok(Plan { stays, drops })
    }

    fn carry_out(&mut self, plan: Plan, slot: usize, item: NewItem) {
        let NewItem { time, half_width, length, put_ns, put_error_ns } = item;
        let Plan { stays, drops } = plan;
        self.clear(slot, Set::Given);
        self.clear(slot, Set::Held);
        self.offer(slot, time);
        if let Some(at) = drops {
            self.drop_item(at);
        }
        let put = self.memory.get(PUT);
        self.memory.set(PUT, put + 1);
        let next = self.memory.time(NEXT).max(time + 1);
        self.memory.set_time(NEXT, next);
        if !stays {
            self.collected(slot, time, false);
            self.remember(&[time]);
            return;
        }
        self.memory.set_time(self.layout.slot(slot, TIME), time);
        self.memory
            .set(self.layout.slot(slot, SIZES), u64::from(half_width) << 32 | u64::from(length));
        self.memory.set(self.layout.slot(slot, PUT_NS), put_ns.cast_unsigned());
        self.memory.set_time(self.layout.slot(slot, PUT_ERROR), put_error_ns);
        self.set_state(slot, VISIBLE);
        // Its place may be another one since room was made.
        let at = self.first_from(time);
        self.items().insert(&mut self.memory, at, slot as u64);
    }

    /// Enters which input connections want a slot's item.
    fn offer(&mut self, slot: usize, time: Time) {
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
        }
    }

    /// The place of the item that is dropped for one of a time.
    fn least_wanted(&self, time: Time) -> Result<usize, PutError> {
        let drops = self.layout.config.full == Full::Drop;
        let may_go = |at: &usize| {
            let slot = self.slot_at(*at);
            self.is_empty(slot, Set::Held) && (drops || self.is_for_lossy_alone(slot))
        };
        let at = self.visible().find(may_go).ok_or(PutError::Full)?;
        if drops && self.slot_time(self.slot_at(at)) > time {
            return Err(PutError::Late);
        }
        Ok(at)
    }

    /// Drops the item of a place.
    fn drop_item(&mut self, at: usize) {
        let slot = self.slot_at(at);
        let time = self.slot_time(slot);
        for at in self.layout.set(slot, Set::Wanted).enumerate() {
            for input in inputs_in(at.0, self.memory.get(at.1)) {
                self.add(input, LOST);
            }
        }
        let dropped = self.memory.get(DROPPED);
        self.memory.set(DROPPED, dropped + 1);
        self.items().remove(&mut self.memory, at);
        self.collected(slot, time, true);
        self.remember(&[time]);
    }

    pub(crate) fn is_for_lossy_alone(&self, slot: usize) -> bool {
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
