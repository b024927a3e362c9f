//! Each entity of the header arrives in the trace as what it means, for our reader and for
//! babeltrace2.

use std::path::Path;
use std::process::Command;

use crate::lab::Field::{self, Buckets, Bytes, Float, Signed, Unsigned};
use crate::lab::{self, Lab, Trace};
use loopscope_collect::StreamSpec;
use loopscope_ctf::Kind;

const RECORDS: usize = 19;

fn record(program: &Path, more: usize) -> Trace {
    let enable = ["every:*", "order:*", "short:*"].map(Into::into);
    let lab = Lab::new(&StreamSpec::of(enable));
    let output = lab.command(program).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0 4\n");
    let loss = lab.finish(lab.collector());
    assert_eq!((loss.emitted, loss.dropped), ((RECORDS + more) as u64, 0));
    lab::check(&lab.out(), &loss)
}

fn records<'a>(trace: &'a Trace, name: &str) -> Vec<&'a lab::Event> {
    let entity = format!("every:{name}");
    trace.events.iter().filter(|e| e.entity == entity).collect()
}

fn assert_record(trace: &Trace, name: &str, id: i64, fields: &[(&str, Field)]) {
    let records = records(trace, name);
    assert_eq!(records.len(), 1, "{name}");
    let read: Vec<_> = records[0].fields.iter().map(|(n, v)| (n.as_str(), v.clone())).collect();
    assert_eq!((records[0].id, read.as_slice()), (id, fields), "{name}");
}

fn text(text: &str) -> Field {
    Field::String(text.as_bytes().to_vec())
}

fn assert_every(trace: &Trace) {
    assert_record(trace, "plain", 1, &[]);
    assert_record(trace, "fixed", 2, &[("a", Unsigned(7)), ("b", Float(-0.5))]);
    let fields = [("a", text("in a buffer")), ("b", Unsigned(9)), ("c", text(""))];
    assert_record(trace, "text", 3, &fields);
    let fields = [("a", Bytes(vec![0, 1, 10, 255])), ("b", Signed(-4)), ("c", Bytes(vec![]))];
    assert_record(trace, "bytes", 4, &fields);
    let fields = [
        ("a", Signed(2)),
        ("b", text("three")),
        ("c", Unsigned(4)),
        ("d", Float(1.0)),
        ("e", Bytes(vec![0])),
        ("f", Unsigned(6)),
        ("g", Signed(-7)),
        ("h", Signed(-8)),
    ];
    assert_record(trace, "order", 1, &fields);
    assert_record(trace, "in", 10, &[]);
    assert_record(trace, "link", 10, &[("out", Signed(-11))]);
    assert_record(trace, "out", -11, &[("size", Unsigned(12)), ("to", text("x y"))]);

    for (name, ids) in [("nested", [0, 1, 2].as_slice()), ("across", &[21, 23])] {
        let records = records(trace, name);
        assert_eq!(records.iter().map(|e| e.id).collect::<Vec<_>>(), ids, "{name}");
        for record in records {
            let [(start, Unsigned(at)), (duration, Unsigned(ticks))] = record.fields.as_slice()
            else {
                panic!("{record:?}");
            };
            assert_eq!((start.as_str(), duration.as_str()), ("start", "duration"));
            assert_eq!(at + ticks, record.counter);
        }
    }
    assert!(records(trace, "short").is_empty());

    let sums: Vec<_> = records(trace, "sum").iter().map(|e| e.fields[0].clone()).collect();
    let value = |v| ("value".into(), Signed(v));
    // What follows the program's own records is the state at the end.
    assert!(sums.starts_with(&[value(10), value(i64::MIN)]), "{sums:?}");
    let histogram = |count, sum, outside, buckets| {
        let field = |name: &str, value| (name.into(), value);
        let values = [
            field("count", Unsigned(count)),
            field("sum", Signed(sum)),
            field("below", Unsigned(outside)),
            field("above", Unsigned(outside)),
        ];
        (values, Buckets(buckets))
    };
    let logged = |name: &str| {
        let of = |e: &lab::Event| {
            let values: [_; 4] = e.fields[..4].to_vec().try_into().unwrap();
            (values, e.fields[4].1.clone())
        };
        records(trace, name).into_iter().map(of).collect::<Vec<_>>()
    };
    let full = histogram(202, -101, 1, (0..10).map(|bucket| (bucket, 20)).collect());
    assert!(logged("range").starts_with(&[full, histogram(0, 0, 0, vec![])]));
    assert!(logged("inner").starts_with(&[histogram(1, 3, 0, vec![(1, 1)])]));
    assert!(logged("log").starts_with(&[histogram(2, 1005, 0, vec![(5, 1), (190, 1)])]));
}

/// Kinds, units and descriptions, as the metadata tells them.
fn assert_told(trace: &Trace) {
    let classes: Vec<_> = trace.metadata.streams.values().flat_map(|s| &s.events).collect();
    let class = |name: &str| {
        *classes.iter().find(|c| c.group == "every" && c.name == name).unwrap_or_else(|| {
            panic!("no {name}");
        })
    };
    for (name, kind) in [
        ("plain", Kind::Event),
        ("in", Kind::FlowIn),
        ("link", Kind::FlowLink),
        ("out", Kind::FlowOut),
        ("nested", Kind::Interval),
        ("sum", Kind::Counter),
        ("range", Kind::Histogram),
    ] {
        assert_eq!(class(name).kind, kind, "{name}");
    }
    assert_eq!(
        (class("sum").unit.as_str(), class("sum").description.as_str()),
        ("B", "in a function")
    );
    assert_eq!(class("range").unit, "%");
    assert_eq!(class("range").description, "50% of \"all\", {a|b}, back\\slash, µs?and more");
    assert_eq!(trace.metadata.groups["every"], "Everything.");
}

#[test]
fn c_and_cpp() {
    let mut compilers =
        vec![["cc", "-std=c99", "-O2", "-xc"], ["c++", "-std=c++17", "-O2", "-xc++"]];
    if Command::new("clang").arg("--version").output().is_ok() {
        compilers.push(["clang", "-std=c99", "-O2", "-xc"]);
    } else {
        lab::skip::skipped("needs clang");
    }
    for (n, compiler) in compilers.iter().enumerate() {
        let program = lab::build(&format!("every-{n}"), compiler, &["every.c"]);
        let trace = record(&program, 3 + 10);
        assert_every(&trace);
        assert_told(&trace);
    }
}
