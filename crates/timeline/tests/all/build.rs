//! Tables hold exactly what the streams hold, on the global time line, in order.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float64Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use loopscope_ctf::packet::{Context, put_context};
use loopscope_ctf::{Buckets, EventClass, FieldType, Kind, Packets};
use loopscope_time::{Bound, ClockMap, Counter, Epoch, GlobalNs, Knot};
use loopscope_timeline::{ClockEvent, ForeignReading, HostClock, Summary, Timeline};

use crate::lab::{Written, event, ints, knot, metadata, packets, plain, read};

/// A class of a kind that has fields of its own.
fn entity(id: u16, name: &str, kind: Kind) -> EventClass {
    EventClass { kind, ..event(id, name, kind.fields().unwrap()) }
}

/// A host with one process and its account.
fn host(dir: &Path, events: Vec<EventClass>, records: &[Written], claimed: usize) {
    let process = format!(
        r#"{{"process": "node", "pid": 7, "emitted": {claimed}, "recorded": {claimed},
             "dropped": 0, "torn": 0, "sites": []}}"#
    );
    let loss = format!(
        r#"{{"version": 1, "emitted": {claimed}, "recorded": {claimed}, "dropped": 0, "torn": 0,
            "processes": [{process}]}}"#
    );
    fs::create_dir_all(dir.join("trace")).unwrap();
    fs::write(dir.join("trace/metadata"), metadata(events).to_tsdl()).unwrap();
    fs::write(dir.join("trace/node-7-8"), packets(8, records)).unwrap();
    fs::write(dir.join("loss.json"), loss).unwrap();
}

/// The tables of one host, without problems unless some are given.
fn build(dir: &Path, problems: &[&str]) -> Summary {
    let mut timeline = Timeline::new();
    timeline.add_host(dir, "h", plain()).unwrap();
    let summary = timeline.write(dir, &mut |_, _| true).unwrap();
    let said: Vec<_> = summary.problems.iter().map(|p| format!("{}: {}", p.file, p.what)).collect();
    assert_eq!(said, problems);
    summary
}

#[test]
fn two_hosts_merge_in_global_order() {
    let dir = tempfile::tempdir().unwrap();
    let ahead = vec![(0, 2_000, 1, vec![]), (0, 6_000, 2, vec![])];
    host(&dir.path().join("a"), vec![event(0, "sent", &[])], &ahead, 2);
    let behind = vec![(0, 1_000_000, 3, vec![]), (0, 1_002_000, 4, vec![])];
    host(&dir.path().join("b"), vec![event(0, "sent", &[])], &behind, 2);
    // Host b's counter is 997,000 ticks ahead and its map is 25 ns wide.
    let shifted = ClockMap::new(GlobalNs(1_500), vec![knot(1_000_000, 0.0, 24.0)], 0.5, 1e-6);
    let map = shifted.unwrap().of_any_processor(0.0, Some(117.2));
    let b = HostClock { map, reference: false, exchanges: 9, ..plain() };

    let mut timeline = Timeline::new();
    timeline.add_host(&dir.path().join("a"), "a", plain()).unwrap();
    timeline.add_host(&dir.path().join("b"), "b", b).unwrap();
    let summary = timeline.write(dir.path(), &mut |_, _| true).unwrap();

    assert_eq!(summary.problems, []);
    assert_eq!(summary.events, BTreeMap::from([("pipe:sent".to_owned(), 4)]));
    assert_eq!((summary.emitted, summary.recorded, summary.dropped), (4, 4, 0));
    assert_eq!(summary.hosts["a"].max_err_ns, 1);
    assert_eq!(summary.hosts["b"].max_err_ns, 25);
    // What nobody measured is null.
    assert_eq!((summary.hosts["a"].apart_ns, summary.hosts["b"].apart_ns), (None, Some(118)));
    let hosts = read(&dir.path().join("tables/hosts.parquet"));
    let apart = hosts.column_by_name("apart_ns").unwrap().as_primitive::<Int64Type>();
    assert_eq!(apart.iter().collect::<Vec<_>>(), [None, Some(118)]);
    let table = read(&dir.path().join("timeline/pipe/sent/part-0.parquet"));
    assert_eq!(ints(&table, "ts"), [1_000, 1_500, 2_500, 3_000]);
    assert_eq!(ints(&table, "id"), [1, 3, 4, 2]);
    let hosts = table.column_by_name("host").unwrap().as_dictionary::<Int32Type>();
    let hosts = hosts.downcast_dict::<arrow_array::StringArray>().unwrap();
    assert_eq!(hosts.into_iter().flatten().collect::<Vec<_>>(), ["a", "b", "b", "a"]);
}

