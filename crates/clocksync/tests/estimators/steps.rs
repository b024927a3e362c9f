//! Steps of a clock that are smaller than the hard interval, in virtual time, against the truth: they
//! contradict no message, and the hard bound holds all the same.

use crate::scenario::{self, Network, QUIET, Random, Scenario};
use crate::score::{HEAD, Scored, score};
use loopscope_clocksync::Span;
use loopscope_clocksync::exchange::Exchange;
use loopscope_clocksync::offline::{Cause, DEFAULT_WANDER, solve};
use loopscope_clocksync::online::{Online, What};
use loopscope_time::{Counter, Frequency};

const NETWORKS: [Network; 4] = [Network::Idle, Network::Loaded, Network::Cold, Network::ColdBusy];
/// What a path adds to the network's own delays, ns: far more than these scatter, and not; with two
/// equal ways, and not.
const PATHS: [[f64; 2]; 5] = [[100e3; 2], [20e3; 2], [5e3; 2], [20e3, 180e3], [150e3, 30e3]];
/// Steps in units of the shorter way.
const SIZES: [f64; 12] = [0.01, 0.1, 0.3, 0.6, 0.9, 1.0, 1.1, 1.25, 1.5, 1.9, 2.1, 3.0];

fn soak() -> bool {
    std::env::var_os("LOOPSCOPE_SOAK").is_some()
}

/// The follower's counter steps in mid-run, by so many ns; those of the reference have a minus.
fn stepping(network: Network, longer: [f64; 2], ns: f64, seed: u64) -> Scenario {
    let seconds = if soak() { 30.0 } else { 12.0 };
    let at = 0.5 * seconds + 0.0373 * (seed % 50) as f64;
    Scenario { name: "step", network, seconds, longer, step: Some((at, ns, 0)), ..QUIET }
}

fn told(scored: &Scored) -> Vec<Cause> {
    let cause = |change: &loopscope_clocksync::online::Change| match change.what {
        What::Disturbed { cause, .. } => Some(cause),
        _ => None,
    };
    scored.changes.iter().filter_map(cause).collect()
}

/// Whatever the size of a step is, no bound is wrong, offline or online; and where the step is no
/// smaller than what delays scatter, it is found once, where it was.
#[test]
fn no_step_makes_a_bound_wrong() {
    let (mut seed, mut scored_at_all) = (0, 0);
    for path in PATHS {
        let shorter = path[0].min(path[1]);
        for size in SIZES {
            for sign in [1.0, -1.0] {
                let ns = sign * size * shorter;
                for (number, network) in NETWORKS.into_iter().enumerate() {
                    seed += 1;
                    // Each size and path with one network, each network with many of both.
                    if !soak() && seed as usize / NETWORKS.len() % NETWORKS.len() != number {
                        continue;
                    }
                    scored_at_all += 1;
                    let scored = score(&stepping(network, path, ns, seed), seed, 4_000);
                    let what =
                        format!("{network:?}, ways {path:?} ns longer, step {ns} ns, {seed}");
                    let rows = format!("{what}\n{HEAD}\n{}\n{}", scored.offline, scored.online);
                    let violations = (scored.offline.violations, scored.online.violations);
                    assert_eq!(violations, (0, 0), "{rows}");
                    // Reported at once, as by somebody who knows what will come.
                    if ns.abs() >= 15e3 {
                        found_once(&scored, ns, &rows);
                    }
                }
            }
        }
    }
    assert!(scored_at_all >= PATHS.len() * SIZES.len() * 2 - NETWORKS.len(), "{scored_at_all}");
}

fn found_once(scored: &Scored, ns: f64, rows: &str) {
    let told = told(scored);
    let (&[disturbance], &[cause]) = (&scored.disturbances[..], &told[..]) else {
        panic!("{rows}: {:?}, {told:?}", scored.disturbances)
    };
    let [before, after] = scored.disturbed[0];
    assert!(disturbance.from <= before && after <= disturbance.until, "{rows}");
    for cause in [disturbance.cause, cause] {
        let Cause::Step(found) = cause else { panic!("{rows}: {cause}") };
        assert!((found + ns).abs() < 2e3 + 0.05 * ns.abs(), "{rows}: {cause}");
    }
}

/// A rate that changes comes slowly: the first messages after it are quicker than all before and are
/// held, as those after a small step are, until others contradict what was before. Which of them were
/// of before is open then, so no bound is wrong, and the change is found once, where it was.
#[test]
fn a_rate_that_changes_while_messages_are_held_is_found_where_it_was() {
    for (number, path) in PATHS.into_iter().enumerate() {
        for (network, ppm) in NETWORKS.into_iter().zip([100i64, -100, 300, -300]) {
            for round in 0..if soak() { 40 } else { 4 } {
                let seed = 1000 + 50 * number as u64 + round;
                let stepping = stepping(network, path, 0.0, seed);
                let (at, ..) = stepping.step.unwrap();
                let scenario = Scenario { step: Some((at, 0.0, ppm * 1000)), ..stepping };
                let scored = score(&scenario, seed, 4_000);
                let told = told(&scored);
                let what = format!("{network:?}, ways {path:?} ns longer, {ppm} ppm, {seed}");
                let rows = format!("{what}\n{HEAD}\n{}\n{}", scored.offline, scored.online);
                let violations = (scored.offline.violations, scored.online.violations);
                assert_eq!(violations, (0, 0), "{rows}");
                // Over a longer way the time that is left does not tell a rate from a step.
                if path[0].max(path[1]) > 20e3 {
                    continue;
                }
                let &[Cause::Rate(found)] = &told[..] else { panic!("{rows}: {told:?}") };
                assert!((found + ppm as f64).abs() < 10.0, "{rows}: {told:?}");
            }
        }
    }
}

