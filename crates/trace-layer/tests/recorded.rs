//! What examples/says.rs says through `tracing` is in the trace, once, as babeltrace2 reads it.

#[path = "../../../tests/skip.rs"]
mod skip;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use loopscope_collect::stream::Choice;
use loopscope_collect::{Collector, Identity, RUNTIME_DIR, StreamSpec, stream};
use loopscope_time::Frequency;

fn program() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let path = exe.parent().unwrap().parent().unwrap().join("examples/says");
    assert!(path.exists(), "no {path:?}: with --test, first cargo build --examples");
    path
}

/// The program's output, for its layer `form`, and the records' texts by entity.
fn record(form: &str, enable: &[&str]) -> Option<(String, BTreeMap<String, Vec<String>>)> {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, out) = (dir.path().join("runtime"), dir.path().join("out"));
    let identity = Identity {
        host: "h1".into(),
        clock_uuid: *b"a clock's uuid..",
        trace_uuid: *b"a trace's uuid..",
        frequency: Frequency::from_hz(1_000_000_000).unwrap(),
    };
    let entities = enable.iter().map(|glob| Choice::Enable((*glob).to_owned())).collect();
    let streams = [StreamSpec { entities, ..StreamSpec::default() }];
    std::fs::create_dir(&runtime).unwrap();
    stream::write(&streams, &runtime, identity.frequency).unwrap();
    let said = Command::new(program()).arg(form).env(RUNTIME_DIR, &runtime).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    let mut collector = Collector::new(&out, identity, None).unwrap();
    collector.add_source(&runtime, None, &streams).unwrap();
    let loss = collector.finish().unwrap().into_stream(loopscope_collect::MAIN);
    assert_eq!((loss.dropped, loss.emitted), (0, loss.recorded));
    Some((String::from_utf8(said.stdout).unwrap(), babeltrace(&out.join("trace"))?))
}

/// `None`, loudly, where babeltrace2 is not installed.
fn babeltrace(trace: &Path) -> Option<BTreeMap<String, Vec<String>>> {
    let Ok(read) = Command::new("babeltrace2").args(["--no-delta"]).arg(trace).output() else {
        skip::skipped("needs babeltrace2");
        return None;
    };
    assert!(read.status.success(), "{read:?}");
    let mut records: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in String::from_utf8(read.stdout).unwrap().lines() {
        let (_, line) = line.split_once("] ").unwrap();
        let (entity, line) = line.split_once(": { ").unwrap();
        let (_, fields) = line.split_once(" }, { ").unwrap();
        records.entry(entity.to_owned()).or_default().push(fields.trim_end_matches(" }").into());
    }
    Some(records)
}

/// The ids of an entity's intervals; a start and a duration are in each.
fn intervals(records: &BTreeMap<String, Vec<String>>, entity: &str) -> Vec<i64> {
    let mut ids = Vec::new();
    for text in &records[entity] {
        let (id, rest) = text.split_once(", ").unwrap();
        assert!(rest.starts_with("start = ") && rest.contains(", duration = "), "{text}");
        ids.push(id.strip_prefix("id = ").unwrap().parse().unwrap());
    }
    ids
}

#[test]
fn every_form() {
    let apart = ["says:outer", "says:inner", "says:keyless", "says:threads"];
    for form in ["sole", "beside"] {
        let Some((_, records)) = record(form, &["says:*", "says.deep:*"]) else { return };
        let mut said: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (entity, texts) in &records {
            // An event without a name is called by its place.
            let line = entity.strip_prefix("says:says.rs-").map(str::parse::<u32>);
            let name = if matches!(line, Some(Ok(_))) { "says:unnamed" } else { entity };
            said.entry(name).or_default().extend(texts.iter().map(String::as_str));
        }
        said.retain(|entity, _| apart.iter().all(|name| entity != name));
        let wanted = BTreeMap::from([
            ("says:plain", vec!["id = 5"]),
            (
                "says:types",
                vec![
                    "id = -3, u = 7, i = -7, f = 0.5, b = 1, s = \"text\"",
                    "id = -1, u = 18446744073709551615, i = -9223372036854775808, f = -1.5, b = 0, \
                     s = \"\"",
                ],
            ),
            (
                "says.deep:a_name__with__all_",
                vec!["id = 0, message = \"message 2\", http_status = 404"],
            ),
            ("says:id-text", vec!["id = 0, id_ = \"seven\""]),
            (
                "says:nul",
                vec!["id = 0, s = \"a\\?b\", bytes_length = 2, bytes = [ [0] = 0, [1] = 255 ]"],
            ),
            (
                "says:many",
                vec![
                    "id = 9, a = 1, b = 2, c = 3, d = \"4\", e = 5, f = 6, g = 7, \
                     rest = \"h=\\\"8 8\\\" i=9.5 j=Some(0)\"",
                ],
            ),
            ("says:inside", vec!["id = 1"]),
            ("says:nested", vec!["id = 0, loud = \"loud\""]),
            (
                "says:option",
                vec!["id = 1, first = 1", "id = 1", "id = 1, second = 2", "id = 1, first = 3"],
            ),
            (
                "says:unnamed",
                vec![
                    "id = 0, name = \"a field\", debug = \"Some(1)\", display = \"shown\"",
                    "id = 0, message = \"with no name\"",
                ],
            ),
        ]);
        assert_eq!(said, wanted, "{form}");
        assert_eq!(intervals(&records, "says:outer"), [40]);
        assert_eq!(intervals(&records, "says:inner"), [0, 1, 2]);
        let keyless = intervals(&records, "says:keyless");
        assert!(keyless.len() == 2 && keyless[0] != keyless[1], "{keyless:?}");
        let mut threads: BTreeMap<&str, u32> = BTreeMap::new();
        for text in &records["says:threads"] {
            *threads.entry(text).or_default() += 1;
        }
        assert_eq!((threads.len(), records["says:threads"].len()), (4000, 4000));
    }
}

/// Nothing of a disabled event is evaluated but its first hit, where no other layer wants it; other
/// layers see what they would see alone.
#[test]
fn disabled() {
    let Some((sole, records)) = record("sole", &["says:plain"]) else { return };
    assert_eq!(sole, "evaluated 1, seen by another layer 0\n");
    assert_eq!(records.keys().collect::<Vec<_>>(), ["says:plain"]);
    let Some((beside, records)) = record("beside", &["says:plain"]) else { return };
    assert_eq!(beside, "evaluated 200, seen by another layer 4115\n");
    assert_eq!(records.keys().collect::<Vec<_>>(), ["says:plain"]);
}

/// Without a collector the program runs as it would.
#[test]
fn dormant() {
    for (form, said) in [
        ("sole", "evaluated 1, seen by another layer 0\n"),
        ("beside", "evaluated 200, seen by another layer 4115\n"),
    ] {
        let done = Command::new(program()).arg(form).env(RUNTIME_DIR, "").output().unwrap();
        assert!(done.status.success());
        assert_eq!(String::from_utf8(done.stdout).unwrap(), said);
    }
}
