//! Several streams at once, filters, flight recorders: each has its own output and its own account.

use std::collections::BTreeMap;
use std::path::Path;

use crate::lab::{self, Lab, Trace};
use loopscope_collect::stream::{Choice, Filter, Kind};
use loopscope_collect::{Cause, LossReport, Losses, MAIN, Predicate, StreamSpec};

fn predicate(text: &str) -> Predicate {
    Predicate::parse(text, lab::identity().frequency).unwrap()
}

fn filter(glob: &str) -> Filter {
    Filter { glob: glob.into(), condition: None, every: None, rate: None }
}

fn named(name: &str, globs: &[&str]) -> StreamSpec {
    StreamSpec { name: name.into(), ..StreamSpec::of(globs.iter().map(ToString::to_string)) }
}

fn flight(name: &str, subbuffer: u32, subbuffers: u32) -> StreamSpec {
    let kind = Kind::FlightRecorder;
    StreamSpec { kind, subbuffer, subbuffers, ..named(name, &["*"]) }
}

/// A stream's account, checked against its trace.
fn check(lab: &Lab, losses: &Losses, stream: &str) -> (Trace, LossReport) {
    assert_eq!(losses.problems, [""; 0]);
    let loss = losses.streams[stream].clone();
    (lab::check(&lab.out_of(stream), &loss), loss)
}

fn filtered(loss: &LossReport) -> BTreeMap<&str, u64> {
    let sites = loss.processes.iter().flat_map(|p| &p.sites);
    sites.map(|site| (site.entity.as_str(), site.filtered)).collect()
}

#[test]
fn each_stream_has_its_own_entities_and_output() {
    let mut but = named("but", &["*"]);
    but.entities.push(Choice::Disable("tally:h*".into()));
    let streams = [named(MAIN, &["tally:hit"]), named("all", &["tally:*"]), but];
    let lab = Lab::with(&streams);
    let losses = lab.collect(&mut lab.tallied(lab::emit(), "pair 5000"));
    let counts = |stream| {
        let (trace, loss) = check(&lab, &losses, stream);
        assert_eq!((loss.dropped, loss.emitted), (0, loss.recorded));
        (trace.count("tally:hit"), trace.count("tally:second"))
    };
    assert_eq!(counts(MAIN), (5000, 0));
    assert_eq!(counts("all"), (5000, 5000));
    assert_eq!(counts("but"), (0, 5000));
    let uuid = |stream| Trace::read(&lab.out_of(stream)).metadata.uuid;
    assert_ne!(uuid("all"), uuid("but"));
    // Hits that several streams have carry one stamp.
    let stamps = |stream: &str, entity: &str| -> Vec<u64> {
        let events = Trace::read(&lab.out_of(stream)).events.into_iter();
        events.filter(|e| e.entity == entity).map(|e| e.counter).collect()
    };
    assert_eq!(stamps(MAIN, "tally:hit"), stamps("all", "tally:hit"));
    assert_eq!(stamps("but", "tally:second"), stamps("all", "tally:second"));
}

#[test]
fn a_condition_lets_through_what_it_holds_for() {
    let text = "id % 3 == 0 && (all > 10 || low < 4) && !(all == 999)";
    let where_second = Filter { condition: Some(predicate(text)), ..filter("*:second") };
    let unknown = Filter { condition: Some(predicate("no_such_field == 0")), ..filter("*:hit") };
    let spec = StreamSpec { filters: vec![where_second, unknown], ..StreamSpec::default() };
    let lab = Lab::new(&spec);
    let losses = lab.collect(&mut lab.tallied(lab::emit(), "pair 3000"));
    let (trace, loss) = check(&lab, &losses, MAIN);
    let expected: Vec<i64> =
        (0..3000).filter(|i| i % 3 == 0 && (*i > 10 || i % 256 < 4) && *i != 999).collect();
    assert_eq!(trace.ids("tally:second"), expected);
    assert_eq!(trace.count("tally:hit"), 0);
    let kept_out = filtered(&loss);
    assert_eq!(kept_out["tally:second"], 3000 - expected.len() as u64);
    assert_eq!(kept_out["tally:hit"], 3000);
    assert_eq!(loss.emitted, expected.len() as u64);
}

