//! By how much the counters of this machine's processors differ.
//!
//! Two threads, each kept on one processor, hand a word to and fro. The second reads its counter
//! between two readings of the first, so its counter is ahead of the first one's by no less than its
//! reading less the later of the two, and by no more than its reading less the earlier. All rounds
//! hold at once; the shortest says most. What is left is half the shortest round trip where counters
//! agree: some tens of nanoseconds on one socket, and more where the machine was busy meanwhile.
//!
//! On a machine with few processors each pair is measured; with many, each one with the first.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use loopscope_time::Frequency;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::counter::{CounterError, require_sound};
use crate::online::Online;
use crate::resolution;
use crate::stamp::ordered_counter;

/// Processors of a machine whose counters differ by more are refused: no width has so much in it.
pub const LIMIT_NS: u64 = 1_000;

/// Rounds of a pair.
const ROUNDS: u64 = 1_000;
/// A busy processor runs the thread only now and then. Until both threads were seen to run at the same
/// time, which leaves less than this many ticks open, there are more rounds.
const OPEN: u64 = 20_000;
/// But not for longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// The word after the last round.
const OVER: u64 = u64::MAX;
/// Below so many pairs each is measured.
const PAIRS: usize = 120;

/// Two processors, and by how many ticks the second one's counter is ahead of the first one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Their numbers.
    pub processors: [u32; 2],
    /// At least.
    pub least: i64,
    /// At most.
    pub most: i64,
}

impl Ahead {
    /// The bounds for two processors of which nothing is known.
    fn unknown(processors: [u32; 2]) -> Ahead {
        Ahead { processors, least: i64::MIN, most: i64::MAX }
    }

    /// What one round adds: the first processor's counter before and after the second one's.
    fn see(&mut self, before: u64, there: u64, after: u64) {
        self.least = self.least.max(there.wrapping_sub(after).cast_signed());
        self.most = self.most.min(there.wrapping_sub(before).cast_signed());
    }

    /// The counters are surely no further apart.
    fn within(&self) -> u64 {
        self.least.unsigned_abs().max(self.most.unsigned_abs())
    }

    /// Whether the two never ran at the same time, so that no width could hold.
    fn is_open(&self) -> bool {
        self.most.abs_diff(self.least) > 100 * OPEN
    }

    /// The counters are surely further apart than this.
    fn beyond(&self) -> u64 {
        self.least.max(self.most.saturating_neg()).max(0).unsigned_abs()
    }
}

/// What was found of all processors that this process may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skew {
    /// What is known of each pair that was measured.
    pub pairs: Vec<Ahead>,
    /// Whether that is all pairs, or each processor with the first.
    pub each: bool,
    /// By how many ticks a reading may be older than it says, on whatever processor.
    pub step: u64,
}

impl Skew {
    /// Any two counters are surely no further apart, in ticks, and no further than this from what a
    /// counter without steps would show.
    pub fn within(&self) -> u64 {
        let worst = self.pairs.iter().map(Ahead::within).max().unwrap_or(0);
        let worst = if self.each { worst } else { worst.saturating_mul(2) };
        worst.saturating_add(self.step)
    }

    /// The pair whose counters are surely furthest apart.
    fn worst(&self) -> Option<&Ahead> {
        self.pairs.iter().max_by_key(|pair| pair.beyond())
    }

    /// Refuses counters that are surely further apart than [`LIMIT_NS`], and those of which nothing
    /// is known.
    pub fn check(&self, frequency: Frequency) -> Result<(), CounterError> {
        let ns = |ticks: u64| (ticks as f64 * frequency.ns_per_tick()) as u64;
        if let Some(busy) = self.pairs.iter().find(|pair| pair.is_open()) {
            return Err(CounterError::Busy(busy.processors));
        }
        match self.worst() {
            Some(pair) if ns(pair.beyond()) > LIMIT_NS => Err(CounterError::Processors {
                processors: pair.processors,
                ns: ns(pair.beyond()),
                limit_ns: LIMIT_NS,
            }),
            _ => Ok(()),
        }
    }
}

