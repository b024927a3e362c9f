//! Errors and widths at very many instants.

use fastrand::Rng;
use loopscope_clocksync::Span;
use loopscope_clocksync::log::{ProbeLog, join};
use loopscope_clocksync::online::{Change, What};
use loopscope_clocksync::state::{State, Status};
use loopscope_clocksync::synthetic::SyntheticClock;
use loopscope_time::{Bound, ClockMap, Counter, Frequency, GlobalNs};

use super::follower::Published;

/// The global clock, as nobody but the scorer knows it: the reference's hidden counter, scaled by
/// its nominal frequency.
#[derive(Clone, Copy)]
pub(super) struct Truth {
    pub(super) reference: SyntheticClock,
    pub(super) frequency: Frequency,
}

impl Truth {
    /// How far the estimate for the true counter `at` is after the truth, in ns.
    pub(super) fn error(&self, at: Counter, estimate: GlobalNs, fraction: f64) -> f64 {
        let hz = u128::from(self.frequency.hz());
        let scaled = u128::from(self.reference.apply(at).0) * 1_000_000_000;
        // A counter of 64 bits makes fewer than 2^63 ns at more than 2 GHz, and runs are young.
        let whole = (scaled / hz) as i64;
        (estimate.0 - whole) as f64 + fraction - (scaled % hz) as f64 / hz as f64
    }

    /// What hidden clocks, cut to whole ticks, make uncertain about the truth: one on each side.
    pub(super) fn cut(&self) -> f64 {
        2.0 * self.frequency.ns_per_tick()
    }
}

/// The reported estimate for one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    pub(super) error_ns: f64,
    /// How far after the estimate the truth may be, and how far before it, in ns.
    pub(super) above_ns: f64,
    pub(super) below_ns: f64,
    pub(super) calibrated_ns: f64,
}

impl Estimate {
    pub(super) fn half_width_ns(&self) -> f64 {
        0.5 * (self.above_ns + self.below_ns)
    }
}

/// Errors and widths of all estimates of one side.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    errors: Vec<f64>,
    widths: Vec<f64>,
    calibrated: Vec<f64>,
    covered: u64,
    /// Hard bounds that were wrong.
    pub(super) violations: u64,
    /// The first of them, for people.
    pub(super) first_violation: Option<String>,
    /// Instants without an estimate.
    pub(super) unknown: u64,
    /// Instants with an estimate from before a disturbance was noticed that was reported to have
    /// come earlier.
    pub(super) withdrawn: u64,
}

impl Tally {
    pub(super) fn take(&mut self, estimate: Estimate, cut_ns: f64, place: impl FnOnce() -> String) {
        self.errors.push(estimate.error_ns.abs());
        self.widths.push(estimate.half_width_ns());
        self.calibrated.push(estimate.calibrated_ns);
        self.covered += u64::from(estimate.error_ns.abs() <= estimate.calibrated_ns);
        // The truth is `error` before the estimate.
        if estimate.error_ns > estimate.below_ns + cut_ns
            || -estimate.error_ns > estimate.above_ns + cut_ns
        {
            self.violations += 1;
            self.first_violation.get_or_insert_with(|| format!("{}: {estimate:?}", place()));
        }
    }

    pub(super) fn add(&mut self, other: Tally) {
        self.errors.extend(other.errors);
        self.widths.extend(other.widths);
        self.calibrated.extend(other.calibrated);
        self.covered += other.covered;
        self.violations += other.violations;
        self.first_violation = self.first_violation.take().or(other.first_violation);
        self.unknown += other.unknown;
        self.withdrawn += other.withdrawn;
    }

    pub(super) fn figures(mut self) -> Figures {
        let known = self.errors.len();
        Figures {
            error: Spread::of(&mut self.errors),
            hard_half_width_ns: Spread::of(&mut self.widths).p50_ns,
            calibrated_half_width_ns: Spread::of(&mut self.calibrated).p50_ns,
            calibrated_coverage: self.covered as f64 / known as f64,
            known,
            violations: self.violations,
            first_violation: self.first_violation,
            unknown: self.unknown,
            withdrawn: self.withdrawn,
        }
    }
}

/// Figures of a [`Tally`]. Maximum errors are medians. Not a number where nothing was known.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub(super) error: Spread,
    pub(super) hard_half_width_ns: f64,
    pub(super) calibrated_half_width_ns: f64,
    pub(super) calibrated_coverage: f64,
    pub(super) known: usize,
    pub(super) violations: u64,
    pub(super) first_violation: Option<String>,
    pub(super) unknown: u64,
    pub(super) withdrawn: u64,
}

impl Figures {
    /// All that were asked for.
    pub(super) fn instants(&self) -> u64 {
        self.known as u64 + self.unknown + self.withdrawn
    }
}

/// Percentiles of absolute values, by nearest rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    pub(super) p50_ns: f64,
    pub(super) p99_ns: f64,
    pub(super) p999_ns: f64,
    pub(super) max_ns: f64,
}

