//! Hidden clocks for hosts that in truth share one counter, so that the estimator has work to do
//! and its result can be held against the truth.
//!
//! A hidden clock is what quartzes are: an offset, a rate within ±100 ppm, a rate that walks
//! randomly, and a slow swing with the room's temperature. Steps of the counter and of its rate are
//! added on demand ([`SyntheticClock::with_step`]).
//!
//! Magnitudes, for a counter at 2.6 GHz (others are slower or faster alike):
//!
//! - the walk changes the rate by about 3·10⁻⁹ within a second and 6·10⁻⁸ within seven minutes, and
//!   never strays by more than 1.3·10⁻⁷;
//! - the swing changes it by ±10⁻⁸ to ±10⁻⁷ over a period of 100 to 400 s.
//!
//! Two such clocks differ from a mean rate by 4.6·10⁻⁷ at most: inside the solver's assumption of
//! 10⁻⁶ ([`crate::offline::DEFAULT_WANDER`]) with room to spare.
//!
//! The clock is a broken line through knots of whole ticks. A knot's place is computed from its
//! number alone, with additions and products of doubles and nothing else, so it is the same on
//! every machine, in every process and for any order of asking.

use std::cell::Cell;

use loopscope_time::Counter;

const PARTS: u128 = 1_000_000_000;
/// Largest rate against the true counter, in parts per billion (100 ppm).
const MAX_RATE_PPB: u64 = 100_000;
/// Offsets in ticks: about 0.4 s to 26 s of a counter at 2.6 GHz.
const OFFSETS: std::ops::Range<u64> = 1 << 30..1 << 36;
/// Binary logarithm of the ticks between two knots: 0.1 s.
const KNOT: u32 = 28;
/// Cells of the walk, as binary logarithms of their ticks: 0.1 s to seven minutes.
const CELLS: std::ops::RangeInclusive<u32> = KNOT..=40;
/// Largest change of rate that a cell of the shortest length brings; the others bring more with the
/// square root of their length, as in a random walk.
const SHORTEST: f64 = 6e-10;
/// Rates of the swing, in parts of 10⁹.
const SWING_PPB: std::ops::Range<u64> = 10..100;
/// Periods of the swing, in ticks: 100 to 400 s.
const PERIODS: std::ops::Range<u64> = 1 << 38..1 << 40;
/// By how much of itself a clock's rate differs at most between any two instants without a step
/// between them.
pub const BEND: f64 = 5e-7;
/// Steps that one clock can have.
const STEPS: usize = 4;

/// One host's hidden clock, in whole ticks. It never goes back; where it is slower than the true
/// counter, two neighbouring true ticks may share a synthetic one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticClock {
    /// The key of all random choices.
    key: u64,
    offset: u64,
    /// 1 + rate, in parts per billion.
    pace: u64,
    swing_ppb: u64,
    period: u64,
    phase: u64,
    /// By instant; those that are not set have the last.
    steps: [Step; STEPS],
}

/// A disturbance of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, on the true counter.
    pub at: Counter,
    /// By how many ticks it jumps ahead.
    pub ticks: u64,
    /// By how much its rate changes, in parts per billion.
    pub rate_ppb: i64,
}

const NEVER: Step = Step { at: Counter(u64::MAX), ticks: 0, rate_ppb: 0 };

impl SyntheticClock {
    /// The clock of `host` in the testbed with this seed: always the same for the same two.
    pub fn new(seed: u64, host: &str) -> SyntheticClock {
        let mut random = SplitMix64::new(seed);
        for byte in host.bytes() {
            random = SplitMix64::new(random.next() ^ u64::from(byte));
        }
        let mut within = |r: std::ops::Range<u64>| r.start + random.below(r.end - r.start);
        SyntheticClock {
            offset: within(OFFSETS),
            pace: within(PARTS as u64 - MAX_RATE_PPB..PARTS as u64 + MAX_RATE_PPB + 1),
            swing_ppb: within(SWING_PPB),
            period: within(PERIODS),
            phase: within(PERIODS),
            key: within(0..u64::MAX),
            steps: [NEVER; STEPS],
        }
    }

    /// The same clock with one more step.
    ///
    /// # Panics
    /// If it has four already, or its rate would leave ±1000 ppm.
    #[must_use]
    pub fn with_step(mut self, step: Step) -> SyntheticClock {
        let last = self.steps.last_mut().expect("the number of steps is not zero");
        assert!(*last == NEVER, "a hidden clock has at most {STEPS} steps");
        *last = step;
        self.steps.sort_by_key(|s| s.at);
        let rates: i64 = self.steps.iter().map(|s| s.rate_ppb.abs()).sum();
        assert!(rates < 1_000_000, "steps of the rate beyond 1000 ppm");
        self
    }

