//! A writer in a process of its own, at full speed, stopped and killed, with eight concurrent
//! readers.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use loopscope_clock::layout::{LEASE_SHIFT, WORDS, word};
use loopscope_clock::{Page, Status, Time};
use loopscope_time::{Counter, GlobalNs};
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::{SERVICE, state, writer};
use crate::page::line;
use crate::state::State;

const READERS: usize = 8;
const AT: Counter = Counter(1 << 40);

/// The n-th state: every word is a function of `epoch`, and all change from one to the next.
fn numbered(epoch: u32) -> State {
    let n = u64::from(epoch);
    State {
        epoch,
        status: if n % 3 == 0 { Status::Holdover } else { Status::Synchronised },
        anchor: Counter(AT.0 - 64 * (n % (1 << 20))),
        global: GlobalNs((n * 1_000_003) as i64),
        fraction_ns: (n % 8) as f64 / 8.0,
        below_ns: (n % 1000) as f64,
        above_ns: (n * 7 % 1000) as f64,
        calibrated_ns: (n * 3 % 500) as f64,
        apart_ns: (n % 300) as f64,
        ns_per_tick: 0.25 + (n % 16) as f64 / 64.0,
        drift: (n % 5) as f64 / f64::from(1 << 20),
        since: Counter(AT.0 - 64 * (n % (1 << 20)) - n % 7),
        stale: Counter(AT.0 + ((1 + n % 64) << LEASE_SHIFT)),
        expires: Counter(AT.0 + 1 + n),
    }
}

/// What the page is to say of [`AT`] by the n-th state, in exact integers: 2⁻⁶ ns per tick, 2⁻²⁰.
fn expected(epoch: u32) -> Time {
    let n = i64::from(epoch);
    let ticks = 64 * (n % (1 << 20));
    let sixtyfourths = ticks * (16 + n % 16) + 8 * (n % 8);
    let best = n * 1_000_003 + (sixtyfourths + 32).div_euclid(64);
    // The unit that the drift has more is 2⁻⁴⁸ ns for each of less than 2²⁶ ticks: none.
    let grown = (ticks * (16 + n % 16) * (n % 5)) >> 26;
    Time {
        earliest: GlobalNs(best - (n % 1000 + 2) - grown),
        best: GlobalNs(best),
        latest: GlobalNs(best + (n * 7 % 1000 + 2) + grown),
        counter: AT,
        calibrated_ns: (n * 3 % 500 + 1) as u32,
        epoch,
        status: if n % 3 == 0 { Status::Holdover } else { Status::Synchronised },
    }
}

/// The other process. Started by the tests below; by itself it does nothing.
#[test]
fn writing_process() {
    let Some(path) = std::env::var_os("LOOPSCOPE_TEST_PAGE") else { return };
    let stop_at: Option<usize> =
        std::env::var("LOOPSCOPE_TEST_STOP_AT").ok().map(|text| text.parse().unwrap());
    let mut writer = writer(Path::new(&path));
    let first = writer.epoch().map_or(1, |epoch| epoch + 1);
    writer.publish(&numbered(first), SERVICE).unwrap();
    println!("\npublished {first}");
    std::io::stdout().flush().unwrap();
    for epoch in first + 1.. {
        writer
            .publish_slowly(&numbered(epoch), SERVICE, |index| {
                if Some(index) == stop_at {
                    raise(Signal::SIGSTOP).unwrap();
                }
            })
            .unwrap();
    }
}

/// Ends with the test, whatever becomes of it.
struct Writing(Child);

