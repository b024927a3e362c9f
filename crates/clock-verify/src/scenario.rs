//! The scenarios: what happens in each, what is expected, and what came of it.

mod expected;

use std::time::Duration;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use loopscope_clocksync::log::{ProbeLog, solve_run};
use loopscope_clocksync::offline::{self, DEFAULT_WANDER};
use loopscope_clocksync::online::{Change, What};
use loopscope_time::Counter;

use super::bed::{REFERENCE, probes};
use super::follower::Published;
use super::measure::{self, ASYMMETRY, Event, SMALL_STEP, STEP};
use super::mesh::Loops;
use super::score::{Figures, Sample, Sides, Spread, Tally, Truth, noise};
use super::{Run, holdover};
use expected::Expected;

/// Scored instants of a scenario, by each of the two sides.
const INSTANTS: u64 = 1_000_000;
/// The largest median calibrated error bound, in median errors.
const CALIBRATED_TO_ERROR: f64 = 5.0;
/// Measured time on one testbed where there are several. What makes the two ways unlike is alike
/// for the whole life of a testbed, and so is most of the error: how wide the calibrated error
/// bound is compared with it needs several.
const BED: Duration = Duration::from_secs(12);
/// Probes that may get lost where nothing is wrong.
const ORDINARY_LOSS: f64 = 0.01;

/// A scenario.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    course: Course,
    /// Limit of the 99.9th percentile of the error, offline and online, ns.
    error_ns: Option<[f64; 2]>,
    /// Limit of the median hard maximum error of both, ns.
    half_width_ns: Option<f64>,
}

enum Course {
    /// So many followers, and what happens.
    Probing(usize, Event),
    Holdover,
}

/// All of them.
pub(super) const ALL: [Scenario; 11] = [
    Scenario {
        name: "idle",
        about: "two hosts, nothing else",
        course: Course::Probing(1, Event::Calm),
        error_ns: Some([100.0, 300.0]),
        half_width_ns: Some(1000.0),
    },
    Scenario {
        name: "loaded",
        about: "every processor busy, and a TCP stream that fills the data network",
        course: Course::Probing(1, Event::Load),
        error_ns: Some([250.0, 1000.0]),
        half_width_ns: None,
    },
    Scenario {
        name: "eight",
        about: "eight hosts, which all probe each other",
        course: Course::Probing(7, Event::Calm),
        error_ns: Some([200.0, 600.0]),
        half_width_ns: None,
    },
    Scenario {
        name: "lossy",
        about: "30 % of the packets lost on each side, 5 % overtaken, 10 % of the stamps lost",
        course: Course::Probing(1, Event::Loss),
        error_ns: Some([300.0, 1000.0]),
        half_width_ns: None,
    },
    Scenario {
        name: "asymmetry",
        about: "replies take 100 us longer, through a host that hands probes on",
        course: Course::Probing(1, Event::Asymmetry),
        error_ns: None,
        half_width_ns: None,
    },
    Scenario {
        name: "asymmetry-step",
        about: "replies take 100 us longer from the middle on, through a host that hands probes on",
        course: Course::Probing(1, Event::AsymmetryStep),
        error_ns: None,
        half_width_ns: None,
    },
    Scenario {
        name: "holdover",
        about: "the reference stopped; the follower's daemon stopped, killed and started anew",
        course: Course::Holdover,
        error_ns: None,
        half_width_ns: None,
    },
    Scenario {
        name: "counter-step",
        about: "the follower's counter jumps by 1 ms in the middle",
        course: Course::Probing(1, Event::CounterStep(STEP)),
        error_ns: None,
        half_width_ns: None,
    },
    Scenario {
        name: "small-step",
        about: "the follower's counter jumps by 300 us, less than the round trip of 400 us",
        course: Course::Probing(1, Event::CounterStep(SMALL_STEP)),
        error_ns: None,
        half_width_ns: None,
    },
    Scenario {
        name: "rate-step",
        about: "the rate of the follower's counter rises by 100 ppm in the middle",
        course: Course::Probing(1, Event::RateStep),
        error_ns: None,
        half_width_ns: None,
    },
    Scenario {
        name: "forged",
        about: "10000 forged and replayed packets a second from a host on the probes' way",
        course: Course::Probing(1, Event::Attack),
        error_ns: None,
        half_width_ns: None,
    },
];

/// The scenario of this name, or what to say.
pub(super) fn named(name: &str) -> Result<&'static Scenario, String> {
    ALL.iter().find(|scenario| scenario.name == name).ok_or_else(|| {
        let nearest = ALL.iter().min_by_key(|scenario| distance(scenario.name, name));
        let names: Vec<&str> = ALL.iter().map(|scenario| scenario.name).collect();
        let meant = nearest.map_or("", |scenario| scenario.name);
        format!("no scenario {name}: did you mean {meant}? There are {}", names.join(", "))
    })
}

