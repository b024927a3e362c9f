//! `loopscope-host spools`.

use std::process::ExitCode;

use anyhow::Context;
use loopscope_agent::spool;

pub fn run() -> anyhow::Result<ExitCode> {
    let found = match spool::folder() {
        Some(folder) => spool::list(&folder)
            .with_context(|| format!("cannot read the spools in {}", folder.display()))?,
        None => vec![],
    };
    println!("{}", serde_json::to_string(&found)?);
    Ok(ExitCode::SUCCESS)
}