/// A path that changes is no step: one way becomes longer or shorter, or both.
#[test]
fn a_path_that_changes_is_no_step() {
    for (number, network) in NETWORKS.into_iter().enumerate() {
        for ns in [300.0, 10e3, 150e3, -150e3] {
            let scenario = Scenario {
                name: "path",
                network,
                seconds: 12.0,
                longer: [200e3; 2],
                asymmetry: scenario::Asymmetry { ns, since: 6.0 },
                ..QUIET
            };
            let scored = score(&scenario, number as u64, 4_000);
            assert_eq!((scored.offline.violations, scored.online.violations), (0, 0));
            assert_eq!((&scored.disturbances[..], &told(&scored)[..]), (&[][..], &[][..]), "{ns}");
        }
    }
}

/// Each direction's delays rise and fall by up to 1500 ns for some tens of messages, as those of a
/// machine do that has other work. The clock does not step, and no step is told, offline or online.
#[test]
fn a_load_that_comes_and_goes_is_no_step() {
    let frequency = Frequency::from_hz(1_000_000_000).unwrap();
    let span = |at: f64| Some(Span { lo: Counter(at as u64), hi: Counter(at as u64 + 25) });
    let seeds = if soak() { 4_000 } else { 300 };
    let mut told = Vec::new();
    for seed in 0..seeds {
        let mut random = Random(seed);
        let mut online = Online::follower(frequency, frequency, DEFAULT_WANDER);
        let mut levels = [(0.0, 0); 2];
        let mut exchanges = Vec::new();
        for number in 1..=600 {
            let sent = 1e9 + 16e6 * f64::from(number) + random.between(0.0, 1e6);
            let [forward, back] = levels.each_mut().map(|(level, until)| {
                if number >= *until {
                    *until = number + random.between(10.0, 80.0) as i32;
                    *level = random.between(0.0, 1_500.0);
                }
                900.0 + *level + random.tail(60.0)
            });
            let exchange = Exchange {
                t1: span(sent),
                t2: span(sent + forward),
                t3: span(sent + forward + 9_000.0),
                t4: span(sent + forward + 9_000.0 + back),
                ..Exchange::default()
            };
            online.see(&exchange);
            exchanges.push(exchange);
        }
        let solution = solve(&exchanges, &[], frequency, frequency, DEFAULT_WANDER).unwrap();
        if !solution.disturbances.is_empty() {
            told.push(format!("{seed} offline: {}", solution.disturbances[0].cause));
        }
        let epoch = online.state(Counter(11_000_000_000)).epoch;
        if epoch > 0 {
            told.push(format!("{seed} online: {epoch} epochs"));
        }
    }
    assert!(told.is_empty(), "{} of {seeds}: {told:?}", told.len());
}

/// A reply that is quicker than all before may be the first one after a step. Until the next probe the
/// message of its own round trip bounds the other side, so that the time stays known; and where it was
/// a step, the bound holds.
#[test]
fn the_time_stays_known_when_a_reply_is_quick() {
    let frequency = Frequency::from_hz(1_000_000_000).unwrap();
    let instant = |at: u64| Some(Span { lo: Counter(at), hi: Counter(at) });
    for (steps_by, back) in [(0, 60_000), (40_000, 100_000)] {
        let mut online = Online::follower(frequency, frequency, 1e-7);
        // The follower's counter is behind by what it stepped back.
        let mut exchange = |sent: u64, behind: u64, forward: u64, back: u64| {
            online.see(&Exchange {
                t1: instant(sent - behind),
                t2: instant(sent + forward),
                t3: instant(sent + forward),
                t4: instant(sent + forward + back - behind),
                ..Exchange::default()
            });
        };
        for number in 1..=500u64 {
            let late = number * 7919 % 2_000;
            exchange(number * 10_000_000, 0, 100_000 + late, 100_000 + late / 2);
        }
        let sent = 5_010_000_000;
        exchange(sent, steps_by, 100_000, back);
        let now = sent + 300_000;
        let (told, bound) = online.to_global(Counter(now - steps_by)).expect("the time is known");
        let error = told.0.abs_diff(now.cast_signed());
        assert!(error <= bound.ns(), "{error} ns off, {bound:?}, stepped by {steps_by} ns");
    }
}
