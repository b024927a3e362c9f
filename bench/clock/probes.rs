//! What clock probes cost, and how noisy the stamps are that they bring, before any estimator: over
//! a bare veth pair, idle and with every CPU busy. Both ends share one counter, so the legs' own
//! difference is the whole error. Prints JSON. Needs root.
//!
//! `cargo run --release -p loopscope-clocksync --example probes [SECONDS]`

use std::error::Error;
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use loopscope_clocksync::Span;
use loopscope_clocksync::exchange::{Exchange, Pair};
use loopscope_clocksync::key::Key;
use loopscope_clocksync::offline::DEFAULT_WANDER;
use loopscope_clocksync::probe::{
    Counts, DEFAULT_BURST, DEFAULT_RATE_HZ, Outcome, Prober, ProberConfig, Responder, Side,
};
use loopscope_clocksync::record::Identity;
use loopscope_clocksync::stamp::Reading;
use loopscope_time::Frequency;
use nix::sched::{CloneFlags, setns};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ENDS: [&str; 2] = ["ref", "a"];
/// Exchanges of which the smallest delays of both legs are compared.
const GROUP: usize = 10;

fn main() -> Result<()> {
    let seconds = std::env::args().nth(1).map_or(Ok(20), |text| text.parse())?;
    let frequency = frequency();
    let mut parts = Vec::new();
    for (name, busy) in [("idle", false), ("busy", true)] {
        let load = busy.then(Load::start);
        let measured = measure(Duration::from_secs(seconds), frequency)?;
        drop(load);
        parts.push(format!("\"{name}\": {}", measured.json(seconds as f64, frequency)));
    }
    println!("{{\"rate_hz\": {DEFAULT_RATE_HZ}, \"seconds\": {seconds}, {}}}", parts.join(", "));
    Ok(())
}

/// The counter's, to some ppm: noise needs no more.
fn frequency() -> Frequency {
    let begin = Reading::take();
    std::thread::sleep(Duration::from_millis(200));
    let end = Reading::take();
    let ticks = end.at.lo.ticks_since(begin.at.lo) as f64;
    let hz = ticks * 1e9 / (end.clock.0 - begin.clock.0) as f64;
    Frequency::from_hz(hz.round() as u64).expect("the counter counts")
}

/// Two namespaces and a cable, as long as it lives.
struct Cable([String; 2]);

impl Cable {
    fn lay() -> Result<Cable> {
        let cable = Cable(ENDS.map(|end| format!("lsprobes{}{end}", std::process::id())));
        let [reference, follower] = &cable.0;
        ip(&format!("netns add {reference}"))?;
        ip(&format!("netns add {follower}"))?;
        ip(&format!("-n {reference} link add clk type veth peer name clk netns {follower}"))?;
        for (i, namespace) in cable.0.iter().enumerate() {
            ip(&format!("-n {namespace} addr add {}/24 dev clk", address(i)))?;
            ip(&format!("-n {namespace} link set clk up"))?;
        }
        Ok(cable)
    }

    /// Runs `work` at one end.
    fn at<T: Send>(&self, end: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let namespace = File::open(Path::new("/run/netns").join(&self.0[end]))?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                setns(namespace, CloneFlags::CLONE_NEWNET)?;
                work()
            });
            thread.join().map_err(|_| "a thread panicked")?
        })
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for namespace in &self.0 {
            if let Err(error) = ip(&format!("netns del {namespace}")) {
                eprintln!("{error}");
            }
        }
    }
}

fn address(end: usize) -> IpAddr {
    IpAddr::from([10, 77, 0, end as u8 + 1])
}

fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("ip {arguments}: {error}").into()) }
}

