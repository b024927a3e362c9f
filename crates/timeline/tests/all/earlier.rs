//! Events that are recorded after the instant that they are of: the tables have the instant.

use std::fs;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use loopscope_ctf::{FieldType, StreamClass};
use loopscope_timeline::{Summary, Timeline};

use crate::lab::{Written, event, ints, metadata, packets_of, plain, read};

const FIELDS: [(&str, FieldType); 4] = [
    ("number", FieldType::U64),
    ("late_ns", FieldType::I64),
    ("ago_ns", FieldType::U32),
    ("within_ns", FieldType::U32),
];
const UNKNOWN: i64 = 1 << 60;

/// A router's stream, and the same events of a process that is none.
fn build(dir: &Path, process: &str, records: &[Written]) -> Summary {
    let host = dir.join("_router");
    fs::create_dir_all(host.join("trace")).unwrap();
    let mut class = event(0, "departed", &FIELDS);
    class.group = "link".into();
    let mut made = metadata(vec![class]);
    let events = made.streams.remove(&0).unwrap().events;
    made.streams.insert(0, StreamClass { id: 0, process: process.into(), kernel: false, events });
    fs::write(host.join("trace/metadata"), made.to_tsdl()).unwrap();
    fs::write(host.join("trace/links-7-0"), packets_of(30_000, 0, records)).unwrap();
    let mut timeline = Timeline::new();
    timeline.add_host(&host, "_router", plain()).unwrap();
    timeline.write(dir, &mut |_, _| true).unwrap()
}

fn record(number: u64, counter: u64, ago: u32, within: u32) -> Written {
    let mut fields = number.to_le_bytes().to_vec();
    fields.extend((-1i64).to_le_bytes());
    fields.extend(ago.to_le_bytes());
    fields.extend(within.to_le_bytes());
    (0, counter, number.cast_signed(), fields)
}

/// Over several rounds of reading; some were seconds ago, so before all that was written already.
#[test]
fn tables_are_in_the_order_of_the_instants() {
    let out = tempfile::tempdir().unwrap();
    let mut random = 1_u64;
    let mut records = Vec::new();
    let mut expected = Vec::new();
    for number in 0..60_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let far = random >> 33 & 0xfff == 0;
        let most = if far { u64::from(u32::MAX) } else { 40_000 };
        let (ago, within) = ((random >> 20) % most, random >> 50 & 0xff);
        // Two ticks are a nanosecond.
        let ns = 10_000_000_000 + 100_000 * number;
        records.push(record(number, 2 * ns, ago as u32, within as u32));
        let (ts, err) = (ns - ago, 1 + ago.div_ceil(2_000) + within);
        expected.push((ts.cast_signed(), number.cast_signed(), ago as u32, err.cast_signed()));
    }
    expected.sort_unstable();
    let summary = build(out.path(), "_links", &records);
    assert_eq!(summary.events["link:departed"], 60_000);
    let table = read(&out.path().join("timeline/link/departed/part-0.parquet"));
    let ago = table["ago_ns"].as_primitive::<UInt32Type>().values().to_vec();
    let number = table["number"].as_primitive::<UInt64Type>().values().to_vec();
    let (ts, id, err) = (ints(&table, "ts"), ints(&table, "id"), ints(&table, "err_ns"));
    for (row, (ts_of, id_of, ago_of, err_of)) in expected.into_iter().enumerate() {
        assert_eq!((ts[row], id[row], ago[row]), (ts_of, id_of, ago_of), "row {row}");
        assert_eq!(number[row].cast_signed(), id[row]);
        assert!((err_of - 1..=err_of).contains(&err[row]), "{} {err_of}", err[row]);
    }
    assert!(summary.hosts["_router"].max_err_ns <= 1);
    // The counter was read later.
    assert_eq!(table["counter"].null_count(), 60_000);
}

#[test]
fn what_is_not_known_stays_so_and_other_processes_stamps_are_theirs() {
    let out = tempfile::tempdir().unwrap();
    let records = [record(1, 2_000_000, u32::MAX, u32::MAX), record(2, 3_000_000, 500, 7)];
    build(out.path(), "_links", &records);
    let path = out.path().join("timeline/link/departed/part-0.parquet");
    let table = read(&path);
    assert_eq!(ints(&table, "ts"), [1_000_000 - i64::from(u32::MAX), 1_500_000 - 500]);
    assert!(ints(&table, "err_ns").iter().all(|err| *err < UNKNOWN));
    build(out.path(), "node", &records);
    let table = read(&path);
    assert_eq!(ints(&table, "ts"), [1_000_000, 1_500_000]);
    assert_eq!(table["counter"].null_count(), 0);
}
