//! What is written is read back, and damage is refused with its place.

use std::collections::BTreeMap;

use loopscope_ctf::{
    Buckets, EventClass, FieldType, Kind, Metadata, PacketWriter, Packets, RecordError, Records,
    StreamClass, Value,
};
use loopscope_time::{Counter, Frequency};
use proptest::prelude::*;

fn class() -> StreamClass {
    let event = |id, name: &str, fields: &[(&str, FieldType)]| EventClass {
        id,
        group: "pipe".into(),
        name: name.into(),
        fields: fields.iter().map(|(n, t)| ((*n).to_owned(), *t)).collect(),
        file: "src/a \"quoted\".c".into(),
        line: 7,
        ..EventClass::default()
    };
    StreamClass {
        id: 3,
        process: "node1".into(),
        kernel: true,
        events: vec![
            event(0, "sent", &[]),
            event(9, "received", &[("size", FieldType::U32), ("event", FieldType::F64)]),
        ],
    }
}

fn metadata() -> Metadata {
    Metadata {
        uuid: *b"0123456789abcdef",
        host: "h1".into(),
        clock_uuid: *b"fedcba9876543210",
        frequency: Frequency::from_hz(2_596_094_000).unwrap(),
        streams: BTreeMap::from([(3, class())]),
        groups: BTreeMap::new(),
    }
}

#[test]
fn metadata_survives_its_text() {
    assert_eq!(Metadata::parse(&metadata().to_tsdl()), Ok(metadata()));
}

#[test]
fn metadata_that_is_not_understood_is_refused_with_its_line() {
    let text = metadata().to_tsdl();
    let refused = |from: &str, to: &str| {
        let (at, _) = text.match_indices(from).next().expect("the text has it");
        let error = Metadata::parse(&text.replacen(from, to, 1)).unwrap_err();
        (error.line.cast_signed() - 1 - text[..at].matches('\n').count().cast_signed(), error.what)
    };
    // An error names the line of what is wrong, one about a whole block the block's first.
    let (line, what) = refused("float64_t _event", "complex _event");
    assert_eq!((line, what.as_str()), (0, "unknown type complex"));
    let (line, what) = refused("stream_id = 3", "stream_id = 4");
    assert_eq!((line, what.as_str()), (0, "event of the undeclared stream class 4"));
    assert_eq!(refused("freq = 2596094000", "freq = 0").1, "the clock's frequency is zero");
    let (_, what) = refused("byte_order = le", "byte_order = be");
    assert_eq!(what, "only little-endian traces are loopscope's");
    let (line, what) = refused("uint32_t pid", "uint64_t pid");
    assert_eq!(what, "packets or event headers have not loopscope's layout");
    assert!(line < 0, "the stream's own line");
    for cut in 0..text.len() {
        if text.is_char_boundary(cut) && cut < text.len() - 1 {
            // A cut text may end between two events; it must then still be a trace, never a panic.
            let _ = Metadata::parse(&text[..cut]);
        }
    }
}

