//! The clock map of a follower from the probes of a whole run.
//!
//! A message cannot arrive before it was sent. A probe that left when the follower's counter was
//! `t1` and arrived when the reference's was `t2` says that global time at `t1` was at most `t2`
//! (an upper constraint); a reply says that global time at `t4` was at least `t3` (a lower one).
//! Nothing is assumed about the delays, their symmetry least of all. Messages of programs say the
//! same where their sending and their receiving were stamped.
//!
//! One assumption carries these facts to the instants between and around them: at every moment of
//! an epoch the follower's rate against the reference's lies within ±`wander` of one mean rate, and
//! that mean within ±[`MAX_RATE_PPM`] of nominal. The mean itself is only known to lie in a range
//! that all pairs of constraints leave open (the `rate` module), so the residual against the middle
//! of that range moves at most `rho` = wander + half the range. Each constraint then is a tent over
//! the whole epoch, and truth lies between the lowest upper and the highest lower tent: the hard
//! interval. That is what convex hulls give (Duda, Harrus, Haddad and Bernard, "Estimating global
//! time in distributed systems", ICDCS 1987), for clocks that wander.
//!
//! Where no mean rate suits all messages, single ones are rejected or the run falls into epochs
//! (the `epoch` module). Between epochs nothing is known.
//!
//! Inside the interval the map is where the smallest delays of both directions put it (the `track`
//! module): oscillators are far calmer than the assumption allows, so messages of many seconds may
//! speak for each other. The hard maximum error reaches to the interval's farther end, so that
//! nothing of this finer guess has to be believed. The calibrated one is what the guess says of
//! itself: it claims [`CLAIM`] of all instants, for the noise that showed and ways whose least
//! delays differ by a share of the round trip that is stated (the `track` module says what it is
//! made of).

use std::collections::BTreeSet;
use std::ops::Range;

use loopscope_time::{ClockMap, Counter, Epoch, Frequency, GlobalNs, Knot, MapError};

pub use crate::bound::MAX_RATE_PPM;
use crate::constraint::{Constraint, Frame, Message, Way};
use crate::counter::{self, CounterEvent};
use crate::envelope::{Envelope, Point};
use crate::epoch;
use crate::exchange::Exchange;
use crate::rate::RateRange;
use crate::steps;
pub use crate::track::CLAIM;
use crate::track::Track;

/// The wander assumed where nothing else is known: 1 ppm, ample for a quartz within a run's
/// changes of temperature.
pub const DEFAULT_WANDER: f64 = 1e-6;

/// Messages needed in each direction.
const MIN_MESSAGES: usize = 2;

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
    /// All of the run, or nearly, is within disturbances.
    #[error(
        "its counter was disturbed ({0}), and too few probes are before or after that: a run cannot \
         go on while a machine sleeps, is moved or is set back to a snapshot"
    )]
    Disturbed(counter::Disturbance),
    /// No stretch of the run has enough messages that agree.
    #[error(
        "the probes contradict each other all along ({0} epochs): do all stamps of a side come \
         from one counter, and is it invariant?"
    )]
    NoEpoch(usize),
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
    /// By how much faster global time passes than the counter at its nominal frequency tells it,
    /// from here to the next row (on the last row: that from the row before), in parts per million:
    /// of a counter that is slow it is positive.
    pub rate_ppm: f64,
    /// Hard maximum error in nanoseconds.
    pub err_ns: f64,
}

/// A moment at which one of the two clocks broke the assumption.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disturbance {
    /// It was after this reading of the follower's counter.
    pub from: Counter,
    /// And before this one: events between the two have no known time.
    pub until: Counter,
    /// What happened.
    pub cause: Cause,
}

/// What a disturbance did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// Global time against the follower's counter jumped by this many nanoseconds.
    Step(f64),
    /// The rate of global time against the follower's counter changed by this many parts per
    /// million.
    Rate(f64),
    /// On one of its sides too few messages agree to tell.
    Unclear,
    /// A disturbance that the counter's own watch has seen, whether messages show it or not.
    Watched(counter::Disturbance),
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cause::Step(ns) => write!(f, "global time stepped by {ns:+.0} ns against its counter"),
            Cause::Rate(ppm) => {
                write!(f, "global time's rate against its counter changed by {ppm:+.2} ppm")
            }
            Cause::Unclear => write!(f, "too few probes agree to tell what happened"),
            Cause::Watched(disturbance) => write!(f, "{disturbance}"),
        }
    }
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
    /// Where messages contradict those of another epoch, in the order of time.
    pub disturbances: Vec<Disturbance>,
    /// When messages were sent or received that contradict those around them and were left out, on
    /// the follower's counter.
    pub rejected: Vec<Counter>,
    /// The mean rate that is farthest from nominal, in parts per million, where it is beyond
    /// [`MAX_RATE_PPM`]: nominal frequencies are wrong.
    pub unbelievable_ppm: Option<f64>,
}

