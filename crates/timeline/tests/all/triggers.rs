//! Triggers of flight recorders are on the time line as events of the same counter are.

use std::fs;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use loopscope_time::{Bound, ClockMap, Counter, Epoch, GlobalNs};
use loopscope_timeline::{HostClock, Summary, Timeline};

use crate::lab::{event, ints, knot, metadata, packets, plain, read};

/// A host with an event at each of the counters.
fn host(dir: &Path, counters: &[u64]) {
    let records: Vec<_> = counters.iter().map(|counter| (0, *counter, 1, vec![])).collect();
    let count = records.len();
    let sums = format!(r#""emitted": {count}, "recorded": {count}, "dropped": 0, "torn": 0"#);
    fs::create_dir_all(dir.join("trace")).unwrap();
    fs::write(dir.join("trace/metadata"), metadata(vec![event(0, "sent", &[])]).to_tsdl()).unwrap();
    fs::write(dir.join("trace/node-7-8"), packets(8, &records)).unwrap();
    let process = format!(r#"{{"process": "node", "pid": 7, {sums}, "sites": []}}"#);
    let loss = format!(r#"{{"version": 2, {sums}, "processes": [{process}]}}"#);
    fs::write(dir.join("loss.json"), loss).unwrap();
}

/// A stream of that host; `loss` and `triggers` are its files, if it has them.
fn stream(dir: &Path, name: &str, loss: Option<&str>, triggers: Option<&str>) {
    let dir = dir.join("streams").join(name);
    fs::create_dir_all(&dir).unwrap();
    loss.into_iter().for_each(|text| fs::write(dir.join("loss.json"), text).unwrap());
    triggers.into_iter().for_each(|text| fs::write(dir.join("triggers.json"), text).unwrap());
}

fn written(dir: &Path, hosts: Vec<(&str, HostClock)>) -> (RecordBatch, Vec<String>, Summary) {
    let mut timeline = Timeline::new();
    for (name, clock) in hosts {
        timeline.add_host(&dir.join(name), name, clock).unwrap();
    }
    let summary = timeline.write(dir, &mut |_, _| true).unwrap();
    let said = summary.problems.iter().map(|p| format!("{}: {}: {}", p.host, p.file, p.what));
    (read(&dir.join("tables/triggers.parquet")), said.collect(), summary)
}

fn texts(batch: &RecordBatch, name: &str) -> Vec<Option<String>> {
    let column = batch.column_by_name(name).unwrap().as_string::<i32>();
    column.iter().map(|text| text.map(ToOwned::to_owned)).collect()
}

fn some(texts: &[&str]) -> Vec<Option<String>> {
    texts.iter().map(|text| Some((*text).to_owned())).collect()
}

#[test]
fn a_trigger_has_the_time_and_the_bound_of_an_event_of_its_counter() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    host(&a, &[4_000]);
    host(&b, &[1_001_000, 1_009_000]);
    stream(
        &a,
        "fr",
        Some(r#"{"triggers": 1}"#),
        Some(
            r#"[{"counter": 4000, "cause": "entity", "entity": "pipe:sent", "id": -3, "host": "a",
                 "process": "node", "pid": 7, "events": 12}]"#,
        ),
    );
    // A trigger of an older version, and one where the clock was disturbed.
    stream(
        &b,
        "old",
        Some(r#"{"overwritten": 3}"#),
        Some(
            r#"[{"counter": 1001000, "cause": "host", "host": "a"},
                {"counter": 1009000, "cause": "signal", "host": "b"}]"#,
        ),
    );
    stream(&b, "plain", Some("{}"), None);
    // Half a nanosecond a tick, 997,000 ticks ahead and 24 ns wide at its knot.
    let epoch = |number, from, until| Epoch {
        number,
        from: Counter(from),
        until: Counter(until),
        knots: vec![knot(from, (from - 1_000_000) as f64 / 2.0, 24.0)],
        ns_per_tick: 0.5,
        drift: 1e-6,
    };
    let epochs = vec![epoch(0, 1_000_000, 1_008_000), epoch(1, 1_010_000, u64::MAX)];
    let map = ClockMap::of_epochs(GlobalNs(1_500), epochs).unwrap();
    let clock = HostClock { map, reference: false, ..plain() };
    let (table, said, summary) = written(dir.path(), vec![("a", plain()), ("b", clock)]);
    assert_eq!(said, [""; 0]);
    assert_eq!(summary.emitted, 3, "streams have accounts of their own");
    // 1500 + 1000 / 2 and 4000 / 2.
    assert_eq!(ints(&table, "ts")[..2], [2_000, 2_000]);
    assert_eq!(texts(&table, "host"), some(&["a", "b", "b"]));
    assert_eq!(texts(&table, "stream"), some(&["fr", "old", "old"]));
    assert_eq!(texts(&table, "cause"), some(&["entity", "host", "signal"]));
    assert_eq!(texts(&table, "origin"), some(&["a", "a", "b"]));
    assert_eq!(texts(&table, "entity"), [Some("pipe:sent".to_owned()), None, None]);
    assert_eq!(texts(&table, "process"), [Some("node".to_owned()), None, None]);
    let ids = table.column_by_name("id").unwrap().as_primitive::<Int64Type>();
    assert_eq!(ids.iter().collect::<Vec<_>>(), [Some(-3), None, None]);
    let events = table.column_by_name("events").unwrap().as_primitive::<Int64Type>();
    assert_eq!(events.iter().collect::<Vec<_>>(), [Some(12), None, None]);
    let unknown = Bound::UNKNOWN.ns().cast_signed();
    assert_eq!(ints(&table, "err_ns")[2], unknown);
    // The events of the same counters.
    let sent = read(&dir.path().join("timeline/pipe/sent/part-0.parquet"));
    assert_eq!(ints(&sent, "ts"), ints(&table, "ts"));
    assert_eq!(ints(&sent, "err_ns"), ints(&table, "err_ns"));
}

#[test]
fn what_is_wrong_with_a_list_is_a_problem_and_the_others_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a");
    host(&a, &[4_000]);
    let one = r#"[{"counter": 4000, "cause": "end", "host": "a"}]"#;
    stream(&a, "cut", Some(r#"{"triggers": 1}"#), Some(&one[..20]));
    stream(&a, "few", Some(r#"{"triggers": 2}"#), Some(one));
    stream(&a, "gone", Some(r#"{"triggers": 0}"#), None);
    stream(&a, "killed", None, None);
    stream(&a, "old", Some(r#"{"overwritten": 9}"#), None);
    fs::write(a.join("triggers.json"), one).unwrap();
    let (table, said, _) = written(dir.path(), vec![("a", plain())]);
    let wanted = [
        "a: streams/cut/triggers.json: is damaged: ",
        "a: streams/few/triggers.json: has 1 triggers, loss.json says 2",
        "a: streams/gone/triggers.json: is missing: ",
        "a: streams/killed/loss.json: is missing: ",
        "a: streams/old/triggers.json: is missing: ",
    ];
    assert_eq!(said.len(), wanted.len(), "{said:#?}");
    for (said, wanted) in said.iter().zip(wanted) {
        assert!(said.starts_with(wanted), "{said}");
    }
    // The stream `main`, where it is a flight recorder, stands in the host's own folder.
    assert_eq!(texts(&table, "stream"), some(&["main", "few"]));
}

/// A folder of streams that cannot be read is not taken for none.
#[test]
fn a_folder_that_cannot_be_read_is_a_problem() {
    let dir = tempfile::tempdir().unwrap();
    host(&dir.path().join("a"), &[4_000]);
    fs::write(dir.path().join("a/streams"), "no folder").unwrap();
    let mut timeline = Timeline::new();
    timeline.add_host(&dir.path().join("a"), "a", plain()).unwrap();
    let summary = timeline.write(dir.path(), &mut |_, _| true).unwrap();
    let [problem] = &summary.problems[..] else { panic!("{:#?}", summary.problems) };
    assert_eq!((problem.host.as_str(), problem.file.as_str()), ("a", "streams"));
    assert!(problem.what.starts_with("cannot be read: Not a directory"), "{problem:?}");
}

#[test]
fn a_run_without_flight_recorders_has_an_empty_table() {
    let dir = tempfile::tempdir().unwrap();
    host(&dir.path().join("a"), &[4_000]);
    let mut timeline = Timeline::new();
    timeline.add_host(&dir.path().join("a"), "a", plain()).unwrap();
    let summary = timeline.write(dir.path(), &mut |_, _| true).unwrap();
    assert_eq!(summary.problems, []);
    assert!(dir.path().join("tables/triggers.parquet").exists());
}
