//! How long an item is on its way from one thread to another, by space-time memory and by others.
//!
//! `stm-bench KIND COUNT` prints percentiles of COUNT items as JSON. The threads are on the first
//! and the last processor and reach what they share as two processes would. An item has the counter
//! as it was before it was put; its latency ends when its reader has its first bytes.
//!
//! `stm-bench hosts-KIND COUNT` does the same between two hosts, which [`hosts`] describes.
//! [`puts`], [`memory`] and [`video`] say what else is measured.

mod bare;
mod far;
mod hosts;
mod many;
mod memory;
mod peers;
mod puts;
mod stm;
mod video;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use loopscope_time::source::read_counter;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Sends an item whose first bytes are the counter.
pub type Send = Box<dyn FnMut(u64)>;
/// The first bytes of a new item; None: there is none yet.
pub type Receive = Box<dyn FnMut() -> Option<u64>>;

/// Two ends, each of which is made by the thread that uses it.
pub struct Ends {
    pub sender: Box<dyn FnOnce() -> Send + std::marker::Send>,
    pub receiver: Box<dyn FnOnce() -> Receive + std::marker::Send>,
}

/// The last item.
const END: u64 = 1;
/// Between two items: of a reader that polls, and of one that sleeps meanwhile.
const POLLED_GAP: Duration = Duration::from_micros(10);
const BLOCKED_GAP: Duration = Duration::from_micros(150);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let (kind, count, address) = match &words[..] {
        [_, kind, count] => (kind, count, None),
        [_, kind, count, address] => (kind, count, Some(address)),
        _ => {
            eprintln!("usage: stm-bench KIND COUNT");
            return ExitCode::from(2);
        }
    };
    let Ok(count) = count.parse() else {
        eprintln!("stm-bench: {count} is no number of items");
        return ExitCode::from(2);
    };
    if let (Some(kind), Some(address)) = (kind.strip_prefix("far-"), address) {
        far::begin();
        match kind.split_once('-') {
            Some(("video", kind)) => video::far(kind, count, address),
            Some(("puts", kind)) => puts::far(kind, address),
            _ => hosts::far(kind, count, address),
        }
        return ExitCode::SUCCESS;
    }
    let found = match kind.split_once('-') {
        Some(("hosts", kind)) => hosts::near(kind, count),
        Some(("memory", kind)) => memory::measured(kind, count as u32),
        Some(("puts", kind)) => puts::near(kind, count),
        Some(("video", kind)) => video::near(kind, count),
        _ => None,
    };
    if let Some(found) = found {
        println!("{found}");
        return ExitCode::SUCCESS;
    }
    let small = 64;
    let (ends, gap) = match &kind[..] {
        "polled-bare" => (bare::polled(small), POLLED_GAP),
        "polled-look" => (stm::looks(small), POLLED_GAP),
        "many-none" => (stm::looks(small), POLLED_GAP),
        "many-channels" => (many::channels(small), POLLED_GAP),
        "many-in-turn" => (many::channels_in_turn(small), POLLED_GAP),
        "many-consumers" => (many::consumers(small), POLLED_GAP),
        "polled-unseen" => (stm::polled(small), POLLED_GAP),
        "polled-iceoryx2" => (peers::polled(small), POLLED_GAP),
        "polled-4k-bare" => (bare::polled(4096), POLLED_GAP),
        "polled-4k-look" => (stm::looks(4096), POLLED_GAP),
        "polled-4k-iceoryx2" => (peers::polled(4096), POLLED_GAP),
        "blocked-futex" => (bare::futex(), BLOCKED_GAP),
        "blocked-pipe" => (bare::pipe(), BLOCKED_GAP),
        "blocked-eventfd" => (bare::eventfd(), BLOCKED_GAP),
        "blocked-get" => (stm::blocked(small), BLOCKED_GAP),
        "blocked-iceoryx2" => (peers::blocked(small), BLOCKED_GAP),
        _ => {
            eprintln!("stm-bench: no kind is {kind}");
            return ExitCode::from(2);
        }
    };
    let mut latencies = measured(ends, gap, count as usize);
    latencies.sort_by(f64::total_cmp);
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    println!(
        "{{\"p50_ns\": {:.1}, \"p99_ns\": {:.1}, \"p999_ns\": {:.1}, \"items\": {}}}",
        at(0.5),
        at(0.99),
        at(0.999),
        latencies.len()
    );
    ExitCode::SUCCESS
}

/// ns of each item that came.
fn measured(ends: Ends, gap: Duration, count: usize) -> Vec<f64> {
    static IS_THERE: AtomicBool = AtomicBool::new(false);
    let Ends { sender, receiver } = ends;
    let last = last();
    let (begun, counter) = (Instant::now(), read_counter().0);
    let reader = thread::spawn(move || {
        stay_on(last);
        let mut receive = receiver();
        IS_THERE.store(true, Ordering::Release);
        let mut ticks = Vec::with_capacity(count);
        loop {
            match receive() {
                None => (),
                Some(END) => return ticks,
                Some(before) => ticks.push(read_counter().0.saturating_sub(before)),
            }
        }
    });
    stay_on(0);
    let mut send = sender();
    while !IS_THERE.load(Ordering::Acquire) {
        thread::yield_now();
    }
    for _ in 0..count {
        let due = Instant::now() + gap;
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        send(read_counter().0);
    }
    thread::sleep(Duration::from_millis(10));
    send(END);
    let ticks = reader.join().unwrap();
    let rate = (read_counter().0 - counter) as f64 / begun.elapsed().as_nanos() as f64;
    ticks.into_iter().map(|ticks| ticks as f64 / rate).collect()
}

/// The last processor.
fn last() -> usize {
    thread::available_parallelism().unwrap().get() - 1
}

fn stay_on(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

/// An item of so many bytes with a counter.
pub fn item(buffer: &mut [u8], counter: u64) -> &[u8] {
    buffer[..8].copy_from_slice(&counter.to_le_bytes());
    buffer
}

pub fn counter_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}
