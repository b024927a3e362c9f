//! `loopscope-host limited`, the one command that sudo has to allow.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Parser as _;
use loopscope_agent::ledger;
use loopscope_agent::rights::{Invoker, Rights, become_invoker, check_only_root_writes};
use serde::Deserialize;

use crate::{Verb, agent, reset};

/// The longest line that is read, in bytes.
const LONGEST: usize = 1 << 16;

/// The first line of standard input.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    /// The subcommand and its arguments.
    arguments: Vec<String>,
    /// A file with the user's variables, as `/proc/<pid>/environ` has them. It is removed.
    environment: Option<PathBuf>,
    /// What components call `loopscope-host`.
    program: Option<PathBuf>,
}

/// Becomes the user who called sudo, keeps what an agent needs, and does what a line says.
pub fn run() -> anyhow::Result<ExitCode> {
    let own = std::env::current_exe().context("cannot find out which binary this is")?;
    check_only_root_writes(&own).context(
        "sudo must not start a program that others than root can change: do loopscope host setup",
    )?;
    become_invoker()?;
    let call: Call = first_line()
        .map_err(anyhow::Error::from)
        .and_then(|line| Ok(serde_json::from_str(&line)?))
        .context("the first line of standard input is not what this version reads")?;
    let words = ["loopscope-host".to_owned()].into_iter().chain(call.arguments);
    match crate::Arguments::try_parse_from(words)?.verb {
        Verb::Agent(arguments) => {
            let program = call.program.context("`program` is missing")?;
            agent::run(arguments, Some(invoker(call.environment.as_deref(), program)?))
        }
        Verb::Reset(arguments) => {
            let invoker = invoker(call.environment.as_deref(), own)?;
            reset::run_in(&arguments, &ledger::state_dir_by(|name| invoker.variable(name)))
        }
        Verb::Rights => rights(false),
        _ => bail!("with these rights it is only `agent`, `reset` or `rights`"),
    }
}

fn invoker(environment: Option<&Path>, program: PathBuf) -> anyhow::Result<Invoker> {
    let path = environment.context("`environment` is missing")?;
    let content = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    Ok(Invoker::new(&content, program))
}

/// A line without what comes after it, which the agent reads.
fn first_line() -> io::Result<String> {
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (mut line, mut byte) = (vec![], [0]);
    while line.len() < LONGEST {
        input.read_exact(&mut byte)?;
        if byte == [b'\n'] {
            return String::from_utf8(line).map_err(io::Error::other);
        }
        line.extend(byte);
    }
    Err(io::Error::other("it is too long"))
}

/// Prints what this process may do that an ordinary user may not; see [`Rights::own`].
pub fn rights(may_enter: bool) -> anyhow::Result<ExitCode> {
    println!("{}", serde_json::to_string(&Rights::own(may_enter)?)?);
    Ok(ExitCode::SUCCESS)
}