impl Solution {
    /// The same where any processor's counter may have been read, by probes and by programs, as in
    /// [`ClockMap::of_any_processor`] ([`crate::skew`]).
    #[must_use]
    pub fn of_any_processor(self, wider_ns: f64, apart_ns: Option<f64>) -> Solution {
        let wider = |row: Estimate| Estimate { err_ns: row.err_ns + wider_ns, ..row };
        Solution {
            map: self.map.of_any_processor(wider_ns, apart_ns),
            estimates: self.estimates.into_iter().map(wider).collect(),
            ..self
        }
    }
}

/// Finds the map from exchanges, and from messages of programs. `wander` is the assumption that
/// the page above states, as a ratio (1e-6 is 1 ppm).
pub fn solve(
    exchanges: &[Exchange],
    messages: &[Message],
    follower: Frequency,
    reference: Frequency,
    wander: f64,
) -> Result<Solution, SolveError> {
    solve_between(exchanges, messages, follower, reference, wander, &[])
}

/// The same for a follower whose counter was disturbed, as who watches it has seen: messages need
/// not show it. What passed meanwhile is left out, and an epoch begins behind each disturbance.
pub fn solve_between(
    exchanges: &[Exchange],
    messages: &[Message],
    follower: Frequency,
    reference: Frequency,
    wander: f64,
    disturbed: &[CounterEvent],
) -> Result<Solution, SolveError> {
    if !(0.0..=1e-3).contains(&wander) {
        return Err(SolveError::BadWander(wander));
    }
    let used = exchanges.iter().filter(|e| e.messages().next().is_some()).count();
    let all: Vec<Message> =
        exchanges.iter().flat_map(Exchange::messages).chain(messages.iter().copied()).collect();
    let meanwhile = |message: &Message, event: &CounterEvent| {
        message.own.hi >= event.within.lo && message.own.lo <= event.within.hi
    };
    let all: Vec<Message> =
        all.into_iter().filter(|m| !disturbed.iter().any(|event| meanwhile(m, event))).collect();
    let count = |way| all.iter().filter(|m| m.way == way).count();
    let [probes, replies] = [Way::Forward, Way::Back].map(count);
    if probes < MIN_MESSAGES || replies < MIN_MESSAGES {
        return Err(match disturbed.first() {
            Some(event) => SolveError::Disturbed(event.disturbance),
            None => SolveError::TooFew { probes, replies },
        });
    }
    let first = all.iter().map(|m| m.own.lo).min().unwrap_or_default();
    let first_reference = all.iter().map(|m| m.reference.lo).min().unwrap_or_default();
    let frame = Frame::new((first, follower), (first_reference, reference));
    let mut constraints: Vec<Constraint> = all.iter().map(|m| frame.constraint(m)).collect();
    constraints.sort_by(|a, b| a.edge.x.total_cmp(&b.edge.x));

    let nominal = frame.ns_per_tick();
    let limit = MAX_RATE_PPM * 1e-6 * nominal;
    // Wander is relative to the rate, which may exceed nominal.
    let ratio = wander;
    let wander = wander * (nominal + limit);
    // Between two disturbances that are known, those that messages show.
    let mut cuts: Vec<usize> = vec![0, constraints.len()];
    let places = disturbed.iter().map(|event| frame.x(event.within.hi));
    cuts.extend(places.map(|x| constraints.partition_point(|c| c.edge.x <= x)));
    cuts.sort_unstable();
    cuts.dedup();
    let (mut epochs, mut rejected) = (Vec::new(), BTreeSet::new());
    for cut in cuts.windows(2) {
        let (found, left_out) = epoch::split(&constraints[cut[0]..cut[1]], wander);
        epochs.extend(found.into_iter().map(|range| cut[0] + range.start..cut[0] + range.end));
        rejected.extend(left_out.into_iter().map(|number| cut[0] + number));
    }
    let kept = |range: &Range<usize>| -> Vec<(usize, &Constraint)> {
        let numbers = range.clone().filter(|n| !rejected.contains(n));
        numbers.map(|n| (n, &constraints[n])).collect()
    };
    let cut = |epoch: Range<usize>| steps::cut(epoch.clone(), &kept(&epoch), nominal, ratio);
    let epochs: Vec<Range<usize>> = epochs.into_iter().flat_map(cut).collect();
    let last_epoch = epochs.len() - 1;
    let mut solved: Vec<Solved> = Vec::new();
    let mut disturbances: Vec<Disturbance> = Vec::new();
    let mut disturbed_since = Counter(0);
    for (number, range) in epochs.iter().enumerate() {
        let kept: Vec<&Constraint> = kept(range).into_iter().map(|(_, message)| message).collect();
        let Some(mut epoch) = Solved::new(&kept, &frame, wander) else { continue };
        epoch.number = number as u32;
        if number > 0 {
            epoch.from = frame.counter(epoch.first.ceil());
            let until = epoch.from;
            let watched = disturbed
                .iter()
                .find(|event| event.within.hi >= disturbed_since && event.within.lo <= until);
            let cause = match (watched, solved.last()) {
                (Some(event), _) => Cause::Watched(event.disturbance),
                (None, Some(before)) => before.cause(&epoch, nominal),
                (None, None) => Cause::Unclear,
            };
            disturbances.push(Disturbance { from: disturbed_since, until, cause });
        }
        if number < last_epoch {
            epoch.until = frame.counter(epoch.last.floor());
            disturbed_since = epoch.until;
        }
        solved.push(epoch);
    }
    let Some(last) = solved.last() else { return Err(SolveError::NoEpoch(epochs.len())) };
    if last.until < Counter(u64::MAX) {
        let (from, until) = (last.until, Counter(u64::MAX));
        disturbances.push(Disturbance { from, until, cause: Cause::Unclear });
    }
    let ppm = |epoch: &Solved| epoch.slope / nominal * 1e6;
    let unbelievable_ppm = solved.iter().filter(|e| !e.believable).map(ppm).next();

    // Global time at the frame's begin is not a whole nanosecond.
    let begin = fraction(reference, first_reference);
    let origin = reference.scale(first_reference);
    let epochs: Vec<Epoch> = solved.iter().map(|epoch| epoch.stretch(&frame, begin)).collect();
    let map = ClockMap::of_epochs(origin, epochs)?;
    Ok(Solution {
        estimates: estimates(map.knots(), origin, &frame, follower),
        map,
        exchanges: used,
        disturbances,
        rejected: rejected.iter().map(|&n| frame.counter(constraints[n].edge.x)).collect(),
        unbelievable_ppm,
    })
}

