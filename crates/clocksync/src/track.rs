//! The finer guess inside the hard interval: offset over time from the least delays of both
//! directions.
//!
//! Queues delay a message, nothing hastens it: the smallest delays of each direction lie close to
//! the path's own, and halfway between them is the offset as far as the path is symmetric. Time is
//! cut into windows. Which of a window's smallest delays speak for it (the least alone is noisy
//! where stamps are, many are false where one direction is busier) is decided by the run itself:
//! the choice that leaves the least error. The windows' offsets go through the clock filter and its
//! smoother ([`crate::filter`]), freed of what path changes add ([`crate::path`]).
//!
//! Where one direction is rarely quick (its sender has slept and finds its caches cold) the
//! quickest of a window are not its quickest at all, and the offset is off by half of that. So the
//! same is done again with what is left of the messages, in windows four times as long, and again,
//! up to one for the whole run: where long windows say something else than short ones did, they are
//! right, as the oscillator is no longer in what is left.
//!
//! Nothing here is certain. How far the guess may be off, its calibrated error bound, is the sum of
//! four variances:
//!
//! - the smoother's, of noise and wander as its innovations show them;
//! - the doubt that windows' quickest messages are the path's quickest: by how much windows of other
//!   lengths say something else, and the length that says most, as the others may agree by chance;
//! - the path changes', where the path was another one;
//! - an asymmetry that nothing shows. The constant part cannot be seen at all; that it is none would
//!   be a claim too. Both ways run through the same code with other caches, so their least delays are
//!   taken to differ by [`UNSEEN`] of the least round trip, and by more where the quick messages of
//!   one way are held up more than those of the other.
//!
//! [`DEVIATIONS`] of its root make the error bound. All but the first stay the same for a whole
//! run, so its errors go together: of a run of seconds nearly all instants are inside, or many are
//! not. What is claimed is claimed of many runs. For the same reason the maximum error is many
//! times the error in a run that happens to be right.

use crate::constraint::{Constraint, Way};
use crate::envelope::Point;
use crate::filter::{Measurement, Smoothed, smooth};
use crate::path::{self, Legs, Regime};

/// Messages of each direction that a window is meant to have.
const MESSAGES: f64 = 24.0;
/// Windows are no shorter and no longer, in seconds.
const LENGTHS: [f64; 2] = [0.1, 10.0];
/// Windows beyond which they are made longer.
const MOST_WINDOWS: f64 = 200_000.0;
/// Shares of a window's messages that may speak for it: the quickest of them. None: the quickest
/// one.
const SHARES: [f64; 4] = [0.0, 0.1, 0.25, 0.5];
/// And of those that tell how unlike the two directions are.
pub(crate) const QUICK: f64 = 0.25;
/// How many times the usual width of stamps a message may have that is to speak for others.
const WIDTHS: f64 = 2.0;
/// Longer windows are right where what they say is so many times as large as it is uncertain, in
/// squares.
const SIGNIFICANT: f64 = 2.0;
/// Windows that show their noise.
pub(crate) const ENOUGH: usize = 8;
/// How fast a correction of longer windows may change, ns/s.
const CORRECTION_RATE: f64 = 1.0;
/// The claim of the calibrated error bound.
pub const CLAIM: f64 = 0.95;
/// And how many standard deviations of a normal error that is.
pub(crate) const DEVIATIONS: f64 = 1.96;
/// By what share of the least round trip the least delays of the two ways are taken to differ, as a
/// standard deviation. Between hidden clocks of one machine (veth pairs and a bridge, 0.95 µs) they
/// did by 0.018 where the CPUs were mostly idle, by 0.008 where they never slept, each time the
/// hosts were made by another amount: with it, 46 pairs of hosts were inside in 97 % of all
/// instants.
const UNSEEN: f64 = 0.015;
/// What no statistics show: whole ticks and nanoseconds, in ns.
pub(crate) const FLOOR_NS: f64 = 2.0;

/// A guess of the residual: nanoseconds over ticks.
#[derive(Clone, Debug)]
pub(crate) struct Track {
    /// Ascending; at least one.
    points: Vec<TrackPoint>,
}

/// A point of a guess.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrackPoint {
    pub(crate) at: Point,
    /// ns².
    pub(crate) variance: f64,
}

/// Uppers and lowers that may speak, as residuals; by ascending `x`.
struct Delays {
    forward: Vec<Point>,
    back: Vec<Point>,
}

