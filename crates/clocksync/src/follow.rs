//! The finer guess while a run goes on: as [`crate::track`], without what comes later.
//!
//! Messages are gathered in windows; a window's quickest ones measure the offset for a bank of
//! clock filters ([`crate::filter`]) that follow the oscillator more and less readily. Each has
//! its say by how good its expectations were of late. A window whose least round trip is not the
//! path's usual one measures little; when that lasts, the path has changed, and what the change
//! seems to do to the clock is taken out.
//!
//! Of the last windows, some forty seconds, the quickest messages are kept. Around the way that the
//! clock took meanwhile, as it is seen now, longer windows of them tell by how much the short ones
//! are off.
//!
//! The calibrated error bound is made as there. Two things differ. There are few windows at first,
//! so the noise of one begins with a guess: what the first one's quick messages scatter, and the
//! width of stamps, whose errors may be alike for a short while; it counts less than one
//! innovation. And no later window tells which clock of the bank is right, so that they differ is
//! part of the variance.

use std::collections::VecDeque;

use crate::constraint::{Constraint, Way};
use crate::envelope::Point;
use crate::filter::{Clock, Likelihood, Measurement, RATIOS, retrace};
use crate::path::{self, Legs, SIDE, median};
use crate::track::{DEVIATIONS, ENOUGH, FLOOR_NS, QUICK, quickest, unseen, widest};

/// Messages of each direction that end a window.
const MESSAGES: usize = 16;
/// A window with fewer of them ends after so many seconds.
const LONGEST_S: f64 = 2.0;
/// The share of a window's messages that speak for it.
const SHARE: f64 = 0.1;
/// Windows that are kept, and that make a longer one.
const RECENT: usize = 256;
const LONGER: usize = 16;
/// Messages whose widths are kept.
const WIDTHS: usize = 64;
/// Windows that the usual round trip is taken from.
const USUAL: usize = 32;
/// What remains of a window's weight after another: innovations of some hundred windows count.
const KEPT: f64 = 0.99;
/// What is said holds for so many seconds, until something else is: the width is that of then.
const AHEAD_S: f64 = 0.05;

/// By how many nanoseconds a round trip must move at least to be another path's: probes that follow
/// each other closely find their caches warm, and are quicker by one or two thousand.
const LEAST_CHANGE_NS: f64 = 2_000.0;

fn threshold(noise: f64) -> f64 {
    path::threshold(noise).max(LEAST_CHANGE_NS)
}

/// The variance of values of which some are outliers.
fn variance_of(values: Vec<f64>) -> f64 {
    let middle = median(values.clone()).unwrap_or_default();
    let distances = values.into_iter().map(|value| (value - middle).abs());
    (1.4826 * median(distances.collect()).unwrap_or_default()).powi(2)
}

/// A change of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PathChange {
    /// It was after this place, and before the other one.
    pub(crate) from: f64,
    pub(crate) until: f64,
    /// By how much the way to the reference became longer, ns, and the way back.
    pub(crate) forward_ns: f64,
    pub(crate) back_ns: f64,
}

/// A guess that follows the clock; in residuals: nanoseconds over ticks.
#[derive(Clone, Debug)]
pub(crate) struct Follow {
    ticks_per_second: f64,
    window: Window,
    bank: Vec<(Clock, Likelihood)>,
    /// Where the bank's clocks are; `None` before the first window.
    at: Option<f64>,
    /// Variance of one window's offset, ns².
    noise: f64,
    /// What it was thought to be before there were innovations; `None` before the first window.
    first_noise: Option<f64>,
    /// The clock's slope before it was disturbed, nanoseconds a tick.
    slope_before: Option<f64>,
    /// Widths of the last messages' stamps.
    widths: VecDeque<f64>,
    recent: VecDeque<Recent>,
    /// What longer windows add to the offset, and how well that is known, ns².
    correction: Option<(f64, f64)>,
    /// What the path adds to the offset, and how well that is known, ns².
    bias: f64,
    bias_variance: f64,
    /// Least round trips of late that are usual, and the least usual one ever.
    usual: VecDeque<f64>,
    least: f64,
    /// The last `RECENT` of those in a row that are not: begins and ends, legs, by how much off.
    unusual: VecDeque<([f64; 2], Legs, f64)>,
    /// Where the last usual window begins.
    last_usual: f64,
}

