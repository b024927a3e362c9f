//! When the path between two hosts changed, told from the clock.
//!
//! The least delays of both directions add up to the least round trip, in which no clock takes
//! part: where that moves for good, a path changed, and whatever seems to move with the clock at
//! that moment is the path's. A clock has nothing to jump with.

/// Windows on either side that must agree on a change.
pub(crate) const SIDE: usize = 8;
/// Windows on either side that a change's effect on the offset is taken from.
const FIT: usize = 16;
/// Windows that can tell which direction is held up.
const TILTED: usize = 16;
/// How many times its noise a round trip must move.
const BEYOND: f64 = 8.0;
/// And by how many nanoseconds: half of that is the most that a missed change can do.
const LEAST_NS: f64 = 300.0;

/// A window's half of the difference and the sum of the legs' least delays, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Legs {
    /// Estimate of the offset.
    pub(crate) half_difference: f64,
    /// The least round trip.
    pub(crate) sum: f64,
}

/// Windows between two changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Regime {
    /// Number of its first window.
    pub(crate) begin: usize,
    /// Its least round trip: that of its quickest windows.
    pub(crate) sum: f64,
    /// What its path adds to the half difference, against that of the quickest regime.
    pub(crate) bias: f64,
    /// How well that is known, ns².
    pub(crate) variance: f64,
}

/// Noise of one window's round trip, from the differences between neighbours; a few large ones do
/// not count.
pub(crate) fn noise(sums: impl Iterator<Item = f64> + Clone) -> f64 {
    spread(sums) * std::f64::consts::FRAC_1_SQRT_2
}

/// Standard deviation of the differences between neighbours.
pub(crate) fn spread(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let differences = values.clone().zip(values.skip(1)).map(|(a, b)| (a - b).abs());
    1.4826 * median(differences.collect()).unwrap_or(0.0)
}

pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// A value that one in twenty is below.
pub(crate) fn low(mut values: Vec<f64>) -> f64 {
    let place = values.len() / 20;
    values.sort_by(f64::total_cmp);
    values.get(place).copied().unwrap_or(f64::INFINITY)
}

/// What a longer round trip adds to the half difference, for each nanosecond: one half where it is
/// always the way forward that is longer, minus one half where it is always the way back. From
/// neighbours, between which the clock has no time to move. `None` if there are too few to tell.
pub(crate) fn tilt(windows: &[Legs]) -> Option<f64> {
    if windows.len() < TILTED {
        return None;
    }
    let pairs = || {
        windows
            .windows(2)
            .map(|w| (w[1].sum - w[0].sum, w[1].half_difference - w[0].half_difference))
    };
    let usual = median(pairs().map(|(sum, _)| sum.abs()).collect()).unwrap_or(0.0);
    let near = || pairs().filter(|(sum, _)| sum.abs() <= 3.0 * usual);
    let square: f64 = near().map(|(sum, _)| sum * sum).sum();
    let product: f64 = near().map(|(sum, half)| sum * half).sum();
    (square > 0.0).then(|| (product / square).clamp(-0.5, 0.5))
}

/// By how much a round trip must move to be another path's.
pub(crate) fn threshold(noise: f64) -> f64 {
    (BEYOND * noise).max(LEAST_NS)
}

/// Since which window all are of one path, by their round trips; `None` while fewer than [`SIDE`]
/// are known to be. `threshold` says by how much a round trip of some noise must move.
///
/// Load may have held up the last windows of the path before, and the window in which the path
/// changed has messages of both: none of them may count as the least of the new path. So a window
/// that is quicker than all that follow it, by more than their noise, was before it, and so was one
/// that is slower than the least by as much and precedes all that are not.
pub(crate) fn last_begin(sums: &[f64], threshold: impl Fn(f64) -> f64) -> Option<usize> {
    let mut begin = 0;
    loop {
        let rest = sums.get(begin..).filter(|rest| rest.len() >= SIDE)?;
        let limit = threshold(noise(rest.iter().copied()));
        let mut least = rest[rest.len() - 1];
        let quicker = rest.iter().rposition(|&sum| {
            let jumps = least - sum > limit;
            least = least.min(sum);
            jumps
        });
        let usual = low(rest.to_vec());
        let slower = rest.iter().position(|sum| sum - usual <= limit).unwrap_or(0);
        match quicker.map_or(slower, |last| last + 1) {
            0 => return Some(begin),
            others => begin += others,
        }
    }
}