#[test]
fn call_sites_of_one_entity_share_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let events = vec![
        event(0, "sent", &[("size", FieldType::U32)]),
        event(1, "sent", &[("x", FieldType::F64)]),
        event(2, "sent", &[("size", FieldType::F64)]),
    ];
    let records = vec![
        (0, 10, 1, 6u32.to_le_bytes().to_vec()),
        (1, 20, 2, 0.5f64.to_le_bytes().to_vec()),
        (2, 30, 3, 1.5f64.to_le_bytes().to_vec()),
    ];
    host(dir.path(), events, &records, 3);
    let mut timeline = Timeline::new();
    timeline.add_host(dir.path(), "h", plain()).unwrap();
    let summary = timeline.write(dir.path(), &mut |_, _| true).unwrap();
    assert_eq!(summary.problems.len(), 1, "the renamed field: {:?}", summary.problems);
    let table = read(&dir.path().join("timeline/pipe/sent/part-0.parquet"));
    let size = table.column_by_name("size").unwrap().as_primitive::<UInt32Type>();
    assert_eq!(size.iter().collect::<Vec<_>>(), [Some(6), None, None]);
    let float = |name| {
        let column = table.column_by_name(name).unwrap().as_primitive::<Float64Type>();
        column.iter().collect::<Vec<_>>()
    };
    assert_eq!(float("x"), [None, Some(0.5), None]);
    assert_eq!(float("size_float64"), [None, None, Some(1.5)]);
    assert!(table.column_by_name("cpu").unwrap().is_null(0));
}

#[test]
fn a_lost_record_and_a_cut_stream_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let records: Vec<_> = (0..20u64).map(|i| (0, 10 * i, i.cast_signed(), vec![])).collect();
    host(dir.path(), vec![event(0, "sent", &[])], &records, 20);
    let stream = dir.path().join("trace/node-7-8");
    let bytes = fs::read(&stream).unwrap();
    fs::write(&stream, &bytes[..bytes.len() - 3]).unwrap();
    let mut timeline = Timeline::new();
    timeline.add_host(dir.path(), "h", plain()).unwrap();
    let summary = timeline.write(dir.path(), &mut |_, _| true).unwrap();
    let said: Vec<_> = summary.problems.iter().map(|p| p.what.as_str()).collect();
    // 200-byte packets hold 8 records; the last packet, with 4, is cut.
    assert_eq!(summary.events["pipe:sent"], 16);
    assert!(said[0].contains("the rest of the stream is unreadable"), "{said:?}");
    assert!(said[1].contains("20 records were stored, the streams hold 16"), "{said:?}");
}

