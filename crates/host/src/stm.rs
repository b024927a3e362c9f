//! `loopscope-host stm`: the machine's service of channels.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use loopscope_phase::{Config, Session};
use loopscope_stm_link::{Home, Homes, Key, Transport};
use loopscope_stm_shared::{Elsewhere, Service, Settings, socket_path};
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
        /// Where services of other hosts get items of these channels, such as 192.168.1.5:7421
        #[arg(long, value_name = "ADDRESS:PORT", requires = "key")]
        listen: Option<String>,
        /// A channel whose home is another host, and where that listens; may be given several times
        #[arg(long, value_name = "CHANNEL=ADDRESS:PORT", requires = "key")]
        home: Vec<String>,
        /// A file with the secret of all these services: 16 bytes or more, for its owner alone
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// TCP's congestion control for their connections, such as reno [default: the system's]
        #[arg(long, value_name = "NAME", requires = "key")]
        congestion: Option<String>,
    },
}

/// How channels are shared with other hosts.
#[derive(Default)]
struct Others {
    listen: Option<String>,
    /// Channels, and where their homes listen.
    homes: Vec<(String, String)>,
    key: Option<Key>,
    congestion: Option<String>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Verb::Serve { socket, listen, home, key, congestion } = arguments.verb;
    let read = |path: PathBuf| {
        Key::read(&path).with_context(|| format!("cannot use the key {}", path.display()))
    };
    let mut others = Others { listen, homes: vec![], key: key.map(read).transpose()?, congestion };
    for text in home {
        let Some((name, at)) = text.rsplit_once('=').filter(|(name, _)| !name.is_empty()) else {
            bail!("--home {text}: it is CHANNEL=ADDRESS:PORT, such as frames=192.168.1.5:7421");
        };
        others.homes.push((name.into(), at.into()));
    }
    let path = socket.unwrap_or_else(socket_path);
    // Before there are other threads, which would take them otherwise.
    let endings = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    endings.thread_block().context("cannot wait for signals")?;
    let came = SignalFd::new(&endings).context("cannot wait for signals")?;
    let at = || format!("cannot serve channels at {}", path.display());
    let mut service = Service::listen(&path).with_context(at)?;
    let mut made = Ok(None);
    // The channels are there when the experiment is told that this program is ready.
    let session = Session::connect_configured(|config| {
        made = configured(config, &mut others)
            .and_then(|()| create(&service, config))
            .and_then(|()| share(&mut service, &others));
        vec![]
    })?;
    if session.is_none() {
        made = share(&mut service, &others);
    }
    let listens = made?;
    let mut out = std::io::stdout();
    writeln!(out, "serving channels at {}", path.display())?;
    if let Some(address) = listens {
        writeln!(out, "serving other hosts at {address}")?;
    }
    out.flush()?;
    service.serve(came).with_context(at)?;
    if session.is_some() {
        report(&service, Path::new(REPORT))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes from an experiment's configuration how channels are shared with other hosts.
fn configured(config: &Config, others: &mut Others) -> anyhow::Result<()> {
    let text = |key: &str| config.get(key).and_then(|value| value.as_str()).map(str::to_owned);
    others.listen = text("listen");
    others.key = text("key").map(|key| Key::new(key.into_bytes())).transpose()?;
    others.congestion = text("congestion");
    let homes = config.get("homes").cloned().unwrap_or_else(|| serde_json::json!({}));
    let homes: BTreeMap<String, String> = serde_json::from_value(homes).context("homes")?;
    others.homes = homes.into_iter().collect();
    Ok(())
}

/// Has other hosts get the channels, and knows theirs; where it listens, if it does.
fn share(service: &mut Service, others: &Others) -> anyhow::Result<Option<SocketAddr>> {
    let report = |what: &str| eprintln!("{what}");
    let Some(key) = &others.key else { return Ok(None) };
    let transport = Transport::new(key.clone(), others.congestion.clone())?;
    let mut elsewhere: BTreeMap<String, Box<dyn Elsewhere>> = BTreeMap::new();
    for (name, at) in &others.homes {
        let address = address(at).with_context(|| format!("the home of {name}"))?;
        let (channels, transport, named) = (service.channels(), transport.clone(), name.clone());
        let home = Home { channels, name: named, address, transport, report };
        if elsewhere.insert(name.clone(), Box::new(home)).is_some() {
            bail!("channel {name} has two homes");
        }
    }
    service.knows_elsewhere(elsewhere);
    let Some(at) = &others.listen else { return Ok(None) };
    let cannot = || format!("cannot serve other hosts at {at}");
    let homes = Homes::listen(address(at)?).with_context(cannot)?;
    let listens = homes.address().with_context(cannot)?;
    homes.serve(service.channels(), transport, report).with_context(cannot)?;
    Ok(Some(listens))
}

/// An address and a port, as people write them.
fn address(text: &str) -> anyhow::Result<SocketAddr> {
    let mut found = text
        .to_socket_addrs()
        .with_context(|| format!("{text} is no ADDRESS:PORT that can be reached"))?;
    found.next().with_context(|| format!("{text} has no address"))
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
    let mut channels = service.list().map_err(anyhow::Error::msg).with_context(place)?;
    // What is of other hosts is in their accounts.
    channels.retain(|channel| channel.home.is_none());
    let mut text = serde_json::to_string_pretty(&channels)?;
    text.push('\n');
    fs::write(path, text).with_context(place)
}
