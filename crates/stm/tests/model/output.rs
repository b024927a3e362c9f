//! Output connections.

use std::collections::BTreeSet;

use loopscope_stm::{
    Full, InputId, JoinError, LeaveError, LoanError, NewItem, Orphans, OutputId, PutError, Slot,
    Time,
};

use super::{Input, Item, Model, Output};

/// The greatest time of an item, 2⁶³ − 2.
const GREATEST: Time = Time::MAX - 1;

impl Model {
    /// Adds an output connection. Its bound is −2⁶³.
    pub fn join_output(&mut self, owner: u32) -> Result<OutputId, JoinError> {
        if self.outputs.len() >= self.config.outputs as usize {
            return Err(JoinError::NoConnection);
        }
        self.next_id += 1;
        let id = OutputId(self.next_id);
        self.outputs.insert(id, Output { owner, bound: Time::MIN, loans: BTreeSet::new() });
        Ok(id)
    }

    /// Ends an output connection; its slots are free again.
    pub fn leave_output(&mut self, id: OutputId) -> Result<(), LeaveError> {
        let output = self.outputs.remove(&id).ok_or(LeaveError::NotConnected)?;
        self.free.extend(output.loans);
        Ok(())
    }

    /// Lends a free slot.
    pub fn loan(&mut self, id: OutputId) -> Result<Slot, LoanError> {
        let output = self.outputs.get_mut(&id).ok_or(LoanError::NotConnected)?;
        if output.loans.len() >= self.config.loans as usize {
            return Err(LoanError::TooManyLoans);
        }
        let slot = self.free.pop_first().ok_or(LoanError::NoSlot)?;
        output.loans.insert(slot);
        Ok(slot)
    }

    /// Ends a loan without an item.
    pub fn give_back(&mut self, id: OutputId, slot: Slot) -> Result<(), LoanError> {
        let output = self.outputs.get_mut(&id).ok_or(LoanError::NotConnected)?;
        if !output.loans.remove(&slot) {
            return Err(LoanError::NotLoaned);
        }
        self.free.insert(slot);
        Ok(())
    }

    /// Makes the item in a loaned slot visible. After an error the slot is still on loan.
    pub fn put(&mut self, id: OutputId, slot: Slot, item: NewItem) -> Result<(), PutError> {
        let time = item.time;
        let output = self.outputs.get(&id).ok_or(PutError::NotConnected)?;
        if !output.loans.contains(&slot) {
            return Err(PutError::NotLoaned);
        }
        if time > GREATEST {
            return Err(PutError::OutOfRange);
        }
        // 1.
        if time < output.bound || self.is_late(time) || self.is_gone(time) {
            return Err(PutError::Late);
        }
        // 2.
        if self.items.contains_key(&time) {
            return Err(PutError::Exists);
        }
        // 3.
        let wants = |input: &Input| time >= input.floor && !input.ahead.contains(&time);
        let wanted_by: BTreeSet<InputId> =
            self.inputs.iter().filter(|(_, input)| wants(input)).map(|(id, _)| *id).collect();
        if self.connected().next().is_some() && wanted_by.is_empty() {
            return Err(PutError::Late);
        }
        // 4.
        let is_for_nobody =
            self.connected().next().is_none() && self.config.orphans == Orphans::Discard;
        // 5.
        if !is_for_nobody && self.items.len() >= self.config.capacity as usize {
            let victim = self.victim().ok_or(PutError::Full)?;
            if self.config.full == Full::Drop && victim > time {
                return Err(PutError::Late);
            }
            self.drop_item(victim);
        }
        // An input that does not want the item may count it as skipped.
        for (id, input) in &mut self.inputs {
            if !wanted_by.contains(id) && input.unseen.is_some_and(|unseen| time < unseen) {
                input.skipped += 1;
            }
        }
        self.outputs.get_mut(&id).unwrap().loans.remove(&slot);
        self.greatest_put = self.greatest_put.max(Some(time));
        self.put += 1;
        let item = Item { item, slot, gone: false, wanted_by, held_by: BTreeSet::new() };
        self.items.insert(time, item);
        // 4. Without inputs and with `Orphans::Discard` this collects the item.
        self.settle();
        Ok(())
    }

    /// The time of the item that makes room: the lowest one that may be dropped.
    fn victim(&self) -> Option<Time> {
        let may_be_dropped = |item: &Item| match self.config.full {
            Full::Drop => true,
            // What is kept for inputs to come may not be dropped.
            Full::Refuse => {
                !item.wanted_by.is_empty()
                    && item.wanted_by.iter().all(|input| self.inputs[input].lossy)
            }
        };
        let mut items = self.items.iter();
        items
            .find(|(_, item)| item.held_by.is_empty() && may_be_dropped(item))
            .map(|(time, _)| *time)
    }

    fn drop_item(&mut self, time: Time) {
        for input in self.free_item(time).wanted_by {
            self.inputs.get_mut(&input).unwrap().lost += 1;
        }
        self.dropped += 1;
        self.remember_gone(time);
    }

    /// Promises that the connection puts nothing below `time`; returns its bound.
    pub fn bound(&mut self, id: OutputId, time: Time) -> Result<Time, LeaveError> {
        let output = self.outputs.get_mut(&id).ok_or(LeaveError::NotConnected)?;
        output.bound = output.bound.max(time);
        Ok(output.bound)
    }

    /// The channel's bound: the lowest of its outputs.
    pub(super) fn channel_bound(&self) -> Time {
        self.outputs.values().map(|output| output.bound).min().unwrap_or(Time::MIN)
    }
}
