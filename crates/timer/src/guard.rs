//! How long before an instant a sleep should end, learned from how late sleeps end.

/// Time before an instant at which to stop sleeping and to spin. Sans-I/O: told of each wake.
///
/// It is the lateness that all but one in two hundred of the recent sleeps stayed below, and a
/// little more: each late packet spoils two intervals, so that then 99 % of the intervals are
/// right. "Recent" are the last 256 to 512 wakes. Higher latencies so move it within some five
/// wakes, lower ones within some two thousand.
#[derive(Clone, Debug)]
pub struct Guard {
    ns: u64,
    most: u64,
    wakes: [u32; CLASSES],
    total: u32,
    /// Waits since the last sleep.
    awake: u32,
    /// Waits with a spin since one lost the CPU.
    undisturbed: u32,
    /// Waits still to go without spinning.
    resting: u32,
    /// Number of sleeps that it rests, as many as the last time it gave up spinning.
    rest: u32,
}

/// A first guess; real sleeps overshoot by 30 to 60 us on ordinary kernels.
const FIRST: u64 = 100_000;
/// Leaving the kernel and reading the clock alone take a part of this.
const LEAST: u64 = 5_000;
/// Later than this a sleep ends where others have the CPU, and who spins more gets it less.
const MOST: u64 = 300_000;

/// Classes of lateness: eight to the octave, from `LEAST` up to `MOST`.
const PER_OCTAVE: u64 = 8;
const CLASSES: usize = 6 * PER_OCTAVE as usize;

/// At this many wakes all classes are halved.
const WINDOW: u32 = 512;
/// One in so many sleeps may end later than the guard.
const MISSES: u32 = 200;
/// Without a sleep for so many waits, the worst latencies are forgotten: they may be over.
const PATIENCE: u32 = 256;

/// A second loss of the CPU within so many waits: it is wanted by more than it can carry.
const DISTURBED: u32 = 512;
/// Waits without spinning then; twice as many each time that spinning was in vain again.
const FIRST_REST: u32 = 1024;
const LONGEST_REST: u32 = 32 * FIRST_REST;

impl Default for Guard {
    fn default() -> Guard {
        Guard::below(MOST)
    }
}

impl Guard {
    /// A guard that never is above `most` nanoseconds.
    pub fn below(most: u64) -> Guard {
        let most = most.clamp(LEAST, MOST);
        Guard {
            ns: FIRST.min(most),
            most,
            wakes: [0; CLASSES],
            total: 0,
            awake: 0,
            undisturbed: DISTURBED,
            resting: 0,
            rest: 0,
        }
    }

    /// Nanoseconds before the instant, as learned.
    pub fn ns(&self) -> u64 {
        self.ns
    }

    /// How long to spin before the next instant, ns: [`Guard::ns`], or 0 while it has given up
    /// spinning because others want the CPU. Called once for each wait.
    pub fn spin_ns(&mut self) -> u64 {
        if self.resting > 0 {
            self.resting -= 1;
            return 0;
        }
        self.undisturbed = self.undisturbed.saturating_add(1);
        self.ns
    }

    /// The CPU was taken away in the middle of a spin. Who spins against others gets whole time
    /// slices and then none; who sleeps has the CPU when it is needed. So after the second loss in
    /// succession there is none for a while.
    pub fn lost_the_cpu(&mut self) {
        if self.undisturbed < DISTURBED {
            // What came soon after a rest shows that nothing has changed.
            self.rest = (2 * self.rest).clamp(FIRST_REST, LONGEST_REST);
            self.resting = self.rest;
        } else if self.undisturbed > LONGEST_REST {
            self.rest = 0;
        }
        self.undisturbed = 0;
    }

    /// A sleep that was to end at some instant ended `late_ns` after it.
    pub fn woke(&mut self, late_ns: u64) {
        self.awake = 0;
        self.wakes[class(late_ns)] += 1;
        self.total += 1;
        if self.total >= WINDOW {
            self.total = 0;
            for wakes in &mut self.wakes {
                *wakes /= 2;
                self.total += *wakes;
            }
        }
        self.learn();
    }

    /// The instant was nearer than the guard, so that nobody slept and there is nothing to learn
    /// from. Long enough of this, and a shorter guard is tried.
    pub fn stayed_awake(&mut self) {
        self.awake += 1;
        if self.awake < PATIENCE {
            return;
        }
        self.awake = 0;
        if let Some(worst) = self.wakes.iter_mut().rfind(|wakes| **wakes > 0) {
            self.total -= *worst;
            *worst = 0;
            self.learn();
        } else {
            self.ns = (self.ns / 2).max(LEAST);
        }
    }

    fn learn(&mut self) {
        // Right after the start the first guess weighs as much as the window's misses.
        let known = self.total >= MISSES / 8;
        let mut misses = self.total / MISSES;
        for (class, &wakes) in self.wakes.iter().enumerate().rev() {
            if wakes > misses {
                let learned = upper_edge(class).min(self.most);
                self.ns = if known { learned } else { learned.max(self.ns) };
                return;
            }
            misses -= wakes;
        }
    }
}

fn class(late_ns: u64) -> usize {
    let octaves = (late_ns.max(LEAST) as f64 / LEAST as f64).log2();
    ((octaves * PER_OCTAVE as f64) as usize).min(CLASSES - 1)
}

