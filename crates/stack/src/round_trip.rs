//! Round-trip times and the retransmission time-out (RFC 6298), and the least round trip of the last
//! seconds (RFC 8985 §6.2).

use std::time::Duration;

/// The clock's granularity, G of RFC 6298.
const GRANULARITY: Duration = Duration::from_micros(10);
/// RFC 6298 §2.4 recommends a minimum of one second, which is the caller's choice here, and §2.5 a
/// maximum of a minute or more.
const MOST: Duration = Duration::from_secs(120);
/// RFC 6298 §2.1.
const FIRST: Duration = Duration::from_secs(1);
/// Two of them are the window of the least and the longest round trip.
const HALF_WINDOW: Duration = Duration::from_secs(5);
/// Round trips that the window needs before they tell how long the other end delays its answers.
const ENOUGH: u32 = 4;
/// A lone segment is probed for a loss after this time at the earliest: processes may be held up.
const SOON: Duration = Duration::from_millis(2);
/// The time after a needless probe in which a lone segment is given the longest delay again.
const LONG: Duration = Duration::from_secs(10);

/// What is known of the round trips of a connection.
#[derive(Debug)]
pub(crate) struct RoundTrips {
    smoothed: Option<Duration>,
    variation: Duration,
    least_timeout: Duration,
    /// The time-out is doubled so often.
    doubled: u32,
    /// What was measured in this half of the window, and in the one before.
    halves: [Half; 2],
    half_began: Duration,
    /// When a probe for the loss of a lone segment was found to have been needless.
    needless: Option<Duration>,
}

/// Round trips of some seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Half {
    least: Option<Duration>,
    longest: Duration,
    count: u32,
}

impl RoundTrips {
    /// `known`: SRTT and RTTVAR so far.
    pub(crate) fn new(least_timeout: Duration, known: Option<(Duration, Duration)>) -> RoundTrips {
        let smoothed = known.map(|(smoothed, _)| smoothed);
        RoundTrips {
            smoothed,
            variation: known.map_or(Duration::ZERO, |(_, variation)| variation),
            least_timeout,
            doubled: 0,
            halves: [Half { least: smoothed, ..Half::default() }, Half::default()],
            half_began: Duration::ZERO,
            needless: None,
        }
    }

    /// Takes a measurement of a segment that was sent once (Karn, RFC 6298 §3).
    pub(crate) fn sample(&mut self, now: Duration, taken: Duration) {
        match self.smoothed {
            None => {
                self.smoothed = Some(taken);
                self.variation = taken / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(taken)) / 4;
                self.smoothed = Some((smoothed * 7 + taken) / 8);
            }
        }
        if now >= self.half_began + HALF_WINDOW {
            self.halves = [Half::default(), self.halves[0]];
            self.half_began = now;
        }
        let half = &mut self.halves[0];
        half.least = Some(half.least.map_or(taken, |least| least.min(taken)));
        half.longest = half.longest.max(taken);
        half.count += 1;
    }

    /// SRTT and RTTVAR.
    pub(crate) fn known(&self) -> Option<(Duration, Duration)> {
        self.smoothed.map(|smoothed| (smoothed, self.variation))
    }

    /// The smoothed round trip.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The least round trip of the last five to ten seconds in which there was one.
    pub(crate) fn least(&self) -> Option<Duration> {
        self.halves.iter().filter_map(|half| half.least).min()
    }

    /// How long the answer to a lone segment may be delayed besides two round trips, `at_most` where
    /// that is not known: RFC 8985 §7.2 lets a sender use what it knows of the other end. That is
    /// twice the longest answer of the last seconds.
    pub(crate) fn delay(&self, now: Duration, at_most: Duration) -> Duration {
        let count: u32 = self.halves.iter().map(|half| half.count).sum();
        let was_wrong = self.needless.is_some_and(|at| now.saturating_sub(at) < LONG);
        if was_wrong || count < ENOUGH {
            return at_most;
        }
        let longest = self.halves.iter().map(|half| half.longest).max().unwrap_or(at_most);
        (longest * 2).max(SOON).min(at_most)
    }

    /// Notes that a lone segment was sent again although the other end had it.
    pub(crate) fn probe_was_needless(&mut self, now: Duration) {
        self.needless = Some(now);
    }

    /// The time-out as it is now.
    pub(crate) fn timeout(&self) -> Duration {
        let base = self
            .smoothed
            .map_or(FIRST, |smoothed| smoothed + (self.variation * 4).max(GRANULARITY));
        let doubled = base.max(self.least_timeout).saturating_mul(1 << self.doubled.min(16));
        doubled.min(MOST)
    }

    /// RFC 6298 §5.5: the time-out passed.
    pub(crate) fn back_off(&mut self) {
        self.doubled += 1;
    }

    /// Data were acknowledged: the time-out is that of the measurements again.
    pub(crate) fn answered(&mut self) {
        self.doubled = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn the_timeout_is_that_of_rfc_6298() {
        let mut trips = RoundTrips::new(ms(1), None);
        assert_eq!(trips.timeout(), FIRST);
        // 2.2: SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR.
        trips.sample(ms(0), ms(100));
        assert_eq!(trips.timeout(), ms(300));
        // 2.3: RTTVAR = 3/4 · 50 + 1/4 · |100 - 180|, SRTT = 7/8 · 100 + 1/8 · 180.
        trips.sample(ms(1), ms(180));
        assert_eq!(trips.smoothed(), Some(ms(110)));
        assert_eq!(trips.timeout(), ms(110) + Duration::from_micros(57_500) * 4);
        trips.back_off();
        trips.back_off();
        assert_eq!(trips.timeout(), (ms(110) + Duration::from_micros(57_500) * 4) * 4);
        trips.answered();
        for _ in 0..1000 {
            trips.sample(ms(2), Duration::from_micros(20));
        }
        assert_eq!(trips.timeout(), ms(1), "not below the least time-out");
        (0..100).for_each(|_| trips.back_off());
        assert!(trips.timeout() <= MOST);
    }

    #[test]
    fn the_least_round_trip_is_forgotten_after_ten_seconds() {
        let mut trips = RoundTrips::new(ms(1), None);
        trips.sample(ms(0), ms(3));
        trips.sample(ms(4000), ms(9));
        assert_eq!(trips.least(), Some(ms(3)));
        trips.sample(ms(6000), ms(8));
        assert_eq!(trips.least(), Some(ms(3)));
        trips.sample(ms(11_500), ms(10));
        assert_eq!(trips.least(), Some(ms(8)));
    }
}
