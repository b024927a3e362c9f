//! The map from one host's counter to global time.

use std::fmt;
use std::ops::{Range, RangeInclusive};

use crate::{Bound, Counter, Frequency, GlobalNs};

/// One point of a [`ClockMap`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Knot {
    /// Reading of the host's counter.
    pub counter: Counter,
    /// Global time there, in nanoseconds after the map's origin.
    pub offset_ns: f64,
    /// Hard maximum error there, in nanoseconds.
    pub err_ns: f64,
    /// Error bound there that holds with the probability which the map's maker claims, in
    /// nanoseconds; no more than the hard one.
    pub calibrated_ns: f64,
}

/// A stretch of a host's counter in which nothing disturbed it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Epoch {
    /// Counts disturbances from the begin of the run on.
    pub number: u32,
    /// Surely within the epoch.
    pub from: Counter,
    /// Surely within the epoch.
    pub until: Counter,
    /// At least one, with rising counters and global times.
    pub knots: Vec<Knot>,
    /// The host's mean rate in it, in global nanoseconds per tick.
    pub ns_per_tick: f64,
    /// Bounds the difference between the host's rate and that mean at any moment, in nanoseconds
    /// per nanosecond.
    pub drift: f64,
}

/// Why knots do not make a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapError {
    /// There is no knot, or an epoch without one.
    Empty,
    /// The knot at this index, counted through all epochs, does not increase strictly in counter
    /// and global time, or its maximum errors are not finite numbers that are zero or more.
    BadKnot(usize),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Empty => write!(f, "a clock map needs at least one knot"),
            MapError::BadKnot(i) => write!(
                f,
                "knot {i} of the clock map is not after its predecessor, or its maximum error is \
                 not valid"
            ),
        }
    }
}

impl std::error::Error for MapError {}

/// Strictly increasing, piecewise linear map `Counter → (GlobalNs, Bound)`, continuous within an
/// epoch.
///
/// Between knots both the global time and the maximum errors are linear; beyond the first and the
/// last of an epoch the map goes on at the epoch's mean rate while the maximum errors grow by its
/// drift. Between epochs, where a clock was disturbed at an instant that nobody knows, global time
/// is between the epochs' and its maximum error [`Bound::UNKNOWN`].
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "Parts", into = "Parts"))]
pub struct ClockMap {
    origin: GlobalNs,
    /// Two of the host's processors have counters that are up to so far apart, ns; `None`: nobody
    /// measured it.
    apart_ns: Option<f64>,
    /// Knots of all epochs.
    knots: Vec<Knot>,
    epochs: Vec<Stretch>,
}

/// A [`ClockMap`] as it is stored: exactly, where floats are.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
struct Parts {
    origin: GlobalNs,
    #[serde(default)]
    apart_ns: Option<f64>,
    epochs: Vec<Epoch>,
}

#[cfg(feature = "serde")]
impl From<ClockMap> for Parts {
    fn from(map: ClockMap) -> Parts {
        let epoch = |stretch: &Stretch| Epoch {
            number: stretch.number,
            from: stretch.from,
            until: stretch.until,
            knots: map.knots[stretch.knots.clone()].to_vec(),
            ns_per_tick: stretch.ns_per_tick,
            drift: stretch.drift,
        };
        Parts {
            origin: map.origin,
            apart_ns: map.apart_ns,
            epochs: map.epochs.iter().map(epoch).collect(),
        }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<Parts> for ClockMap {
    type Error = MapError;

    fn try_from(parts: Parts) -> Result<ClockMap, MapError> {
        let map = ClockMap::of_epochs(parts.origin, parts.epochs)?;
        Ok(ClockMap { apart_ns: parts.apart_ns, ..map })
    }
}

/// An [`Epoch`] whose knots are among those of the map.
#[derive(Clone, Debug, PartialEq)]
struct Stretch {
    number: u32,
    from: Counter,
    until: Counter,
    knots: Range<usize>,
    ns_per_tick: f64,
    drift: f64,
}

/// Nanoseconds after the origin, hard and calibrated error bound.
type Place = (f64, f64, f64);

/// A lower limit for the global time of an instant and of every later one on a map's counter. A map
/// may go back by a nanosecond that rounding takes off at a knot, and where an epoch begins before
/// the last one ends.
#[derive(Clone, Debug)]
pub struct Floor<'a> {
    map: &'a ClockMap,
    /// Where the pieces begin within which the map never goes back.
    begins: Vec<u64>,
    /// From there on.
    least: Vec<GlobalNs>,
}

impl Floor<'_> {
    /// From `counter` on.
    pub fn from(&self, counter: Counter) -> GlobalNs {
        let next = self.begins.partition_point(|begin| *begin <= counter.0);
        let here = self.map.map(counter).0;
        self.least.get(next).map_or(here, |later| here.min(*later))
    }
}

