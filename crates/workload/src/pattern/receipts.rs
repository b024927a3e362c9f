//! Tracks the messages of a flow that have arrived. No I/O.

/// The numbers of one flow that have arrived, from 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct Receipts {
    /// A bit for each number.
    seen: Vec<u64>,
    /// Distinct ones.
    pub(crate) received: u64,
    /// Datagrams that had come before.
    pub(crate) duplicates: u64,
    highest: u32,
    /// How many were sent, once it is known.
    sent: Option<u64>,
}

impl Receipts {
    pub(crate) fn arrived(&mut self, number: u32) {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit == 0 {
            self.seen[word] |= bit;
            self.received += 1;
            self.highest = self.highest.max(number);
        } else {
            self.duplicates += 1;
        }
    }

    /// Whether a message has arrived.
    pub(crate) fn has(&self, number: u32) -> bool {
        let word = self.seen.get(number as usize / 64).copied().unwrap_or_default();
        word & 1 << (number % 64) != 0
    }

    /// Counts a datagram of a message that had come before.
    pub(crate) fn again(&mut self) {
        self.duplicates += 1;
    }

    /// The producer has ended after so many.
    pub(crate) fn ended(&mut self, sent: u64) {
        self.sent = Some(sent);
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.sent == Some(self.received)
    }

    /// How many are missing: of those that were sent where that is known, else up to the highest
    /// that arrived.
    pub(crate) fn lost(&self) -> u64 {
        self.sent.unwrap_or(self.highest.into()).saturating_sub(self.received)
    }
}

#[cfg(test)]
mod tests {
    use super::Receipts;

    #[test]
    fn each_message_counts_once_in_any_order() {
        let mut receipts = Receipts::default();
        for number in [2, 1, 200, 2, 64, 63, 2] {
            receipts.arrived(number);
        }
        assert_eq!((receipts.received, receipts.duplicates, receipts.lost()), (5, 2, 195));
        let has: Vec<u32> = (0..300).filter(|&number| receipts.has(number)).collect();
        assert_eq!(has, [1, 2, 63, 64, 200]);
        receipts.ended(201);
        assert_eq!(receipts.lost(), 196);
        assert!(!receipts.is_complete());
        for number in 1..=201 {
            receipts.arrived(number);
        }
        assert!(receipts.is_complete());
        assert_eq!((receipts.received, receipts.duplicates, receipts.lost()), (201, 7, 0));
    }
}
