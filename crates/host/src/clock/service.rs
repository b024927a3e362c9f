//! `serve` and `join`: until SIGINT or SIGTERM.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use loopscope_clock::layout::DEFAULT_PATH;
use loopscope_clocksync::key::Key;
use loopscope_clocksync::online::Online;
use loopscope_clocksync::page::{Published, Publisher, Role, Service};
use loopscope_clocksync::probe::{
    Counts, DEFAULT_BURST, Prober, ProberConfig, Responder, Side, Told,
};
use loopscope_clocksync::record::Identity;
use loopscope_clocksync::utc::Watch;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

use super::peers::{self, Peers};

/// Be the reference, whose counter is the time of all hosts, until SIGINT or SIGTERM.
///
/// UTC is what this machine's clock says, as well as its chrony knows that.
#[derive(clap::Args)]
pub struct Serve {
    /// Answer on this address of the machine
    #[arg(long, default_value = "0.0.0.0")]
    address: IpAddr,
    /// And this UDP port
    #[arg(long, default_value_t = 27182)]
    port: u16,
    #[command(flatten)]
    terms: Terms,
}

/// Follow a reference until SIGINT or SIGTERM.
#[derive(clap::Args)]
pub struct Join {
    /// Where the reference serves
    #[arg(value_name = "HOST:PORT")]
    reference: String,
    #[command(flatten)]
    terms: Terms,
    /// Exchanges a second, 0.01Hz to 1000Hz
    #[arg(long, default_value = "100Hz", value_parser = hertz)]
    rate: f64,
    /// How far an oscillator's rate may wander from its mean: the widths rest on it
    #[arg(long, default_value = "1ppm", value_parser = loopscope_quantity::ratio)]
    wander: f64,
    #[command(flatten)]
    peers: peers::Arguments,
}

#[derive(clap::Args)]
struct Terms {
    /// The secret that all hosts share, of mode 0600. A reference makes it where there is none; copy
    /// it to the others
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// What programs read
    #[arg(long, value_name = "PATH", default_value = DEFAULT_PATH)]
    page: PathBuf,
    /// Keep every probe's stamps in this new directory: some 30 MB an hour [default: nowhere]
    #[arg(long, value_name = "DIR")]
    log: Option<PathBuf>,
}

impl Terms {
    fn side(&self, address: SocketAddr) -> anyhow::Result<Side> {
        let machine = loopscope_collect::Identity::of_this_machine()?;
        let identity = Identity {
            host: machine.host,
            trace_uuid: machine.trace_uuid,
            clock_uuid: machine.clock_uuid,
            frequency: machine.frequency,
        };
        let key = Key::read(&self.key)?;
        Ok(Side { address, directory: self.log.clone(), identity, key, filter: None, faults: None })
    }
}

pub fn serve(arguments: Serve) -> anyhow::Result<ExitCode> {
    let Serve { address, port, terms } = arguments;
    let mut signals = Signals::block()?;
    if Key::make(&terms.key)? {
        eprintln!(
            "loopscope-host: made the key {}: copy it to the hosts that join",
            terms.key.display()
        );
    }
    let side = terms.side(SocketAddr::new(address, port))?;
    let frequency = side.identity.frequency;
    let utc = Arc::new(Watch::start().context("cannot ask chrony")?);
    let responder = Responder::telling(side, Told::Utc(utc.clone()))?;
    let online = Online::reference(frequency);
    let page = Publisher::start(&terms.page, frequency, None, move |now| Published {
        state: online.state(now),
        service: Service { role: Role::Reference, utc: utc.standing(frequency) },
    })?;
    println!("serving on {}; the page is {}", responder.address(), terms.page.display());
    while !responder.has_ended() && !signals.came_within(LOOK)? {}
    drop(page);
    told("replies", &responder.stop()?);
    Ok(ExitCode::SUCCESS)
}

pub fn join(arguments: Join) -> anyhow::Result<ExitCode> {
    let Join { reference, terms, rate, wander, peers } = arguments;
    let mut signals = Signals::block()?;
    let to = resolved(&reference)?;
    let side = terms.side(SocketAddr::new(own_address(to)?, 0))?;
    let frequency = side.identity.frequency;
    let config = ProberConfig {
        side: side.clone(),
        reference: to,
        rate_hz: rate,
        burst: DEFAULT_BURST,
        wander,
        observer: None,
    };
    let prober = Prober::start(config)?;
    let (online, heard) = (prober.online(), prober.heard());
    let known = online.clone();
    let page = Publisher::start(&terms.page, frequency, None, move |now| Published {
        state: lock(&known).state(now),
        service: Service { role: Role::Follower, utc: lock(&heard).utc(Instant::now()) },
    })?;
    println!("following {to}; the page is {}", terms.page.display());
    let mut peers = Peers::start(&peers, &side, &online)?;
    while !prober.has_ended() && !peers.has_ended() && !signals.came_within(LOOK)? {
        peers.look();
        let changes = lock(&online).changes();
        for change in changes {
            eprintln!("loopscope-host: {}", change.what);
        }
    }
    drop(page);
    peers.stop()?;
    told("probes", &prober.stop()?);
    Ok(ExitCode::SUCCESS)
}

/// Between looks at whether all is well.
const LOOK: Duration = Duration::from_secs(1);

/// An address that a person wrote.
pub(super) fn resolved(text: &str) -> anyhow::Result<SocketAddr> {
    let place = || format!("{text:?} is no HOST:PORT that is known");
    text.to_socket_addrs().with_context(place)?.next().with_context(place)
}

/// The address of this machine from which packets go to `to`.
pub(super) fn own_address(to: SocketAddr) -> anyhow::Result<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
    // Connecting a UDP socket sends nothing.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to).with_context(|| format!("there is no way to {to}"))?;
    Ok(socket.local_addr()?.ip())
}

pub(super) fn told(what: &str, counts: &Counts) {
    let lost: u64 = counts.lost.values().sum();
    let causes: Vec<String> =
        counts.lost.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
    let causes = if lost > 0 { format!(" ({})", causes.join(", ")) } else { String::new() };
    println!("{} {what} sent, {} answered, {lost} lost{causes}", counts.sent, counts.answered);
}

fn lock<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hertz(given: &str) -> Result<f64, String> {
    let number = given.trim().strip_suffix("Hz").map(str::trim_end);
    let hertz = number.and_then(|number| number.parse().ok());
    hertz.ok_or_else(|| format!("`{given}` is not a rate: write a number and Hz, as in 100Hz"))
}

/// SIGINT and SIGTERM.
struct Signals(SignalFd);

impl Signals {
    /// Before there are other threads, which would take them otherwise.
    fn block() -> anyhow::Result<Signals> {
        let set = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        set.thread_block().context("cannot wait for signals")?;
        Ok(Signals(SignalFd::new(&set).context("cannot wait for signals")?))
    }

    /// Whether one came.
    fn came_within(&mut self, pause: Duration) -> anyhow::Result<bool> {
        let pause = PollTimeout::try_from(pause).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], pause) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error).context("cannot wait for signals"),
        }
    }
}
