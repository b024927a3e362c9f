//! A channel: who is connected, and where bytes may be put.

use std::iter;
use std::ops::Range;

use crate::layout::{
    ABOVE, AHEAD, BOUND, COLLECTED, DROPPED, ELSEWHERE, FLOOR, FREE, FREE_COUNT, FREE_SLOT, HELD,
    HOLDS, ID, INPUT_OWNER, INPUTS, LATE, LOANED, LOANS, LOSSY, LOST, Layout, NEXT, NEXT_FREE,
    OUTPUT_OWNER, PUT, RETIRED, SERIAL, SKIPPED, STATE, Set, TIME, UNSEEN, VISIBLE,
};
use crate::memory::{Memory, log_words};
use crate::ring::Ring;
use crate::types::{
    Collected, Config, Counts, From, InputCounts, InputId, JoinError, LeaveError, OutputId, Time,
};
use crate::words::Words;

/// No input connection has this floor that may have an item.
pub(crate) const NO_INPUT: Time = Time::MAX;

/// What becomes of the holds of a connection that ends.
#[derive(Clone, Copy)]
enum Holds {
    End,
    Stay,
}

/// Is called with true before a slot is taken or freed, and with false after it.
pub type Watch = Box<dyn Fn(bool) + Send>;

/// A channel in a block of memory, as the owner of its lock sees it.
pub struct Channel<W> {
    pub(crate) memory: Memory<W>,
    pub(crate) layout: Layout,
    /// What `take_collected` returns; None: nobody asks for it.
    pub(crate) told: Option<Vec<Collected>>,
    /// Is told of each slot that is taken or freed, to measure what that costs.
    watch: Option<Watch>,
}

impl<W: Words> Channel<W> {
    /// How many words a channel needs; None where `config` is not such as it has to be.
    pub fn words_needed(config: &Config) -> Option<usize> {
        Layout::new(*config).map(|layout| layout.count)
    }

    /// Makes a channel in memory that is all zero.
    ///
    /// None where `config` is not such as it has to be, or the memory is too small.
    pub fn create(config: &Config, words: W) -> Option<Channel<W>> {
        let layout = Layout::new(*config)?;
        if words.count() < layout.count {
            return None;
        }
        for at in [FLOOR, LATE, NEXT, ELSEWHERE] {
            words.store(at, Time::MIN.cast_unsigned());
        }
        for place in 0..config.inputs as usize {
            words.store(layout.floor(place), NO_INPUT.cast_unsigned());
        }
        for slot in 0..config.slots {
            let next = if slot + 1 < config.slots { slot + 2 } else { 0 };
            words.store(layout.slot(slot as usize, NEXT_FREE), next.into());
        }
        words.store(FREE, 1);
        words.store(FREE_COUNT, config.slots.into());
        layout.write(&words);
        let memory = Memory::new(words, layout.log(), layout.room);
        Some(Channel { memory, layout, told: None, watch: None })
    }

    /// The channel that another one has made; undoes what was interrupted.
    ///
    /// None where there is no channel of this version.
    pub fn open(words: W) -> Option<Channel<W>> {
        let layout = Layout::read(&words)?;
        let mut memory = Memory::new(words, layout.log(), layout.room);
        memory.undo();
        Some(Channel { memory, layout, told: None, watch: None })
    }

    /// Undoes what the last owner of the lock has begun and not ended; whether there was anything.
    pub fn recover(&mut self) -> bool {
        self.memory.undo()
    }

    /// Whether operations keep for `take_collected` which items they collect.
    pub fn tell_collected(&mut self, tells: bool) {
        if tells != self.told.is_some() {
            self.told = tells.then(Vec::new);
        }
    }

