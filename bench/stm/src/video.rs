//! Pictures of 1080p at 60 per second, from a producer to processes that get each, by space-time
//! memory and by copies; and what that takes of the processors besides writing the pictures.
//!
//! The producer is on the first processor and the others are on the last one. `6m`, `1m`, `64k`: a
//! picture of about so many bytes is written in place. `blank`: nothing of it is written but its
//! number. `wake`: the picture stays where it is, and each process is woken by 8 bytes in a pipe.
//! `pipe`: it goes through a pipe to each. `memcpy`: the producer copies it once for each, and
//! there are no others.
//!
//! `put-6m` and the like: one process has the producer and the other connections, none of which
//! waits, and nothing but the number is written; `put-written`: a whole picture is.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use loopscope_stm::{Config, From, Full, Orphans, Time, Which};
use loopscope_stm_shared::{Client, Files, Input, Options, Output, Shared, Until};
use rustix::time::{ClockId, clock_gettime};

use crate::far::{self, Far};
use crate::memory::mapped;

const PICTURE: usize = 1920 * 1080 * 3;
const PERIOD: Duration = Duration::from_nanos(1_000_000_000 / 60);
const CONSUMERS: usize = 3;
/// Pictures before the first one that is measured.
const WARM: u64 = 30;
/// Bytes that wake a process.
const WAKE: usize = 8;
const CHANNEL: &str = "pictures";
const SLOTS: u32 = 6;
/// The mapping of the channel's items.
const ITEMS: &str = "memfd:loopscope-stm-items";

/// What a picture took.
struct Sent {
    /// CPU time of writing it.
    writing: Duration,
    /// How long handing it over took.
    took: Duration,
}

type Send = Box<dyn FnMut(&mut [Far], u64) -> Sent>;

/// Measures a kind and returns JSON; None: there is no such kind.
pub fn near(kind: &str, count: u64) -> Option<String> {
    crate::stay_on(0);
    if let Some(size) = kind.strip_prefix("put-") {
        return Some(match size {
            "written" => puts(PICTURE, true, count),
            size => puts(bytes_of(size)?, false, count),
        });
    }
    let ((mut send, address), consumers): ((Send, String), _) = match kind {
        "blank" => (shares(PICTURE, false), CONSUMERS),
        "wake" => ((pipes(WAKE), String::new()), CONSUMERS),
        "pipe" => ((pipes(PICTURE), String::new()), CONSUMERS),
        "memcpy" => ((copies(), String::new()), 0),
        size => (shares(bytes_of(size)?, true), CONSUMERS),
    };
    let mut fars: Vec<_> =
        (0..consumers).map(|_| Far::start(&format!("video-{kind}"), count, &address)).collect();
    fars.iter_mut().for_each(|far| assert_eq!(far.line(), "ready"));
    let (mut writing, mut took) = (Duration::ZERO, vec![]);
    let (mut begun, mut cpu) = (Instant::now(), cpu_time(ClockId::ProcessCPUTime));
    for number in 0..WARM + count {
        if number == WARM {
            (begun, cpu) = (Instant::now(), cpu_time(ClockId::ProcessCPUTime));
        }
        let sent = send(&mut fars, number);
        if number >= WARM {
            writing += sent.writing;
            took.push(sent.took);
        }
        let since = (number + 1).saturating_sub(WARM).max(1);
        thread::sleep((PERIOD * since as u32).saturating_sub(begun.elapsed()));
    }
    let wall = begun.elapsed();
    let mut cpu = cpu_time(ClockId::ProcessCPUTime) - cpu - writing;
    let mut got = 0.0_f64;
    for far in &mut fars {
        let line = far.line();
        let (ns, bytes) = line.split_once(' ').unwrap();
        cpu += Duration::from_nanos(ns.parse().unwrap());
        got = got.max(bytes.parse().unwrap());
    }
    let each_us = |time: Duration| time.as_nanos() as f64 / 1000.0 / count as f64;
    Some(format!(
        "{{\"cpu_percent\": {:.4}, \"picture_us\": {:.2}, \"writing_us\": {:.2}, \
         \"put_us\": {:.2}, \"per_s\": {:.2}, \
         \"put_touched_kb\": {:.1}, \"got_touched_kb\": {:.1}}}",
        100.0 * cpu.as_secs_f64() / wall.as_secs_f64(),
        each_us(cpu),
        each_us(writing),
        median_us(took),
        count as f64 / wall.as_secs_f64(),
        mapped(ITEMS, "Rss") as f64 / 1000.0,
        got / 1000.0,
    ))
}

/// Is one of the processes that get the pictures.
pub fn far(kind: &str, count: u64, address: &str) {
    let mut receive = match kind {
        "wake" => reads(WAKE),
        "pipe" => reads(PICTURE),
        _ => gets(address),
    };
    println!("ready");
    (0..WARM).for_each(|number| assert_eq!(receive(), number));
    let begun = cpu_time(ClockId::ProcessCPUTime);
    (WARM..WARM + count).for_each(|number| assert_eq!(receive(), number));
    let took = cpu_time(ClockId::ProcessCPUTime) - begun;
    println!("{} {}", took.as_nanos(), mapped(ITEMS, "Rss"));
    far::wait_for_end();
}

