//! Both estimators against the truth.

use std::fmt;

use loopscope_clocksync::offline::{DEFAULT_WANDER, Disturbance, solve};
use loopscope_clocksync::online::{Change, Online, What};
use loopscope_clocksync::state::{State, Status};
use loopscope_time::{Counter, GlobalNs};

use crate::scenario::{self, Follower, HZ, Random, Scenario, frequency};

/// How often what is known online is published without an exchange, in ticks.
const PUBLISHED: u64 = HZ / 20;

/// Errors of one estimator in a scenario.
#[derive(Default)]
pub struct Score {
    /// Instants that were asked for.
    pub instants: usize,
    /// Instants at which the estimate was unknown.
    pub unknown: usize,
    /// And those of which that was said afterwards.
    pub withdrawn: usize,
    /// Instants whose true time was outside the hard width.
    pub violations: usize,
    /// Errors at the instants with an estimate, ascending, ns.
    pub errors: Vec<f64>,
    hard: Vec<f64>,
    calibrated: Vec<f64>,
    covered: usize,
}

impl Score {
    fn add(&mut self, truth: GlobalNs, best: (GlobalNs, f64), reach: [f64; 2], calibrated: f64) {
        let error = (best.0 - truth) as f64 + best.1;
        // Synthetic clocks are cut to whole ticks on both sides, and the truth to whole
        // nanoseconds.
        let cut = 2.0;
        let [below, above] = reach;
        self.violations += usize::from(error > below + cut || -error > above + cut);
        self.covered += usize::from(error.abs() <= calibrated + cut);
        self.errors.push(error.abs());
        self.hard.push(0.5 * (below + above));
        self.calibrated.push(calibrated);
    }

    fn finish(&mut self) {
        for all in [&mut self.errors, &mut self.hard, &mut self.calibrated] {
            all.sort_by(f64::total_cmp);
        }
    }

    pub fn quantile(&self, share: f64) -> f64 {
        of(&self.errors, share)
    }

    pub fn coverage(&self) -> f64 {
        self.covered as f64 / self.errors.len() as f64
    }

    pub fn hard(&self) -> f64 {
        of(&self.hard, 0.5)
    }

    pub fn calibrated(&self) -> f64 {
        of(&self.calibrated, 0.5)
    }
}

fn of(ascending: &[f64], share: f64) -> f64 {
    let last = ascending.len().saturating_sub(1);
    ascending.get((last as f64 * share) as usize).copied().unwrap_or(f64::NAN)
}

/// A row of the table, its cells right-aligned under those of [`HEAD`].
impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, p999, max] = [0.5, 0.99, 0.999, 1.0].map(|share| self.quantile(share));
        write!(
            f,
            "{:>8} {:>7} {:>9} {:>10} {p50:>8.0} {p99:>8.0} {p999:>8.0} {max:>8.0} {:>9.0} {:>10.0} \
             {:>8.1}%",
            self.instants,
            self.unknown,
            self.withdrawn,
            self.violations,
            self.hard(),
            self.calibrated(),
            100.0 * self.coverage(),
        )
    }
}

pub const HEAD: &str = "instants unknown withdrawn violations      p50      p99     p999      max      hard calibrated  covered";

/// What a scenario gives.
pub struct Scored {
    pub offline: Score,
    pub online: Score,
    pub disturbances: Vec<Disturbance>,
    pub rejected: usize,
    pub changes: Vec<Change>,
    /// Readings of the followers' own counters right before and right after they were disturbed.
    pub disturbed: Vec<[Counter; 2]>,
}

/// Scores a scenario at `instants` of its time, and the tenth before and after it.
pub fn score(scenario: &Scenario, seed: u64, instants: usize) -> Scored {
    let mut scored = Scored {
        offline: Score::default(),
        online: Score::default(),
        disturbances: Vec::new(),
        rejected: 0,
        changes: Vec::new(),
        disturbed: Vec::new(),
    };
    for follower in scenario.run(seed) {
        let length = follower.end.0 - follower.begin.0;
        let mut random = Random(seed);
        let mut at: Vec<Counter> = (0..instants / scenario.followers)
            .map(|_| Counter(follower.begin.0 + random.between(0.0, length as f64) as u64))
            .collect();
        at.sort();
        scored.disturbed.extend(scenario.step.map(|(second, ..)| {
            let step = scenario::at(second * 1e9);
            [Counter(step.0 - 1), step].map(|at| follower.own.apply(at))
        }));
        scored.offline(&follower, &at);
        scored.online(&follower, &at);
    }
    scored.offline.finish();
    scored.online.finish();
    scored
}

/// Own counter and true global time at a true counter.
fn truth(follower: &Follower, at: Counter) -> (Counter, GlobalNs) {
    (follower.own.apply(at), frequency().scale(follower.reference.apply(at)))
}

impl Scored {
    fn offline(&mut self, follower: &Follower, at: &[Counter]) {
        let solution =
            solve(&follower.exchanges, &[], frequency(), frequency(), DEFAULT_WANDER).unwrap();
        let score = &mut self.offline;
        for &at in at {
            let (own, truth) = truth(follower, at);
            let (global, bound) = solution.map.map(own);
            score.instants += 1;
            if !bound.is_known() {
                score.unknown += 1;
                continue;
            }
            let calibrated = solution.map.calibrated(own).ns() as f64;
            score.add(truth, (global, 0.0), [bound.ns() as f64; 2], calibrated);
        }
        self.disturbances.extend(solution.disturbances);
        self.rejected += solution.rejected.len();
    }

    /// Reads what would be on a page: the state after each exchange, and one now and then without.
    fn online(&mut self, follower: &Follower, at: &[Counter]) {
        let mut online = Online::follower(frequency(), frequency(), DEFAULT_WANDER);
        let mut next = follower.completed.iter().peekable();
        let mut page = (Counter(0), online.state(follower.own.apply(follower.begin)));
        let mut read = Vec::new();
        let mut changes = Vec::new();
        for &at in at {
            while let Some((when, exchange)) = next.next_if(|(when, _)| *when <= at) {
                online.see(exchange);
                changes.extend(online.changes());
                page = (*when, online.state(follower.own.apply(*when)));
            }
            while page.0.0 + PUBLISHED < at.0 && page.0.0 > 0 {
                page.0.0 += PUBLISHED;
                page.1 = online.state(follower.own.apply(page.0));
            }
            let (own, truth) = truth(follower, at);
            read.push((own, truth, page.1.epoch, reading(&page.1, own)));
        }
        let score = &mut self.online;
        for (own, truth, told_in, reading) in read {
            score.instants += 1;
            let withdrawn = changes.iter().any(|change: &Change| match change.what {
                What::Disturbed { epoch, .. } => told_in < epoch && own >= change.from,
                _ => false,
            });
            match reading {
                None => score.unknown += 1,
                Some(_) if withdrawn => score.withdrawn += 1,
                Some((best, reach, calibrated)) => score.add(truth, best, reach, calibrated),
            }
        }
        self.changes.extend(changes);
    }
}

type Reading = ((GlobalNs, f64), [f64; 2], f64);

/// What a state says of a reading of the counter, as its documentation has it.
fn reading(state: &State, own: Counter) -> Option<Reading> {
    if state.status == Status::Unknown || own > state.expires {
        return None;
    }
    let ns = own.ticks_since(state.anchor) as f64 * state.ns_per_tick;
    let wider = ns.abs() * state.drift;
    let reach = [state.below_ns + wider, state.above_ns + wider];
    Some(((state.global, state.fraction_ns + ns), reach, state.calibrated_ns))
}