/// The skew of this machine's processors, measured when it is asked for the first time.
pub fn of_this_machine() -> &'static Skew {
    #[cfg(test)]
    if let Some(assumed) = tests::ASSUMED.get() {
        return assumed;
    }
    static MEASURED: OnceLock<Skew> = OnceLock::new();
    MEASURED.get_or_init(|| measure(&allowed()))
}

/// What a reference on this machine knows: its time is what lies in the middle of its processors'
/// counters.
pub fn reference(frequency: Frequency) -> Online {
    let mut online = Online::reference(frequency);
    let apart_ns = of_this_machine().within() as f64 * frequency.ns_per_tick();
    online.set_apart(0.5 * apart_ns, apart_ns);
    online
}

/// Refuses cycles that do not tell time, and a counter of which processors have different ones.
pub fn require_one(frequency: Frequency) -> Result<(), CounterError> {
    require_sound()?;
    of_this_machine().check(frequency)
}

/// The processors that this process may use.
fn allowed() -> Vec<u32> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return Vec::new() };
    let is_in = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
    (0..CpuSet::count()).filter(is_in).map(|cpu| cpu as u32).collect()
}

fn measure(processors: &[u32]) -> Skew {
    let count = processors.len();
    let each = count * count.saturating_sub(1) / 2 <= PAIRS;
    let firsts = if each { count } else { 1 };
    let mut pairs = Vec::new();
    for (i, first) in processors.iter().enumerate().take(firsts) {
        for second in &processors[i + 1..] {
            pairs.push(ahead([*first, *second]));
        }
    }
    Skew { pairs, each, step: resolution::of_this_machine().step }
}

/// Measures one pair, either of the two having the first word once: what makes one way of the word
/// longer than the other falls on both sides then.
fn ahead([first, second]: [u32; 2]) -> Ahead {
    let (there, back) = (exchanged([first, second]), exchanged([second, first]));
    Ahead {
        processors: [first, second],
        least: there.least.max(back.most.saturating_neg()),
        most: there.most.min(back.least.saturating_neg()),
    }
}

/// What the rounds of one order say.
fn exchanged(processors: [u32; 2]) -> Ahead {
    let [turn, stamp] = [AtomicU64::new(0), AtomicU64::new(0)];
    let end = Instant::now() + PATIENCE;
    let mut found = Ahead::unknown(processors);
    std::thread::scope(|scope| {
        let there = || {
            if !stay_on(processors[1]) {
                return;
            }
            for round in 0.. {
                if !wait_for(&turn, 2 * round + 1, end) {
                    return;
                }
                stamp.store(ordered_counter().0, Ordering::Relaxed);
                // Pairs with the load in `wait_for` on the other side, which then sees the stamp.
                turn.store(2 * round + 2, Ordering::Release);
            }
        };
        let here = || {
            let mut found = Ahead::unknown(processors);
            if !stay_on(processors[0]) {
                turn.store(OVER, Ordering::Relaxed);
                return found;
            }
            for round in 0.. {
                if round >= ROUNDS && found.most.abs_diff(found.least) < OPEN {
                    break;
                }
                let before = ordered_counter();
                // Pairs with the load in `wait_for` on the other side.
                turn.store(2 * round + 1, Ordering::Release);
                if !wait_for(&turn, 2 * round + 2, end) {
                    break;
                }
                let after = ordered_counter();
                found.see(before.0, stamp.load(Ordering::Relaxed), after.0);
            }
            turn.store(OVER, Ordering::Relaxed);
            found
        };
        // Threads of their own: the caller stays where it may run.
        let other = std::thread::Builder::new().spawn_scoped(scope, there);
        let own = std::thread::Builder::new().spawn_scoped(scope, here);
        if other.is_err() {
            turn.store(OVER, Ordering::Relaxed);
        }
        if let Ok(own) = own {
            found = own.join().unwrap_or(found);
        }
    });
    found
}

