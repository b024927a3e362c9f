//! Probes between network namespaces over a bridge: all share one counter, so the truth is known,
//! with plain clocks and behind synthetic ones, idle and with every processor busy.
//!
//! `--nocapture` shows the errors and widths that were reached.

mod run;

use std::fs::File;
use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use loopscope_clocksync::log::{ProbeLog, solve_run};
use loopscope_clocksync::offline::DEFAULT_WANDER;
use loopscope_clocksync::probe::{
    Counts, DEFAULT_BURST, DEFAULT_RATE_HZ, Prober, ProberConfig, Responder,
};
use loopscope_clocksync::record::{Filter, Moment, Source};
use loopscope_clocksync::stamp::ordered_counter;
use loopscope_clocksync::synthetic::SyntheticClock;
use loopscope_time::Counter;
use nix::sched::{CloneFlags, setns};
use nix::unistd::Uid;
use run::{babeltrace_count, frequency, probes, side};

const FOLLOWERS: [&str; 2] = ["h2", "h3"];
const HOSTS: [&str; 3] = ["h1", "h2", "h3"];

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
}

/// Three hosts' namespaces and a bridge in a fourth.
struct Testbed {
    prefix: String,
}

impl Testbed {
    fn build(name: &str) -> Testbed {
        // From here on dropping removes what was made.
        let testbed = Testbed { prefix: format!("lsclk{}{name}", std::process::id()) };
        let switch = testbed.namespace("sw");
        ip(&format!("netns add {switch}"));
        ip(&format!("-n {switch} link add br0 type bridge"));
        ip(&format!("-n {switch} link set br0 up"));
        for (i, host) in HOSTS.iter().enumerate() {
            let namespace = testbed.namespace(host);
            ip(&format!("netns add {namespace}"));
            ip(&format!("-n {namespace} link add clk0 type veth peer name port{i} netns {switch}"));
            ip(&format!("-n {switch} link set port{i} master br0"));
            ip(&format!("-n {switch} link set port{i} up"));
            ip(&format!("-n {namespace} addr add {}/24 dev clk0", address(i)));
            ip(&format!("-n {namespace} link set clk0 up"));
        }
        testbed
    }

    fn namespace(&self, host: &str) -> String {
        format!("{}{host}", self.prefix)
    }

    /// Runs `work` in a host's namespace.
    fn within<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.namespace(host));
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                setns(File::open(path).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            thread.join().unwrap()
        })
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        for host in HOSTS.iter().chain(&["sw"]) {
            let name = self.namespace(host);
            if std::path::Path::new("/run/netns").join(&name).exists() {
                // A panic here would hide the first one; what stays is seen by its name.
                if let Err(error) = Command::new("ip").args(["netns", "del", &name]).status() {
                    eprintln!("{name} could not be removed: {error}");
                }
            }
        }
    }
}

fn address(i: usize) -> IpAddr {
    IpAddr::from([10, 78, 0, i as u8 + 1])
}