/// What is kept of a window.
#[derive(Clone, Copy, Debug)]
struct Recent {
    x: f64,
    legs: Legs,
    measurement: Measurement,
    /// The quickest message of each direction.
    quickest: [Point; 2],
    /// By what its quick messages say something else than the quickest ones.
    skew: f64,
}

/// Messages of one window.
#[derive(Clone, Debug, Default)]
struct Window {
    forward: Vec<Point>,
    back: Vec<Point>,
}

impl Window {
    fn points(&self) -> impl Iterator<Item = &Point> {
        self.forward.iter().chain(&self.back)
    }

    fn begin(&self) -> f64 {
        self.points().map(|p| p.x).fold(f64::INFINITY, f64::min)
    }

    fn end(&self) -> f64 {
        self.points().map(|p| p.x).fold(f64::NEG_INFINITY, f64::max)
    }

    /// The quickest message of each direction.
    fn quickest(&self, expected: &dyn Fn(f64) -> f64) -> [Point; 2] {
        let left = |p: &Point| p.y - expected(p.x);
        let by = |a: &&Point, b: &&Point| left(a).total_cmp(&left(b));
        let (up, low) = (self.forward.iter().min_by(by), self.back.iter().max_by(by));
        let none = Point { x: 0.0, y: 0.0 };
        [*up.unwrap_or(&none), *low.unwrap_or(&none)]
    }

    /// The quickest messages' legs, for a share, less what was expected.
    fn legs(&self, expected: &dyn Fn(f64) -> f64) -> impl Fn(f64) -> Legs + use<> {
        let sorted = |points: &[Point]| {
            let mut values: Vec<f64> = points.iter().map(|p| p.y - expected(p.x)).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let (forward, back) = (sorted(&self.forward), sorted(&self.back));
        move |share| {
            let up = quickest(forward.iter(), share);
            let low = quickest(back.iter().rev(), share);
            Legs { half_difference: 0.5 * (up + low), sum: up - low }
        }
    }
}

impl Follow {
    pub(crate) fn new(ticks_per_second: f64) -> Follow {
        Follow {
            ticks_per_second,
            window: Window::default(),
            bank: Vec::new(),
            at: None,
            noise: 1.0,
            first_noise: None,
            slope_before: None,
            widths: VecDeque::new(),
            recent: VecDeque::new(),
            correction: None,
            bias: 0.0,
            bias_variance: 0.0,
            usual: VecDeque::new(),
            least: f64::INFINITY,
            unusual: VecDeque::new(),
            last_usual: 0.0,
        }
    }

    /// A follower of the same path after the clock was disturbed.
    pub(crate) fn anew(&self) -> Follow {
        Follow {
            noise: self.noise,
            first_noise: self.first_noise.map(|_| self.noise),
            correction: self.correction,
            bias: self.bias,
            bias_variance: self.bias_variance,
            usual: self.usual.clone(),
            least: self.least,
            slope_before: self.at.and_then(|at| Some(self.uncorrected(at)?.1)),
            ..Follow::new(self.ticks_per_second)
        }
    }

    /// Value, slope (nanoseconds a tick) and calibrated error bound at `x`; `None` before the first
    /// window.
    pub(crate) fn at(&self, x: f64) -> Option<(f64, f64, f64)> {
        let (offset, slope, _) = self.uncorrected(x)?;
        let (_, _, variance) = self.uncorrected(x + AHEAD_S * self.ticks_per_second)?;
        let (correction, of_correction) =
            self.correction.unwrap_or_else(|| (0.0, self.skew().powi(2)));
        let least = self.usual.iter().copied().reduce(f64::min).unwrap_or(0.0);
        let variance = variance + of_correction + unseen(least, self.skew()) + FLOOR_NS * FLOOR_NS;
        Some((offset + correction, slope, DEVIATIONS * variance.sqrt()))
    }

