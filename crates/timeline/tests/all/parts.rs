//! A stream file at a time: the parts hold what the merged tables hold, and what is said of them is
//! the same.

use std::fs;
use std::path::{Path, PathBuf};

use arrow_array::{RecordBatch, UInt32Array, cast::AsArray, types::UInt64Type};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use loopscope_ctf::packet::{RECORD, RECORDS};
use loopscope_ctf::{FieldType, Kind};
use loopscope_time::{Bound, ClockMap, Counter, Epoch, GlobalNs};
use loopscope_timeline::{
    ClockEvent, Decoded, ForeignReading, HostClock, LoopFigures, LoopResiduals, Problem, Solution,
    SolvedHost, Summary,
};

use crate::lab::{Written, event, ints, knot, metadata, packets_of, plain, read};

/// Two hosts with three stream files each, whose stamps tie; one is damaged, one account has drops,
/// and the sites of an entity have other fields on each host.
fn hosts(dir: &Path) -> Solution {
    let mut state = 5u64;
    let mut below = |end: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let mut solution = Solution::default();
    for number in 0..2u8 {
        let name = format!("h{number}");
        let host = dir.join(&name);
        fs::create_dir_all(host.join("trace")).unwrap();
        let field = [("value", FieldType::U32), ("text", FieldType::String)];
        let span = loopscope_ctf::EventClass {
            kind: Kind::Interval,
            ..event(1, "step", Kind::Interval.fields().unwrap())
        };
        let events =
            vec![event(0, "sent", &field[..1 + usize::from(number)]), span, event(2, "rare", &[])];
        fs::write(host.join("trace/metadata"), metadata(events).to_tsdl()).unwrap();
        for tid in 0..3u32 {
            let mut counter = 1_000;
            let records: Vec<Written> = (0..3_000u32)
                .map(|row| {
                    counter += below(2) * below(40);
                    let id = below(4).cast_signed();
                    match below(9) {
                        0 => {
                            let start = counter + 20 - below(40);
                            let fields = [start, counter.wrapping_sub(start)].map(u64::to_le_bytes);
                            (1, counter, id, fields.concat())
                        }
                        1 if tid == 1 => (2, counter, id, Vec::new()),
                        _ => {
                            let mut fields = row.to_le_bytes().to_vec();
                            if number == 1 {
                                // One is not UTF-8.
                                let text = [b'a', 0xff, 0];
                                fields.extend(if row == 9 { &text[..] } else { &text[..1] });
                                fields.extend((row != 9).then_some(0));
                            }
                            (0, counter, id, fields)
                        }
                    }
                })
                .collect();
            let mut stream = packets_of(3_000, tid, &records);
            if (number, tid) == (1, 2) {
                // A record of the first packet is of no class; the last packet is cut.
                stream[RECORDS + 4 * RECORD..][..200].fill(0xee);
                stream.truncate(stream.len() - 100);
            }
            fs::write(host.join(format!("trace/node-7-{tid}")), stream).unwrap();
        }
        let (emitted, recorded, dropped) = (9_200, 9_000, 200);
        let sums = format!(
            r#""emitted": {emitted}, "recorded": {recorded}, "dropped": {dropped}, "torn": 0"#
        );
        let loss = format!(
            r#"{{"version": 1, {sums}, "processes": [{{"process": "node", "pid": 7, {sums}}}]}}"#
        );
        fs::write(host.join("loss.json"), loss).unwrap();
        let epoch = |number, from, until, at, ns_per_tick| Epoch {
            number,
            from: Counter(from),
            until: Counter(until),
            knots: vec![knot(at, at as f64 / 3.0, 0.1 + 1.0 / 7.0), knot(at + 900, at as f64, 7.7)],
            ns_per_tick,
            drift: 1e-7 / 3.0,
        };
        let epochs = vec![
            epoch(0, 0, 20_000, 1_000, 0.1 + 0.2),
            epoch(1, 21_000, u64::MAX, 30_000, 1.0 / 3.0),
        ];
        let map = ClockMap::of_epochs(GlobalNs(3 * i64::from(number) - 1), epochs).unwrap();
        let reading = ForeignReading {
            clock: "realtime".into(),
            ts: GlobalNs(5),
            err: Bound::UNKNOWN,
            gained: Some((-1, 2)),
            offset: None,
        };
        let happened = ClockEvent {
            clock: "counter".into(),
            kind: "step".into(),
            from: None,
            until: Some(GlobalNs(9)),
            ns: Some((1, 2)),
            what: "it stepped".into(),
        };
        let clock = HostClock {
            map,
            reference: number == 0,
            readings: vec![reading],
            events: vec![happened],
            ..plain()
        };
        let problem =
            Problem { host: name.clone(), file: "clock/probes".into(), what: "a doubt".into() };
        solution.hosts.push(SolvedHost { host: name, clock, problems: vec![problem] });
    }
    let figures = LoopFigures { p50: 1, p99: 2, max: 3, err: 4, calibrated: 5 };
    solution.loops.push(LoopResiduals {
        host: "h1".into(),
        peer: "h0".into(),
        figures: Some(figures),
        ..LoopResiduals::default()
    });
    let (host, file) = ("h1".to_owned(), "clock/mesh/h0".to_owned());
    solution.problems.push(Problem { host, file, what: "no edge".into() });
    solution
}

