//! The slots' hand-over from the one writer to any number of readers, in other processes, which never
//! wait for it. The readers' side in C is `crates/clock/c/read.c`; this one is for a new writer, and
//! for the model checker.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use loopscope_clock::layout::RETIRED;

/// A shared word and its fence: the machine's, or those of the model checker.
pub(super) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn fence(order: Ordering);
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    fn fence(order: Ordering) {
        fence(order);
    }
}

/// Publication n is in slot n modulo their number. Only the newest is ever read, so that a slot is
/// left alone for as long as the others take to be written.
pub(super) struct Ring<'a, W, const WORDS: usize> {
    /// Number of the newest publication; 0: none yet; or [`RETIRED`].
    pub current: &'a W,
    pub slots: &'a [[W; WORDS]],
}

impl<W: Word, const WORDS: usize> Ring<'_, W, WORDS> {
    fn slot(&self, number: u64) -> &[W; WORDS] {
        &self.slots[(number % self.slots.len() as u64) as usize]
    }

    /// The newest publication's number, for the only writer: none is coming. Acquire: what the writer
    /// before this one stored is before what this one stores.
    pub fn newest(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    /// Makes publication `number`, which follows the newest one. `before` is called before each store.
    pub fn publish(&self, number: u64, words: &[u64; WORDS], mut before: impl FnMut(usize)) {
        // Pairs with the fence in `read`: a reader that sees one of the words below, while it copies
        // what the slot held before, sees that `current` is at least `number - 1` too.
        W::fence(Ordering::Release);
        for (index, (word, value)) in self.slot(number).iter().zip(words).enumerate() {
            before(index);
            word.store(*value, Ordering::Relaxed);
        }
        before(WORDS);
        // Release pairs with the acquire load in `read`: who sees the number sees the words.
        self.current.store(number, Ordering::Release);
    }

    /// One attempt to copy the newest publication: `None` where there is none, or where it was lost
    /// to the writer meanwhile.
    pub fn read(&self) -> Option<(u64, [u64; WORDS])> {
        // Pairs with the release store in `publish`.
        let number = self.current.load(Ordering::Acquire);
        if number == 0 || number == RETIRED {
            return None;
        }
        let words = self.slot(number).each_ref().map(|word| word.load(Ordering::Relaxed));
        // Pairs with the fence in `publish`: the slot is written again for publication
        // `number + slots`, while `current` is one less.
        W::fence(Ordering::Acquire);
        let ahead = self.current.load(Ordering::Relaxed).wrapping_sub(number);
        (ahead < self.slots.len() as u64 - 1).then_some((number, words))
    }
}