impl Writing {
    fn start(path: &Path, stop_at: Option<usize>) -> Writing {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "page::tests::handover::writing_process", "--nocapture"]);
        command.env("LOOPSCOPE_TEST_PAGE", path).stdout(Stdio::piped());
        if let Some(index) = stop_at {
            command.env("LOOPSCOPE_TEST_STOP_AT", index.to_string());
        }
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let published = lines.map_while(Result::ok).any(|line| line.starts_with("published "));
        let writing = Writing(child);
        assert!(published, "the writer ended");
        writing
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id() as i32)
    }

    fn stop(&self) {
        kill(self.pid(), Signal::SIGSTOP).unwrap();
        self.wait_until_stopped();
    }

    fn wait_until_stopped(&self) {
        let status = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert!(matches!(status, WaitStatus::Stopped(..)), "{status:?}");
    }

    fn go_on(&self) {
        kill(self.pid(), Signal::SIGCONT).unwrap();
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads `count` times, by turns what programs see and all words; what was seen has to be one
/// state, never one before another that was seen already. Returns the last one's epoch.
fn read(page: &Page, count: u64) -> u32 {
    let mut last = 0;
    let mut torn = |epoch: u32, whole: bool| {
        assert!(whole, "torn at epoch {epoch}");
        assert!(epoch >= last, "back from {last} to {epoch}");
        last = epoch;
    };
    for number in 0..count {
        if number % 4 == 0 {
            let words =
                page.words().expect("a reader never waits, and finds one in eight attempts");
            let epoch = words[word::STANDING] as u32;
            let mut wanted = line::words(&numbered(epoch), SERVICE).unwrap();
            wanted[word::PID..=word::START].copy_from_slice(&words[word::PID..=word::START]);
            torn(epoch, words == wanted && words[WORDS - 1] == 0);
        } else {
            let time = page.map(AT);
            torn(time.epoch, time == expected(time.epoch) && time.status != Status::Unknown);
        }
    }
    last
}

#[test]
fn eight_readers_beside_a_writer_at_full_speed_that_is_stopped_at_any_point() {
    let soak = std::env::var_os("LOOPSCOPE_SOAK").is_some();
    let total: u64 = if soak { 100_000_000 } else { 4_000_000 };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page");
    let writing = Writing::start(&path, None);
    let page = Page::open(Some(&path)).unwrap();
    let done: [AtomicU64; READERS] = Default::default();
    let stops = AtomicU64::new(0);
    let sum = || done.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
    // However the machine shares its processors out.
    let enough = || {
        sum() >= total
            && stops.load(Ordering::Relaxed) >= 10
            && u64::from(read(&page, 1)) > total / 100
    };
    thread::scope(|scope| {
        let readers = done.each_ref().map(|count| {
            scope.spawn(|| {
                while !enough() {
                    read(&page, 1000);
                    count.fetch_add(1000, Ordering::Relaxed);
                }
            })
        });
        // A reader that found something wrong has ended.
        let ended = || readers.iter().any(|reader| reader.is_finished());
        // Every one of them reads on.
        let wait = || {
            let before = done.each_ref().map(|count| count.load(Ordering::Relaxed));
            let on =
                |(now, before): (&AtomicU64, u64)| now.load(Ordering::Relaxed) >= before + 2000;
            while !done.iter().zip(before).all(on) && !ended() {
                thread::yield_now();
            }
        };
        while !readers.iter().all(|reader| reader.is_finished()) {
            writing.stop();
            wait();
            stops.fetch_add(1, Ordering::Relaxed);
            writing.go_on();
            wait();
        }
    });
    let (read, published, stops) = (sum(), read(&page, 1), stops.into_inner());
    let result = format!(
        "{{\"readers\": {READERS}, \"read\": {read}, \"published\": {published}, \"stops\": {stops}, \"torn\": 0, \"unknown\": 0}}\n"
    );
    eprint!("clock page: {result}");
    if soak {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/soak-results");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("clock-page.json"), result).unwrap();
    }
}

/// Before each of a publication's stores; and before the number itself, when all words are there.
#[test]
fn nobody_waits_for_a_writer_that_is_stopped_or_killed_in_the_middle() {
    for index in 0..=WORDS {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("page");
        let writing = Writing::start(&path, Some(index));
        writing.wait_until_stopped();
        let page = Page::open(Some(&path)).unwrap();
        thread::scope(|scope| {
            for _ in 0..READERS {
                scope.spawn(|| {
                    assert_eq!(read(&page, 2_000), 1, "the one before the unfinished one")
                });
            }
        });
        // One publication later it stops itself again.
        writing.go_on();
        writing.wait_until_stopped();
        assert_eq!(read(&page, 100), 2);
        drop(writing);
        assert_eq!(read(&page, 100), 2);
        // Started again, it takes the page over with its unfinished slot.
        let again = Writing::start(&path, Some(index));
        again.wait_until_stopped();
        assert_eq!(read(&page, 100), 3);
        assert_eq!(page.writer().unwrap().pid, again.0.id());
    }
}

/// The process's own clock finds the page that came in the place of another.
#[test]
fn a_program_finds_the_page_that_replaces_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page");
    loopscope_clock::open(Some(&path)).unwrap_err();
    let mut first = writer(&path);
    first.publish(&state(), SERVICE).unwrap();
    let wait = |wanted: u32| {
        let begun = Instant::now();
        // What does not hold makes a program look again.
        while loopscope_clock::map(state().anchor).epoch != wanted {
            loopscope_clock::map(state().expires);
            assert!(begun.elapsed() < Duration::from_secs(20), "epoch {wanted} is not found");
            thread::yield_now();
        }
    };
    wait(3);
    first.retire().unwrap();
    assert_eq!(loopscope_clock::map(state().anchor).status, Status::Unknown);
    writer(&path).publish(&State { epoch: 4, ..state() }, SERVICE).unwrap();
    wait(4);
    // Removed by somebody else, it goes on until it expires, and then the new one is found.
    std::fs::remove_file(&path).unwrap();
    writer(&path).publish(&State { epoch: 5, ..state() }, SERVICE).unwrap();
    assert_eq!(loopscope_clock::map(state().anchor).epoch, 4);
    wait(5);

    // Corrected by a second, time stands still for that long, and says how wrong that may be.
    let path = directory.path().join("corrected");
    let now = loopscope_time::source::read_counter();
    let fresh = State { anchor: now, expires: Counter(now.0 + (1 << 40)), ..state() };
    let mut corrected = writer(&path);
    corrected.publish(&fresh, SERVICE).unwrap();
    loopscope_clock::open(Some(&path)).unwrap();
    let before = loopscope_clock::monotonic();
    let back = GlobalNs(fresh.global.0 - 3_600_000_000_000);
    corrected.publish(&State { global: back, ..fresh }, SERVICE).unwrap();
    let held = loopscope_clock::monotonic();
    assert_eq!((held.best, held.latest), (before.best, before.best));
    assert!(held.earliest < GlobalNs(back.0 + 3_000_000_000_000));
    assert!(loopscope_clock::now().best < before.best);
    corrected.publish(&State { status: Status::Unknown, ..fresh }, SERVICE).unwrap();
    let unknown = loopscope_clock::monotonic();
    assert_eq!((unknown.best, unknown.status), (before.best, Status::Unknown));
    corrected.publish(&fresh, SERVICE).unwrap();
    assert!(loopscope_clock::monotonic().best >= before.best);
}
