//! A window of the sequence numbers of a session that have been received.

/// A replay window as in IPsec (RFC 4303 §3.4.3): the highest number, and which of those just below
/// it came.
#[derive(Debug, Default)]
pub(super) struct ReplayWindow {
    /// One beyond the highest.
    next: u64,
    /// Bit n: `next - 1 - n` has come.
    came: u128,
}

impl ReplayWindow {
    /// Takes note of `seq`; false if it has come before, or is too old to tell.
    pub(super) fn admit(&mut self, seq: u64) -> bool {
        if seq >= self.next {
            // The very last number would have no successor; nobody gets there.
            let Some(next) = seq.checked_add(1) else { return false };
            let shift = u32::try_from(next - self.next).unwrap_or(u32::MAX);
            self.came = self.came.checked_shl(shift).unwrap_or(0) | 1;
            self.next = next;
            return true;
        }
        let back = u32::try_from(self.next - 1 - seq).unwrap_or(u32::MAX);
        let Some(bit) = 1u128.checked_shl(back) else { return false };
        let new = self.came & bit == 0;
        self.came |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// No number twice; each once that is not far behind.
        #[test]
        fn each_number_passes_once(numbers in prop::collection::vec(0u64..400, 1..300)) {
            let (mut window, mut seen, mut highest) = (ReplayWindow::default(), BTreeSet::new(), 0);
            for number in numbers {
                let new = !seen.contains(&number);
                if window.admit(number) {
                    prop_assert!(new, "{number} twice");
                    seen.insert(number);
                } else {
                    prop_assert!(!new || number + 128 <= highest, "{number} after {highest}");
                }
                highest = highest.max(number);
            }
        }
    }

    #[test]
    fn the_ends_of_the_numbers() {
        let mut window = ReplayWindow::default();
        assert!(window.admit(0));
        assert!(!window.admit(0));
        assert!(!window.admit(u64::MAX));
        assert!(window.admit(u64::MAX - 1));
        assert!(!window.admit(0));
    }
}
