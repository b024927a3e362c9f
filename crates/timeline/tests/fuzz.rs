//! Random metadata and random packets: the importer answers, whatever they are, and takes no more
//! memory and time than a few times what they are worth. `LOOPSCOPE_SOAK=1` draws many and new
//! ones; `LOOPSCOPE_SEED=N` draws case N again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use any_layout::{metadata, read, stream};
use loopscope_ctf::Metadata;
use peak_alloc::PeakAlloc;
use random_layout::{Random, random_metadata, random_stream, spoiled_bytes, spoiled_text};

#[path = "lab/any_layout.rs"]
mod any_layout;
#[path = "lab/random_layout.rs"]
mod random_layout;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const CASES: u64 = 1_500;
const SOAK: u64 = 200_000;

/// Metadata may have 100 000 fields, however short it is; each of them may be a column of a table.
const READING_MB: f32 = 96.0;
const WRITING_MB: f32 = 400.0;

/// Nothing here takes a second on an idle machine.
const HANGS: Duration = Duration::from_secs(120);

/// Metadata and stream of a case.
fn case(seed: u64) -> (Vec<u8>, Vec<u8>) {
    let mut random = Random::new(seed);
    let big = random.below(4) == 0;
    let (mut text, mut bytes) = match random.below(3) {
        0 => (metadata(if big { "be" } else { "le" }).into_bytes(), stream(big)),
        _ => {
            let text = random_metadata(&mut random).into_bytes();
            (text, random_stream(&mut random))
        }
    };
    // Each alone, both, or none.
    if random.below(2) == 0 {
        text = match random.below(4) {
            0 => spoiled_bytes(&mut random, text),
            _ => spoiled_text(&mut random, &String::from_utf8_lossy(&text)).into_bytes(),
        };
    }
    if random.below(2) == 0 {
        bytes = spoiled_bytes(&mut random, bytes);
    }
    (text, bytes)
}

/// Says which case it was.
struct Said(u64);

impl Drop for Said {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("LOOPSCOPE_SEED={} draws this case again", self.0);
        }
    }
}

/// Whether the case was read, to tables or not.
fn holds(seed: u64, place: &Path) -> bool {
    let said = Said(seed);
    let (text, bytes) = case(seed);
    if let Ok(text) = std::str::from_utf8(&text) {
        let _ = Metadata::parse(text);
    }
    let (trace, out) = (place.join("trace"), place.join("out"));
    any_layout::write(&trace, &text, &bytes);
    let wanted = seed.is_multiple_of(4).then_some(out.as_path());
    MEMORY.reset_peak_usage();
    let result = read(&trace, wanted);
    let peak = MEMORY.peak_usage_as_mb();
    let most = if wanted.is_some() { WRITING_MB } else { READING_MB };
    assert!(peak < most, "{peak} MB for {} B and {} B", text.len(), bytes.len());
    match &result {
        Ok(summary) => {
            assert!(summary.events <= 8 * bytes.len() as u64);
            let rows: u64 = summary.tables.iter().map(|table| table.rows).sum();
            assert_eq!(rows, summary.events);
            wanted.map(fs::remove_dir_all).transpose().unwrap();
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with(&trace.display().to_string()), "no place: {text}");
        }
    }
    let left: Vec<_> = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [trace], "a refused trace leaves nothing");
    drop(said);
    result.is_ok()
}

#[test]
fn whatever_comes_is_answered() {
    let soak = std::env::var_os("LOOPSCOPE_SOAK").is_some();
    let one: Option<u64> =
        std::env::var("LOOPSCOPE_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None if soak => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
            let first = now.as_secs() * SOAK;
            first..first + SOAK
        }
        None => 0..CASES,
    };
    // In memory where that can be: some disks take milliseconds to overwrite a file.
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path: PathBuf = place.path().to_owned();
    let (tell, told) = mpsc::channel();
    let worker = std::thread::spawn({
        let seeds = seeds.clone();
        move || {
            for seed in seeds {
                let _ = tell.send((seed, false));
                let read = holds(seed, &path);
                let _ = tell.send((seed, read));
            }
        }
    });
    let (mut last, mut read) = (seeds.start, 0);
    loop {
        match told.recv_timeout(HANGS) {
            Ok((seed, was_read)) => (last, read) = (seed, read + u64::from(was_read)),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("LOOPSCOPE_SEED={last} does not end"),
        }
    }
    worker.join().expect("see above");
    let all = seeds.end - seeds.start;
    eprintln!("{read} of {all} cases were read");
    // Else the cases are too wild to say anything.
    assert!(one.is_some() || read > all / 20, "only {read} of {all} cases were read");
}
