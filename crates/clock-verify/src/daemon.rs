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
use loopscope_clocksync::page::{Published, Publisher, Role, Service};
use loopscope_clocksync::probe::{DEFAULT_BURST, DEFAULT_RATE_HZ, Prober, ProberConfig, Responder};
use loopscope_clocksync::synthetic::SyntheticClock;
use loopscope_clocksync::utc::Standing;
use loopscope_time::Frequency;

use super::bed;

/// Between looks at whether it is over.
const LOOK: Duration = Duration::from_millis(20);

/// A host of `clock verify`, until its standard input ends. From the first byte there on it
/// publishes without pause.
#[derive(clap::Args)]
pub struct Arguments {
    #[arg(long)]
    name: String,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    address: Ipv4Addr,
    /// Directory of the log
    #[arg(long)]
    directory: PathBuf,
    #[arg(long)]
    key: PathBuf,
    #[arg(long)]
    hz: u64,
    /// On a follower: address of the reference that it probes
    #[arg(long, requires = "page")]
    reference: Option<SocketAddr>,
    /// On a follower: path of the page that it publishes
    #[arg(long, requires = "reference")]
    page: Option<PathBuf>,
}

/// What standard input has said.
#[derive(Default)]
struct Orders {
    busy: AtomicBool,
    ended: AtomicBool,
}

/// Is one host of the scenario `holdover`, until standard input ends.
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
        let prober = Prober::start(ProberConfig {
            side,
            reference,
            rate_hz: DEFAULT_RATE_HZ,
            burst: DEFAULT_BURST,
            load_burst: DEFAULT_BURST,
            wander: DEFAULT_WANDER,
            observer: None,
        })?;
        let online = prober.online();
        let service = Service { role: Role::Follower, utc: Standing::default() };
        let publish = move |now| {
            let online = online.lock().unwrap_or_else(PoisonError::into_inner);
            Published { state: online.state(now), service }
        };
        let publisher = Publisher::start(page, frequency, Some(clock), publish)?;
        eprintln!("listening on {}", arguments.address);
        while !orders.ended.load(Ordering::Relaxed) {
            if orders.busy.load(Ordering::Relaxed) {
                publisher.set_gap(Duration::ZERO);
            }
            std::thread::sleep(LOOK);
        }
        drop(publisher);
        prober.stop()?;
    } else {
        let responder = Responder::start(side)?;
        eprintln!("listening on {}", responder.address());
        while !orders.ended.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        responder.stop()?;
    }
    Ok(ExitCode::SUCCESS)
}
