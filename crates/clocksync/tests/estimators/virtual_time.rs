//! Solver and online estimator in all scenarios, in virtual time, against the truth.
//!
//! The errors are held against `virtual_time.txt`, a table for people. After a change that is meant
//! to move them: `LOOPSCOPE_BLESS=1 cargo test --release -p loopscope-clocksync --test
//! virtual_time`, and read the difference.

use std::fmt::Write as _;
use std::path::Path;

use crate::scenario::{Network, SCENARIOS, Scenario};
use crate::score::{HEAD, Scored, score};
use loopscope_clocksync::offline::{CLAIM, Cause};
use loopscope_clocksync::online::What;

const SEED: u64 = 20_071_213;
const INSTANTS: usize = 100_000;

/// What the issue asks of p99.9, in nanoseconds: offline, online.
fn target(scenario: &Scenario) -> Option<[f64; 2]> {
    match scenario.name {
        "idle" => Some([100.0, 300.0]),
        "loaded" => Some([250.0, 1_000.0]),
        // Harder than the issue's own: as a bridge and sleeping senders make it.
        "cold caches" | "cold caches, busy" => Some([250.0, 3_000.0]),
        "eight hosts" => Some([200.0, 600.0]),
        "loss" | "loss, loaded" => Some([300.0, 1_000.0]),
        "asymmetry step" => Some([2_000.0, 2_000.0]),
        _ => None,
    }
}

/// What holds whatever the seed.
fn judge(scenario: &Scenario, scored: &Scored) {
    let name = scenario.name;
    let Scored { offline, online, disturbances, changes, .. } = scored;
    assert_eq!((offline.violations, online.violations), (0, 0), "{name}");
    if let Some([of_offline, of_online]) = target(scenario) {
        assert!(offline.quantile(0.999) <= of_offline, "{name}: {offline}");
        assert!(online.quantile(0.999) <= of_online, "{name}: {online}");
    }
    if name == "idle" {
        assert!(offline.hard() < 1e3 && online.hard() < 1e3);
    }
    match scenario.step {
        Some((_, ns, rate_ppb)) => {
            let [disturbance] = disturbances[..] else { panic!("{name}: {disturbances:?}") };
            let disturbed: Vec<_> =
                changes.iter().filter(|c| matches!(c.what, What::Disturbed { .. })).collect();
            let [change] = disturbed[..] else { panic!("{name}: {changes:?}") };
            let [before, after] = scored.disturbed[0];
            for (from, until) in
                [(disturbance.from, disturbance.until), (change.from, change.until)]
            {
                assert!(from <= before && after <= until, "{name}: {from:?} {before:?} {until:?}");
            }
            let What::Disturbed { cause: online, .. } = change.what else { unreachable!() };
            for cause in [disturbance.cause, online] {
                match cause {
                    Cause::Step(found) if rate_ppb == 0 => {
                        assert!((found + ns).abs() < 1e3, "{name}: {cause}");
                    }
                    Cause::Rate(ppm) if rate_ppb != 0 => {
                        assert!((ppm + rate_ppb as f64 / 1e3).abs() < 1.0, "{name}: {cause}");
                    }
                    _ => panic!("{name}: {cause}"),
                }
            }
            // Little is lost to it: some tenths of a second of two minutes.
            assert!(offline.unknown < offline.instants / 300, "{offline}");
        }
        None => {
            assert!(disturbances.is_empty(), "{name}: {disturbances:?}");
            assert_eq!(online_epochs(scored), 0, "{name}");
        }
    }
    let path = changes.iter().filter(|c| matches!(c.what, What::Path { .. })).count();
    // One in a hundred such runs begins with a second in which nothing is quick.
    let real = usize::from(scenario.asymmetry.since > 0.0);
    let false_ones = usize::from(matches!(scenario.network, Network::Cold | Network::ColdBusy));
    assert!((real..=real + false_ones).contains(&path), "{name}: {changes:?}");
    if scenario.impossible > 0.0 {
        assert!(scored.rejected > 10, "{}", scored.rejected);
        // A reading is refused while it is not clear who lies, 30 ms each time.
        assert!(online.unknown < online.instants / 50, "{online}");
    } else {
        assert_eq!(scored.rejected, 0, "{name}");
    }
}

fn online_epochs(scored: &Scored) -> usize {
    scored.changes.iter().filter(|c| matches!(c.what, What::Disturbed { .. })).count()
}

#[test]
fn errors_are_those_of_the_golden_table() {
    let mut table = String::from(
        "# Errors in virtual time, ns: absolute, of the instants of which anything is known. Two rows a\n\
         # scenario: offline, online. How to write it anew is said in virtual_time.rs.\n",
    );
    writeln!(table, "{:21}{HEAD}", "").unwrap();
    for scenario in SCENARIOS {
        let scored = score(&scenario, SEED, INSTANTS);
        judge(&scenario, &scored);
        writeln!(table, "{:21}{}", scenario.name, scored.offline).unwrap();
        writeln!(table, "{:21}{}", "", scored.online).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/virtual_time.txt");
    if std::env::var_os("LOOPSCOPE_BLESS").is_some() {
        std::fs::write(path, table).unwrap();
        return;
    }
    assert_eq!(table, std::fs::read_to_string(path).unwrap());
}

/// Other hidden clocks, other delays.
#[test]
fn other_seeds_meet_the_targets_too() {
    let seeds = if std::env::var_os("LOOPSCOPE_SOAK").is_some() { 0..100 } else { 0..3 };
    let (mut covered, mut widths) = ([Vec::new(), Vec::new()], [0.0, 0.0]);
    for seed in seeds {
        for scenario in SCENARIOS {
            let scored = score(&scenario, seed, INSTANTS / 10);
            judge(&scenario, &scored);
            if scenario.asymmetry.ns == 0.0 {
                for (i, one) in [&scored.offline, &scored.online].into_iter().enumerate() {
                    covered[i].push(one.coverage());
                    widths[i] += one.calibrated() / one.quantile(0.5);
                }
            }
        }
    }
    for (covered, widths) in covered.iter().zip(widths) {
        // Errors of one run go together, so that chance is that of as many values as there are
        // runs; what is claimed is claimed of all of them.
        let count = covered.len() as f64;
        let mean = covered.iter().sum::<f64>() / count;
        let variance = covered.iter().map(|of| (of - mean).powi(2)).sum::<f64>() / count;
        let chance = 3.0 * (variance / count).sqrt();
        assert!(mean + chance >= CLAIM, "{mean} +- {chance} of {count} runs");
        let narrow = covered.iter().filter(|of| **of < 0.5).count();
        assert!(narrow as f64 <= 0.02 * count, "{narrow} of {count} runs");
        // The reason is not that widths like these cover everything.
        assert!(widths / count <= 5.0, "{widths} of {count}");
    }
}
