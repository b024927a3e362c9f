//! Processes that are killed while they use a channel, and processes that were forked.
//!
//! `main` is of this file, because what is stepped through and what forks has to have one thread.
#![allow(unsafe_code)]

#[path = "../../../tests/skip.rs"]
mod skip;
mod small;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use fastrand::Rng;
use loopscope_stm::{Config, From, GetError as NoItem, Which};
use loopscope_stm_shared::{Client, Files, GetError, Options, Service, Shared, Until, Unusable};
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

const OPTIONS: Options = Options {
    config: Config { capacity: 8, slots: 10, inputs: 8, outputs: 8, ..small::OPTIONS.config },
    item_bytes: 64,
    processes: 8,
};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["stepped", parent, control, payload] => stepped(&opened(parent, control, payload)),
        ["works", parent, control, payload, number] => {
            works(&opened(parent, control, payload), number.parse().unwrap());
        }
        ["serves", path] => {
            let service = Service::listen(Path::new(path)).unwrap();
            println!("serves");
            // Standard input ends with the test.
            service.serve(std::io::stdin()).unwrap();
        }
        ["holds", path] => {
            let mut client = Client::connect(Path::new(path)).unwrap();
            let channel = client.open("frames", true).unwrap();
            let _output = channel.output().unwrap();
            let mut input = channel.input(From::Oldest, false, 1).unwrap();
            let _item = input.get(Which::Oldest, Until::Forever).unwrap();
            println!("holds");
            std::thread::park();
        }
        _ => {
            let tests: [(&str, fn()); 5] = [
                ("a_process_may_be_killed_at_any_store", a_process_may_be_killed_at_any_store),
                ("processes_are_killed_under_load", processes_are_killed_under_load),
                ("a_forked_process_has_to_open", a_forked_process_has_to_open),
                ("a_service_may_be_killed", a_service_may_be_killed),
                ("a_service_sees_a_process_end", a_service_sees_a_process_end),
            ];
            for (name, test) in tests {
                test();
                println!("test {name} ... ok");
            }
        }
    }
}

/// A file of another process.
fn file_of(process: &str, fd: &str) -> File {
    let path = format!("/proc/{process}/fd/{fd}");
    File::options().read(true).write(true).open(path).unwrap()
}

fn opened(process: &str, control: &str, payload: &str) -> Files {
    Files { control: file_of(process, control), payload: file_of(process, payload) }
}

fn open(files: &Files) -> Shared {
    Shared::open(&files.control, &files.payload).unwrap()
}

/// This program again.
fn begin(what: &str, files: &Files, more: &[&str]) -> Child {
    let own = std::process::id().to_string();
    let fds = [&files.control, &files.payload].map(|file| file.as_raw_fd().to_string());
    let words = [&[what, &own, &fds[0], &fds[1]], more].concat();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(words).stdout(Stdio::piped()).spawn().unwrap()
}

/// A process that has said a line.
fn said(mut child: Killed, words: &str) -> Killed {
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, format!("{words}\n"));
    child
}

/// This program again, with a service's path, as soon as it has said what it does.
fn begun(what: &str, path: &Path) -> Killed {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(what).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    said(Killed(child), what)
}

/// Whether ptrace(2) does something with a process, without a signal or memory of ours.
fn ptrace(what: libc::c_uint, process: i32) -> bool {
    // SAFETY: these requests take no address, and a signal of 0 is none.
    unsafe { libc::ptrace(what, process, 0, 0) == 0 }
}

/// Does everything once, between two stops.
fn stepped(files: &Files) {
    if !ptrace(libc::PTRACE_TRACEME, 0) {
        std::process::exit(3);
    }
    raise(Signal::SIGSTOP).unwrap();
    let channel = open(files);
    let mut output = channel.output().unwrap();
    let mut input = channel.input(From::Oldest, true, 3).unwrap();
    for time in [10, 12, 11] {
        output.put(time, 0, &time.to_le_bytes(), Until::Now).unwrap();
    }
    let item = input.get(Which::Exact(11), Until::Now).unwrap();
    drop(input.range(10, 11).unwrap());
    output.bound(13).unwrap();
    input.consume(12).unwrap();
    drop(input.get(Which::Oldest, Until::Now).unwrap());
    input.consume_until(10).unwrap();
    drop((input, item));
    let mut loan = output.loan(Until::Now).unwrap();
    loan[0] = 1;
    drop(output);
    loan.put(14, 1, 1, Until::Now).map_err(|(_, error)| error).unwrap();
    drop(channel);
    raise(Signal::SIGSTOP).unwrap();
}

