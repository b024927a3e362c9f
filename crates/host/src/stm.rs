//! `loopscope-host stm`: the machine's service of channels.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use loopscope_phase::{Config, Session};
use loopscope_stm_shared::{Service, Settings, socket_path};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

/// What the channels of an experiment had when it ended.
const REPORT: &str = "channels.json";

/// Channels of space-time memory.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Give programs of this user channels by their names, until SIGINT, SIGTERM or SIGHUP comes
    ///
    /// In an experiment they are those of its `channels:`, and channels.json says at the end what they
    /// have counted.
    Serve {
        /// Where programs find it; @NAME is a socket without a file [default: LOOPSCOPE_STM, or else in
        /// the user's runtime directory]
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
    let mut made = Ok(());
    // The channels are there when the experiment is told that this program is ready.
    let session = Session::connect_configured(|config| {
        made = create(&service, config);
        vec![]
    })?;
    made?;
    let mut out = std::io::stdout();
    writeln!(out, "serving channels at {}", path.display())?;
    out.flush()?;
    service.serve(came).with_context(at)?;
    if session.is_some() {
        report(&service, Path::new(REPORT))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the channels that a configuration names.
fn create(service: &Service, config: &Config) -> anyhow::Result<()> {
    let channels = config.get("channels").cloned().unwrap_or_default();
    let channels: BTreeMap<String, Settings> =
        serde_json::from_value(channels).context("channels")?;
    for (name, settings) in channels {
        if let Err(why) = service.create(&name, settings) {
            bail!("cannot make channel {name}: {why}");
        }
    }
    Ok(())
}

/// Writes what the channels have counted.
fn report(service: &Service, path: &Path) -> anyhow::Result<()> {
    let place = || format!("cannot write {}", path.display());
    let channels = service.list().map_err(anyhow::Error::msg).with_context(place)?;
    let mut text = serde_json::to_string_pretty(&channels)?;
    text.push('\n');
    fs::write(path, text).with_context(place)
}
