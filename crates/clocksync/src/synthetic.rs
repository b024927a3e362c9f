//! Hidden clocks for hosts that in truth share one counter, so that the estimator has work to do
//! and its result can be held against the truth.

use loopscope_time::Counter;

const PARTS: u128 = 1_000_000_000;
/// Largest rate against the true counter, in parts per billion (100 ppm).
const MAX_RATE_PPB: u64 = 100_000;
/// Offsets in ticks: about 0.4 s to 26 s of a counter at 2.6 GHz.
const OFFSETS: std::ops::Range<u64> = 1 << 30..1 << 36;

/// One host's hidden clock: synthetic = offset + true · (1 + rate), in whole ticks. It never goes
/// back; where it is slower, two neighbouring true ticks may share a synthetic one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticClock {
    offset: u64,
    /// 1 + rate, in parts per billion.
    pace: u64,
}

impl SyntheticClock {
    /// The clock of `host` in the testbed with this seed: always the same for the same two.
    pub fn new(seed: u64, host: &str) -> SyntheticClock {
        let mut random = SplitMix64::new(seed);
        for byte in host.bytes() {
            random = SplitMix64::new(random.next() ^ u64::from(byte));
        }
        SyntheticClock {
            offset: OFFSETS.start + random.below(OFFSETS.end - OFFSETS.start),
            pace: PARTS as u64 - MAX_RATE_PPB + random.below(2 * MAX_RATE_PPB + 1),
        }
    }

    /// The synthetic counter at a true counter; never decreasing.
    ///
    /// # Panics
    /// If the result does not fit 64 bits: some 190 years of ticks at 3 GHz.
    pub fn apply(&self, counter: Counter) -> Counter {
        let scaled = u128::from(counter.0) * u128::from(self.pace) / PARTS;
        Counter(u64::try_from(scaled + u128::from(self.offset)).expect("the counter fits 64 bits"))
    }

    /// The first true counter that has at least this synthetic one: within one tick of the inverse
    /// of [`Self::apply`]. Synthetic counters before the true zero give zero.
    pub fn invert(&self, synthetic: Counter) -> Counter {
        let scaled = u128::from(synthetic.0.saturating_sub(self.offset)) * PARTS;
        let inverse = scaled.div_ceil(u128::from(self.pace));
        Counter(u64::try_from(inverse).expect("the inverse fits 64 bits but at their very end"))
    }
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

    proptest! {
        #[test]
        fn the_inverse_is_near_and_the_clock_never_goes_back(
            seed: u64, host in "[a-z0-9-]{1,12}", counter in 0u64..1 << 62,
        ) {
            let clock = SyntheticClock::new(seed, &host);
            let synthetic = clock.apply(Counter(counter));
            let back = clock.invert(synthetic).0;
            prop_assert!(back <= counter && counter - back <= 1, "{back} for {counter}");
            prop_assert!(clock.apply(Counter(counter + 1)) >= synthetic);
            // Between values of `apply` too the inverse is at most a tick away.
            let between = clock.apply(clock.invert(Counter(synthetic.0 + 1)));
            prop_assert!(between.0 - synthetic.0 <= 2);
        }

        #[test]
        fn the_clock_stays_in_its_limits(seed: u64, host in "[a-z0-9-]{1,12}") {
            let clock = SyntheticClock::new(seed, &host);
            prop_assert!(OFFSETS.contains(&clock.apply(Counter(0)).0));
            let second = clock.apply(Counter(PARTS as u64)).0 - clock.apply(Counter(0)).0;
            prop_assert!(second.abs_diff(PARTS as u64) <= MAX_RATE_PPB);
        }
    }

    #[test]
    fn hosts_differ_and_seeds_repeat() {
        let clock = |seed, host| SyntheticClock::new(seed, host);
        assert_eq!(clock(7, "h1"), clock(7, "h1"));
        assert_ne!(clock(7, "h1"), clock(7, "h2"));
        assert_ne!(clock(7, "h1"), clock(8, "h1"));
        assert_ne!(clock(7, "ab"), clock(7, "ba"));
        // Golden: a recorded run must be reproducible by a later version.
        assert_eq!(clock(42, "h1").apply(Counter(1_000_000_000_000)), Counter(1_015_919_876_853));
    }
}
