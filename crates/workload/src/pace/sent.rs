//! The account of what was sent. Sans-I/O.

use serde::{Deserialize, Serialize};

use super::distribution::{Counted, Times};

/// A second from the start, by when packets really left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Second {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) skipped: u64,
    pub(super) late_max_ns: Option<i64>,
}

impl Second {
    pub(super) fn add(&mut self, other: &Second) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.skipped += other.skipped;
        self.late_max_ns = self.late_max_ns.max(other.late_max_ns);
    }
}

/// Least squares of lateness over the intended time: its slope is the drift.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Line {
    count: f64,
    mean_x: f64,
    mean_y: f64,
    xx: f64,
    xy: f64,
}

impl Line {
    fn add(&mut self, x: f64, y: f64) {
        self.merge(&Line { count: 1.0, mean_x: x, mean_y: y, xx: 0.0, xy: 0.0 });
    }

    /// Chan, Golub and LeVeque's way to join two sums of squares.
    fn merge(&mut self, other: &Line) {
        let count = self.count + other.count;
        if other.count == 0.0 {
            return;
        }
        let (dx, dy) = (other.mean_x - self.mean_x, other.mean_y - self.mean_y);
        let weight = self.count * other.count / count;
        self.xx += other.xx + dx * dx * weight;
        self.xy += other.xy + dx * dy * weight;
        self.mean_x += dx * other.count / count;
        self.mean_y += dy * other.count / count;
        self.count = count;
    }
}

/// What one process sent, or all of them.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Left out after stalls.
    pub(super) skipped: u64,
    /// Packets that the kernel had no room for.
    pub(super) rejected: u64,
    /// Answers that nobody listens, to packets that are among those sent.
    pub(super) refused: u64,
    /// Packets that were not due before the time was over or the run was interrupted.
    pub(super) unsent: u64,
    pub(super) late: Times,
    /// Lateness of the last packet.
    pub(super) final_ns: Option<i64>,
    pub(super) longest_burst: u64,
    pub(super) seconds: Vec<Second>,
    /// When the last packet left, from the start.
    pub(super) last_ns: u64,
    pub(super) interrupted: bool,
    /// Whether the receiver has confirmed the end; `None` before it.
    pub(super) confirmed: Option<bool>,
    pub(super) guard_ns: Option<u64>,
    /// Waits that were to spin and only slept.
    pub(super) without_spinning: u64,
    line: Line,
}

/// [`Sent`] as it goes from a process to the one that started it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SentParts {
    counts: [u64; 7],
    late: Counted,
    final_ns: Option<i64>,
    longest_burst: u64,
    seconds: Vec<Second>,
    last_ns: u64,
    interrupted: bool,
    confirmed: Option<bool>,
    guard_ns: Option<u64>,
    line: Line,
}

impl Sent {
    pub(super) fn new() -> Sent {
        Sent {
            packets: 0,
            bytes: 0,
            skipped: 0,
            rejected: 0,
            refused: 0,
            unsent: 0,
            late: Times::new(),
            final_ns: None,
            longest_burst: 0,
            // In most runs there is no allocation while packets are sent.
            seconds: Vec::with_capacity(1024),
            last_ns: 0,
            interrupted: false,
            confirmed: None,
            guard_ns: None,
            without_spinning: 0,
            line: Line::default(),
        }
    }

    /// A packet of `size` bytes that was to leave at `intended` left `late` nanoseconds after that.
    pub(super) fn packet(&mut self, intended: u64, late: i64, size: u64) {
        let actual = intended.saturating_add_signed(late);
        self.packets += 1;
        self.bytes += size;
        self.late.add(late.max(0).cast_unsigned());
        self.line.add(intended as f64, late as f64);
        self.final_ns = Some(late);
        self.last_ns = self.last_ns.max(actual);
        let second = Second { packets: 1, bytes: size, skipped: 0, late_max_ns: Some(late) };
        self.second(actual).add(&second);
    }

    /// `count` packets were skipped at `now`.
    pub(super) fn skip(&mut self, now: u64, count: u64) {
        self.skipped += count;
        self.second(now).skipped += count;
    }

    fn second(&mut self, at: u64) -> &mut Second {
        let number = (at / 1_000_000_000) as usize;
        if self.seconds.len() <= number {
            self.seconds.resize(number + 1, Second::default());
        }
        &mut self.seconds[number]
    }

    /// Drift: how much longer the sender's second is than a second, in parts per million.
    pub(super) fn drift_ppm(&self) -> Option<f64> {
        (self.line.xx > 0.0).then(|| self.line.xy / self.line.xx * 1e6)
    }

