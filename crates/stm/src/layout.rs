//! Where the words of a channel are.

use crate::memory::log_words;
use crate::types::{Config, Full, Orphans};
use crate::words::Words;

/// The first word of a channel's memory, and the version of this layout.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"lsstm\0\0\x02");

// Single words, by their places.
const CONFIG: usize = 1;
/// All times below it are gone.
pub(crate) const FLOOR: usize = 10;
/// No item below it is put any more; at least `FLOOR`.
pub(crate) const LATE: usize = 11;
/// One more than the greatest time that was put, or the least time.
pub(crate) const NEXT: usize = 12;
pub(crate) const PUT: usize = 13;
pub(crate) const COLLECTED: usize = 14;
pub(crate) const DROPPED: usize = 15;
/// How many connections have been made.
pub(crate) const SERIAL: usize = 16;
/// Input connections that there are.
pub(crate) const INPUTS: usize = 17;
/// The first of the free slots, plus 1, and how many there are.
pub(crate) const FREE: usize = 18;
pub(crate) const FREE_COUNT: usize = 19;
/// Begin and length of the ring of items, and of that of gone times.
pub(crate) const ITEMS: usize = 20;
pub(crate) const GONE: usize = 22;
/// Times without an item that all input connections have consumed above their floors.
pub(crate) const ALL_AHEAD: usize = 24;
/// The newest time of a mirror's home, or the least time.
pub(crate) const ELSEWHERE: usize = 25;
const LOG: usize = 26;

/// Most connections of a kind, and most slots: numbers of connections have 16 bits for their places.
const MOST_CONNECTIONS: u32 = 1 << 16;
const MOST: u32 = 1 << 24;

// Words of a slot. Then there are the sets of connections.
/// What it is used for: `FREE_SLOT`, `VISIBLE`, `HIDDEN`, or on loan to an output connection.
pub(crate) const STATE: usize = 0;
pub(crate) const TIME: usize = 1;
/// Half-width and length.
pub(crate) const SIZES: usize = 2;
pub(crate) const PUT_NS: usize = 3;
/// The free slot after a free one, plus 1.
pub(crate) const NEXT_FREE: usize = 4;
/// By how much that of `PUT_NS` may be wrong.
pub(crate) const PUT_ERROR: usize = 5;
const SETS: usize = 6;

pub(crate) const FREE_SLOT: u64 = 0;
pub(crate) const VISIBLE: u64 = 1;
/// Its time is gone, but it is held.
pub(crate) const HIDDEN: u64 = 2;
/// Plus the place of the output connection that it is on loan to.
pub(crate) const LOANED: u64 = 3;

// Words of an input connection. Its floor is elsewhere. Then there are the times that it has consumed
// above its floor.
/// Its number; 0: there is none.
pub(crate) const ID: usize = 0;
/// One more than the greatest time that it was given.
pub(crate) const ABOVE: usize = 1;
/// The greatest time that it was given as the newest unseen.
pub(crate) const UNSEEN: usize = 2;
pub(crate) const LOSSY: usize = 3;
pub(crate) const HOLDS: usize = 4;
pub(crate) const HELD: usize = 5;
pub(crate) const LOST: usize = 6;
pub(crate) const SKIPPED: usize = 7;
pub(crate) const AHEAD: usize = 8;
pub(crate) const INPUT_OWNER: usize = 9;
/// 1: it has nothing but its holds.
pub(crate) const RETIRED: usize = 10;
const AHEAD_TIMES: usize = 11;

// Words of an output connection, after its number.
pub(crate) const BOUND: usize = 1;
pub(crate) const LOANS: usize = 2;
pub(crate) const OUTPUT_OWNER: usize = 3;
const OUTPUT: usize = 4;

/// A set of input connections that a slot has.
#[derive(Clone, Copy)]
pub(crate) enum Set {
    Wanted = 0,
    /// Those that it was given to.
    Given = 1,
    Held = 2,
}

pub(crate) struct Layout {
    pub(crate) config: Config,
    /// Words of a set of input connections.
    pub(crate) set_words: usize,
    /// Entries of the log.
    pub(crate) room: usize,
    items: usize,
    gone: usize,
    floors: usize,
    slots: usize,
    inputs: usize,
    outputs: usize,
    /// All words.
    pub(crate) count: usize,
}

