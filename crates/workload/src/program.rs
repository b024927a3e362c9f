//! What the programs share in taking part in phases.

use std::fmt::Arguments;
use std::io::Write;

use anyhow::{Context, Result};
use loopscope_phase::{Config, Phase, RunError, Session, Values};

/// Why a program cannot do what a phase asks for.
pub(crate) const NOT_CONNECTED: &str = "an earlier phase is missing; the experiment needs the phases listen, connect, run in this \
     order";

/// Runs the session's phases through `handler`, on the calling thread.
pub(crate) fn run(
    mut session: Session,
    handler: impl FnMut(&Phase, &Config) -> Result<Values>,
) -> Result<()> {
    // Before anything is measured: making a ring takes system calls and page faults.
    if let Err(problem) = loopscope_trace::thread_init() {
        eprintln!("warning: {problem}; this program's events are lost, and counted as such");
    }
    session.run(handler).map_err(|error| match error {
        RunError::Dialogue(error) => error.into(),
        RunError::Phase { phase, error } => error.context(format!("phase {phase} failed")),
    })
}

/// Writes a line to standard output; an error, not a panic, where nobody reads it any more.
pub(crate) fn print(line: Arguments) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("cannot write to standard output")
}