    /// The estimate over all clocks of the bank, weighted by their probability, because it is not
    /// known which one is right.
    fn uncorrected(&self, x: f64) -> Option<(f64, f64, f64)> {
        let dt = (x - self.at?) / self.ticks_per_second;
        let most = self.bank.iter().map(|(_, l)| l.logarithm()).fold(f64::NEG_INFINITY, f64::max);
        let clocks: Vec<(f64, Clock)> = self
            .bank
            .iter()
            .zip(RATIOS)
            .map(|((clock, l), ratio)| ((l.logarithm() - most).exp(), clock.later(dt, ratio)))
            .collect();
        let total: f64 = clocks.iter().map(|(weight, _)| weight).sum();
        let mean = |of: &dyn Fn(&Clock) -> f64| -> f64 {
            clocks.iter().map(|(weight, clock)| weight * of(clock)).sum::<f64>() / total
        };
        let (offset, rate) = (mean(&|c| c.offset), mean(&|c| c.rate));
        let own = mean(&|c| c.variance[0].max(0.0)) * self.noise;
        let between = mean(&|c| (c.offset - offset).powi(2));
        Some((offset, rate / self.ticks_per_second, own + between + self.bias_variance))
    }

    /// Square of what the quickest messages may be off by, before longer windows tell it: a
    /// window's quick ones are about as far from its quickest as this one from the least.
    fn skew(&self) -> f64 {
        let count = self.recent.len().max(1) as f64;
        self.recent.iter().map(|r| r.skew).sum::<f64>() / count
    }

    /// A slope to go on with before the first window: that from before a disturbance, while it is
    /// among those that are possible, as most clocks keep their rate.
    pub(crate) fn first_slope(&self, [slowest, fastest]: [f64; 2]) -> f64 {
        let possible = self.slope_before.filter(|slope| (slowest..=fastest).contains(slope));
        possible.unwrap_or(0.5 * (slowest + fastest))
    }

    fn believed(&self) -> Option<(Clock, f64)> {
        let likelier = |a: &(usize, f64), b: &(usize, f64)| a.1.total_cmp(&b.1);
        let of_all = self.bank.iter().map(|(_, likelihood)| likelihood.logarithm()).enumerate();
        let (best, _) = of_all.max_by(likelier)?;
        Some((self.bank[best].0, RATIOS[best]))
    }

    /// Takes in a message; tells of a change of the path. `rates` are the least and the largest
    /// that are possible, in nanoseconds a tick.
    pub(crate) fn see(&mut self, constraint: &Constraint, rates: [f64; 2]) -> Option<PathChange> {
        let point = constraint.middle?;
        let width = constraint.half_width()?;
        if self.widths.len() == WIDTHS {
            self.widths.pop_front();
        }
        self.widths.push_back(width);
        if width > widest(self.widths.iter().copied().collect())? {
            return None;
        }
        let values = match constraint.way {
            Way::Forward => &mut self.window.forward,
            Way::Back => &mut self.window.back,
        };
        values.push(point);
        let [forward, back] = [&self.window.forward, &self.window.back].map(Vec::len);
        let (fewer, more) = (forward.min(back), forward.max(back));
        let long = || {
            (self.window.end() - self.window.begin()) / self.ticks_per_second > LONGEST_S
                || more > 4 * MESSAGES
        };
        if fewer >= MESSAGES || (fewer > 0 && long()) {
            let window = std::mem::take(&mut self.window);
            return self.measure(&window, rates);
        }
        if more > 16 * MESSAGES {
            // One direction is silent: nothing can be said of the offset.
            self.window = Window::default();
        }
        None
    }

