//! Input connections.

use loopscope_stm::{
    ConsumeError, From, GetError, Got, InputId, JoinError, LeaveError, Time, Which,
};

use super::{Input, Model};

impl Model {
    /// Adds an input connection; returns its floor, too.
    pub fn join_input(
        &mut self,
        owner: u32,
        from: From,
        lossy: bool,
        holds: u32,
    ) -> Result<(InputId, Time), JoinError> {
        if self.inputs.len() >= self.config.inputs as usize {
            return Err(JoinError::NoConnection);
        }
        let next = self.greatest_put.map_or(Time::MIN, |greatest| greatest + 1);
        let newest = self.items.iter().rev().find(|(_, item)| !item.gone).map(|(time, _)| *time);
        let wish = match from {
            From::Oldest => Time::MIN,
            From::Newest => newest.unwrap_or(next),
            From::Next => next,
            From::At(time) => time,
        };
        let floor = wish.max(self.floor);
        self.next_id += 1;
        let id = InputId(self.next_id);
        let input = Input { owner, lossy, holds, floor, ..Input::default() };
        self.inputs.insert(id, input);
        for (time, item) in &mut self.items {
            if *time >= floor && !item.gone {
                item.wanted_by.insert(id);
            }
        }
        self.settle();
        Ok((id, floor))
    }

    /// Ends the connection with its holds and its wants.
    pub fn leave_input(&mut self, id: InputId) -> Result<(), LeaveError> {
        self.inputs.remove(&id).ok_or(LeaveError::NotConnected)?;
        for item in self.items.values_mut() {
            item.wanted_by.remove(&id);
            item.held_by.remove(&id);
        }
        self.settle();
        Ok(())
    }

    /// Ends the connection but for its holds.
    pub fn retire_input(&mut self, id: InputId) -> Result<(), LeaveError> {
        self.active(id).ok_or(LeaveError::NotConnected)?;
        let input = self.inputs.get_mut(&id).unwrap();
        (input.retired, input.floor, input.unseen) = (true, Time::MAX, None);
        input.ahead.clear();
        for item in self.items.values_mut() {
            item.wanted_by.remove(&id);
        }
        self.settle();
        Ok(())
    }

    /// Returns an item that the connection wants, and holds it.
    pub fn get(&mut self, id: InputId, which: Which) -> Result<Got, GetError> {
        let input = self.active(id).ok_or(GetError::NotConnected)?;
        let wanted = self.wanted(id);
        let time = match which {
            Which::Exact(time) => self.exact(id, time)?,
            Which::Newest => *wanted.last().ok_or(GetError::NotYet)?,
            Which::Oldest => *wanted.first().ok_or(GetError::NotYet)?,
            Which::Unseen => {
                let seen = input.returned.last();
                let time = *wanted.last().ok_or(GetError::NotYet)?;
                if seen.is_some_and(|seen| time <= *seen) {
                    return Err(GetError::NotYet);
                }
                time
            }
            Which::Nearest { time, tolerance, half_width } => {
                self.nearest(&wanted, time, tolerance, half_width)?
            }
        };
        let got = self.hold(id, &[time])?[0];
        if which == Which::Unseen {
            let input = self.inputs.get_mut(&id).unwrap();
            input.unseen = Some(time);
            let passed_over = wanted.iter().filter(|other| **other < time);
            input.skipped +=
                passed_over.filter(|other| !input.returned.contains(other)).count() as u64;
            self.consume_below(id, time);
        }
        Ok(got)
    }

    /// The newest item that the connection wants.
    pub fn look(&mut self, id: InputId) -> Result<Got, GetError> {
        self.active(id).ok_or(GetError::NotConnected)?;
        let time = *self.wanted(id).last().ok_or(GetError::NotYet)?;
        let item = &self.items[&time];
        Ok(Got { slot: item.slot, item: item.item })
    }

    /// The connection, if it may get something.
    fn active(&self, id: InputId) -> Option<&Input> {
        self.inputs.get(&id).filter(|input| !input.retired)
    }

    /// The times of the items that a connection wants, in order.
    fn wanted(&self, id: InputId) -> Vec<Time> {
        let wanted = self.items.iter().filter(|(_, item)| item.wanted_by.contains(&id));
        wanted.map(|(time, _)| *time).collect()
    }