impl Track {
    /// From the middles of messages, less `slope`·x. `half_range` is how far the true slope may be
    /// from that one and `nominal` the counter's, both in nanoseconds a tick. `None` if no window
    /// has messages of both directions.
    pub(crate) fn new(
        constraints: &[&Constraint],
        slope: f64,
        half_range: f64,
        nominal: f64,
    ) -> Option<Track> {
        let widths = constraints.iter().filter_map(|c| c.half_width());
        let widest = widest(widths.collect())?;
        let speaks = |c: &&&Constraint| c.half_width().is_some_and(|width| width <= widest);
        let of = |way: Way| -> Vec<Point> {
            let mut points: Vec<Point> = constraints
                .iter()
                .filter(speaks)
                .filter(|c| c.way == way)
                .filter_map(|c| c.middle)
                .map(|p| Point { y: p.y - slope * p.x, ..p })
                .collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            points
        };
        let mut delays = Delays { forward: of(Way::Forward), back: of(Way::Back) };
        let begin = delays.forward.first()?.x.min(delays.back.first()?.x);
        let end = delays.forward.last()?.x.max(delays.back.last()?.x);
        let fewer = delays.forward.len().min(delays.back.len()) as f64;
        let per_second = 1e9 / nominal;
        let seconds = (end - begin) / per_second;
        let wanted = (MESSAGES * seconds / fewer).clamp(LENGTHS[0], LENGTHS[1]);
        let count = (seconds / wanted).ceil().clamp(1.0, MOST_WINDOWS);
        let grid = Grid {
            begin,
            length: ((end - begin) / count).max(1.0),
            count: count as usize,
            per_second,
        };
        // Rates in ns/s.
        let rate_sd = (half_range * per_second).max(1.0);
        let coarse = grid.best(&delays, None, rate_sd)?;
        let fine = grid.best(&delays, Some(&coarse.track), rate_sd)?;
        fine.keep_quickest_path(&mut delays);
        let mut track = fine.track;
        let (mut seen, mut doubt) = (fine.seen, 0.0_f64);
        let mut grid = grid;
        while grid.count > 1 {
            grid = grid.longer();
            let Some(level) = grid.level(&delays, &track, &seen) else { continue };
            seen = level.seen;
            let significant = level.moved > SIGNIFICANT * level.variance;
            if significant {
                track.correct(&level.correction);
            }
            // The quickest of windows four times as long are four times as near to the least.
            doubt = doubt.max(if significant { level.moved / 16.0 } else { level.moved });
        }
        for point in &mut track.points {
            point.variance += doubt + unseen(fine.least, fine.skew) + FLOOR_NS * FLOOR_NS;
        }
        track.limit_slope(half_range);
        Some(track)
    }

    /// Adds another one, of offsets that this one left.
    fn correct(&mut self, by: &Track) {
        let [begin, end] = [&by.points[0], &by.points[by.points.len() - 1]].map(|p| p.at.x);
        for point in &mut self.points {
            let (moved, variance) = by.place(point.at.x.clamp(begin, end));
            point.at.y += moved;
            point.variance += variance;
        }
    }

    /// Its value and error bound of [`CLAIM`] at `x`; beyond its ends it goes straight on.
    pub(crate) fn at(&self, x: f64) -> (f64, f64) {
        let (value, variance) = self.place(x);
        (value, DEVIATIONS * variance.sqrt())
    }

    fn place(&self, x: f64) -> (f64, f64) {
        let after = self.points.partition_point(|p| p.at.x <= x);
        let last = self.points.len() - 1;
        let (a, b) = match last {
            0 => return (self.points[0].at.y, self.points[0].variance),
            _ => (&self.points[after.clamp(1, last) - 1], &self.points[after.clamp(1, last)]),
        };
        let part = (x - a.at.x) / (b.at.x - a.at.x);
        let variance = a.variance + part.clamp(0.0, 1.0) * (b.variance - a.variance);
        (a.at.y + part * (b.at.y - a.at.y), variance)
    }

    pub(crate) fn xs(&self) -> impl Iterator<Item = f64> {
        self.points.iter().map(|p| p.at.x)
    }

    /// No oscillator changes faster than the assumption allows; a guess from very little might.
    fn limit_slope(&mut self, limit: f64) {
        for i in 1..self.points.len() {
            let last = self.points[i - 1].at;
            let at = &mut self.points[i].at;
            let most = limit * (at.x - last.x);
            at.y = at.y.clamp(last.y - most, last.y + most);
        }
    }
}

/// A guess from windows of one length.
struct Guess {
    track: Track,
    seen: Seen,
    /// Mean square error as far as it shows, ns².
    error: f64,
    /// The least round trip, ns.
    least: f64,
    /// By what windows' quick messages say something else than their quickest, ns.
    skew: f64,
    /// Paths: from where on, and whether it is the quickest one.
    paths: Vec<(f64, bool)>,
}

