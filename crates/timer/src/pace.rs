//! The turns of a loop at a fixed period.

use loopscope_time::MonotonicNs;
use nix::errno::Errno;

use crate::{Timer, Wait, now};

/// The turns of a loop: turn n is due n periods after the first one, on the absolute clock, so that
/// no delay of one moves those after it.
#[derive(Clone, Debug)]
pub struct Pace {
    timer: Timer,
    period_ns: u64,
    tolerance_ns: u64,
    /// When turn 0 was due.
    start: Option<MonotonicNs>,
    /// The number of the next one.
    next: u64,
}

/// A turn of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its number, from 0.
    pub number: u64,
    /// When it was due.
    pub due: MonotonicNs,
    /// How much later it begins, ns.
    pub late_ns: u64,
    /// Turns before it that were left out, because the loop was not there when they were due and was
    /// not there one period later either.
    pub skipped: u64,
    /// Whether it begins later than tolerated, or others were left out.
    pub slipped: bool,
}

impl Pace {
    /// Turns of a period in ns, at least 1; one that is more than `tolerance_ns` late has slipped.
    pub fn new(period_ns: u64, tolerance_ns: u64, wait: Wait) -> Pace {
        let period_ns = period_ns.max(1);
        Pace { timer: Timer::new(wait), period_ns, tolerance_ns, start: None, next: 0 }
    }

    /// When the next turn is due, as seen now. The first one is due at once.
    pub fn due(&self) -> MonotonicNs {
        let now = now();
        self.at(self.upcoming(now), self.start.unwrap_or(now))
    }

    /// Waits for the next turn. For one thread.
    ///
    /// # Errors
    /// The kernel cannot sleep.
    pub fn turn(&mut self) -> Result<Turn, Errno> {
        let now = now();
        let start = *self.start.get_or_insert(now);
        let number = self.upcoming(now);
        let due = self.at(number, start);
        let began = self.timer.until(due)?;
        let late_ns = began.ns_since(due).max(0).cast_unsigned();
        let skipped = number - self.next;
        self.next = number.saturating_add(1);
        let slipped = late_ns > self.tolerance_ns || skipped > 0;
        Ok(Turn { number, due, late_ns, skipped, slipped })
    }

    /// The next turn, or the last one that is due where several are.
    fn upcoming(&self, now: MonotonicNs) -> u64 {
        let start = self.start.unwrap_or(now);
        let passed = now.ns_since(start).max(0).cast_unsigned() / self.period_ns;
        self.next.max(passed)
    }

    fn at(&self, number: u64, start: MonotonicNs) -> MonotonicNs {
        MonotonicNs(start.0.saturating_add(number.saturating_mul(self.period_ns)))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn turns_are_due_at_multiples_of_the_period_and_begin_no_earlier() {
        let mut pace = Pace::new(2 * MS, MS, Wait::Sleep);
        let first = pace.turn().unwrap();
        assert_eq!((first.number, first.skipped), (0, 0));
        let mut before = first.number;
        for _ in 0..20 {
            let turn = pace.turn().unwrap();
            let began = now();
            assert_eq!(turn.number, before + 1 + turn.skipped);
            assert_eq!(turn.due.ns_since(first.due), (turn.number * 2 * MS).cast_signed());
            assert!(began.ns_since(turn.due) >= turn.late_ns.cast_signed());
            assert!(turn.late_ns < 2 * MS || turn.slipped);
            before = turn.number;
        }
    }

    #[test]
    fn a_loop_that_was_away_takes_the_last_turn_that_is_due_and_says_how_many_it_left_out() {
        let mut pace = Pace::new(10 * MS, u64::MAX, Wait::Sleep);
        let first = pace.turn().unwrap();
        thread::sleep(Duration::from_millis(35));
        let passed = now();
        let turn = pace.turn().unwrap();
        // At 35 ms turn 3 is due since 5 ms; 1 and 2 are left out.
        let number = passed.ns_since(first.due).cast_unsigned() / (10 * MS);
        assert!(turn.number >= number.max(3) && turn.skipped == turn.number - 1 && turn.slipped);
        assert!(turn.late_ns >= passed.ns_since(turn.due).max(0).cast_unsigned());
        let next = pace.turn().unwrap();
        assert_eq!(next.number, turn.number + 1 + next.skipped);
    }

    #[test]
    fn what_is_tolerated_has_not_slipped() {
        let slips = |tolerance_ns| {
            let mut pace = Pace::new(50 * MS, tolerance_ns, Wait::Sleep);
            pace.turn().unwrap();
            thread::sleep(Duration::from_millis(60));
            let turn = pace.turn().unwrap();
            // On a machine that holds it up for longer another turn is due.
            (turn.skipped == 0).then_some((turn.late_ns, turn.slipped))
        };
        let tolerated = slips(49 * MS);
        let slipped = slips(MS);
        assert!(tolerated.is_none_or(|(late, slipped)| slipped == (late > 49 * MS)));
        assert!(slipped.is_none_or(|(late, slipped)| slipped && late >= 9 * MS));
    }
}
