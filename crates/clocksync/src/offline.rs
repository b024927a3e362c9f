//! The clock map of a follower from the probes of a whole run.
//!
//! A message cannot arrive before it was sent. A probe that left when the follower's counter was
//! `t1` and arrived when the reference's was `t2` says that global time at `t1` was at most `t2`
//! (an upper constraint); a reply says that global time at `t4` was at least `t3` (a lower one).
//! Nothing is assumed about the delays, their symmetry least of all.
//!
//! One assumption carries these facts to the instants between and around them: at every moment of
//! the run the follower's rate against the reference's lies within ±`wander` of one mean rate, and
//! that mean within ±[`MAX_RATE_PPM`] of nominal. The mean itself is only known to lie in a range
//! that all pairs of constraints leave open, so the residual against the middle of that range
//! moves at most `rho` = wander + half the range. Each constraint then is a tent over the whole
//! run, and truth lies between the lowest upper and the highest lower tent: the hard interval.
//!
//! Inside that interval the map is where the smallest delays of both directions put it: oscillators
//! are far calmer than the assumption allows, so messages of many seconds may speak for each other
//! (the `calm` module). The half-width reaches to the interval's farther end, so that nothing of
//! this finer guess has to be believed.

use loopscope_time::{ClockMap, Counter, Frequency, GlobalNs, Knot, MapError};

use crate::Span;
use crate::calm::Calm;
use crate::envelope::{Envelope, Point, steepest};

/// The wander assumed where nothing else is known: 1 ppm, ample for a quartz within a run's
/// changes of temperature.
pub const DEFAULT_WANDER: f64 = 1e-6;

/// Largest distance of a mean rate from nominal that is believed, in parts per million: the range
/// in which Linux itself disciplines a clock.
pub const MAX_RATE_PPM: f64 = 500.0;

/// Messages needed in each direction.
const MIN_MESSAGES: usize = 2;

/// A probe and its reply, as far as their stamps are known. Each message counts by itself: a probe
/// whose reply was lost still is an upper constraint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// The follower sent the probe (follower's counter).
    pub t1: Option<Span>,
    /// The reference received it (reference's counter).
    pub t2: Option<Span>,
    /// The reference sent the reply (reference's counter).
    pub t3: Option<Span>,
    /// The follower received it (follower's counter).
    pub t4: Option<Span>,
}

/// Why probes do not give a map.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SolveError {
    /// Too little to go on.
    #[error(
        "only {probes} probes and {replies} replies have both their stamps, at least {} each are \
         needed: check that the clock network passes UDP between the two hosts, or let the probes \
         run longer",
        MIN_MESSAGES
    )]
    TooFew {
        /// Probes with both stamps.
        probes: usize,
        /// Replies with both stamps.
        replies: usize,
    },
    /// Not a usable assumption.
    #[error("a wander of {0} is not a rate between 0 and 0.001: 1e-6 stands for 1 ppm")]
    BadWander(f64),
    /// The knots do not increase: stamps of more than one counter were mixed.
    #[error("the probes make no map ({0}): do all stamps of a side come from one counter?")]
    NoMap(#[from] MapError),
}

/// One row of the clock log: the map at one of its knots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The follower's counter.
    pub counter: Counter,
    /// Global time less the counter scaled by its nominal frequency, in nanoseconds.
    pub offset_ns: f64,
    /// Rate against nominal from here to the next row (on the last row: the mean rate), in parts
    /// per million.
    pub rate_ppm: f64,
    /// Hard half-width in nanoseconds.
    pub err_ns: f64,
}

/// What [`solve`] found.
#[derive(Clone, Debug)]
pub struct Solution {
    /// From the follower's counter to global time.
    pub map: ClockMap,
    /// The map's knots as rows.
    pub estimates: Vec<Estimate>,
    /// Exchanges that gave at least one constraint.
    pub exchanges: usize,
    /// Messages that contradict others under the assumption, and one more for each of these: no
    /// mean rate suits all messages; none that does is within [`MAX_RATE_PPM`]. Where there are
    /// any the assumption has failed: the half-width still reaches to both the upper and the lower
    /// bound where they contradict, but it is no longer hard.
    pub contradictions: usize,
}

