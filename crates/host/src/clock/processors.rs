//! `processors`: how far the counters of this machine's processors are apart, for `loopscope doctor`.

use std::process::ExitCode;

use loopscope_clocksync::skew::{self, LIMIT_NS};
use serde_json::json;

pub fn run() -> anyhow::Result<ExitCode> {
    let frequency = loopscope_collect::Identity::of_this_machine()?.frequency;
    let found = skew::of_this_machine();
    let refused = found.check(frequency).err().map(|error| error.to_string());
    let ns = found.within() as f64 * frequency.ns_per_tick();
    println!(
        "{}",
        json!({
            "pairs": found.pairs.len(),
            "within_ns": ns.ceil(),
            "limit_ns": LIMIT_NS,
            "refused": refused,
        })
    );
    Ok(ExitCode::SUCCESS)
}
