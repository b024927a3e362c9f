//! The golden trace of `schema/golden/host/trace`: the bytes that every implementation must reproduce.
//! `LOOPSCOPE_BLESS=1` writes them anew, for a deliberate change of the format.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use loopscope_ctf::packet::put_context;
use loopscope_ctf::{
    Buckets, EventClass, FieldType, Kind, Metadata, PacketWriter, Packets, Records, StreamClass,
    Value,
};
use loopscope_time::{Counter, Frequency};

fn golden(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/golden/host/trace").join(file)
}

fn hold(file: &str, bytes: &[u8]) {
    let path = golden(file);
    if std::env::var_os("LOOPSCOPE_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    let expected = std::fs::read(&path).unwrap();
    assert!(expected == bytes, "{} differs from what is written now", path.display());
}

/// Names that TSDL has uses for.
const NAMES: &[(&str, FieldType)] =
    &[("data", FieldType::Bytes), ("data_length", FieldType::U8), ("string", FieldType::String)];

fn class() -> StreamClass {
    let event = |id, name: &str, fields: &[(&str, FieldType)]| EventClass {
        id,
        group: "pipe".into(),
        name: name.into(),
        fields: fields.iter().map(|(n, t)| ((*n).to_owned(), *t)).collect(),
        file: "pipe.c".into(),
        line: 10 * (u32::from(id) + 1),
        ..EventClass::default()
    };
    let entity = |id, name: &str, kind: Kind, unit: &str, description: &str| EventClass {
        kind,
        unit: unit.into(),
        description: description.into(),
        ..event(id, name, kind.fields().unwrap_or(&[("size", FieldType::U32)]))
    };
    let all: Vec<(String, FieldType)> = FieldType::ALL
        .iter()
        .map(|t| (format!("a_{}", t.tsdl().trim_end_matches("_t")), *t))
        .collect();
    let all: Vec<(&str, FieldType)> = all.iter().map(|(n, t)| (n.as_str(), *t)).collect();
    let linear = Buckets::Linear { low: -10, high: 990, count: 50 };
    let events = vec![
        event(0, "sent", &[]),
        event(1, "received", &[("size", FieldType::U32)]),
        event(2, "everything", &all),
        entity(3, "work", Kind::Interval, "", "from \"request\" to reply"),
        entity(4, "depth", Kind::Counter, "messages", "C:\\queue,\ntail to head"),
        EventClass {
            histogram: Some(linear), ..entity(5, "size", Kind::Histogram, "B", "Größe")
        },
        EventClass {
            histogram: Some(Buckets::Log),
            ..entity(6, "wait", Kind::Histogram, "ns", "")
        },
        entity(7, "out", Kind::FlowOut, "", ""),
        entity(8, "in", Kind::FlowIn, "", ""),
        entity(9, "made_of", Kind::FlowLink, "", ""),
        event(10, "names", NAMES),
        // The counter's final state.
        EventClass {
            id: 0x8004,
            ..entity(4, "depth", Kind::Counter, "messages", "C:\\queue,\ntail to head")
        },
    ];
    StreamClass { id: 0, process: "node1".into(), kernel: false, events }
}

fn metadata() -> Metadata {
    Metadata {
        uuid: *b"golden-trace-001",
        host: "h1".into(),
        clock_uuid: *b"golden-clock-001",
        frequency: Frequency::from_hz(2_500_000_000).unwrap(),
        streams: BTreeMap::from([(0, class())]),
        groups: BTreeMap::from([("pipe".into(), "messages between nodes".into())]),
    }
}

/// Class, counter, id and fields.
type Written = (u16, u64, i64, Vec<u8>);

fn histogram(count: u64, sum: i64, below: u64, above: u64, buckets: &[(u16, u64)]) -> Vec<u8> {
    let mut fields = Vec::new();
    for word in [count, sum.cast_unsigned(), below, above] {
        fields.extend(word.to_le_bytes());
    }
    fields.extend((buckets.len() as u32).to_le_bytes());
    fields.extend(buckets.iter().flat_map(|(index, _)| index.to_le_bytes()));
    fields.extend(buckets.iter().flat_map(|(_, n)| n.to_le_bytes()));
    fields
}

/// What thread 42 recorded.
fn first_thread() -> Vec<Written> {
    let numbers: Vec<u8> = [
        &[200u8][..],
        &60_000u16.to_le_bytes(),
        &4_000_000_000u32.to_le_bytes(),
        &u64::MAX.to_le_bytes(),
        &(-100i8).to_le_bytes(),
        &(-30_000i16).to_le_bytes(),
        &(-2_000_000_000i32).to_le_bytes(),
        &i64::MIN.to_le_bytes(),
        &1.5f32.to_le_bytes(),
        &(-0.1f64).to_le_bytes(),
    ]
    .concat();
    let texts = [numbers.as_slice(), "naïve \"text\"\0".as_bytes(), &[3, 0, 0, 0, 0, 7, 255]];
    let empty = [numbers.as_slice(), b"\0", &[0; 4]];
    // The low half of the counter wraps within the first packet; the gap after it closes it.
    vec![
        (0, 0x0005_FFFF_FF00, 1, vec![]),
        (1, 0x0006_0000_0010, 1, 6u32.to_le_bytes().into()),
        (2, 0x0006_0000_0010, -2, texts.concat()),
        (2, 0x0006_0000_0010, -3, empty.concat()),
        (0, 0x0008_0000_0000, 2, vec![]),
        (0, 0x0008_0000_0001, i64::MAX, vec![]),
    ]
}

/// What thread 43 recorded in the same ring, later.
fn second_thread() -> Vec<Written> {
    let start: u64 = 0x0005_FFFF_FF00;
    let interval = [start, 0x0008_0001_0000 - start].map(u64::to_le_bytes).concat();
    vec![
        (3, 0x0008_0001_0000, 5, interval),
        (4, 0x0008_0001_0001, 0, (-3i64).to_le_bytes().into()),
        (5, 0x0008_0001_0002, 0, histogram(7, 1_234, 1, 2, &[(0, 1), (49, 3)])),
        (5, 0x0008_0001_0003, 0, histogram(0, 0, 0, 0, &[])),
        (6, 0x0008_0001_0004, 0, histogram(u64::MAX, -1, 0, 0, &[(1887, u64::MAX)])),
        (7, 0x0008_0001_0005, 11, 100u32.to_le_bytes().into()),
        (8, 0x0008_0001_0006, 12, 200u32.to_le_bytes().into()),
        (9, 0x0008_0001_0007, 12, (-11i64).to_le_bytes().into()),
        (10, 0x0008_0001_0008, 1, b"\x02\0\0\0ab\x09text\0".into()),
    ]
}

/// The stream file of a ring that two threads had, one after the other.
fn stream() -> Vec<u8> {
    let mut bytes = packets(42, &first_thread());
    let mut second = packets(43, &second_thread());
    let (context, _) = Packets::new(&second).next().unwrap().unwrap();
    put_context(&mut second, &loopscope_ctf::packet::Context { sequence: 2, ..context });
    bytes.extend(second);
    bytes
}

/// The stream file of the process's final states.
fn last_states() -> Vec<u8> {
    packets(0, &[(0x8004, 0x0008_0001_0008, 0, 4i64.to_le_bytes().into())])
}

fn packets(tid: u32, records: &[Written]) -> Vec<u8> {
    let mut writer = PacketWriter::new(metadata().uuid, 0, 41, tid, 4096);
    let mut bytes = Vec::new();
    for (class, counter, id, fields) in records {
        let full = writer.record(*class, Counter(*counter), *id, fields).unwrap();
        bytes.extend(full.unwrap_or_default());
    }
    bytes.extend(writer.flush().unwrap());
    bytes
}

#[test]
fn the_writer_reproduces_the_golden_trace() {
    hold("metadata", metadata().to_tsdl().as_bytes());
    hold("node1-41-42", &stream());
    hold("node1-41-final", &last_states());
}

#[test]
fn the_reader_understands_the_golden_trace() {
    let text = std::fs::read_to_string(golden("metadata")).unwrap();
    let read = Metadata::parse(&text).unwrap();
    assert_eq!(read, metadata());
    let class = &read.streams[&0];
    let bytes = std::fs::read(golden("node1-41-42")).unwrap();
    let records = Records::new(class);
    let mut threads = Vec::new();
    let mut found = Vec::new();
    let mut values = Vec::new();
    for packet in Packets::new(&bytes) {
        let (context, bytes) = packet.unwrap();
        threads.push(context.tid);
        let decoded = records.decode(&context, bytes, |record| {
            let event = &class.events[record.class];
            found.push((event.id, record.counter.0, record.id, record.fields.to_vec()));
            values.push(event.values(record.fields).map(|(_, value)| value).collect::<Vec<_>>());
        });
        decoded.unwrap();
    }
    assert_eq!(threads, [42, 42, 43]);
    assert_eq!(found, [first_thread(), second_thread()].concat());
    let numbers = [
        Value::Unsigned(200),
        Value::Unsigned(60_000),
        Value::Unsigned(4_000_000_000),
        Value::Unsigned(u64::MAX),
        Value::Signed(-100),
        Value::Signed(-30_000),
        Value::Signed(-2_000_000_000),
        Value::Signed(i64::MIN),
        Value::Float(1.5),
        Value::Float(-0.1),
    ];
    let texts = [Value::String("naïve \"text\"".as_bytes()), Value::Bytes(&[0, 7, 255])];
    assert_eq!(values[2], [&numbers[..], &texts].concat());
    assert_eq!(values[3], [&numbers[..], &[Value::String(b""), Value::Bytes(b"")]].concat());
    let interval = [0x0005_FFFF_FF00, 0x0002_0001_0100].map(Value::Unsigned);
    assert_eq!(values[6], interval);
    let Value::Buckets(linear) = values[8][4] else { panic!("{:?}", values[8]) };
    assert_eq!(linear.indexes().zip(linear.counts()).collect::<Vec<_>>(), [(0, 1), (49, 3)]);
    let head = [Value::Unsigned(7), Value::Signed(1_234), Value::Unsigned(1), Value::Unsigned(2)];
    assert_eq!(values[8][..4], head);
    let Value::Buckets(empty) = values[9][4] else { panic!("{:?}", values[9]) };
    assert_eq!(empty.counts().len(), 0);
}
