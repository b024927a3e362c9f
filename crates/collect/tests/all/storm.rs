//! Random programs under random streams: threads, forks, kills at random instants, tiny rings,
//! random filters. The account is exact each time.
//!
//! `LOOPSCOPE_SOAK=1` runs 2000 of them and stores the result in `tests/soak-results/storm.json`.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::lab::{self, Lab, Trace};
use loopscope_collect::stream::{Choice, Filter, Kind};
use loopscope_collect::{Cause, LossReport, MAIN, Predicate, StreamSpec};

/// xorshift64*
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % n
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Divisor and rest of an id that a stream's condition lets through.
type Condition = Option<(i64, i64)>;

fn random_stream(random: &mut Random, name: &str) -> (StreamSpec, Condition) {
    let flight = name != MAIN && random.below(3) == 0;
    let kind = if flight { Kind::FlightRecorder } else { Kind::Normal };
    let mut spec = StreamSpec {
        name: name.into(),
        kind,
        subbuffer: random.one_of(&[256, 512, 1024, 4096]),
        subbuffers: random.one_of(&[3, 4, 16, 256]),
        spares: random.one_of(&[0, 2, 5]),
        on_death: random.below(2) == 0,
        post: Duration::from_micros(random.one_of(&[0, 300])),
        ..StreamSpec::default()
    };
    let mut condition = None;
    if random.below(2) == 0 {
        let (divisor, rest) = (1 + random.below(5).cast_signed(), random.below(3).cast_signed());
        let text = format!("id % {divisor} == {rest} || id < 0");
        let holds = Predicate::parse(&text, lab::identity().frequency).unwrap();
        spec.filters.push(Filter {
            glob: "tally:*".into(),
            condition: Some(holds),
            every: (random.below(3) == 0).then(|| 1 + random.below(4)),
            rate: (random.below(4) == 0).then(|| 1 + random.below(5000)),
        });
        condition = Some((divisor, rest));
    }
    if flight && random.below(2) == 0 {
        let text = format!("id == {}", random.below(3000));
        let holds = Predicate::parse(&text, lab::identity().frequency).unwrap();
        spec.triggers.push(("*:hit".into(), holds));
    }
    if name != MAIN && random.below(8) == 0 {
        spec.entities.push(Choice::Disable("tally:h?t".into()));
    }
    (spec, condition)
}

#[derive(Default)]
struct Tally {
    recorded: u64,
    overwritten: u64,
    dropped: u64,
    filtered: u64,
    torn: u64,
    killed: u64,
}

fn run(program: &Path, seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let names = [MAIN, "two", "three"];
    let count = 1 + random.below(3) as usize;
    let (streams, conditions): (Vec<_>, Vec<_>) =
        names[..count].iter().map(|name| random_stream(&mut random, name)).unzip();
    let lab = Lab::with(&streams);
    let mut collector = lab.collector();
    let (mut ends, write_end) = std::io::pipe().unwrap();
    let mut command = lab.tallied(program, &seed.to_string());
    let mut child = command.stdout(write_end).stderr(Stdio::null()).spawn().unwrap();
    drop(command);
    // The pipe ends when the last descendant is gone.
    let gone = std::thread::spawn(move || ends.read_to_end(&mut Vec::new()));
    let early = random.below(6) == 0;
    let mut polls = 0;
    while !(gone.is_finished() || early && polls == 20) {
        collector.poll().unwrap();
        polls += 1;
        match random.below(20) {
            0 => std::thread::sleep(Duration::from_micros(random.below(3000))),
            1 => {
                collector.trigger(None, Cause::Command, None).unwrap();
            }
            _ => std::thread::yield_now(),
        }
    }
    // Programs that still run go on, and nothing more is counted.
    let over = gone.is_finished();
    let losses = collector.finish().unwrap();
    gone.join().unwrap().unwrap();
    tally.killed += u64::from(child.wait().unwrap().signal() == Some(libc::SIGKILL));
    assert_eq!(losses.problems, [""; 0]);
    for (spec, condition) in streams.iter().zip(conditions) {
        let loss = &losses.streams[&spec.name];
        check(&lab, spec, condition, loss, over, seed);
        tally.recorded += loss.recorded;
        tally.overwritten += loss.overwritten;
        tally.dropped += loss.dropped;
        tally.torn += loss.torn;
        let sites = loss.processes.iter().flat_map(|p| &p.sites);
        tally.filtered += sites.map(|site| site.filtered).sum::<u64>();
    }
}

