//! Traces of any layout come in as they were written, and damaged ones are refused, whatever is
//! wrong with them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::any_layout::{BEGIN, damaged, metadata, packet, read, stream, write};
use loopscope_timeline::{ImportError, import};

#[test]
fn both_byte_orders_come_in_alike() {
    let place = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for (order, big) in [("le", false), ("be", true)] {
        let trace = place.path().join(order);
        write(&trace, metadata(order).as_bytes(), &stream(big));
        let out = place.path().join(format!("{order}-tables"));
        let summary = read(&trace, Some(&out)).unwrap();
        assert_eq!(summary.events, 8);
        let first = 5_000_000_000 + (BEGIN as i64 + 10) * 1000;
        assert_eq!(summary.from_ns, Some(first));
        assert_eq!(summary.until_ns, Some(first + 5_010_000));
        assert_eq!((summary.lost.packets, summary.lost.events), (2, 35));
        assert_eq!(summary.problems, Vec::<String>::new());
        let tables: BTreeMap<&str, u64> =
            summary.tables.iter().map(|table| (table.table.as_str(), table.rows)).collect();
        assert_eq!(tables, BTreeMap::from([("little.one", 4), ("test.all", 4)]));
        let rows = ["test/all", "little/one"].map(|table| shown(&out, table));
        assert!(
            rows[0].contains("\n  \"\",\n  \"name\",\n  \"name\",\n  \"name\","),
            "{}",
            rows[0]
        );
        assert!(rows[0].contains("null,\n  77,\n  null,"), "{}", rows[0]);
        assert!(rows[0].contains("chosen") && rows[0].contains("wd"), "{}", rows[0]);
        seen.push(rows);
    }
    assert_eq!(seen[0], seen[1], "byte orders");
    assert!(seen[0][0].contains("1099516627781000"), "{}", seen[0][0]);
}

/// A table's rows as text.
fn shown(out: &Path, table: &str) -> String {
    let file = fs::File::open(out.join("timeline").join(table).join("part-0.parquet")).unwrap();
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file);
    let mut text = String::new();
    for batch in reader.unwrap().build().unwrap() {
        text += &format!("{:?}\n", batch.unwrap());
    }
    text
}

/// Every byte of metadata and stream flipped in three ways, and both cut at every byte: an answer,
/// never a panic, and a refusal names the file at fault and leaves no table.
#[test]
fn damage_anywhere_is_no_more_than_an_error() {
    // In memory where that can be: some disks take milliseconds to overwrite a file.
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let trace = place.path().join("trace");
    let out = place.path().join("out");
    let good = (metadata("le").into_bytes(), stream(false));
    let mut refused = [0, 0];
    for (which, name) in [(0, "metadata"), (1, "stream")] {
        let whole = [&good.0, &good.1][which];
        write(&trace, &good.0, &good.1);
        for (number, bytes) in damaged(whole).enumerate() {
            let (metadata, stream) = if which == 0 { (&bytes, &good.1) } else { (&good.0, &bytes) };
            write(&trace, metadata, stream);
            // Writing the tables takes longer than reading; every few will do.
            let wanted = number.is_multiple_of(8).then_some(out.as_path());
            match read(&trace, wanted) {
                Ok(summary) => {
                    assert!(summary.events <= 8 * good.1.len() as u64);
                    wanted.map(fs::remove_dir_all).transpose().unwrap();
                }
                Err(error) => {
                    refused[which] += 1;
                    let said = error.to_string();
                    let place = [trace.join("metadata"), trace.join("stream")]
                        .map(|file| said.starts_with(&file.display().to_string()));
                    assert!(place.contains(&true), "{name}: {said}");
                }
            }
            let left: Vec<_> = fs::read_dir(place.path()).unwrap().collect();
            assert_eq!(left.len(), 1, "a refused trace leaves nothing");
        }
    }
    // Most damage to the metadata is seen; in the stream, a value is as good as another.
    assert!(refused[0] > good.0.len() && refused[1] > good.1.len() / 2, "{refused:?}");
}

