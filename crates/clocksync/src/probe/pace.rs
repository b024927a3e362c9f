//! How often is probed: as asked, and less while the other side wants less or does not answer.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::ProbeError;

/// Probes of a pair.
pub(super) const PAIR: u32 = 2;
/// Exchanges a second in a burst.
const BURST_HZ: f64 = 1000.0;
/// Between probes that ask for the reference's session, at first.
const GREETING_GAP: Duration = Duration::from_millis(20);
const RATES_HZ: RangeInclusive<f64> = 0.01..=1000.0;
const BURSTS: RangeInclusive<u32> = 1..=10_000;

/// The longest distance of pairs that the other side can ask for: one exchange a second.
const FLOOR: Duration = Duration::from_secs(PAIR as u64);
/// The longest distance of pairs, and of probes that ask for the session, while nobody answers: a
/// reference that is back is known within so long.
const SILENT_FLOOR: Duration = Duration::from_millis(500);
/// Probes in a row that nobody answers, for half the pace; as many again for half of that. Of a path
/// that loses half of all, one series in 65536 is so long by chance.
const SILENT: u32 = 16;

/// What was asked for.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// Mean distance of pairs between the bursts.
    gap: Duration,
    /// Exchanges.
    pub(super) burst: u32,
}

impl Pace {
    /// Exchanges a second, and of a burst, which is rounded up to pairs.
    pub(super) fn of(rate_hz: f64, burst: u32) -> Result<Pace, ProbeError> {
        if !RATES_HZ.contains(&rate_hz) {
            return Err(ProbeError::Setting(format!(
                "a probe rate of {rate_hz} Hz is not between {} Hz and {} Hz",
                RATES_HZ.start(),
                RATES_HZ.end()
            )));
        }
        if !BURSTS.contains(&burst) {
            return Err(ProbeError::Setting(format!(
                "a burst of {burst} probes is not between {} and {}",
                BURSTS.start(),
                BURSTS.end()
            )));
        }
        let gap = Duration::from_secs_f64(f64::from(PAIR) / rate_hz);
        Ok(Pace { gap, burst: burst.next_multiple_of(PAIR) })
    }
}

/// What is done of it at present.
pub(super) struct Rhythm {
    pub(super) pace: Pace,
    /// The other side's last reply wants distances times two to this power.
    slower: u8,
    /// Probes in a row that nobody answered.
    unanswered: u32,
}

impl Rhythm {
    pub(super) fn new(pace: Pace) -> Rhythm {
        Rhythm { pace, slower: 0, unanswered: 0 }
    }

    /// A reply came. `slower` is what it asks for.
    pub(super) fn answered(&mut self, slower: u8) {
        (self.slower, self.unanswered) = (slower, 0);
    }

    /// A probe, or one that asks for the session, was waited for in vain.
    pub(super) fn unanswered(&mut self) {
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// Mean distance of pairs between bursts.
    pub(super) fn steady(&self) -> Duration {
        self.stretched(self.pace.gap)
    }

    /// Mean distance of pairs in a burst, never longer than between bursts.
    pub(super) fn burst(&self) -> Duration {
        let gap = Duration::from_secs_f64(f64::from(PAIR) / BURST_HZ);
        self.stretched(gap).min(self.steady())
    }

    /// Distance of probes that ask for the session. They are as many pairs would be once the other
    /// side has been silent for long; before, somebody waits for the first answer.
    pub(super) fn greeting(&self, waited_for: bool) -> Duration {
        let gap = if waited_for { GREETING_GAP } else { self.pace.gap.max(GREETING_GAP) };
        self.stretched(gap)
    }

    fn stretched(&self, gap: Duration) -> Duration {
        let wanted = longer(gap, self.slower.into(), FLOOR);
        longer(wanted, self.unanswered / SILENT, SILENT_FLOOR)
    }
}

/// `gap` times two to the power of `doublings`, but not beyond `floor` by that.
fn longer(gap: Duration, doublings: u32, floor: Duration) -> Duration {
    let times = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
    gap.saturating_mul(times).min(floor.max(gap))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rhythm(rate_hz: f64) -> Rhythm {
        Rhythm::new(Pace::of(rate_hz, 100).unwrap())
    }

    fn ms(of: Duration) -> u128 {
        of.as_millis()
    }

    #[test]
    fn what_the_other_side_wants_stretches_all_distances_down_to_one_exchange_a_second() {
        let mut rhythm = rhythm(100.0);
        let all = |r: &Rhythm| [ms(r.steady()), ms(r.burst()), ms(r.greeting(true))];
        assert_eq!(all(&rhythm), [20, 2, 20]);
        rhythm.answered(3);
        assert_eq!(all(&rhythm), [160, 16, 160]);
        rhythm.answered(255);
        assert_eq!(all(&rhythm), [2000, 2000, 2000]);
        rhythm.answered(0);
        assert_eq!(all(&rhythm), [20, 2, 20]);
    }

    #[test]
    fn who_probes_seldom_is_not_made_to_probe_more() {
        let mut rhythm = rhythm(0.1);
        rhythm.answered(2);
        (0..1000).for_each(|_| rhythm.unanswered());
        assert_eq!(ms(rhythm.steady()), 20_000);
        assert_eq!(ms(rhythm.greeting(false)), 20_000);
    }

    #[test]
    fn silence_slows_down_to_two_pairs_a_second_and_an_answer_ends_that() {
        let mut rhythm = rhythm(100.0);
        (0..15).for_each(|_| rhythm.unanswered());
        assert_eq!(ms(rhythm.steady()), 20);
        rhythm.unanswered();
        assert_eq!(ms(rhythm.steady()), 40);
        (0..10_000_000).for_each(|_| rhythm.unanswered());
        assert_eq!((ms(rhythm.steady()), ms(rhythm.greeting(false))), (500, 500));
        rhythm.answered(0);
        assert_eq!(ms(rhythm.steady()), 20);
    }
}
