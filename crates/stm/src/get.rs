//! Getting items.

use std::ops::Range;

use crate::channel::Channel;
use crate::layout::{
    ABOVE, BOUND, HELD, HOLDS, ID, LATE, PUT_ERROR, PUT_NS, SIZES, SKIPPED, Set, UNSEEN,
};
use crate::types::{GetError, Got, InputId, NewItem, Slot, Time, Which};
use crate::words::Words;

impl<W: Words> Channel<W> {
    /// An item that a connection wants; it holds it then.
    ///
    /// # Errors
    /// See [`GetError`].
    pub fn get(&mut self, input: InputId, which: Which) -> Result<Got, GetError> {
        self.whole(|channel| {
            let place = channel.input(input).ok_or(GetError::NotConnected)?;
            let slot = channel.wanted(place, which)?;
            let got = channel.give(place, slot)?;
            if which == Which::Unseen {
                let unseen = channel.layout.input(place, UNSEEN);
                channel.memory.set_time(unseen, got.item.time);
                channel.pass_over(place, got.item.time);
            }
            Ok(got)
        })
    }

    /// The newest item that a connection wants, which it does not hold, and which does not count as
    /// returned.
    ///
    /// # Errors
    /// The connection has left, or wants none.
    pub fn look(&self, input: InputId) -> Result<Got, GetError> {
        let place = self.input(input).ok_or(GetError::NotConnected)?;
        let slot = self.wanted(place, Which::Newest)?;
        Ok(Got { slot: slot as Slot, item: self.item(slot) })
    }

    /// All items that a connection wants, from one time to another; it holds them then.
    ///
    /// # Errors
    /// The connection has left, or would hold too many.
    pub fn range(&mut self, input: InputId, first: Time, last: Time) -> Result<Vec<Got>, GetError> {
        self.whole(|channel| {
            let place = channel.input(input).ok_or(GetError::NotConnected)?;
            let slots: Vec<_> = channel
                .wanted_by(place, channel.first_from(first)..channel.end())
                .take_while(|slot| channel.slot_time(*slot) <= last)
                .collect();
            slots.into_iter().map(|slot| channel.give(place, slot)).collect()
        })
    }

    /// The slot of the item that a connection wants.
    fn wanted(&self, place: usize, which: Which) -> Result<usize, GetError> {
        let every = 0..self.end();
        match which {
            Which::Exact(time) => self.exact(place, time),
            Which::Newest => self.wanted_by(place, every).next_back().ok_or(GetError::NotYet),
            Which::Oldest => self.wanted_by(place, every).next().ok_or(GetError::NotYet),
            Which::Unseen => {
                let above = self.memory.time(self.layout.input(place, ABOVE));
                let newer = self.first_from(above)..every.end;
                self.wanted_by(place, newer).next_back().ok_or(GetError::NotYet)
            }
            Which::Nearest { time, tolerance, half_width } => {
                self.nearest(place, time, tolerance, half_width)
            }
        }
    }

    fn exact(&self, place: usize, time: Time) -> Result<usize, GetError> {
        if let Ok(at) = self.find(time) {
            let slot = self.slot_at(at);
            return if self.has(slot, Set::Wanted, place) { Ok(slot) } else { Err(GetError::Gone) };
        }
        let floor = self.memory.time(self.layout.floor(place));
        let is_over = time < floor.max(self.memory.time(LATE)) || self.is_gone(time);
        Err(if is_over || self.consumed_ahead(place, time).is_some() {
            GetError::Gone
        } else if time < self.bound_of_all() {
            GetError::Never
        } else {
            GetError::NotYet
        })
    }

    fn nearest(
        &self,
        place: usize,
        time: Time,
        tolerance: u64,
        half_width: u32,
    ) -> Result<usize, GetError> {
        let every = || {
            self.wanted_by(place, 0..self.end()).map(|slot| {
                let of = self.slot_time(slot);
                (of.abs_diff(time), of, slot)
            })
        };
        let (distance, of, slot) = every().min().ok_or(GetError::NotYet)?;
        if distance > tolerance {
            return Err(GetError::NotYet);
        }
        let [time, of] = [time, of].map(i128::from);
        let may_be_nearer = |(_, other, other_slot): (u64, Time, usize)| {
            let other = i128::from(other);
            let widths = [slot, other_slot].map(|each| i128::from(self.item(each).half_width));
            let width = widths.iter().sum::<i128>();
            let may_be_in_the_middle =
                (2 * time - of - other).abs() <= 2 * i128::from(half_width) + width;
            other_slot != slot && ((of - other).abs() <= width || may_be_in_the_middle)
        };
        if every().any(may_be_nearer) { Err(GetError::Ambiguous) } else { Ok(slot) }
    }

    /// Has a connection hold an item.
    pub(crate) fn give(&mut self, place: usize, slot: usize) -> Result<Got, GetError> {
        let item = self.item(slot);
        if !self.has(slot, Set::Held, place) {
            let held = self.layout.input(place, HELD);
            let count = self.memory.get(held);
            if count >= self.memory.get(self.layout.input(place, HOLDS)) {
                return Err(GetError::TooManyHolds);
            }
            self.memory.set(held, count + 1);
            self.insert(slot, Set::Held, place);
        }
        self.insert(slot, Set::Given, place);
        let above = self.layout.input(place, ABOVE);
        let newest = self.memory.time(above).max(item.time + 1);
        self.memory.set_time(above, newest);
        Ok(Got { slot: slot as Slot, item })
    }

    /// Consumes what is older than an item that was got as the newest.
    fn pass_over(&mut self, place: usize, time: Time) {
        let floor = self.memory.time(self.layout.floor(place));
        for at in self.first_from(floor)..self.first_from(time) {
            let slot = self.slot_at(at);
            if self.has(slot, Set::Wanted, place) && !self.has(slot, Set::Given, place) {
                self.add(place, SKIPPED);
            }
        }
        self.consume_below(place, time);
    }

    /// The slots of the items of a connection, among the places.
    fn wanted_by(
        &self,
        place: usize,
        among: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = usize> {
        among.map(|at| self.slot_at(at)).filter(move |slot| self.has(*slot, Set::Wanted, place))
    }

    fn end(&self) -> usize {
        self.items().len(&self.memory)
    }

    pub(crate) fn item(&self, slot: usize) -> NewItem {
        let sizes = self.memory.get(self.layout.slot(slot, SIZES));
        NewItem {
            time: self.slot_time(slot),
            half_width: (sizes >> 32) as u32,
            length: sizes as u32,
            put_ns: self.memory.time(self.layout.slot(slot, PUT_NS)),
            put_error_ns: self.memory.time(self.layout.slot(slot, PUT_ERROR)),
        }
    }

    /// No item below this will come from the output connections that there are.
    pub(crate) fn bound_of_all(&self) -> Time {
        let outputs = 0..self.layout.config.outputs as usize;
        let there = outputs.filter(|place| self.memory.get(self.layout.output(*place, ID)) != 0);
        let bounds = there.map(|place| self.memory.time(self.layout.output(place, BOUND)));
        bounds.min().unwrap_or(Time::MIN)
    }
}
