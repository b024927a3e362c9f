//! `loopscope-host agent`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use loopscope_agent::agent::Options;
use loopscope_agent::ledger;
use loopscope_agent::rights::Invoker;
use loopscope_agent::server;

/// Serve the agent protocol on a Unix socket, or on standard input and output, for the controller.
///
/// Writes "ready" to standard output once the socket answers. Lives as long as standard input is
/// open: when that ends, or on SIGTERM or SIGINT, it ends its components, undoes everything it did
/// to the machine, and exits. On standard input and output it also ends when the controller says
/// nothing for 15 s.
#[derive(clap::Args)]
pub struct Arguments {
    /// A directory to make first and to remove at the end, for the socket and DIR to lie in
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// The socket to make (mode 0600; at most 107 bytes; must not exist)
    #[arg(long, value_name = "PATH", required_unless_present = "stdio")]
    socket: Option<PathBuf>,
    /// Answer on standard input and output instead, as the host's agent
    #[arg(long, conflicts_with = "socket", requires = "host")]
    stdio: bool,
    /// Where to write the host's part of the run directory, hosts/<host>/
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The host that this agent is; without it, it only makes testbeds
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// The run that this agent belongs to [default: a random one]
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Move into this network namespace, which an agent of the same run has made
    #[arg(long, value_name = "NAME", requires = "host", requires = "run")]
    netns: Option<String>,
    /// Exchange clock probes in this network namespace instead
    #[arg(long, value_name = "NAME", requires = "netns")]
    clock_netns: Option<String>,
    /// What programs are to read as /etc/hosts
    #[arg(long, value_name = "FILE", requires = "netns")]
    names: Option<PathBuf>,
    /// Give the host a hidden clock of this seed: every stamp that leaves it is on that clock
    #[arg(long, value_name = "SEED", requires = "host")]
    synthetic_seed: Option<u64>,
}

/// `invoker`: the user whose agent it is, where it has more rights than that user.
pub fn run(arguments: Arguments, invoker: Option<Invoker>) -> anyhow::Result<ExitCode> {
    let Arguments {
        scratch,
        socket,
        stdio: _,
        dir,
        host,
        run,
        netns,
        clock_netns,
        names,
        synthetic_seed,
    } = arguments;
    let program = std::env::current_exe().context("cannot find out which binary this is")?;
    let state_dir = match &invoker {
        None => ledger::state_dir(),
        Some(invoker) => ledger::state_dir_by(|name| invoker.variable(name)),
    };
    let options = Options {
        scratch,
        socket,
        dir,
        host,
        netns,
        clock_netns,
        names,
        run,
        synthetic_seed,
        program,
        state_dir,
        invoker,
    };
    let problems = server::run(options)?;
    for problem in &problems {
        // The reader of standard error may be gone.
        let _ = writeln!(std::io::stderr(), "loopscope-host agent: {problem}");
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