/// Bytes of a picture by a kind's word for it.
fn bytes_of(size: &str) -> Option<usize> {
    match size {
        "6m" => Some(PICTURE),
        "1m" => Some(1 << 20),
        "64k" => Some(1 << 16),
        _ => None,
    }
}

fn options(bytes: usize) -> Options {
    let config = Config {
        capacity: 4,
        slots: SLOTS,
        inputs: CONSUMERS as u32,
        outputs: 1,
        loans: 1,
        ahead: 64,
        remembered: 64,
        orphans: Orphans::Keep,
        full: Full::Refuse,
    };
    Options { config, item_bytes: bytes as u32, processes: 8 }
}

/// Pictures in a channel of a service of this process; and its path.
fn shares(bytes: usize, is_written: bool) -> (Send, String) {
    let (service, path) = far::service();
    far::serve(service);
    Client::connect(&path).unwrap().create(CHANNEL, &options(bytes)).unwrap();
    let mut output = Client::connect(&path).unwrap().open(CHANNEL, true).unwrap().output().unwrap();
    let send = move |_: &mut [Far], number| lend(&mut output, number, bytes, is_written);
    (Box::new(send), path.to_str().unwrap().into())
}

fn lend(output: &mut Output, number: u64, bytes: usize, is_written: bool) -> Sent {
    let begun = Instant::now();
    let mut loan = output.loan(Until::Forever).unwrap();
    let lending = begun.elapsed();
    let writing = write(&mut loan[..bytes], number, is_written);
    let begun = Instant::now();
    assert!(loan.put(number as Time, 0, bytes, Until::Forever).is_ok());
    Sent { writing, took: lending + begun.elapsed() }
}

/// Measures puts alone.
fn puts(bytes: usize, is_written: bool, count: u64) -> String {
    let files = Files::create(&options(bytes)).unwrap();
    let shared = Shared::open(&files.control, &files.payload).unwrap();
    let mut output = shared.output().unwrap();
    let mut inputs =
        [(); CONSUMERS].map(|()| shared.input(From::Oldest, false, 1).map(taker).unwrap());
    let mut took = vec![];
    for number in 0..WARM + count {
        took.push(lend(&mut output, number, bytes, is_written).took);
        inputs.iter_mut().for_each(|take| assert_eq!(take(), number));
    }
    took.drain(..WARM as usize);
    format!("{{\"put_us\": {:.3}}}", median_us(took))
}

fn median_us(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_nanos() as f64 / 1000.0
}

fn gets(path: &str) -> Box<dyn FnMut() -> u64> {
    let shared = Client::connect(Path::new(path)).unwrap().open(CHANNEL, false).unwrap();
    Box::new(taker(shared.input(From::Oldest, false, 1).unwrap()))
}

/// Takes the next picture, and returns its number.
fn taker(mut input: Input) -> impl FnMut() -> u64 {
    move || {
        let item = input.get(Which::Oldest, Until::Forever).unwrap();
        let (time, number) = (item.time(), crate::counter_of(&item));
        drop(item);
        input.consume_until(time).unwrap();
        number
    }
}

/// So many bytes of a picture go through pipes.
fn pipes(bytes: usize) -> Send {
    let mut picture = vec![0; PICTURE];
    Box::new(move |fars, number| {
        let writing = write(&mut picture, number, true);
        let begun = Instant::now();
        fars.iter_mut().for_each(|far| far.send(&picture[..bytes]));
        Sent { writing, took: begun.elapsed() }
    })
}

fn reads(bytes: usize) -> Box<dyn FnMut() -> u64> {
    let mut pipe = File::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut picture = vec![0; bytes];
    Box::new(move || {
        pipe.read_exact(&mut picture).unwrap();
        crate::counter_of(&picture)
    })
}

fn copies() -> Send {
    let mut picture = vec![0; PICTURE];
    let mut copies = [(); CONSUMERS].map(|()| vec![0; PICTURE]);
    Box::new(move |_, number| {
        let writing = write(&mut picture, number, true);
        let begun = Instant::now();
        copies.iter_mut().for_each(|copy| copy.copy_from_slice(&picture));
        std::hint::black_box(&copies);
        Sent { writing, took: begun.elapsed() }
    })
}

/// Writes a picture's bytes, the first of which are its number; the CPU time of that.
fn write(picture: &mut [u8], number: u64, is_whole: bool) -> Duration {
    let begun = cpu_time(ClockId::ThreadCPUTime);
    if is_whole {
        picture.fill(number as u8);
    }
    crate::item(picture, number);
    cpu_time(ClockId::ThreadCPUTime) - begun
}

fn cpu_time(of: ClockId) -> Duration {
    let time = clock_gettime(of);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
