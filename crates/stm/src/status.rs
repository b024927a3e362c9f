//! What a channel has at a moment: for those that look at it from outside.

use crate::channel::Channel;
use crate::layout::{BOUND, ID, INPUT_OWNER, LOANS, LOSSY, OUTPUT_OWNER, Set};
use crate::types::{InputId, InputStatus, ItemStatus, NewItem, OutputId, OutputStatus, Slot};
use crate::words::Words;

impl<W: Words> Channel<W> {
    /// The input connections that there are.
    pub fn inputs(&self) -> Vec<InputStatus> {
        let places = 0..self.layout.config.inputs as usize;
        let word = |place, word| self.memory.get(self.layout.input(place, word));
        let status = |place| {
            let id = InputId(word(place, ID));
            let counts = self.input_counts(id).ok()?;
            let owner = word(place, INPUT_OWNER) as u32;
            Some(InputStatus { id, owner, lossy: word(place, LOSSY) == 1, counts })
        };
        places.filter_map(status).collect()
    }

    /// The output connections that there are.
    pub fn outputs(&self) -> Vec<OutputStatus> {
        let places = 0..self.layout.config.outputs as usize;
        let word = |place, word| self.memory.get(self.layout.output(place, word));
        let status = |place| {
            let id = OutputId(word(place, ID));
            let bound = word(place, BOUND).cast_signed();
            let (owner, loans) = (word(place, OUTPUT_OWNER) as u32, word(place, LOANS) as u32);
            (id.0 != 0).then_some(OutputStatus { id, owner, bound, loans })
        };
        places.filter_map(status).collect()
    }

    /// The item with the lowest time, and why it is there; one that is gone but held, too.
    pub fn oldest(&self) -> Option<ItemStatus> {
        let slot = (self.items().len(&self.memory) > 0).then(|| self.slot_at(0))?;
        let of = |set| {
            let inputs = self.inputs().into_iter().map(|input| input.id);
            inputs.filter(|id| self.input(*id).is_some_and(|at| self.has(slot, set, at))).collect()
        };
        let (wanted_by, held_by) = (of(Set::Wanted), of(Set::Held));
        Some(ItemStatus { item: self.item(slot), wanted_by, held_by })
    }

    /// The item with the greatest time that can be got, and where its bytes are.
    pub fn newest(&self) -> Option<(Slot, NewItem)> {
        let slot = self.slot_at(self.visible().next_back()?);
        Some((slot as Slot, self.item(slot)))
    }

    /// Bytes of the items that it has, as they were put.
    pub fn bytes(&self) -> u64 {
        let items = 0..self.items().len(&self.memory);
        items.map(|at| u64::from(self.item(self.slot_at(at)).length)).sum()
    }
}