    /// The synthetic counter at a true counter; never decreasing.
    ///
    /// # Panics
    /// If the result does not fit 64 bits: some 190 years of ticks at 3 GHz.
    pub fn apply(&self, counter: Counter) -> Counter {
        let mut synthetic = i128::from(self.calm(counter.0));
        for step in self.steps.iter().take_while(|s| s.at <= counter) {
            let since = i128::from(counter.0 - step.at.0);
            synthetic += i128::from(step.ticks);
            synthetic += (since * i128::from(step.rate_ppb)).div_euclid(PARTS as i128);
        }
        Counter(u64::try_from(synthetic).expect("the counter fits 64 bits"))
    }

    /// The first true counter that has at least this synthetic one: within one tick of the inverse
    /// of [`Self::apply`]. Synthetic counters before the true zero give zero.
    pub fn invert(&self, synthetic: Counter) -> Counter {
        // Between two steps the clock is nearly as fast as the true one; the last step that the
        // answer lies behind says between which.
        let begun = self.steps.iter().take_while(|s| **s != NEVER);
        let from = begun.map(|s| s.at).take_while(|&at| self.apply(at) < synthetic).last();
        let from = from.unwrap_or_default();
        let next = self.steps.iter().map(|s| s.at).find(|&at| at > from);
        let before_next = next.map_or(u64::MAX >> 1, |at| at.0 - 1).max(from.0);
        let mut guess = from.0;
        loop {
            let short = synthetic.0.cast_signed() - self.apply(Counter(guess)).0.cast_signed();
            let better = guess.saturating_add_signed(short).clamp(from.0, before_next);
            if better.abs_diff(guess) <= 2 {
                break;
            }
            guess = better;
        }
        while guess > 0 && self.apply(Counter(guess - 1)) >= synthetic {
            guess -= 1;
        }
        while self.apply(Counter(guess)) < synthetic {
            guess += 1;
        }
        Counter(guess)
    }

    /// Without its steps.
    fn calm(&self, counter: u64) -> u64 {
        let cell = counter >> KNOT;
        let [begin, end] = self.knots(cell);
        let within = counter & ((1 << KNOT) - 1);
        begin + ((u128::from(within) * u128::from(end - begin)) >> KNOT) as u64
    }

    /// The knots at both ends of a cell, kept for the next question: events come by the thousand.
    fn knots(&self, cell: u64) -> [u64; 2] {
        thread_local! {
            static RECENT: [Cell<(u64, u64, [u64; 2])>; 16] =
                const { [const { Cell::new((0, u64::MAX, [0; 2])) }; 16] };
        }
        let place = (self.key ^ cell) as usize % 16;
        RECENT.with(|recent| {
            let (key, of, knots) = recent[place].get();
            if (key, of) == (self.key, cell) {
                return knots;
            }
            let knots = [self.knot(cell), self.knot(cell + 1)];
            recent[place].set((self.key, cell, knots));
            knots
        })
    }

    fn knot(&self, number: u64) -> u64 {
        let counter = u128::from(number) << KNOT;
        let scaled = counter * u128::from(self.pace) / PARTS + u128::from(self.offset);
        let strayed = (self.walk(number) + self.swing(number)).round() as i128;
        u64::try_from(scaled.saturating_add_signed(strayed)).expect("the counter fits 64 bits")
    }

    /// Ticks that the random walk of the rate has brought. As in Lévy's construction, each halving
    /// of time adds bumps of independent heights; a bump begins and ends level, so that no sum from
    /// the beginning of time is needed.
    fn walk(&self, number: u64) -> f64 {
        let mut rate = SHORTEST;
        let mut strayed = 0.0;
        for cell in CELLS {
            let mut random = SplitMix64::new(self.key ^ u64::from(cell));
            // Cells of different lengths do not begin together.
            let length = 1 << (cell - KNOT);
            let shifted = number + random.below(length);
            let mut random = SplitMix64::new(random.next() ^ (shifted / length));
            let height = 2.0 * unit(random.next()) - 1.0;
            let u = (shifted % length) as f64 / length as f64;
            // The steepest place of u²(1−u)² rises by 0.1925.
            strayed +=
                height * rate / 0.1925 * (1u64 << cell) as f64 * u * u * (1.0 - u) * (1.0 - u);
            rate *= std::f64::consts::SQRT_2;
        }
        strayed
    }

    /// Ticks that the swing has brought.
    fn swing(&self, number: u64) -> f64 {
        let counter = (u128::from(number) << KNOT) + u128::from(self.phase);
        // In quarters of a turn, from −2 to 2.
        let turn = (counter % u128::from(self.period)) as f64 / self.period as f64 * 4.0 - 2.0;
        // A sine to 10⁻³, of products alone.
        let arch = turn * (2.0 - turn.abs());
        let sine = arch * (0.775 + 0.225 * arch.abs());
        let rate = self.swing_ppb as f64 * 1e-9;
        rate * self.period as f64 / std::f64::consts::TAU * sine
    }
}