/// Insertions, deletions and replacements from one to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

/// A figure and what it shall not exceed, in ns.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) what: String,
    pub(super) value_ns: f64,
    pub(super) limit_ns: f64,
}

impl Target {
    /// A figure that could not be had is none.
    pub(super) fn is_met(&self) -> bool {
        self.value_ns <= self.limit_ns
    }
}

/// Something that has to be so, apart from how right the clocks are.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) what: String,
    pub(super) met: bool,
}

/// The result of a scenario.
pub(super) struct Outcome {
    pub(super) name: &'static str,
    /// Testbeds that it is of, one after the other.
    pub(super) beds: u32,
    pub(super) offline: Figures,
    pub(super) online: Figures,
    /// Where followers probe each other.
    pub(super) loops: Option<Loops>,
    /// Errors of single exchanges, without any estimator.
    pub(super) noise: Spread,
    pub(super) targets: Vec<Target>,
    pub(super) checks: Vec<Check>,
    pub(super) changes: Vec<String>,
    pub(super) samples: Vec<Sample>,
}

/// Figures that testbeds add to an outcome.
#[derive(Default)]
struct Scored {
    offline: Tally,
    online: Tally,
    loops: Option<Loops>,
    /// See [`Outcome::noise`].
    alone: Vec<f64>,
    targets: Vec<Target>,
    checks: Vec<Check>,
    changes: Vec<String>,
    samples: Vec<Sample>,
}

impl Outcome {
    /// Hard bounds that were wrong, and loops that contradict themselves.
    pub(super) fn violations(&self) -> u64 {
        let loops = self.loops.as_ref().map_or(0, Loops::contradictions);
        self.offline.violations + self.online.violations + loops
    }

    pub(super) fn is_met(&self) -> bool {
        self.violations() == 0
            && self.targets.iter().all(Target::is_met)
            && self.checks.iter().all(|check| check.met)
    }
}

impl Scenario {
    pub(super) fn run(&self, run: &Run) -> Result<Outcome> {
        let mut outcome = match self.course {
            Course::Probing(followers, event) => self.probing(run, followers, event)?,
            Course::Holdover => self.holdover(run)?,
        };
        let sides = [("offline", &outcome.offline), ("online", &outcome.online)];
        for ((side, figures), number) in sides.into_iter().zip(0..) {
            let error_limit = self.error_ns.map(|limits| limits[number]);
            // Where the estimator can know how wrong it is.
            let calibrated_limit = error_limit.map(|_| CALIBRATED_TO_ERROR * figures.error.p50_ns);
            let figures = [
                ("error p99.9", figures.error.p999_ns, error_limit),
                ("hard maximum error", figures.hard_half_width_ns, self.half_width_ns),
                ("calibrated error bound", figures.calibrated_half_width_ns, calibrated_limit),
            ];
            for (what, value_ns, limit) in figures {
                let what = format!("{side} {what}");
                outcome.targets.extend(limit.map(|limit_ns| Target { what, value_ns, limit_ns }));
            }
        }
        Ok(outcome)
    }

    /// On how many testbeds, one after the other.
    fn beds(&self, duration: Duration) -> u32 {
        match self.course {
            Course::Probing(1, Event::Calm | Event::Load) => {
                (duration.as_secs_f64() / BED.as_secs_f64()).round().max(1.0) as u32
            }
            _ => 1,
        }
    }

    fn probing(&self, run: &Run, followers: usize, event: Event) -> Result<Outcome> {
        let beds = self.beds(run.duration);
        let mut scored = Scored::default();
        for number in 0..beds {
            if beds > 1 {
                eprintln!("  testbed {} of {beds}", number + 1);
            }
            self.bed(&run.part(number, beds), followers, event, (number, beds), &mut scored)?;
        }
        let Scored { offline, online, loops, mut alone, targets, mut checks, changes, samples } =
            scored;
        let offline = offline.figures();
        if event == Event::Asymmetry {
            // No estimator can tell it from an offset, and none may be believed to.
            let half = ASYMMETRY.as_nanos() as f64 / 2.0;
            let met = (offline.error.p50_ns - half).abs() < 0.2 * half;
            checks.push(Check { what: "the error is half of the asymmetry".into(), met });
        }
        Ok(Outcome {
            name: self.name,
            beds,
            offline,
            online: online.figures(),
            loops,
            noise: Spread::of(&mut alone),
            targets,
            checks,
            changes,
            samples,
        })
    }