/// An epoch's messages, evaluated.
struct Solved {
    number: u32,
    from: Counter,
    until: Counter,
    /// The first message and the last.
    first: f64,
    last: f64,
    /// Mean rate, against nominal, in nanoseconds a tick.
    slope: f64,
    /// How far the rate may be from that at any moment.
    rho: f64,
    /// The range of mean rates reaches to where they are believed.
    believable: bool,
    upper: Envelope,
    /// The envelope of the negated values.
    lower: Envelope,
    track: Option<Track>,
}

impl Solved {
    /// `None` if there are too few messages. `wander` in nanoseconds a tick.
    fn new(messages: &[&Constraint], frame: &Frame, wander: f64) -> Option<Solved> {
        let nominal = frame.ns_per_tick();
        let mut range = RateRange::new(wander);
        for (number, message) in messages.iter().enumerate() {
            range.add(message, number);
        }
        let limit = MAX_RATE_PPM * 1e-6 * nominal;
        let (low, high) = (range.low().unwrap_or(-limit), range.high().unwrap_or(limit));
        let believable = low <= limit && high >= -limit;
        // Where they agree on an unbelievable one, nominal frequencies are wrong.
        let (low, high) = if believable { (low.max(-limit), high.min(limit)) } else { (low, high) };
        let (slope, rho) = (0.5 * (low + high), wander + 0.5 * (high - low).max(0.0));
        let residual = |way: Way| -> Vec<Point> {
            let of = messages.iter().filter(|m| m.way == way);
            let sign = if way == Way::Forward { 1.0 } else { -1.0 };
            of.map(|m| Point { y: sign * (m.edge.y - slope * m.edge.x), ..m.edge }).collect()
        };
        let (uppers, lowers) = (residual(Way::Forward), residual(Way::Back));
        if uppers.len() < MIN_MESSAGES || lowers.len() < MIN_MESSAGES {
            return None;
        }
        Some(Solved {
            number: 0,
            from: Counter(0),
            until: Counter(u64::MAX),
            first: messages[0].edge.x,
            last: messages[messages.len() - 1].edge.x,
            slope,
            rho,
            believable,
            upper: Envelope::new(&uppers, rho),
            lower: Envelope::new(&lowers, rho),
            track: Track::new(messages, slope, rho, nominal),
        })
    }

