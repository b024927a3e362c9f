//! Counts a process's packets that came, and their order. Sans-I/O.

use std::collections::VecDeque;

/// Numbers as ranges, both ends included, sorted, with a gap between any two.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Adds `number`; `false` if it was there.
    pub(super) fn add(&mut self, number: u64) -> bool {
        // Nearly always it follows the last one.
        if let Some(last) = self.0.last_mut()
            && number == last.1 + 1
        {
            last.1 = number;
            return true;
        }
        let after = self.0.partition_point(|range| range.0 <= number);
        let joins_next = self.0.get(after).is_some_and(|next| next.0 == number + 1);
        if let Some(before) = after.checked_sub(1) {
            let end = self.0[before].1;
            if number <= end {
                return false;
            }
            if number == end + 1 {
                self.0[before].1 = number;
                if joins_next {
                    self.0[before].1 = self.0.remove(after).1;
                }
                return true;
            }
        }
        if joins_next {
            self.0[after].0 = number;
        } else {
            self.0.insert(after, (number, number));
        }
        true
    }

    /// The ranges from 0 to `end` (not included) that are not in it.
    pub(super) fn missing(&self, end: u64) -> Vec<(u64, u64)> {
        let mut missing = Vec::new();
        let mut next = 0;
        for &(first, last) in &self.0 {
            if first > next {
                missing.push((next, first - 1));
            }
            next = last + 1;
        }
        if next < end {
            missing.push((next, end - 1));
        }
        missing
    }

    /// One more than the largest number.
    pub(super) fn end(&self) -> u64 {
        self.0.last().map_or(0, |last| last.1 + 1)
    }
}

/// How many packets in order are remembered: no extent above this is exact.
const MEMORY: usize = 1 << 16;

/// Reordering as RFC 4737 counts it: a packet is reordered if one with a larger number came before
/// it (§3.2); its extent is how many packets before it the first such one came (§4.2.2).
/// Duplicates have to be left out.
#[derive(Clone, Debug, Default)]
pub(super) struct Reordering {
    /// Packets in order: number, and the place at which they came.
    in_order: VecDeque<(u64, u64)>,
    came: u64,
    pub(super) count: u64,
    pub(super) largest_extent: u64,
}

impl Reordering {
    pub(super) fn add(&mut self, number: u64) {
        let place = self.came;
        self.came += 1;
        if self.in_order.back().is_none_or(|last| last.0 < number) {
            if self.in_order.len() == MEMORY {
                self.in_order.pop_front();
            }
            self.in_order.push_back((number, place));
            return;
        }
        self.count += 1;
        // The first larger one was in order itself.
        let first = self.in_order.partition_point(|earlier| earlier.0 <= number);
        self.largest_extent = self.largest_extent.max(place - self.in_order[first].1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn reordering(numbers: &[u64]) -> (u64, u64) {
        let mut reordering = Reordering::default();
        numbers.iter().for_each(|&number| reordering.add(number));
        (reordering.count, reordering.largest_extent)
    }

    #[test]
    fn the_rfcs_examples() {
        // RFC 4737 §8.1: packet 4 comes two places late, behind 5 and 6.
        assert_eq!(reordering(&[1, 2, 3, 5, 6, 4, 7, 8]), (1, 2));
        // §8.2: 7 to 9 overtake 4, 5 and 6.
        assert_eq!(reordering(&[1, 2, 3, 7, 8, 9, 4, 5, 6, 10]), (3, 5));
        assert_eq!(reordering(&[1, 2, 10, 20]), (0, 0));
    }

    proptest! {
        #[test]
        fn ranges_are_the_set_of_numbers(numbers in prop::collection::vec(0_u64..60, 0..100)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for &number in &numbers {
                prop_assert_eq!(ranges.add(number), set.insert(number));
            }
            let missing: BTreeSet<u64> =
                ranges.missing(80).into_iter().flat_map(|(first, last)| first..=last).collect();
            prop_assert_eq!(missing, (0..80).filter(|n| !set.contains(n)).collect());
            prop_assert_eq!(ranges.end(), set.last().map_or(0, |last| last + 1));
            prop_assert!(ranges.0.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
        }

        #[test]
        fn reordering_is_what_its_definition_says(
            numbers in Just((0_u64..40).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let extents: Vec<u64> = (0..numbers.len())
                .filter_map(|i| {
                    let first = numbers[..i].iter().position(|&other| other > numbers[i])?;
                    Some((i - first) as u64)
                })
                .collect();
            let expected = (extents.len() as u64, extents.iter().copied().max().unwrap_or(0));
            prop_assert_eq!(reordering(&numbers), expected);
        }
    }
}
