//! What has arrived of a numbered stream: losses, reordering, duplicates. Sans-I/O.

use serde::{Deserialize, Serialize};

/// How far behind the highest number a packet can be told from its own duplicate.
const WINDOW: u64 = 1 << 16;

/// What arrived of the numbers from 1 on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Arrivals {
    /// Packets that came for the first time.
    pub(super) packets: u64,
    /// Number of them that a packet sent later had overtaken (RFC 4737 §3).
    pub(super) reordered: u64,
    /// Packets that had come before.
    pub(super) duplicates: u64,
    /// Packets 65 536 or more behind the highest number: late or a duplicate, nobody knows. They
    /// are in no other count.
    pub(super) stale: u64,
    /// Numbers sent that never came; `None` until the sender has said how many it sent. Stale
    /// packets are among them.
    pub(super) lost: Option<u64>,
}

/// Keeps the account.
pub(super) struct Sequence {
    arrivals: Arrivals,
    highest: u64,
    /// Bit `n % WINDOW`: number n of the window has come.
    seen: Vec<u64>,
}

impl Sequence {
    pub(super) fn new() -> Sequence {
        let seen = vec![0; (WINDOW / 64) as usize];
        Sequence { arrivals: Arrivals::default(), highest: 0, seen }
    }

    /// Packet `number`, from 1, arrives. Whether it is new.
    pub(super) fn arrive(&mut self, number: u64) -> bool {
        if number + WINDOW <= self.highest {
            self.arrivals.stale += 1;
            return false;
        }
        if number > self.highest {
            // What leaves the window makes room; a jump beyond it clears all of it once.
            for gone in (self.highest + 1).max(number.saturating_sub(WINDOW))..=number {
                self.seen[place(gone)] &= !bit(gone);
            }
            self.highest = number;
        } else if self.seen[place(number)] & bit(number) != 0 {
            self.arrivals.duplicates += 1;
            return false;
        } else {
            self.arrivals.reordered += 1;
        }
        self.seen[place(number)] |= bit(number);
        self.arrivals.packets += 1;
        true
    }

    /// The account after `sent` packets were sent; `None`: it is not known how many.
    pub(super) fn arrivals(&self, sent: Option<u64>) -> Arrivals {
        let lost = sent.map(|sent| sent.saturating_sub(self.arrivals.packets));
        Arrivals { lost, ..self.arrivals.clone() }
    }

    /// Whether all of `sent` are there.
    pub(super) fn complete(&self, sent: u64) -> bool {
        self.arrivals.packets >= sent
    }
}

fn place(number: u64) -> usize {
    (number % WINDOW / 64) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The same by remembering everything.
    fn plainly(numbers: &[u64], sent: u64) -> Arrivals {
        let (mut seen, mut highest) = (HashSet::new(), 0);
        let mut arrivals = Arrivals::default();
        for &number in numbers {
            if number + WINDOW <= highest {
                arrivals.stale += 1;
            } else if !seen.insert(number) {
                arrivals.duplicates += 1;
            } else {
                arrivals.packets += 1;
                arrivals.reordered += u64::from(number < highest);
            }
            highest = highest.max(number);
        }
        arrivals.lost = Some(sent - arrivals.packets);
        arrivals
    }

    #[test]
    fn the_window_forgets_nothing_that_it_should_know() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let sent = 300_000_u64;
            let mut numbers = vec![];
            for number in 1..=sent {
                if random.u32(..10) == 0 {
                    continue;
                }
                numbers.push(number);
                if random.u32(..50) == 0 {
                    // A duplicate or a straggler, near or far behind.
                    let most = random.u32(1..18);
                    let behind = random.u64(..1 << most);
                    numbers.push(number.saturating_sub(behind).max(1));
                }
            }
            // A gap wider than the window.
            if seed % 2 == 0 {
                numbers.retain(|number| !(50_000..170_000).contains(number));
            }
            let mut sequence = Sequence::new();
            for &number in &numbers {
                sequence.arrive(number);
            }
            assert_eq!(sequence.arrivals(Some(sent)), plainly(&numbers, sent), "seed {seed}");
        }
    }

    #[test]
    fn all_there_is_complete() {
        let mut sequence = Sequence::new();
        for number in [2, 1, 4, 4] {
            sequence.arrive(number);
        }
        assert!(!sequence.complete(4));
        assert_eq!(sequence.arrivals(None).lost, None);
        assert!(sequence.arrive(3));
        assert!(sequence.complete(4));
        assert_eq!(
            sequence.arrivals(Some(4)),
            Arrivals { packets: 4, reordered: 2, duplicates: 1, stale: 0, lost: Some(0) }
        );
    }
}