/// Builds as processes do that share nothing but files.
fn apart(dir: &Path, solution: &Solution, out: &Path) -> Summary {
    let clocks = out.join("clocks.json");
    solution.store(&clocks).unwrap();
    let timeline = || Solution::load(&clocks).unwrap().timeline(dir, dir).unwrap();
    let files = timeline().stream_files().unwrap();
    assert_eq!(files.len(), 6);
    assert_eq!(files[4], "h1/trace/node-7-1");
    let account = |file: usize| out.join(format!("streams/{file}.json"));
    // In any order, and one of them twice.
    for file in [3, 0, 5, 1, 4, 2, 3] {
        timeline().write_part(file, out).unwrap().store(&account(file)).unwrap();
    }
    let found = (0..files.len()).map(|file| Decoded::load(&account(file)).unwrap());
    timeline().conclude(found.collect(), out).unwrap()
}

/// Rows by what merged tables are sorted by; what ties, as it is.
fn in_order(rows: &RecordBatch) -> RecordBatch {
    let (ts, id) = (ints(rows, "ts"), ints(rows, "id"));
    let counter = rows["counter"].as_primitive::<UInt64Type>().values();
    let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
    order.sort_by_key(|row| (ts[*row as usize], counter[*row as usize], id[*row as usize]));
    take_record_batch(rows, &UInt32Array::from(order)).unwrap()
}

fn tables(out: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> =
        fs::read_dir(out.join("tables")).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

#[test]
fn parts_hold_what_merged_tables_hold() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("hosts");
    let solution = hosts(&dir);
    let (one, many) = (place.path().join("one"), place.path().join("many"));
    let whole =
        solution.clone().timeline(&dir, &dir).unwrap().write(&one, &mut |_, _| true).unwrap();
    let parted = apart(&dir, &solution, &many);
    let json = |summary: &Summary| serde_json::to_value(summary).unwrap();
    assert!(json(&parted) == json(&whole), "{:#?}", parted.problems);
    let said: Vec<_> = whole.problems.iter().map(|p| format!("{} {}", p.file, p.what)).collect();
    for what in [
        "is not declared",
        "unreadable",
        "not UTF-8",
        "start after their end",
        "records were stored",
    ] {
        assert!(said.iter().any(|each| each.contains(what)), "{what}: {said:#?}");
    }
    assert_eq!((whole.emitted, whole.dropped), (18_400, 400));

    assert_eq!(whole.events.len(), 3);
    for (entity, rows) in &whole.events {
        let table = format!("timeline/{}", entity.replace(':', "/"));
        let merged = read(&one.join(&table).join("part-0.parquet"));
        let part = |file| many.join(&table).join(format!("part-{file}.parquet"));
        let parts: Vec<_> =
            (0..6).map(part).filter(|part| part.exists()).map(|p| read(&p)).collect();
        assert_eq!(parts.len(), if entity == "pipe:rare" { 2 } else { 6 }, "{entity}");
        let all = concat_batches(&merged.schema(), &parts).unwrap();
        assert_eq!(all.num_rows() as u64, *rows);
        assert!(parts.iter().all(|part| in_order(part) == *part));
        assert_eq!(in_order(&all), merged, "{entity}");
        assert_ne!(all, merged, "{entity}: the parts overlap in time");
    }
    for (one, many) in tables(&one).iter().zip(tables(&many)) {
        assert_eq!(one.file_name(), many.file_name());
        assert!(fs::read(one).unwrap() == fs::read(&many).unwrap(), "{}", many.display());
    }
}