impl Guess {
    /// Leaves the messages that went over the quickest path.
    fn keep_quickest_path(&self, delays: &mut Delays) {
        let quickest = |p: &Point| {
            let path = self.paths.partition_point(|(begin, _)| *begin <= p.x).max(1) - 1;
            self.paths[path].1
        };
        delays.forward.retain(quickest);
        delays.back.retain(quickest);
    }
}

/// What windows of one length say of what shorter ones left.
struct Level {
    correction: Track,
    /// Its mean square, ns².
    moved: f64,
    /// And how well that is known, ns².
    variance: f64,
    seen: Seen,
}

/// What windows show of their messages.
struct Seen {
    /// Variance of one window's offset, ns².
    noise: f64,
    /// See [`path::tilt`].
    tilt: f64,
}

struct Grid {
    begin: f64,
    length: f64,
    count: usize,
    per_second: f64,
}

impl Grid {
    fn centre(&self, number: usize) -> f64 {
        self.begin + (number as f64 + 0.5) * self.length
    }

    /// The guess of the share of messages that leaves the least error.
    fn best(&self, delays: &Delays, around: Option<&Track>, rate_sd: f64) -> Option<Guess> {
        let windows = [&delays.forward, &delays.back].map(|points| self.sorted(points, around));
        let guess = |share| self.guess(&windows, around, share, rate_sd);
        let guesses = SHARES.into_iter().filter_map(guess);
        guesses.min_by(|a, b| a.error.total_cmp(&b.error))
    }

    /// Windows four times as long.
    fn longer(&self) -> Grid {
        let count = self.count.div_ceil(4);
        let whole = self.length * self.count as f64;
        Grid { length: whole / count as f64, count, ..*self }
    }

    /// The offsets that the quickest message of each direction and window shows around `track`.
    fn level(&self, delays: &Delays, track: &Track, last: &Seen) -> Option<Level> {
        let [forward, back] =
            [&delays.forward, &delays.back].map(|points| self.sorted(points, Some(track)));
        // A window that is nearly empty, compared with another path's, would be all noise.
        let most = |windows: &[Vec<f64>]| windows.iter().map(Vec::len).max().unwrap_or(0);
        let enough = most(&forward).min(most(&back)) / 4;
        let legs = |(up, low): (&Vec<f64>, &Vec<f64>)| {
            if up.len().min(low.len()) < enough {
                return None;
            }
            let (up, low) = (up.first()?, low.last()?);
            Some(Legs { half_difference: 0.5 * (up + low), sum: up - low })
        };
        let windows: Vec<Option<Legs>> = forward.iter().zip(&back).map(legs).collect();
        let all: Vec<Legs> = windows.iter().flatten().copied().collect();
        let tilt = path::tilt(&all).unwrap_or(last.tilt);
        let least = path::low(all.iter().map(|w| w.sum).collect());
        let offset = |w: Legs| w.half_difference - tilt * (w.sum - least);
        let known: Vec<f64> = all.iter().copied().map(offset).collect();
        if known.is_empty() {
            return None;
        }
        // Too few windows do not show their noise; longer ones have less of it.
        let noise = match known.len() {
            0..ENOUGH => last.noise,
            _ => noise_of(&known),
        };
        let measurement = |w: &Option<Legs>| w.map(|w| Measurement { offset: offset(w), own: 1.0 });
        let measurements: Vec<Option<Measurement>> = windows.iter().map(measurement).collect();
        let dt = self.length / self.per_second;
        let smoothed = smooth(&measurements, dt, CORRECTION_RATE, noise);
        let mean = |of: &mut dyn Iterator<Item = f64>| of.sum::<f64>() / self.count as f64;
        Some(Level {
            moved: mean(&mut smoothed.offsets.iter().map(|offset| offset * offset)),
            variance: mean(&mut smoothed.variances.iter().copied()),
            correction: self.track(&smoothed),
            seen: Seen { noise, tilt },
        })
    }

    fn track(&self, smoothed: &Smoothed) -> Track {
        let of_both = smoothed.offsets.iter().zip(&smoothed.variances).enumerate();
        let point =
            |(i, (&y, &variance))| TrackPoint { at: Point { x: self.centre(i), y }, variance };
        Track { points: of_both.map(point).collect() }
    }

    /// Each window's values, ascending, less a first guess.
    fn sorted(&self, points: &[Point], around: Option<&Track>) -> Vec<Vec<f64>> {
        let mut windows = vec![Vec::new(); self.count];
        for p in points {
            let number = ((p.x - self.begin) / self.length) as usize;
            let value = p.y - around.map_or(0.0, |track| track.at(p.x).0);
            windows[number.min(self.count - 1)].push(value);
        }
        for window in &mut windows {
            window.sort_by(f64::total_cmp);
        }
        windows
    }

