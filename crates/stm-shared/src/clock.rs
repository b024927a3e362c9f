//! The clock that all processes of a machine share, and what is known of another machine's.

use std::collections::VecDeque;

use rustix::time::{ClockId, clock_gettime};

/// Exchanges that are kept.
const KEPT: usize = 32;
/// By how much two clocks may go apart at most: both may be steered by 500 ppm (adjtimex(2)), and a
/// crystal that nobody steers is wrong by less than 100 ppm.
const DRIFT_PPM: i64 = 1200;

/// CLOCK_MONOTONIC, ns.
pub fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// What is known of another machine's clock by asking it for its time.
#[derive(Default)]
pub struct PeerClock {
    exchanges: VecDeque<Exchange>,
}

/// The other clock minus this one was between two numbers, a while ago.
struct Exchange {
    at: i64,
    offset: i64,
    error: i64,
}

impl PeerClock {
    /// It was asked at `asked`, and the answer `other` came at `came`.
    pub fn exchanged(&mut self, asked: i64, other: i64, came: i64) {
        // It answered between the two instants.
        let (least, most) = (other.saturating_sub(came), other.saturating_sub(asked));
        let (offset, error) = (least / 2 + most / 2, most.saturating_sub(least) / 2 + 1);
        if self.exchanges.len() == KEPT {
            self.exchanges.pop_front();
        }
        self.exchanges.push_back(Exchange { at: came, offset, error });
    }

    /// An instant of the other clock, by this one, and by how much it may be wrong; as of `now`. None: it
    /// has not answered yet.
    pub fn here(&self, other: i64, now: i64) -> Option<(i64, i64)> {
        let (offset, error) = self.offset(now)?;
        Some((other.saturating_sub(offset), error))
    }

    /// An instant of this clock, by the other one, and by how much it may be wrong; as of `now`. None: it
    /// has not answered yet.
    pub fn there(&self, own: i64, now: i64) -> Option<(i64, i64)> {
        let (offset, error) = self.offset(now)?;
        Some((own.saturating_add(offset), error))
    }

    /// How long ago its last answer came, ns.
    pub fn age(&self, now: i64) -> Option<i64> {
        self.exchanges.back().map(|last| now.saturating_sub(last.at))
    }

    fn offset(&self, now: i64) -> Option<(i64, i64)> {
        let error = |each: &Exchange| {
            let age = now.saturating_sub(each.at);
            each.error.saturating_add(age.saturating_mul(DRIFT_PPM) / 1_000_000)
        };
        let best = self.exchanges.iter().min_by_key(|each| error(each))?;
        Some((best.offset, error(best)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_within_its_error_whatever_the_ways_take() {
        fastrand::seed(1);
        let (true_offset, drift) = (5_000_000_000, 0.001);
        let there = |here: i64| here + true_offset + (here as f64 * drift) as i64;
        let mut clock = PeerClock::default();
        assert!(clock.here(7, 7).is_none());
        let mut now = 0;
        let mut errors = vec![];
        for _ in 0..2000 {
            now += 100_000_000;
            let answered = now + fastrand::i64(1_000..2_000_000);
            let came = answered + fastrand::i64(1_000..2_000_000);
            clock.exchanged(now, there(answered), came);
            let put = came + fastrand::i64(0..90_000_000);
            let (here, error) = clock.here(there(put), put + 1_000_000).unwrap();
            assert!((here - put).abs() <= error, "{here} ± {error}, and it was {put}");
            errors.push(error);
            let (other, error) = clock.there(put, put + 1_000_000).unwrap();
            assert!((other - there(put)).abs() <= error, "{other} ± {error}");
        }
        errors.sort_unstable();
        // The best of some exchanges is used: most are better than the half of the longest way.
        assert!(errors[1000] < 1_000_000, "{}", errors[1000]);
    }
}