#[test]
fn texts_and_bytes_are_kept_empty_ones_too() {
    let dir = tempfile::tempdir().unwrap();
    let fields = [("n", FieldType::U8), ("text", FieldType::String), ("data", FieldType::Bytes)];
    let events = vec![event(0, "said", &fields), event(1, "said", &[])];
    let records = vec![
        (0, 10, 1, b"\x01naiv\0\x02\0\0\0\0\xff".to_vec()),
        (1, 20, 2, vec![]),
        (0, 30, 3, b"\x02\0\0\0\0\0".to_vec()),
        (0, 40, 4, b"\x03na\xefve\0\0\0\0\0".to_vec()),
        (0, 50, 5, b"\x04\xff\0\0\0\0\0".to_vec()),
    ];
    host(dir.path(), events, &records, 5);
    build(
        dir.path(),
        &["trace/node-7-8: 2 strings are not UTF-8; what is wrong in them became \u{fffd}"],
    );
    let table = read(&dir.path().join("timeline/pipe/said/part-0.parquet"));
    let text: Vec<_> = table["text"].as_string::<i32>().iter().collect();
    assert_eq!(text, [Some("naiv"), None, Some(""), Some("na\u{fffd}ve"), Some("\u{fffd}")]);
    let data: Vec<_> = table["data"].as_binary::<i32>().iter().collect();
    assert_eq!(data, [Some(&b"\0\xff"[..]), None, Some(b""), Some(b""), Some(b"")]);
    let n: Vec<_> = table["n"].as_primitive::<UInt8Type>().iter().collect();
    assert_eq!(n, [Some(1), None, Some(2), Some(3), Some(4)]);
}

#[test]
fn an_interval_is_placed_on_the_global_time_line() {
    let dir = tempfile::tempdir().unwrap();
    let interval = |start: u64, end: u64| [start, end.wrapping_sub(start)].map(u64::to_le_bytes);
    let records = vec![
        (0, 1_500, 1, interval(500, 1_500).concat()),
        (0, 2_000, 2, interval(2_000, 2_000).concat()),
        (0, 3_000, 3, interval(u64::MAX, 3_000).concat()),
    ];
    host(dir.path(), vec![entity(0, "step", Kind::Interval)], &records, 3);
    // One tick is 0.5 ns up to counter 1000 and 2 ns from there.
    let knots = vec![knot(0, 0.0, 3.0), knot(1_000, 500.0, 3.0), knot(2_000, 2_500.0, 3.0)];
    let map = ClockMap::new(GlobalNs(10_000), knots, 2.0, 0.0).unwrap();
    let mut timeline = Timeline::new();
    timeline.add_host(dir.path(), "h", HostClock { map, ..plain() }).unwrap();
    let summary = timeline.write(dir.path(), &mut |_, _| true).unwrap();
    assert_eq!(summary.problems.len(), 1, "{:?}", summary.problems);
    assert!(summary.problems[0].what.starts_with("1 intervals start after their end"));
    let table = read(&dir.path().join("timeline/pipe/step/part-0.parquet"));
    assert_eq!(ints(&table, "ts"), [11_500, 12_500, 14_500]);
    let column = |name| table[name].as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
    assert_eq!(column("start"), [Some(10_250), Some(12_500), None]);
    assert_eq!(column("duration"), [Some(1_250), Some(0), None]);
}

/// Where nothing is known of a clock, nothing is claimed of its events, nor of intervals that began
/// there; and no rate bounds intervals that may lie across.
#[test]
fn a_disturbed_clock_claims_nothing_between_its_epochs() {
    let dir = tempfile::tempdir().unwrap();
    let interval =
        |start: u64, end: u64| (0, end, 1, [start, end - start].map(u64::to_le_bytes).concat());
    let records = vec![interval(900, 950), interval(1_400, 1_500), interval(1_500, 2_100)];
    host(dir.path(), vec![entity(0, "step", Kind::Interval)], &records, 3);
    let epoch = |number, from, until, knot| Epoch {
        number,
        from: Counter(from),
        until: Counter(until),
        knots: vec![knot],
        ns_per_tick: 1.0,
        drift: 0.0,
    };
    let first = epoch(0, 0, 1_000, knot(500, 0.0, 3.0));
    let second = epoch(1, 2_000, u64::MAX, knot(2_000, 5_000.0, 3.0));
    let map = ClockMap::of_epochs(GlobalNs(0), vec![first, second]).unwrap();
    let mut timeline = Timeline::new();
    timeline.add_host(dir.path(), "h", HostClock { map, ..plain() }).unwrap();
    let summary = timeline.write(dir.path(), &mut |_, _| true).unwrap();
    assert!(summary.hosts["h"].drift_ppm.is_nan());
    assert_eq!(summary.hosts["h"].max_err_ns, 1 << 60);
    let table = read(&dir.path().join("timeline/pipe/step/part-0.parquet"));
    assert_eq!(ints(&table, "err_ns"), [4, 1 << 60, 1 << 60]);
    assert!(ints(&table, "ts").is_sorted());
}

