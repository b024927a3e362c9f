//! Words that change together or not at all: an undo log in the same memory.
//!
//! The log is a word with the number of its entries, and then the entries: the number of a word and
//! its value before it was changed.

use crate::words::Words;

/// Words that a log of `room` changes needs.
pub(crate) fn log_words(room: usize) -> usize {
    1 + 2 * room
}

pub(crate) struct Memory<W> {
    words: W,
    /// The word with the number of entries.
    log: usize,
    /// Entries that there is room for.
    room: usize,
    /// Entries that there are; the word has the same, except after a writer has ended.
    entries: usize,
}

impl<W: Words> Memory<W> {
    /// Words with a log for `room` changes, which begins at word `log`.
    pub(crate) fn new(words: W, log: usize, room: usize) -> Memory<W> {
        Memory { words, log, room, entries: 0 }
    }

    pub(crate) fn get(&self, at: usize) -> u64 {
        self.words.load(at)
    }

    pub(crate) fn time(&self, at: usize) -> i64 {
        self.get(at).cast_signed()
    }

    pub(crate) fn set_time(&mut self, at: usize, value: i64) {
        self.set(at, value.cast_unsigned());
    }

    /// Changes a word until `undo`, or for ever by `keep`.
    pub(crate) fn set(&mut self, at: usize, value: u64) {
        let before = self.words.load(at);
        if before == value {
            return;
        }
        assert!(self.entries < self.room, "the log of an operation has too little room");
        let entry = self.log + 1 + 2 * self.entries;
        self.words.store(entry, at as u64);
        self.words.store(entry + 1, before);
        self.entries += 1;
        self.words.store(self.log, self.entries as u64);
        self.words.store(at, value);
    }

    /// Ends an operation: what it has changed stays so.
    pub(crate) fn keep(&mut self) {
        if self.entries > 0 {
            self.entries = 0;
            self.words.store(self.log, 0);
        }
    }

    /// Ends an operation, also one that its writer did not end: nothing has changed.
    ///
    /// Whether there was something to undo. It may be interrupted, and done again.
    pub(crate) fn undo(&mut self) -> bool {
        let entries = self.words.load(self.log) as usize;
        for number in (0..entries).rev() {
            let entry = self.log + 1 + 2 * number;
            self.words.store(self.words.load(entry) as usize, self.words.load(entry + 1));
        }
        self.entries = 0;
        if entries > 0 {
            self.words.store(self.log, 0);
        }
        entries > 0
    }
}
