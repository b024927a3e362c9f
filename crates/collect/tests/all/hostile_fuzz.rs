//! Whatever stands in the files that a program can write, the collector ends its recording, and what
//! it has written can be read and is what its account says.
//!
//! `LOOPSCOPE_SOAK=1` draws 20 000 cases instead of 60.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::lab::{self, Lab};
use loopscope_collect::stream::{Filter, Kind};
use loopscope_collect::{
    Cause, ClockMap, Collector, Deadline, LossReport, Point, Predicate, ProcessLoss, StreamSpec,
};
use loopscope_ctf::{Metadata, Packets, Records};
use loopscope_time::Counter;
use loopscope_trace::layout::Control;

/// xorshift64*
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// A number that somebody might choose who means harm.
    fn odd(&mut self) -> u64 {
        let any = self.next();
        let edges = [0, 1, 7, 80, 255, 4096, 1 << 31, 1 << 32, 1 << 62, 1 << 63, u64::MAX];
        match self.below(3) {
            0 => any,
            1 => any >> self.below(64),
            _ => edges[self.below(edges.len())].wrapping_add(any % 5).wrapping_sub(2),
        }
    }
}

fn streams(random: &mut Random) -> Vec<StreamSpec> {
    let even = Predicate::parse("id % 2 == 0", lab::identity().frequency).unwrap();
    let filter =
        Filter { glob: "*".into(), condition: Some(even.clone()), every: Some(3), rate: None };
    let main = StreamSpec {
        subbuffer: 1024,
        subbuffers: 4,
        filters: if random.below(2) == 0 { vec![filter] } else { Vec::new() },
        ..StreamSpec::default()
    };
    let flight = StreamSpec {
        name: "flight".into(),
        kind: Kind::FlightRecorder,
        subbuffer: 512,
        triggers: vec![("tally:second".into(), even)],
        ..main.clone()
    };
    vec![main, flight]
}

/// The process directory of a program that was killed while it was recorded, as files.
fn template(streams: &[StreamSpec]) -> Vec<(String, Vec<u8>)> {
    let lab = Lab::with(streams);
    lab.tallied(lab::emit(), "killed 300").status().unwrap();
    let dir = std::fs::read_dir(lab.runtime()).unwrap().map(|e| e.unwrap().path());
    let dir = dir.into_iter().find(|path| path.is_dir()).unwrap();
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let read = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        let mut bytes = std::fs::read(entry.path()).unwrap();
        // Beyond is nothing but zeros.
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(end.max(if name.starts_with("ring") { bytes.len() } else { 0 }));
        (name, bytes)
    };
    files.map(read).collect()
}

fn write(dir: &Path, files: &[(String, Vec<u8>)]) {
    std::fs::create_dir(dir).unwrap();
    for (name, bytes) in files {
        let file = File::create_new(dir.join(name)).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        if name == "control" {
            file.set_len(size_of::<Control>() as u64).unwrap();
        }
    }
}

/// Words and lines of the files that mean something, more often than others.
fn spoil(random: &mut Random, dir: &Path, pid: u32) {
    let names: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    for _ in 0..1 + random.below(6) {
        let path = &names[random.below(names.len())];
        let name = path.file_name().unwrap().to_str().unwrap();
        let Ok(file) = File::options().read(true).write(true).open(path) else { continue };
        let length = file.metadata().unwrap().len();
        let odd = random.odd().to_le_bytes();
        let size = [1, 2, 4, 8][random.below(4)];
        let at = match (name, random.below(8)) {
            (_, 0) => {
                file.set_len(random.next() % (2 * length + 1)).unwrap();
                continue;
            }
            (_, 1) => random.next() % (length + 8),
            ("sites", _) => {
                let mut bytes = std::fs::read(path).unwrap();
                let places: Vec<usize> =
                    (0..bytes.len()).filter(|i| b"\t\n:,".contains(&bytes[*i])).collect();
                if let Some(&place) = places.get(random.below(places.len() + 1)) {
                    let words: [&[u8]; 8] = [
                        b"",
                        b"\t",
                        b"\n",
                        b"\xff\0",
                        b"9999999999999999999999",
                        b"40000",
                        b"\"};",
                        b"histogram-add",
                    ];
                    let next = places.iter().find(|p| **p > place).copied();
                    // From here to the next separator, or just here.
                    let place = if random.below(2) == 0 { place } else { place + 1 };
                    let next = if random.below(2) == 0 { Some(place) } else { next };
                    let word = words[random.below(words.len())].iter().copied();
                    bytes.splice(place..next.unwrap_or(bytes.len()), word);
                    std::fs::write(path, bytes).unwrap();
                }
                continue;
            }
            // Head, flags, streams, and of the sections drops and filters.
            ("control", 2) => {
                file.write_all_at(&pid.to_le_bytes(), 16).unwrap();
                continue;
            }
            ("control", 3) => 16384 + 4096 + 8 * (random.next() % 500),
            ("control", 4) => 24576 + 4 * (random.next() % (1 << 17)),
            ("control", _) => 4 * (random.next() % 34),
            (_, 2..=4) => 4 * (random.next() % 48),
            // A packet's head, and what follows.
            (_, _) => 4096 + 512 * (random.next() % 8) + random.next() % 128,
        };
        file.write_all_at(&odd[..size], at).unwrap();
    }
}

