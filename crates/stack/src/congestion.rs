//! The congestion window: Reno (RFC 5681) and CUBIC (RFC 9438), with the rate reduction of RFC 6937.

use std::time::Duration;

/// The initial window, in segments (RFC 6928).
const INITIAL: usize = 10;
/// The constants of RFC 9438 §4 and §4.6.
const C: f64 = 0.4;
const BETA_CUBIC: f64 = 0.7;
/// What Reno leaves of the window (RFC 5681 §3.1, equation 4).
const BETA_RENO: f64 = 0.5;

/// The algorithm by which the window grows and shrinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// RFC 9438.
    #[default]
    Cubic,
    /// RFC 5681.
    Reno,
}

/// How many bytes may be in flight. All sizes are in bytes.
#[derive(Debug)]
pub(crate) struct Window {
    algorithm: Algorithm,
    segment: usize,
    size: usize,
    threshold: usize,
    /// Bytes acknowledged that have not made the window grow yet.
    counted: usize,
    cubic: Cubic,
    reduction: Option<Reduction>,
}

/// Variables of RFC 9438 §4.1.2; windows are in segments.
#[derive(Debug, Default)]
struct Cubic {
    most: f64,
    /// W_est of §4.3.
    estimate: f64,
    /// When the present growth began, and K of §4.2 in seconds.
    epoch: Option<(Duration, f64)>,
}

/// Variables of RFC 6937 §3.
#[derive(Debug)]
struct Reduction {
    flight: usize,
    delivered: usize,
    sent: usize,
}

impl Window {
    pub(crate) fn new(algorithm: Algorithm, segment: usize) -> Window {
        Window {
            algorithm,
            segment,
            size: INITIAL * segment,
            threshold: usize::MAX,
            counted: 0,
            cubic: Cubic::default(),
            reduction: None,
        }
    }

    /// Segments are smaller from now on. The window stays as it is in bytes.
    pub(crate) fn set_segment(&mut self, segment: usize) {
        // Windows of CUBIC are in segments.
        let ratio = self.segment as f64 / segment as f64;
        self.cubic.most *= ratio;
        self.cubic.estimate *= ratio;
        self.segment = segment;
    }

    /// Bytes that may be in flight.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Bytes were acknowledged outside of a recovery, while the window limited what was sent.
    pub(crate) fn grow(&mut self, now: Duration, acknowledged: usize, round_trip: Duration) {
        if self.size < self.threshold {
            // RFC 5681 §3.1 with L of RFC 3465 as the segments acknowledged; what is above the
            // threshold is for congestion avoidance.
            let step = acknowledged.min(self.threshold - self.size);
            self.size += step;
            if step == acknowledged {
                return;
            }
        }
        match self.algorithm {
            Algorithm::Reno => {
                self.counted += acknowledged;
                if self.counted >= self.size {
                    self.counted -= self.size;
                    self.size += self.segment;
                }
            }
            Algorithm::Cubic => self.grow_cubic(now, acknowledged, round_trip),
        }
    }

    /// RFC 9438 §4.2 to §4.5.
    fn grow_cubic(&mut self, now: Duration, acknowledged: usize, round_trip: Duration) {
        let segment = self.segment as f64;
        let (window, came) = (self.size as f64 / segment, acknowledged as f64 / segment);
        let cubic = &mut self.cubic;
        let (began, k) = *cubic.epoch.get_or_insert_with(|| {
            cubic.most = cubic.most.max(window);
            cubic.estimate = window;
            (now, ((cubic.most - window) / C).cbrt())
        });
        let at = |t: Duration| C * (t.as_secs_f64() - k).powi(3) + cubic.most;
        let elapsed = now.saturating_sub(began);
        let alpha = if cubic.estimate >= cubic.most {
            1.0
        } else {
            3.0 * (1.0 - BETA_CUBIC) / (1.0 + BETA_CUBIC)
        };
        let grown = if at(elapsed) < cubic.estimate {
            cubic.estimate
        } else {
            let target = at(elapsed + round_trip).clamp(window, 1.5 * window);
            window + (target - window) / window * came
        };
        cubic.estimate += alpha * came / window;
        self.size = ((grown.max(window)) * segment) as usize;
    }

    /// A loss was found: the window shrinks once for what is in flight.
    pub(crate) fn shrink(&mut self, flight: usize) {
        self.reduce(flight);
        self.reduction = Some(Reduction { flight: flight.max(1), delivered: 0, sent: 0 });
    }

