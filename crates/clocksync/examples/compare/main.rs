//! Probe logs through this estimator and through others, for `bench/clock`: errors against the
//! hidden clocks, as JSON.
//!
//! ```text
//! compare [SCENARIO…]            virtual logs, all scenarios or some
//! compare HOSTS REFERENCE SEED   logs of a run: its hosts/ directory, the reference's name, and
//!                                the seed of its synthetic clocks
//! ```

mod min_rtt;
mod radclock;
#[path = "../../tests/scenario/mod.rs"]
mod scenario;

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use loopscope_clocksync::exchange::Exchange;
use loopscope_clocksync::log::{ProbeLog, join};
use loopscope_clocksync::offline::{DEFAULT_WANDER, solve};
use loopscope_clocksync::online::{Online, What};
use loopscope_clocksync::synthetic::SyntheticClock;
use loopscope_time::{Counter, Frequency, GlobalNs};

use min_rtt::MinRtt;
use radclock::RadClock;
use scenario::{Random, SCENARIOS};
use serde_json::{Value, json};

/// Instants that are asked for; scored are those of which everybody says something.
const INSTANTS: usize = 100_000;
/// Instants at which both estimators are given what came before.
const ENDS: u64 = 300;
/// Before the first of them, as before an experiment's measured phase.
const SETTLING_S: u64 = 2;

/// An exchange with all its stamps: follower's ticks, and by how many nanoseconds the reference has
/// gained on the follower at nominal rates, of probe and reply.
#[derive(Clone, Copy)]
pub struct Sample {
    forward: (f64, f64),
    back: (f64, f64),
}

impl Sample {
    fn x(&self) -> f64 {
        0.5 * (self.forward.0 + self.back.0)
    }

    fn offset(&self) -> f64 {
        0.5 * (self.forward.1 + self.back.1)
    }

    fn round_trip(&self) -> f64 {
        self.forward.1 - self.back.1
    }
}

/// Another way to make a clock of samples.
pub trait Peer {
    /// Takes in an exchange.
    fn see(&mut self, sample: Sample);

    /// By how many nanoseconds the reference has gained at `x`.
    fn at(&self, x: f64) -> Option<f64>;
}

/// A follower's exchanges, and the truth about it.
struct Log {
    name: String,
    /// With everything that both logs hold.
    exchanges: Vec<Exchange>,
    /// Answered exchanges with what the follower knows of them, each at the true counter at which
    /// it knows it.
    completed: Vec<(Counter, Exchange)>,
    own: SyntheticClock,
    reference: SyntheticClock,
    frequencies: [Frequency; 2],
    /// True counters between which the clocks are asked.
    begin: Counter,
    end: Counter,
}

impl Log {
    fn sample(&self, exchange: &Exchange, begin: [Counter; 2]) -> Option<Sample> {
        let point = |own: loopscope_clocksync::Span, reference: loopscope_clocksync::Span| {
            let ticks = |span: loopscope_clocksync::Span, begin: Counter| {
                0.5 * (span.lo.ticks_since(begin) + span.hi.ticks_since(begin) + 1) as f64
            };
            let (x, r) = (ticks(own, begin[0]), ticks(reference, begin[1]));
            let [own, reference] = self.frequencies.map(Frequency::ns_per_tick);
            (x, r * reference - x * own)
        };
        let Exchange { t1, t2, t3, t4, .. } = *exchange;
        Some(Sample { forward: point(t1?, t2?), back: point(t4?, t3?) })
    }

