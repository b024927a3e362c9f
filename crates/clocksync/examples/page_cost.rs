//! What reading the clock page costs, for `bench/clock/page.py`: `page_cost ROUNDS COUNT PROGRAM`
//! publishes a page a hundred times a second, has PROGRAM (`bench/clock/page.c`) read it, reads it
//! itself in Rust, and prints both programs' nanoseconds by form and round as JSON.

use std::hint::black_box;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use loopscope_clock::Status;
use loopscope_clocksync::page::{PageWriter, Role, Service};
use loopscope_clocksync::state::State;
use loopscope_clocksync::utc::Standing;
use loopscope_time::source::read_counter;
use loopscope_time::{Counter, Frequency, GlobalNs};

type Anyhow<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Anyhow<()> {
    let words: Vec<String> = std::env::args().collect();
    let [_, rounds, count, program] = words.as_slice() else {
        return Err("usage: page_cost ROUNDS COUNT PROGRAM".into());
    };
    let directory = std::env::temp_dir().join(format!("loopscope-page-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let path = directory.join("clock");
    // The rate is of no matter for the cost; nor is it what makes the page expire in hours.
    let anchor = read_counter();
    let state = State {
        epoch: 1,
        status: Status::Synchronised,
        anchor,
        global: GlobalNs(1_000_000_000),
        fraction_ns: 0.5,
        below_ns: 200.0,
        above_ns: 200.0,
        calibrated_ns: 50.0,
        apart_ns: 100.0,
        ns_per_tick: 0.4,
        drift: 1e-8,
        since: Counter(0),
        stale: Counter(anchor.0 + (1 << 44)),
        expires: Counter(anchor.0 + (1 << 44)),
    };
    let frequency = Frequency::from_hz(2_500_000_000).ok_or("no frequency")?;
    let mut writer = PageWriter::create(&path, frequency)?;
    let service = Service { role: Role::Follower, utc: Standing::default() };
    writer.publish(&state, service)?;
    let reading = AtomicBool::new(true);
    let measured = thread::scope(|scope| -> Anyhow<(String, String)> {
        scope.spawn(|| {
            while reading.load(Ordering::Relaxed) {
                writer.publish(&state, service).expect("it was published before");
                thread::sleep(Duration::from_millis(10));
            }
        });
        let measured = in_c(program, rounds, count, &path)
            .and_then(|c| Ok((c, in_rust(rounds.parse()?, count.parse()?, &path)?)));
        reading.store(false, Ordering::Relaxed);
        measured
    });
    writer.retire()?;
    std::fs::remove_dir(&directory)?;
    let (c, rust) = measured?;
    println!("{{\"c\": {}, \"rust\": {rust}}}", c.trim());
    Ok(())
}

fn in_c(program: &str, rounds: &str, count: &str, page: &std::path::Path) -> Anyhow<String> {
    let mut command = Command::new(program);
    command.args([rounds, count]).env("LOOPSCOPE_CLOCK", page).stderr(Stdio::inherit());
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{program}: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The same forms as in C, in turn.
fn in_rust(rounds: usize, count: u32, page: &std::path::Path) -> Anyhow<String> {
    loopscope_clock::open(Some(page))?;
    let mut from = loopscope_clock::now();
    let mut forms: [(&str, Vec<String>); 5] =
        ["counter", "now", "monotonic", "elapsed", "realtime"].map(|name| (name, Vec::new()));
    for _ in 0..rounds {
        let costs = [
            cost(count, read_counter),
            cost(count, loopscope_clock::now),
            cost(count, loopscope_clock::monotonic),
            cost(count, || {
                let to = loopscope_clock::now();
                let span = loopscope_clock::elapsed(&from, &to);
                from = to;
                span
            }),
            cost(count, SystemTime::now),
        ];
        for (form, ns) in forms.iter_mut().zip(costs) {
            form.1.push(format!("{ns:.3}"));
        }
    }
    if loopscope_clock::now().status == Status::Unknown {
        return Err("the page expired before the last reading".into());
    }
    let forms = forms.map(|(name, costs)| format!("\"{name}_ns\": [{}]", costs.join(", ")));
    Ok(format!("{{{}}}", forms.join(", ")))
}

fn cost<T>(count: u32, mut read: impl FnMut() -> T) -> f64 {
    let start = Instant::now();
    for _ in 0..count {
        black_box(read());
    }
    start.elapsed().as_nanos() as f64 / f64::from(count)
}