#[test]
fn one_in_n_and_so_many_a_second() {
    let every = Filter { every: Some(7), ..filter("*:hit") };
    let rate = Filter { rate: Some(50), ..filter("*:second") };
    let spec = StreamSpec { filters: vec![every, rate], ..StreamSpec::default() };
    let lab = Lab::new(&spec);
    let before = std::time::Instant::now();
    let losses = lab.collect(&mut lab.tallied(lab::emit(), "pair 70000"));
    // The test's identity has a counter of 1 GHz, which the real one exceeds by far less than this.
    let seconds = before.elapsed().as_secs() * 8 + 2;
    let (trace, loss) = check(&lab, &losses, MAIN);
    let kept_out = filtered(&loss);
    let (hit, second) = (trace.count("tally:hit"), trace.count("tally:second"));
    assert_eq!(hit, 10_000);
    assert!((1..=50 * seconds).contains(&second), "{second} in at most {seconds} s");
    assert_eq!(kept_out["tally:hit"] + hit, 70_000);
    assert_eq!(kept_out["tally:second"] + second, 70_000);
    assert_eq!(loss.dropped, 0);
}

fn triggers(out: &Path) -> Vec<serde_json::Value> {
    serde_json::from_slice(&std::fs::read(out.join("triggers.json")).unwrap()).unwrap()
}

/// Begin and end of the stretches of consecutive ids.
fn stretches(ids: &[i64]) -> Vec<(i64, i64)> {
    let mut found: Vec<(i64, i64)> = Vec::new();
    for id in ids {
        match found.last_mut() {
            Some((_, last)) if *id == *last + 1 => *last = *id,
            _ => found.push((*id, *id)),
        }
    }
    found
}

#[test]
fn a_flight_recorder_keeps_the_beginning_and_the_newest() {
    let lab = Lab::with(&[flight("fr", 512, 5)]);
    let losses = lab.collect(&mut lab.tallied(lab::emit(), "burst 100000"));
    let (trace, loss) = check(&lab, &losses, "fr");
    assert_eq!((loss.emitted, loss.dropped, loss.torn), (100_000, 0, 0));
    assert_eq!(loss.overwritten, 100_000 - loss.recorded);
    let per_subbuffer = (512 - 8 - 80) / 14;
    let stretches = stretches(&trace.ids("tally:hit"));
    assert_eq!(stretches.len(), 2, "{stretches:?}");
    assert_eq!(stretches[0], (0, per_subbuffer - 1));
    assert_eq!(stretches[1].1, 99_999);
    // The open one and at least two before it.
    assert!(99_999 - stretches[1].0 >= 2 * per_subbuffer);
    let triggers = triggers(&lab.out_of("fr"));
    assert_eq!(triggers.len(), 1);
    assert_eq!(triggers[0]["cause"], "death");
    assert_eq!(triggers[0]["process"], loss.processes[0].process);
    assert_eq!(triggers[0]["pid"], loss.processes[0].pid);
    assert_eq!(triggers[0]["events"], loss.recorded);
    assert_eq!(loss.triggers, Some(1));
    assert_eq!(trace.discarded, loss.overwritten);
    // It is the only stream: there is no trace called main.
    assert!(!lab.out().join("trace").exists());
}

#[test]
fn a_flight_recorder_that_nothing_triggers_writes_nothing() {
    let lab = Lab::with(&[StreamSpec { on_death: false, ..flight("fr", 512, 5) }]);
    let losses = lab.collect(&mut lab.tallied(lab::emit(), "burst 1000"));
    let (trace, loss) = check(&lab, &losses, "fr");
    assert_eq!((loss.emitted, loss.recorded, loss.overwritten), (1000, 0, 1000));
    assert_eq!((trace.files, triggers(&lab.out_of("fr")).len()), (0, 0));
}

