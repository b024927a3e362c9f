//! Reports the results of the scenarios for people, programs and figures.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use loopscope_clocksync::offline::CLAIM;
use serde_json::{Value, json};

use super::mesh::{LoopFigures, Loops};
use super::scenario::Outcome;
use super::score::{Estimate, Figures, Spread};

pub(super) fn json(outcomes: &[Outcome]) -> Value {
    let side = |figures: &Figures| {
        let Spread { p50_ns, p99_ns, p999_ns, max_ns } = figures.error;
        json!({
            "p50_ns": p50_ns,
            "p99_ns": p99_ns,
            "p999_ns": p999_ns,
            "max_ns": max_ns,
            "hard_half_width_ns": figures.hard_half_width_ns,
            "calibrated_coverage": figures.calibrated_coverage,
            "calibrated_half_width_ns": figures.calibrated_half_width_ns,
            "known": figures.known,
            "unknown": figures.unknown,
            "withdrawn": figures.withdrawn,
            "violations": figures.violations,
            "first_violation": figures.first_violation,
        })
    };
    let residuals = |figures: &LoopFigures| {
        let Spread { p50_ns, p99_ns, max_ns, .. } = figures.residual;
        json!({
            "p50_ns": p50_ns,
            "p99_ns": p99_ns,
            "max_ns": max_ns,
            "hard_half_width_ns": figures.hard_half_width_ns,
            "known": figures.known,
            "unknown": figures.unknown,
            "contradictions": figures.contradictions,
        })
    };
    let loops = |loops: &Loops| {
        json!({
            "edges": loops.edges,
            "offline": residuals(&loops.offline),
            "online": residuals(&loops.online),
        })
    };
    let scenario = |outcome: &Outcome| {
        let Spread { p50_ns, p99_ns, p999_ns, max_ns } = outcome.noise;
        let targets = outcome.targets.iter().map(|target| {
            json!({
                "what": target.what,
                "value_ns": target.value_ns,
                "limit_ns": target.limit_ns,
                "met": target.is_met(),
            })
        });
        let checks =
            outcome.checks.iter().map(|check| json!({"what": check.what, "met": check.met}));
        json!({
            "name": outcome.name,
            "testbeds": outcome.beds,
            "instants": outcome.offline.instants(),
            "violations": outcome.violations(),
            "offline": side(&outcome.offline),
            "online": side(&outcome.online),
            "loops": outcome.loops.as_ref().map(loops),
            "noise": {
                "p50_ns": p50_ns, "p99_ns": p99_ns, "p999_ns": p999_ns, "max_ns": max_ns,
            },
            "calibrated_claim": CLAIM,
            "targets": targets.collect::<Vec<Value>>(),
            "checks": checks.collect::<Vec<Value>>(),
            "changes": outcome.changes,
            "met": outcome.is_met(),
        })
    };
    let [offline, online] = scored(outcomes);
    json!({
        "scenarios": outcomes.iter().map(scenario).collect::<Vec<Value>>(),
        "scored": {"offline": offline, "online": online},
    })
}

/// Instants at which an estimate was compared with the truth: offline, online.
fn scored(outcomes: &[Outcome]) -> [usize; 2] {
    let sum = |side: fn(&Outcome) -> &Figures| outcomes.iter().map(|o| side(o).known).sum();
    [sum(|outcome| &outcome.offline), sum(|outcome| &outcome.online)]
}

pub(super) fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let mut line = |words: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{words}");
    };
    line(format_args!(
        "{:<15} {:<8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>9} {:>8} {:>6}",
        "scenario",
        "",
        "p50 ns",
        "p99 ns",
        "p99.9 ns",
        "max ns",
        "hard ns",
        "calib. ns",
        "covered",
        "unknown",
        "wrong"
    ));
    for outcome in outcomes {
        let spread = |of: &Spread| {
            [of.p50_ns, of.p99_ns, of.p999_ns, of.max_ns].map(|ns| format!("{ns:>10.0}")).join(" ")
        };
        let mut name = outcome.name;
        for (side, figures) in [("offline", &outcome.offline), ("online", &outcome.online)] {
            let Figures { hard_half_width_ns, calibrated_half_width_ns, .. } = figures;
            line(format_args!(
                "{name:<15} {side:<8} {} {hard_half_width_ns:>10.0} \
                 {calibrated_half_width_ns:>10.0} {:>8.2}% {:>8} {:>6}",
                spread(&figures.error),
                100.0 * figures.calibrated_coverage,
                figures.unknown + figures.withdrawn,
                figures.violations,
            ));
            name = "";
        }
        line(format_args!("{:<15} {:<8} {}", "", "noise", spread(&outcome.noise)));
        for (side, figures) in
            outcome.loops.iter().flat_map(|l| [("offline", &l.offline), ("online", &l.online)])
        {
            let Spread { p50_ns, p99_ns, max_ns, .. } = figures.residual;
            line(format_args!(
                "{:<15} {side:<8} {p50_ns:>10.0} {p99_ns:>10.0} {:>10} {max_ns:>10.0} {:>10.0} \
                 {:>10} {:>9} {:>8} {:>6}",
                "  loops",
                "",
                figures.hard_half_width_ns,
                "",
                "",
                figures.unknown,
                figures.contradictions,
            ));
        }
        if outcome.beds > 1 {
            line(format_args!("  on {} testbeds, one after the other", outcome.beds));
        }
        for target in &outcome.targets {
            let verdict = verdict(target.is_met());
            let (what, value, limit) = (&target.what, target.value_ns, target.limit_ns);
            line(format_args!("  {verdict:<6} {what}: {value:.0} ns, target {limit:.0} ns"));
        }
        for check in &outcome.checks {
            line(format_args!("  {:<6} {}", verdict(check.met), check.what));
        }
        for figures in [&outcome.offline, &outcome.online] {
            if let Some(first) = &figures.first_violation {
                line(format_args!("  WRONG  hard bound, {first}"));
            }
        }
    }
    let [offline, online] = scored(outcomes);
    let wrong: u64 = outcomes.iter().map(Outcome::violations).sum();
    line(format_args!(
        "scored instants in all: {offline} offline, {online} online; hard bounds wrong: {wrong}"
    ));
    line(format_args!(
        "noise: half the difference of both ways' delays, of single exchanges. calib.: error bound \
         that claims {:.0} % of instants, medians as of the hard one. loops: by how much the times \
         of two followers differ, by the probes between the two; offline of the worst two.",
        100.0 * CLAIM
    ));
    text
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

/// Errors and widths over time; empty where nothing was known.
pub(super) fn write_csv(path: &Path, outcome: &Outcome) -> Result<()> {
    let mut samples: Vec<_> = outcome.samples.iter().collect();
    samples.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
    let mut text = String::from(
        "host,time_s,offline_error_ns,offline_hard_half_width_ns,offline_calibrated_ns,\
         online_error_ns,online_hard_half_width_ns,online_calibrated_ns\n",
    );
    let estimate = |estimate: &Option<Estimate>| match estimate {
        Some(estimate) => {
            format!(
                "{:.1},{:.1},{:.1}",
                estimate.error_ns,
                estimate.half_width_ns(),
                estimate.calibrated_ns
            )
        }
        None => ",,".to_owned(),
    };
    for sample in samples {
        let (offline, online) = (estimate(&sample.offline), estimate(&sample.online));
        let _ = writeln!(text, "{},{:.6},{offline},{online}", sample.host, sample.time_s);
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
