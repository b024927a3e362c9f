//! What other tools recorded comes onto a run's time line as its hosts' clocks place it, and what
//! is wrong with it costs nothing else.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type, UInt16Type, UInt32Type};
use arrow_array::{Array, RecordBatch};
use loopscope_time::{Bound, GlobalNs};
use loopscope_timeline::{Clocks, Place, Source, SourceSummary, add_foreign, check_foreign};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 32; align = 8; signed = true; } := int32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
trace { major = 1; minor = 8; byte_order = le; packet.header := struct { uint32_t magic; }; };
env { domain = "ust"; };
clock { name = "monotonic"; uuid = "01010101-0101-0101-0101-010101010101"; freq = 1000000000;
        offset_s = 1700000000; };
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := stamp_t;
stream {
    packet.context := struct { stamp_t timestamp_begin; stamp_t timestamp_end; uint64_t content_size;
        uint64_t packet_size; uint64_t events_discarded; uint32_t cpu_id; };
    event.header := struct { uint32_t id; stamp_t timestamp; };
    event.context := struct { int32_t _vpid; int32_t _vtid; };
};
event { name = "topic:publish"; id = 0; fields := struct { uint32_t _id; string _name; uint64_t _ts; }; };
event { name = "deep"; id = 2; fields := struct {
    uint32_t _n; struct { uint32_t _a; string _b; uint32_t _m; uint32_t _c[_m]; } _rows[_n]; }; };
event { name = "tick"; id = 1; fields := struct { uint64_t _n; }; };
"#;

const BOOT: [u8; 16] = [1; 16];

/// A packet of CTF with these events: class, stamp, process, the class's fields.
fn packet(discarded: u64, events: &[(u32, u64, i32, Vec<u8>)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (class, stamp, pid, fields) in events {
        body.extend(class.to_le_bytes());
        body.extend(stamp.to_le_bytes());
        body.extend(pid.to_le_bytes());
        body.extend((pid + 1).to_le_bytes());
        body.extend(fields);
    }
    let (first, last) = (events[0].1, events[events.len() - 1].1);
    let bits = 8 * (48 + body.len() as u64);
    let mut bytes = 0xC1FC_1FC1u32.to_le_bytes().to_vec();
    for word in [first, last, bits, bits, discarded] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(5u32.to_le_bytes());
    bytes.extend(body);
    bytes
}

fn publish(id: u32, name: &str, ts: u64) -> Vec<u8> {
    [&id.to_le_bytes()[..], name.as_bytes(), b"\0", &ts.to_le_bytes()].concat()
}

fn trace(dir: &Path, packets: &[Vec<u8>]) -> PathBuf {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("metadata"), METADATA).unwrap();
    fs::write(dir.join("stream"), packets.concat()).unwrap();
    dir.to_owned()
}

/// `shift` ahead; unknown from `until` on; the maximum error is 7 and what a stamp stands for.
fn shifted(shift: i64, until: i64) -> Place {
    Arc::new(move |from, to| {
        let known = from < until;
        let bound = Bound::of_rounded((7 + to - from) as f64 - 0.5);
        (GlobalNs(from + shift), if known { bound } else { Bound::UNKNOWN })
    })
}

fn source(host: &str, path: PathBuf, place: Place) -> Source {
    let clocks: Clocks = ["monotonic", "realtime"].map(|name| (name.into(), place.clone())).into();
    Source {
        host: host.into(),
        process: "recorder".into(),
        name: path.file_name().unwrap().to_string_lossy().into_owned(),
        path,
        clock: None,
        clocks,
        boot: Some(BOOT),
        processes: HashMap::from([(70, "talker".to_owned())]),
    }
}

fn add(sources: &[Source], dir: &Path) -> Vec<SourceSummary> {
    add_foreign(sources, &BTreeSet::new(), dir, &mut |_, _| true).unwrap()
}

fn table(dir: &Path, name: &str) -> RecordBatch {
    let folder = dir.join("timeline").join(name);
    let parts = (0..).map(|part| folder.join(format!("part-{part}.parquet")));
    let batches: Vec<RecordBatch> = parts
        .map_while(|part| File::open(part).ok())
        .flat_map(|file| ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap())
        .map(Result::unwrap)
        .collect();
    arrow_select::concat::concat_batches(&batches[0].schema(), &batches).unwrap()
}