/// What everything in `class` is below.
fn upper_edge(class: usize) -> u64 {
    (LEAST as f64 * ((class + 1) as f64 / PER_OCTAVE as f64).exp2()).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sleeps with latencies that look like a kernel's: most around `usual`, `tail` in a thousand
    /// ten times as late. A fixed sequence.
    struct Kernel {
        state: u64,
        usual: u64,
        tail: u64,
    }

    impl Kernel {
        fn random(&mut self) -> u64 {
            // Knuth's MMIX generator; its upper bits.
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.state >> 33
        }

        fn late(&mut self) -> u64 {
            let late = self.usual * 3 / 4 + self.random() % (self.usual / 2);
            if self.random() % 1000 < self.tail { 10 * late } else { late }
        }
    }

    /// Number of `wakes` sleeps that were later than the guard, and the mean time to spin.
    fn live(guard: &mut Guard, kernel: &mut Kernel, wakes: u64) -> (u64, u64) {
        let (mut missed, mut spun) = (0, 0);
        for _ in 0..wakes {
            let late = kernel.late();
            missed += u64::from(late > guard.ns());
            spun += guard.ns().saturating_sub(late);
            guard.woke(late);
        }
        (missed, spun / wakes)
    }

    #[test]
    fn it_covers_the_99th_percentile_and_spins_little() {
        for usual in [8_000, 45_000, 150_000] {
            for tail in [0, 1] {
                let mut guard = Guard::default();
                let mut kernel = Kernel { state: 1, usual, tail };
                live(&mut guard, &mut kernel, 1000);
                let (missed, spun) = live(&mut guard, &mut kernel, 100_000);
                assert!(missed <= 1000, "{missed} of 100000 missed, {usual} ns, {tail} per mille");
                // Spread and the classes' width alone; a rare latency of ten times is not covered.
                assert!(spun < usual * 6 / 10, "{spun} ns spun where sleeps are {usual} ns late");
            }
        }
    }

    #[test]
    fn it_goes_up_fast_and_down_slowly() {
        let mut guard = Guard::default();
        let mut slow = Kernel { state: 2, usual: 200_000, tail: 0 };
        let mut fast = Kernel { state: 3, usual: 20_000, tail: 0 };
        live(&mut guard, &mut fast, 2000);
        assert!((25_000..32_000).contains(&guard.ns()), "{}", guard.ns());
        live(&mut guard, &mut slow, 8);
        assert!(guard.ns() > 150_000, "{} ns after eight slow wakes", guard.ns());
        live(&mut guard, &mut slow, 2000);
        live(&mut guard, &mut fast, 500);
        assert!(guard.ns() > 150_000, "{} ns: forgotten too soon", guard.ns());
        live(&mut guard, &mut fast, 3000);
        assert!(guard.ns() < 32_000, "{} ns: never forgotten", guard.ns());
    }

    #[test]
    fn it_is_bounded() {
        let mut guard = Guard::default();
        for late in [0, 1, u64::MAX, 10_000_000_000] {
            (0..1000).for_each(|_| guard.woke(late));
            assert!((LEAST..=MOST).contains(&guard.ns()), "{}", guard.ns());
        }
        assert_eq!(guard.ns(), MOST);
        let mut guard = Guard::below(50_000);
        assert_eq!(guard.ns(), 50_000);
        guard.woke(10_000_000);
        assert_eq!(guard.ns(), 50_000);
    }

    /// A guard above the interval never sleeps and would never learn that sleeps became better.
    #[test]
    fn who_never_sleeps_tries_again() {
        let mut guard = Guard::default();
        let mut kernel = Kernel { state: 4, usual: 400_000, tail: 5 };
        live(&mut guard, &mut kernel, 1000);
        let interval = 100_000;
        kernel.usual = 30_000;
        let mut slept = 0;
        for _ in 0..20_000 {
            if guard.ns() < interval {
                slept += 1;
                guard.woke(kernel.late());
            } else {
                guard.stayed_awake();
            }
        }
        assert!(slept > 5000, "slept {slept} times");
        // It does not give up for good if it has never slept, either.
        let mut guard = Guard::default();
        (0..5 * PATIENCE).for_each(|_| guard.stayed_awake());
        assert!(guard.ns() < 10_000);
    }
    /// Waits that spin, of `waits` in which the CPU is lost at every `losses`-th spin.
    fn spins(guard: &mut Guard, waits: u32, losses: u32) -> u32 {
        let mut spins = 0;
        for _ in 0..waits {
            if guard.spin_ns() > 0 {
                spins += 1;
                if spins % losses == 0 {
                    guard.lost_the_cpu();
                }
            }
        }
        spins
    }

    #[test]
    fn who_shares_the_cpu_gives_up_spinning_and_one_pause_is_no_reason_to() {
        let mut guard = Guard::default();
        assert_eq!(spins(&mut guard, 100_000, DISTURBED + 1), 100_000);
        let shared = spins(&mut guard, 100_000, 25);
        assert!(shared < 500, "spun {shared} times of 100000 against others");
        // Alone again it comes back to all of them.
        spins(&mut guard, LONGEST_REST, u32::MAX);
        assert_eq!(spins(&mut guard, 10_000, u32::MAX), 10_000);
    }
}
