//! Whether a responder is asked for more than it should answer, and by how much its followers are to
//! slow down.
//!
//! Two things say so, looked at once in [`WINDOW`]: the share of a processor that its thread takes,
//! which programs that are measured on the same host miss, and the least time that a packet waited
//! before it was read. A host that is busy for a moment has single packets wait; where every one
//! waits, more come than are answered, and sooner or later some are lost (as in CoDel, RFC 8289
//! §4.1). Followers that are told to slow down halve their rate. They are allowed to double it when
//! there was room for that for a while.

use std::time::Duration;

/// Between two decisions.
pub(super) const WINDOW: Duration = Duration::from_secs(1);
/// The share of a processor that is too much, and the one below which twice as much is not.
const BUSY: f64 = 0.25;
const CALM: f64 = 0.1;
/// When every packet waits so long, more come than are answered. A queue that is emptied each time a
/// thread on a busy machine gets its turn has packets that hardly waited.
const WAITED: Duration = Duration::from_millis(2);
/// Fewer packets in a window say nothing.
const ENOUGH: u32 = 16;
/// Calm windows in a row before the pace doubles.
const CALM_WINDOWS: u32 = 10;
/// Followers do not go below one exchange a second: from a thousand that is ten times halved.
const SLOWEST: u8 = 10;

/// What is asked of followers, and what that rests on.
#[derive(Debug, Default)]
pub(super) struct Demand {
    slower: u8,
    calm: u32,
    packets: u32,
    least_wait: Option<Duration>,
}

impl Demand {
    /// Followers are to stretch their probes' distances by two to this power.
    pub(super) fn slower(&self) -> u8 {
        self.slower
    }

    /// A packet was read that the kernel had received `waited` ago.
    pub(super) fn read(&mut self, waited: Duration) {
        self.packets += 1;
        self.least_wait = Some(self.least_wait.map_or(waited, |least| least.min(waited)));
    }

    /// A window is over, in which the thread took `share` of a processor.
    pub(super) fn decide(&mut self, share: f64) {
        let waited = self.packets >= ENOUGH && self.least_wait.is_some_and(|least| least > WAITED);
        (self.packets, self.least_wait) = (0, None);
        if waited || share > BUSY {
            self.slower = SLOWEST.min(self.slower + 1);
            self.calm = 0;
        } else if share < CALM {
            self.calm += 1;
            if self.calm >= CALM_WINDOWS {
                self.slower = self.slower.saturating_sub(1);
                self.calm = 0;
            }
        } else {
            self.calm = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pace::{Pace, Rhythm};
    use super::*;

    /// Exchanges a second that come to a reference which can answer `capacity`, after each window.
    fn course(followers: f64, capacity: f64, windows: u32) -> Vec<f64> {
        let mut rhythm = Rhythm::new(Pace::of(100.0, 100).unwrap());
        let mut demand = Demand::default();
        let one = |_| {
            let come = followers * 2.0 / rhythm.steady().as_secs_f64();
            let waited = if come > capacity { 5 } else { 0 };
            (0..100).for_each(|_| demand.read(Duration::from_millis(waited)));
            demand.decide((come / capacity).min(1.0));
            rhythm.answered(demand.slower());
            come
        };
        (0..windows).map(one).collect()
    }

    /// However many followers there are, they soon ask for what can be answered, or for one exchange
    /// a second each, and stay there.
    #[test]
    fn many_followers_come_to_ask_for_what_can_be_answered() {
        for followers in [1.0, 100.0, 1000.0, 10_000.0] {
            let all = course(followers, 20_000.0, 200);
            let settled = &all[20..];
            let floor = followers.max(0.25 * 20_000.0);
            assert!(settled.iter().all(|come| *come <= floor), "{followers}: {settled:?}");
            let least = (followers * 100.0).min(0.1 * 20_000.0);
            assert!(settled.iter().all(|come| *come >= least), "{followers}: {settled:?}");
            let changes = settled.windows(2).filter(|pair| pair[0] != pair[1]).count();
            assert!(changes <= 1, "{followers}: {settled:?}");
        }
    }

    #[test]
    fn when_followers_leave_the_others_get_their_rate_back() {
        let mut demand = Demand::default();
        (0..30).for_each(|_| demand.decide(0.9));
        assert_eq!(demand.slower(), SLOWEST);
        (0..9).for_each(|_| demand.decide(0.01));
        assert_eq!(demand.slower(), SLOWEST);
        (0..91).for_each(|_| demand.decide(0.01));
        assert_eq!(demand.slower(), 0);
    }

    /// Single packets that wait, and few of them, are no reason.
    #[test]
    fn a_moment_of_waiting_slows_nobody_down() {
        let mut demand = Demand::default();
        (0..100).for_each(|_| demand.read(Duration::from_millis(50)));
        demand.read(Duration::from_micros(30));
        demand.decide(0.2);
        (0..ENOUGH - 1).for_each(|_| demand.read(Duration::from_millis(50)));
        demand.decide(0.2);
        assert_eq!(demand.slower(), 0);
    }
}