fn integers(batch: &RecordBatch, column: &str) -> Vec<Option<i64>> {
    batch[column].as_primitive::<Int64Type>().iter().collect()
}

fn texts(batch: &RecordBatch, column: &str) -> Vec<Option<String>> {
    let array = &batch[column];
    let text = |row: usize| match array.as_dictionary_opt::<Int32Type>() {
        Some(keys) => keys.values().as_string::<i32>().value(keys.key(row).unwrap()).to_owned(),
        None => array.as_string::<i32>().value(row).to_owned(),
    };
    (0..array.len()).map(|row| array.is_valid(row).then(|| text(row))).collect()
}

#[test]
fn two_hosts_traces_are_one_table_in_global_order() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let name = "a".to_owned();
    let first = trace(
        &dir.join("one"),
        &[
            packet(
                3,
                &[(0, 100, 70, publish(7, &name, 1)), (1, 150, 71, 9u64.to_le_bytes().into())],
            ),
            packet(8, &[(0, 300, 70, publish(8, "b", 2))]),
        ],
    );
    let second = trace(&dir.join("two"), &[packet(0, &[(0, 5_050, 70, publish(9, "c", 3))])]);
    let sources = [
        source("h1", first, shifted(1000, 1 << 40)),
        source("h2", second, shifted(-3850, 1 << 40)),
    ];
    let found = add(&sources, dir);
    let publish = table(dir, "topic/publish");
    // By the monotonic clock, not from the epoch that metadata tells of.
    assert_eq!(integers(&publish, "ts"), [Some(1100), Some(1200), Some(1300)]);
    assert_eq!(integers(&publish, "err_ns"), [Some(7); 3]);
    assert_eq!(integers(&publish, "id"), [Some(7), Some(9), Some(8)]);
    assert_eq!(publish["counter"].null_count(), 3);
    assert_eq!(texts(&publish, "host"), ["h1", "h2", "h1"].map(|t| Some(t.to_owned())));
    assert_eq!(texts(&publish, "process"), ["talker"; 3].map(|t| Some(t.to_owned())));
    assert_eq!(publish["pid"].as_primitive::<UInt32Type>().values(), &[70, 70, 70]);
    assert_eq!(publish["tid"].as_primitive::<UInt32Type>().values(), &[71, 71, 71]);
    assert_eq!(publish["cpu"].as_primitive::<UInt16Type>().values(), &[5, 5, 5]);
    assert_eq!(texts(&publish, "name"), ["a", "c", "b"].map(|t| Some(t.to_owned())));
    // The field that is called as a column of all tables.
    assert_eq!(publish["ts_2"].len(), 3);
    // A process that nobody knows is who recorded it.
    let tick = table(dir, "ust/tick");
    assert_eq!(texts(&tick, "process"), [Some("recorder".to_owned())]);
    assert_eq!(tick["id"].null_count(), 1);
    let one = &found[0];
    assert_eq!((one.events, one.unknown, one.whole), (3, 0, true));
    assert_eq!((one.from_ts, one.until_ts), (Some(1100), Some(1300)));
    assert_eq!((one.lost.events, one.lost.events_before), (5, 3));
    assert!(one.problems.iter().any(|what| what.starts_with("5 events and 0 packets were lost")));
    assert_eq!(one.tables, ["topic.publish", "ust.tick"]);
    assert_eq!((one.kind, one.clock.as_deref()), (Some("ctf"), Some("monotonic")));
    assert_eq!((found[1].events, &*found[1].tables), (1, &["topic.publish".to_owned()][..]));
}

