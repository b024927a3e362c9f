//! `loopscope-host programs`.

use std::process::ExitCode;

use loopscope_kernel::programs;
use serde_json::json;

/// Says whether the kernel lets the programs in that record in it.
pub fn run() -> anyhow::Result<ExitCode> {
    let (works, why, throttled) = match programs::check() {
        Ok(mut absent) => {
            let all = absent.len();
            absent.retain(|name| *name != programs::THROTTLED);
            let why = format!("this kernel has no tracepoint for {}", absent.join(", "));
            let works = absent.is_empty();
            (works, if works { String::new() } else { why }, all == absent.len())
        }
        Err(error) => (false, error.to_string(), false),
    };
    println!("{}", json!({"works": works, "why": why, "throttled": throttled}));
    Ok(ExitCode::SUCCESS)
}