#[test]
fn kinds_and_descriptions_that_make_no_sense_are_refused_with_their_line() {
    let work = EventClass {
        id: 11,
        kind: Kind::Interval,
        fields: own_fields(Kind::Interval),
        ..class().events[0].clone()
    };
    let size = EventClass {
        id: 12,
        kind: Kind::Histogram,
        fields: own_fields(Kind::Histogram),
        histogram: Some(Buckets::Linear { low: 0, high: 10, count: 5 }),
        ..class().events[0].clone()
    };
    let mut metadata = metadata();
    metadata.streams.get_mut(&3).unwrap().events.extend([work, size]);
    metadata.groups.insert("pipe".into(), "text".into());
    let text = metadata.to_tsdl();
    assert_eq!(Metadata::parse(&text), Ok(metadata));
    // The line that is refused, and why. `'` stands for a quote in a JSON text.
    let refused = |from: &str, to: &str| {
        let [from, to] = [from, to].map(|part| part.replace('\'', "\\\""));
        assert!(text.contains(&from), "{from}");
        let error = Metadata::parse(&text.replacen(&from, &to, 1)).unwrap_err();
        (text.lines().nth(error.line - 1).unwrap().trim().to_owned(), error.what)
    };
    let in_env = [
        ("interval", "intervall", "event_3_11", "unknown kind of entity \"intervall\""),
        ("event_3_11", "event_3_13", "event_3_11", "stream class 3 has no event class 13"),
        ("'high'", "'hihg'", "event_3_12", "unknown field `hihg`"),
        (",'high':10", "", "event_3_12", "a histogram has low, high and buckets"),
        ("'interval'", "'interval','scale':'log'", "event_3_11", "only they, have buckets"),
        ("{'group'", "'group'", "group_0", "line 1 column"),
    ];
    for (from, to, entry, expected) in in_env {
        let (line, what) = refused(from, to);
        assert!(line.starts_with(entry) && what.contains(expected), "{from}: {line}: {what}");
    }
    let histogram = text.lines().find(|line| line.contains("event_3_12")).unwrap();
    let in_events = [
        ("'interval'", "'counter'", "has other fields than a class of kind counter"),
        ("'interval'", "'flow-link'", "has other fields than a class of kind flow-link"),
        ("uint64_t _start;", "", "has other fields than a class of kind interval"),
        (histogram, "", "has other fields than a class of kind event"),
        (
            "_bucket[_buckets]",
            "_bucket[_above]",
            "the length of bucket is not the uint32_t before it",
        ),
        ("uint64_t _n[", "uint32_t _n[", "no uint64_t _n[_buckets] after _bucket"),
        ("uint16_t _bucket[", "uint32_t _bucket[", "bucket is a list of no type of loopscope's"),
    ];
    for (from, to, expected) in in_events {
        let (_, what) = refused(from, to);
        assert!(what.contains(expected), "{from}: {what}");
    }
}

#[test]
fn a_stamp_before_its_predecessor_is_refused() {
    let mut writer = PacketWriter::new([0; 16], 3, 1, 1, 4096);
    writer.record(0, Counter(10), 1, &[]).unwrap();
    assert_eq!(writer.record(0, Counter(9), 2, &[]), Err(RecordError::BeforePredecessor));
}

#[test]
fn fields_decode_to_their_values() {
    assert_eq!(FieldType::I16.decode(&(-2i16).to_le_bytes()), Value::Signed(-2));
    assert_eq!(FieldType::U8.decode(&[200]), Value::Unsigned(200));
    assert_eq!(FieldType::F32.decode(&1.5f32.to_le_bytes()), Value::Float(1.5));
    assert_eq!(FieldType::F64.decode(&(-0.1f64).to_le_bytes()), Value::Float(-0.1));
}

fn own_fields(kind: Kind) -> Vec<(String, FieldType)> {
    let own = kind.fields().unwrap_or_default();
    own.iter().map(|(name, t)| ((*name).to_owned(), *t)).collect()
}

/// Texts with all that JSON and TSDL escape, and what neither does.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        prop::collection::vec(
            prop_oneof![
                prop::sample::select(vec![
                    '"', '\\', '\n', '\r', '\t', '\0', '\u{1f}', '\u{7f}', '\u{85}', '\u{2028}',
                    'é', '∂', '𝄞', '{', '}', ';', ':', '/', '*', '%', 'u',
                ]),
                any::<char>(),
            ],
            0..20
        )
        .prop_map(String::from_iter),
    ]
}

/// Names among which some are what others' lengths would be called.
fn fields() -> impl Strategy<Value = Vec<(String, FieldType)>> {
    let names = vec!["x", "x_length", "x_length_", "bucket", "n", "_", "string", "struct"];
    let types = prop::sample::select(FieldType::ALL.to_vec());
    let count = names.len();
    (
        prop::sample::subsequence(names, 0..=count).prop_shuffle(),
        prop::collection::vec(types, count),
    )
        .prop_map(|(names, types)| names.into_iter().map(str::to_owned).zip(types).collect())
}

fn event_class() -> impl Strategy<Value = EventClass> {
    let buckets =
        prop_oneof![
            Just(Buckets::Log),
            (any::<i64>(), any::<i64>(), any::<u32>())
                .prop_map(|(low, high, count)| Buckets::Linear { low, high, count }),
        ];
    let kind = prop::sample::select(Kind::ALL.to_vec());
    (any::<u16>(), kind, fields(), text(), text(), buckets).prop_map(
        |(id, kind, fields, unit, description, buckets)| EventClass {
            id,
            kind,
            fields: if kind.fields().is_some() { own_fields(kind) } else { fields },
            unit,
            description,
            histogram: (kind == Kind::Histogram).then_some(buckets),
            ..class().events[0].clone()
        },
    )
}