fn deadline(path: &str, stream: &str) -> Deadline {
    let point = |entity: &str| Point { process: "emit".into(), entity: entity.into() };
    Deadline {
        path: path.into(),
        stream: stream.into(),
        first: point("tally:hit"),
        last: point("tally:second"),
        limit: std::time::Duration::from_nanos(1),
        role: None,
    }
}

/// Records in a trace, all of which can be read.
fn records(trace: &Path) -> u64 {
    let text = std::fs::read_to_string(trace.join("metadata")).unwrap();
    let metadata = Metadata::parse(&text).unwrap();
    let mut count = 0;
    for entry in std::fs::read_dir(trace).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap() == "metadata" {
            continue;
        }
        for packet in Packets::new(&std::fs::read(&path).unwrap()) {
            let (context, body) = packet.unwrap();
            let records = Records::new(&metadata.streams[&context.stream_id]);
            records.decode(&context, body, |_| count += 1).unwrap();
        }
    }
    count
}

fn check(out: &Path, loss: &LossReport, seed: u64) {
    let trace = records(&out.join("trace"));
    let sum = |of: fn(&ProcessLoss) -> u64| -> u64 { loss.processes.iter().map(of).sum() };
    assert_eq!(sum(|p| p.emitted), sum(|p| p.recorded + p.overwritten + p.dropped), "seed {seed}");
    assert_eq!(trace, sum(|p| p.recorded + p.finals), "seed {seed}: {loss:?}");
}

fn one(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let streams = streams(&mut random);
    let files = template(&streams);
    let own = random.below(3) > 0;
    let lab = if own { Lab::with(&streams) } else { lab::dormant() };
    let names = ["7-1", "8-2"];
    for name in names {
        write(&lab.runtime().join(name), &files);
    }
    let dirs = names.map(|name| lab.runtime().join(name));
    if random.below(4) > 0 {
        // It lives, so that its files change while they are read.
        let control = File::options().write(true).open(dirs[0].join("control")).unwrap();
        control.write_all_at(&std::process::id().to_le_bytes(), 16).unwrap();
    }
    if random.below(2) == 0 {
        spoil(&mut random, &dirs[0], std::process::id());
    }
    let clock: Option<ClockMap> = (random.below(3) == 0)
        .then(|| Box::new(|at: Counter| Counter(at.0 + at.0 / 1000 + 5)) as _);
    let mut collector = Collector::new(&lab.out(), lab::identity(), clock).unwrap();
    collector.watch(deadline("late", "flight"));
    // Where attaching is refused, it is the caller's to say so.
    let begun = if own {
        collector.add_source(&lab.runtime(), None, &streams).unwrap();
        true
    } else {
        collector.attach(&dirs[0], None, &streams).is_ok()
    };
    if begun {
        for _ in 0..random.below(4) {
            collector.poll().unwrap();
            if dirs[0].exists() {
                spoil(&mut random, &dirs[0], std::process::id());
            }
            if random.below(3) == 0 {
                collector.trigger(None, Cause::Command, None).unwrap();
            }
        }
    }
    if own && random.below(4) == 0 {
        // The recorder is killed, and its note of how far it got is damaged: whatever the next one
        // makes of it, it ends.
        drop(collector);
        let progress = File::options().write(true).open(lab.out().join(".progress")).unwrap();
        for _ in 0..random.below(9) {
            let at = 8 * (random.next() % 100);
            progress.write_all_at(&random.odd().to_le_bytes(), at).unwrap();
        }
        let mut collector = Collector::resume(&lab.out(), lab::identity(), None).unwrap();
        if collector.add_source(&lab.runtime(), None, &streams).is_ok() {
            let _ = collector.poll().and_then(|_| collector.finish());
        }
        return;
    }
    let losses = collector.finish().unwrap();
    for (name, loss) in &losses.streams {
        check(&lab.out_of(name), loss, seed);
    }
}

#[test]
fn any_bytes_in_a_programs_files() {
    // Each soak tries others, and prints which; LOOPSCOPE_SEED has it begin with a given one.
    let (first, tries) = match std::env::var_os("LOOPSCOPE_SOAK") {
        None => (1, 60),
        Some(_) => (SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() << 16, 20_000),
    };
    let first = std::env::var("LOOPSCOPE_SEED").map_or(first, |seed| seed.parse().unwrap());
    for seed in first..first + tries {
        eprintln!("seed {seed}");
        one(seed);
    }
}