/// Whatever floats a solver makes, as they are written down and read.
#[test]
fn clocks_are_kept_to_the_bit() {
    let place = tempfile::tempdir().unwrap();
    let mut state = 11u64;
    let mut bits = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state ^ state >> 29
    };
    let mut float = || {
        let value = f64::from_bits(bits() & !(1 << 63));
        if value.is_finite() { value } else { 0.1 }
    };
    for round in 0..300 {
        let mut offsets: Vec<f64> = (0..40).map(|_| float()).collect();
        offsets.sort_by(f64::total_cmp);
        offsets.dedup();
        let knots: Vec<_> = (0..)
            .zip(&offsets)
            .map(|(i, ns)| {
                let mut knot = knot(u64::MAX - 50 + i, *ns, float());
                knot.calibrated_ns = float();
                knot
            })
            .collect();
        let map = ClockMap::new(GlobalNs(i64::MIN + round), knots, float(), float()).unwrap();
        let clock = HostClock { map, ..plain() };
        let host = SolvedHost { host: "h".into(), clock, problems: Vec::new() };
        let solution = Solution { hosts: vec![host], ..Solution::default() };
        let file = place.path().join("clocks.json");
        solution.store(&file).unwrap();
        assert_eq!(Solution::load(&file).unwrap(), solution);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("hosts");
    let solution = hosts(&dir);
    let timeline = || solution.clone().timeline(&dir, &dir).unwrap();
    let found = vec![timeline().write_part(0, place.path()).unwrap()];
    let told = timeline().conclude(found, place.path()).unwrap_err().to_string();
    assert!(told.contains("node-7-1: its events are not in the tables"), "{told}");

    let file = place.path().join("clocks.json");
    solution.store(&file).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen(r#""version":1"#, r#""version":2"#, 1)).unwrap();
    let told = Solution::load(&file).unwrap_err().to_string();
    assert!(told.contains("its version is 2, known is 1"), "{told}");
    fs::write(&file, &text[..text.len() / 2]).unwrap();
    let told = Solution::load(&file).unwrap_err().to_string();
    assert!(told.contains("clocks.json is no solution of clocks"), "{told}");
    // A map that goes back is none.
    let knots = text.replacen(r#""offset_ns":10000.0"#, r#""offset_ns":-1.0"#, 1);
    assert_ne!(knots, text);
    fs::write(&file, knots).unwrap();
    let told = Solution::load(&file).unwrap_err().to_string();
    assert!(told.contains("knot"), "{told}");
}

#[test]
fn progress_is_of_bytes_and_can_end_it() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("hosts");
    let solution = hosts(&dir);
    let size = |host: &str, tid| {
        fs::metadata(dir.join(format!("{host}/trace/node-7-{tid}"))).unwrap().len()
    };
    let read: u64 =
        ["h0", "h1"].iter().flat_map(|host| (0..3).map(move |tid| size(host, tid))).sum();
    let mut told = Vec::new();
    let timeline = || solution.clone().timeline(&dir, &dir).unwrap();
    let mut follow = |done: u64, all: u64| {
        told.push((done, all));
        true
    };
    timeline().write(place.path(), &mut follow).unwrap();
    let all = told[0].1;
    // But for the packet that was cut, of 3000 bytes at most.
    assert!((read - 3_000..=read).contains(&all), "{all} of {read}");
    assert!(told.is_sorted() && told.iter().all(|(_, each)| *each == all));
    assert_eq!(told.last(), Some(&(all, all)));
    let stopped = timeline().write(place.path(), &mut |_, _| false).unwrap_err();
    assert_eq!(stopped.to_string(), "stopped");
}
