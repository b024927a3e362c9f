//! A list of words in a ring, which grows and shrinks cheaply at both ends.

use crate::memory::Memory;
use crate::words::Words;

/// Where a ring is. Its begin and length are two words, whose operations are logged as any others.
#[derive(Clone, Copy)]
pub(crate) struct Ring {
    meta: usize,
    words: usize,
    room: usize,
}

impl Ring {
    pub(crate) fn new((meta, words, room): (usize, usize, usize)) -> Ring {
        Ring { meta, words, room }
    }

    pub(crate) fn len<W: Words>(self, memory: &Memory<W>) -> usize {
        memory.get(self.meta + 1) as usize
    }

    pub(crate) fn get<W: Words>(self, memory: &Memory<W>, place: usize) -> u64 {
        memory.get(self.word(memory, place))
    }

    /// How many of the first values fulfil a condition, after which none does.
    pub(crate) fn partition<W: Words>(
        self,
        memory: &Memory<W>,
        mut condition: impl FnMut(u64) -> bool,
    ) -> usize {
        let (mut low, mut high) = (0, self.len(memory));
        // Most look for one of the ends.
        if high == 0 || condition(self.get(memory, high - 1)) {
            return high;
        }
        if !condition(self.get(memory, 0)) {
            return 0;
        }
        while low < high {
            let middle = low.midpoint(high);
            if condition(self.get(memory, middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Makes `value` that of a place, and moves those on its shorter side. The ring is not full.
    pub(crate) fn insert<W: Words>(self, memory: &mut Memory<W>, place: usize, value: u64) {
        let length = self.len(memory);
        debug_assert!(length < self.room && place <= length);
        if place < length - place {
            self.set_begin(memory, self.room - 1);
            self.set_len(memory, length + 1);
            for each in 0..place {
                self.copy(memory, each + 1, each);
            }
        } else {
            self.set_len(memory, length + 1);
            for each in (place..length).rev() {
                self.copy(memory, each, each + 1);
            }
        }
        self.set(memory, place, value);
    }

    /// Removes the value of a place, and moves those on its shorter side.
    pub(crate) fn remove<W: Words>(self, memory: &mut Memory<W>, place: usize) {
        let length = self.len(memory);
        if place < length - 1 - place {
            for each in (0..place).rev() {
                self.copy(memory, each, each + 1);
            }
            self.set_begin(memory, 1);
        } else {
            for each in place + 1..length {
                self.copy(memory, each, each - 1);
            }
        }
        self.set_len(memory, length - 1);
    }

    /// Has the values from a place on be others, for all of which there is room.
    pub(crate) fn replace_from<W: Words>(
        self,
        memory: &mut Memory<W>,
        place: usize,
        values: impl ExactSizeIterator<Item = u64>,
    ) {
        self.set_len(memory, place + values.len());
        for (number, value) in values.enumerate() {
            self.set(memory, place + number, value);
        }
    }

    pub(crate) fn drop_first<W: Words>(self, memory: &mut Memory<W>, count: usize) {
        let length = self.len(memory);
        self.set_begin(memory, count);
        self.set_len(memory, length - count);
    }

    fn word<W: Words>(self, memory: &Memory<W>, place: usize) -> usize {
        let at = memory.get(self.meta) as usize + place;
        self.words + if at < self.room { at } else { at - self.room }
    }

    fn set<W: Words>(self, memory: &mut Memory<W>, place: usize, value: u64) {
        let at = self.word(memory, place);
        memory.set(at, value);
    }

    /// Gives a place the value of another one.
    pub(crate) fn copy<W: Words>(self, memory: &mut Memory<W>, from: usize, to: usize) {
        if from != to {
            let value = self.get(memory, from);
            self.set(memory, to, value);
        }
    }

    /// Moves the begin on, by less than once around.
    fn set_begin<W: Words>(self, memory: &mut Memory<W>, by: usize) {
        let begin = memory.get(self.meta) as usize + by;
        memory.set(self.meta, (begin % self.room.max(1)) as u64);
    }

    fn set_len<W: Words>(self, memory: &mut Memory<W>, length: usize) {
        memory.set(self.meta + 1, length as u64);
    }
}
