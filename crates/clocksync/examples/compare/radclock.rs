//! The RADclock, by its published rules: D. Veitch, J. Ridoux and S. B. Korada, "Robust
//! synchronization of absolute and difference clocks over networks", IEEE/ACM Transactions on
//! Networking 17(2), 2009. The code is our own.
//!
//! A packet's point error is its round trip's excess over the least one. The rate comes from two
//! packets of small point error far apart; the offset is a mean of packets' naive offsets with
//! weights that fall with the square of the point error and of age. The paper's parameters are
//! multiples of `δ`, the noise of a stamp, which was 15 µs then.

use std::collections::VecDeque;

use super::{Peer, Sample};

/// Noise of a stamp here, ns.
const DELTA: f64 = 50.0;
/// Point errors that the rate is taken from.
const E_RATE: f64 = 20.0 * DELTA;
/// Width of the offset's weights, and the point error at which they are worth nothing.
const E: f64 = 4.0 * DELTA;
const E_POOR: f64 = 6.0 * E;
/// By how much a round trip must rise to be another path's.
const SHIFT: f64 = 10.0 * DELTA;
/// Growth of a point error with age.
const AGING: f64 = 2e-8;
/// How long the clock is one of simple skew, in seconds.
const SIMPLE_SKEW: f64 = 1000.0;
/// Packets of the window in which a shift of the path is looked for.
const SHIFT_WINDOW: usize = 500;

pub struct RadClock {
    ticks_per_second: f64,
    least: f64,
    /// What the rate was begun from.
    first: Option<Sample>,
    rate: f64,
    packets: VecDeque<Sample>,
    /// Place and offset.
    last: Option<(f64, f64)>,
}

impl RadClock {
    pub fn new(ticks_per_second: f64) -> RadClock {
        RadClock {
            ticks_per_second,
            least: f64::INFINITY,
            first: None,
            rate: 0.0,
            packets: VecDeque::new(),
            last: None,
        }
    }
}

impl Peer for RadClock {
    fn see(&mut self, sample: Sample) {
        self.least = self.least.min(sample.round_trip());
        self.packets.push_back(sample);
        while self
            .packets
            .front()
            .is_some_and(|first| (sample.x() - first.x()) / self.ticks_per_second > SIMPLE_SKEW)
        {
            self.packets.pop_front();
        }
        let recent = self.packets.iter().rev().take(SHIFT_WINDOW);
        let local = recent.map(Sample::round_trip).fold(f64::INFINITY, f64::min);
        if self.packets.len() >= SHIFT_WINDOW && local > self.least + SHIFT {
            // The path became longer: point errors are against the new one from here on.
            self.least = local;
            self.packets.drain(..self.packets.len() - SHIFT_WINDOW);
        }
        let error = |packet: &Sample| packet.round_trip() - self.least;
        match &mut self.first {
            None => self.first = Some(sample),
            Some(first) => {
                if first.round_trip() - self.least > E_RATE {
                    *first = sample;
                } else if error(&sample) <= E_RATE && sample.x() > first.x() {
                    let forward =
                        (sample.forward.1 - first.forward.1) / (sample.forward.0 - first.forward.0);
                    let back = (sample.back.1 - first.back.1) / (sample.back.0 - first.back.0);
                    self.rate = 0.5 * (forward + back);
                }
            }
        }
        let x = sample.back.0;
        let (mut sum, mut weights, mut best) = (0.0, 0.0, f64::INFINITY);
        for packet in &self.packets {
            let age = (x - packet.x()) / self.ticks_per_second * 1e9;
            let total = error(packet) + AGING * age;
            best = best.min(total);
            let weight = (-(total / E).powi(2)).exp();
            sum += weight * (packet.offset() + self.rate * (x - packet.x()));
            weights += weight;
        }
        if best < E_POOR && weights > 0.0 {
            self.last = Some((x, sum / weights));
        } else if self.last.is_none() {
            self.last = Some((x, sample.offset()));
        }
    }

    fn at(&self, x: f64) -> Option<f64> {
        self.last.map(|(at, offset)| offset + self.rate * (x - at))
    }
}