impl Layout {
    /// None where the numbers are not such as they have to be, see [`Config`].
    pub(crate) fn new(config: Config) -> Option<Layout> {
        let Config { capacity, slots, inputs, outputs, loans, ahead, remembered, .. } = config;
        let connections = 1..=MOST_CONNECTIONS;
        let valid = (1..=slots).contains(&capacity)
            && connections.contains(&inputs)
            && connections.contains(&outputs)
            && loans >= 1
            && [slots, ahead, remembered].iter().all(|each| *each <= MOST);
        if !valid {
            return None;
        }
        let [slots, inputs, outputs, ahead, remembered] =
            [slots, inputs, outputs, ahead, remembered].map(|each| each as usize);
        let set_words = inputs.div_ceil(64);
        // What one operation changes at most: a word of each set of all slots, and their state, as
        // they are collected; both rings; something of each connection; single words.
        let room =
            slots * (8 + 3 * set_words) + 2 * remembered + 6 * inputs + outputs + 3 * ahead + 32;
        let mut count = LOG + log_words(room);
        let mut take = |words: usize| {
            let at = count;
            count += words;
            at
        };
        Some(Layout {
            config,
            set_words,
            room,
            items: take(slots),
            gone: take(remembered),
            floors: take(inputs),
            slots: take(slots * (SETS + 3 * set_words)),
            inputs: take(inputs * (AHEAD_TIMES + ahead)),
            outputs: take(outputs * OUTPUT),
            count,
        })
    }

    pub(crate) fn log(&self) -> usize {
        LOG
    }

    /// Writes what `read` reads.
    pub(crate) fn write(&self, words: &impl Words) {
        let Config { capacity, slots, inputs, outputs, loans, ahead, remembered, .. } = self.config;
        let kinds = [self.config.orphans == Orphans::Discard, self.config.full == Full::Drop];
        let numbers = [capacity, slots, inputs, outputs, loans, ahead, remembered];
        let every = numbers.into_iter().map(u64::from).chain(kinds.map(u64::from));
        for (place, value) in every.enumerate() {
            words.store(CONFIG + place, value);
        }
        words.store(0, MAGIC);
    }

    /// The layout of a channel that is there.
    pub(crate) fn read(words: &impl Words) -> Option<Layout> {
        if words.count() <= LOG || words.load(0) != MAGIC {
            return None;
        }
        let number = |place| u32::try_from(words.load(CONFIG + place)).ok();
        let layout = Layout::new(Config {
            capacity: number(0)?,
            slots: number(1)?,
            inputs: number(2)?,
            outputs: number(3)?,
            loans: number(4)?,
            ahead: number(5)?,
            remembered: number(6)?,
            orphans: if number(7)? == 1 { Orphans::Discard } else { Orphans::Keep },
            full: if number(8)? == 1 { Full::Drop } else { Full::Refuse },
        })?;
        (layout.count <= words.count()).then_some(layout)
    }

    /// The ring of items has the numbers of slots, by the items' times.
    pub(crate) fn items(&self) -> (usize, usize, usize) {
        (ITEMS, self.items, self.config.slots as usize)
    }

    pub(crate) fn gone(&self) -> (usize, usize, usize) {
        (GONE, self.gone, self.config.remembered as usize)
    }

    pub(crate) fn slot(&self, slot: usize, word: usize) -> usize {
        self.slots + slot * (SETS + 3 * self.set_words) + word
    }

    /// The words of a set of a slot.
    pub(crate) fn set(&self, slot: usize, set: Set) -> std::ops::Range<usize> {
        let at = self.slot(slot, SETS) + set as usize * self.set_words;
        at..at + self.set_words
    }

    pub(crate) fn input(&self, place: usize, word: usize) -> usize {
        self.inputs + place * (AHEAD_TIMES + self.config.ahead as usize) + word
    }

    /// All times below this word's are consumed; the greatest where there is no connection.
    pub(crate) fn floor(&self, place: usize) -> usize {
        self.floors + place
    }

    pub(crate) fn ahead(&self, place: usize, number: usize) -> usize {
        self.input(place, AHEAD_TIMES) + number
    }

    pub(crate) fn output(&self, place: usize, word: usize) -> usize {
        self.outputs + place * OUTPUT + word
    }
}
