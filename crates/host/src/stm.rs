//! `loopscope-host stm`: the machine's service of channels.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use loopscope_stm_shared::{Service, socket_path};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

/// Channels of space-time memory.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Give programs of this user channels by their names, until SIGINT, SIGTERM or SIGHUP comes
    Serve {
        /// Where programs find it [default: LOOPSCOPE_STM, or else in the user's runtime directory]
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Verb::Serve { socket } = arguments.verb;
    let path = socket.unwrap_or_else(socket_path);
    // Before there are other threads, which would take them otherwise.
    let endings = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    endings.thread_block().context("cannot wait for signals")?;
    let came = SignalFd::new(&endings).context("cannot wait for signals")?;
    let at = || format!("cannot serve channels at {}", path.display());
    let service = Service::listen(&path).with_context(at)?;
    let mut out = std::io::stdout();
    writeln!(out, "serving channels at {}", path.display())?;
    out.flush()?;
    service.serve(came).with_context(at)?;
    Ok(ExitCode::SUCCESS)
}