#[test]
fn damage_costs_the_rest_of_its_stream_and_unknown_times_are_counted() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    fs::create_dir_all(dir.join("timeline/topic/publish")).unwrap();
    let mut broken = publish(2, "", 0);
    // A text without an end.
    broken.truncate(4);
    broken.extend([b'x'; 9]);
    let good = (0, 100, 70, publish(1, "a", 1));
    let one = trace(&dir.join("one"), &[packet(0, &[good.clone(), (0, 200, 70, broken)])]);
    let two =
        trace(&dir.join("two"), &[packet(0, &[good.clone(), (0, 400, 70, publish(3, "b", 1))])]);
    let three = trace(&dir.join("three"), &[packet(0, std::slice::from_ref(&good)), vec![0; 60]]);
    let none = dir.join("none");
    fs::create_dir(&none).unwrap();
    let mut sources = [one, two, three, none].map(|path| source("h1", path, shifted(0, 300)));
    sources[2].boot = Some(BOOT);
    let found = add(&sources, dir);
    // The run has a table of that name.
    let publish = table(dir, "topic/publish_2");
    assert_eq!(integers(&publish, "id"), [Some(1), Some(1), Some(1), Some(3)]);
    assert_eq!(integers(&publish, "err_ns")[3], Some(1 << 60));
    assert_eq!(found.iter().map(|f| f.events).collect::<Vec<_>>(), [1, 2, 1, 0]);
    assert_eq!(found.iter().map(|f| f.whole).collect::<Vec<_>>(), [false, true, false, false]);
    assert_eq!(found.iter().map(|f| f.unknown).collect::<Vec<_>>(), [0, 1, 0, 0]);
    let said = |index: usize| found[index].problems.join("\n");
    assert!(said(0).contains("stream: in the packet at byte 0, at byte"), "{}", said(0));
    assert!(said(0).contains("topic:publish.") && said(0).contains("the rest of the stream"));
    assert!(said(1).contains("of 1 events the time is unknown"), "{}", said(1));
    assert!(said(2).contains("the magic number is 0x0"), "{}", said(2));
    assert!(said(3).contains("no trace"), "{}", said(3));
}

/// Whatever is wrong with a trace or a capture, what can be read of it is, the tables hold
/// together, and where something is left out that is said.
#[test]
fn damage_anywhere_is_borne_and_said() {
    let place = tempfile::tempdir().unwrap();
    let row = |a: u32, b: &[u8], c: &[u32]| {
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
        [words(&[a]), [b, b"\0"].concat(), words(&[c.len() as u32]), words(c)].concat()
    };
    let deep = [2u32.to_le_bytes().to_vec(), row(1, b"one", &[4, 5]), row(2, b"", &[])].concat();
    let packets = [
        packet(0, &[(0, 10, 7, publish(1, "a", 1)), (2, 20, 7, deep.clone())]),
        packet(0, &[(2, 30, 7, deep), (0, 40, 7, publish(2, "b", 1))]),
    ];
    let ctf = packets.concat();
    let capture = pcap(true, true, &[(1, 0, frame(1)), (2, 0, frame(2))]);
    for (number, good) in [ctf, capture].into_iter().enumerate() {
        for at in 0..good.len() {
            let dir = place.path().join(format!("{number}-{at}"));
            fs::create_dir(&dir).unwrap();
            let mut bytes = good.clone();
            bytes[at] ^= 0xff;
            let path = if number == 0 {
                trace(&dir.join("trace"), &[bytes])
            } else {
                fs::write(dir.join("capture"), bytes).unwrap();
                dir.join("capture")
            };
            let found = &add(&[source("h1", path, shifted(0, 1 << 62))], &dir)[0];
            let rows: usize = found
                .tables
                .iter()
                .map(|name| table(&dir, &name.replace('.', "/")).num_rows())
                .sum();
            assert_eq!(rows as u64, found.events, "byte {at}");
            let whole = if number == 0 { 4 } else { 2 };
            assert!(found.events == whole || !found.whole, "byte {at}: {found:?}");
            assert!(found.whole || !found.problems.is_empty(), "byte {at}: {found:?}");
        }
    }
}

#[test]
fn a_trace_of_another_boot_or_clock_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = trace(&place.path().join("one"), &[packet(0, &[(1, 1, 1, vec![0; 8])])]);
    let mut source = source("h1", path, shifted(0, 1));
    assert_eq!(check_foreign(&source), Ok(()));
    source.boot = Some([2; 16]);
    assert!(check_foreign(&source).unwrap_err().contains("another boot"));
    source.boot = None;
    source.clocks.remove("monotonic");
    let found = add(&[source], place.path());
    assert!(found[0].problems[0].contains("was not read on h1"), "{:?}", found[0]);
    assert!(!found[0].whole && found[0].clock.is_none());
    assert!(!place.path().join("timeline").exists());
}