/// What a few bytes can ask for is refused before it is made.
#[test]
fn no_length_is_believed() {
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("trace");
    let head = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };\n\
                typealias integer { size = 64; } := uint64_t;\n";
    let doubling: String = (1..60)
        .map(|level| format!("struct s{level} {{ struct s{} a; struct s{0} b; }};", level - 1))
        .collect();
    let deep: String =
        (1..200).map(|level| format!("typedef struct {{ t{} a; }} t{level};", level - 1)).collect();
    let cases = [
        (
            "event { name = e; fields := struct { uint64_t n; uint64_t a[n]; }; };",
            "448 bits are left, the list has 18446744073709551615 elements",
        ),
        (
            "event { name = e; fields := struct { integer { size = 8; encoding = UTF8; } \
             a[2305843009213693953]; }; };",
            "512 bits are left, the list has 2305843009213693953 elements",
        ),
        ("event { name = e; fields := struct { uint64_t n; struct { } a[n]; }; };", "may be empty"),
        ("event { name = e; fields := struct { struct { } a[1000000000]; }; };", "may be empty"),
        (
            "event { name = e; fields := struct { uint64_t a[4611686018427387904]; }; };",
            "the list has",
        ),
        ("event { name = e; };", "an event without bits"),
        ("event { name = e; fields := struct { struct { } a[1000][1000][1000]; }; };", "may be"),
    ];
    let stream = [0xFF; 64];
    for (event, expected) in cases {
        write(&trace, format!("{head}{event}").as_bytes(), &stream);
        let said = read(&trace, None).unwrap_err().to_string();
        assert!(said.contains(expected) && said.contains("/stream: "), "{event}: {said}");
    }
    let of_types = [
        (
            format!(
                "struct s0 {{ uint64_t a; }};{doubling} event {{ name = e; fields := struct s59; }};"
            ),
            "multiply",
        ),
        (format!("typedef struct {{ }} t0;{deep}"), "more than 64 levels"),
        ("event { name = e; fields := ".to_owned() + &"struct { ".repeat(100_000), "64 levels"),
        (
            "typealias integer { size = 8; align = 4611686018427387904; } := u;".to_owned(),
            "line 3, column 39: an alignment of 4611686018427387904 bits: it must be a power of \
             two, and at most 1099511627776",
        ),
        ("typealias enum : ".to_owned() + &"enum : ".repeat(100_000), "64 levels"),
        (
            format!(
                "event {{ name = e; fields := struct {{ uint64_t a{}; }}; }};",
                "[1]".repeat(70)
            ),
            "64 levels",
        ),
    ];
    for (text, expected) in of_types {
        write(&trace, format!("{head}{text}").as_bytes(), &stream);
        let said = read(&trace, None).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
}

/// Packets come in the order of their begins; events that still go back are refused.
#[test]
fn time_goes_forward() {
    let place = tempfile::tempdir().unwrap();
    let text = metadata("le");
    let reversed = [3, 1, 0].map(|sequence| packet(false, sequence)).concat();
    write(place.path(), text.as_bytes(), &reversed);
    assert_eq!(read(place.path(), None).unwrap().events, 6);
    let twice = [0, 0].map(|sequence| packet(false, sequence)).concat();
    write(place.path(), text.as_bytes(), &twice);
    let said = read(place.path(), None).unwrap_err().to_string();
    assert!(said.ends_with("the event is before its predecessor in the stream"), "{said}");
}

/// A trace with these clocks and event header: two events, whose stamps are 5 s 7 ns and 6 s.
fn unmapped(clocks: &str, header: &str) -> (String, Vec<u8>) {
    let metadata = format!(
        "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }};\n{clocks}\n\
         typealias integer {{ size = 64; align = 8; }} := uint64_t;\n\
         typealias integer {{ size = 64; align = 8; signed = true; }} := int64_t;\n\
         stream {{\n event.header := struct {{ {header} }};\n}};\n\
         event {{ name = e; fields := struct {{ uint64_t n; }}; }};"
    );
    let stamps = [5_000_000_007u64, 6_000_000_000];
    let bytes = stamps.iter().flat_map(|stamp| [*stamp, 9, 1].map(u64::to_le_bytes).concat());
    (metadata, bytes.collect())
}

