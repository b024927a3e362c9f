//! What is not known of a process, in words.

use std::collections::BTreeSet;

/// Texts that are kept; the rest is counted.
const MOST: usize = 8;

/// Reasons why more may have happened in a process than its account says.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    texts: BTreeSet<String>,
    more: u64,
}

impl Doubts {
    pub(crate) fn add(&mut self, text: String) {
        if self.texts.len() < MOST {
            self.texts.insert(text);
        } else if !self.texts.contains(&text) {
            self.more = self.more.saturating_add(1);
        }
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        let more = (self.more > 0).then(|| format!("and {} times the like of it", self.more));
        self.texts.iter().cloned().chain(more).collect()
    }
}
