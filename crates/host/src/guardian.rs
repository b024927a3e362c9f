//! `loopscope-host guardian`.

use std::path::PathBuf;
use std::process::ExitCode;

use loopscope_agent::guardian;

/// Undo an agent's ledger when the agent is killed. Agents start it themselves.
#[derive(clap::Args)]
pub struct Arguments {
    /// The ledger
    ledger: PathBuf,
    /// The agent's process number
    agent: i32,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { ledger, agent } = arguments;
    let report = guardian::guard(ledger, *agent)?;
    // What it could not undo stays in the ledger for `loopscope reset`, which says so.
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
