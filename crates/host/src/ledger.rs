//! `loopscope-host ledger`.

use std::process::ExitCode;

use loopscope_kernel::ledger;
use serde_json::json;

/// Says whether the kernel lets the programs in that record TCP.
pub fn run() -> anyhow::Result<ExitCode> {
    let (works, why) = match ledger::check() {
        Ok(absent) if absent.is_empty() => (true, String::new()),
        Ok(absent) => (false, format!("this kernel has no tracepoint for {}", absent.join(", "))),
        Err(error) => (false, error.to_string()),
    };
    println!("{}", json!({"works": works, "why": why}));
    Ok(ExitCode::SUCCESS)
}