/// Stamps that count nanoseconds by no clock that metadata names are of the one that is said.
#[test]
fn a_trace_without_a_clock_is_placed_by_the_one_that_is_said() {
    let place = tempfile::tempdir().unwrap();
    let path = trace(&place.path().join("one"), &[packet(0, &[(1, 40, 9, vec![0; 8])])]);
    let (before, rest) = METADATA.split_once("clock {").unwrap();
    let (_, after) = rest.split_once("};").unwrap();
    let metadata = [before, &after.replace("map = clock.monotonic.value;", "")].concat();
    fs::write(path.join("metadata"), metadata).unwrap();
    let mut source = source("h1", path, shifted(1000, 1 << 40));
    let said = check_foreign(&source).unwrap_err();
    assert!(said.contains("its clock \"default\" is none that was read on h1"), "{said}");
    source.clock = Some("realtime".into());
    let found = &add(&[source], place.path())[0];
    assert_eq!((found.whole, found.clock.as_deref()), (true, Some("realtime")));
    assert_eq!(integers(&table(place.path(), "ust/tick"), "ts"), [Some(1040)]);
}

/// LTTng's buffers may be each process's own: then the trace says whose.
#[test]
fn the_process_may_be_the_trace_s() {
    let place = tempfile::tempdir().unwrap();
    let path = trace(&place.path().join("one"), &[packet(0, &[(1, 1, 9, vec![0; 8])])]);
    let metadata = METADATA.replace("_vpid", "_other").replace("_vtid", "_more");
    let metadata = metadata.replace("domain = \"ust\";", "domain = \"ust\"; vpid = 70;");
    fs::write(path.join("metadata"), metadata).unwrap();
    add(&[source("h1", path, shifted(0, 10))], place.path());
    let tick = table(place.path(), "ust/tick");
    assert_eq!(tick["pid"].as_primitive::<UInt32Type>().value(0), 70);
    assert_eq!(tick["tid"].null_count(), 1);
    assert_eq!(texts(&tick, "process"), [Some("talker".to_owned())]);
}

/// Ethernet, IPv4 (10.0.0.1 to 10.0.0.2, number `id`), UDP (1234 to 5000), four bytes.
fn frame(id: u16) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, 0, 32]);
    frame.extend(id.to_be_bytes());
    frame.extend([0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x04, 0xd2, 0x13, 0x88, 0, 12, 0, 0, 1, 2, 3, 4]);
    frame
}

fn word(big: bool, value: u32) -> [u8; 4] {
    if big { value.to_be_bytes() } else { value.to_le_bytes() }
}

/// A capture of frames, each with its seconds and its fraction.
fn pcap(big: bool, nano: bool, frames: &[(u32, u32, Vec<u8>)]) -> Vec<u8> {
    let magic = if nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    let version = if big { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
    let mut bytes = [word(big, magic), version].concat();
    for value in [0, 0, 262_144, 1] {
        bytes.extend(word(big, value));
    }
    for (seconds, fraction, frame) in frames {
        for value in [*seconds, *fraction, frame.len() as u32, frame.len() as u32 + 10] {
            bytes.extend(word(big, value));
        }
        bytes.extend(frame);
    }
    bytes
}

#[test]
fn packets_of_both_byte_orders_and_units_are_placed() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let frames = [(9, 7, frame(1)), (9, 5, frame(2)), (10, 0, vec![1, 2, 3])];
    let mut sources = Vec::new();
    for (i, (big, nano)) in
        [(false, false), (true, false), (false, true), (true, true)].into_iter().enumerate()
    {
        let path = dir.join(format!("{i}.pcap"));
        fs::write(&path, pcap(big, nano, &frames)).unwrap();
        sources.push(source(&format!("h{i}"), path, shifted(1, 1 << 40)));
    }
    let found = add(&sources, dir);
    let packets = table(dir, "pcap/packet");
    let seconds = 9_000_000_000;
    let nanos = [
        6,
        6,
        8,
        8,
        5_001,
        5_001,
        7_001,
        7_001,
        1_000_000_001,
        1_000_000_001,
        1_000_000_001,
        1_000_000_001,
    ];
    assert_eq!(integers(&packets, "ts"), nanos.map(|ns| Some(seconds + ns)));
    // A microsecond may have been any of its nanoseconds.
    let widths: Vec<i64> = integers(&packets, "err_ns").into_iter().flatten().collect();
    assert_eq!(widths[..8], [7, 7, 7, 7, 1006, 1006, 1006, 1006]);
    let ids: Vec<_> = packets["ip_id"].as_primitive::<UInt16Type>().iter().collect();
    assert_eq!(
        ids,
        [2, 2, 1, 1, 2, 2, 1, 1].map(Some).into_iter().chain([None; 4]).collect::<Vec<_>>()
    );
    assert_eq!(texts(&packets, "source")[0].as_deref(), Some("10.0.0.1"));
    assert_eq!(texts(&packets, "destination")[0].as_deref(), Some("10.0.0.2"));
    assert_eq!(packets["source_port"].as_primitive::<UInt16Type>().value(0), 1234);
    assert_eq!(packets["destination_port"].as_primitive::<UInt16Type>().value(0), 5000);
    let lengths = |name| packets[name].as_primitive::<UInt32Type>().value(0);
    assert_eq!((lengths("captured_length"), lengths("frame_length")), (46, 56));
    for each in found {
        assert_eq!((each.events, each.whole, each.clock.as_deref()), (3, true, Some("realtime")));
    }
}