/// Keeps every CPU busy.
struct Load(Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

impl Load {
    fn start() -> Load {
        let on = Arc::new(AtomicBool::new(true));
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = |_| {
            let on = on.clone();
            // Only a flag: nothing is published by it.
            std::thread::spawn(move || while on.load(Ordering::Relaxed) {})
        };
        Load(on.clone(), (0..cpus).map(spin).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
        for thread in self.1.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Measured {
    exchanges: Vec<Exchange>,
    /// CPU nanoseconds: responder, prober.
    cpu: [u64; 2],
    counts: [Counts; 2],
}

fn measure(time: Duration, frequency: Frequency) -> Result<Measured> {
    let cable = Cable::lay()?;
    let run = tempfile::tempdir()?;
    let side = |end: usize| -> Result<Side> {
        let host = ENDS[end].to_owned();
        Ok(Side {
            address: SocketAddr::new(address(end), 0),
            directory: Some(run.path().join(&host)),
            identity: Identity { host, trace_uuid: [1; 16], clock_uuid: [2; 16], frequency },
            key: Key::new(&[7; 32])?,
            filter: None,
            faults: None,
            own_interface: false,
            before_stamps: None,
        })
    };
    let responder = cable.at(0, || Ok(Responder::start(side(0)?)?))?;
    let exchanges = Arc::new(Mutex::new(Vec::new()));
    let into = exchanges.clone();
    let config = ProberConfig {
        side: side(1)?,
        reference: responder.address(),
        rate_hz: DEFAULT_RATE_HZ,
        burst: DEFAULT_BURST,
        load_burst: DEFAULT_BURST,
        wander: DEFAULT_WANDER,
        observer: Some(Arc::new(move |outcome: &Outcome| {
            into.lock().expect("nothing panics with it").push(outcome.exchange);
        })),
    };
    let prober = cable.at(1, || Ok(Prober::start(config)?))?;
    // Without the first burst.
    exchanges.lock().expect("nothing panics with it").clear();
    let before = cpu_times()?;
    std::thread::sleep(time);
    let after = cpu_times()?;
    let exchanges = exchanges.lock().expect("nothing panics with it").clone();
    let counts = [prober.stop()?, responder.stop()?];
    Ok(Measured { exchanges, cpu: [0, 1].map(|end| after[end] - before[end]), counts })
}

/// Nanoseconds on a CPU of the responder's and of the prober's thread.
fn cpu_times() -> Result<[u64; 2]> {
    let mut times = [0; 2];
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        let name = fs::read_to_string(task.join("comm"))?;
        let names = ["clock-responder", "clock-prober"];
        if let Some(end) = names.iter().position(|n| *n == name.trim()) {
            let stat = fs::read_to_string(task.join("schedstat"))?;
            times[end] = stat.split(' ').next().ok_or("an empty schedstat")?.parse()?;
        }
    }
    Ok(times)
}

impl Measured {
    fn json(&self, seconds: f64, frequency: Frequency) -> String {
        let ns = frequency.ns_per_tick();
        let middle = |span: Span| 0.5 * span.width() as f64;
        let apart = |from: Span, to: Span| {
            (to.lo.ticks_since(from.lo) as f64 + middle(to) - middle(from)) * ns
        };
        let complete = self.exchanges.iter().filter_map(|e| Some((e.t1?, e.t2?, e.t3?, e.t4?)));
        let legs: Vec<(f64, f64)> =
            complete.clone().map(|(t1, t2, t3, t4)| (apart(t1, t2), apart(t3, t4))).collect();
        let least = |legs: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| {
            legs.iter().map(of).fold(f64::INFINITY, f64::min)
        };
        let minima = legs.chunks_exact(GROUP);
        let halves = minima.map(|g| 0.5 * (least(g, |l| l.0) - least(g, |l| l.1)).abs());
        let widths = complete.flat_map(|(t1, t2, t3, t4)| [t1, t2, t3, t4]);
        let widths = widths.map(|span| span.width() as f64 * ns);
        let share = |pair| {
            let here = self.exchanges.iter().filter(|e| e.forward == pair).count()
                + self.exchanges.iter().filter(|e| e.back == pair).count();
            here as f64 / (2 * self.exchanges.len().max(1)) as f64
        };
        let [responder, prober] = self.cpu.map(|cpu| cpu as f64 / seconds / 1e9);
        format!(
            "{{\"cpu_share\": {{\"reference\": {responder:.5}, \"follower\": {prober:.5}}}, \
             \"exchanges\": {}, \"lost\": {}, \"clean\": {:.4}, \"distorted\": {:.4}, \
             \"round_trip_ns\": {}, \"half_difference_of_minima_ns\": {}, \"stamp_width_ns\": {}}}",
            self.exchanges.len(),
            lost(&self.counts),
            share(Pair::Clean),
            share(Pair::Distorted),
            distribution(legs.iter().map(|leg| leg.0 + leg.1)),
            distribution(halves),
            distribution(widths),
        )
    }
}

fn lost(counts: &[Counts; 2]) -> String {
    let all = counts.iter().flat_map(|counts| &counts.lost);
    let rows: Vec<String> = all.map(|(cause, count)| format!("\"{cause}\": {count}")).collect();
    format!("{{{}}}", rows.join(", "))
}

fn distribution(values: impl Iterator<Item = f64>) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        values.get((share * values.len().saturating_sub(1) as f64).round() as usize).copied()
    };
    let named =
        [("min", 0.0), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];
    let rows = named.map(|(name, share)| match at(share) {
        Some(value) => format!("\"{name}\": {value:.1}"),
        None => format!("\"{name}\": null"),
    });
    format!("{{{}}}", rows.join(", "))
}