/// What counters of an epoch are on.
enum Line<'a> {
    /// Two neighbouring knots.
    Through(&'a Knot, &'a Knot),
    /// The epoch's first or last one, at its mean rate.
    From(&'a Stretch, &'a Knot),
}

impl Line<'_> {
    /// Where ticks count from.
    fn knot(&self) -> &Knot {
        match self {
            Line::Through(knot, _) | Line::From(_, knot) => knot,
        }
    }

    fn at(&self, ticks: f64) -> Place {
        match self {
            Line::Through(a, b) => through(a, b, ticks),
            Line::From(epoch, knot) => extrapolate(epoch, knot, ticks),
        }
    }
}

impl ClockMap {
    /// The map of a host that nothing disturbed. `knots` are offsets from `origin`; `ns_per_tick`
    /// and `drift` as in [`Epoch`].
    pub fn new(
        origin: GlobalNs,
        knots: Vec<Knot>,
        ns_per_tick: f64,
        drift: f64,
    ) -> Result<ClockMap, MapError> {
        let (from, until) = (Counter(0), Counter(u64::MAX));
        let epoch = Epoch { number: 0, from, until, knots, ns_per_tick, drift };
        ClockMap::of_epochs(origin, vec![epoch])
    }

    /// The map of a host with epochs, in the order of time.
    pub fn of_epochs(origin: GlobalNs, epochs: Vec<Epoch>) -> Result<ClockMap, MapError> {
        let mut map = ClockMap { origin, apart_ns: None, knots: Vec::new(), epochs: Vec::new() };
        for epoch in epochs {
            if epoch.knots.is_empty() {
                return Err(MapError::Empty);
            }
            let begin = map.knots.len();
            map.knots.extend(epoch.knots);
            let Epoch { number, from, until, ns_per_tick, drift, .. } = epoch;
            let knots = begin..map.knots.len();
            map.epochs.push(Stretch { number, from, until, knots, ns_per_tick, drift });
        }
        if map.knots.is_empty() {
            return Err(MapError::Empty);
        }
        let width = |ns: f64| ns.is_finite() && ns >= 0.0;
        for (i, knot) in map.knots.iter().enumerate() {
            let last = i.checked_sub(1).map(|last| &map.knots[last]);
            let ordered = last
                .is_none_or(|last| knot.counter > last.counter && knot.offset_ns > last.offset_ns);
            if !ordered || !width(knot.err_ns) || !width(knot.calibrated_ns) {
                return Err(MapError::BadKnot(i));
            }
        }
        Ok(map)
    }

    /// The reference host's own map: its counter scaled by its nominal frequency, without error.
    /// `near` is any counter value of the run.
    pub fn reference(frequency: Frequency, near: Counter) -> ClockMap {
        let knot = Knot { counter: near, offset_ns: 0.0, err_ns: 0.0, calibrated_ns: 0.0 };
        let stretch = Stretch {
            number: 0,
            from: Counter(0),
            until: Counter(u64::MAX),
            knots: 0..1,
            ns_per_tick: frequency.ns_per_tick(),
            drift: 0.0,
        };
        ClockMap {
            origin: frequency.scale(near),
            apart_ns: None,
            knots: vec![knot],
            epochs: vec![stretch],
        }
    }