    /// A guess from a share of the messages, and its mean square error as far as it shows.
    fn guess(
        &self,
        windows: &[Vec<Vec<f64>>; 2],
        around: Option<&Track>,
        share: f64,
        rate_sd: f64,
    ) -> Option<Guess> {
        let [forward, back] = windows;
        let mut known = Vec::new();
        // By what the quickest messages say something else than the quickest one.
        let (mut skew, mut of_quick) = (0.0, 0.0);
        for (number, (up, low)) in forward.iter().zip(back).enumerate() {
            let (Some(&least), Some(&most)) = (up.first(), low.last()) else { continue };
            let legs = |share: f64| {
                let (up, low) = (quickest(up.iter(), share), quickest(low.iter().rev(), share));
                Legs { half_difference: 0.5 * (up + low), sum: up - low }
            };
            let mut chosen = legs(share);
            skew += chosen.half_difference - 0.5 * (least + most);
            of_quick += legs(QUICK).half_difference - 0.5 * (least + most);
            chosen.half_difference += around.map_or(0.0, |track| track.at(self.centre(number)).0);
            known.push((number, chosen));
        }
        if known.is_empty() {
            return None;
        }
        let mut legs: Vec<Legs> = known.iter().map(|k| k.1).collect();
        let regimes = path::regimes(&legs);
        let of_window = |i: usize| &regimes[regimes.partition_point(|r| r.begin <= i) - 1];
        let sum_noise = path::noise(legs.iter().map(|l| l.sum));
        // The direction that is held up more is known by what it does to the offset.
        let tilt = path::tilt(&legs).unwrap_or(0.0);
        let excess: Vec<f64> =
            legs.iter().enumerate().map(|(i, legs)| legs.sum - of_window(i).sum).collect();
        for (legs, excess) in legs.iter_mut().zip(&excess) {
            legs.half_difference -= tilt * excess;
        }
        let usual = path::median(excess.clone()).unwrap_or(0.0);
        let halves: Vec<f64> = legs.iter().map(|w| w.half_difference).collect();
        let noise = noise_of(&halves);
        let mut measurements = vec![None; self.count];
        let mut path_variance = vec![0.0; self.count];
        for (i, (number, _)) in known.iter().enumerate() {
            // By what a window's round trip is longer its half difference may be off by half.
            let held_up = 0.5 * (excess[i] - usual - 2.0 * sum_noise).max(0.0);
            measurements[*number] = Some(Measurement {
                offset: legs[i].half_difference - of_window(i).bias,
                own: 1.0 + held_up * held_up / noise,
            });
        }
        for (i, Regime { begin, variance, .. }) in regimes.iter().enumerate() {
            let end = regimes.get(i + 1).map_or(self.count, |next| known[next.begin].0);
            let begin = if i == 0 { 0 } else { known[*begin].0 };
            path_variance[begin..end].fill(*variance);
        }
        let smoothed = smooth(&measurements, self.length / self.per_second, rate_sd, noise);
        let count = known.len() as f64;
        let (skew, of_quick) = ((skew / count).powi(2), of_quick / count);
        let error = smoothed.variances.iter().sum::<f64>() / self.count as f64 + skew;
        let mut track = self.track(&smoothed);
        for (point, of_path) in track.points.iter_mut().zip(path_variance) {
            point.variance += of_path;
        }
        let begin = |r: &Regime| self.centre(known[r.begin].0) - 0.5 * self.length;
        let least = regimes.iter().map(|r| r.sum).fold(f64::INFINITY, f64::min);
        let paths = regimes.iter().map(|r| (begin(r), r.variance == 0.0)).collect();
        Some(Guess { track, seen: Seen { noise, tilt }, error, least, skew: of_quick, paths })
    }
}

/// Variance of the offset, ns², as the ways may differ unseen: of the least round trip, and of by
/// what quick messages say something else than the quickest.
pub(crate) fn unseen(least: f64, skew: f64) -> f64 {
    // The quickest are four times as near to the path's own.
    (0.5 * UNSEEN * least.max(0.0)).powi(2) + skew * skew / 16.0
}

/// Variance of one value: second differences hold no rate, and six times the variance of one.
fn noise_of(values: &[f64]) -> f64 {
    let differences = values.windows(2).map(|w| w[1] - w[0]);
    (path::spread(differences).powi(2) / 6.0).max(1.0)
}

/// The largest width, ns, of a message that may speak for others; of what all are.
pub(crate) fn widest(widths: Vec<f64>) -> Option<f64> {
    path::median(widths).map(|usual| usual * WIDTHS + FLOOR_NS)
}

/// The mean of the first values: a share of them, one at least.
pub(crate) fn quickest<'a>(values: impl ExactSizeIterator<Item = &'a f64>, share: f64) -> f64 {
    let taken = ((values.len() as f64 * share) as usize).max(1);
    values.take(taken).sum::<f64>() / taken as f64
}
