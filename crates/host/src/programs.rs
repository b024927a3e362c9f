//! `loopscope-host programs`.

use std::process::ExitCode;

use loopscope_kernel::programs;
use serde_json::json;

/// Says whether the kernel lets the programs in that record in it.
pub fn run() -> anyhow::Result<ExitCode> {
    let (works, why) = match programs::check() {
        Ok(absent) if absent.is_empty() => (true, String::new()),
        Ok(absent) => (false, format!("this kernel has no tracepoint for {}", absent.join(", "))),
        Err(error) => (false, error.to_string()),
    };
    println!("{}", json!({"works": works, "why": why}));
    Ok(ExitCode::SUCCESS)
}
