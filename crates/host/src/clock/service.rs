//! `serve` and `join`: until SIGINT or SIGTERM.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use loopscope_clock::layout::DEFAULT_PATH;
use loopscope_clocksync::key::Key;
use loopscope_clocksync::page::{Published, Publisher, Role, Service};
use loopscope_clocksync::probe::{DEFAULT_BURST, Prober, ProberConfig, ReplyTime, Responder, Side};
use loopscope_clocksync::record::Identity;
use loopscope_clocksync::stamp::ordered_counter;
use loopscope_clocksync::utc::Watch;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;

use super::counts::print_counts;
use super::peers::{self, Peers};
use super::place::{Place, own_address};

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

/// Follow a reference until SIGINT or SIGTERM; waits for it as long as it takes.
#[derive(clap::Args)]
pub struct Join {
    /// Where the reference serves
    #[arg(value_name = "HOST:PORT")]
    reference: String,
    #[command(flatten)]
    terms: Terms,
    /// Exchanges a second, 0.01Hz to 1000Hz; fewer where the reference asks for that
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
        Ok(Side {
            address,
            directory: self.log.clone(),
            identity,
            key,
            filter: None,
            faults: None,
            own_interface: false,
            before_stamps: None,
        })
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
    let responder = Responder::with_time(side, ReplyTime::Utc(utc.clone()))?;
    let online = responder.online();
    let page = Publisher::start(&terms.page, frequency, None, move |now| Published {
        state: lock(&online).state(now),
        service: Service { role: Role::Reference, utc: utc.standing(frequency) },
    })?;
    println!("serving on {}; the page is {}", responder.address(), terms.page.display());
    while !responder.has_ended() && !signals.came_within(LOOK)? {}
    drop(page);
    print_counts("replies", &responder.stop()?);
    Ok(ExitCode::SUCCESS)
}

pub fn join(arguments: Join) -> anyhow::Result<ExitCode> {
    let Join { reference: name, terms, rate, wander, peers } = arguments;
    let mut signals = Signals::block()?;
    let mut reference = Place::of(&name)?;
    let to = reference.address();
    let side = terms.side(SocketAddr::new(own_address(to)?, 0))?;
    let frequency = side.identity.frequency;
    let config = ProberConfig {
        side: side.clone(),
        reference: to,
        rate_hz: rate,
        burst: DEFAULT_BURST,
        load_burst: DEFAULT_BURST,
        wander,
        observer: None,
    };
    let mut prober = Prober::begin(config)?;
    let (online, replies) = (prober.online(), prober.reply_statistics());
    let (known, told_of) = (online.clone(), replies.clone());
    // Programs are told at once that nothing is known yet.
    let page = Publisher::start(&terms.page, frequency, None, move |now| Published {
        state: lock(&known).state(now),
        service: Service { role: Role::Follower, utc: lock(&told_of).utc(Instant::now()) },
    })?;
    let mut silence = Silence::new(Instant::now());
    let mut checks: Option<Peers> = None;
    loop {
        let pause = if checks.is_some() { LOOK } else { GLANCE };
        let ended = prober.has_ended() || checks.as_ref().is_some_and(Peers::has_ended);
        if ended || signals.came_within(pause)? {
            break;
        }
        let last = lock(&replies).last();
        reference.follow("the reference", last, Instant::now(), |own, to| prober.redirect(own, to));
        silence.look(&name, reference.address(), last, Instant::now());
        match &mut checks {
            Some(checks) => checks.look(),
            None if lock(&online).to_global(ordered_counter()).is_some() => {
                println!("following {}; the page is {}", reference.address(), terms.page.display());
                checks = Some(Peers::start(&peers, &side, &online)?);
            }
            None => {}
        }
        let changes = lock(&online).changes();
        for change in changes {
            eprintln!("loopscope-host: {}", change.what);
        }
    }
    drop(page);
    if let Some(checks) = checks {
        checks.stop()?;
    }
    print_counts("probes", &prober.stop()?);
    Ok(ExitCode::SUCCESS)
}

/// Time between two checks of the state.
const LOOK: Duration = Duration::from_secs(1);
/// The same before the reference has answered.
const GLANCE: Duration = Duration::from_millis(50);

/// Reports to a person that a reference does not answer: soon, and then seldom.
struct Silence {
    since: Instant,
    next: Instant,
    told: bool,
}

impl Silence {
    const FIRST: Duration = Duration::from_secs(3);
    const AGAIN: Duration = Duration::from_secs(600);

    fn new(now: Instant) -> Silence {
        Silence { since: now, next: now + Silence::FIRST, told: false }
    }

    /// `last`: when it answered last.
    fn look(&mut self, name: &str, at: SocketAddr, last: Option<Instant>, now: Instant) {
        if last.is_some_and(|last| last > self.since) {
            if self.told {
                eprintln!("loopscope-host: {name} answers");
            }
            let since = last.unwrap_or(now);
            *self = Silence { since, next: since + Silence::FIRST, told: false };
        }
        if now < self.next {
            return;
        }
        let seconds = now.saturating_duration_since(self.since).as_secs();
        eprintln!(
            "loopscope-host: waiting for {name} ({at}), which has not answered for {seconds} s: is \
             its clock running with the same key, and does the network pass UDP between the two?"
        );
        (self.next, self.told) = (now + Silence::AGAIN, true);
    }
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
