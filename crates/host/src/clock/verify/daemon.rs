//! A host as a process of its own, which can be stopped and killed.

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use loopscope_clocksync::key::Key;
use loopscope_clocksync::offline::DEFAULT_WANDER;
use loopscope_clocksync::page::{PageWriter, Role, Service, on_true_counter};
use loopscope_clocksync::probe::{DEFAULT_BURST, DEFAULT_RATE_HZ, Prober, ProberConfig, Responder};
use loopscope_clocksync::stamp::ordered_counter;
use loopscope_clocksync::state::{State, Status};
use loopscope_clocksync::synthetic::{BEND, SyntheticClock};
use loopscope_clocksync::utc::Standing;
use loopscope_time::{Counter, Frequency};

use super::bed;
use super::measure::ticks;

/// Between two publications.
pub(super) const PERIOD: Duration = Duration::from_millis(20);
/// How long a publication holds: when none follows, the page says so.
pub(super) const LEASE: Duration = Duration::from_secs(2);

/// A host of `clock verify`, until its standard input ends. From the first byte there on it publishes
/// without pause.
#[derive(clap::Args)]
pub struct Arguments {
    #[arg(long)]
    name: String,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    address: Ipv4Addr,
    /// Of the log
    #[arg(long)]
    directory: PathBuf,
    #[arg(long)]
    key: PathBuf,
    #[arg(long)]
    hz: u64,
    /// Of a follower: whom it probes
    #[arg(long, requires = "page")]
    reference: Option<SocketAddr>,
    /// Of a follower: where it publishes
    #[arg(long, requires = "reference")]
    page: Option<PathBuf>,
}

/// What standard input has said.
#[derive(Default)]
struct Orders {
    busy: AtomicBool,
    ended: AtomicBool,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let frequency = Frequency::from_hz(arguments.hz).context("--hz 0 is no frequency")?;
    let clock = SyntheticClock::new(arguments.seed, &arguments.name);
    let key = Key::read(&arguments.key)?;
    let directory = arguments.directory.clone();
    let side =
        bed::side(&arguments.name, arguments.address, directory, key, frequency, clock, None);
    let orders: &'static Orders = Box::leak(Box::default());
    std::thread::spawn(|| {
        let mut byte = [0];
        while matches!(std::io::stdin().read(&mut byte), Ok(1)) {
            orders.busy.store(true, Ordering::Relaxed);
        }
        orders.ended.store(true, Ordering::Relaxed);
    });
    if let (Some(reference), Some(page)) = (arguments.reference, &arguments.page) {
        let mut writer = PageWriter::create(page, frequency)?;
        let prober = Prober::start(ProberConfig {
            side,
            reference,
            rate_hz: DEFAULT_RATE_HZ,
            burst: DEFAULT_BURST,
            wander: DEFAULT_WANDER,
            observer: None,
        })?;
        eprintln!("listening on {}", arguments.address);
        let online = prober.online();
        // Epochs of a page do not begin anew with its next writer.
        let first_epoch = writer.epoch().map_or(0, |last| last + 1);
        let service = Service { role: Role::Follower, utc: Standing::default() };
        while !orders.ended.load(Ordering::Relaxed) {
            let now = ordered_counter();
            let known = online.lock().unwrap_or_else(PoisonError::into_inner);
            let state = known.state(clock.apply(now));
            drop(known);
            let state = published(&state, now, clock, ticks(frequency, LEASE));
            let state = State { epoch: first_epoch + state.epoch, ..state };
            writer.publish(&state, service).context("the page cannot hold the state")?;
            if !orders.busy.load(Ordering::Relaxed) {
                std::thread::sleep(PERIOD);
            }
        }
        prober.stop()?;
    } else {
        let responder = Responder::start(side)?;
        eprintln!("listening on {}", responder.address());
        while !orders.ended.load(Ordering::Relaxed) {
            std::thread::sleep(PERIOD);
        }
        responder.stop()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A state on the machine's counter, which holds for `lease` ticks.
fn published(state: &State, now: Counter, clock: SyntheticClock, lease: u64) -> State {
    let until = Counter(state.anchor.0.saturating_add(lease));
    let leased = State { expires: state.expires.min(until), ..*state };
    let on_true = on_true_counter(&leased, |c| clock.apply(c), |c| clock.invert(c), BEND);
    // Nothing is known.
    on_true.unwrap_or(State { status: Status::Unknown, anchor: now, expires: now, ..*state })
}