/// An encoded value of a type, and its bytes where it is a string or bytes.
fn value(field_type: FieldType) -> BoxedStrategy<Vec<u8>> {
    let bytes = |of| prop::collection::vec(of, 0..40);
    match field_type {
        FieldType::String => bytes(1u8..).prop_map(|text| [&text[..], &[0]].concat()).boxed(),
        FieldType::Bytes => bytes(0u8..)
            .prop_map(|raw| [&(raw.len() as u32).to_le_bytes()[..], &raw].concat())
            .boxed(),
        FieldType::Buckets => prop::collection::vec((any::<u16>(), any::<u64>()), 0..10)
            .prop_map(|buckets| {
                let mut out = (buckets.len() as u32).to_le_bytes().to_vec();
                out.extend(buckets.iter().flat_map(|(index, _)| index.to_le_bytes()));
                out.extend(buckets.iter().flat_map(|(_, n)| n.to_le_bytes()));
                out
            })
            .boxed(),
        fixed => prop::collection::vec(any::<u8>(), fixed.size().unwrap()).boxed(),
    }
}

/// A class, its records' encoded fields, each field apart.
fn class_with_records() -> impl Strategy<Value = (EventClass, Vec<Vec<Vec<u8>>>)> {
    event_class().prop_flat_map(|class| {
        let record: Vec<_> = class.fields.iter().map(|(_, t)| value(*t)).collect();
        (Just(class), prop::collection::vec(record, 0..12))
    })
}

