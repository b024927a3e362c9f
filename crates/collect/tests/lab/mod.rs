//! Builds instrumented test programs, runs them, and reads what was recorded: with `loopscope_ctf`
//! and with babeltrace2.

#![allow(dead_code, reason = "each test program uses its part")]

#[path = "../../../../tests/skip.rs"]
pub mod skip;

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::OnceLock;

use loopscope_collect::{
    Collector, Identity, LossReport, Losses, MAIN, RUNTIME_DIR, StreamSpec, stream,
};
use loopscope_ctf::{Metadata, Packets, Records, Value};
use loopscope_time::Frequency;
use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{stderr}", output.status);
    output
}

/// Where this test program's builds go; removed by the next build, shared by its tests.
pub fn builds() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let exe = std::env::current_exe().unwrap();
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(exe.file_name().unwrap());
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    })
}

/// libloopscope.so, from the same C files and with the same flags as the installed one.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| build_library(builds(), &core()))
}

/// Folders of the C core's files.
const CORE: [&str; 2] = ["time/c", "trace/c"];

fn core() -> PathBuf {
    root().join("crates")
}

fn files(folder: PathBuf) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path())
}

/// libloopscope.so in `dir` from the files in the folders of `core`.
fn build_library(dir: &Path, core: &Path) -> PathBuf {
    let library = dir.join("libloopscope.so");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-std=gnu11", "-D_GNU_SOURCE", "-fPIC", "-fvisibility=hidden", "-shared"])
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .args(["-Wl,-soname,libloopscope.so", "-Wl,-z,nodelete", "-I"])
        .arg(root().join("include"));
    let files = CORE.iter().flat_map(|folder| files(core.join(folder)));
    cc.args(files.filter(|path| path.extension().is_some_and(|e| e == "c")));
    run(cc.arg("-o").arg(&library));
    library
}

/// Compiles files of `tests/c` with all warnings as errors and links them with libloopscope.
pub fn build(name: &str, compiler: &[&str], sources: &[&str]) -> PathBuf {
    build_in(library().parent().unwrap(), name, compiler, sources)
}

/// The program of tests/c/storm.c with a core whose file `file` says `instead` where it says
/// `text`.
pub fn mutated_storm(name: &str, file: &str, text: &str, instead: &str) -> PathBuf {
    let dir = builds().join(name);
    for folder in CORE {
        let copy = dir.join(folder);
        std::fs::create_dir_all(&copy).unwrap();
        for path in files(core().join(folder)) {
            let mut source = std::fs::read_to_string(&path).unwrap();
            if path.file_name().unwrap() == file {
                assert_eq!(source.matches(text).count(), 1, "{text:?} in {file}");
                source = source.replace(text, instead);
            }
            std::fs::write(copy.join(path.file_name().unwrap()), source).unwrap();
        }
    }
    build_library(&dir, &dir);
    build_in(&dir, "storm", &["cc", "-std=gnu99", "-O2"], &["storm.c", "tally.c"])
}

fn build_in(dir: &Path, name: &str, compiler: &[&str], sources: &[&str]) -> PathBuf {
    let program = dir.join(name);
    let mut command = Command::new(compiler[0]);
    command
        .args(&compiler[1..])
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(root().join("include"))
        .args(sources.iter().map(|source| root().join("tests/c").join(source)))
        .args(["-pthread", "-lloopscope", "-ldl", "-L"])
        .arg(dir)
        .arg(format!("-Wl,-rpath,{}", dir.display()))
        .arg("-o")
        .arg(&program);
    run(&mut command);
    program
}

/// The program of tests/c/emit.c.
pub fn emit() -> &'static Path {
    static EMIT: OnceLock<PathBuf> = OnceLock::new();
    EMIT.get_or_init(|| build("emit", &["cc", "-std=gnu99", "-O2"], &["emit.c", "tally.c"]))
}