impl Spread {
    pub(super) fn of(values: &mut [f64]) -> Spread {
        values.sort_unstable_by(f64::total_cmp);
        let rank = |part: f64| {
            let rank = (values.len() as f64 * part).ceil() as usize;
            values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
        };
        Spread { p50_ns: rank(0.5), p99_ns: rank(0.99), p999_ns: rank(0.999), max_ns: rank(1.0) }
    }
}

/// An instant of one host, for a figure.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) host: String,
    pub(super) time_s: f64,
    pub(super) offline: Option<Estimate>,
    pub(super) online: Option<Estimate>,
}

/// Data by which one follower's instants are scored.
pub(super) struct Sides<'a> {
    pub(super) host: &'a str,
    pub(super) clock: SyntheticClock,
    pub(super) map: &'a ClockMap,
    pub(super) published: &'a Published,
    pub(super) truth: Truth,
}

impl Sides<'_> {
    /// Scores `count` instants between two true counters; every so many of them are samples.
    pub(super) fn score(
        &self,
        (begin, end): (Counter, Counter),
        count: u64,
        random: &mut Rng,
        samples: &mut Vec<Sample>,
    ) -> [Tally; 2] {
        const SAMPLES: u64 = 4_000;
        let [mut offline, mut online] = [Tally::default(), Tally::default()];
        let cut = self.truth.cut();
        let every = count.div_ceil(SAMPLES).max(1);
        for number in 0..count {
            let at = Counter(random.u64(begin.0..end.0));
            let time_s = at.ticks_since(begin) as f64 / self.truth.frequency.hz() as f64;
            let place = |side: &str| format!("{side}, {} at {time_s:.6} s", self.host);
            let own = self.clock.apply(at);
            let mapped = self.offline(at, own);
            match mapped {
                Some(estimate) => offline.take(estimate, cut, || place("offline")),
                None => offline.unknown += 1,
            }
            let estimate = self.online(at, own);
            match estimate {
                Online::Estimate(estimate) => online.take(estimate, cut, || place("online")),
                Online::Unknown => online.unknown += 1,
                Online::Withdrawn => online.withdrawn += 1,
            }
            if number % every == 0 {
                let online =
                    if let Online::Estimate(estimate) = estimate { Some(estimate) } else { None };
                let host = self.host.to_owned();
                samples.push(Sample { host, time_s, offline: mapped, online });
            }
        }
        [offline, online]
    }

    fn offline(&self, at: Counter, own: Counter) -> Option<Estimate> {
        let (global, bound) = self.map.map(own);
        let calibrated: Bound = self.map.calibrated(own);
        bound.is_known().then(|| Estimate {
            error_ns: self.truth.error(at, global, 0.0),
            above_ns: bound.ns() as f64,
            below_ns: bound.ns() as f64,
            calibrated_ns: calibrated.ns() as f64,
        })
    }

    fn online(&self, at: Counter, own: Counter) -> Online {
        let published = self.published.states.partition_point(|(published, _)| *published <= at);
        let Some((_, state)) = published.checked_sub(1).map(|last| &self.published.states[last])
        else {
            return Online::Unknown;
        };
        if state.status == Status::Unknown || own >= state.expires {
            return Online::Unknown;
        }
        if self.published.changes.iter().any(|(_, change)| withdraws(change, state, own)) {
            return Online::Withdrawn;
        }
        let ns = own.ticks_since(state.anchor) as f64 * state.ns_per_tick;
        let grown = ns.abs() * state.drift;
        Online::Estimate(Estimate {
            error_ns: self.truth.error(at, state.global, state.fraction_ns + ns),
            above_ns: state.above_ns + grown,
            below_ns: state.below_ns + grown,
            calibrated_ns: state.calibrated_ns,
        })
    }
}

#[derive(Clone, Copy)]
enum Online {
    Estimate(Estimate),
    Unknown,
    Withdrawn,
}

/// Whether a disturbance that was noticed later says that `state` does not hold at `own`.
fn withdraws(change: &Change, state: &State, own: Counter) -> bool {
    matches!(change.what, What::Disturbed { epoch, .. } if state.epoch < epoch && own > change.from)
}

/// Half the difference of the delays of the two ways, ns, of each exchange that is in both logs:
/// what an estimator would be off that took it by itself.
pub(super) fn noise(
    follower: (&ProbeLog, SyntheticClock),
    reference: (&ProbeLog, SyntheticClock),
) -> Vec<f64> {
    let ns_per_tick = reference.0.identity.frequency.ns_per_tick();
    let middle = |clock: SyntheticClock, span: Option<Span>| {
        let Span { lo, hi } = span?;
        let [lo, hi] = [lo, hi].map(|end| clock.invert(end).0 as i64);
        Some(lo + (hi - lo) / 2)
    };
    let exchanges = join(follower.0, reference.0).exchanges;
    let halves = exchanges.iter().filter_map(|exchange| {
        let (sent, received) =
            (middle(follower.1, exchange.t1)?, middle(reference.1, exchange.t2)?);
        let (replied, returned) =
            (middle(reference.1, exchange.t3)?, middle(follower.1, exchange.t4)?);
        let (there, back) = (received - sent, returned - replied);
        Some(0.5 * (there - back).abs() as f64 * ns_per_tick)
    });
    halves.collect()
}
