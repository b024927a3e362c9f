//! How much a stream sends, and when. Sans-I/O: times are since the begin of the run.

use std::time::Duration;

/// A stream's part of what was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Share {
    /// `None`: no limit.
    pub(super) bytes: Option<u64>,
    pub(super) duration: Option<Duration>,
    /// Bits per second.
    pub(super) rate: Option<f64>,
}

impl Share {
    /// Stream `stream`'s part of `bytes` in whole blocks but for the last, and of the rate.
    pub(super) fn of(
        (stream, streams): (u16, u16),
        block: usize,
        bytes: Option<u64>,
        duration: Option<Duration>,
        rate: Option<u64>,
    ) -> Share {
        let (stream, streams) = (u64::from(stream), u64::from(streams));
        let block = block as u64;
        let bytes = bytes.map(|bytes| {
            let blocks = bytes / block;
            let own = blocks / streams + u64::from(stream < blocks % streams);
            // What is left of a block goes to the stream that would have the next one.
            own * block + if stream == blocks % streams { bytes % block } else { 0 }
        });
        Share { bytes, duration, rate: rate.map(|rate| rate as f64 / streams as f64) }
    }

    /// The size of the next block after `sent` bytes; 0: all are sent.
    pub(super) fn next(&self, sent: u64, block: usize) -> usize {
        match self.bytes {
            Some(bytes) => {
                usize::try_from(bytes.saturating_sub(sent)).unwrap_or(usize::MAX).min(block)
            }
            None => block,
        }
    }

    /// When the block that follows `sent` bytes is due: the mean rate since the begin never exceeds
    /// what was asked for by more than a block. What a stall keeps back is sent at once after it.
    pub(super) fn due(&self, sent: u64) -> Option<Duration> {
        self.rate.map(|rate| Duration::from_secs_f64(sent as f64 * 8.0 / rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for streams in 1..5 {
            for bytes in [0, 1, 8191, 8192, 8193, 100_000, 81_920] {
                let shares: Vec<Share> = (0..streams)
                    .map(|stream| Share::of((stream, streams), 8192, Some(bytes), None, Some(1000)))
                    .collect();
                let sum: u64 = shares.iter().filter_map(|share| share.bytes).sum();
                assert_eq!(sum, bytes, "{streams} streams");
                let odd = shares.iter().filter(|share| share.bytes.unwrap() % 8192 != 0).count();
                assert_eq!(odd, usize::from(bytes % 8192 != 0));
                let rate: f64 = shares.iter().filter_map(|share| share.rate).sum();
                assert!((rate - 1000.0).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn blocks_keep_to_the_rate() {
        let share = Share::of((0, 2), 1000, None, None, Some(16_000_000));
        assert_eq!(share.due(0), Some(Duration::ZERO));
        assert_eq!(share.due(1_000_000), Some(Duration::from_secs(1)));
        assert_eq!(share.next(u64::MAX, 1000), 1000);
        let share = Share { bytes: Some(2500), duration: None, rate: None };
        assert_eq!(
            (share.next(0, 1000), share.next(2000, 1000), share.next(2500, 1000)),
            (1000, 500, 0)
        );
        assert_eq!(share.due(5), None);
    }
}
