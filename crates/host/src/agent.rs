//! `loopscope-host agent`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use loopscope_agent::agent::Options;
use loopscope_agent::ledger;
use loopscope_agent::rights::Invoker;
use loopscope_agent::{scope, server};
use loopscope_time::source::{CounterKind, set_counter_kind};

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
    #[arg(long, value_name = "PATH", required_unless_present_any = ["stdio", "probe"])]
    socket: Option<PathBuf>,
    /// Answer on standard input and output instead, as the host's agent
    #[arg(long, conflicts_with = "socket", requires = "host")]
    stdio: bool,
    /// Where to write the host's part of the run directory, hosts/<host>/
    #[arg(long, value_name = "DIR", required_unless_present = "probe")]
    dir: Option<PathBuf>,
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
    /// The SHA-256 of this binary, where who starts it knows it
    #[arg(long, value_name = "HEX", requires = "netns")]
    sha256: Option<String>,
    /// Say instead whether this user can have a local testbed, and what its hosts could not do:
    /// {"works": …, "why": …, "lacking": [{"what", "why", "cost"}, …]}
    #[arg(long, exclusive = true)]
    probe: bool,
    /// The host's counter, cycles or monotonic-raw [default: what LOOPSCOPE_COUNTER says, else cycles
    /// if they are invariant and the kernel keeps time by them]
    #[arg(long, value_name = "KIND", requires = "host")]
    counter: Option<CounterKind>,
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
        sha256,
        probe,
        counter,
    } = arguments;
    if let Some(kind) = counter {
        set_counter_kind(kind);
    }
    let program = std::env::current_exe().context("cannot find out which binary this is")?;
    let state_dir = match &invoker {
        None => ledger::state_dir(),
        Some(invoker) => ledger::state_dir_by(|name| invoker.variable(name)),
    };
    // The first agent of a run on a machine, not one that has more rights than its user.
    let first = netns.is_none() && invoker.is_none();
    let no_scope = if first { scope::enter(&program) } else { None };
    if probe {
        return print_probe(&program, &state_dir, no_scope.as_deref());
    }
    let options = Options {
        scratch,
        socket,
        dir: dir.context("--dir is missing")?,
        host,
        netns,
        clock_netns,
        names,
        run,
        synthetic_seed,
        program,
        sha256,
        no_scope,
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

fn print_probe(
    program: &Path,
    state_dir: &Path,
    no_scope: Option<&str>,
) -> anyhow::Result<ExitCode> {
    let (works, why, lacking) = match server::probe(program, state_dir, no_scope) {
        Ok(lacking) => (true, String::new(), lacking),
        Err(error) => (false, error.to_string(), vec![]),
    };
    println!("{}", serde_json::json!({"works": works, "why": why, "lacking": lacking}));
    Ok(ExitCode::SUCCESS)
}
