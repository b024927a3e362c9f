//! The memory of a channel that is full of items.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::AtomicU64;

use loopscope_stm::{Channel, Config, From, Full, Orphans, Which};
use loopscope_stm_shared::{Files, Input, Options, Output, Shared, Until};

/// What the mappings of a channel's files have in their names.
const FILES: &str = "memfd:loopscope-stm";

/// Measures `BYTES-CONNECTIONS` with `count` items and returns JSON; None: there is no such kind.
///
/// The channel has the options that programs get if they ask for none, and room for the input
/// connections. `tight-BYTES-CONNECTIONS`: it has room for what it has and no more.
pub fn measured(kind: &str, count: u32) -> Option<String> {
    let (is_tight, kind) = kind.strip_prefix("tight-").map_or((false, kind), |kind| (true, kind));
    let (bytes, inputs) = kind.split_once('-')?;
    let (bytes, inputs) = (bytes.parse().ok()?, inputs.parse().ok()?);
    let options = if is_tight { tight(bytes, count, inputs) } else { usual(bytes, count, inputs) };
    let item = vec![1; bytes as usize];
    // The first channel takes memory that later ones use, too. Pages of the program's file are not
    // a channel's.
    let first = filled(&usual(bytes, 1, 1), &item, 1, 1);
    let all = || [mapped("", "Anonymous"), mapped(FILES, "Pss")];
    // So does the first reading.
    all();
    let [before, before_files] = all();
    let second = filled(&options, &item, count, inputs);
    let [after, after_files] = all();
    let of_files = after_files - before_files;
    let process = after - before;
    let [control, payload] = [&second.0.control, &second.0.payload].map(taken);
    drop((first, second));
    let live = u64::from(bytes) * u64::from(count);
    Some(format!(
        "{{\"live\": {live}, \"connections\": {}, \"spare\": {}, \"log\": {}, \
         \"control\": {control}, \"process\": {process}, \"mapped\": {of_files}}}",
        inputs + 1,
        payload - live,
        log(&options.config),
    ))
}

/// A channel with items that are all there still, and its connections.
fn filled(options: &Options, item: &[u8], count: u32, inputs: u32) -> (Files, Output, Vec<Input>) {
    let files = Files::create(options).unwrap();
    let shared = Shared::open(&files.control, &files.payload).unwrap();
    let mut output = shared.output().unwrap();
    let joins = |_| shared.input(From::Next, false, 1).unwrap();
    let mut connections: Vec<_> = (0..inputs).map(joins).collect();
    (0..count).for_each(|time| output.put(time.into(), 0, item, Until::Now).unwrap());
    for input in &mut connections {
        assert_eq!(*input.get(Which::Oldest, Until::Now).unwrap(), *item);
    }
    (files, output, connections)
}

fn usual(item_bytes: u32, capacity: u32, inputs: u32) -> Options {
    let config = Config {
        capacity,
        slots: capacity + 4,
        inputs: inputs.max(16),
        outputs: 4,
        loans: 1,
        ahead: 64,
        remembered: 64,
        orphans: Orphans::Keep,
        full: Full::Refuse,
    };
    Options { config, item_bytes, processes: 16 }
}

fn tight(item_bytes: u32, capacity: u32, inputs: u32) -> Options {
    let Options { config, .. } = usual(item_bytes, capacity, inputs);
    let config = Config { slots: capacity, inputs, outputs: 1, ahead: 0, remembered: 0, ..config };
    Options { config, item_bytes, processes: 1 }
}

/// Bytes of memory that a file takes.
fn taken(file: &File) -> u64 {
    file.metadata().unwrap().blocks() * 512
}

/// Bytes of the log by which an operation is undone.
fn log(config: &Config) -> usize {
    let words = Channel::<Vec<AtomicU64>>::words_needed(config).unwrap();
    let words: Vec<_> = (0..words).map(|_| AtomicU64::new(0)).collect();
    8 * Channel::create(config, words).unwrap().log().len()
}

/// Bytes by a field of `/proc/self/smaps`, of the mappings whose name has `name` in it.
pub fn mapped(name: &str, field: &str) -> i64 {
    let (mut is_it, mut kilobytes) = (false, 0);
    for line in fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        let (first, rest) = line.split_once(' ').unwrap_or_default();
        match first.strip_suffix(':') {
            None => is_it = line.contains(name),
            Some(key) if is_it && key == field => {
                kilobytes += rest.trim().trim_end_matches(" kB").parse::<i64>().unwrap();
            }
            Some(_) => (),
        }
    }
    1024 * kilobytes
}
