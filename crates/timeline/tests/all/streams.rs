//! Many streams, large ones and damaged ones: every record comes out, in order, or is said to be lost.

use std::fs;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use loopscope_ctf::packet::{self, RECORDS};
use loopscope_ctf::{FieldType, Packets};
use loopscope_time::{ClockMap, Counter, Epoch, GlobalNs};
use loopscope_timeline::{HostClock, Summary, Timeline};

use crate::lab::{Written, event, ints, knot, metadata, packets, packets_of, plain, read};

/// Pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A host's directory with a stream for each of `streams`, whose thread is its number.
fn host(dir: &Path, fields: &[(&str, FieldType)], streams: &[Vec<u8>]) {
    fs::create_dir_all(dir.join("trace")).unwrap();
    let text = metadata(vec![event(0, "sent", fields), event(1, "other", &[])]).to_tsdl();
    fs::write(dir.join("trace/metadata"), text).unwrap();
    for (tid, stream) in streams.iter().enumerate() {
        fs::write(dir.join(format!("trace/node-7-{tid}")), stream).unwrap();
    }
}

fn build(hosts: &[(PathBuf, HostClock)], out: &Path) -> Summary {
    let mut timeline = Timeline::new();
    for (dir, clock) in hosts {
        let name = dir.file_name().unwrap().to_string_lossy();
        timeline.add_host(dir, &name, clock.clone()).unwrap();
    }
    timeline.write(out, &mut |_, _| true).unwrap()
}

fn sent(out: &Path) -> RecordBatch {
    read(&out.join("timeline/pipe/sent/part-0.parquet"))
}

fn unsigned(batch: &RecordBatch, name: &str) -> Vec<u32> {
    batch[name].as_primitive::<UInt32Type>().values().to_vec()
}

/// Streams of very different rates, over several pieces, with as many stamps that tie as others: the
/// table is what sorting all records at once makes of them.
#[test]
fn streams_merge_as_if_all_were_sorted() {
    let out = tempfile::tempdir().unwrap();
    let mut random = Random(7);
    let mut expected = Vec::new();
    let mut hosts = Vec::new();
    for host_number in 0..2 {
        let dir = out.path().join(format!("h{host_number}"));
        let origin = GlobalNs(3 * host_number);
        let map = ClockMap::new(origin, vec![knot(0, 0.0, 0.0)], 0.5, 0.0).unwrap();
        let mut streams = Vec::new();
        for (tid, (count, step)) in (0..).zip([(45_000, 8), (30_000, 12), (500, 700)]) {
            let mut counter = 1_000;
            let mut records: Vec<Written> = Vec::new();
            for row in 0..count {
                counter += random.below(2) * random.below(step);
                let id = random.below(5).cast_signed();
                records.push((0, counter, id, u32::to_le_bytes(row).to_vec()));
                if random.below(10) == 0 {
                    records.push((1, counter, id, Vec::new()));
                }
                let ts = map.map(Counter(counter)).0.0;
                expected.push((ts, counter, id, host_number, tid, row));
            }
            streams.push(packets_of(30_000, tid, &records));
        }
        host(&dir, &[("value", FieldType::U32)], &streams);
        hosts.push((dir, HostClock { map, ..plain() }));
    }
    let build = |out: &Path, threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| build(&hosts, out))
    };
    let summary = build(out.path(), 1);
    assert_eq!(summary.events["pipe:sent"], expected.len() as u64);
    // A record after its stream's and its file's: the sort is stable.
    expected.sort_by_key(|row| (row.0, row.1, row.2));
    let table = sent(out.path());
    let counter = table["counter"].as_primitive::<UInt64Type>().values();
    let (ts, id) = (ints(&table, "ts"), ints(&table, "id"));
    let (tid, value) = (unsigned(&table, "tid"), unsigned(&table, "value"));
    let found = |i: usize| (ts[i], counter[i], id[i], tid[i], value[i]);
    for (i, (ts, counter, id, _, tid, row)) in expected.iter().enumerate() {
        assert_eq!(found(i), (*ts, *counter, *id, *tid, *row), "row {i}");
    }

    let again = out.path().join("again");
    assert_eq!(build(&again, 3), summary);
    let file = "timeline/pipe/sent/part-0.parquet";
    let bytes = |dir: &Path| fs::read(dir.join(file)).unwrap();
    assert!(bytes(out.path()) == bytes(&again), "threads make another file");
}

/// A map may put the begin of an epoch before the end of the last one.
#[test]
fn where_time_goes_back_rows_are_still_in_order() {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().join("h");
    let records: Vec<Written> =
        (0..2_000u64).map(|i| (0, i, i.cast_signed(), Vec::new())).collect();
    host(&dir, &[], &[packets_of(5_000, 0, &records), packets_of(700, 1, &records)]);
    let epoch = |number, from, until, knot, ns_per_tick| Epoch {
        number,
        from: Counter(from),
        until: Counter(until),
        knots: vec![knot],
        ns_per_tick,
        drift: 0.0,
    };
    let first = epoch(0, 0, 1_000, knot(500, 500.0, 0.0), 1.0);
    let second = epoch(1, 1_001, u64::MAX, knot(1_900, 700.0, 0.0), 0.2);
    let map = ClockMap::of_epochs(GlobalNs(0), vec![first, second]).unwrap();
    assert!(map.map(Counter(1_001)).0 < map.map(Counter(900)).0);
    build(&[(dir, HostClock { map, ..plain() })], out.path());
    let ts = ints(&sent(out.path()), "ts");
    assert_eq!(ts.len(), 4_000);
    assert!(ts.is_sorted());
}