    fn measure(&mut self, window: &Window, [slowest, fastest]: [f64; 2]) -> Option<PathChange> {
        let (begin, end) = (window.begin(), window.end());
        let x = 0.5 * (begin + end);
        let slope = 0.5 * (slowest + fastest);
        let expected = |at: f64| self.uncorrected(at).map_or(slope * (at - x), |known| known.0);
        let legs = window.legs(&expected);
        let chosen = legs(SHARE);
        let quickest = window.quickest(&expected);
        let around = expected(x);
        let offset = around + chosen.half_difference - self.bias - self.tilted(chosen.sum);
        let first_noise = *self.first_noise.get_or_insert_with(|| {
            // What the quickest messages are off by, and all stamps of a short while together.
            let quick = 0.5 * (legs(QUICK).sum - legs(0.0).sum);
            let width = median(self.widths.iter().copied().collect()).unwrap_or_default();
            self.noise = (quick * quick + width * width).max(1.0);
            self.noise
        });
        // What the rate is off by bends a window, and its quickest messages are not at its middle.
        let known = self.believed().map_or(f64::INFINITY, |(clock, _)| {
            3.0 * (clock.variance[2] * self.noise).sqrt() / self.ticks_per_second
        });
        let bent = 0.25 * (end - begin) * (0.5 * (fastest - slowest)).min(known);
        let bent = bent * bent / self.noise;
        let Some(at) = self.at else {
            let rate = slope * self.ticks_per_second;
            let variance = (0.5 * (fastest - slowest) * self.ticks_per_second).powi(2) / self.noise;
            let mut clock = Clock { rate, ..Clock::unknown(offset, variance) };
            clock.measure(offset, 1.0 + bent, self.noise);
            self.bank = vec![(clock, Likelihood::default()); RATIOS.len()];
            self.at = Some(x);
            return None;
        };
        // By what a window's round trip is off, its half difference may be off by half.
        let unusual = self.usual_sum().map_or(0.0, |usual| chosen.sum - usual);
        let doubtful = 0.5 * (unusual.abs() - 2.0 * self.sum_noise()).max(0.0);
        let own = 1.0 + bent + doubtful * doubtful / self.noise;
        let dt = (x - at) / self.ticks_per_second;
        for ((clock, likelihood), ratio) in self.bank.iter_mut().zip(RATIOS) {
            *clock = clock.later(dt, ratio);
            let innovation = clock.measure(offset, own, self.noise);
            if own < 2.0 {
                likelihood.add(innovation, KEPT);
            }
        }
        self.at = Some(x);
        let best = self.bank.iter().max_by(|a, b| a.1.logarithm().total_cmp(&b.1.logarithm()));
        if let Some((_, likelihood)) = best {
            let noise = likelihood.noise_from(first_noise);
            self.noise = self.rescaled(noise.max(1.0));
        }
        // The round trip of a window with a bend is not the path's either.
        if bent > 0.25 {
            return None;
        }
        let least = self.path_least().unwrap_or(chosen.sum);
        if (chosen.sum - least).abs() <= threshold(self.sum_noise()) {
            self.note_usual(begin, chosen.sum);
            if self.bias_variance == 0.0 {
                let measurement = Measurement { offset, own };
                let skew = legs(QUICK).half_difference - legs(0.0).half_difference;
                self.keep(Recent { x, legs: chosen, measurement, quickest, skew });
            }
            return None;
        }
        if self.unusual.len() == RECENT {
            self.unusual.pop_front();
        }
        self.unusual.push_back(([begin, end], chosen, chosen.half_difference - self.bias));
        self.other_path().map(|begin| self.change_path(begin))
    }

    /// Since which unusual window all are of another path, if they are: load makes round trips longer
    /// for long as well, but not all of them by the same.
    fn other_path(&self) -> Option<usize> {
        let sums: Vec<f64> = self.unusual.iter().map(|u| u.1.sum).collect();
        let of_usual = self.sum_noise();
        let limit = |noise: f64| threshold(noise.max(of_usual));
        let begin = path::last_begin(&sums, limit)?;
        let sums = &sums[begin..];
        let moved = (path::low(sums.to_vec()) - self.path_least()?).abs();
        (moved > limit(path::noise(sums.iter().copied()))).then_some(begin)
    }

    /// What the direction that is held up adds to the offset at a round trip.
    fn tilted(&self, sum: f64) -> f64 {
        let legs: Vec<Legs> = self.recent.iter().map(|r| r.legs).collect();
        let tilt = path::tilt(&legs).unwrap_or(0.0);
        self.path_least().map_or(0.0, |least| tilt * (sum - least))
    }