/// A copy of a channel in which a process has been killed: another one has got its number.
///
/// Also the channel as it is used by the survivor, which was there before.
fn copy_without(files: &Files, control: &[u8], process: u32) -> (Files, Shared) {
    let copy = Files::create(&OPTIONS).unwrap();
    // Its entry is the first one, as in the channel that is copied.
    let survivor = open(&copy);
    let mut control = control.to_vec();
    for word in control.as_chunks_mut::<8>().0 {
        let value = u64::from_le_bytes(*word);
        // An entry: number and begin of the process.
        if value >> 32 & ((1 << 22) - 1) == u64::from(process) && value as u32 != 0 {
            *word = (value ^ 1).to_le_bytes();
        }
    }
    copy.control.write_all_at(&control, 0).unwrap();
    let mut payload = vec![0; files.payload.metadata().unwrap().len() as usize];
    files.payload.read_exact_at(&mut payload, 0).unwrap();
    copy.payload.write_all_at(&payload, 0).unwrap();
    (copy, survivor)
}

/// What is left of a channel can be used, to put and get, and no slot is missing.
fn goes_on(channel: &Shared, since: Instant) -> Duration {
    // Somebody may have seen it.
    let shown = channel.newest();
    let counts = channel.counts().unwrap();
    let took = since.elapsed();
    channel.reap().unwrap();
    let mut output = channel.output().unwrap();
    let mut input = channel.input(From::Oldest, false, 4).unwrap();
    if let Some(shown) = shown {
        let is_there = input.get(Which::Exact(shown), Until::Now);
        let was_there = Some(GetError::Get(NoItem::Gone));
        assert!(is_there.is_ok() || is_there.as_ref().err() == was_there.as_ref(), "{shown}");
    }
    let mut bytes = [0; 8];
    while let Ok(item) = input.get(Which::Oldest, Until::Now) {
        // What is seen without the lock is what is there.
        let newest = input.get(Which::Newest, Until::Now).unwrap();
        let look = input.look(None, &mut bytes).unwrap();
        assert_eq!((look.time, look.put_ns), (newest.time(), newest.put_ns()));
        assert_eq!(bytes[..look.bytes], newest[..]);
        assert!(matches!(item.time(), 5 | 10..=12 | 14), "{}", item.time());
        if item.len() == 8 {
            assert_eq!(item[..], item.time().to_le_bytes());
        }
        input.consume(item.time()).unwrap();
    }
    assert!(input.look(None, &mut bytes).is_err());
    output.put(20, 0, b"new", Until::Now).unwrap();
    assert_eq!(input.look(None, &mut bytes).unwrap().time, 20);
    assert_eq!(&input.get(Which::Newest, Until::Now).unwrap()[..], b"new");
    drop(input);
    let after = channel.counts().unwrap();
    assert!(after.put > counts.put);
    assert_eq!(after.put - after.collected, u64::from(after.present), "{after:?}");
    assert_eq!(after.free + after.present, OPTIONS.config.slots, "{after:?}");
    drop(output);
    assert!(channel.processes().iter().all(|each| *each == std::process::id()));
    took
}

fn a_process_may_be_killed_at_any_store() {
    let files = Files::create(&OPTIONS).unwrap();
    let survivor = open(&files);
    let _wants = survivor.input(From::Oldest, false, 1).unwrap();
    survivor.output().unwrap().put(5, 0, &5_i64.to_le_bytes(), Until::Now).unwrap();
    // Where this panics, the process is killed before the survivor wants the lock.
    let mut child = Killed(begin("stepped", &files, &[]));
    let process = Pid::from_raw(child.0.id().cast_signed());
    let stopped = WaitStatus::Stopped(process, Signal::SIGSTOP);
    if waitpid(process, None).unwrap() != stopped {
        assert_eq!(child.0.wait().unwrap().code(), Some(3));
        skip::skipped("no process may be traced here");
        return;
    }
    let mut before = vec![0; files.control.metadata().unwrap().len() as usize];
    files.control.read_exact_at(&mut before, 0).unwrap();
    let mut now = before.clone();
    let (mut steps, mut took) = (0, vec![]);
    loop {
        assert!(ptrace(libc::PTRACE_SINGLESTEP, process.as_raw()));
        let status = waitpid(process, None).unwrap();
        if status == stopped {
            break;
        }
        assert_eq!(status, WaitStatus::Stopped(process, Signal::SIGTRAP));
        steps += 1;
        files.control.read_exact_at(&mut now, 0).unwrap();
        if now != before {
            let (copy, survivor) = copy_without(&files, &now, child.0.id());
            let since = Instant::now();
            // Every other time, a process that opens the channel is the first to find it so.
            let newcomer = (took.len() % 2 == 1).then(|| open(&copy));
            took.push(goes_on(newcomer.as_ref().unwrap_or(&survivor), since));
            before.copy_from_slice(&now);
        }
    }
    assert!(ptrace(libc::PTRACE_DETACH, process.as_raw()));
    assert!(child.0.wait().unwrap().success());
    took.sort();
    assert!(took.len() > 300, "{}", took.len());
    println!(
        "killed after each of {} stores in {steps} instructions; until another one went on: \
         median {:?}, longest {:?}",
        took.len(),
        took[took.len() / 2],
        took[took.len() - 1]
    );
}