    /// The threshold of RFC 5681 §3.1, equation 4, or of RFC 9438 §4.6.
    fn reduce(&mut self, flight: usize) {
        let beta = match self.algorithm {
            Algorithm::Reno => BETA_RENO,
            Algorithm::Cubic => {
                let window = self.size as f64 / self.segment as f64;
                // Fast convergence, §4.7.
                let fast = if window < self.cubic.most { (1.0 + BETA_CUBIC) / 2.0 } else { 1.0 };
                self.cubic.most = window * fast;
                self.cubic.epoch = None;
                BETA_CUBIC
            }
        };
        let least = 2 * self.segment;
        self.threshold = ((flight as f64 * beta) as usize).max(least);
        self.counted = 0;
    }

    /// Bytes were delivered during a recovery: the window follows RFC 6937 §3.1. `progress`: the
    /// first unacknowledged byte moved and no other loss is known, so that its bound SSRB grows.
    pub(crate) fn recover(&mut self, delivered: usize, flight: usize, progress: bool) {
        let Some(reduction) = &mut self.reduction else { return };
        reduction.delivered += delivered;
        let quota = if flight > self.threshold {
            let share = reduction.delivered as u128 * self.threshold as u128;
            let due = share.div_ceil(reduction.flight as u128) as usize;
            due.saturating_sub(reduction.sent)
        } else {
            let behind = reduction.delivered.saturating_sub(reduction.sent);
            let bound = behind.max(delivered) + if progress { self.segment } else { 0 };
            bound.min(self.threshold - flight)
        };
        // The first retransmission does not wait.
        let quota = if reduction.sent == 0 { quota.max(self.segment) } else { quota };
        self.size = flight + quota;
    }

    /// Bytes were sent, again or for the first time.
    pub(crate) fn sent(&mut self, bytes: usize) {
        if let Some(reduction) = &mut self.reduction {
            reduction.sent += bytes;
        }
    }

    /// All that was in flight when the loss was found has been acknowledged.
    pub(crate) fn recovered(&mut self) {
        if self.reduction.take().is_some() {
            self.size = self.threshold;
        }
    }

    /// The retransmission time-out passed (RFC 5681 §3.1, RFC 9438 §4.8). `again`: once more for the
    /// same data, after which the threshold stays.
    pub(crate) fn time_out(&mut self, flight: usize, again: bool) {
        if !again {
            self.reduce(flight);
        }
        self.reduction = None;
        self.size = self.segment;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: usize = 1000;
    const TRIP: Duration = Duration::from_millis(100);

    /// Windows in segments after each round trip, all of each acknowledged.
    fn rounds(window: &mut Window, count: u32, from: u32) -> Vec<f64> {
        (from..from + count)
            .map(|round| {
                for _ in 0..window.size() / SEGMENT {
                    window.grow(TRIP * round, SEGMENT, TRIP);
                }
                window.size() as f64 / SEGMENT as f64
            })
            .collect()
    }

    #[test]
    fn slow_start_doubles_and_reno_adds_a_segment_a_round_trip() {
        let mut window = Window::new(Algorithm::Reno, SEGMENT);
        assert_eq!(rounds(&mut window, 3, 0), [20.0, 40.0, 80.0]);
        window.shrink(80 * SEGMENT);
        window.recovered();
        assert_eq!(window.size(), 40 * SEGMENT);
        let grown = rounds(&mut window, 10, 3);
        assert!((grown[9] - 50.0).abs() <= 1.0, "{grown:?}");
    }

    #[test]
    fn cubic_is_back_at_its_window_after_k_seconds() {
        let mut window = Window::new(Algorithm::Cubic, SEGMENT);
        window.size = 200 * SEGMENT;
        window.shrink(200 * SEGMENT);
        window.recovered();
        assert_eq!(window.size(), 140 * SEGMENT);
        // K = cbrt(200 · 0.3 / 0.4) = 5.31 s. Reno's estimate is far below that.
        let grown = rounds(&mut window, 100, 0);
        let at = |seconds: f64| grown[(seconds * 10.0) as usize];
        assert!((at(5.3) - 200.0).abs() < 2.0, "{}", at(5.3));
        assert!((at(2.0) - (200.0 + 0.4 * (2.1f64 - 5.31).powi(3))).abs() < 4.0, "{}", at(2.0));
        assert!(at(8.0) > 206.0 && at(8.0) < 215.0, "{}", at(8.0));
    }

    #[test]
    fn a_recovery_sends_the_share_that_the_window_shrinks_to() {
        let mut window = Window::new(Algorithm::Reno, SEGMENT);
        window.size = 100 * SEGMENT;
        window.shrink(100 * SEGMENT);
        let (mut flight, mut sent) = (99 * SEGMENT, 0);
        for _ in 0..90 {
            flight -= SEGMENT;
            window.recover(SEGMENT, flight, true);
            while flight + SEGMENT <= window.size() {
                window.sent(SEGMENT);
                flight += SEGMENT;
                sent += 1;
            }
        }
        assert!((44..=47).contains(&sent), "{sent}");
        window.recovered();
        assert_eq!(window.size(), 50 * SEGMENT);
    }
}