/// Finds the map. `wander` is the assumption that the page above states, as a ratio (1e-6 is
/// 1 ppm).
pub fn solve(
    exchanges: &[Exchange],
    follower: Frequency,
    reference: Frequency,
    wander: f64,
) -> Result<Solution, SolveError> {
    if !(0.0..=1e-3).contains(&wander) {
        return Err(SolveError::BadWander(wander));
    }
    let constraints = Constraints::collect(exchanges, reference)?;
    let nominal = follower.ns_per_tick();
    let (rate, mut contradictions) = constraints.mean_rate(nominal, wander);
    // Wander is relative to the rate, which may exceed nominal.
    let rho = wander * rate.max_ns_per_tick + rate.half_range;
    let residual = |p: &Point| Point { x: p.x, y: p.y - rate.ns_per_tick * p.x };
    let uppers: Vec<Point> = constraints.uppers.iter().map(residual).collect();
    let lowers: Vec<Point> = constraints.lowers.iter().map(|p| residual(p).negated()).collect();
    let upper = Envelope::new(&uppers, rho);
    let lower = Envelope::new(&lowers, rho);
    // `lower` is of negated values, so a negative sum means upper below lower.
    contradictions += uppers.iter().filter(|p| p.y + lower.at(p.x) < 0.0).count();
    contradictions += lowers.iter().filter(|p| p.y + upper.at(p.x) < 0.0).count();

    let calm = Calm::new(&uppers, &lowers, rate.half_range, nominal);

    // Between the breaks of all envelopes all is linear but for the clamp, which is between its
    // values at two breaks.
    let mut breaks: Vec<f64> = upper.breaks().iter().chain(lower.breaks()).map(|p| p.x).collect();
    breaks.extend(calm.breaks());
    breaks.sort_by(f64::total_cmp);
    breaks.dedup();
    let knots: Vec<Knot> = breaks
        .into_iter()
        .map(|x| {
            let (high, low) = (upper.at(x), -lower.at(x));
            let middle = 0.5 * (high + low);
            let best = if low <= high { calm.at(x).clamp(low, high) } else { middle };
            Knot {
                counter: Counter(constraints.first.0 + x as u64),
                offset_ns: rate.ns_per_tick * x + best,
                // The envelopes' peaks are moved to whole ticks.
                err_ns: (high - best).abs().max((best - low).abs()) + rho,
            }
        })
        .collect();
    let estimates = estimates(&knots, &constraints, follower, rate.ns_per_tick);
    let drift = rho / rate.ns_per_tick;
    let map = ClockMap::new(constraints.origin, knots, rate.ns_per_tick, drift)?;
    Ok(Solution { map, estimates, exchanges: constraints.exchanges, contradictions })
}

fn estimates(
    knots: &[Knot],
    constraints: &Constraints,
    follower: Frequency,
    mean: f64,
) -> Vec<Estimate> {
    let nominal = follower.ns_per_tick();
    // Both origins are large; their difference is taken in integers.
    let origin = (constraints.origin - follower.scale(constraints.first)) as f64
        - fraction(follower, constraints.first);
    let mut rows = Vec::with_capacity(knots.len());
    for (i, knot) in knots.iter().enumerate() {
        let ticks = knot.counter.ticks_since(constraints.first) as f64;
        let rate = knots.get(i + 1).map_or(mean, |next| {
            (next.offset_ns - knot.offset_ns) / next.counter.ticks_since(knot.counter) as f64
        });
        rows.push(Estimate {
            counter: knot.counter,
            offset_ns: origin + (knot.offset_ns - nominal * ticks),
            rate_ppm: (rate / nominal - 1.0) * 1e6,
            err_ns: knot.err_ns,
        });
    }
    rows
}

/// What [`Frequency::scale`] cuts off, in nanoseconds.
fn fraction(frequency: Frequency, counter: Counter) -> f64 {
    let rest = u128::from(counter.0) * 1_000_000_000 % u128::from(frequency.hz());
    rest as f64 / frequency.hz() as f64
}