/// A machine that does other things, too, may take a while.
const LONG: Duration = Duration::from_secs(5);

/// A time that is greater than all that any process has put, mostly.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    since.as_nanos() as i64
}

/// Puts and gets without an end, with holds and loans.
fn works(files: &Files, number: i64) {
    let channel = open(files);
    let mut draw = Rng::with_seed(number.cast_unsigned());
    let soon = || Until::Deadline(Instant::now() + Duration::from_micros(200));
    println!("works");
    loop {
        let mut output = channel.output().unwrap();
        let mut input = channel.input(From::Newest, draw.bool(), 3).unwrap();
        let mut items = vec![];
        for _ in 0..draw.u64(..2000) {
            match draw.u64(..6) {
                0 | 1 => {
                    let time = now();
                    _ = output.put(time, 0, &time.to_le_bytes(), soon());
                }
                2 => {
                    if let Ok(item) = input.get(Which::Oldest, soon()) {
                        input.consume_until(item.time()).unwrap();
                        items.push(item);
                    }
                }
                3 => {
                    let item = input.get(Which::Unseen, soon());
                    if let Ok(item) = item {
                        assert_eq!(item[..8], item.time().to_le_bytes());
                    }
                }
                4 => items.clear(),
                _ => {
                    if let Ok(item) = input.get(Which::Newest, Until::Now) {
                        input.consume_until(item.time()).unwrap();
                    }
                }
            }
        }
    }
}

fn processes_are_killed_under_load() {
    let soak = std::env::var_os("LOOPSCOPE_SOAK").is_some();
    let kills = if soak { 1000 } else { 20 };
    let files = Files::create(&OPTIONS).unwrap();
    let channel = open(&files);
    let mut draw = Rng::new();
    let mut workers = BTreeMap::new();
    let mut took = vec![];
    // It does not keep the others from putting while this process sleeps.
    let mut input = channel.input(From::Newest, true, 4).unwrap();
    let mut output = channel.output().unwrap();
    for number in 0..kills {
        while workers.len() < 3 {
            let number = (3 * number + workers.len() as i64).to_string();
            let worker = said(Killed(begin("works", &files, &[&number])), "works");
            workers.insert(worker.0.id(), worker);
        }
        std::thread::sleep(Duration::from_micros(draw.u64(..20_000)));
        let which = *workers.keys().nth(draw.usize(..3)).unwrap();
        let since = Instant::now();
        drop(workers.remove(&which));
        // It had wants, holds and loans. Another process gets and puts all the same.
        loop {
            let newest = input.get(Which::Newest, Until::Now).map_or(0, |item| item.time());
            input.consume_until(newest).unwrap();
            let time = now();
            if output.put(time, 0, &time.to_le_bytes(), Until::Deadline(since + LONG)).is_ok() {
                break;
            }
            assert!(since.elapsed() < LONG, "nothing can be put any more");
        }
        took.push(since.elapsed());
    }
    workers.clear();
    drop((input, output));
    channel.reap().unwrap();
    assert_eq!(channel.processes(), [std::process::id()]);
    let counts = channel.counts().unwrap();
    assert_eq!(counts.put - counts.collected, u64::from(counts.present), "{counts:?}");
    assert_eq!(counts.free + counts.present, OPTIONS.config.slots, "{counts:?}");
    drop((channel, files));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("loopscope-stm"), "{maps}");
    took.sort();
    println!(
        "{kills} processes killed among {} puts; until another one could put: median {:?}, longest \
         {:?}",
        counts.put,
        took[took.len() / 2],
        took[took.len() - 1]
    );
}