#[test]
fn a_capture_that_is_cut_off_is_read_so_far_and_said() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let whole = pcap(false, false, &[(1, 0, frame(1)), (2, 0, frame(2))]);
    for size in 0..whole.len() {
        let path = dir.join(format!("{size}.pcap"));
        fs::write(&path, &whole[..size]).unwrap();
        let out = dir.join(size.to_string());
        let found = &add(&[source("h1", path, shifted(0, 1 << 40))], &out)[0];
        let rows = u64::from(size >= 24 + 62);
        assert_eq!(found.events, rows, "{size}");
        // Where one record ends and none begins nobody can tell.
        assert_eq!(found.whole, size == 24 || size == 24 + 62, "{size}: {found:?}");
        let said = found.problems.join("\n");
        assert_eq!(said.contains("cut off"), size > 24 && size != 24 + 62, "{size}: {said}");
    }
}

/// A block of pcapng.
fn block(big: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let length = word(big, 12 + body.len() as u32);
    [&word(big, kind)[..], &length, body, &length].concat()
}

/// A capture of an Ethernet interface with this resolution, 5 s to add to its stamps, and three
/// packets dropped; `frame(77)` at each stamp.
fn pcapng(big: bool, resolution: u8, stamps: &[u64]) -> Vec<u8> {
    let half = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let long = |value: u64| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let section = [&word(big, 0x1A2B_3C4D)[..], &half(1), &half(0), &[0xff; 8]].concat();
    let interface = [
        &half(1)[..],
        &half(0),
        &word(big, 0),
        &half(9),
        &half(1),
        &[resolution, 0, 0, 0],
        &half(14),
        &half(8),
        &long(5),
        &half(0),
        &half(0),
    ]
    .concat();
    let mut blocks = vec![(0x0A0D_0D0A, section), (1, interface)];
    for stamp in stamps {
        let frame = frame(77);
        let length = frame.len() as u32;
        let mut packet = Vec::new();
        for value in [0, (stamp >> 32) as u32, *stamp as u32, length, length] {
            packet.extend(word(big, value));
        }
        packet.extend(&frame);
        packet.extend([0; 2]);
        blocks.push((6, packet));
    }
    let statistics = [
        &word(big, 0)[..],
        &word(big, 0),
        &word(big, 0),
        &half(5),
        &half(8),
        &long(3),
        &half(0),
        &half(0),
    ]
    .concat();
    blocks.push((5, statistics));
    blocks.iter().flat_map(|(kind, body)| block(big, *kind, body)).collect()
}

