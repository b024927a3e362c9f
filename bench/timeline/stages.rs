//! Decodes a trace to columns on the global time line, and puts them in order, over and over:
//! `stages DIR ROUNDS`. Prints events, and the seconds and CPU seconds of each round, as JSON.
//!
//! The map of its clock is a follower's: a knot each 100 ms, whose rate and widths change.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use loopscope_ctf::Metadata;
use loopscope_ctf::packet::{RECORDS, get_context};
use loopscope_time::{ClockMap, Counter, GlobalNs, Knot};
use loopscope_timeline::{BuildError, HostClock, Timeline};
use serde_json::json;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let [_, dir, rounds] = words.as_slice() else {
        eprintln!("usage: stages DIR ROUNDS");
        return ExitCode::from(2);
    };
    match measure(Path::new(dir), rounds.parse().unwrap_or(1)) {
        Ok(found) => println!("{found}"),
        Err(error) => {
            eprintln!("stages: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn measure(dir: &Path, rounds: usize) -> Result<String, Box<dyn std::error::Error>> {
    let clock = clock(dir)?;
    let timed = |read: fn(Timeline) -> Result<u64, BuildError>| {
        let mut timeline = Timeline::new();
        timeline.add_host(dir, "h", clock.clone())?;
        let (begin, cpu) = (Instant::now(), cpu_s()?);
        let events = read(timeline)?;
        let took = json!({"s": begin.elapsed().as_secs_f64(), "cpu_s": cpu_s()? - cpu});
        Ok::<_, Box<dyn std::error::Error>>((events, took))
    };
    let (mut decode, mut order, mut events) = (Vec::new(), Vec::new(), 0);
    for _ in 0..rounds {
        let (count, seconds) = timed(Timeline::decode)?;
        decode.push(seconds);
        order.push(timed(Timeline::order)?.1);
        events = count;
    }
    Ok(json!({"events": events, "decode": decode, "order": order}).to_string())
}

/// As of a follower that was probed while the trace was recorded.
fn clock(dir: &Path) -> Result<HostClock, Box<dyn std::error::Error>> {
    let trace = dir.join("trace");
    let text = std::fs::read_to_string(trace.join("metadata"))?;
    let frequency = Metadata::parse(&text)?.frequency;
    let mut begin = u64::MAX;
    for entry in std::fs::read_dir(&trace)? {
        let path = entry?.path();
        let size = std::fs::metadata(&path)?.len();
        let mut head = [0; RECORDS];
        let mut file = std::fs::File::open(&path)?;
        if std::io::Read::read_exact(&mut file, &mut head).is_ok()
            && let Ok(context) = get_context(&head, size)
        {
            begin = begin.min(context.begin.0);
        }
    }
    let ticks = frequency.hz() / 10;
    let mut ns = 0.0;
    let knots = (0..600u32).map(|i| {
        ns += 1e8 + f64::from(i % 7) * 30.0;
        Knot {
            counter: Counter(begin + u64::from(i) * ticks),
            offset_ns: ns,
            err_ns: 900.0 + f64::from(i % 11) * 20.0,
            calibrated_ns: 90.0,
        }
    });
    Ok(HostClock {
        map: ClockMap::new(GlobalNs(0), knots.collect(), frequency.ns_per_tick(), 1e-6)?,
        frequency,
        reference: false,
        exchanges: 0,
        rejected: 0,
        readings: Vec::new(),
        events: Vec::new(),
    })
}

/// CPU seconds that this process's threads have taken so far.
fn cpu_s() -> std::io::Result<f64> {
    let mut ns = 0.0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        let ran = text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok());
        ns += ran.ok_or_else(|| std::io::Error::other("no time in schedstat"))?;
    }
    Ok(ns * 1e-9)
}
