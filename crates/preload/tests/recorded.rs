//! Programs that know nothing of the stack, in a recording. Needs root.

mod machines;
mod recording;
#[path = "../../../tests/skip.rs"]
mod skip;
#[path = "../../stack-service/tests/world/mod.rs"]
mod world;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use machines::At::{Here, There};
use machines::{Compiled, Running, World, compile, in_thread, library, talk};
use nix::unistd::geteuid;
use recording::{Event, Recorded, Recording};
use world::{PATIENCE, ip};

/// Has a pair of `talk.c` run, recorded where it has the library: one that answers there, one that
/// calls here. Their numbers, and what the second one says.
fn pair(
    world: &World,
    recording: &mut Recording,
    preload: [bool; 2],
    (answer, call): (&str, &str),
) -> ([u32; 2], String) {
    let start =
        |at, preload, words: &str| world.spawn(at, preload, &mut recording.command(talk(), words));
    let mut answering = start(There, preload[1], &format!("answer {answer} 10.0.0.2 7000"));
    assert_eq!(answering.line(), "ready");
    let (act, words) = call.split_once(' ').unwrap_or((call, ""));
    let words = format!("call {act} 10.0.0.2 7000 {words}");
    let mut calling = start(Here, preload[0], words.trim());
    let pids = [&calling, &answering].map(|running: &Running| running.child.id());
    recording.poll_until_end(&mut calling.child);
    let said = calling.end();
    recording.poll_until_end(&mut answering.child);
    answering.end();
    (pids, said)
}

/// Bytes from sequence number `base` to another one.
fn place(seq: i64, base: i64) -> i64 {
    i64::from((seq as u32).wrapping_sub(base as u32).cast_signed())
}

/// The only event of an entity.
fn one<'e>(events: &[&'e Event], entity: &str) -> &'e Event {
    let found = all(events, entity);
    assert_eq!(found.len(), 1, "{entity}: {found:?}");
    found[0]
}

fn all<'e>(events: &[&'e Event], entity: &str) -> Vec<&'e Event> {
    events.iter().copied().filter(|event| event.entity == entity).collect()
}

/// Bytes of a stream that an event is of.
#[derive(Clone, Copy, Debug)]
struct Bytes {
    begin: i64,
    end: i64,
    counter: u64,
}

impl Bytes {
    fn of(event: &Event, base: i64) -> Bytes {
        let begin = place(event.number("seq"), base);
        Bytes { begin, end: begin + event.number("bytes"), counter: event.counter }
    }

    fn covers(&self, byte: i64) -> bool {
        (self.begin..self.end).contains(&byte)
    }
}

/// Bytes that each begin where the last ones end, the first at `from`; where they end.
fn in_a_row(all: &[Bytes], from: i64) -> i64 {
    all.iter().fold(from, |at, bytes| {
        assert_eq!(bytes.begin, at, "{bytes:?} of {all:?}");
        bytes.end
    })
}

/// What the stack of a program has done to the stream that it sends, from the byte on that it has
/// written first.
struct Sent {
    base: i64,
    /// The first byte that it has sent.
    from: i64,
    writes: Vec<Bytes>,
    first: Vec<Bytes>,
    again: Vec<Bytes>,
}

/// Asserts that each byte that a program has written was once written, and sent for the first time
/// once.
fn sent(events: &[&Event]) -> Sent {
    let (taken, returned) = (one(events, "stack:taken"), one(events, "stack:returned"));
    let base = taken.number("write_seq");
    let from = place(taken.number("snd_nxt"), base);
    let of = |event: &&Event| Bytes::of(event, base);
    let writes: Vec<Bytes> = all(events, "stack:write").iter().map(of).collect();
    assert_eq!(in_a_row(&writes, 0), returned.number("written"));
    let mut offset = 0;
    for event in all(events, "stack:write") {
        assert_eq!(event.number("offset"), offset);
        offset += event.number("bytes");
    }
    let (again, first): (Vec<&Event>, Vec<&Event>) = all(events, "stack:segment_sent")
        .into_iter()
        .filter(|event| event.number("bytes") > 0)
        .partition(|event| event.number("retransmission") == 1);
    let [first, again] = [first, again].map(|events| events.iter().map(of).collect::<Vec<_>>());
    assert_eq!(in_a_row(&first, from), returned.number("written"));
    for bytes in &again {
        let before = first.iter().filter(|before| before.counter < bytes.counter);
        let sent = before.map(|before| before.end).max().unwrap_or(from);
        assert!(bytes.end <= sent, "{bytes:?} were not sent before");
    }
    Sent { base, from, writes, first, again }
}

