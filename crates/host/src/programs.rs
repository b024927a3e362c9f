//! `loopscope-host programs`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use loopscope_kernel::programs::{self, Absent};
use serde_json::json;

/// Says which classes of events the programs in the kernel can record: of each why it cannot be
/// recorded, which is empty where it can, and the events that this kernel does not have, with why.
pub fn run() -> anyhow::Result<ExitCode> {
    let said = programs::check().into_iter().map(|(class, checked)| {
        let (why, absent) = match checked {
            Ok(absent) => (String::new(), absent),
            Err(error) => (error.to_string(), Absent::new()),
        };
        (class, json!({"why": why, "absent": absent}))
    });
    println!("{}", json!(said.collect::<BTreeMap<_, _>>()));
    Ok(ExitCode::SUCCESS)
}