/// Keeps every processor busy until dropped.
struct Load {
    on: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn new(count: usize) -> Load {
        let on = Arc::new(AtomicBool::new(true));
        let spin = |_| {
            let on = on.clone();
            // Only a flag: nothing is published by it.
            std::thread::spawn(move || while on.load(Ordering::Relaxed) {})
        };
        let threads = (0..count).map(spin).collect();
        Load { on, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.on.store(false, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

type Clocks = [Option<SyntheticClock>; 3];

fn probe(testbed: &Testbed, hosts: &std::path::Path, clocks: Clocks) -> Vec<Counts> {
    let frequency = frequency();
    let filter = |i: usize| -> Option<Filter> {
        clocks[i].map(|clock| -> Filter { Arc::new(move |c: Counter| clock.apply(c)) })
    };
    let side = |i: usize| side(hosts, HOSTS[i], address(i), frequency, filter(i));
    let responder = testbed.within("h1", || Responder::start(side(0)).unwrap());
    let probers: Vec<Prober> = (1..HOSTS.len())
        .map(|i| {
            let config = ProberConfig {
                side: side(i),
                reference: responder.address(),
                rate_hz: DEFAULT_RATE_HZ,
                burst: DEFAULT_BURST,
                load_burst: DEFAULT_BURST,
                wander: DEFAULT_WANDER,
                observer: None,
            };
            testbed.within(HOSTS[i], || Prober::start(config).unwrap())
        })
        .collect();
    for prober in &probers {
        assert!(prober.answered() > 0);
    }
    // The measured part of a run.
    std::thread::sleep(Duration::from_secs(3));
    let mut counts: Vec<Counts> = probers.into_iter().map(|p| p.stop().unwrap()).collect();
    counts.push(responder.stop().unwrap());
    counts
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

fn truth_is_inside_the_width(name: &str, synthetic: bool, busy: bool) {
    if !Uid::effective().is_root() {
        run::skip::skipped("needs root to make network namespaces");
        return;
    }
    let testbed = Testbed::build(name);
    let run = tempfile::tempdir().unwrap();
    let clocks = HOSTS.map(|host| synthetic.then(|| SyntheticClock::new(17, host)));
    let processors = std::thread::available_parallelism().unwrap().get();
    let load = busy.then(|| Load::new(processors));
    let begin = ordered_counter();
    let counts = probe(&testbed, run.path(), clocks);
    let end = ordered_counter();
    drop(load);

    let solved = solve_run(run.path(), "h1", DEFAULT_WANDER).unwrap();
    assert_eq!(solved.len(), HOSTS.len());
    let shown = |i: usize, c: Counter| clocks[i].map_or(c, |clock| clock.apply(c));
    let ns_per_tick = solved["h1"].frequency.ns_per_tick();
    for (i, host) in HOSTS.iter().enumerate().skip(1) {
        let clock = &solved[*host];
        assert_eq!((clock.rejected, &clock.disturbances[..]), (0, &[][..]));
        let (mut errors, mut widths) = (Vec::new(), Vec::new());
        // Beyond both ends of the probes too, by a tenth.
        let length = end.0 - begin.0;
        for step in 0..10_000 {
            let counter = Counter(begin.0 - length / 10 + length * 12 / 100_000 * step);
            let (ts, bound) = clock.map.map(shown(i, counter));
            let truth = solved["h1"].map.map(shown(0, counter)).0;
            let error = (ts - truth).unsigned_abs();
            // Synthetic clocks cut to whole ticks, on both sides; the truth itself is rounded.
            let allowed = bound.ns() + 1 + (2.0 * ns_per_tick).ceil() as u64;
            assert!(error <= allowed, "{host}: off by {error} ns, {bound}, at step {step}");
            if (begin..=end).contains(&counter) {
                errors.push(error);
                widths.push(bound.ns());
            }
        }
        let sum = &counts[i - 1];
        if let Some(count) = babeltrace_count(&probes(run.path(), host), "clock:probe_sent") {
            assert_eq!(count as u64, sum.sent);
        }
        eprintln!(
            "{name} {host}: error median {} max {} ns, maximum error median {} max {} ns, {} of {} \
             answered, {} knots, drift {:.2} ppm, lost {:?}",
            median(errors.clone()),
            errors.iter().max().unwrap(),
            median(widths.clone()),
            widths.iter().max().unwrap(),
            sum.answered,
            sum.sent,
            clock.map.knots().len(),
            clock.map.drift().unwrap() * 1e6,
            sum.lost,
        );
    }
    eprintln!("{name} h1: {:?}", counts[FOLLOWERS.len()]);
    // Both directions' kernel stamps are to be had on these links.
    let logs = HOSTS.map(|host| ProbeLog::read(&probes(run.path(), host)).unwrap());
    for moment in Moment::ALL {
        let kernel = |o: &&_| {
            matches!(o, loopscope_clocksync::record::Observation {
            moment: m, source: Source::Kernel, .. } if *m == moment)
        };
        assert!(logs.iter().any(|log| log.observations.iter().filter(kernel).count() > 0));
    }
}

#[test]
fn plain_clocks_idle() {
    truth_is_inside_the_width("pi", false, false);
}

#[test]
fn plain_clocks_busy() {
    truth_is_inside_the_width("pb", false, true);
}

#[test]
fn synthetic_clocks_idle() {
    truth_is_inside_the_width("si", true, false);
}

#[test]
fn synthetic_clocks_busy() {
    truth_is_inside_the_width("sb", true, true);
}