/// Upper and lower constraints on global time, by ascending `x`: ticks after `first`, nanoseconds
/// after `origin`.
struct Constraints {
    first: Counter,
    origin: GlobalNs,
    uppers: Vec<Point>,
    lowers: Vec<Point>,
    exchanges: usize,
}

impl Constraints {
    fn collect(exchanges: &[Exchange], reference: Frequency) -> Result<Constraints, SolveError> {
        // A reading stands for the whole tick that begins there: the later end of an interval is
        // the begin of the next tick.
        let probes: Vec<(Counter, Counter)> =
            exchanges.iter().filter_map(|e| Some((e.t1?.lo, Counter(e.t2?.hi.0 + 1)))).collect();
        let replies: Vec<(Counter, Counter)> =
            exchanges.iter().filter_map(|e| Some((Counter(e.t4?.hi.0 + 1), e.t3?.lo))).collect();
        if probes.len() < MIN_MESSAGES || replies.len() < MIN_MESSAGES {
            return Err(SolveError::TooFew { probes: probes.len(), replies: replies.len() });
        }
        let all = || probes.iter().chain(&replies);
        let first = all().map(|m| m.0).min().unwrap_or_default();
        let first_reference = all().map(|m| m.1).min().unwrap_or_default();
        let begin = fraction(reference, first_reference);
        let global =
            |c: Counter| begin + c.ticks_since(first_reference) as f64 * reference.ns_per_tick();
        let last_ns = all().map(|m| global(m.1)).fold(0.0, f64::max);
        // Room for the rounding of floating point, here and in the map.
        let slack = 0.01 + 16.0 * f64::EPSILON * last_ns;
        let points = |messages: &[(Counter, Counter)], slack: f64| {
            let mut points: Vec<Point> = messages
                .iter()
                .map(|m| Point { x: m.0.ticks_since(first) as f64, y: global(m.1) + slack })
                .collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            points
        };
        let gives = |e: &&Exchange| {
            (e.t1.is_some() && e.t2.is_some()) || (e.t3.is_some() && e.t4.is_some())
        };
        Ok(Constraints {
            first,
            origin: reference.scale(first_reference),
            uppers: points(&probes, slack),
            lowers: points(&replies, -slack),
            exchanges: exchanges.iter().filter(gives).count(),
        })
    }

    /// The range that is left for the mean rate, and how many assumptions that contradicts.
    ///
    /// Between two constraints the rate's mean may differ from that of the run by the wander, so
    /// each pair bounds the run's mean only with that slack.
    fn mean_rate(&self, nominal: f64, wander: f64) -> (Rate, usize) {
        let limit = MAX_RATE_PPM * 1e-6 * nominal;
        let wander = wander * (nominal + limit);
        // Against nominal, where the numbers are small.
        let against = |points: &[Point], sign: f64| -> Vec<Point> {
            points.iter().map(|p| Point { x: p.x, y: sign * (p.y - nominal * p.x) }).collect()
        };
        let at_least = steepest(&against(&self.uppers, 1.0), &against(&self.lowers, 1.0));
        let at_most = steepest(&against(&self.lowers, -1.0), &against(&self.uppers, -1.0));
        let mut low = at_least.map_or(-limit, |slope| slope - wander);
        let mut high = at_most.map_or(limit, |slope| wander - slope);
        let mut contradictions = 0;
        if low > high {
            // A clock that jumped says nothing about its rate.
            contradictions += 1;
            (low, high) = (-limit, limit);
        } else if low > limit || high < -limit {
            // The nominal frequencies are wrong: the messages agree with each other.
            contradictions += 1;
            (low, high) = (low.min(limit), high.max(-limit));
        } else {
            (low, high) = (low.max(-limit), high.min(limit));
        }
        let rate = Rate {
            ns_per_tick: nominal + 0.5 * (low + high),
            max_ns_per_tick: nominal + high,
            half_range: 0.5 * (high - low),
        };
        (rate, contradictions)
    }
}

/// The middle of the range of mean rates, its upper end and half its size, in nanoseconds a tick.
struct Rate {
    ns_per_tick: f64,
    max_ns_per_tick: f64,
    half_range: f64,
}
