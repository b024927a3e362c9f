//! `processors`: what this machine's counter is and how far those of its processors are apart, for
//! `loopscope doctor`.

use std::process::ExitCode;

use loopscope_clocksync::counter::mistrust_of_cycles;
use loopscope_clocksync::resolution;
use loopscope_clocksync::skew::{self, LIMIT_NS};
use loopscope_time::source::{counter_kind, is_counter_given};
use serde_json::json;

pub fn run() -> anyhow::Result<ExitCode> {
    let frequency = loopscope_collect::Identity::of_this_machine()?.frequency;
    let found = skew::of_this_machine();
    let refused = found.check(frequency).err().map(|error| error.to_string());
    let ns = found.within() as f64 * frequency.ns_per_tick();
    let resolution = resolution::of_this_machine();
    println!(
        "{}",
        json!({
            "pairs": found.pairs.len(),
            "within_ns": ns.ceil(),
            "limit_ns": LIMIT_NS,
            "refused": refused,
            "counter": {
                "kind": counter_kind().name(),
                "given": is_counter_given(),
                "mistrust_of_cycles": mistrust_of_cycles().map(|why| why.to_string()),
                "read_ns": resolution.cost_ns,
                "step_ns": resolution.step as f64 * frequency.ns_per_tick(),
            },
        })
    );
    Ok(ExitCode::SUCCESS)
}
