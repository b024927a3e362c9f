//! `loopscope-host scoped`: a command in a cgroup that its user may divide.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use loopscope_agent::scope;

/// Run a command in a scope of the user's systemd, where there is one and it is needed.
///
/// For sudo: what it starts stays in the cgroup in which it was called.
#[derive(clap::Args)]
#[command(hide = true)]
pub struct Arguments {
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Returns only where the command cannot be run; the status is then that of env(1).
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find out which binary this is")?;
    // Why there is no scope, `rights` says.
    let _ = scope::enter(&program);
    let (name, others) = arguments.words.split_first().context("no command was given")?;
    let error = Command::new(name).args(others).exec();
    eprintln!("loopscope-host: cannot run {}: {error}", name.display());
    Ok(ExitCode::from(if error.kind() == ErrorKind::NotFound { 127 } else { 126 }))
}