/// The tables of the clocks hold what is known, and null for what is not.
#[test]
fn clocks_are_told_with_their_widths_and_events() {
    let dir = tempfile::tempdir().unwrap();
    host(dir.path(), vec![event(0, "sent", &[])], &[(0, 10, 1, vec![])], 1);
    let knots = vec![
        Knot { counter: Counter(0), offset_ns: 0.0, err_ns: 99.0, calibrated_ns: 9.0 },
        Knot { counter: Counter(2_000), offset_ns: 1_000.0, err_ns: 49.0, calibrated_ns: 4.0 },
    ];
    let reading = |ts, err, known: Option<(i64, i64)>| ForeignReading {
        clock: "realtime".into(),
        ts: GlobalNs(ts),
        err,
        gained: known,
        offset: known.map(|(ns, err)| (ns + 1, err + 1)),
    };
    let happened = ClockEvent {
        clock: "realtime".into(),
        kind: "set".into(),
        from: None,
        until: Some(GlobalNs(7)),
        ns: Some((-3, -2)),
        what: "it was set".into(),
    };
    let clock = HostClock {
        map: ClockMap::new(GlobalNs(0), knots, 0.5, 0.0).unwrap(),
        rejected: 3,
        readings: vec![
            reading(5, Bound::of_rounded(1.0), Some((-20, 4))),
            reading(6, Bound::UNKNOWN, None),
        ],
        events: vec![happened],
        ..plain()
    };
    let mut timeline = Timeline::new();
    timeline.add_host(dir.path(), "h", clock).unwrap();
    assert_eq!(timeline.write(dir.path(), &mut |_, _| true).unwrap().hosts["h"].rejected, 3);
    let table = |name: &str| read(&dir.path().join(format!("tables/{name}.parquet")));
    let nullable = |table: &RecordBatch, name: &str| -> Vec<Option<i64>> {
        table[name].as_primitive::<Int64Type>().iter().collect()
    };
    let map = table("clock");
    assert_eq!(ints(&map, "err_ns"), [100, 50]);
    assert_eq!(ints(&map, "calibrated_ns"), [10, 5]);
    assert_eq!(map["epoch"].as_primitive::<UInt32Type>().values(), &[0, 0]);
    assert_eq!(ints(&table("hosts"), "rejected"), [3]);
    let foreign = table("foreign_clocks");
    assert_eq!(ints(&foreign, "ts"), [5, 6]);
    assert_eq!(ints(&foreign, "err_ns"), [2, 1 << 60]);
    for (name, value) in
        [("gained_ns", -20), ("gained_err_ns", 4), ("offset_ns", -19), ("offset_err_ns", 5)]
    {
        assert_eq!(nullable(&foreign, name), [Some(value), None], "{name}");
    }
    let events = table("clock_events");
    let of = |name| nullable(&events, name)[0];
    assert_eq!((of("from_ts"), of("until_ts")), (None, Some(7)));
    assert_eq!((of("least_ns"), of("most_ns")), (Some(-3), Some(-2)));
}

