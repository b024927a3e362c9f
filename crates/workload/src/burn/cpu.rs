//! Threads that keep a CPU busy.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use super::Kind;
use super::period::{Shares, Tally};
use crate::cpu_time;
use crate::stop::Stop;

/// Steps between two looks at the clock: some 10 us.
const STEPS: u32 = 4096;

/// A cache line of common processors.
const LINE: usize = 64;

/// What a thread did.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Thread {
    pub(super) cpu_s: f64,
    pub(super) wall_s: f64,
    pub(super) shares: Shares,
    /// Cache lines read and written; null for arithmetic.
    pub(super) lines: Option<u64>,
}

/// Takes `share` of a CPU in each period, in CPU time of its own, until `end` or the stop.
pub(super) fn burn(
    kind: Kind,
    working_set: u64,
    share: f64,
    period: Duration,
    end: Option<Instant>,
    stop: &Stop,
) -> Result<Thread> {
    let mut work = Work::new(kind, working_set);
    let (begin, cpu_begin) = (Instant::now(), cpu_time::of_thread());
    let mut tally = Tally::default();
    let budget = period.mul_f64(share);
    let over = || stop.is_set() || end.is_some_and(|end| Instant::now() >= end);
    let mut next = begin;
    while !over() {
        let (from, cpu) = (Instant::now(), cpu_time::of_thread());
        next += period;
        let mut used = Duration::ZERO;
        while used < budget && Instant::now() < next && !over() {
            work.steps();
            used = cpu_time::of_thread() - cpu;
        }
        stop.sleep_until(end.map_or(next, |end| next.min(end)))?;
        let length = from.elapsed();
        // The last one may be cut off.
        if length >= period.mul_f64(0.5) {
            tally.add(used.as_secs_f64() / length.as_secs_f64());
        }
        // Periods that others took are gone.
        let now = Instant::now();
        if now > next + period {
            next = now;
        }
    }
    Ok(Thread {
        cpu_s: (cpu_time::of_thread() - cpu_begin).as_secs_f64(),
        wall_s: begin.elapsed().as_secs_f64(),
        shares: tally.shares(),
        lines: work.lines(),
    })
}

/// Something to do.
enum Work {
    Arithmetic(f64),
    Memory { words: Vec<u64>, random: fastrand::Rng, lines: u64 },
}

impl Work {
    fn new(kind: Kind, working_set: u64) -> Work {
        match kind {
            Kind::Cache | Kind::Memory => Work::Memory {
                // Written, so that the pages are there.
                words: (0..working_set / size_of::<u64>() as u64).collect(),
                random: fastrand::Rng::with_seed(0),
                lines: 0,
            },
            Kind::Arithmetic | Kind::Compile => Work::Arithmetic(1.0),
        }
    }

    fn steps(&mut self) {
        match self {
            Work::Arithmetic(value) => {
                for _ in 0..STEPS {
                    // Newton's way to the root of 2: each step waits for the last one's division.
                    *value = black_box((*value + 2.0 / *value) * 0.5);
                }
            }
            Work::Memory { words, random, lines } => {
                let per_line = LINE / size_of::<u64>();
                let count = words.len() / per_line;
                for _ in 0..STEPS / 16 {
                    // No prefetcher knows where it goes next.
                    let word = &mut words[random.usize(..count) * per_line];
                    *word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                }
                black_box(words.as_ptr());
                *lines += u64::from(STEPS / 16);
            }
        }
    }

    fn lines(&self) -> Option<u64> {
        match self {
            Work::Arithmetic(_) => None,
            Work::Memory { lines, .. } => Some(*lines),
        }
    }
}