    /// Errors of both estimators at the end of what they were given, at [`ENDS`] instants: the
    /// offline one anew with all exchanges until then, the online one with one after the other.
    fn at_the_end(&self) -> Value {
        let [own_hz, reference_hz] = self.frequencies;
        let from = self.begin.0 + SETTLING_S * own_hz.hz();
        let mut online = Online::follower(own_hz, reference_hz, DEFAULT_WANDER);
        let mut next = self.completed.iter().peekable();
        let (mut seen, mut errors) = (Vec::new(), [Vec::new(), Vec::new()]);
        for end in 1..=ENDS {
            let at = Counter(from + (self.end.0 - from) / ENDS * end);
            while let Some((_, exchange)) = next.next_if(|(when, _)| *when <= at) {
                online.see(exchange);
                seen.push(*exchange);
            }
            let own = self.own.apply(at);
            let truth = reference_hz.scale(self.reference.apply(at));
            let solved = solve(&seen, &[], own_hz, reference_hz, DEFAULT_WANDER).ok();
            let offline = solved.map(|solution| solution.map.map(own));
            let offline = offline.filter(|(_, bound)| bound.is_known());
            if let (Some((offline, _)), Some((online, _))) = (offline, online.to_global(own)) {
                errors[0].push((offline - truth).abs() as f64);
                errors[1].push((online - truth).abs() as f64);
            }
        }
        let instants = errors[0].len();
        let [offline, online] = errors.each_mut().map(|errors| quantiles(errors));
        let of = |[p50, p99, ..]: [f64; 4]| json!({"p50_ns": p50, "p99_ns": p99});
        json!({"instants": instants, "offline": of(offline), "online": of(online)})
    }