/// Uniform in 0..1.
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// Steele, Lea and Flood's splitmix64 (OOPSLA 2014): small, seeded, and good enough to spread
/// hidden clocks and probe gaps.
#[derive(Clone, Debug)]
pub(crate) struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    pub(crate) fn new(seed: u64) -> SplitMix64 {
        SplitMix64 { state: seed }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `0..limit`, but for a bias below `limit`/2⁶⁴.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step() -> impl Strategy<Value = Step> {
        (0u64..1 << 62, prop_oneof![Just(0), 0u64..1 << 33], -100_000i64..100_000)
            .prop_map(|(at, ticks, rate_ppb)| Step { at: Counter(at), ticks, rate_ppb })
    }

    fn clock() -> impl Strategy<Value = SyntheticClock> {
        (any::<u64>(), "[a-z0-9-]{1,12}", prop::collection::vec(step(), 0..=STEPS)).prop_map(
            |(seed, host, steps)| {
                steps.into_iter().fold(SyntheticClock::new(seed, &host), SyntheticClock::with_step)
            },
        )
    }

    proptest! {
        #[test]
        fn the_inverse_is_near_and_the_clock_never_goes_back(
            clock in clock(), counter in 0u64..1 << 62, far in 1u64..1 << 40,
        ) {
            let synthetic = clock.apply(Counter(counter));
            let back = clock.invert(synthetic).0;
            prop_assert!(back <= counter && counter - back <= 1, "{back} for {counter}");
            prop_assert!(clock.apply(Counter(counter + 1)) >= synthetic);
            prop_assert!(clock.apply(Counter(counter + far + 1)) > synthetic);
            // Between values of `apply` too it is the first that reaches.
            let next = clock.invert(Counter(synthetic.0 + 1));
            prop_assert!(clock.apply(next) > synthetic);
            prop_assert!(clock.apply(Counter(next.0 - 1)) <= synthetic);
        }

        /// What jumps is found where it jumped, whatever is asked for within the jump.
        #[test]
        fn a_step_inverts_to_its_instant(
            seed: u64, at in 1u64..1 << 50, ticks in 1u64..1 << 40, within in 0.0..1.0f64,
        ) {
            let step = Step { at: Counter(at), ticks, rate_ppb: 0 };
            let clock = SyntheticClock::new(seed, "h1").with_step(step);
            let (before, after) = (clock.apply(Counter(at - 1)), clock.apply(Counter(at)));
            prop_assert!((ticks..=ticks + 2).contains(&(after.0 - before.0)));
            let asked = before.0 + 1 + ((after.0 - before.0 - 1) as f64 * within) as u64;
            prop_assert_eq!(clock.invert(Counter(asked)), Counter(at));
        }

        #[test]
        fn the_clock_stays_in_its_limits(seed: u64, host in "[a-z0-9-]{1,12}", at in 0u64..1 << 60) {
            let clock = SyntheticClock::new(seed, &host);
            let (begin, end) = (clock.apply(Counter(at)).0, clock.apply(Counter(at + (1 << 32))).0);
            let rate = (end - begin) as f64 / (1u64 << 32) as f64 - 1.0;
            let strays = rate - (clock.pace as f64 * 1e-9 - 1.0);
            prop_assert!(strays.abs() < 2.4e-7, "{strays}");
            prop_assert!(rate.abs() <= MAX_RATE_PPB as f64 * 1e-9 + 2.4e-7);
        }
    }

    #[test]
    fn the_rate_walks_as_stated() {
        // Changes of the rate from one second to the next, and seven minutes apart.
        let second = 2_600_000_000;
        let changes = |apart: u64| {
            let changes = (0..400u64).map(|i| {
                let clock = SyntheticClock { swing_ppb: 0, ..SyntheticClock::new(i, "h1") };
                let rate = |at: u64| {
                    let ticks = clock.apply(Counter(at + second)).0 - clock.apply(Counter(at)).0;
                    ticks as f64 / second as f64
                };
                let at = 1 << 50;
                (rate(at + apart * second) - rate(at)).powi(2)
            });
            (changes.sum::<f64>() / 400.0).sqrt()
        };
        let (near, far) = (changes(1), changes(420));
        assert!((1.5e-9..4.5e-9).contains(&near), "{near}");
        assert!((3e-8..9e-8).contains(&far), "{far}");
    }

    #[test]
    fn hosts_differ_and_seeds_repeat() {
        let clock = |seed, host| SyntheticClock::new(seed, host);
        assert_eq!(clock(7, "h1"), clock(7, "h1"));
        assert_ne!(clock(7, "h1"), clock(7, "h2"));
        assert_ne!(clock(7, "h1"), clock(8, "h1"));
        assert_ne!(clock(7, "ab"), clock(7, "ba"));
        // Golden: a recorded run must be reproducible by a later version.
        assert_eq!(clock(42, "h1").apply(Counter(1_000_000_000_000)), Counter(1_015_919_893_985));
    }
}
