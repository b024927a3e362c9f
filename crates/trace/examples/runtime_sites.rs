//! What `every.rs` records, from call sites made at run time.

use loopscope_trace::{FieldType, Kind, RuntimeSite, Value};

const LONG: u64 = 3_600_000_000_000;

fn site(name: &str, kind: Kind<'_>) -> RuntimeSite {
    RuntimeSite::new("every", name, kind, "a file", 7).unwrap()
}

fn events() {
    use FieldType::{Bytes, F32, F64, I8, I16, I32, I64, String, U8, U16, U32, U64};
    let bytes = [0, 1, b'\n', 0xff];
    site("plain", Kind::Event(&[])).record(1, &[]);
    site("fixed", Kind::Event(&[("a", U16), ("b", F64)]))
        .record(2, &[Value::U16(7), Value::F64(-0.5)]);
    let text = [Value::String("in a buffer"), Value::U8(9), Value::String("")];
    site("text", Kind::Event(&[("a", String), ("b", U8), ("c", String)])).record(3, &text);
    site("bytes", Kind::Event(&[("a", Bytes), ("b", I64), ("c", Bytes)]))
        .record(4, &[Value::Bytes(&bytes), Value::I64(-4), Value::Bytes(&[])]);
    let fields = [
        ("a", I32),
        ("b", String),
        ("c", U64),
        ("d", F32),
        ("e", Bytes),
        ("f", U32),
        ("g", I8),
        ("h", I16),
    ];
    let values = [
        Value::I32(2),
        Value::String("three"),
        Value::U64(4),
        Value::F32(1.0),
        Value::Bytes(&bytes[..1]),
        Value::U32(6),
        Value::I8(-7),
        Value::I16(-8),
    ];
    site("order", Kind::Event(&fields)).record(1, &values);
    site("in", Kind::FlowIn(&[])).record(10, &[]);
    site("link", Kind::FlowLink).record(10, &[Value::I64(-11)]);
    site("out", Kind::FlowOut(&[("size", U32), ("to", String)]))
        .record(-11, &[Value::U32(12), Value::String("x y\0, and what follows a NUL")]);
}

fn nested(depth: i64) {
    site("nested", Kind::IntervalStart).start();
    if depth > 0 {
        nested(depth - 1);
    }
    site("nested", Kind::IntervalEnd).end(depth, 0);
}

fn intervals() {
    nested(2);
    site("short", Kind::IntervalStart).start();
    site("short", Kind::IntervalEnd).end(20, LONG);
    let start = site("across", Kind::IntervalStart);
    let end = site("across", Kind::IntervalEnd);
    (21..=23).for_each(|key| start.start_key(key));
    let other_thread = move || {
        end.end_key(21, 0);
        end.end_key(22, LONG);
        end.end_key(23, 0);
    };
    std::thread::spawn(other_thread).join().unwrap();
}

fn counters() {
    let add = site("sum", Kind::CounterAdd);
    let log = site("sum", Kind::CounterLog);
    (1..=4).for_each(|amount| add.add(amount));
    log.log();
    site("sum", Kind::CounterReset).reset();
    add.add(i64::MIN);
    log.log();
}

fn histograms() {
    let of = |name, values: &mut dyn Iterator<Item = i64>| {
        let add = site(name, Kind::HistogramAdd);
        values.for_each(|value| add.add(value));
        site(name, Kind::HistogramLog).log();
    };
    of("range", &mut (-101..=100));
    site("range", Kind::HistogramReset).reset();
    of("range", &mut std::iter::empty());
    of("inner", &mut std::iter::once(3));
    of("log", &mut [5, 1000].into_iter());
}

fn main() {
    let text = "50% of \"all\", {a|b}, back\\slash, µs\tand more";
    site("range", Kind::Describe { unit: "%", description: text });
    site("sum", Kind::Describe { unit: "B", description: "in a function" });
    site("*", Kind::Describe { unit: "", description: "Everything." });
    site("range", Kind::HistogramRange { low: -100, high: 100, buckets: 10 });
    site("inner", Kind::HistogramRange { low: 0, high: 4, buckets: 2 });
    println!("0 4");
    events();
    intervals();
    counters();
    histograms();
}