#[test]
fn a_histogram_becomes_lists_and_its_entity_is_described() {
    let dir = tempfile::tempdir().unwrap();
    let linear = Some(Buckets::Linear { low: -5, high: 95, count: 10 });
    let events = vec![
        EventClass { histogram: linear, ..entity(0, "size", Kind::Histogram) },
        EventClass {
            unit: "B".into(),
            description: "of a message".into(),
            histogram: linear,
            ..entity(1, "size", Kind::Histogram)
        },
        EventClass {
            unit: "ns".into(),
            histogram: Some(Buckets::Log),
            ..entity(2, "wait", Kind::Histogram)
        },
        entity(3, "never", Kind::Counter),
    ];
    let state = |count: u64, indexes: &[u16], counts: &[u64]| {
        let mut fields = [count, 70u64.wrapping_neg(), 1, 2].map(u64::to_le_bytes).concat();
        fields.extend((indexes.len() as u32).to_le_bytes());
        fields.extend(indexes.iter().flat_map(|i| i.to_le_bytes()));
        fields.extend(counts.iter().flat_map(|n| n.to_le_bytes()));
        fields
    };
    let records = vec![
        (0, 10, 0, state(3, &[], &[])),
        (1, 20, 0, state(9, &[0, 9], &[5, 1])),
        (2, 30, 0, state(u64::MAX, &[1887], &[u64::MAX])),
    ];
    host(dir.path(), events, &records, 3);
    build(dir.path(), &[]);
    let table = read(&dir.path().join("timeline/pipe/size/part-0.parquet"));
    let names: Vec<_> = table.schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(names[9..], ["count", "sum", "below", "above", "bucket", "n"]);
    assert_eq!(ints(&table, "sum"), [-70, -70]);
    let list = |name, row| table[name].as_list::<i32>().value(row);
    assert_eq!(list("bucket", 0).len() + list("n", 0).len(), 0);
    assert_eq!(list("bucket", 1).as_primitive::<UInt16Type>().values(), &[0, 9]);
    assert_eq!(list("n", 1).as_primitive::<UInt64Type>().values(), &[5, 1]);

    let entities = read(&dir.path().join("tables/entities.parquet"));
    let texts = |name| entities[name].as_string::<i32>().iter().collect::<Vec<_>>();
    assert_eq!(texts("entity"), [Some("pipe:size"), Some("pipe:wait")]);
    assert_eq!(texts("kind"), [Some("histogram"); 2]);
    assert_eq!(texts("unit"), [Some("B"), Some("ns")]);
    assert_eq!(texts("description"), [Some("of a message"), None]);
    assert_eq!(texts("group_description"), [Some("of messages"); 2]);
    let low = entities["low"].as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
    let high = entities["high"].as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
    let buckets = entities["buckets"].as_primitive::<UInt32Type>().iter().collect::<Vec<_>>();
    assert_eq!(
        (low, high, buckets),
        (vec![Some(-5), None], vec![Some(95), None], vec![Some(10), None])
    );
}

#[test]
fn kinds_that_share_a_name_stay_apart_and_no_column_is_there_twice() {
    let dir = tempfile::tempdir().unwrap();
    let field = [("ts", FieldType::U8), ("x", FieldType::U8), ("x", FieldType::U8)];
    let flow = |id, kind, unit: &str| EventClass {
        kind,
        unit: unit.into(),
        ..event(id, "message", &field)
    };
    let events =
        vec![flow(0, Kind::FlowOut, ""), flow(1, Kind::FlowIn, "B"), flow(2, Kind::FlowIn, "s")];
    let records = vec![(0, 10, 1, vec![1, 2, 3]), (1, 20, 1, vec![4, 5, 6])];
    host(dir.path(), events, &records, 2);
    let renamed = |line, field| {
        format!(
            "trace/metadata: pipe:message at pipe.c:{line} has field {field}, which is the name of \
             another column; it is renamed"
        )
    };
    let mut problems: Vec<_> =
        [1, 2, 3].into_iter().flat_map(|n| [renamed(n, "ts"), renamed(n, "x")]).collect();
    problems.push(
        "trace/metadata: pipe:message at pipe.c:3 has unit \"s\", an earlier call site has \"B\""
            .into(),
    );
    build(dir.path(), &problems.iter().map(String::as_str).collect::<Vec<_>>());
    let table = read(&dir.path().join("timeline/pipe/message/part-0.parquet"));
    let kinds = table["entity_kind"].as_dictionary::<Int32Type>();
    let kinds = kinds.downcast_dict::<arrow_array::StringArray>().unwrap();
    assert_eq!(kinds.into_iter().flatten().collect::<Vec<_>>(), ["flow-out", "flow-in"]);
    let bytes = |name| table[name].as_primitive::<UInt8Type>().values().to_vec();
    assert_eq!([bytes("ts_uint8"), bytes("x"), bytes("x_uint8")], [[1, 4], [2, 5], [3, 6]]);
    let entities = read(&dir.path().join("tables/entities.parquet"));
    let kinds = entities["kind"].as_string::<i32>().iter().collect::<Vec<_>>();
    assert_eq!(kinds, [Some("flow-out"), Some("flow-in")]);
}

