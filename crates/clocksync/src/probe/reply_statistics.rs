//! Round trips and the standing of UTC, from the replies of a reference.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::utc::{Reason, Standing};

/// Round trips of which the recent one is the median.
const RECENT: usize = 31;
/// After so long without a word UTC is not known any more.
const UTC_LASTS: Duration = Duration::from_secs(10);
/// By which share a kernel's clock that is steered and a counter may part meanwhile.
const UTC_DRIFT: f64 = 1e-3;

/// Round trips of the last replies, and UTC as the last of them reported it.
#[derive(Clone, Debug, Default)]
pub struct ReplyStatistics {
    last: Option<(Instant, Standing)>,
    best_ns: Option<u64>,
    recent_ns: VecDeque<u64>,
}

impl ReplyStatistics {
    pub(super) fn record(&mut self, now: Instant, round_trip_ns: u64, utc: Standing) {
        self.last = Some((now, utc));
        self.best_ns = Some(self.best_ns.map_or(round_trip_ns, |best| best.min(round_trip_ns)));
        if self.recent_ns.len() == RECENT {
            self.recent_ns.pop_front();
        }
        self.recent_ns.push_back(round_trip_ns);
    }

    /// When the last reply came.
    pub fn last(&self) -> Option<Instant> {
        self.last.map(|(at, _)| at)
    }

    /// The shortest round trip, and the median of the last ones, in nanoseconds; `None` before the
    /// first reply.
    pub fn round_trips_ns(&self) -> Option<(u64, u64)> {
        let mut recent: Vec<u64> = self.recent_ns.iter().copied().collect();
        recent.sort_unstable();
        Some((self.best_ns?, *recent.get(recent.len() / 2)?))
    }

    /// What is known of UTC at `now`.
    pub fn utc(&self, now: Instant) -> Standing {
        let Some((at, utc)) = self.last else { return Standing::default() };
        let age = now.saturating_duration_since(at);
        match utc {
            Standing::Known { .. } if age > UTC_LASTS => Standing::Unsynchronised(Reason::NotTold),
            Standing::Known { offset_ns, error_ns, stratum } => {
                let more = (age.as_nanos() as f64 * UTC_DRIFT) as u64;
                Standing::Known { offset_ns, error_ns: error_ns.saturating_add(more), stratum }
            }
            Standing::Unsynchronised(_) => utc,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_of_all_and_the_recent_one_of_the_last() {
        let mut reply_statistics = ReplyStatistics::default();
        assert_eq!(reply_statistics.round_trips_ns(), None);
        for ns in [5_000, 70_000].into_iter().chain((0..31).map(|n| 20_000 + n)) {
            reply_statistics.record(Instant::now(), ns, Standing::default());
        }
        assert_eq!(reply_statistics.round_trips_ns(), Some((5_000, 20_015)));
    }

    #[test]
    fn utc_grows_stale() {
        let mut reply_statistics = ReplyStatistics::default();
        let now = Instant::now();
        assert_eq!(reply_statistics.utc(now), Standing::Unsynchronised(Reason::NotTold));
        reply_statistics.record(
            now,
            1,
            Standing::Known { offset_ns: 7, error_ns: 100, stratum: 3 },
        );
        let after = |s| reply_statistics.utc(now + Duration::from_secs(s));
        assert_eq!(after(0), Standing::Known { offset_ns: 7, error_ns: 100, stratum: 3 });
        assert_eq!(after(10), Standing::Known { offset_ns: 7, error_ns: 10_000_100, stratum: 3 });
        assert_eq!(after(11), Standing::Unsynchronised(Reason::NotTold));
    }
}