    /// The same map on a host of which any processor's counter may have been read. `apart_ns`: two
    /// of these are up to so far apart, `None` where nobody measured it. `wider_ns` goes to every
    /// maximum error: by how much readings that the map rests on and those that are mapped may be
    /// off.
    #[must_use]
    pub fn of_any_processor(mut self, wider_ns: f64, apart_ns: Option<f64>) -> ClockMap {
        self.knots.iter_mut().for_each(|knot| knot.err_ns += wider_ns);
        self.apart_ns = apart_ns;
        self
    }

    /// How far the counters of two of the host's processors may be apart, in nanoseconds; `None`
    /// where nobody measured it.
    pub fn apart_ns(&self) -> Option<f64> {
        self.apart_ns
    }

    /// Global time and hard maximum error at `counter`.
    pub fn map(&self, counter: Counter) -> (GlobalNs, Bound) {
        let (ns, hard) = match self.epoch_at(counter) {
            Ok(epoch) => {
                let (ns, hard, _) = self.place(epoch, counter);
                (ns, Bound::of_rounded(hard))
            }
            Err(after) => (self.between(after, counter), Bound::UNKNOWN),
        };
        (GlobalNs(self.origin.0.saturating_add(ns.round() as i64)), hard)
    }

    /// [`Self::map`] of each of many counters: nanoseconds of their global times and of their hard
    /// maximum errors. Quick where neighbours lie between the same knots.
    pub fn map_all(&self, counters: &[u64]) -> (Vec<i64>, Vec<i64>) {
        let (mut ts, mut err) = (vec![0; counters.len()], vec![0; counters.len()]);
        let mut begin = 0;
        while let Some(&first) = counters.get(begin) {
            let Some((line, near)) = self.near(Counter(first)) else {
                let (instant, bound) = self.map(Counter(first));
                (ts[begin], err[begin]) = (instant.0, bound.ns().cast_signed());
                begin += 1;
                continue;
            };
            let same = counters[begin..].iter().take_while(|counter| near.contains(counter));
            let here = begin..begin + same.count();
            let out = ts[here.clone()].iter_mut().zip(&mut err[here.clone()]);
            let origin = self.origin.0;
            match line {
                Line::Through(a, b) => {
                    let place = |ticks| through(a, b, ticks);
                    whole::along(&counters[here.clone()], a.counter, origin, place, out);
                }
                Line::From(epoch, knot) => {
                    let place = |ticks| extrapolate(epoch, knot, ticks);
                    whole::along(&counters[here.clone()], knot.counter, origin, place, out);
                }
            }
            begin = here.end;
        }
        (ts, err)
    }

    /// The line that a counter is on, and counters on it whose ticks and nanoseconds are
    /// [`whole::SMALL`], itself among them. None where it is not.
    fn near(&self, counter: Counter) -> Option<(Line<'_>, RangeInclusive<u64>)> {
        let (line, on_line) = self.line(self.epoch_at(counter).ok()?, counter);
        let knot = line.knot().counter.0;
        let reach = whole::SMALL as u64;
        let near = knot.saturating_sub(reach).max(*on_line.start())
            ..=knot.saturating_add(reach).min(*on_line.end());
        // All that is between the ends of a line is between what is at its ends.
        let small = [near.start(), near.end()].into_iter().all(|end| {
            let (ns, hard, _) = line.at(ticks(line.knot().counter, Counter(*end)));
            ns.abs() < whole::SMALL && hard < whole::SMALL
        });
        let fits = self.origin.0.unsigned_abs() < 1 << 62;
        (near.contains(&counter.0) && small && fits).then_some((line, near))
    }