    fn exact(&self, id: InputId, time: Time) -> Result<Time, GetError> {
        let input = &self.inputs[&id];
        let item = self.items.get(&time);
        if item.is_some_and(|item| item.wanted_by.contains(&id)) {
            return Ok(time);
        }
        // A visible item that the connection does not want is one that it has consumed.
        let consumed = time < input.floor || input.ahead.contains(&time) || item.is_some();
        if consumed || self.is_gone(time) || self.is_late(time) {
            Err(GetError::Gone)
        } else if time < self.channel_bound() {
            Err(GetError::Never)
        } else {
            Err(GetError::NotYet)
        }
    }

    fn nearest(
        &self,
        wanted: &[Time],
        time: Time,
        tolerance: u64,
        half_width: u32,
    ) -> Result<Time, GetError> {
        let distance = |other: Time| (i128::from(other) - i128::from(time)).abs();
        let width = |other: Time| i128::from(self.items[&other].item.half_width);
        let best = *wanted.iter().min_by_key(|other| distance(**other)).ok_or(GetError::NotYet)?;
        if distance(best) > i128::from(tolerance) {
            return Err(GetError::NotYet);
        }
        for other in wanted.iter().copied().filter(|other| *other != best) {
            let widths = width(best) + width(other);
            let (t, a, b) = (i128::from(time), i128::from(best), i128::from(other));
            let may_be_swapped = (a - b).abs() <= widths;
            let may_be_in_the_middle = (2 * t - a - b).abs() <= 2 * i128::from(half_width) + widths;
            if may_be_swapped || may_be_in_the_middle {
                return Err(GetError::Ambiguous);
            }
        }
        Ok(best)
    }

    /// Holds items and returns them, or changes nothing.
    fn hold(&mut self, id: InputId, times: &[Time]) -> Result<Vec<Got>, GetError> {
        let new = times.iter().filter(|time| !self.items[*time].held_by.contains(&id)).count();
        if self.held(id) as usize + new > self.inputs[&id].holds as usize {
            return Err(GetError::TooManyHolds);
        }
        let mut all = Vec::new();
        for time in times {
            let item = self.items.get_mut(time).unwrap();
            item.held_by.insert(id);
            all.push(Got { slot: item.slot, item: item.item });
            self.inputs.get_mut(&id).unwrap().returned.insert(*time);
        }
        Ok(all)
    }

    /// Returns all items from `first` to `last` that the connection wants, and holds them.
    pub fn range(&mut self, id: InputId, first: Time, last: Time) -> Result<Vec<Got>, GetError> {
        self.active(id).ok_or(GetError::NotConnected)?;
        let mut times = self.wanted(id);
        times.retain(|time| first <= *time && *time <= last);
        self.hold(id, &times)
    }

    /// Ends a hold.
    pub fn release(&mut self, id: InputId, time: Time) -> Result<(), ConsumeError> {
        self.inputs.get(&id).ok_or(ConsumeError::NotConnected)?;
        let item = self.items.get_mut(&time).ok_or(ConsumeError::NotHeld)?;
        if !item.held_by.remove(&id) {
            return Err(ConsumeError::NotHeld);
        }
        self.settle();
        Ok(())
    }

    /// Consumes one time. It does not move the floor, even if it is the floor's time.
    pub fn consume(&mut self, id: InputId, time: Time) -> Result<(), ConsumeError> {
        let known = self.is_gone(time) || self.is_late(time);
        self.active(id).ok_or(ConsumeError::NotConnected)?;
        let input = self.inputs.get_mut(&id).unwrap();
        if let Some(item) = self.items.get_mut(&time) {
            item.wanted_by.remove(&id);
        } else if time >= input.floor && !known && !input.ahead.contains(&time) {
            if input.ahead.len() >= self.config.ahead as usize {
                return Err(ConsumeError::TooManyAhead);
            }
            input.ahead.insert(time);
        }
        self.settle();
        Ok(())
    }

    /// Consumes all times up to `time`.
    pub fn consume_until(&mut self, id: InputId, time: Time) -> Result<(), ConsumeError> {
        self.active(id).ok_or(ConsumeError::NotConnected)?;
        self.consume_below(id, time.saturating_add(1));
        Ok(())
    }

    /// Raises a connection's floor: it wants nothing below any more.
    fn consume_below(&mut self, id: InputId, floor: Time) {
        let input = self.inputs.get_mut(&id).unwrap();
        input.floor = input.floor.max(floor);
        for (_, item) in self.items.range_mut(..floor) {
            item.wanted_by.remove(&id);
        }
        self.settle();
    }
}
