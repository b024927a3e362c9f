//! Between the counter and a clock that is not loopscope's, by readings of it during the run.
//!
//! Assumptions, for each clock: it runs within ±[`SLEW_PPM`] of the counter's nominal frequency
//! where it is not set; and, with [`Steering::Monotone`], its rate changes in one direction only
//! within any three neighbouring gaps between readings. A curve that bends one way lies between the
//! straight line through two readings and the lines that go on through their neighbours; without
//! the second assumption only the first bounds it. Where a clock was set, or slewed faster than
//! that, there is a [`Step`], and nothing is said across it.

use loopscope_time::{Bound, Counter, Frequency};

use crate::Span;
use crate::anchor::{Anchor, ForeignClock};
use crate::stamp::{DITHER, SLEW_PPM, Steering};

const SLEW: f64 = SLEW_PPM as f64 * 1e-6;

/// How far apart readings of two clocks may be to be compared.
const BESIDE_NS: f64 = 1_000_000.0;

/// A clock was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Within this time.
    pub within: Span,
    /// By how many nanoseconds forward: at least, at most.
    pub ns: (i64, i64),
}

/// A clock's time over the counter.
#[derive(Clone, Debug, Default)]
pub struct ForeignMap {
    segments: Vec<Segment>,
    steps: Vec<Step>,
}

/// Between two steps.
#[derive(Clone, Debug)]
struct Segment {
    /// Its first reading, from which all is counted.
    origin: Anchor,
    /// Its last one.
    end: Anchor,
    /// Nominal nanoseconds of a tick.
    per_tick: f64,
    /// Nanoseconds over ticks.
    clock: Curve,
    /// Ticks over nanoseconds.
    counter: Curve,
}

impl ForeignMap {
    /// The map of `clock` from a host's readings of all its clocks, in the order of time.
    pub fn of(clock: ForeignClock, anchors: &[Anchor], frequency: Frequency) -> ForeignMap {
        let only = |clock| -> Vec<Anchor> {
            anchors.iter().filter(|a| a.clock == clock).copied().collect()
        };
        let (beside, steering) = match clock {
            ForeignClock::Realtime => (only(ForeignClock::Monotonic), Steering::Monotone),
            ForeignClock::Monotonic => (Vec::new(), Steering::Monotone),
            // What steers it, and how often, is not known.
            ForeignClock::Phc(_) => (Vec::new(), Steering::Any),
        };
        ForeignMap::fit(&only(clock), &beside, frequency, steering)
    }

    /// The map of one clock from its readings, in the order of time. `beside`: those of a clock
    /// that is slewed alike but never set, where there is one (`CLOCK_MONOTONIC` for
    /// `CLOCK_REALTIME`): with it steps are found that are as small as readings are exact, without
    /// it from some 50 µs on.
    pub fn fit(
        anchors: &[Anchor],
        beside: &[Anchor],
        frequency: Frequency,
        steering: Steering,
    ) -> ForeignMap {
        let mut map = ForeignMap::default();
        let mut begin = 0;
        let mut setting = None;
        // Epochs are decades apart, steps are nanoseconds.
        let usual = match (anchors, beside) {
            ([first, ..], [other, ..]) => first.ns - other.ns,
            _ => 0,
        };
        for (i, anchor) in anchors.iter().enumerate() {
            let here = distance(anchor, beside, frequency, usual);
            let common = intersection(setting, here);
            let last = i.checked_sub(1).map(|last| anchors[last]);
            let step = last.and_then(|last| {
                let moved = passed(&last, anchor, frequency);
                let by_rate = moved.0 > 0.0 || moved.1 < 0.0;
                let by_setting = common.is_some_and(|(lo, hi)| lo > hi);
                let size = match (setting, here) {
                    (Some(was), Some(is)) if by_setting => (is.0 - was.1, is.1 - was.0),
                    _ => moved,
                };
                let within = Span { lo: last.at.lo, hi: anchor.at.hi };
                let ns = (size.0.floor() as i64, size.1.ceil() as i64);
                (by_rate || by_setting).then_some(Step { within, ns })
            });
            if let Some(step) = step {
                map.segments.push(Segment::of(&anchors[begin..i], frequency, steering));
                map.steps.push(step);
                begin = i;
                setting = here;
            } else {
                setting = common;
            }
        }
        if begin < anchors.len() {
            map.segments.push(Segment::of(&anchors[begin..], frequency, steering));
        }
        map
    }

    /// When and by how much the clock was set.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The clock's time at `counter`, and its hard maximum error; `None` without any reading, and
    /// where the clock was set and it is not known whether before or after.
    pub fn to_foreign(&self, counter: Counter) -> Option<(i64, Bound)> {
        let between = |step: &Step| step.within.lo < counter && counter < step.within.hi;
        if self.steps.iter().any(between) {
            return None;
        }
        let after = self.segments.partition_point(|s| s.origin.at.lo <= counter);
        let segment = self.segments.get(after.saturating_sub(1))?;
        let x = counter.ticks_since(segment.origin.at.lo) as f64;
        let (lo, hi) = segment.clock.at(x);
        let middle = (0.5 * (lo + hi)).round();
        let bound = Bound::of_rounded((hi - middle).max(middle - lo));
        Some((segment.origin.ns + middle as i64, bound))
    }