    /// The error bound at `counter` that holds with the claimed probability.
    pub fn calibrated(&self, counter: Counter) -> Bound {
        let calibrated = |epoch| Bound::of_rounded(self.place(epoch, counter).2);
        self.epoch_at(counter).map_or(Bound::UNKNOWN, calibrated)
    }

    /// The number of the epoch that `counter` is in: none while the clock was disturbed.
    pub fn epoch(&self, counter: Counter) -> Option<u32> {
        self.epoch_at(counter).ok().map(|epoch| epoch.number)
    }

    /// The epoch of a counter, or how many epochs are before it.
    fn epoch_at(&self, counter: Counter) -> Result<&Stretch, usize> {
        let after = self.epochs.partition_point(|e| e.from <= counter);
        let epoch = after.checked_sub(1).map(|last| &self.epochs[last]);
        epoch.filter(|e| counter <= e.until).ok_or(after)
    }

    fn place(&self, epoch: &Stretch, counter: Counter) -> Place {
        let line = self.line(epoch, counter).0;
        line.at(ticks(line.knot().counter, counter))
    }

    /// The line that a counter of an epoch is on, and the epoch's counters on it.
    fn line<'a>(&'a self, epoch: &'a Stretch, counter: Counter) -> (Line<'a>, RangeInclusive<u64>) {
        let knots = &self.knots[epoch.knots.clone()];
        let after = knots.partition_point(|k| k.counter <= counter);
        let before = after.checked_sub(1).map(|last| &knots[last]);
        let from = before.map_or(epoch.from, |a| a.counter.max(epoch.from));
        // A knot after a counter is not at zero.
        let until =
            knots.get(after).map_or(epoch.until, |b| Counter(b.counter.0 - 1).min(epoch.until));
        let line = match (before, knots.get(after)) {
            (Some(a), Some(b)) => Line::Through(a, b),
            (Some(only), None) | (None, Some(only)) => Line::From(epoch, only),
            (None, None) => unreachable!("an epoch has a knot"),
        };
        (line, from.0..=until.0)
    }

    /// What no later instant is before.
    pub fn floor(&self) -> Floor<'_> {
        let begins = self.epochs.iter().flat_map(|e| [Some(e.from.0), e.until.0.checked_add(1)]);
        let mut begins: Vec<u64> = begins.flatten().collect();
        begins.extend(self.knots.iter().map(|knot| knot.counter.0));
        begins.sort_unstable();
        let mut least: Vec<GlobalNs> = begins.iter().map(|&c| self.map(Counter(c)).0).collect();
        for i in (1..least.len()).rev() {
            least[i - 1] = least[i - 1].min(least[i]);
        }
        Floor { map: self, begins, least }
    }

    /// Nanoseconds after the origin at a counter that is in no epoch and has `after` before it.
    fn between(&self, after: usize, counter: Counter) -> f64 {
        let before = after.checked_sub(1).map(|last| &self.epochs[last]);
        match (before, self.epochs.get(after)) {
            (Some(a), Some(b)) => {
                let (begin, end) = (self.place(a, a.until).0, self.place(b, b.from).0);
                let part = counter.ticks_since(a.until) as f64 / b.from.ticks_since(a.until) as f64;
                begin + part * (end - begin).max(0.0)
            }
            (Some(only), None) | (None, Some(only)) => self.place(only, counter).0,
            (None, None) => 0.0,
        }
    }

    /// Hard maximum error of an interval of `ns` nanoseconds measured on this one host. Its two
    /// ends share the offset's error, so only the rate's remains: map and truth each stay within
    /// `drift` of the mean rate. They may be of two processors, and add what these are apart, where
    /// that was measured. Each end is rounded. Unknown where the host was disturbed, which may have
    /// been within the interval.
    pub fn interval_bound(&self, ns: i64) -> Bound {
        let apart = self.apart_ns.unwrap_or(0.0);
        self.drift().map_or(Bound::UNKNOWN, |drift| {
            Bound::of_rounded(2.0 * drift * ns.unsigned_abs() as f64 + apart + 0.5)
        })
    }

    /// The global instant that knots count from.
    pub fn origin(&self) -> GlobalNs {
        self.origin
    }

    /// The knots of all epochs, in order.
    pub fn knots(&self) -> &[Knot] {
        &self.knots
    }

    /// Bound on the difference between the host's rate and its mean, in nanoseconds per nanosecond;
    /// none where the host was disturbed.
    pub fn drift(&self) -> Option<f64> {
        match &self.epochs[..] {
            [all] if (all.from, all.until) == (Counter(0), Counter(u64::MAX)) => Some(all.drift),
            _ => None,
        }
    }
}

