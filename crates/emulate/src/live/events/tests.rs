//! Records of packets whose thread is kept from running between reading the clocks and recording.

use std::cell::Cell;
use std::process::Command;
use std::time::Duration;

use loopscope_collect::{Collector, Identity, MAIN, RUNTIME_DIR, StreamSpec, frequency, stream};
use loopscope_ctf::{Metadata, Packets, Records, Value};

use super::*;
use crate::frame::Pool;
use crate::model::{Fate, Outcome};

const PACKETS: u64 = 20;
const PAUSE: Duration = Duration::from_millis(5);
/// More than the counter's nominal frequency can be off in a pause, which is 5000 times as long.
const SLACK_NS: i64 = 1000;

thread_local! {
    static PAUSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

pub(super) fn pause() {
    std::thread::sleep(PAUSED.get());
}

const NO_FIELD: MessageField =
    MessageField { offset: 0, width: 0, order: crate::settings::ByteOrder::Little };

/// Records packets with the pause, and prints of each the counter before and after its instant.
fn record() {
    PAUSED.set(PAUSE);
    let pool = Pool::default();
    for number in 0..PACKETS {
        let place = Place { number, from: 0, to: 1 };
        let (before, instant, after) = (read_counter(), now(), read_counter());
        println!("\ninstant {number} {} {}", before.0, after.0);
        enqueued(place, &pool.frame(&[0; 60]), NO_FIELD, instant);
        let outcome = Outcome {
            packet: pool.frame(&[0; 60]),
            number,
            enqueued: instant,
            due: instant,
            duplicate: true,
            corrupted: true,
            fate: Fate::Departs,
        };
        departed(place, &outcome, NO_FIELD, instant);
    }
}

/// Number, entity, instant and maximum error of a record, in ticks and nanoseconds.
type Found = (u64, String, u64, i64);

fn records(out: &std::path::Path, ticks_of_ns: impl Fn(u64) -> u64) -> Vec<Found> {
    let trace = out.join("trace");
    let metadata = std::fs::read_to_string(trace.join("metadata")).unwrap();
    let metadata = Metadata::parse(&metadata).unwrap();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(trace).unwrap().map(Result::unwrap) {
        if entry.file_name() == "metadata" {
            continue;
        }
        let bytes = std::fs::read(entry.path()).unwrap();
        for packet in Packets::new(&bytes) {
            let (context, body) = packet.unwrap();
            let class = &metadata.streams[&context.stream_id];
            let decoded = Records::new(class).decode(&context, body, |record| {
                let event = &class.events[record.class];
                let fields: Vec<(&str, Value)> = event.values(record.fields).collect();
                let field = |name: &str| match fields.iter().find(|(of, _)| *of == name) {
                    Some((_, Value::Unsigned(value))) => *value,
                    other => panic!("{name}: {other:?}"),
                };
                let at = record.counter.0 - ticks_of_ns(field("ago_ns"));
                let within = i64::try_from(field("within_ns")).unwrap();
                found.push((field("number"), event.name.clone(), at, within));
            });
            decoded.unwrap();
        }
    }
    found
}

/// Whatever comes between reading the clocks and recording, the instant that a record tells of is
/// the packet's, within what it says.
#[test]
fn a_pause_before_the_record_moves_no_instant() {
    if std::env::var_os(RUNTIME_DIR).is_some_and(|dir| !dir.is_empty()) {
        return record();
    }
    let dir = tempfile::tempdir().unwrap();
    let (runtime, out) = (dir.path().join("runtime"), dir.path().join("out"));
    let frequency = frequency::nominal().unwrap();
    std::fs::create_dir(&runtime).unwrap();
    let streams = [StreamSpec::of(["link:*".into()])];
    stream::write(&streams, &runtime, frequency).unwrap();
    let identity =
        Identity { host: "h1".into(), clock_uuid: [1; 16], trace_uuid: [2; 16], frequency };
    let mut collector = Collector::new(&out, identity, None).unwrap();
    collector.add_source(&runtime, None, &streams).unwrap();
    let (_, module) = module_path!().split_once("::").unwrap();
    let name = format!("{module}::a_pause_before_the_record_moves_no_instant");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(RUNTIME_DIR, &runtime)
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}");
    let loss = collector.finish().unwrap().into_stream(MAIN);
    assert_eq!((loss.recorded, loss.dropped), (4 * PACKETS, 0), "{loss:?}");
    let ns = |ticks: i128| (ticks * 1_000_000_000 / i128::from(frequency.hz())) as i64;
    let ticks = |ns: u64| (u128::from(ns) * u128::from(frequency.hz()) / 1_000_000_000) as u64;
    let records = records(&out, ticks);
    for line in told.lines().filter_map(|line| line.strip_prefix("instant ")) {
        let words: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let [number, before, after] = words[..] else { panic!("{line}") };
        for (_, name, at, within) in records.iter().filter(|record| record.0 == number) {
            let early = ns(i128::from(before) - i128::from(*at));
            let late = ns(i128::from(*at) - i128::from(after));
            let most = within + SLACK_NS;
            assert!(early <= most && late <= most, "{name} {number}: {early} {late} ± {within} ns");
        }
    }
    for name in ["enqueued", "departed", "corrupted", "duplicated"] {
        assert_eq!(records.iter().filter(|record| record.1 == name).count() as u64, PACKETS);
    }
}
