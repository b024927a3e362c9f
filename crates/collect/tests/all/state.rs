//! Counters and histograms: what is logged, and the last state, which the collector writes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::lab::{self, Event, Field, Lab, Trace};
use loopscope_collect::{LossReport, MAIN, StreamSpec};
use loopscope_ctf::{Buckets, Kind};

const THREADS: u64 = 4;
const ADDS: u64 = 3000;

fn record(arguments: &str, streams: &[StreamSpec]) -> (Lab, LossReport, Trace) {
    // Once: a program that is running cannot be written again.
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program =
        PROGRAM.get_or_init(|| lab::build("state", &["cc", "-std=c99", "-O2"], &["state.c"]));
    let lab = Lab::with(streams);
    let mut command = lab.command(program);
    command.args([THREADS.to_string(), ADDS.to_string()]).args(arguments.split_whitespace());
    let mut losses = lab.collect(&mut command);
    let loss = losses.streams.remove(MAIN).unwrap();
    let trace = lab::check(&lab.out(), &loss);
    (lab, loss, trace)
}

/// Whether the event is one that the collector made in the end.
fn is_final(trace: &Trace, event: &Event) -> bool {
    let classes = trace.metadata.streams.values().flat_map(|s| &s.events);
    let last = trace.events.iter().map(|e| e.counter).max();
    classes.filter(|c| c.id >= 0x8000).any(|c| format!("{}:{}", c.group, c.name) == event.entity)
        && event.tid == 0
        && Some(event.counter) == last
}

fn finals(trace: &Trace) -> BTreeMap<String, Vec<Field>> {
    let found = trace.events.iter().filter(|e| is_final(trace, e));
    found.map(|e| (e.entity.clone(), e.fields.iter().map(|f| f.1.clone()).collect())).collect()
}

/// The bucket of the log-linear kind, as layout.h defines it.
fn log_bucket(value: u64) -> u16 {
    if value < 32 {
        return value as u16;
    }
    let e = u64::from(63 - value.leading_zeros());
    (32 * (e - 4) + (value >> (e - 5)) % 32) as u16
}

fn histogram(
    values: impl Iterator<Item = i64>,
    times: u64,
    bucket: impl Fn(i64) -> Result<u16, bool>,
) -> Vec<Field> {
    let (mut count, mut sum, mut outside) = (0, 0, [0, 0]);
    let mut buckets = BTreeMap::new();
    for value in values {
        count += times;
        sum += value * times.cast_signed();
        match bucket(value) {
            Ok(bucket) => *buckets.entry(bucket).or_insert(0) += times,
            Err(above) => outside[usize::from(above)] += times,
        }
    }
    vec![
        Field::Unsigned(count),
        Field::Signed(sum),
        Field::Unsigned(outside[0]),
        Field::Unsigned(outside[1]),
        Field::Buckets(buckets.into_iter().collect()),
    ]
}

fn linear(times: u64) -> Vec<Field> {
    histogram((0..ADDS.cast_signed()).map(|i| i - 20), times, |value| match value {
        ..-10 => Err(false),
        990.. => Err(true),
        inside => Ok(((inside + 10) / 20) as u16),
    })
}

#[test]
fn the_last_state_is_what_was_added() {
    for arguments in ["", "killed"] {
        let (_, loss, trace) = record(arguments, &[StreamSpec::default()]);
        let sum = (THREADS * ADDS * (ADDS - 1) / 2).cast_signed();
        let log = histogram((0..ADDS.cast_signed()).map(|i| i * i), THREADS, |value| {
            Ok(log_bucket(value.cast_unsigned()))
        });
        let expected = BTreeMap::from([
            ("state:sum".to_owned(), vec![Field::Signed(2 * sum)]),
            ("state:reset".to_owned(), vec![Field::Signed((THREADS * ADDS).cast_signed())]),
            ("state:linear".to_owned(), linear(2 * THREADS)),
            ("state:log".to_owned(), log),
        ]);
        assert_eq!(finals(&trace), expected);
        // Logged on the way: the state then.
        let logged: Vec<&Event> = trace.events.iter().filter(|e| !is_final(&trace, e)).collect();
        assert_eq!(logged.len(), 2);
        assert_eq!(logged[0].fields, [("value".to_owned(), Field::Signed(sum))]);
        let fields: Vec<Field> = logged[1].fields.iter().map(|f| f.1.clone()).collect();
        assert_eq!(fields, linear(THREADS));
        assert_eq!((loss.emitted, loss.recorded, loss.finals, loss.dropped), (2, 2, 4, 0));

        let classes: Vec<_> = trace.metadata.streams.values().flat_map(|s| &s.events).collect();
        for class in classes.iter().filter(|class| class.name == "linear") {
            let told = (class.kind, class.unit.as_str(), class.description.as_str());
            assert_eq!(told, (Kind::Histogram, "ms", "a declared range"));
            let range = Buckets::Linear { low: -10, high: 990, count: 50 };
            assert_eq!(class.histogram, Some(range));
        }
        assert!(classes.iter().all(|class| class.name != "untouched"));
    }
}

#[test]
fn each_stream_has_its_own_state() {
    let named = |name: &str, globs: &[&str]| {
        let globs = globs.iter().map(ToString::to_string);
        StreamSpec { name: name.into(), ..StreamSpec::of(globs) }
    };
    let streams = [named(MAIN, &["*"]), named("one", &["state:reset"]), named("none", &["x:*"])];
    let (lab, _, trace) = record("", &streams);
    assert_eq!(finals(&trace).len(), 4);
    let one = finals(&Trace::read(&lab.out_of("one")));
    assert_eq!(one.keys().collect::<Vec<_>>(), ["state:reset"]);
    assert_eq!(one["state:reset"], finals(&trace)["state:reset"]);
    assert_eq!(Trace::read(&lab.out_of("none")).files, 0);
}