/// From one counter to another. Damaged stamps may be so far away that it does not fit 64 bits:
/// those must not come out on the other side.
fn ticks(from: Counter, to: Counter) -> f64 {
    let clamped = |ticks: u64| ticks.min(i64::MAX as u64).cast_signed();
    let ticks = if to >= from { clamped(to.0 - from.0) } else { -clamped(from.0 - to.0) };
    ticks as f64
}

#[inline(always)]
fn through(a: &Knot, b: &Knot, since: f64) -> Place {
    let part = since / ticks(a.counter, b.counter);
    (
        a.offset_ns + part * (b.offset_ns - a.offset_ns),
        a.err_ns + part * (b.err_ns - a.err_ns),
        a.calibrated_ns + part * (b.calibrated_ns - a.calibrated_ns),
    )
}

#[inline(always)]
fn extrapolate(epoch: &Stretch, from: &Knot, since: f64) -> Place {
    let ns = since * epoch.ns_per_tick;
    // Years away the arithmetic itself rounds by more than a nanosecond: ticks, product and sum.
    let grown = ns.abs() * (epoch.drift + 4.0 * f64::EPSILON);
    (from.offset_ns + ns, from.err_ns + grown, from.calibrated_ns + grown)
}

/// Whole numbers in floats, without calls and branches, so that a compiler makes vectors of it for
/// any processor: next to `MAGIC` a float's last bit is a one, and so the bits of both differ by
/// the number.
mod whole {
    use super::{Counter, Place};

    /// What must not be reached.
    pub(super) const SMALL: f64 = (1u64 << 50) as f64;
    const MAGIC: f64 = (3u64 << 51) as f64;

    /// `map`'s result for counters whose ticks since `from`, and what `place` makes of them, are
    /// small.
    #[inline(always)]
    pub(super) fn along<'a>(
        counters: &[u64],
        from: Counter,
        origin: i64,
        place: impl Fn(f64) -> Place,
        out: impl Iterator<Item = (&'a mut i64, &'a mut i64)>,
    ) {
        for (counter, (ts, err)) in counters.iter().zip(out) {
            let ticks = counter.wrapping_sub(from.0).wrapping_add(MAGIC.to_bits());
            let (ns, hard, _) = place(f64::from_bits(ticks) - MAGIC);
            *ts = origin.wrapping_add(integer(round(ns)));
            *err = integer(ceil(hard + 0.5));
        }
    }

    #[inline(always)]
    fn integer(whole: f64) -> i64 {
        (whole + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()).cast_signed()
    }

    /// A half goes away from zero, as `f64::round` has it; adding `MAGIC` takes it to the even
    /// number.
    #[inline(always)]
    fn round(x: f64) -> f64 {
        let even = (x + MAGIC) - MAGIC;
        let up = if (x - even >= 0.5) & (x > 0.0) { 1.0 } else { 0.0 };
        let down = if (x - even <= -0.5) & (x < 0.0) { 1.0 } else { 0.0 };
        even + up - down
    }

    #[inline(always)]
    fn ceil(x: f64) -> f64 {
        let even = (x + MAGIC) - MAGIC;
        even + if even < x { 1.0 } else { 0.0 }
    }
}

#[cfg(test)]
mod tests;