proptest! {
    /// Whatever the gaps (beyond the 32-bit stamp's wrap too), full counters come back.
    #[test]
    fn records_survive_packets(
        gaps in prop::collection::vec(prop_oneof![0u64..1000, 0u64..1 << 33, Just((1 << 32) - 1), Just(1 << 32)], 0..60),
        start in 0u64..1 << 60,
        limit in 80usize..400,
    ) {
        let mut writer = PacketWriter::new(*b"0123456789abcdef", 3, 17, 18, limit);
        let mut counter = start;
        let mut written = Vec::new();
        let mut stream = Vec::new();
        for (i, gap) in gaps.iter().enumerate() {
            counter += gap;
            let (id, fields) = if i % 3 == 0 { (9, vec![i as u8; 12]) } else { (0, vec![]) };
            written.push((usize::from(id == 9), counter, -(i as i64), fields.clone()));
            stream.extend(writer.record(id, Counter(counter), -(i as i64), &fields).unwrap().unwrap_or_default());
        }
        stream.extend(writer.flush().unwrap_or_default());

        let records = Records::new(&class());
        let mut read = Vec::new();
        for (sequence, packet) in Packets::new(&stream).enumerate() {
            let (context, bytes) = packet.unwrap();
            prop_assert_eq!(context.sequence, sequence as u64);
            prop_assert_eq!((context.pid, context.tid, context.stream_id), (17, 18, 3));
            let mut last = context.begin;
            records.decode(&context, bytes, |r| {
                last = r.counter;
                read.push((r.class, r.counter.0, r.id, r.fields.to_vec()));
            }).unwrap();
            prop_assert_eq!(context.end, last);
        }
        prop_assert_eq!(read, written);
    }

    /// Kinds, units, descriptions and fields of any names and types come back from the text.
    #[test]
    fn descriptions_survive_their_text(
        classes in prop::collection::vec(event_class(), 0..6),
        groups in prop::collection::btree_map(text(), text(), 0..4),
    ) {
        let mut metadata = Metadata { groups, ..metadata() };
        let events = &mut metadata.streams.get_mut(&3).unwrap().events;
        for class in classes {
            if events.iter().all(|e| e.id != class.id) {
                events.push(class);
            }
        }
        let text = metadata.to_tsdl();
        prop_assert_eq!(Metadata::parse(&text), Ok(metadata));
    }

    /// Records whose size is in themselves come back whole, mixed with others, and the scan finds
    /// what the decoder finds, in cut packets too.
    #[test]
    fn records_of_any_size_survive_packets(
        classes in prop::collection::vec(class_with_records(), 1..4),
        order in prop::collection::vec(any::<prop::sample::Index>(), 40),
        limit in 80usize..2000,
        cut in any::<prop::sample::Index>(),
    ) {
        let (mut events, mut waiting) = (Vec::new(), Vec::new());
        for (id, (class, records)) in (0..).zip(classes) {
            events.push(EventClass { id: id * 0x5000, ..class });
            waiting.push(records);
        }
        let class = StreamClass { id: 3, process: "node1".into(), kernel: false, events };
        let mut writer = PacketWriter::new([1; 16], 3, 17, 18, limit);
        let (mut stream, mut written) = (Vec::new(), Vec::new());
        for (i, pick) in order.iter().enumerate() {
            let index = pick.index(class.events.len());
            let Some(fields) = waiting[index].pop() else { continue };
            let counter = Counter(7 * i as u64);
            let (id, encoded) = (class.events[index].id, fields.concat());
            stream.extend(writer.record(id, counter, 1, &encoded).unwrap().unwrap_or_default());
            written.push((index, counter, fields));
        }
        stream.extend(writer.flush().unwrap_or_default());

        let records = Records::new(&class);
        let mut read = Vec::new();
        for packet in Packets::new(&stream) {
            let (context, bytes) = packet.unwrap();
            let mut end = 0;
            let mut stamps = Vec::new();
            records.decode(&context, bytes, |r| {
                let mut rest = r.fields;
                let event = &class.events[r.class];
                let fields: Vec<Vec<u8>> = event.fields.iter().map(|(_, t)| {
                    let (value, after) = rest.split_at(t.extent(rest).unwrap());
                    rest = after;
                    value.to_vec()
                }).collect();
                assert_eq!((r.offset, rest.len()), (end, 0));
                assert_eq!(event.values(r.fields).count(), fields.len());
                if let Some(size) = event.record_size() {
                    assert_eq!(size, 14 + r.fields.len());
                }
                end += 14 + r.fields.len();
                stamps.push(r.counter);
                read.push((r.class, r.counter, fields));
            }).unwrap();
            let scan = records.scan(&context, bytes);
            prop_assert_eq!(scan.records, stamps.len() as u64);
            let span = stamps.first().copied().zip(stamps.last().copied());
            prop_assert_eq!((scan.stamps, scan.size, scan.damage), (span, bytes.len(), None));

            let part = &bytes[..cut.index(bytes.len())];
            let mut good = 0;
            let cut = records.decode(&context, part, |_| good += 1);
            let scan = records.scan(&context, part);
            prop_assert_eq!(scan.records, good);
            prop_assert_eq!(scan.size, cut.as_ref().err().map_or(part.len(), |e| e.offset));
            prop_assert_eq!(scan.damage, cut.err());
        }
        prop_assert_eq!(read, written);
    }

    /// Any bytes as records: an error, never a panic, and the scan agrees with the decoder.
    #[test]
    fn any_bytes_are_records_or_an_error(
        class in event_class(),
        bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..400),
    ) {
        let class = StreamClass {
            events: vec![EventClass { id: 0, ..class.clone() }, EventClass { id: 1, ..class }],
            ..self::class()
        };
        let mut writer = PacketWriter::new([7; 16], 3, 1, 1, 4096);
        writer.record(0, Counter(5), 1, &[]).unwrap();
        let packet = writer.flush().unwrap();
        let (context, _) = Packets::new(&packet).next().unwrap().unwrap();
        let records = Records::new(&class);
        let mut good = 0;
        let decoded = records.decode(&context, &bytes, |r| {
            good += 1;
            class.events[r.class].values(r.fields).for_each(drop);
        });
        let scan = records.scan(&context, &bytes);
        prop_assert_eq!((scan.records, scan.damage), (good, decoded.err()));
    }

    /// A flipped byte never panics, and a cut stream is an error at the cut packet.
    #[test]
    fn damage_is_an_error(cut in 1usize..170, flip in 0usize..170, bits in 1u8..) {
        let mut writer = PacketWriter::new([7; 16], 3, 1, 1, 4096);
        writer.record(0, Counter(5), 1, &[]).unwrap();
        let mut stream = writer.flush().unwrap();
        writer.record(0, Counter(6), 2, &[]).unwrap();
        stream.extend(writer.flush().unwrap());
        let records = Records::new(&class());
        let good = stream.len() / 2;
        let errors = Packets::new(&stream[..cut]).filter(Result::is_err).count();
        prop_assert_eq!(errors, usize::from(!cut.is_multiple_of(good)));
        let flip = flip % stream.len();
        stream[flip] ^= bits;
        for (context, bytes) in Packets::new(&stream).flatten() {
            let _ = records.decode(&context, bytes, |_| ());
        }
    }
}