    /// What the clock showed during `at`, at least and at most; `None` without any reading, and
    /// where it may have been set meanwhile.
    pub fn during(&self, at: Span) -> Option<(i64, i64)> {
        let meanwhile = |step: &Step| step.within.lo < at.hi && at.lo < step.within.hi;
        if self.steps.iter().any(meanwhile) {
            return None;
        }
        let ((least, below), (most, above)) = (self.to_foreign(at.lo)?, self.to_foreign(at.hi)?);
        let end = |bound: Bound| bound.ns().cast_signed();
        Some((least - end(below), most + end(above)))
    }

    /// Where the counter was when the clock showed something from `from` to `until`, both cut to
    /// whole nanoseconds. None where that is not sure: beyond the first reading and the last, and
    /// where the clock, which was set between two readings, may have shown it at another instant.
    /// Before the first and after the last it is taken to have gone on.
    pub fn instant(&self, from: i64, until: i64) -> Option<Span> {
        let beyond = |first: &Segment, last: &Segment| from < first.first() || until > last.last();
        if self.segments.first().zip(self.segments.last()).is_none_or(|(a, b)| beyond(a, b)) {
            return None;
        }
        let mut inside = self.segments.iter().filter(|s| s.first() <= from && until <= s.last());
        let segment = inside.next().filter(|_| inside.next().is_none())?;
        let hidden = |pair: &[Segment]| {
            let [before, after] = pair else { return false };
            let most = before.longest_until(after);
            // Set at the end of the gap, or at its begin.
            let late = (before.last() + 1, before.last().saturating_add(most));
            let early = (after.first().saturating_sub(most), after.first() - 1);
            [late, early].iter().any(|(lo, hi)| *lo <= until && from <= *hi)
        };
        if self.segments.windows(2).any(hidden) {
            return None;
        }
        let at = |ns: i64| segment.counter.at((ns - segment.origin.ns) as f64);
        segment.span(at(from).0, at(until + 1).1)
    }

    /// Where the counter may have been when the clock showed `ns`, if that is not sure: by the
    /// readings that are closest. None without any.
    pub fn guess(&self, ns: i64) -> Option<Counter> {
        let away =
            |s: &Segment| s.first().saturating_sub(ns).max(ns.saturating_sub(s.last())).max(0);
        let (i, segment) =
            self.segments.iter().enumerate().min_by_key(|(_, segment)| away(segment))?;
        let (lo, hi) = segment.counter.at(ns.saturating_sub(segment.origin.ns) as f64);
        // Years away, and far from where sums of counters overflow.
        let ticks = (0.5 * (lo + hi)).round().clamp(-1e18, 1e18) as i64;
        let counter = Counter(segment.origin.at.lo.0.saturating_add_signed(ticks));
        // Between two readings it was set: not beyond them.
        let before = i.checked_sub(1).map_or(Counter(0), |before| self.segments[before].end.at.hi);
        let after = self.segments.get(i + 1).map_or(Counter(u64::MAX), |after| after.origin.at.lo);
        Some(counter.max(before).min(after))
    }
}

impl Segment {
    /// The map from one reading or more.
    fn of(anchors: &[Anchor], frequency: Frequency, steering: Steering) -> Segment {
        let origin = anchors[0];
        let per_tick = frequency.ns_per_tick();
        let ticks = |counter: Counter| counter.ticks_since(origin.at.lo) as f64;
        let (mut clock, mut counter) = (Vec::new(), Vec::new());
        for anchor in anchors {
            let (lo, hi) = (ticks(anchor.at.lo), ticks(anchor.at.hi));
            let half = 0.5 * (hi - lo);
            // It was cut to whole nanoseconds: its time was half of one later, give or take.
            let ns = (anchor.ns - origin.ns) as f64 + 0.5;
            let reach = half * per_tick * (1.0 + SLEW) + 0.5;
            clock.push(Point { x: lo + half, lo: ns - reach, hi: ns + reach });
            let cut = 0.5 / per_tick / (1.0 - SLEW);
            counter.push(Point { x: ns, lo: lo - cut, hi: hi + cut });
        }
        let curve = |points, slope: f64| Curve {
            points,
            least: slope / (1.0 + SLEW),
            most: slope / (1.0 - SLEW),
            steering,
        };
        let last = anchors[anchors.len() - 1];
        let (clock, counter) = (curve(clock, per_tick), curve(counter, 1.0 / per_tick));
        Segment { origin, end: last, per_tick, clock, counter }
    }

    /// What the clock showed at its first reading.
    fn first(&self) -> i64 {
        self.origin.ns
    }

    /// And at the last one.
    fn last(&self) -> i64 {
        self.end.ns
    }