/// The program of tests/c/storm.c.
pub fn storm() -> &'static Path {
    static STORM: OnceLock<PathBuf> = OnceLock::new();
    STORM.get_or_init(|| build("storm", &["cc", "-std=gnu99", "-O2"], &["storm.c", "tally.c"]))
}

/// An example program of this crate, built by cargo next to its tests.
pub fn example(name: &str) -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let path = exe.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "no {path:?}: with --test, first cargo build --examples");
    path
}

pub fn identity() -> Identity {
    Identity {
        host: "h1".into(),
        clock_uuid: *b"a clock's uuid..",
        trace_uuid: *b"a trace's uuid..",
        frequency: Frequency::from_hz(1_000_000_000).unwrap(),
    }
}

/// A small file system that this thread and what it starts see, until this is dropped.
pub struct Small(PathBuf);

impl Small {
    /// `None`, loudly, where it cannot be mounted.
    pub fn mount(dir: &Path, kib: u32) -> Option<Small> {
        std::fs::create_dir_all(dir).unwrap();
        let size = format!("size={kib}k");
        let mount = |words: &[&str]| Command::new("mount").args(words).arg(dir).output();
        // Mounts of other processes do not change, and the kernel removes these when the thread has
        // ended.
        let mounted = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)
            .map_err(std::io::Error::from)
            .and_then(|()| Command::new("mount").args(["--make-rprivate", "/"]).output())
            .and_then(|_| mount(&["-t", "tmpfs", "-o", &size, "tmpfs"]));
        if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
            skip::skipped(&format!("needs root to mount a small file system: {mounted:?}"));
            return None;
        }
        Some(Small(dir.to_owned()))
    }

    /// Leaves only so many KiB free.
    pub fn fill(&self, free_kib: u64) {
        let free = || nix::sys::statvfs::statvfs(&self.0).unwrap().blocks_available() * 4;
        let ballast = std::fs::File::create(self.0.join("ballast")).unwrap();
        let size = (free() - free_kib) as i64 * 1024;
        nix::fcntl::posix_fallocate(&ballast, 0, size).unwrap();
        assert_eq!(free(), free_kib);
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// A runtime directory, an output directory and a tally file.
pub struct Lab {
    dir: TempDir,
    runtime: PathBuf,
    streams: Vec<StreamSpec>,
}

/// What a program's own count says of one thread (tests/c/emit.h).
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub pid: u32,
    pub begun: u64,
    pub done: u64,
    pub handler: u64,
}

impl Lab {
    pub fn new(stream: &StreamSpec) -> Lab {
        Lab::with(std::slice::from_ref(stream))
    }

    pub fn with(streams: &[StreamSpec]) -> Lab {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() {
            tempfile::tempdir_in(memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        let runtime = dir.path().join("runtime");
        let lab = Lab { dir, runtime, streams: streams.to_vec() };
        lab.make_runtime();
        lab
    }

    /// With its runtime directory in a small file system; `None`, loudly, where there can be none.
    pub fn with_little_memory(stream: &StreamSpec, kib: u32) -> Option<(Lab, Small)> {
        let mut lab = Lab::new(stream);
        let small = lab.dir.path().join("small");
        let mounted = Small::mount(&small, kib)?;
        lab.runtime = small.join("runtime");
        lab.make_runtime();
        Some((lab, mounted))
    }

    fn make_runtime(&self) {
        std::fs::create_dir(self.runtime()).unwrap();
        stream::write(&self.streams, &self.runtime(), identity().frequency).unwrap();
    }

    pub fn runtime(&self) -> PathBuf {
        self.runtime.clone()
    }

    pub fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    pub fn tally(&self) -> PathBuf {
        self.dir.path().join("tally")
    }

    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env(RUNTIME_DIR, self.runtime());
        command
    }

    /// `program TALLY ARGUMENTS…`
    pub fn tallied(&self, program: &Path, arguments: &str) -> Command {
        let mut command = self.command(program);
        command.arg(self.tally()).args(arguments.split_whitespace());
        command
    }

    pub fn collector(&self) -> Collector {
        let mut collector = Collector::new(&self.out(), identity(), None).unwrap();
        collector.add_source(&self.runtime(), None, &self.streams).unwrap();
        collector
    }

    /// Where a stream's output is.
    pub fn out_of(&self, stream: &str) -> PathBuf {
        if stream == MAIN { self.out() } else { self.out().join("streams").join(stream) }
    }

    /// Runs a program while collecting, then ends the recording.
    pub fn collect(&self, command: &mut Command) -> Losses {
        let mut collector = self.collector();
        let mut child = command.spawn().unwrap();
        while child.try_wait().unwrap().is_none() {
            collector.poll().unwrap();
        }
        collector.finish().unwrap()
    }

    /// Ends the recording; the account of the stream `main`.
    pub fn finish(&self, collector: Collector) -> LossReport {
        collector.finish().unwrap().into_stream(MAIN)
    }

    pub fn slots(&self) -> Vec<Slot> {
        let bytes = match std::fs::read(self.tally()) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            read => read.unwrap(),
        };
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap());
        // Not there, or empty, before the first program has made it.
        let count = if bytes.is_empty() { 0 } else { word(0) };
        (0..count as usize)
            .map(|i| 4 + 4 * i)
            .map(|at| Slot {
                pid: word(at) as u32,
                begun: word(at + 1),
                done: word(at + 2),
                handler: word(at + 3),
            })
            .collect()
    }
}