/// A ring outlives its thread: the packet says whose it is.
#[test]
fn each_packet_has_its_own_thread() {
    let dir = tempfile::tempdir().unwrap();
    host(dir.path(), vec![event(0, "sent", &[])], &[(0, 10, 1, vec![]), (0, 20, 2, vec![])], 3);
    let mut next = packets(9, &[(0, 30, 3, vec![])]);
    let (context, _) = Packets::new(&next).next().unwrap().unwrap();
    put_context(&mut next, &Context { sequence: 1, ..context });
    let file = dir.path().join("trace/node-7-8");
    fs::write(&file, [fs::read(&file).unwrap(), next].concat()).unwrap();
    build(dir.path(), &[]);
    let table = read(&dir.path().join("timeline/pipe/sent/part-0.parquet"));
    assert_eq!(table["tid"].as_primitive::<UInt32Type>().values(), &[8, 8, 9]);
}

#[test]
fn an_account_of_version_2_balances_with_overwritten_records_and_last_states() {
    let dir = tempfile::tempdir().unwrap();
    let depth = EventClass { id: 0x8000, ..entity(0, "depth", Kind::Counter) };
    let events = vec![event(0, "sent", &[]), depth];
    host(dir.path(), events, &[(0, 10, 1, vec![]), (0, 20, 2, vec![])], 2);
    fs::write(dir.path().join("trace/node-7-final"), packets(0, &[(0x8000, 30, 0, vec![4; 8])]))
        .unwrap();
    fs::write(dir.path().join("triggers.json"), "[]").unwrap();
    let account = |overwritten: u64, last: u64| {
        let sums = format!(
            r#""emitted": 10, "recorded": 2, "overwritten": {overwritten}, "dropped": 3,
               "filtered": 7, "final": {last}, "torn": 1"#
        );
        let loss = format!(
            r#"{{"version": 2, {sums}, "processes": [{{"process": "node", "pid": 7, {sums},
                "sites": [{{"entity": "pipe:sent", "file": "pipe.c", "line": 1, "filtered": 7,
                "dropped": {{"ring-full": 2}}}}]}}]}}"#
        );
        fs::write(dir.path().join("loss.json"), loss).unwrap();
    };
    account(5, 1);
    let summary = build(dir.path(), &[]);
    assert_eq!(summary.events, BTreeMap::from([("pipe:depth".into(), 1), ("pipe:sent".into(), 2)]));
    let sums = (summary.emitted, summary.recorded, summary.overwritten, summary.dropped);
    assert_eq!((sums, summary.filtered, summary.last_states), ((10, 2, 5, 3), 7, 1));
    account(4, 1);
    build(
        dir.path(),
        &["loss.json: node (pid 7): emitted 10 is not recorded 2 + overwritten 4 + dropped 3"],
    );
    account(5, 0);
    build(dir.path(), &["loss.json: node (pid 7): 2 records were stored, the streams hold 3"]);
    account(5, 1);
    let text = fs::read_to_string(dir.path().join("loss.json")).unwrap();
    fs::write(dir.path().join("loss.json"), text.replacen("version\": 2", "version\": 3", 1))
        .unwrap();
    build(dir.path(), &["loss.json: has version 3, known are 1 to 2"]);
}
