//! Bytes per second while streams run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Result;
use loopscope_trace::event;
use serde::Serialize;

use crate::program::print;
use crate::stop::Stop;

const SECOND: Duration = Duration::from_secs(1);

/// What the streams have moved so far.
#[derive(Default)]
pub(super) struct Meter(AtomicU64);

impl Meter {
    pub(super) fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// A second of the run; the last one may be shorter.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Second {
    pub(super) begin_s: f64,
    pub(super) end_s: f64,
    pub(super) bytes: u64,
}

/// Work on one or more streams.
pub(super) type Job<'a, T> = Box<dyn FnOnce(&Meter) -> Result<Vec<T>> + Send + 'a>;

/// Runs the jobs to their ends, each on a thread, and meters them; says each second's rate if
/// `said`. The first error stops all, and is returned when they have ended.
pub(super) fn run<T: Send>(
    jobs: Vec<Job<'_, T>>,
    stop: &Stop,
    said: bool,
) -> Result<(Vec<T>, Vec<Second>)> {
    let meter = Meter::default();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let (sender, ended) = channel();
        for job in jobs {
            let (sender, meter) = (sender.clone(), &meter);
            scope.spawn(move || {
                if let Err(problem) = loopscope_trace::thread_init() {
                    eprintln!("warning: {problem}; this thread's events are lost, and counted");
                }
                // The other end is gone only when this run is given up.
                let _ = sender.send(job(meter));
            });
        }
        drop(sender);
        let mut ticks = Ticks { begin, last: begin, bytes: 0, seconds: Vec::new() };
        let mut results = Vec::new();
        loop {
            match ended.recv_timeout(ticks.due().saturating_duration_since(Instant::now())) {
                Ok(result) => {
                    if result.is_err() {
                        stop.set();
                    }
                    results.push(result);
                }
                Err(RecvTimeoutError::Timeout) => ticks.tick(&meter, said)?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        ticks.tick(&meter, false)?;
        let results = results.into_iter().collect::<Result<Vec<Vec<T>>>>()?;
        Ok((results.into_iter().flatten().collect(), ticks.seconds))
    })
}

struct Ticks {
    begin: Instant,
    last: Instant,
    bytes: u64,
    seconds: Vec<Second>,
}

impl Ticks {
    fn due(&self) -> Instant {
        self.begin + (self.seconds.len() as u32 + 1) * SECOND
    }

    fn tick(&mut self, meter: &Meter, said: bool) -> Result<()> {
        let now = Instant::now();
        let total = meter.0.load(Ordering::Relaxed);
        let second = Second {
            begin_s: (self.last - self.begin).as_secs_f64(),
            end_s: (now - self.begin).as_secs_f64(),
            bytes: total - self.bytes,
        };
        event!("ettcp", "second", self.seconds.len(), bytes = second.bytes);
        if said {
            let Second { begin_s, end_s, bytes } = second;
            let rate = bytes as f64 * 8e-6 / (end_s - begin_s);
            print(format_args!("{begin_s:.1} s to {end_s:.1} s: {rate:.3} Mbit/s"))?;
        }
        self.seconds.push(second);
        (self.bytes, self.last) = (total, now);
        Ok(())
    }
}