    /// One testbed, and which of how many it is.
    fn bed(
        &self,
        run: &Run,
        followers: usize,
        event: Event,
        (number, beds): (u32, u32),
        scored: &mut Scored,
    ) -> Result<()> {
        let measured = measure::measure(run, followers, event)?;
        eprintln!("  scoring");
        let solved = solve_run(&measured.hosts(), REFERENCE, DEFAULT_WANDER)?;
        let reference_log = ProbeLog::read(&probes(&measured.hosts(), REFERENCE))?;
        let truth = Truth { reference: measured.reference, frequency: measured.frequency() };
        let mut random = Rng::with_seed(run.seed);
        let mut samples = Vec::new();
        let count = INSTANTS.div_ceil(followers as u64 * u64::from(beds));
        for (name, ended) in &measured.followers {
            run.check()?;
            let clock = solved.get(name).context("a follower has no map")?;
            let published = &ended.published;
            let sides = Sides { host: name, clock: ended.clock, map: &clock.map, published, truth };
            let stretch = (measured.begin, measured.end);
            let [off, on] = sides.score(stretch, count, &mut random, &mut samples);
            if beds > 1 {
                for (side, tally) in [("offline", &off), ("online", &on)] {
                    let of = tally.clone().figures();
                    eprintln!(
                        "  {name}, {side}: error p50 {:.0} ns, calibrated +-{:.0} ns covers {:.0} %",
                        of.error.p50_ns,
                        of.calibrated_half_width_ns,
                        100.0 * of.calibrated_coverage
                    );
                }
            }
            scored.offline.add(off);
            scored.online.add(on);
            let log = ProbeLog::read(&probes(&measured.hosts(), name))?;
            scored.alone.extend(noise((&log, ended.clock), (&reference_log, measured.reference)));
            let found = |disturbance: &offline::Disturbance| {
                format!("{name}, offline: {}", disturbance.cause)
            };
            scored.changes.extend(clock.disturbances.iter().map(found));
            let told = |(_, change): &(Counter, Change)| format!("{name}, online: {}", change.what);
            scored.changes.extend(published.changes.iter().map(told));
            let follower = Expected { name, ended, clock, measured: &measured };
            follower.check(event, &mut scored.checks);
            if event == Event::AsymmetryStep {
                let noticed =
                    published.changes.iter().find(|(_, c)| matches!(c.what, What::Path { .. }));
                let noticed = noticed.map_or(measured.end, |(at, _)| *at);
                let stretch = (noticed.min(Counter(measured.end.0 - 1)), measured.end);
                let [_, on] = sides.score(stretch, count / 10, &mut random, &mut Vec::new());
                let value_ns = on.figures().error.p999_ns;
                let what = "online error p99.9 after it was noticed".to_owned();
                scored.targets.push(Target { what, value_ns, limit_ns: 2000.0 });
            }
        }
        let loops = |seen| Loops::of(&measured.hosts(), &solved, seen);
        scored.loops = measured.seen.as_ref().map(loops).transpose()?;
        // One testbed after the other, as they were.
        let shown = f64::from(number) * run.duration.as_secs_f64();
        samples.iter_mut().for_each(|sample| sample.time_s += shown);
        scored.samples.append(&mut samples);
        Ok(())
    }

    fn holdover(&self, run: &Run) -> Result<Outcome> {
        let mut measured = holdover::measure(run)?;
        eprintln!("  scoring");
        let hosts = measured.bed.hosts();
        let solved = solve_run(&hosts, REFERENCE, DEFAULT_WANDER)?;
        let clock = solved.get("h2").context("the follower has no map")?;
        let frequency = measured.bed.frequency;
        let truth = Truth { reference: measured.reference, frequency };
        let published = Published::default();
        let sides = Sides {
            host: "h2",
            clock: measured.follower,
            map: &clock.map,
            published: &published,
            truth,
        };
        let mut random = Rng::with_seed(run.seed);
        let mut samples = std::mem::take(&mut measured.samples);
        let stretch = holdover::solved_stretch(&measured);
        let [offline, _] = sides.score(stretch, INSTANTS, &mut random, &mut samples);
        let logs = ["h2", REFERENCE].map(|name| ProbeLog::read(&probes(&hosts, name)));
        let [log, reference_log] = logs;
        let mut alone = noise((&log?, measured.follower), (&reference_log?, measured.reference));
        let right = |(what, wrong): &(&str, String)| Check {
            what: match wrong.as_str() {
                "" => format!("the page's status is right {what}"),
                wrong => format!("the page's status is right {what}: {wrong}"),
            },
            met: wrong.is_empty(),
        };
        let mut checks: Vec<Check> = measured.wrong.iter().map(right).collect();
        let what = "a daemon that is started anew begins an epoch".to_owned();
        checks.push(Check { what, met: measured.epochs[1] > measured.epochs[0] });
        let what = "no disturbance is found".to_owned();
        checks.push(Check { what, met: clock.disturbances.is_empty() });
        Ok(Outcome {
            name: self.name,
            beds: 1,
            offline: offline.figures(),
            online: std::mem::take(&mut measured.online).figures(),
            loops: None,
            noise: Spread::of(&mut alone),
            targets: Vec::new(),
            checks,
            changes: Vec::new(),
            samples,
        })
    }
}