fn stay_on(processor: u32) -> bool {
    let mut set = CpuSet::new();
    set.set(processor as usize).is_ok() && sched_setaffinity(Pid::from_raw(0), &set).is_ok()
}

/// Whether the word became `value` before `end`.
fn wait_for(word: &AtomicU64, value: u64, end: Instant) -> bool {
    for spins in 1u32.. {
        // Pairs with the stores of the other side.
        match word.load(Ordering::Acquire) {
            found if found == value => return true,
            OVER => return false,
            _ => {}
        }
        if spins.is_multiple_of(1024) && Instant::now() >= end {
            return false;
        }
        std::hint::spin_loop();
    }
    false
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    fn hz() -> Frequency {
        Frequency::from_hz(2_000_000_000).unwrap()
    }

    thread_local! {
        /// Stands in a test's thread for what would be measured.
        pub(crate) static ASSUMED: Cell<Option<&'static Skew>> = const { Cell::new(None) };
    }

    proptest! {
        /// Whatever the ways of the word take, and whether the second counter is behind or ahead, the
        /// truth is inside, and the shortest round bounds the width.
        #[test]
        fn the_truth_is_inside(
            ahead in -100_000i64..100_000,
            ways in prop::collection::vec((1u64..5_000, 1u64..5_000), 1..50),
        ) {
            let (mut now, mut found) = (1u64 << 40, Ahead::unknown([0, 1]));
            for (there, back) in &ways {
                found.see(now, (now + there).wrapping_add_signed(ahead), now + there + back);
                now += there + back + 17;
            }
            prop_assert!((found.least..=found.most).contains(&ahead), "{found:?}");
            prop_assert!(found.within() >= ahead.unsigned_abs());
            prop_assert!(found.beyond() <= ahead.unsigned_abs());
            let shortest = ways.iter().map(|(there, back)| there + back).min().unwrap();
            prop_assert!((found.most - found.least).unsigned_abs() <= shortest);
        }
    }

    #[test]
    fn counters_that_are_surely_apart_are_refused_and_those_that_may_agree_are_not() {
        let of = |least, most| Skew {
            pairs: vec![
                Ahead { processors: [0, 1], least: -80, most: 90 },
                Ahead { processors: [0, 5], least, most },
            ],
            each: true,
            step: 0,
        };
        assert_eq!(of(-100, 300).within(), 300);
        assert_eq!(Skew { step: 70, ..of(-100, 300) }.within(), 370);
        assert!(of(-100, 300).check(hz()).is_ok());
        let busy = Skew { pairs: vec![Ahead::unknown([2, 3])], each: true, step: 0 }.check(hz());
        assert_eq!(busy, Err(CounterError::Busy([2, 3])));
        assert!(of(1_900, 2_500).check(hz()).is_ok());
        for (least, most) in [(2_100, 2_500), (-9_000, -2_100)] {
            let error = of(least, most).check(hz()).unwrap_err().to_string();
            assert!(error.contains("processors 0 and 5") && error.contains("1050 ns"), "{error}");
        }
        let star = Skew { each: false, ..of(-100, 300) };
        assert_eq!(star.within(), 600);
        assert_eq!(Skew { step: 70, ..star }.within(), 670);
    }

    /// This machine's are measured, and no pair is left out.
    #[test]
    fn this_machines_counters_agree() {
        let found = of_this_machine();
        let count = allowed().len();
        assert!(count > 0);
        let pairs = if found.each { count * (count - 1) / 2 } else { count - 1 };
        assert_eq!(found.pairs.len(), pairs);
        assert_eq!(found.check(hz()), Ok(()), "{found:?}");
        eprintln!("within {} ticks: {found:?}", found.within());
    }
}
