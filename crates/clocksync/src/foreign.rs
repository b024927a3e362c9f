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
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HZ: u64 = 2_600_000_000;
    /// Some clock's epoch.
    const EPOCH: i64 = 1_780_000_000_000_000_000;

    fn hz() -> Frequency {
        Frequency::from_hz(HZ).unwrap()
    }

    fn ticks(seconds: f64) -> u64 {
        1_000_000_000_000u64.saturating_add_signed((seconds * HZ as f64) as i64)
    }

    /// A clock that runs at one rate, then at another, and is set once.
    #[derive(Clone, Copy, Debug)]
    struct Clock {
        ppm: f64,
        bend_s: f64,
        then_ppm: f64,
        step_s: f64,
        step_ns: i64,
    }

    impl Clock {
        fn steady(ppm: f64) -> Clock {
            Clock { ppm, bend_s: 1e9, then_ppm: ppm, step_s: 1e9, step_ns: 0 }
        }

        fn ns(&self, seconds: f64) -> f64 {
            let bent = (seconds - self.bend_s).max(0.0);
            let gained = (seconds - bent) * self.ppm * 1e3 + bent * self.then_ppm * 1e3;
            let set = if seconds >= self.step_s { self.step_ns as f64 } else { 0.0 };
            seconds * 1e9 + gained + set
        }

        /// Read ten times a second, each time within `bracket` ticks.
        fn anchors(&self, clock: ForeignClock, bracket: u64, later_s: f64) -> Vec<Anchor> {
            let read = |i: u64| {
                let at = i as f64 * 0.1 + later_s + (i % 7) as f64 * 1e-3;
                let lo = Counter(ticks(at) - bracket * (i % 3) / 2);
                let at_span = Span { lo, hi: Counter(lo.0 + bracket) };
                let epoch = if clock == ForeignClock::Monotonic { 0 } else { EPOCH };
                Anchor { clock, ns: epoch + self.ns(at).floor() as i64, at: at_span }
            };
            (0..100).map(read).collect()
        }

        fn map(&self, bracket: u64) -> ForeignMap {
            let real = self.anchors(ForeignClock::Realtime, bracket, 0.0);
            let unset = Clock { step_ns: 0, ..*self };
            let beside = unset.anchors(ForeignClock::Monotonic, bracket, 1e-6);
            ForeignMap::fit(&real, &beside, hz(), Steering::Monotone)
        }
    }

    proptest! {
        /// The clock's true time is inside the maximum error, both ways, whatever its rate and how
        /// it changes; a steady clock is known to a fraction of a microsecond.
        #[test]
        fn the_truth_is_inside_both_ways(
            ppm in -400.0..400.0f64, then_ppm in -400.0..400.0f64, bend_s in 0.0..10.0f64,
            bracket in 0u64..300, at in prop::collection::vec(-0.5..10.5f64, 50), bends: bool,
        ) {
            let steady = Clock::steady(ppm);
            let clock = if bends { Clock { bend_s, then_ppm, ..steady } } else { steady };
            let map = clock.map(bracket);
            prop_assert_eq!(map.steps(), &[]);
            for at in at {
                let truth = clock.ns(at);
                let (ns, bound) = map.to_foreign(Counter(ticks(at))).unwrap();
                let error = (ns - EPOCH) as f64 - truth;
                prop_assert!(error.abs() <= bound.ns() as f64 + 1.0, "{error} {bound} at {at}");
                let whole = truth.floor();
                let shown = EPOCH + whole as i64;
                prop_assert!(map.guess(shown).is_some());
                match map.instant(shown, shown) {
                    Some(Span { lo, hi }) => {
                        let at = ticks(at);
                        prop_assert!(lo.0 <= at && at <= hi.0 + 2, "{lo:?} {hi:?} {at}");
                    }
                    // No readings surround it.
                    None => prop_assert!(!(0.01..=9.9).contains(&at), "nothing of {at}"),
                }
                if !bends && (0.2..9.7).contains(&at) {
                    let widest = 4 * bracket * 1_000_000_000 / HZ + 30;
                    prop_assert!(bound.ns() <= widest, "{bound} for {widest}");
                }
            }
        }

        /// A step is found in the gap in which it happened, with its size, and nothing is said
        /// within it; small ones by the neighbouring clock.
        #[test]
        fn a_step_is_found_timed_and_sized(
            ppm in -400.0..400.0f64, step_s in 0.3..9.5f64, back: bool,
            step_ns in prop_oneof![400i64..50_000, Just(22_000_000), 1_000_000i64..1 << 40],
        ) {
            let step_ns = if back { -step_ns } else { step_ns };
            let clock = Clock { step_s, step_ns, ..Clock::steady(ppm) };
            let map = clock.map(100);
            prop_assert_eq!(map.steps().len(), 1);
            let Step { within, ns } = map.steps()[0];
            let (lo, hi) = (within.lo.0, within.hi.0);
            prop_assert!(lo <= ticks(step_s) && ticks(step_s) <= hi, "{within:?}");
            prop_assert!(hi - lo < ticks(0.12) - ticks(0.0));
            prop_assert!(ns.0 <= step_ns && step_ns <= ns.1, "{ns:?} for {step_ns}");
            prop_assert!(ns.1 - ns.0 < 400, "{ns:?}");
            prop_assert_eq!(map.to_foreign(Counter(ticks(step_s))), None);
            for at in [step_s - 0.15, step_s + 0.15] {
                let (ns, bound) = map.to_foreign(Counter(ticks(at))).unwrap();
                let error = (ns - EPOCH) as f64 - clock.ns(at);
                prop_assert!(error.abs() <= bound.ns() as f64 + 1.0, "{error} {bound}");
            }
        }
    }

    proptest! {
        /// A stamp is at the instant at which it was made, or nothing is said of it: of a clock
        /// that was set to show some times twice, and of stamps of any grain.
        #[test]
        fn a_stamp_is_placed_where_it_was_made(
            ppm in -400.0..400.0f64, step_s in 0.3..9.5f64, back: bool, grain in 1i64..2_000,
            step_ns in prop_oneof![400i64..50_000, Just(22_000_000), 1_000_000i64..1 << 40],
            at in prop::collection::vec(-0.5..10.5f64, 50),
        ) {
            let step_ns = if back { -step_ns } else { step_ns };
            let clock = Clock { step_s, step_ns, ..Clock::steady(ppm) };
            let map = clock.map(100);
            let anchors = clock.anchors(ForeignClock::Realtime, 100, 0.0);
            let (first, last) = (anchors[0].ns, anchors[anchors.len() - 1].ns);
            let near = |at: f64| step_s - 0.25 < at && at < step_s + 0.25;
            let mut known = 0;
            let around = [-0.15, -0.05, -1e-4, 1e-4, 0.05, 0.15].map(|since| step_s + since);
            for at in at.into_iter().chain(around) {
                let shown = EPOCH + clock.ns(at).floor() as i64;
                let from = shown - shown.rem_euclid(grain);
                let Some(span) = map.instant(from, from + grain - 1) else {
                    let usual = from > first && from + grain < last && !near(at);
                    prop_assert!(!usual || step_ns < -1_000_000, "nothing of {at}");
                    continue;
                };
                known += 1;
                // Floats are good for a quarter of a nanosecond here.
                prop_assert!(span.lo.0 <= ticks(at) + 2 && ticks(at) <= span.hi.0 + 2, "{span:?} {at}");
                let widest = ((grain as f64 + 200.0) * 2.7) as i64;
                prop_assert!(span.width() < widest, "{} at {at}", span.width());
            }
            prop_assert!(known > 0 || step_ns < -1_000_000_000);
        }
    }

    /// A clock without a neighbour, and one that is steered in unknown ways.
    #[test]
    fn alone_it_is_bounded_by_its_rate() {
        let clock = Clock { step_s: 5.0, step_ns: 22_000_000, ..Clock::steady(100.0) };
        let anchors = clock.anchors(ForeignClock::Phc(0), 100, 0.0);
        let map = ForeignMap::fit(&anchors, &[], hz(), Steering::Any);
        let ns = map.steps()[0].ns;
        assert!(ns.0 <= 22_000_000 && 22_000_000 <= ns.1 && ns.1 - ns.0 < 110_000, "{ns:?}");
        let (_, bound) = map.to_foreign(Counter(ticks(2.0))).unwrap();
        assert!(bound.ns() < 51_000, "{bound}");
        assert!(ForeignMap::fit(&[], &[], hz(), Steering::Any).to_foreign(Counter(1)).is_none());
    }
}