/// Snapshots follow each other: each takes what is there and was not taken yet.
#[test]
fn triggers_by_an_entity() {
    for (hits, rounds, post) in [(20, 5, 0), (3000, 5, 0), (3000, 4, 2), (0, 3, 0)] {
        let spec = StreamSpec {
            on_death: false,
            post: std::time::Duration::from_millis(post),
            triggers: vec![("*:alarm".into(), predicate("id >= 1"))],
            ..flight("fr", 512, 6)
        };
        let lab = Lab::with(&[spec, StreamSpec::default()]);
        let mut collector = lab.collector();
        let arguments = format!("alarms {rounds} {hits} {hits}");
        let mut child = lab.tallied(lab::emit(), &arguments).spawn().unwrap();
        let go = |round| {
            std::fs::write(format!("{}-go-{round}", lab.tally().display()), "").unwrap();
        };
        go(0);
        for round in 1..rounds {
            let mut seen = Vec::new();
            let snapshot = |seen: &[_]| {
                // The trigger is told when it is seen; the snapshot comes later.
                let trace = Trace::read(&lab.out_of("fr"));
                !seen.is_empty() && trace.ids("tally:alarm").contains(&round)
            };
            while !snapshot(&seen) {
                seen.extend(collector.poll().unwrap().triggers);
                assert_eq!(child.try_wait().unwrap(), None, "it waits for the snapshot");
            }
            assert_eq!(seen.len(), 1);
            let (stream, trigger) = &seen[0];
            assert_eq!(
                (stream.as_str(), trigger.cause, trigger.id),
                ("fr", Cause::Entity, Some(round))
            );
            assert_eq!(trigger.entity.as_deref(), Some("tally:alarm"));
            go(round);
        }
        assert!(child.wait().unwrap().success());
        let losses = collector.finish().unwrap();
        let (all, main) = check(&lab, &losses, MAIN);
        assert_eq!(main.recorded, main.emitted);
        let (trace, loss) = check(&lab, &losses, "fr");
        assert_eq!(loss.emitted, main.emitted, "{arguments}");
        assert_eq!(loss.emitted, loss.recorded + loss.overwritten + loss.dropped);
        assert_eq!(loss.processes[0].sites.iter().flat_map(|s| s.dropped.keys()).count(), 0);
        // Nothing twice, nothing that the stream with everything does not have.
        let ids = trace.ids("tally:hit");
        let mut once = ids.clone();
        once.dedup();
        assert_eq!(once, ids);
        let known = |e: &lab::Event| {
            all.events.iter().any(|a| (a.counter, a.id, &a.entity) == (e.counter, e.id, &e.entity))
        };
        assert!(trace.events.iter().all(known));
        // Up to each trigger nothing is missing: the hits before an alarm are the newest there
        // were.
        assert_eq!(trace.ids("tally:alarm").len() as i64, rounds - i64::from(hits >= 1000));
        let told = triggers(&lab.out_of("fr"));
        assert_eq!(told.len() as i64, rounds - 1);
        // Each record was written because of one of them.
        let written: Vec<_> =
            told.iter().map(|trigger| trigger["events"].as_u64().unwrap()).collect();
        assert_eq!(written.iter().sum::<u64>(), loss.recorded, "{written:?}");
        assert!(written.iter().all(|records| *records > 0), "{written:?}");
        assert!(told.iter().all(|trigger| trigger["pid"] == loss.processes[0].pid));
        for (round, trigger) in (1..rounds).zip(&told) {
            let alarm =
                trace.events.iter().find(|e| e.entity == "tally:alarm" && e.id == round).unwrap();
            assert_eq!(trigger["counter"], alarm.counter);
            if hits > 0 {
                assert!(ids.contains(&((round + 1) * hits - 1)));
            }
        }
    }
}

/// A trigger from outside reaches the rings of all processes.
#[test]
fn triggers_by_command() {
    let lab = Lab::with(&[StreamSpec { on_death: false, ..flight("fr", 4096, 8) }]);
    let mut collector = lab.collector();
    let mut child = lab.tallied(lab::emit(), "orphan 1000").spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        collector.poll().unwrap();
    }
    assert!(!collector.trigger(Some("other"), Cause::Command, None).unwrap());
    assert!(collector.trigger(Some("fr"), Cause::Command, None).unwrap());
    let mut copied = 0;
    while copied == 0 {
        copied = collector.poll().unwrap().copied;
        std::thread::yield_now();
    }
    let losses = collector.finish().unwrap();
    std::fs::write(lab.tally().with_file_name("tally-stop"), "").unwrap();
    let (trace, loss) = check(&lab, &losses, "fr");
    assert!(loss.recorded > 0 && loss.overwritten > 0);
    let stretches = stretches(&trace.ids("tally:hit"));
    assert_eq!(stretches.len(), 2, "the beginning and the newest: {stretches:?}");
    let told = triggers(&lab.out_of("fr"));
    assert_eq!((told.len(), &told[0]["cause"]), (1, &"command".into()));
    // The trigger was for all processes, so it names none.
    assert_eq!(
        (&told[0]["process"], told[0]["events"].as_u64()),
        (&().into(), Some(loss.recorded))
    );
}