/// The rules of babeltrace2: `timestamp` is a stamp, and its clock is the only one, or one of
/// nanoseconds.
#[test]
fn stamps_that_name_no_clock_are_on_the_only_one_or_count_nanoseconds() {
    let place = tempfile::tempdir().unwrap();
    let header = "uint64_t timestamp; struct { uint64_t tick; } v;";
    let khz = "clock { name = a; freq = 1000; offset_s = 3; };";
    let of = "in the headers of the events of stream class 0, ";
    for (clocks, header, from_ns, until_ns, unread) in [
        ("", header, Some(5_000_000_007), Some(6_000_000_000), "v.tick"),
        (khz, header, Some(5_000_003_007_000_000), Some(6_000_003_000_000_000), "v.tick"),
        (
            "",
            "struct { struct { uint64_t timestamp; } w; } v; uint64_t tick;",
            Some(5_000_000_007),
            Some(6_000_000_000),
            "tick",
        ),
        ("", "uint64_t tick; uint64_t time;", None, None, "tick, time"),
    ] {
        let (metadata, stream) = unmapped(clocks, header);
        write(place.path(), metadata.as_bytes(), &stream);
        let summary = read(place.path(), None).unwrap();
        assert_eq!((summary.events, summary.from_ns, summary.until_ns), (2, from_ns, until_ns));
        let problems = [format!(".: {of}{unread}: headers are no columns")];
        assert_eq!(summary.problems, problems, "{metadata}");
        let clocks = if clocks == khz { vec!["a"] } else { vec!["default"] };
        assert_eq!(summary.traces[0].clocks, if from_ns.is_some() { clocks } else { vec![] });
    }
    let two = format!("{khz} clock {{ name = b; }};");
    for (clocks, header, said) in [
        (&*two, header, "line 6, column 2: a stamp that does not say which clock it is of: a, b;"),
        (
            "",
            "int64_t timestamp; uint64_t tick;",
            "line 6, column 2: the event header's timestamp is a signed integer",
        ),
    ] {
        let (metadata, stream) = unmapped(clocks, header);
        write(place.path(), metadata.as_bytes(), &stream);
        let error = read(place.path(), None).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn members_of_one_name_are_refused_with_the_place() {
    let place = tempfile::tempdir().unwrap();
    for (fields, second) in [
        ("struct { u n; struct { } n; }", Some("line 3, column 54: a second member n")),
        ("struct { u n, n; }", Some("line 3, column 43: a second member n")),
        (
            "struct { u a; struct { u n; u n[1]; } b; }",
            Some("line 3, column 59: a second member n"),
        ),
        (
            "struct { enum : u { x } t; variant <t> { u x; struct { } x; } v; }",
            Some("line 3, column 86: a second member x"),
        ),
        // Several bodies, written as metadata does.
        ("struct { u n; struct { u n; } a; u _n; }", None),
    ] {
        let text = format!(
            "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }};\n\
             typealias integer {{ size = 8; }} := u;\n\
             event {{ name = e; fields := {fields}; }};"
        );
        write(place.path(), text.as_bytes(), &[0; 6]);
        match (read(place.path(), None), second) {
            (Ok(summary), None) => assert_eq!(summary.events, 2),
            (Err(error), Some(second)) => {
                assert!(error.to_string().contains(second), "{fields}: {error}");
            }
            (result, _) => panic!("{fields}: {result:?}"),
        }
    }
}

/// What is not undone is not read as if it were.
#[test]
fn compressed_and_encrypted_packets_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let text = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };\n\
                typealias integer { size = 8; } := u8;\n\
                stream { packet.context := struct { u8 compression_scheme; u8 encryption_scheme; }; };\n\
                event { name = e; fields := struct { u8 n; }; };";
    for (schemes, said) in [
        ([0, 0], None),
        ([2, 0], Some("its content is compressed (scheme 2), which is not undone here")),
        ([0, 1], Some("its content is encrypted (scheme 1), which is not undone here")),
    ] {
        write(place.path(), text.as_bytes(), &[&schemes[..], &[7, 8, 9]].concat());
        match (read(place.path(), None), said) {
            (Ok(summary), None) => assert_eq!(summary.events, 3),
            (Err(error), Some(said)) => assert!(error.to_string().contains(said), "{error}"),
            (result, _) => panic!("{schemes:?}: {result:?}"),
        }
    }
}

/// A stream with as many packets as bytes, none with an event.
#[test]
fn empty_packets_are_passed_over() {
    let place = tempfile::tempdir().unwrap();
    let text = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };\n\
                stream { packet.context := struct { integer { size = 8; } packet_size; }; };\n\
                event { name = e; fields := struct { integer { size = 8; } n; }; };";
    let mut stream = vec![8; 300_000];
    stream.extend([16, 7]);
    write(place.path(), text.as_bytes(), &stream);
    let summary = read(place.path(), None).unwrap();
    assert_eq!((summary.events, summary.traces[0].packets), (1, 300_001));
}

#[test]
fn who_stops_it_gets_nothing() {
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("trace");
    write(&trace, metadata("le").as_bytes(), &stream(false));
    let out = place.path().join("out");
    for after in 0..7 {
        let mut told = 0;
        let result = import(&trace, Some(&out), &mut |done, all| {
            told += 1;
            assert!(done <= all);
            told <= after
        });
        assert!(matches!(result, Err(ImportError::Stopped)));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
}

/// Times of two traces are compared only where their clocks say that they may be.
#[test]
fn traces_of_unrelated_clocks_are_not_merged() {
    let place = tempfile::tempdir().unwrap();
    let write = |clock: &str| {
        for name in ["a", "b/c"] {
            let text = metadata("le").replace("offset_s = 5;", &format!("offset_s = 5; {clock}"));
            write(&place.path().join(name), text.as_bytes(), &stream(false));
        }
    };
    write("");
    let said = read(place.path(), None).unwrap_err().to_string();
    assert!(said.contains("have clocks that nothing relates"), "{said}");
    for clock in ["absolute = true;", "uuid = \"30313233-3435-3637-3839-616263646566\";"] {
        write(clock);
        let summary = read(place.path(), None).unwrap();
        let paths: Vec<&str> = summary.traces.iter().map(|trace| trace.path.as_str()).collect();
        assert_eq!((summary.events, paths), (16, vec!["a", "b/c"]));
    }
}