/// The regimes of windows that are one after the other.
pub(crate) fn regimes(windows: &[Legs]) -> Vec<Regime> {
    let level = |range: std::ops::Range<usize>| {
        median(windows[range].iter().map(|w| w.sum).collect()).unwrap_or(0.0)
    };
    let threshold = threshold(noise(windows.iter().map(|w| w.sum)));
    let mut begins = vec![0];
    let mut best: Option<(f64, usize)> = None;
    for at in SIDE..windows.len().saturating_sub(SIDE) {
        let step = (level(at..at + SIDE) - level(at - SIDE..at)).abs();
        if step > threshold && best.is_none_or(|(b, _)| step > b) {
            best = Some((step, at));
        }
        if let Some((_, change)) = best
            && (at >= change + SIDE || at + SIDE + 1 >= windows.len())
        {
            begins.push(change);
            best = None;
        }
    }
    if let Some((_, change)) = best {
        begins.push(change);
    }
    for begin in &mut begins[1..] {
        *begin = exactly(windows, *begin);
    }
    begins.dedup();
    // Load delays many messages for long; a path delays all of them.
    let quickest = |begins: &[usize], i: usize| {
        let end = begins.get(i + 1).copied().unwrap_or(windows.len());
        low(windows[begins[i]..end].iter().map(|w| w.sum).collect())
    };
    let mut i = 1;
    while i < begins.len() {
        if (quickest(&begins, i) - quickest(&begins, i - 1)).abs() > threshold {
            i += 1;
        } else {
            begins.remove(i);
            i = i.saturating_sub(1).max(1);
        }
    }
    let ends = begins.iter().skip(1).copied().chain([windows.len()]);
    let mut regimes: Vec<Regime> = begins
        .iter()
        .zip(ends)
        .map(|(&begin, end)| {
            let sum = low(windows[begin..end].iter().map(|w| w.sum).collect());
            Regime { begin, sum, bias: 0.0, variance: 0.0 }
        })
        .collect();
    let jumps: Vec<(f64, f64)> =
        regimes.iter().skip(1).map(|regime| jump(windows, &regimes, regime.begin)).collect();
    // Regimes that are as quick as the quickest one are its path; a path between two of them is
    // known from both.
    let least = regimes.iter().map(|r| r.sum).fold(f64::INFINITY, f64::min);
    let own = |regime: &Regime| regime.sum <= least + threshold;
    let count = regimes.len();
    let mut onwards: Vec<Option<(f64, f64)>> = vec![None; count];
    let mut back = onwards.clone();
    for i in 0..count {
        let last = i.checked_sub(1).and_then(|last| Some((onwards[last]?, jumps[last])));
        let jumped = last.map(|(bias, jump)| (bias.0 + jump.0, bias.1 + jump.1));
        onwards[i] = if own(&regimes[i]) { Some((0.0, 0.0)) } else { jumped };
    }
    for i in (0..count).rev() {
        let next = back.get(i + 1).copied().flatten().map(|next| (next, jumps[i]));
        let jumped = next.map(|(bias, jump)| (bias.0 - jump.0, bias.1 + jump.1));
        back[i] = if own(&regimes[i]) { Some((0.0, 0.0)) } else { jumped };
    }
    for (regime, sides) in regimes.iter_mut().zip(onwards.into_iter().zip(back)) {
        (regime.bias, regime.variance) = match sides {
            (Some(a), Some(b)) => (0.5 * (a.0 + b.0), 0.25 * (a.1 + b.1)),
            (one, other) => one.or(other).unwrap_or_default(),
        };
    }
    regimes
}

/// Where around `at` the round trip moved: where levels on both sides fit best.
fn exactly(windows: &[Legs], at: usize) -> usize {
    let (begin, end) = (at - SIDE, at + SIDE);
    let level = |range: std::ops::Range<usize>| {
        median(windows[range].iter().map(|w| w.sum).collect()).unwrap_or(0.0)
    };
    let misfit = |&split: &usize| {
        let (left, right) = (level(begin..split), level(split..end));
        let of = |range: std::ops::Range<usize>, level: f64| -> f64 {
            windows[range].iter().map(|w| (w.sum - level).abs()).sum()
        };
        of(begin..split, left) + of(split..end, right)
    };
    (begin + 1..end).min_by(|a, b| misfit(a).total_cmp(&misfit(b))).unwrap_or(at)
}

/// By how much the half difference jumps at `at`, and the variance of that: two levels of one slope
/// through the windows on both sides, of their own regimes.
fn jump(windows: &[Legs], regimes: &[Regime], at: usize) -> (f64, f64) {
    let here = regimes.partition_point(|r| r.begin <= at) - 1;
    let end = regimes.get(here + 1).map_or(windows.len(), |r| r.begin).min(at + FIT);
    let begin = regimes[here - 1].begin.max(at.saturating_sub(FIT));
    let side = |from: usize, to: usize, regime: &Regime| -> Vec<(f64, f64)> {
        // The quicker half: what was held up says little.
        let limit = median(windows[from..to].iter().map(|w| w.sum).collect()).unwrap_or(regime.sum);
        let taken = (from..to).filter(|&i| windows[i].sum <= limit);
        let taken: Vec<usize> = taken.collect();
        let all = if taken.len() < 2 { (from..to).collect() } else { taken };
        all.into_iter().map(|i| (i as f64, windows[i].half_difference)).collect()
    };
    let (left, right) = (side(begin, at, &regimes[here - 1]), side(at, end, &regimes[here]));
    // Medians: a window of the other path among them would pull a mean.
    let slopes = [&left, &right].into_iter().flat_map(|points| {
        let half = points.len() / 2;
        (0..points.len() - half).filter(move |_| half > 0).map(move |i| {
            let ((ax, ay), (bx, by)) = (points[i], points[i + half]);
            (by - ay) / (bx - ax)
        })
    });
    let slope = median(slopes.collect()).unwrap_or(0.0);
    let level = |points: &[(f64, f64)]| {
        let rest: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
        let middle = median(rest.clone()).unwrap_or(0.0);
        let spread = median(rest.iter().map(|y| (y - middle).abs()).collect()).unwrap_or(0.0);
        // A median's variance is half as much again as a mean's, and the slope is not exact.
        (middle, 3.0 * (1.4826 * spread).powi(2) / points.len() as f64)
    };
    let ((left, left_variance), (right, right_variance)) = (level(&left), level(&right));
    (right - left, left_variance + right_variance)
}