    fn keep(&mut self, window: Recent) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(window);
        let Some((_, ratio)) = self.believed() else { return };
        if self.recent.len() < LONGER {
            return;
        }
        let begin = self.recent[0].x;
        let measured = |r: &Recent| ((r.x - begin) / self.ticks_per_second, r.measurement);
        let measurements: Vec<(f64, Measurement)> = self.recent.iter().map(measured).collect();
        let way = retrace(&measurements, ratio, self.noise);
        let recent: Vec<Recent> = self.recent.iter().copied().collect();
        let at = |x: f64| {
            let after = recent.partition_point(|r| r.x <= x).clamp(1, recent.len() - 1);
            let (a, b) = (after - 1, after);
            way[a] + (x - recent[a].x) / (recent[b].x - recent[a].x) * (way[b] - way[a])
        };
        // From the last one backwards, so that each has as many.
        let of = |count: usize| -> Vec<Legs> {
            let longer = recent.rchunks_exact(count).map(|windows| {
                let left = |side: usize| {
                    windows.iter().map(move |r| r.quickest[side]).map(|p| p.y - at(p.x) - self.bias)
                };
                let up = left(0).fold(f64::INFINITY, f64::min);
                let low = left(1).fold(f64::NEG_INFINITY, f64::max);
                Legs { half_difference: 0.5 * (up + low), sum: up - low }
            });
            longer.collect()
        };
        let of_windows: Vec<Legs> = recent.iter().map(|r| r.legs).collect();
        let tilt = path::tilt(&of_windows).unwrap_or(0.0);
        let offsets = |longer: Vec<Legs>| -> Vec<f64> {
            let least = path::low(longer.iter().map(|legs| legs.sum).collect());
            longer.iter().map(|l| l.half_difference - tilt * (l.sum - least)).collect()
        };
        let longer = offsets(of(LONGER));
        let count = longer.len() as f64;
        let Some(middle) = median(longer) else { return };
        // Too few do not show their noise. Shorter ones do, and have more of it.
        let lengths = std::iter::successors(Some(LONGER), |length| Some(length / 2));
        let shown = lengths.take_while(|length| *length > 1).map(of).find(|w| w.len() >= ENOUGH);
        let noise = shown.map_or(self.noise, |windows| variance_of(offsets(windows)));
        // The quickest of all of them are nearer to the least by as much again.
        self.correction = Some((middle, noise / count + middle * middle / 16.0));
    }

    /// Variances are in units of the noise: with another unit they have other numbers.
    fn rescaled(&mut self, noise: f64) -> f64 {
        let factor = self.noise / noise;
        for (clock, _) in &mut self.bank {
            clock.variance = clock.variance.map(|v| v * factor);
        }
        noise
    }

    /// `begin` is the first unusual window of the new path.
    fn change_path(&mut self, begin: usize) -> PathChange {
        let mut unusual = std::mem::take(&mut self.unusual);
        unusual.drain(..begin);
        let threshold = threshold(self.sum_noise());
        let jump = median(unusual.iter().map(|u| u.2).collect()).unwrap_or_default();
        let sum = path::low(unusual.iter().map(|u| u.1.sum).collect());
        let longer = sum - self.path_least().unwrap_or(sum);
        let (last_bias, from) = (self.bias, self.last_usual);
        if sum < self.least - threshold {
            // The quickest path so far: what was slower before is what was not symmetric.
            for (clock, _) in &mut self.bank {
                clock.offset += jump + self.bias;
            }
            (self.bias, self.bias_variance, self.least) = (0.0, 0.0, sum);
            self.recent.clear();
        } else if sum <= self.least + threshold {
            // It is the quickest path again.
            (self.bias, self.bias_variance) = (0.0, 0.0);
        } else {
            self.bias += jump;
            self.bias_variance += self.noise * (1.0 / SIDE as f64 + 0.5);
        }
        // A path that is known already says better by how much it differs.
        let moved = if self.bias_variance == 0.0 && last_bias != 0.0 { -last_bias } else { jump };
        let new = unusual.len().saturating_sub(USUAL);
        self.usual = unusual.iter().skip(new).map(|u| u.1.sum).collect();
        self.last_usual = unusual[unusual.len() - 1].0[0];
        PathChange {
            from,
            until: unusual[0].0[1],
            forward_ns: 0.5 * longer + moved,
            back_ns: 0.5 * longer - moved,
        }
    }

    fn note_usual(&mut self, begin: f64, sum: f64) {
        self.unusual.clear();
        self.last_usual = begin;
        if self.usual.len() == USUAL {
            self.usual.pop_front();
        }
        self.usual.push_back(sum);
        if self.usual.len() >= SIDE && self.bias_variance == 0.0 {
            self.least = self.path_least().unwrap_or(sum);
        }
    }

    /// The least round trip of the path that is used, as its quickest windows have it.
    fn path_least(&self) -> Option<f64> {
        let on_quickest = self.bias_variance == 0.0 && self.recent.len() >= SIDE;
        let sums: Vec<f64> = if on_quickest {
            self.recent.iter().map(|r| r.legs.sum).collect()
        } else {
            self.usual.iter().copied().collect()
        };
        (!sums.is_empty()).then(|| path::low(sums))
    }

    fn usual_sum(&self) -> Option<f64> {
        median(self.usual.iter().copied().collect())
    }

    fn sum_noise(&self) -> f64 {
        path::noise(self.usual.iter().copied())
    }
}

#[cfg(test)]
mod tests;