/// A running program, which ends with this.
pub struct Steady<'a> {
    lab: &'a Lab,
    child: Child,
}

impl<'a> Steady<'a> {
    pub fn start(lab: &'a Lab, threads: u32) -> Steady<'a> {
        Steady::of(lab, &mut lab.tallied(emit(), &format!("steady {threads}")))
    }

    /// Starts the program as another user, for whom the lab must be open.
    pub fn start_as(lab: &'a Lab, user: u32, threads: u32) -> Steady<'a> {
        let mut command = lab.tallied(emit(), &format!("steady {threads}"));
        Steady::of(lab, command.uid(user).gid(user))
    }

    fn of(lab: &'a Lab, command: &mut Command) -> Steady<'a> {
        Steady { lab, child: command.spawn().unwrap() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn dir(&self) -> PathBuf {
        let prefix = format!("{}-", self.child.id());
        loop {
            let names = std::fs::read_dir(self.lab.runtime()).unwrap().map(|e| e.unwrap().path());
            let found = names.into_iter().find(|path| {
                let name = path.file_name().unwrap().to_string_lossy();
                name.starts_with(&prefix) && path.join("control").exists()
            });
            if let Some(found) = found {
                self.wait_for_hits();
                return found;
            }
            std::thread::yield_now();
        }
    }

    pub fn done(&self) -> u64 {
        if self.lab.tally().exists() {
            self.lab.slots().iter().map(|slot| slot.done).sum()
        } else {
            0
        }
    }

    /// Until the program has gone on for a while.
    pub fn wait_for_hits(&self) {
        let before = self.done();
        while self.done() < before + 2000 {
            std::thread::yield_now();
        }
    }

    /// Whether each thread has gone on for so many hits since this was made.
    pub fn progress(&self, threads: usize, hits: u64) -> impl Fn() -> bool + '_ {
        let begun: Vec<u64> = self.lab.slots().iter().map(|slot| slot.done).collect();
        move || {
            let slots = self.lab.slots();
            let gone_on =
                |(i, done): (usize, u64)| done >= begun.get(i).copied().unwrap_or(0) + hits;
            slots.len() >= threads && slots.iter().map(|s| s.done).enumerate().all(gone_on)
        }
    }

    pub fn tell(&self, what: &str) {
        std::fs::write(format!("{}-{what}", self.lab.tally().display()), "").unwrap();
    }
}

impl Drop for Steady<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.tell("stop");
        } else {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// A lab whose programs wait for somebody to attach.
pub fn dormant() -> Lab {
    let lab = Lab::with(&[]);
    std::fs::remove_file(lab.runtime().join("streams")).unwrap();
    lab
}

pub fn poll_until(collector: &mut Collector, mut enough: impl FnMut() -> bool) {
    while !enough() {
        collector.poll().unwrap();
        std::thread::yield_now();
    }
}

/// Each thread's ids of an entity, in order.
pub fn by_thread(trace: &Trace, entity: &str) -> BTreeMap<u32, Vec<i64>> {
    let mut ids: BTreeMap<u32, Vec<(u64, i64)>> = BTreeMap::new();
    for event in trace.events.iter().filter(|e| e.entity == entity) {
        ids.entry(event.tid).or_default().push((event.counter, event.id));
    }
    let sorted = ids.into_iter().map(|(tid, mut ids)| {
        ids.sort_unstable();
        (tid, ids.into_iter().map(|(_, id)| id).collect())
    });
    sorted.collect()
}

pub fn is_gapless(ids: &[i64]) -> bool {
    ids.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

/// Checks that nothing was lost but what a program outran: one that goes on as fast as it can fills
/// its rings while the collector is kept from running. In each thread's ids of `entity` no more are
/// missing than were counted for that. Whether nothing was lost.
pub fn check_outrun(loss: &LossReport, trace: &Trace, entity: &str) -> bool {
    let of = |entity: Option<&str>| -> u64 {
        let sites = loss.processes.iter().flat_map(|process| &process.sites);
        let sites = sites.filter(|site| entity.is_none_or(|entity| site.entity == entity));
        sites.filter_map(|site| site.dropped.get("ring-full")).sum()
    };
    assert_eq!(loss.dropped - loss.torn, of(None), "{loss:?}");
    let missing = |ids: &Vec<i64>| {
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{entity} is out of order");
        match ids[..] {
            [first, .., last] => last.abs_diff(first) + 1 - ids.len() as u64,
            _ => 0,
        }
    };
    let missing: u64 = by_thread(trace, entity).values().map(missing).sum();
    assert!(missing <= of(Some(entity)), "{missing} ids of {entity} are missing: {loss:?}");
    of(None) == 0
}

/// A record as read back.
#[derive(Clone, Debug)]
pub struct Event {
    pub process: String,
    pub pid: u32,
    pub tid: u32,
    pub entity: String,
    pub counter: u64,
    pub id: i64,
    pub fields: Vec<(String, Field)>,
}

/// A field's value as read back.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    String(Vec<u8>),
    Bytes(Vec<u8>),
    Buckets(Vec<(u16, u64)>),
}

impl Field {
    fn of(value: Value) -> Field {
        match value {
            Value::Unsigned(v) => Field::Unsigned(v),
            Value::Signed(v) => Field::Signed(v),
            Value::Float(v) => Field::Float(v),
            Value::String(v) => Field::String(v.to_owned()),
            Value::Bytes(v) => Field::Bytes(v.to_owned()),
            Value::Buckets(b) => Field::Buckets(b.indexes().zip(b.counts()).collect()),
        }
    }
}

/// A trace as read back, its streams checked against schema/trace.md.
pub struct Trace {
    pub metadata: Metadata,
    /// Stream by stream, each in order.
    pub events: Vec<Event>,
    pub packets: usize,
    pub files: usize,
    /// Last `events_discarded` of each stream, summed.
    pub discarded: u64,
}

impl Trace {
    pub fn read(out: &Path) -> Trace {
        let dir = out.join("trace");
        let text = std::fs::read_to_string(dir.join("metadata")).unwrap();
        let metadata = Metadata::parse(&text).unwrap();
        let is_main = !out.parent().unwrap().ends_with("streams");
        assert_eq!(metadata.uuid == identity().trace_uuid, is_main);
        let mut trace = Trace { metadata, events: Vec::new(), packets: 0, files: 0, discarded: 0 };
        let mut paths: Vec<_> =
            std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            if path.file_name().unwrap() != "metadata" {
                trace.read_stream(&path);
                trace.files += 1;
            }
        }
        trace
    }

    fn read_stream(&mut self, path: &Path) {
        let bytes = std::fs::read(path).unwrap();
        let mut last = 0;
        let mut discarded = 0;
        for (sequence, packet) in Packets::new(&bytes).enumerate() {
            let (context, body) = packet.unwrap();
            let class = &self.metadata.streams[&context.stream_id];
            let name = format!("{}-{}-", class.process, context.pid);
            assert!(path.file_name().unwrap().to_str().unwrap().starts_with(&name), "{path:?}");
            assert_eq!(context.uuid, self.metadata.uuid);
            assert_eq!(context.sequence, sequence as u64);
            assert_eq!(context.content_size, context.packet_size);
            let begin = context.begin.0;
            assert!(begin >= last, "{path:?}: packet {sequence} begins at {begin}, before {last}");
            assert!(context.discarded >= discarded);
            discarded = context.discarded;
            last = context.begin.0;
            let mut first = None;
            let events = &mut self.events;
            let records = Records::new(class);
            let decoded = records.decode(&context, body, |record| {
                assert!(record.counter.0 >= last);
                last = record.counter.0;
                first.get_or_insert(last);
                let event = &class.events[record.class];
                let fields = event.values(record.fields);
                let fields = fields.map(|(name, value)| (name.to_owned(), Field::of(value)));
                events.push(Event {
                    process: class.process.clone(),
                    pid: context.pid,
                    tid: context.tid,
                    entity: format!("{}:{}", event.group, event.name),
                    counter: record.counter.0,
                    id: record.id,
                    fields: fields.collect(),
                });
            });
            decoded.unwrap_or_else(|e| panic!("{path:?}: packet {sequence}: {e}"));
            assert_eq!(first.unwrap_or(context.begin.0), context.begin.0);
            assert!(context.end.0 >= last);
            last = context.end.0;
            self.packets += 1;
        }
        self.discarded += discarded;
    }

    pub fn count(&self, entity: &str) -> u64 {
        self.events.iter().filter(|e| e.entity == entity).count() as u64
    }

    /// Ids of one entity's events, sorted.
    pub fn ids(&self, entity: &str) -> Vec<i64> {
        let mut ids: Vec<i64> =
            self.events.iter().filter(|e| e.entity == entity).map(|e| e.id).collect();
        ids.sort_unstable();
        ids
    }

    pub fn classes(&self, entity: &str) -> usize {
        let events = self.metadata.streams.values().flat_map(|s| &s.events);
        events.filter(|e| format!("{}:{}", e.group, e.name) == entity).count()
    }
}

/// The account balances in every process and in sum; `dropped` is what the causes and torn events
/// add up to; nothing was found wrong. Returns the drops by entity and cause.
pub fn check_loss(loss: &LossReport) -> BTreeMap<(String, String), u64> {
    // A thread that begins at the end of a recording is no fault of it.
    let faults = loss.problems.iter().filter(|problem| !problem.contains("nothing was short"));
    assert_eq!(faults.collect::<Vec<_>>(), [""; 0]);
    let mut drops = BTreeMap::new();
    let mut sums = [0; 5];
    for process in &loss.processes {
        let by_cause: u64 = process.sites.iter().flat_map(|s| s.dropped.values()).sum();
        assert_eq!(process.dropped, by_cause + process.torn, "{process:?}");
        let accounted = process.recorded + process.overwritten + process.dropped;
        assert_eq!(process.emitted, accounted, "{process:?}");
        let numbers =
            [process.emitted, process.recorded, process.overwritten, process.dropped, process.torn];
        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        for site in &process.sites {
            for (cause, count) in &site.dropped {
                *drops.entry((site.entity.clone(), cause.clone())).or_default() += count;
            }
        }
    }
    assert_eq!(sums, [loss.emitted, loss.recorded, loss.overwritten, loss.dropped, loss.torn]);
    drops
}

/// Each process's account lies between what its threads had done and what they had begun. What
/// filters kept out counts with it.
pub fn check_against_tally(lab: &Lab, loss: &LossReport) {
    let mut tally: BTreeMap<u32, (u64, u64, u64)> = BTreeMap::new();
    for slot in lab.slots() {
        let (done, begun, open) = tally.entry(slot.pid).or_default();
        *done += slot.done;
        *begun += slot.begun;
        *open += slot.begun - slot.done;
    }
    let mut emitted: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for process in &loss.processes {
        let (sum, torn) = emitted.entry(process.pid).or_default();
        *sum += process.emitted + process.sites.iter().map(|site| site.filtered).sum::<u64>();
        *torn += process.torn;
    }
    for (pid, (done, begun, open)) in tally {
        let (emitted, torn) = emitted.remove(&pid).unwrap_or_default();
        assert!(
            (done..=begun).contains(&emitted),
            "{pid}: {done} <= {emitted} <= {begun} {loss:#?}"
        );
        assert!(torn <= open, "{pid}: {torn} torn, {open} open");
    }
    assert_eq!(emitted, BTreeMap::new(), "processes that counted nothing themselves");
}

/// Reads the trace both ways and checks the account against it.
pub fn check(out: &Path, loss: &LossReport) -> Trace {
    check_loss(loss);
    let trace = Trace::read(out);
    assert_eq!(trace.events.len() as u64, loss.recorded + loss.finals);
    for process in &loss.processes {
        // Programs that follow each other by exec share a pid.
        let same = |pid, name: &str| pid == process.pid && name == process.process;
        let read = trace.events.iter().filter(|e| same(e.pid, &e.process)).count() as u64;
        let of_pid = loss.processes.iter().filter(|p| same(p.pid, &p.process));
        assert_eq!(read, of_pid.map(|p| p.recorded + p.finals).sum::<u64>());
    }
    if let Some(lines) = babeltrace(out) {
        assert_eq!(lines.len(), trace.events.len());
        let mut ours: Vec<String> = trace.events.iter().map(as_babeltrace).collect();
        let mut theirs = lines;
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours, theirs);
    }
    trace
}

/// `None`, loudly, where babeltrace2 is not installed.
pub fn babeltrace(out: &Path) -> Option<Vec<String>> {
    let mut command = Command::new("babeltrace2");
    command.args(["--clock-cycles", "--no-delta"]).arg(out.join("trace"));
    let Ok(output) = command.output() else {
        skip::skipped("needs babeltrace2");
        return None;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    Some(String::from_utf8(output.stdout).unwrap().lines().map(ToOwned::to_owned).collect())
}

fn as_babeltrace(event: &Event) -> String {
    let mut line = format!(
        "[{:020}] {}: {{ pid = {}, tid = {} }}, {{ id = {}",
        event.counter, event.entity, event.pid, event.tid, event.id
    );
    for (name, value) in &event.fields {
        let list = |items: Vec<String>| {
            let items = items.iter().enumerate().map(|(i, item)| format!("[{i}] = {item}"));
            let items: String = items.collect::<Vec<_>>().join(", ");
            if items.is_empty() { "[ ]".to_owned() } else { format!("[ {items} ]") }
        };
        line += &match value {
            Field::Unsigned(v) => format!(", {name} = {v}"),
            Field::Signed(v) => format!(", {name} = {v}"),
            Field::Float(v) => format!(", {name} = {v}"),
            Field::String(v) => format!(", {name} = {:?}", String::from_utf8_lossy(v)),
            Field::Bytes(v) => {
                let bytes = list(v.iter().map(ToString::to_string).collect());
                format!(", {name}_length = {}, {name} = {bytes}", v.len())
            }
            Field::Buckets(v) => {
                let bucket = list(v.iter().map(|(index, _)| index.to_string()).collect());
                let n = list(v.iter().map(|(_, count)| count.to_string()).collect());
                format!(", buckets = {}, bucket = {bucket}, n = {n}", v.len())
            }
        };
    }
    line + " }"
}