/// Asserts that each byte that a program has read had come, and was read once; what was read.
fn read(events: &[&Event], sent: &Sent) -> (Vec<Bytes>, Vec<Bytes>, i64) {
    let (taken, returned) = (one(events, "stack:taken"), one(events, "stack:returned"));
    let [mut came, begin] =
        ["rcv_nxt", "copied_seq"].map(|field| place(taken.number(field), sent.base));
    let from = came;
    let (mut segments, mut reads) = (vec![], vec![]);
    for event in events {
        match &event.entity[..] {
            "stack:segment_received" if event.number("bytes") > 0 => {
                segments.push(Bytes::of(event, sent.base));
                while let Some(next) = segments.iter().find(|bytes| bytes.covers(came)) {
                    came = next.end;
                }
            }
            "stack:read" => {
                reads.push(Bytes::of(event, sent.base));
                assert!(reads.last().unwrap().end <= came, "{event:?} is of what did not come");
            }
            _ => {}
        }
    }
    assert_eq!(in_a_row(&reads, begin), begin + returned.number("read"));
    (segments, reads, from)
}

/// Asserts that a stream is in the events of both ends, and that those of its bytes are in the
/// order in which they have to be. The messages for which that was looked at.
fn stream(sender: &[&Event], receiver: &[&Event]) -> usize {
    let sent = sent(sender);
    let (segments, reads, came_from) = read(receiver, &sent);
    assert_eq!(reads.last().unwrap().end, sent.writes.last().unwrap().end, "all was read");
    let mut count = 0;
    let (mut first, mut read) = (sent.first.iter(), reads.iter());
    for write in &sent.writes {
        let byte = write.begin;
        if byte < sent.from.max(came_from) {
            continue;
        }
        let of = |bytes: &&Bytes| bytes.covers(byte);
        let segment = first.clone().find(of).expect("it was sent");
        let come = segments.iter().find(of).expect("it came");
        let got = read.clone().find(of).expect("it was read");
        let order = [write.counter, segment.counter, come.counter, got.counter];
        assert!(order.is_sorted(), "byte {byte}: {order:?}");
        // What is of bytes before these is not looked at again.
        while first.as_slice().first().is_some_and(|bytes| bytes.end <= byte) {
            first.next();
        }
        while read.as_slice().first().is_some_and(|bytes| bytes.end <= byte) {
            read.next();
        }
        count += 1;
    }
    count
}

#[test]
fn each_byte_is_followed_from_the_call_that_writes_it_to_the_one_that_reads_it() {
    in_thread(|| {
        for (receive, call, least) in [
            ("adaptive", "trips 2000 64", 1900),
            ("adaptive", "trips 100 60000", 90),
            ("spin", "trips 200 64", 190),
            ("block", "trips 200 3000", 190),
        ] {
            let mut world = World::make(true);
            world.receive = receive;
            let mut recording = Recording::begin();
            let (pids, _) = pair(&world, &mut recording, [true; 2], ("echo", call));
            let recorded = recording.end();
            assert_eq!(recorded.processes.len(), 2, "{:?}", recorded.processes);
            let [here, there] = pids.map(|pid| recorded.of(pid));
            let ends = |events: &[&Event], fields: [&str; 2]| {
                let taken = one(events, "stack:taken");
                fields.map(|field| taken.text(field).to_owned())
            };
            assert_eq!(ends(&here, ["local", "remote"]), ends(&there, ["remote", "local"]));
            assert_eq!(ends(&there, ["local"; 2])[0], "10.0.0.2:7000");
            for (sender, receiver) in [(&here, &there), (&there, &here)] {
                let count = stream(sender, receiver);
                assert!(count >= least, "{receive}, {call}: {count} messages were followed");
            }
            // The lines for people count the same.
            let line = world.connection(Here);
            let returned = one(&here, "stack:returned");
            assert_eq!(line["written_to_stack"], returned.number("written"), "{line}");
            assert_eq!(line["read_from_stack"], returned.number("read"), "{line}");
            assert_eq!(line["why"], returned.text("reason"), "{line}");
        }
    });
}

