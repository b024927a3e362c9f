//! Whether a host or the path to the reference has come under load.
//!
//! Round trips and the program's own lateness are looked at in windows of [`WINDOW`] exchanges, by
//! their medians. There is load when a median is more than [`TIMES`] the smallest one of the last
//! [`WINDOWS`] windows and [`SLACK_NS`] beyond that. What stays becomes the new normal.

use std::collections::VecDeque;

/// Exchanges of a window: a sixth of a second at the usual rate.
const WINDOW: usize = 16;
/// Windows that say what is normal: some ten seconds.
const WINDOWS: usize = 64;
const TIMES: u64 = 3;
const SLACK_NS: u64 = 20_000;

#[derive(Debug, Default)]
pub(super) struct Load {
    round_trips: Watched,
    lateness: Watched,
}

impl Load {
    /// An exchange of the steady rate was answered; both in nanoseconds. True when a window shows
    /// load.
    pub(super) fn answered(&mut self, round_trip: u64) -> bool {
        self.round_trips.see(round_trip)
    }

    /// A probe was sent so much later than planned.
    pub(super) fn sent_late(&mut self, lateness: u64) -> bool {
        self.lateness.see(lateness)
    }
}

#[derive(Debug, Default)]
struct Watched {
    window: Vec<u64>,
    /// The medians of the last windows.
    medians: VecDeque<u64>,
}

impl Watched {
    fn see(&mut self, ns: u64) -> bool {
        self.window.push(ns);
        if self.window.len() < WINDOW {
            return false;
        }
        let (_, &mut median, _) = self.window.select_nth_unstable(WINDOW / 2);
        self.window.clear();
        let loaded = self.medians.iter().min().is_some_and(|calm| median > TIMES * calm + SLACK_NS);
        if self.medians.len() == WINDOWS {
            self.medians.pop_front();
        }
        self.medians.push_back(median);
        loaded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(load: &mut Load, count: usize, ns: u64) -> usize {
        (0..count * WINDOW).filter(|i| load.answered(ns + *i as u64 % 7)).count()
    }

    #[test]
    fn load_is_seen_when_it_comes_and_not_when_it_stays() {
        let mut load = Load::default();
        assert_eq!(windows(&mut load, 20, 30_000), 0);
        // Single ones do not count.
        for i in 0..20 * WINDOW {
            assert!(!load.answered(if i % 4 == 0 { 5_000_000 } else { 30_000 }));
        }
        assert_eq!(windows(&mut load, 1, 109_000), 0);
        assert_eq!(windows(&mut load, 3, 111_000), 3);
        // Where it stays it is normal after a while, and rises against that.
        assert!(windows(&mut load, WINDOWS, 111_000) < WINDOWS);
        assert_eq!(windows(&mut load, 10, 111_000), 0);
        assert_eq!(windows(&mut load, 1, 400_000), 1);
    }

    #[test]
    fn lateness_is_watched_by_itself() {
        let mut load = Load::default();
        let mut late = |ns| (0..WINDOW).filter(|_| load.sent_late(ns)).count();
        assert_eq!((late(55_000), late(55_000), late(3_000_000)), (0, 0, 1));
    }
}