fn check(
    lab: &Lab,
    spec: &StreamSpec,
    condition: Condition,
    loss: &LossReport,
    over: bool,
    seed: u64,
) {
    let out = lab.out_of(&spec.name);
    lab::check_loss(loss);
    let trace = if seed % 20 == 1 { lab::check(&out, loss) } else { Trace::read(&out) };
    assert_eq!(trace.events.len() as u64, loss.recorded + loss.finals);
    if let Some((divisor, rest)) = condition {
        assert!(trace.events.iter().all(|e| e.id % divisor == rest));
    }
    let everything = spec.entities.len() == 1;
    if over && everything {
        lab::check_against_tally(lab, loss);
    }
    // What is there is there once: a thread's ids only rise, in the order of their stamps.
    let mut events: Vec<_> = trace.events.iter().map(|e| (e.pid, e.tid, e.counter, e.id)).collect();
    events.sort_unstable();
    let twice = events.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(twice, None);
}

/// Runs programs until `enough`; the seeds that failed, with why.
fn runs(program: &Path, seeds: impl Iterator<Item = u64>, tally: &mut Tally) -> Vec<(u64, String)> {
    let mut failures = Vec::new();
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(program, seed, tally))) {
            let text = panic.downcast_ref::<String>().cloned();
            failures.push((seed, text.unwrap_or_else(|| "panicked".to_owned())));
        }
    }
    failures
}

#[test]
fn the_account_is_exact() {
    let soak = std::env::var_os("LOOPSCOPE_SOAK").is_some();
    let count = if soak { 2000 } else { 60 };
    let mut tally = Tally::default();
    let failures = runs(lab::storm(), 1..=count, &mut tally);
    let Tally { recorded, overwritten, dropped, filtered, torn, killed } = tally;
    let result = serde_json::json!({
        "programs": count, "first_seed": 1, "failures": failures, "recorded": recorded,
        "overwritten": overwritten, "dropped": dropped, "filtered": filtered, "torn": torn,
        "killed": killed,
    });
    eprintln!("storms: {result}");
    if soak {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/soak-results");
        std::fs::create_dir_all(&folder).unwrap();
        let text = format!("{result:#}\n");
        std::fs::write(folder.join("storm.json"), text).unwrap();
    }
    assert_eq!(failures, []);
    let all = [recorded, overwritten, dropped, filtered, killed];
    assert!(all.iter().all(|number| *number > 0), "too mild: {result}");
}

/// The same check finds a writer that loses one event of each thread.
#[test]
fn a_writer_that_loses_one_event_is_found() {
    let text = "__atomic_store_n(&ring->committed, committed + LOOPSCOPE_RECORD + size, __ATOMIC_RELEASE);";
    let program =
        lab::mutated_storm("loses", "record.c", text, &format!("if (id != 77)\n        {text}"));
    let failures = runs(&program, 1..=10, &mut Tally::default());
    assert!(failures.len() >= 3, "{failures:?}");
}

/// Threads that are often inside a hit, for long, when streams and filters come and go under it.
#[test]
fn the_account_is_exact_for_hits_that_take_long() {
    let text = "    struct loopscope_control *control = loopscope_control;\n";
    let pause =
        "    static __thread unsigned hits;\n    if (++hits % 64 == 0)\n        usleep(200);\n";
    let replacement = format!("{text}    extern int usleep(unsigned);\n{pause}");
    let program = lab::mutated_storm("pauses", "record.c", text, &replacement);
    let failures = runs(&program, 1..=60, &mut Tally::default());
    assert_eq!(failures, []);
}