/// Packets with damaged stamps are where their stamps put them, and hold nothing else up.
#[test]
fn packets_whose_stamps_go_back_are_read() {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().join("h");
    let records: Vec<Written> =
        (0..3_000u64).map(|i| (0, 1_000_000 + i, i.cast_signed(), Vec::new())).collect();
    let mut stream = packets_of(700, 0, &records);
    let second = Packets::new(&stream).next().unwrap().unwrap().0.packet_size;
    for (at, stamp) in [(second, u64::MAX - 7), (2 * second, 5)] {
        let at = at + packet::TIMESTAMP_BEGIN;
        stream[at..at + 8].copy_from_slice(&stamp.to_le_bytes());
    }
    host(&dir, &[], &[stream]);
    build(&[(dir, plain())], out.path());
    let table = sent(out.path());
    let mut id = ints(&table, "id");
    assert!(ints(&table, "ts").is_sorted());
    id.sort_unstable();
    assert_eq!(id, (0..3_000).collect::<Vec<_>>());
}

/// Records and packets may be larger than what is read at once, and what is between packets too.
#[test]
fn a_piece_may_be_smaller_than_a_record() {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().join("h");
    let text = |letter: u8, size: usize| [vec![letter; size], vec![0]].concat();
    let sizes = [3, 900_000, 40, 131_000, 300_000, 5];
    let records: Vec<Written> = (0u64..)
        .zip(sizes)
        .map(|(i, size)| (0, 10 * i, i.cast_signed(), text(b'a' + i as u8, size)))
        .collect();
    let mut stream = packets_of(1 << 20, 0, &records);
    let (context, _) = Packets::new(&stream).next().unwrap().unwrap();
    let gap = 500_000;
    let context = packet::Context { packet_size: context.packet_size + gap, ..context };
    packet::put_context(&mut stream, &context);
    stream.splice(context.content_size..context.content_size, vec![0xff; gap]);
    host(&dir, &[("text", FieldType::String)], &[stream]);
    build(&[(dir, plain())], out.path());
    let table = sent(out.path());
    let texts = table["text"].as_string::<i32>();
    let found: Vec<_> = texts.iter().map(|text| text.unwrap().len()).collect();
    assert_eq!(found, sizes);
    assert!(
        texts.iter().zip(b'a'..).all(|(text, letter)| text.unwrap().bytes().all(|b| b == letter))
    );
}

/// Damage is said with its place in the file; all other packets are read.
#[test]
fn damage_is_said_with_its_place() {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().join("h");
    let records: Vec<Written> = (0..20u64).map(|i| (0, i, i.cast_signed(), Vec::new())).collect();
    let mut stream = packets(0, &records);
    // The second packet's third record is of no class.
    let size = Packets::new(&stream).next().unwrap().unwrap().0.packet_size;
    let at = size + RECORDS + 2 * packet::RECORD;
    stream[at] = 9;
    host(&dir, &[], &[stream]);
    let summary = build(&[(dir, plain())], out.path());
    assert_eq!(summary.events["pipe:sent"], 14);
    let said = format!(
        "packet 1: at byte {at}: event class 9 is not declared; its other records are lost"
    );
    assert_eq!(summary.problems[0].what, said);
    assert_eq!(ints(&sent(out.path()), "id"), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 18, 19]);
}

/// A packet that is missing is said by its number; those around it are read.
#[test]
fn a_missing_packet_is_said() {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().join("h");
    let records: Vec<Written> = (0..20u64).map(|i| (0, i, i.cast_signed(), Vec::new())).collect();
    let mut stream = packets(0, &records);
    let sizes: Vec<usize> = Packets::new(&stream).map(|each| each.unwrap().0.packet_size).collect();
    stream.drain(sizes[0]..sizes[0] + sizes[1]);
    host(&dir, &[], &[stream]);
    let summary = build(&[(dir, plain())], out.path());
    assert_eq!(summary.problems[0].what, "packet 2 is where packet 1 should be");
    assert_eq!(ints(&sent(out.path()), "id"), [0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19]);
}

/// Each byte of a stream changed, and the stream cut at each: no crash, and a record that is not there
/// is never missed in silence.
#[test]
fn any_damage_is_survived_and_lost_records_are_said() {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().join("h");
    let fields = [("text", FieldType::String), ("data", FieldType::Bytes)];
    let record = |i: u64| (0, 100 * i, i.cast_signed(), b"abc\0\x02\0\0\0xy".to_vec());
    let records: Vec<Written> = (0..6).map(record).collect();
    let stream = packets(0, &records);
    let mut damaged: Vec<Vec<u8>> = (0..stream.len()).map(|cut| stream[..cut].to_vec()).collect();
    for at in 0..stream.len() {
        let mut bytes = stream.clone();
        bytes[at] ^= 1 << (at % 8) | (at as u8).reverse_bits();
        damaged.push(bytes);
    }
    let sums = r#""emitted": 6, "recorded": 6, "dropped": 0, "torn": 0"#;
    let account = format!(
        r#"{{"version": 1, {sums}, "processes": [{{"process": "node", "pid": 7, {sums}}}]}}"#
    );
    for stream in damaged {
        host(&dir, &fields, std::slice::from_ref(&stream));
        fs::write(dir.join("loss.json"), &account).unwrap();
        let summary = build(&[(dir.clone(), plain())], out.path());
        let rows = summary.events.get("pipe:sent").copied().unwrap_or_default();
        assert!(rows == 6 || !summary.problems.is_empty(), "{rows} rows of {stream:?}");
        if rows > 0 {
            assert!(ints(&sent(out.path()), "ts").is_sorted());
        }
    }
}