/// Packets that came to the device `here`.
fn came() -> u64 {
    let devices = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = devices.lines().find_map(|line| line.trim().strip_prefix("here:"));
    let mut numbers = line.expect("it is there").split_whitespace();
    numbers.nth(1).unwrap().parse().unwrap()
}

#[test]
fn what_is_lost_is_sent_again_after_a_timer_has_expired() {
    in_thread(|| {
        let world = World::make(true);
        let mut recording = Recording::begin();
        let mut answering = world.talk(There, false, "answer echo 10.0.0.2 7000");
        assert_eq!(answering.line(), "ready");
        let mut command = recording.command(talk(), "call trips 10.0.0.2 7000 100000 64");
        let mut calling = world.spawn(Here, true, &mut command);
        let pid = calling.child.id();
        let begin = Instant::now();
        while came() < 10_000 {
            assert!(begin.elapsed() < PATIENCE, "nothing comes");
            recording.poll();
        }
        world.machine.run(|| ip("link set there down"));
        // So long nothing gets there.
        std::thread::sleep(Duration::from_millis(300));
        world.machine.run(|| ip("link set there up"));
        recording.poll_until_end(&mut calling.child);
        calling.end();
        answering.end();
        let recorded = recording.end();
        let events = recorded.of(pid);
        let sent = sent(&events);
        assert!(!sent.again.is_empty(), "nothing was sent again");
        // What was lost was the last that was sent, so nothing but a timer tells of it.
        let again = &sent.again[0];
        let first = sent.first.iter().rfind(|first| first.covers(again.begin)).unwrap();
        let timers = all(&events, "stack:timer");
        let between = timers.iter().filter(|event| {
            (first.counter..again.counter).contains(&event.counter)
                && ["tail_loss_probe", "retransmission"].contains(&event.text("timer"))
        });
        assert!(between.count() > 0, "{first:?}, {again:?}: {timers:?}");
        let ids = events.iter().map(|event| event.id).filter(|id| *id != 0);
        assert!(ids.clone().all(|id| id == 1), "it has one connection");
    });
}

/// Each thread's events, in their order.
fn by_thread<'e>(events: &[&'e Event]) -> BTreeMap<u32, Vec<&'e Event>> {
    let mut threads = BTreeMap::<u32, Vec<&Event>>::new();
    events.iter().for_each(|event| threads.entry(event.tid).or_default().push(event));
    threads
}

#[test]
fn it_is_known_what_threads_wait_for_and_what_wakes_them() {
    in_thread(|| {
        let mut world = World::make(true);
        world.receive = "block";
        for (call, by_thread_too) in [("trips 300 64", false), ("threads", true)] {
            let mut recording = Recording::begin();
            let (pids, _) = pair(&world, &mut recording, [true, false], ("echo", call));
            let recorded = recording.end();
            let events = recorded.of(pids[0]);
            let mut causes = BTreeMap::<&str, usize>::new();
            for (thread, of_thread) in by_thread(&events) {
                let mut slept: Option<&Event> = None;
                let mut waits = false;
                for event in of_thread {
                    waits |= event.entity == "stack:wait";
                    match &event.entity[..] {
                        "stack:sleep" => {
                            assert!(waits, "{thread} sleeps in a call that does not wait");
                            assert!(slept.replace(event).is_none(), "{thread} sleeps twice");
                        }
                        "stack:woken" => {
                            let slept = slept.take().expect("it slept");
                            assert_eq!((slept.id, event.id), (1, 1), "{slept:?} {event:?}");
                            assert_eq!(slept.number("fd"), event.number("fd"));
                            *causes.entry(event.text("cause")).or_default() += 1;
                            if event.text("cause") == "thread" {
                                let woke = |by: &&&Event| {
                                    by.entity == "stack:wake"
                                        && by.number("thread") == i64::from(thread)
                                        && (slept.counter..=event.counter).contains(&by.counter)
                                };
                                assert!(events.iter().any(|by| woke(&by)), "{event:?}");
                            }
                        }
                        other => {
                            assert!(slept.is_none(), "{thread} has {other} while it sleeps");
                            // The next call waits by itself.
                            waits &= other != "stack:read";
                        }
                    }
                }
            }
            eprintln!("{call}: {causes:?}");
            assert!(causes.contains_key("frame"), "{call}: {causes:?}");
            // The helper may wake a thread, too.
            assert!(causes.contains_key("thread") || !by_thread_too, "{call}: {causes:?}");
        }
    });
}