#[test]
fn packets_in_obsolete_blocks_are_said_to_be_left_out() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("old.pcapng");
    let old = block(false, 2, &[0; 24]);
    let custom = block(false, 0x8000_0001, &[0; 8]);
    fs::write(&path, [pcapng(false, 9, &[7]), old.clone(), custom, old].concat()).unwrap();
    let found = &add(&[source("h1", path, shifted(0, 1 << 40))], place.path())[0];
    assert_eq!((found.events, found.whole), (1, false));
    assert!(found.problems[0].starts_with("2 packets are in blocks of the obsolete"), "{found:?}");
}

#[test]
fn pcapng_has_its_own_units_and_losses() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let mut sources = Vec::new();
    for big in [false, true] {
        let path = dir.join(format!("{big}.pcapng"));
        // Stamps of 100 ns.
        fs::write(&path, pcapng(big, 7, &[40_000_003])).unwrap();
        sources.push(source("h1", path, shifted(0, 1 << 40)));
    }
    sources[1].clock = Some("monotonic".into());
    let found = add(&sources, dir);
    let packets = table(dir, "pcap/packet");
    assert_eq!(integers(&packets, "ts"), [Some(9_000_000_300); 2]);
    assert_eq!(integers(&packets, "err_ns"), [Some(7 + 99); 2]);
    for each in &found {
        assert_eq!((each.events, each.lost.events, each.whole), (1, 3, true), "{each:?}");
    }
    assert_eq!(found[1].clock.as_deref(), Some("monotonic"));
}

/// Each stamp is all nanoseconds of which it has a part: those of the binary units, and of the
/// finest ones, begin between two.
#[test]
fn pcapng_stamps_may_be_of_any_power_of_two_or_ten() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    const SECOND: u64 = 1_000_000_000;
    // Resolution, stamp, the first nanosecond of it (after the 5 s), how many follow.
    let cases = [
        (0x80, 3, 3 * SECOND, SECOND - 1),
        // 976 562.5 ns.
        (0x80 | 10, 2, 1_953_125, 976_562),
        (0x80 | 10, 3, 2_929_687, 976_562),
        (0x80 | 10, 1024, SECOND, 976_562),
        // 0.93 ns: 0.93 to 1.86, 13.97 to 14.9, 14.9 to 15.83.
        (0x80 | 30, 1, 0, 1),
        (0x80 | 30, 15, 13, 1),
        (0x80 | 30, 16, 14, 1),
        (0x80 | 30, 1 << 30, SECOND, 0),
        (0x80 | 32, (7 << 32) + (1 << 31), 7 * SECOND + SECOND / 2, 0),
        (0x80 | 63, (1 << 63) + (1 << 62), SECOND + SECOND / 2, 0),
        (0x80 | 63, u64::MAX, 2 * SECOND - 1, 0),
        (0, 3, 3 * SECOND, SECOND - 1),
        (9, 3, 3, 0),
        (10, 39, 3, 0),
        (19, 10_000_000_000_000_000_000, SECOND, 0),
    ];
    for (number, (resolution, stamp, ns, rest)) in cases.into_iter().enumerate() {
        let sources = [false, true].map(|big| {
            let path = dir.join(format!("{number}-{big}.pcapng"));
            fs::write(&path, pcapng(big, resolution, &[stamp])).unwrap();
            source("h1", path, shifted(0, 1 << 40))
        });
        let out = dir.join(number.to_string());
        let found = add(&sources, &out);
        assert!(found.iter().all(|each| each.whole && each.events == 1), "{number}: {found:?}");
        let packets = table(&out, "pcap/packet");
        let shown = (integers(&packets, "ts"), integers(&packets, "err_ns"));
        let expected = [5 * SECOND + ns, 7 + rest].map(|value| vec![Some(value as i64); 2]);
        assert_eq!(shown, expected.into(), "{resolution:#x} {stamp}");
    }
    for (resolution, unit) in [(0x80 | 64, "2^-64 s"), (0xff, "2^-127 s"), (20, "10^-20 s")] {
        let path = dir.join("fine.pcapng");
        fs::write(&path, pcapng(false, resolution, &[1])).unwrap();
        let found = &add(&[source("h1", path, shifted(0, 1 << 40))], dir)[0];
        assert!(!found.whole && found.events == 0);
        let said = found.problems.join("\n");
        assert!(said.contains(unit) && said.contains("byte 28:"), "{said}");
    }
}