    /// The most that the clock can go on by between this one's last reading and the first of
    /// `next`.
    fn longest_until(&self, next: &Segment) -> i64 {
        let ticks = next.origin.at.hi.ticks_since(self.end.at.lo) as f64;
        (ticks * self.per_tick / (1.0 - SLEW)).ceil() as i64 + 1
    }

    /// Ticks since the origin, as counters.
    fn span(&self, lo: f64, hi: f64) -> Option<Span> {
        let counter =
            |ticks: f64| self.origin.at.lo.0.checked_add_signed(ticks as i64).map(Counter);
        Some(Span { lo: counter(lo.floor())?, hi: counter(hi.ceil())? })
    }
}

#[derive(Clone, Copy, Debug)]
struct Point {
    x: f64,
    lo: f64,
    hi: f64,
}

impl Point {
    /// What the straight line from `self` through `next` can be at `x`, beyond `next`.
    fn onward(self, next: Point, x: f64) -> (f64, f64) {
        let ahead = (x - next.x) / (next.x - self.x);
        (next.lo + ahead * (next.lo - self.hi), next.hi + ahead * (next.hi - self.lo))
    }
}

/// A rising curve, known at points and in its slope.
#[derive(Clone, Debug)]
struct Curve {
    points: Vec<Point>,
    least: f64,
    most: f64,
    steering: Steering,
}

impl Curve {
    /// Where it may be at `x`.
    fn at(&self, x: f64) -> (f64, f64) {
        let next = self.points.partition_point(|p| p.x < x);
        let get = |i: Option<usize>| i.and_then(|i| self.points.get(i)).copied();
        let (a, b) = (get(next.checked_sub(1)), get(Some(next)));
        let (mut lo, mut hi) = (f64::NEG_INFINITY, f64::INFINITY);
        if let Some(a) = a {
            lo = lo.max(a.lo + (x - a.x) * self.least);
            hi = hi.min(a.hi + (x - a.x) * self.most);
        }
        if let Some(b) = b {
            lo = lo.max(b.lo - (b.x - x) * self.most);
            hi = hi.min(b.hi - (b.x - x) * self.least);
        }
        if let (Some(a), Some(b), Steering::Monotone) = (a, b, self.steering) {
            let share = (x - a.x) / (b.x - a.x);
            let straight = (a.lo + share * (b.lo - a.lo), a.hi + share * (b.hi - a.hi));
            let before = get(next.checked_sub(2)).map(|z| z.onward(a, x));
            let after = get(Some(next + 1)).map(|y| y.onward(b, x));
            let beyond = before.into_iter().chain(after);
            // Below the straight line both of the others bound it from below, or else from above.
            let outer = beyond.reduce(|p, q| (p.0.max(q.0), p.1.min(q.1)));
            if let Some((above, below)) = outer {
                let slack = DITHER * self.most * (x - a.x).min(b.x - x);
                lo = lo.max(straight.0.min(above) - slack);
                hi = hi.min(straight.1.max(below) + slack);
            }
        }
        (lo, hi)
    }
}

/// By how much a clock went further between two readings than any allowed rate takes it: at least
/// and at most, of either sign where it need not have.
fn passed(a: &Anchor, b: &Anchor, frequency: Frequency) -> (f64, f64) {
    let ns = |ticks: i64| ticks as f64 * frequency.ns_per_tick();
    let passed = (b.ns - a.ns) as f64;
    let (least, most) = (ns(b.at.lo.ticks_since(a.at.hi)), ns(b.at.hi.ticks_since(a.at.lo)));
    (passed - 1.0 - most * (1.0 + SLEW), passed + 1.0 - least.max(0.0) * (1.0 - SLEW))
}

/// How much further than `usual` a clock is ahead of its neighbour.
fn distance(
    anchor: &Anchor,
    beside: &[Anchor],
    frequency: Frequency,
    usual: i64,
) -> Option<(f64, f64)> {
    let next = beside.partition_point(|b| b.at.lo < anchor.at.lo);
    let around = [next.checked_sub(1), Some(next)].into_iter().flatten();
    let gap = |b: &Anchor| b.at.lo.ticks_since(anchor.at.lo) as f64 * frequency.ns_per_tick();
    let nearest = around
        .filter_map(|i| beside.get(i))
        .min_by(|a, b| gap(a).abs().total_cmp(&gap(b).abs()))?;
    let since = gap(nearest);
    if since.abs() > BESIDE_NS {
        return None;
    }
    let widths = (anchor.at.width() + nearest.at.width()) as f64 * frequency.ns_per_tick();
    let error = widths + since.abs() * SLEW + 2.0;
    let ahead = (anchor.ns - nearest.ns - usual) as f64 + since;
    Some((ahead - error, ahead + error))
}

/// What two ranges have in common (empty: the first end above the second), as far as they are
/// known.
fn intersection(a: Option<(f64, f64)>, b: Option<(f64, f64)>) -> Option<(f64, f64)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.max(b.0), a.1.min(b.1))),
        (known, None) | (None, known) => known,
    }
}

#[cfg(test)]
mod tests;