/// The core of `trace`, as it is in libloopscope: its files, and where their headers are.
fn core() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut words = vec!["-std=gnu11".to_owned(), "-D_GNU_SOURCE".to_owned()];
    words.extend(["-fvisibility=hidden".to_owned(), format!("-I{}/include", root.display())]);
    for folder in ["crates/time/c", "crates/trace/c"] {
        let files = std::fs::read_dir(root.join(folder)).unwrap().map(|file| file.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|kind| kind == "c"));
        words.extend(files.map(|path| path.to_str().unwrap().to_owned()));
    }
    words
}

/// The program of `instrumented.c`, with the core in a library or in itself.
fn instrumented(folder: &Path, by_library: bool) -> Compiled {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let words = if by_library {
        let library = folder.join("libloopscope.so");
        let made = Command::new("cc")
            .args(["-O2", "-fPIC", "-shared", "-Wl,-soname,libloopscope.so"])
            .args(["-Wl,-z,nodelete", "-o"])
            .arg(&library)
            .args(core())
            .status()
            .expect("there is a C compiler");
        assert!(made.success());
        let folder = folder.display();
        let own = ["-Wl,--no-as-needed", "-lloopscope", "-ldl"].map(str::to_owned);
        let found = [format!("-I{}", include.display()), format!("-L{folder}")];
        [&found[..], &[format!("-Wl,-rpath,{folder}")], &own].concat()
    } else {
        core()
    };
    compile("instrumented.c", &words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Echoes on three connections, by the kernel, each until its end.
fn echo(listener: &TcpListener) {
    let echo = |mut stream: TcpStream| {
        stream.set_nodelay(true).unwrap();
        let mut message = [0; 64];
        while stream.read_exact(&mut message).is_ok() {
            stream.write_all(&message).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let stream = listener.accept().unwrap().0;
            scope.spawn(move || echo(stream));
        }
    });
}

#[test]
fn a_program_with_events_of_its_own_has_both_in_its_recording() {
    const TRIPS: i64 = 300;
    in_thread(|| {
        let folder = tempfile::tempdir().unwrap();
        for (by_library, core) in [(true, "libloopscope.so"), (false, "nobody's")] {
            let program = instrumented(folder.path(), by_library);
            let world = World::make(true);
            let mut recording = Recording::begin();
            let listener = world.machine.run(|| TcpListener::bind("10.0.0.2:7000").unwrap());
            let words = format!("10.0.0.2 7000 {TRIPS} {core}");
            let mut command = recording.command(&program.path, &words);
            let answering = std::thread::spawn(move || echo(&listener));
            let mut running = world.spawn(Here, true, &mut command);
            let pid = running.child.id();
            recording.poll_until_end(&mut running.child);
            assert_eq!(running.end(), "fine");
            answering.join().unwrap();
            let Recorded { events, processes } = recording.end();
            // Both of the program, and of its child.
            assert_eq!(processes.len(), 4, "{processes:?}");
            let of_parent = processes.iter().filter(|process| process.pid == pid);
            assert_eq!(of_parent.count(), 2, "{processes:?}");
            let ids = |pid_is: bool, entity: &str| -> Vec<i64> {
                let of = |event: &&Event| event.entity == entity && (event.pid == pid) == pid_is;
                events.iter().filter(of).map(|event| event.id).collect()
            };
            for entity in ["own:asks", "own:answered"] {
                let expected: Vec<i64> = (0..TRIPS).chain(2 * TRIPS..3 * TRIPS).collect();
                assert_eq!(ids(true, entity), expected);
                assert_eq!(ids(false, entity), (TRIPS..2 * TRIPS).collect::<Vec<_>>());
            }
            assert_eq!(ids(true, "stack:taken"), [1, 2]);
            assert_eq!(ids(true, "stack:returned"), [1, 2]);
            assert_eq!(ids(false, "stack:taken").len(), 1);
            // Where the stack has a connection, each message is written and read within its trip.
            let (mut open, mut counts) = (BTreeMap::new(), BTreeMap::<(u32, &str), usize>::new());
            for event in &events {
                match &event.entity[..] {
                    "own:asks" => assert!(open.insert(event.tid, event.id).is_none()),
                    "own:answered" => assert_eq!(open.remove(&event.tid), Some(event.id)),
                    name @ ("stack:write" | "stack:read") => {
                        assert!(open.contains_key(&event.tid), "{event:?}");
                        *counts.entry((event.pid, name)).or_default() += 1;
                    }
                    _ => {}
                }
            }
            assert_eq!(counts.len(), 4, "{counts:?}");
            for ((of, name), count) in counts {
                let trips = if of == pid { 2 * TRIPS } else { TRIPS };
                assert!(count >= trips as usize - 10, "{name}: {count} of {trips}");
            }
        }
    });
}

#[test]
fn a_recorded_program_finds_all_as_it_was() {
    in_thread(|| {
        let world = World::make(true);
        for (answer, call) in [
            ("echo", "mixes"),
            ("echo", "sends-files"),
            ("errors-peer", "errors"),
            ("echo", "tells"),
            ("echo", "closes-itself"),
            ("echo", "handlers"),
            ("echo", "threads"),
            ("echo", "waits-first"),
            ("echo", "starts"),
            ("echo", "closes"),
            ("echo-twice", "passes"),
            ("echo", "cancels"),
            ("echo", "forks"),
            ("resets-at-word", "is-reset"),
        ] {
            let mut recording = Recording::begin();
            let (pids, said) = pair(&world, &mut recording, [true; 2], (answer, call));
            assert_eq!(said, "fine", "{call}");
            let recorded = recording.end();
            let events = recorded.of(pids[0]);
            let count = |entity| all(&events, entity).len();
            assert!(count("stack:taken") > 0, "{call}");
            assert_eq!(count("stack:taken"), count("stack:returned"), "{call}");
        }
    });
}

/// Directories of processes that nobody records, of this user.
fn waiting() -> PathBuf {
    format!("/dev/shm/loopscope-{}", geteuid()).into()
}

#[test]
fn nothing_is_made_where_nothing_is_recorded_or_accelerated() {
    in_thread(|| {
        let world = World::make(true);
        let mut answering = world.talk(There, false, "answer late 10.0.0.2 7000");
        assert_eq!(answering.line(), "ready");
        let mut calling = world.talk(Here, true, "call waits-on 10.0.0.2 7000");
        assert_eq!(calling.line(), "ready");
        // Its connection was taken over before that.
        let prefix = format!("{}-", calling.child.id());
        let left = std::fs::read_dir(waiting()).into_iter().flatten();
        let is_its = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(&prefix);
        assert!(!left.into_iter().any(|entry| is_its(&entry.unwrap().file_name())));
        assert_eq!(calling.end(), "fine");
        answering.end();
        assert_eq!(world.connection(Here)["accelerated"], true);
        let recording = Recording::begin();
        let shell = recording.command(Path::new("/bin/sh"), "-c exit");
        world.spawn(Here, true, &mut { shell }).end();
        assert_eq!(recording.end().processes, []);
    });
}

#[test]
fn programs_cannot_find_the_core_of_the_library() {
    let names = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output();
    let names = String::from_utf8(names.expect("there is nm").stdout).unwrap();
    assert!(names.contains(" epoll_wait"), "{names}");
    let own: Vec<&str> = names.lines().filter(|line| line.contains("loopscope")).collect();
    assert_eq!(own, [""; 0]);
}