    fn compare(&self) -> Result<Value, Box<dyn Error>> {
        let [own_hz, reference_hz] = self.frequencies;
        let complete = self.completed.iter().find_map(|(_, e)| Some([e.t1?.lo, e.t2?.lo]));
        let begin = complete.ok_or("no exchange is complete")?;
        let from = self.begin.0 + SETTLING_S * own_hz.hz();
        let length = self.end.0.checked_sub(from).ok_or("the log is too short")? as f64;
        let mut random = Random(1);
        let mut instants: Vec<Counter> =
            (0..INSTANTS).map(|_| Counter(from + random.between(0.0, length) as u64)).collect();
        instants.sort();

        let started = Instant::now();
        let solution = solve(&self.exchanges, &[], own_hz, reference_hz, DEFAULT_WANDER)?;
        let offline_ms = milliseconds(started.elapsed());
        let mut online_time = Duration::ZERO;
        let mut online = Online::follower(own_hz, reference_hz, DEFAULT_WANDER);
        let mut peers: [Box<dyn Peer>; 2] =
            [Box::new(MinRtt::default()), Box::new(RadClock::new(own_hz.hz() as f64))];
        let mut errors: [Vec<f64>; 4] = Default::default();
        let mut violations = [0, 0];
        let (mut covered, mut widths) = (0, [Vec::new(), Vec::new()]);
        let mut next = self.completed.iter().peekable();
        let begin_ns = reference_hz.scale(begin[1]);
        for at in instants {
            let own = self.own.apply(at);
            let truth = reference_hz.scale(self.reference.apply(at));
            while let Some((_, exchange)) = next.next_if(|(when, _)| *when <= at) {
                let started = Instant::now();
                online.see(exchange);
                online_time += started.elapsed();
                if let Some(sample) = self.sample(exchange, begin) {
                    peers.iter_mut().for_each(|peer| peer.see(sample));
                }
            }
            let (global, bound) = solution.map.map(own);
            if bound.is_known() {
                let calibrated = solution.map.calibrated(own).ns();
                covered += usize::from((global - truth).unsigned_abs() <= calibrated + 2);
                widths[0].push(bound.ns() as f64);
                widths[1].push(calibrated as f64);
                violations[0] += usize::from((global - truth).unsigned_abs() > bound.ns() + 2);
            }
            let told = online.to_global(own);
            if let Some((global, bound)) = told {
                violations[1] += usize::from((global - truth).unsigned_abs() > bound.ns() + 2);
            }
            let x = own.ticks_since(begin[0]) as f64;
            let [chrony, radclock] = peers.each_ref().map(|peer| {
                let ns = x * own_hz.ns_per_tick() + peer.at(x)?;
                Some(GlobalNs(begin_ns.0 + ns.round() as i64))
            });
            let offline = bound.is_known().then_some(global);
            if let [Some(a), Some(b), Some(c), Some(d)] =
                [offline, told.map(|told| told.0), chrony, radclock]
            {
                for (errors, told) in errors.iter_mut().zip([a, b, c, d]) {
                    errors.push((told - truth).abs() as f64);
                }
            }
        }
        let known = widths[0].len();
        let [hard, calibrated] = widths.each_mut().map(|widths| quantiles(widths)[0]);
        let [offline, online_errors, chrony, radclock] = errors.each_mut().map(|errors| {
            let [p50, p99, p999, max] = quantiles(errors);
            json!({"p50_ns": p50, "p99_ns": p99, "p999_ns": p999, "max_ns": max})
        });
        let changes = online.changes();
        let paths = changes.iter().filter(|c| matches!(c.what, What::Path { .. }));
        Ok(json!({
            "name": self.name,
            "exchanges": self.completed.len(),
            "instants": errors[0].len(),
            "rejected": solution.rejected.len(),
            "disturbances": solution.disturbances.len(),
            "errors": {
                "offline": offline, "online": online_errors,
                "chrony": chrony, "radclock": radclock,
            },
            "at_the_end": self.at_the_end(),
            "milliseconds": {"offline": offline_ms, "online": milliseconds(online_time)},
            "hard_half_width_ns": hard,
            "calibrated_half_width_ns": calibrated,
            "calibrated_coverage": covered as f64 / known as f64,
            "violations": {"offline": violations[0], "online": violations[1]},
            "path_changes": paths.map(|change| change.what.to_string()).collect::<Vec<String>>(),
        }))
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn quantiles(values: &mut [f64]) -> [f64; 4] {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1) as f64;
    [0.5, 0.99, 0.999, 1.0]
        .map(|share| values.get((share * last) as usize).copied().unwrap_or(f64::NAN))
}

fn recorded(hosts: &Path, reference: &str, seed: u64) -> Result<Vec<Log>, Box<dyn Error>> {
    let reference_log = ProbeLog::read(&hosts.join(reference).join("clock/probes"))?;
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(hosts)? {
        let host = entry?.file_name().to_string_lossy().into_owned();
        let probes = hosts.join(&host).join("clock/probes");
        if host == reference || !probes.is_dir() {
            continue;
        }
        let log = ProbeLog::read(&probes)?;
        let exchanges = join(&log, &reference_log).exchanges;
        let own = SyntheticClock::new(seed, &host);
        let mut completed: Vec<(Counter, Exchange)> =
            exchanges.iter().filter_map(|e| Some((own.invert(e.t4?.hi), *e))).collect();
        completed.sort_by_key(|(when, _)| *when);
        let [Some((_, first)), Some((end, _))] = [completed.first(), completed.last()] else {
            return Err(format!("{host} has no answer").into());
        };
        let begin = first.t1.or(first.t4).map_or(*end, |span| own.invert(span.lo));
        logs.push(Log {
            begin,
            end: *end,
            exchanges,
            completed,
            own,
            reference: SyntheticClock::new(seed, reference),
            frequencies: [log.identity.frequency, reference_log.identity.frequency],
            name: host,
        });
    }
    Ok(logs)
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let logs = match &words[..] {
        [hosts, reference, seed] if Path::new(hosts).is_dir() => {
            recorded(Path::new(hosts), reference, seed.parse()?)?
        }
        names => {
            let wanted =
                |s: &&scenario::Scenario| names.is_empty() || names.iter().any(|n| n == s.name);
            let logs = SCENARIOS.iter().filter(wanted).flat_map(|scenario| {
                scenario.run(1).into_iter().take(1).map(|follower| Log {
                    name: scenario.name.to_owned(),
                    exchanges: follower.exchanges,
                    completed: follower.completed,
                    own: follower.own,
                    reference: follower.reference,
                    frequencies: [scenario::frequency(); 2],
                    begin: follower.begin,
                    end: follower.end,
                })
            });
            logs.collect()
        }
    };
    if logs.is_empty() {
        return Err("no log of that name: scenarios are those of virtual_time.txt".into());
    }
    let compared: Vec<Value> = logs.iter().map(Log::compare).collect::<Result<_, _>>()?;
    println!("{}", Value::Array(compared));
    Ok(())
}