    /// Nanoseconds gained at `x`, hard and calibrated error bound.
    fn at(&self, x: f64) -> (f64, f64, f64) {
        let (high, low) = (self.upper.at(x), -self.lower.at(x));
        let middle = 0.5 * (high + low);
        // Messages that only just agree may leave less than nothing, by rounding.
        let guess = self.track.as_ref().filter(|_| low <= high).map(|track| track.at(x));
        let (guess, calibrated) = guess.unwrap_or((middle, f64::INFINITY));
        let best = if low <= high { guess.clamp(low, high) } else { middle };
        // The envelopes' peaks are moved to whole ticks.
        let hard = (high - best).abs().max((best - low).abs()) + self.rho;
        (self.slope * x + best, hard, calibrated.min(hard))
    }

    /// What happened between this epoch and the next one.
    fn cause(&self, next: &Solved, nominal: f64) -> Cause {
        let changed = next.slope - self.slope;
        // What their ranges of mean rates leave open.
        if changed.abs() > self.rho + next.rho {
            return Cause::Rate(changed / nominal * 1e6);
        }
        let x = 0.5 * (self.last + next.first);
        Cause::Step(next.at(x).0 - self.at(x).0)
    }

    fn stretch(&self, frame: &Frame, begin: f64) -> Epoch {
        // Between the breaks of all envelopes all is linear but for the clamp, which is between its
        // values at two breaks.
        let mut breaks: Vec<f64> =
            self.upper.breaks().iter().chain(self.lower.breaks()).map(|p| p.x).collect();
        breaks.extend(self.track.iter().flat_map(Track::xs).map(f64::round));
        breaks.retain(|x| (self.first..=self.last).contains(x));
        breaks.sort_by(f64::total_cmp);
        breaks.dedup();
        let ns_per_tick = frame.ns_per_tick() + self.slope;
        let knot = |x: f64| {
            let (gained, err_ns, calibrated_ns) = self.at(x);
            let offset_ns = begin + frame.ns_per_tick() * x + gained;
            // Large sums of doubles round, here and in the map.
            let err_ns = err_ns + 16.0 * f64::EPSILON * offset_ns.abs();
            Knot { counter: frame.counter(x), offset_ns, err_ns, calibrated_ns }
        };
        Epoch {
            number: self.number,
            from: self.from,
            until: self.until,
            knots: breaks.into_iter().map(knot).collect(),
            ns_per_tick,
            drift: self.rho / ns_per_tick,
        }
    }
}

fn estimates(
    knots: &[Knot],
    origin: GlobalNs,
    frame: &Frame,
    follower: Frequency,
) -> Vec<Estimate> {
    let nominal = follower.ns_per_tick();
    // Both origins are large; their difference is taken in integers.
    let origin = (origin - follower.scale(frame.own())) as f64 - fraction(follower, frame.own());
    let rate = |pair: &[Knot]| {
        let ns = pair[1].offset_ns - pair[0].offset_ns;
        (ns / pair[1].counter.ticks_since(pair[0].counter) as f64 / nominal - 1.0) * 1e6
    };
    let last = knots.len().saturating_sub(2);
    let row = |(i, knot): (usize, &Knot)| Estimate {
        counter: knot.counter,
        offset_ns: origin + (knot.offset_ns - nominal * frame.x(knot.counter)),
        rate_ppm: knots.windows(2).nth(i.min(last)).map_or(0.0, rate),
        err_ns: knot.err_ns,
    };
    knots.iter().enumerate().map(row).collect()
}

/// What [`Frequency::scale`] cuts off, in nanoseconds.
fn fraction(frequency: Frequency, counter: Counter) -> f64 {
    let rest = u128::from(counter.0) * 1_000_000_000 % u128::from(frequency.hz());
    rest as f64 / frequency.hz() as f64
}
