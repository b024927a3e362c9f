//! A plain model of a channel, written from `schema/stm.md` alone.
//!
//! It is an oracle for tests: every rule is in one place, and nothing is done for speed. After each
//! change, [`Model::settle`] applies the rules about collection to the whole channel.

mod input;
mod output;

use std::collections::{BTreeMap, BTreeSet};

use loopscope_stm::{
    Config, Counts, InputCounts, InputId, LeaveError, NewItem, Orphans, OutputId, Slot, Time,
};

/// An item whose slot is in use. It is visible unless it is gone.
struct Item {
    item: NewItem,
    slot: Slot,
    /// Nobody may get it any more; its slot is kept for those who hold it.
    gone: bool,
    wanted_by: BTreeSet<InputId>,
    held_by: BTreeSet<InputId>,
}

#[derive(Default)]
struct Input {
    owner: u32,
    lossy: bool,
    /// It has nothing but its holds.
    retired: bool,
    holds: u32,
    /// All times below are consumed.
    floor: Time,
    /// Times without an item that are consumed and not below the floor.
    ahead: BTreeSet<Time>,
    /// All times that were ever returned, by `get` and `range`.
    returned: BTreeSet<Time>,
    /// The greatest time that `get(unseen)` has returned.
    unseen: Option<Time>,
    lost: u64,
    skipped: u64,
}

struct Output {
    owner: u32,
    bound: Time,
    loans: BTreeSet<Slot>,
}

/// A channel as the specification describes it.
pub struct Model {
    config: Config,
    items: BTreeMap<Time, Item>,
    /// Gone times that are remembered.
    gone: BTreeSet<Time>,
    floor: Time,
    /// Times below this are late.
    late_below: Time,
    greatest_put: Option<Time>,
    inputs: BTreeMap<InputId, Input>,
    outputs: BTreeMap<OutputId, Output>,
    free: BTreeSet<Slot>,
    next_id: u64,
    put: u64,
    collected: u64,
    dropped: u64,
}

impl Model {
    /// An empty channel without connections.
    pub fn new(config: &Config) -> Self {
        Model {
            config: *config,
            items: BTreeMap::new(),
            gone: BTreeSet::new(),
            floor: Time::MIN,
            late_below: Time::MIN,
            greatest_put: None,
            inputs: BTreeMap::new(),
            outputs: BTreeMap::new(),
            free: (0..config.slots).collect(),
            next_id: 0,
            put: 0,
            collected: 0,
            dropped: 0,
        }
    }

    /// Times of the items whose slots are in use, in order.
    pub fn times(&self) -> Vec<Time> {
        self.items.keys().copied().collect()
    }

    /// Applies the rules that hold at every moment between two operations.
    fn settle(&mut self) {
        // The channel's floor: the greatest that the lowest floor of its inputs has ever been.
        if let Some(lowest) = self.connected().map(|input| input.floor).min() {
            self.floor = self.floor.max(lowest);
        }
        self.late_below = self.late_below.max(self.floor);

        // An item that nobody wants is gone. Without inputs this depends on `orphans`.
        let unwanted_go =
            self.connected().next().is_some() || self.config.orphans == Orphans::Discard;
        for time in self.times() {
            let item = self.items.get_mut(&time).unwrap();
            if item.wanted_by.is_empty() && unwanted_go && !item.gone {
                item.gone = true;
                // A held item's time takes a place among the remembered ones at once.
                self.remember_gone(time);
            }
        }

        // A gone item that nobody holds is collected.
        // Also if the last input has left and `orphans` is `Keep`.
        for time in self.times() {
            if self.items[&time].gone && self.items[&time].held_by.is_empty() {
                self.free_item(time);
            }
        }

        // A connection remembers a consumed time until it is late or below the floor, or there is
        // an item of it.
        for input in self.inputs.values_mut() {
            input.ahead.retain(|time| {
                *time >= input.floor && *time >= self.late_below && !self.items.contains_key(time)
            });
        }
    }

    /// Adds a gone time. The channel forgets the lowest ones if it knows too many.
    fn remember_gone(&mut self, time: Time) {
        self.gone.insert(time);
        self.gone.retain(|time| *time >= self.late_below);
        while self.gone.len() > self.config.remembered as usize {
            let lowest = self.gone.pop_first().unwrap();
            self.late_below = lowest + 1;
            self.gone.retain(|time| *time >= self.late_below);
        }
    }

    /// Takes an item away; its slot is free again.
    fn free_item(&mut self, time: Time) -> Item {
        let item = self.items.remove(&time).unwrap();
        assert!(item.held_by.is_empty());
        assert!(self.free.insert(item.slot));
        self.collected += 1;
        item
    }

    fn is_late(&self, time: Time) -> bool {
        time < self.late_below
    }

    fn is_gone(&self, time: Time) -> bool {
        self.gone.contains(&time)
    }

    /// What the channel has counted.
    pub fn counts(&self) -> Counts {
        Counts {
            put: self.put,
            collected: self.collected,
            dropped: self.dropped,
            present: self.items.len() as u32,
            free: self.free.len() as u32,
        }
    }

    /// What an input connection has counted.
    pub fn input_counts(&self, id: InputId) -> Result<InputCounts, LeaveError> {
        let input = self.inputs.get(&id).ok_or(LeaveError::NotConnected)?;
        let (lost, skipped) = (input.lost, input.skipped);
        Ok(InputCounts { floor: input.floor, held: self.held(id), lost, skipped })
    }

    /// The lowest time of which an input connection has an item or may get one.
    pub fn due(&self, id: InputId) -> Result<Time, LeaveError> {
        let input = self.inputs.get(&id).ok_or(LeaveError::NotConnected)?;
        let bound = self.outputs.values().map(|output| output.bound).min().unwrap_or(Time::MIN);
        let to_come = input.floor.max(self.late_below).max(bound);
        let is_its = |item: &Item| item.wanted_by.contains(&id) || item.held_by.contains(&id);
        let its = self.items.iter().filter(|(_, item)| is_its(item)).map(|(time, _)| *time);
        Ok(its.chain([to_come]).min().unwrap())
    }

    /// Ends all connections of an owner at once; how many there were.
    pub fn leave_all(&mut self, owner: u32) -> usize {
        let inputs = self.inputs.iter().filter(|(_, input)| input.owner == owner);
        let inputs: Vec<InputId> = inputs.map(|(id, _)| *id).collect();
        let outputs = self.outputs.iter().filter(|(_, output)| output.owner == owner);
        let outputs: Vec<OutputId> = outputs.map(|(id, _)| *id).collect();
        for id in &inputs {
            self.inputs.remove(id);
            for item in self.items.values_mut() {
                item.wanted_by.remove(id);
                item.held_by.remove(id);
            }
        }
        self.settle();
        outputs.iter().for_each(|id| self.leave_output(*id).unwrap());
        inputs.len() + outputs.len()
    }

    /// The input connections that may get something.
    fn connected(&self) -> impl Iterator<Item = &Input> {
        self.inputs.values().filter(|input| !input.retired)
    }

    fn held(&self, id: InputId) -> u32 {
        self.items.values().filter(|item| item.held_by.contains(&id)).count() as u32
    }
}
