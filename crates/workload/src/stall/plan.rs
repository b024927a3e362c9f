//! When a CPU is taken, and for how long. Sans-I/O: times are nanoseconds since the begin.

use anyhow::{Result, ensure};

/// When stalls begin.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Begins {
    /// At these times, in order.
    At(Vec<u64>),
    /// At each multiple of `every`, the first after one of them; so many, or until the end.
    Every { every: u64, count: Option<u64> },
}

/// Stalls, all of one length.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) begins: Begins,
    pub(super) length: u64,
    /// Each begins up to so much later, evenly distributed.
    pub(super) jitter: u64,
    pub(super) seed: u64,
}

impl Plan {
    /// Refuses stalls that would overlap.
    pub(super) fn check(&self) -> Result<()> {
        let longest = self.length + self.jitter;
        let distance = match &self.begins {
            Begins::At(times) => times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).min(),
            Begins::Every { every, .. } => Some(*every),
        };
        if let Some(distance) = distance {
            ensure!(
                distance >= longest,
                "stalls of {} with jitter {} would overlap {} apart; make them shorter or set them \
                 further apart",
                Milliseconds(self.length),
                Milliseconds(self.jitter),
                Milliseconds(distance)
            );
        }
        Ok(())
    }

    /// The intended begins, in order.
    pub(super) fn intended(&self) -> impl Iterator<Item = u64> + use<> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let jitter = self.jitter;
        self.grid().map(move |time| time + random.u64(..=jitter))
    }

    fn grid(&self) -> Box<dyn Iterator<Item = u64>> {
        match self.begins.clone() {
            Begins::At(times) => Box::new(times.into_iter()),
            Begins::Every { every, count } => {
                // Centuries are the most.
                Box::new((1..=count.unwrap_or(u64::MAX)).map_while(move |n| n.checked_mul(every)))
            }
        }
    }

    /// The most that these stalls can take of any `window`, whatever the jitter comes to.
    pub(super) fn most_within(&self, window: u64) -> u64 {
        let enough = match &self.begins {
            Begins::At(times) => times.len(),
            Begins::Every { every, count } => {
                let fit = (window + self.jitter) / every + 2;
                fit.min(count.unwrap_or(u64::MAX)) as usize
            }
        };
        let grid: Vec<u64> = self.grid().take(enough).collect();
        // The fullest window begins with a stall that is as late as can be, and those after it are
        // as early as can be.
        let from = |first: usize| {
            let begin = grid[first] + self.jitter;
            let rest = grid[first + 1..].iter().take_while(|&&time| time < begin + window);
            let rest = rest.map(|&time| self.length.min(begin + window - time));
            self.length.min(window) + rest.sum::<u64>()
        };
        // On an even grid all windows are alike.
        let firsts = match self.begins {
            Begins::At(_) => grid.len(),
            Begins::Every { .. } => 1,
        };
        (0..firsts).map(from).max().unwrap_or(0)
    }
}

/// For people.
pub(super) struct Milliseconds(pub(super) u64);

impl std::fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ms", self.0 as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn every(every: u64, count: Option<u64>, length: u64, jitter: u64) -> Plan {
        Plan { begins: Begins::Every { every, count }, length, jitter, seed: 5 }
    }

    #[test]
    fn begins_are_where_they_were_asked_for() {
        let plan = every(500 * MS, Some(3), 5 * MS, 0);
        let times = [500 * MS, 1000 * MS, 1500 * MS];
        assert_eq!(plan.intended().collect::<Vec<_>>(), times);
        let plan = Plan { begins: Begins::At(vec![0, 70 * MS]), length: MS, jitter: 0, seed: 1 };
        assert_eq!(plan.intended().collect::<Vec<_>>(), [0, 70 * MS]);
    }

    #[test]
    fn jitter_is_seeded_and_never_early() {
        let plan = every(500 * MS, Some(100), 5 * MS, 50 * MS);
        let times: Vec<u64> = plan.intended().collect();
        assert_eq!(times, plan.intended().collect::<Vec<_>>());
        let later: Vec<u64> = times.iter().zip(1..).map(|(time, n)| time - n * 500 * MS).collect();
        assert!(later.iter().all(|&later| later <= 50 * MS));
        let mean = later.iter().sum::<u64>() as f64 / later.len() as f64;
        // The mean of 100 even ones: 25 ms with a deviation of 1.4 ms.
        assert!((mean - 25e6).abs() < 7e6, "{mean}");
        assert_ne!(times, Plan { seed: 6, ..plan }.intended().collect::<Vec<_>>());
    }

    #[test]
    fn stalls_that_would_overlap_are_refused() {
        every(10 * MS, None, 6 * MS, 4 * MS).check().unwrap();
        let error = every(10 * MS, None, 6 * MS, 4 * MS + 1).check().unwrap_err().to_string();
        assert!(error.contains("would overlap 10 ms apart"), "{error}");
        let at = |times| Plan { begins: Begins::At(times), length: 5 * MS, jitter: 0, seed: 1 };
        at(vec![0, 5 * MS]).check().unwrap();
        assert!(at(vec![0, 4 * MS]).check().is_err());
        // Out of order.
        assert!(at(vec![9 * MS, 0]).check().is_err());
    }

    #[test]
    fn no_window_holds_more_than_said() {
        for (plan, most) in [
            (every(100 * MS, None, 75 * MS, 0), 750 * MS),
            (every(400 * MS, None, 300 * MS, 0), 800 * MS),
            (every(100 * MS, Some(3), 75 * MS, 0), 225 * MS),
            (every(10_000 * MS, None, 700 * MS, 0), 700 * MS),
            (every(5_000 * MS, None, 2_000 * MS, 0), 1_000 * MS),
            // The first 50 ms late, ten more early in the window, the tenth cut.
            (every(100 * MS, None, 20 * MS, 50 * MS), 220 * MS),
            (
                Plan {
                    begins: Begins::At(vec![0, 900 * MS, 1700 * MS, 1900 * MS, 2100 * MS]),
                    length: 80 * MS,
                    jitter: 0,
                    seed: 1,
                },
                240 * MS,
            ),
        ] {
            assert_eq!(plan.most_within(1_000 * MS), most, "{plan:?}");
            // What is drawn stays below it, wherever the window begins.
            let times: Vec<u64> = plan.intended().take(300).collect();
            for &begin in &times {
                let end = begin + 1_000 * MS;
                let inside = times.iter().filter(|&&time| time >= begin && time < end);
                let taken: u64 = inside.map(|&time| plan.length.min(end - time)).sum();
                assert!(taken <= most, "{plan:?} from {begin}");
            }
        }
    }
}