    /// Packets that were due or would have been.
    pub(super) fn asked(&self) -> u64 {
        self.packets + self.skipped + self.rejected + self.unsent
    }

    pub(super) fn parts(&self) -> SentParts {
        SentParts {
            counts: [
                self.packets,
                self.bytes,
                self.skipped,
                self.rejected,
                self.unsent,
                self.refused,
                self.without_spinning,
            ],
            late: self.late.counted(),
            final_ns: self.final_ns,
            longest_burst: self.longest_burst,
            seconds: self.seconds.clone(),
            last_ns: self.last_ns,
            interrupted: self.interrupted,
            confirmed: self.confirmed,
            guard_ns: self.guard_ns,
            line: self.line,
        }
    }

    /// Adds what another process sent.
    pub(super) fn merge(&mut self, other: SentParts) {
        let [packets, bytes, skipped, rejected, unsent, refused, without_spinning] = other.counts;
        self.packets += packets;
        self.bytes += bytes;
        self.skipped += skipped;
        self.rejected += rejected;
        self.unsent += unsent;
        self.refused += refused;
        self.late.merge(&other.late);
        if other.last_ns >= self.last_ns {
            self.final_ns = other.final_ns.or(self.final_ns);
        }
        self.last_ns = self.last_ns.max(other.last_ns);
        self.longest_burst = self.longest_burst.max(other.longest_burst);
        let seconds = self.seconds.len().max(other.seconds.len());
        self.seconds.resize(seconds, Second::default());
        for (all, one) in self.seconds.iter_mut().zip(&other.seconds) {
            all.add(one);
        }
        self.interrupted |= other.interrupted;
        self.confirmed = match (self.confirmed, other.confirmed) {
            (Some(all), Some(one)) => Some(all && one),
            (all, one) => all.or(one),
        };
        self.guard_ns = self.guard_ns.max(other.guard_ns);
        self.without_spinning += without_spinning;
        self.line.merge(&other.line);
    }
}

/// How much something differs from second to second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) mean: f64,
    /// Standard deviation (of a sample: n - 1) as a share of the mean; of one second there is none.
    pub(super) deviation_percent: Option<f64>,
    pub(super) min: u64,
    pub(super) max: u64,
}

/// The spread of `values`, one for each whole second; `None` where there is none.
pub(super) fn spread(values: &[u64]) -> Option<Spread> {
    let (&min, &max) = (values.iter().min()?, values.iter().max()?);
    let count = values.len() as f64;
    let mean = values.iter().map(|&value| value as f64).sum::<f64>() / count;
    let squares: f64 = values.iter().map(|&value| (value as f64 - mean).powi(2)).sum();
    let deviation =
        (values.len() > 1 && mean > 0.0).then(|| (squares / (count - 1.0)).sqrt() / mean * 100.0);
    Some(Spread { mean, deviation_percent: deviation, min, max })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender whose second is 100 ppm too long and who is late by 5 us from the start.
    fn drifting(numbers: impl Iterator<Item = u64>) -> Sent {
        let mut sent = Sent::new();
        for number in numbers {
            let intended = number * 100_000;
            sent.packet(intended, 5_000 + (intended / 10_000).cast_signed(), 100);
        }
        sent
    }

    #[test]
    fn drift_is_the_slope_whoever_sent() {
        let mut all = drifting(0..50_000);
        let mut merged = drifting((0..50_000).step_by(2));
        merged.merge(drifting((1..50_000).step_by(2)).parts());
        for sent in [&mut all, &mut merged] {
            assert!((sent.drift_ppm().unwrap() - 100.0).abs() < 0.001, "{:?}", sent.drift_ppm());
            assert_eq!(sent.packets, 50_000);
            assert_eq!(sent.final_ns, Some(5_000 + 499_990));
            // Packet 9999, meant for 0.9999 s, left after 1 s.
            let packets: Vec<u64> = sent.seconds.iter().map(|second| second.packets).collect();
            assert_eq!(packets, [9_999, 9_999, 9_999, 9_999, 9_999, 5]);
        }
    }

    #[test]
    fn the_spread_of_seconds() {
        let found = spread(&[2, 4, 4, 4, 5, 5, 7, 9]).unwrap();
        assert_eq!((found.mean, found.min, found.max), (5.0, 2, 9));
        // The squares' sum is 32, over 7.
        assert!((found.deviation_percent.unwrap() - 42.761_798).abs() < 1e-5);
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[3]).unwrap().deviation_percent, None);
    }
}