    /// The items that operations have collected since the last call; those of one in any order.
    pub fn take_collected(&mut self) -> Vec<Collected> {
        self.told.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Has every slot that is taken or freed told.
    pub fn watch_slots(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// The words of the log. Between operations they mean nothing.
    pub fn log(&self) -> Range<usize> {
        let begin = self.layout.log();
        begin..begin + log_words(self.layout.room)
    }

    /// What the channel was made with.
    pub fn config(&self) -> &Config {
        &self.layout.config
    }

    /// Makes an input connection, which may hold `holds` items; also tells its floor.
    ///
    /// `owner` is any number, see [`Channel::leave_all`]. Items may be dropped before a `lossy` one has
    /// consumed them where a put is refused otherwise.
    ///
    /// # Errors
    /// There are as many as there may be.
    pub fn join_input(
        &mut self,
        owner: u32,
        from: From,
        lossy: bool,
        holds: u32,
    ) -> Result<(InputId, Time), JoinError> {
        self.whole(|channel| {
            let place = channel.free_place(channel.layout.config.inputs, |place| {
                channel.layout.input(place, ID)
            })?;
            let floor = channel.first_floor(from).max(channel.memory.time(FLOOR));
            let id = channel.new_id(place);
            let record = [
                (ID, id),
                (INPUT_OWNER, owner.into()),
                (LOSSY, lossy.into()),
                (HOLDS, holds.into()),
            ];
            let cleared = [HELD, LOST, SKIPPED, AHEAD, RETIRED].map(|word| (word, 0));
            let none = [ABOVE, UNSEEN].map(|word| (word, Time::MIN.cast_unsigned()));
            for (word, value) in iter::empty().chain(record).chain(cleared).chain(none) {
                channel.memory.set(channel.layout.input(place, word), value);
            }
            channel.memory.set_time(channel.layout.floor(place), floor);
            let inputs = channel.memory.get(INPUTS);
            channel.memory.set(INPUTS, inputs + 1);
            for at in channel.first_from(floor)..channel.items().len(&channel.memory) {
                let slot = channel.slot_at(at);
                if channel.state(slot) == VISIBLE {
                    channel.insert(slot, Set::Wanted, place);
                }
            }
            channel.raise_floor();
            channel.collect(0..channel.items().len(&channel.memory));
            Ok((InputId(id), floor))
        })
    }

    /// Makes an output connection of an owner, see [`Channel::leave_all`].
    ///
    /// # Errors
    /// There are as many as there may be.
    pub fn join_output(&mut self, owner: u32) -> Result<OutputId, JoinError> {
        self.whole(|channel| {
            let place = channel.free_place(channel.layout.config.outputs, |place| {
                channel.layout.output(place, ID)
            })?;
            let id = channel.new_id(place);
            channel.memory.set(channel.layout.output(place, ID), id);
            channel.memory.set(channel.layout.output(place, OUTPUT_OWNER), owner.into());
            channel.memory.set_time(channel.layout.output(place, BOUND), Time::MIN);
            channel.memory.set(channel.layout.output(place, LOANS), 0);
            Ok(OutputId(id))
        })
    }

    /// Ends an input connection, its holds and its wants.
    ///
    /// # Errors
    /// It has ended before.
    pub fn leave_input(&mut self, input: InputId) -> Result<(), LeaveError> {
        self.whole(|channel| {
            let place = channel.any_input(input).ok_or(LeaveError::NotConnected)?;
            channel.end_inputs(&[place], Holds::End);
            Ok(())
        })
    }

    /// Ends an input connection but for its holds, which can be released still.
    ///
    /// # Errors
    /// It has ended before.
    pub fn retire_input(&mut self, input: InputId) -> Result<(), LeaveError> {
        self.whole(|channel| {
            let place = channel.input(input).ok_or(LeaveError::NotConnected)?;
            channel.end_inputs(&[place], Holds::Stay);
            Ok(())
        })
    }

    /// Ends an output connection, and its loans.
    ///
    /// # Errors
    /// It has ended before.
    pub fn leave_output(&mut self, output: OutputId) -> Result<(), LeaveError> {
        self.whole(|channel| {
            let place = channel.output(output).ok_or(LeaveError::NotConnected)?;
            channel.end_output(place);
            Ok(())
        })
    }

    /// Ends all connections of an owner at once; how many there were.
    pub fn leave_all(&mut self, owner: u32) -> usize {
        let Config { inputs, outputs, .. } = self.layout.config;
        let is_of = |id: usize, of: usize| {
            self.memory.get(id) != 0 && self.memory.get(of) == u64::from(owner)
        };
        let input = |place, word| self.layout.input(place, word);
        let output = |place, word| self.layout.output(place, word);
        let inputs: Vec<_> = (0..inputs as usize)
            .filter(|each| is_of(input(*each, ID), input(*each, INPUT_OWNER)))
            .collect();
        let outputs: Vec<_> = (0..outputs as usize)
            .filter(|each| is_of(output(*each, ID), output(*each, OUTPUT_OWNER)))
            .collect();
        if !inputs.is_empty() {
            self.end_inputs(&inputs, Holds::End);
        }
        outputs.iter().for_each(|place| self.end_output(*place));
        self.memory.keep();
        inputs.len() + outputs.len()
    }

    fn end_inputs(&mut self, places: &[usize], holds: Holds) {
        let mut ended = vec![0_u64; self.layout.set_words];
        let mut inputs = self.memory.get(INPUTS);
        for place in places {
            ended[place / 64] |= 1 << (place % 64);
            self.forget_all_ahead(*place);
            inputs -= u64::from(!self.is_retired(*place));
            match holds {
                Holds::End => self.memory.set(self.layout.input(*place, ID), 0),
                Holds::Stay => {
                    self.memory.set(self.layout.input(*place, RETIRED), 1);
                    // What comes is not skipped by it.
                    self.memory.set_time(self.layout.input(*place, UNSEEN), Time::MIN);
                }
            }
            self.memory.set_time(self.layout.floor(*place), NO_INPUT);
        }
        self.memory.set(INPUTS, inputs);
        let sets: &[Set] = match holds {
            Holds::End => &[Set::Wanted, Set::Given, Set::Held],
            Holds::Stay => &[Set::Wanted, Set::Given],
        };
        let every = self.items().len(&self.memory);
        for at in 0..every {
            let slot = self.slot_at(at);
            for set in sets {
                for (at, ended) in self.layout.set(slot, *set).zip(&ended) {
                    let word = self.memory.get(at);
                    self.memory.set(at, word & !ended);
                }
            }
        }
        self.raise_floor();
        self.collect(0..every);
    }

    fn end_output(&mut self, place: usize) {
        self.memory.set(self.layout.output(place, ID), 0);
        if self.memory.get(self.layout.output(place, LOANS)) > 0 {
            for slot in 0..self.layout.config.slots as usize {
                if self.state(slot) == LOANED + place as u64 {
                    self.free(slot);
                }
            }
        }
    }

    /// Promises that a connection puts nothing below a time any more; what it has promised so far.
    ///
    /// # Errors
    /// The connection has left.
    pub fn bound(&mut self, output: OutputId, time: Time) -> Result<Time, LeaveError> {
        self.whole(|channel| {
            let place = channel.output(output).ok_or(LeaveError::NotConnected)?;
            let at = channel.layout.output(place, BOUND);
            let bound = channel.memory.time(at).max(time);
            channel.memory.set_time(at, bound);
            Ok(bound)
        })
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        let count = |at| self.memory.get(at);
        Counts {
            put: count(PUT),
            collected: count(COLLECTED),
            dropped: count(DROPPED),
            present: self.items().len(&self.memory) as u32,
            free: count(FREE_COUNT) as u32,
        }
    }

    /// What was counted of an input connection.
    ///
    /// # Errors
    /// It has left.
    pub fn input_counts(&self, input: InputId) -> Result<InputCounts, LeaveError> {
        let place = self.any_input(input).ok_or(LeaveError::NotConnected)?;
        let count = |word| self.memory.get(self.layout.input(place, word));
        Ok(InputCounts {
            floor: self.memory.time(self.layout.floor(place)),
            held: count(HELD) as u32,
            lost: count(LOST),
            skipped: count(SKIPPED),
        })
    }

    /// The lowest time of which an input connection has an item or may get one, as the output
    /// connections that there are have promised.
    ///
    /// # Errors
    /// It has left.
    pub fn due(&self, input: InputId) -> Result<Time, LeaveError> {
        let place = self.any_input(input).ok_or(LeaveError::NotConnected)?;
        let slots = (0..self.items().len(&self.memory)).map(|at| self.slot_at(at));
        let mut its = slots.filter(|slot| {
            self.has(*slot, Set::Wanted, place) || self.has(*slot, Set::Held, place)
        });
        let floor = self.memory.time(self.layout.floor(place));
        let to_come = floor.max(self.memory.time(LATE)).max(self.bound_of_all());
        Ok(its.next().map_or(to_come, |slot| self.slot_time(slot).min(to_come)))
    }

    /// Has an operation change the channel as a whole, or not at all where it fails.
    pub(crate) fn whole<T, E>(
        &mut self,
        operation: impl FnOnce(&mut Channel<W>) -> Result<T, E>,
    ) -> Result<T, E> {
        let told = self.told.as_ref().map_or(0, Vec::len);
        let done = operation(self);
        match done {
            Ok(_) => self.memory.keep(),
            Err(_) => {
                self.memory.undo();
                self.told.iter_mut().for_each(|all| all.truncate(told));
            }
        }
        done
    }

    /// The place of the record of a connection that may get something.
    pub(crate) fn input(&self, input: InputId) -> Option<usize> {
        self.any_input(input).filter(|place| !self.is_retired(*place))
    }

    pub(crate) fn is_retired(&self, place: usize) -> bool {
        self.memory.get(self.layout.input(place, RETIRED)) == 1
    }

    /// The place of a connection's record, also where it has nothing but its holds.
    pub(crate) fn any_input(&self, input: InputId) -> Option<usize> {
        self.place(input.0, self.layout.config.inputs, |place| self.layout.input(place, ID))
    }

    pub(crate) fn output(&self, output: OutputId) -> Option<usize> {
        self.place(output.0, self.layout.config.outputs, |place| self.layout.output(place, ID))
    }

    fn place(&self, id: u64, count: u32, word: impl Fn(usize) -> usize) -> Option<usize> {
        let place = (id & 0xffff) as usize;
        let is_there = id != 0 && place < count as usize && self.memory.get(word(place)) == id;
        is_there.then_some(place)
    }

    fn free_place(&self, count: u32, word: impl Fn(usize) -> usize) -> Result<usize, JoinError> {
        let mut places = 0..count as usize;
        places.find(|place| self.memory.get(word(*place)) == 0).ok_or(JoinError::NoConnection)
    }

    fn new_id(&mut self, place: usize) -> u64 {
        let serial = self.memory.get(SERIAL) + 1;
        self.memory.set(SERIAL, serial);
        serial << 16 | place as u64
    }

    fn first_floor(&self, from: From) -> Time {
        match from {
            From::Oldest => Time::MIN,
            From::At(time) => time,
            From::Next => self.memory.time(NEXT),
            From::Newest => {
                let here = self.visible().next_back().map(|at| self.slot_time(self.slot_at(at)));
                // A mirror may not have the newest item of its home.
                let elsewhere = Some(self.memory.time(ELSEWHERE)).filter(|time| *time > Time::MIN);
                here.max(elsewhere).unwrap_or_else(|| self.memory.time(NEXT))
            }
        }
    }

    /// The items, by their times.
    pub(crate) fn items(&self) -> Ring {
        Ring::new(self.layout.items())
    }

    /// The places of visible items among all, in the order of their times.
    pub(crate) fn visible(&self) -> impl DoubleEndedIterator<Item = usize> {
        let places = 0..self.items().len(&self.memory);
        places.filter(|at| self.state(self.slot_at(*at)) == VISIBLE)
    }

    pub(crate) fn slot_at(&self, place: usize) -> usize {
        self.items().get(&self.memory, place) as usize
    }

    pub(crate) fn slot_time(&self, slot: usize) -> Time {
        self.memory.time(self.layout.slot(slot, TIME))
    }

    pub(crate) fn state(&self, slot: usize) -> u64 {
        self.memory.get(self.layout.slot(slot, STATE))
    }

    pub(crate) fn set_state(&mut self, slot: usize, state: u64) {
        self.memory.set(self.layout.slot(slot, STATE), state);
    }

    /// Makes a slot one that nobody uses.
    pub(crate) fn free(&mut self, slot: usize) {
        self.watched(|channel| {
            let (first, count) = (channel.memory.get(FREE), channel.memory.get(FREE_COUNT));
            channel.set_state(slot, FREE_SLOT);
            channel.memory.set(channel.layout.slot(slot, NEXT_FREE), first);
            channel.memory.set(FREE, slot as u64 + 1);
            channel.memory.set(FREE_COUNT, count + 1);
        });
    }

    /// Tells the watch before and after a slot is taken or freed.
    pub(crate) fn watched(&mut self, changes: impl FnOnce(&mut Channel<W>)) {
        let tell = |channel: &Channel<W>, begins| {
            if let Some(watch) = &channel.watch {
                watch(begins);
            }
        };
        tell(self, true);
        changes(self);
        tell(self, false);
    }

    pub(crate) fn has(&self, slot: usize, set: Set, place: usize) -> bool {
        self.memory.get(self.layout.set(slot, set).start + place / 64) >> (place % 64) & 1 == 1
    }

    pub(crate) fn insert(&mut self, slot: usize, set: Set, place: usize) {
        let at = self.layout.set(slot, set).start + place / 64;
        let word = self.memory.get(at);
        self.memory.set(at, word | 1 << (place % 64));
    }

    pub(crate) fn remove(&mut self, slot: usize, set: Set, place: usize) {
        let at = self.layout.set(slot, set).start + place / 64;
        let word = self.memory.get(at);
        self.memory.set(at, word & !(1 << (place % 64)));
    }

    pub(crate) fn is_empty(&self, slot: usize, set: Set) -> bool {
        self.layout.set(slot, set).all(|at| self.memory.get(at) == 0)
    }

    pub(crate) fn clear(&mut self, slot: usize, set: Set) {
        for at in self.layout.set(slot, set) {
            self.memory.set(at, 0);
        }
    }
}