/// A process that is killed at the end.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGKILL);
        _ = self.0.wait();
    }
}

fn a_forked_process_has_to_open() {
    let files = Files::create(&OPTIONS).unwrap();
    let channel = open(&files);
    let mut output = channel.output().unwrap();
    let mut input = channel.input(From::Oldest, false, 1).unwrap();
    output.put(1, 0, b"one", Until::Now).unwrap();
    let item = input.get(Which::Oldest, Until::Now).unwrap();
    // SAFETY: this process has one thread.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let refused = channel.counts() == Err(Unusable::Forked)
                && output.put(2, 0, b"two", Until::Now).is_err()
                && &item[..] == b"one";
            let own = Shared::open(&files.control, &files.payload);
            let is_well = refused && own.is_ok_and(|own| own.counts().is_ok());
            // What it drops is its parent's, and stays.
            drop((item, input, output, channel));
            std::process::exit(if is_well { 0 } else { 1 });
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
        }
    }
    assert_eq!(&item[..], b"one");
    output.put(2, 0, b"two", Until::Now).unwrap();
    drop(item);
    assert_eq!(input.get(Which::Exact(2), Until::Now).unwrap().time(), 2);
    assert_eq!(channel.processes(), [std::process::id()]);
}

fn a_service_may_be_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sub/socket");
    let service = begun("serves", &path);
    let mut client = Client::connect(&path).unwrap();
    assert!(client.create("frames", &OPTIONS).unwrap());
    assert!(client.create("unused", &OPTIONS).unwrap());
    let channel = client.open("frames", true).unwrap();
    let mut output = channel.output().unwrap();
    output.put(1, 0, b"one", Until::Now).unwrap();
    drop(service);
    // Those that use the channel go on.
    let mut input = channel.input(From::Oldest, false, 2).unwrap();
    assert_eq!(&input.get(Which::Newest, Until::Now).unwrap()[..], b"one");
    output.put(2, 0, b"two", Until::Now).unwrap();
    assert!(client.list().is_err());
    assert!(Client::connect(&path).err().unwrap().to_string().contains("loopscope stm serve"));
    // Another service takes its place, and goes on with the channel; it sees who ends.
    let _service = begun("serves", &path);
    let holder = begun("holds", &path);
    let found = client.list().unwrap();
    // What nobody used is gone with the first one.
    assert_eq!(found.len(), 1);
    let found = &found[0];
    assert_eq!((found.name.as_str(), found.items, found.inputs.len()), ("frames", 2, 2));
    let listed = |process: u32| found.processes.contains(&process);
    assert!(listed(std::process::id()) && listed(holder.0.id()));
    drop(_service);
    let _service = begun("serves", &path);
    assert_eq!(client.list().unwrap()[0].inputs.len(), 2);
    drop(holder);
    let since = Instant::now();
    while client.list().unwrap()[0].inputs.len() > 1 {
        assert!(since.elapsed() < LONG, "the connection of one that has ended is there still");
    }
    // A channel is there for as long as somebody uses it.
    drop((_service, output, input, channel));
    let _service = begun("serves", &path);
    assert_eq!(client.list().unwrap(), []);
}

fn a_service_sees_a_process_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let _service = begun("serves", &path);
    let mut client = Client::connect(&path).unwrap();
    client.create("frames", &OPTIONS).unwrap();
    let channel = client.open("frames", true).unwrap();
    channel.output().unwrap().put(7, 0, b"seven", Until::Now).unwrap();
    let holder = begun("holds", &path);
    let process = holder.0.id();
    let listed = client.list().unwrap().remove(0);
    let oldest = listed.oldest.unwrap();
    assert_eq!((oldest.time, &oldest.wanted_by[..]), (7, &[Some(process)][..]));
    assert_eq!(oldest.held_by, [Some(process)]);
    assert_eq!((listed.items, listed.bytes, listed.inputs.len()), (1, 5, 1));
    assert!(listed.processes.contains(&process));
    drop(holder);
    // Nobody asks for an item or a slot meanwhile.
    let since = Instant::now();
    while !client.list().unwrap()[0].inputs.is_empty() {
        assert!(since.elapsed() < LONG, "its connection is there still");
    }
    let listed = client.list().unwrap().remove(0);
    assert_eq!((listed.outputs.len(), listed.oldest.unwrap().held_by.len()), (0, 0));
    assert!(!listed.processes.contains(&process));
}
