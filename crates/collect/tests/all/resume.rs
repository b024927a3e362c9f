//! The collector is killed and another one takes its recording up: nothing twice, nothing lost.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::lab::{self, Lab, Steady};
use loopscope_collect::stream::Kind;
use loopscope_collect::{Collector, MAIN, Predicate, StreamSpec};

/// The streams of examples/collector.rs.
fn streams(subbuffer: u32, subbuffers: u32) -> [StreamSpec; 2] {
    let main = StreamSpec { subbuffer, subbuffers, ..StreamSpec::default() };
    let often = Predicate::parse("id % 400 == 0", lab::identity().frequency).unwrap();
    let flight = StreamSpec {
        name: "fr".into(),
        kind: Kind::FlightRecorder,
        triggers: vec![("*".into(), often)],
        ..main.clone()
    };
    [main, flight]
}

#[test]
fn killed_again_and_again() {
    let mut kills = 0;
    let (mut recorded, mut snapshots) = (0, 0);
    for seed in 1..=12u64 {
        let (subbuffer, subbuffers) = if seed % 2 == 0 { (512, 16) } else { (4096, 256) };
        let streams = streams(subbuffer, subbuffers);
        let lab = Lab::with(&streams);
        let (mut ends, write_end) = std::io::pipe().unwrap();
        let mut command = lab.tallied(lab::storm(), &seed.to_string());
        let mut program = command.stdout(write_end).stderr(Stdio::null()).spawn().unwrap();
        drop(command);
        // The pipe ends when the last descendant is gone.
        let gone = std::thread::spawn(move || ends.read_to_end(&mut Vec::new()));
        let mut rounds = 0;
        while rounds < 4 || !gone.is_finished() {
            let mut collector = Command::new(lab::example("collector"))
                .arg(lab.out())
                .arg(lab.runtime())
                .args([subbuffer.to_string(), subbuffers.to_string()])
                .spawn()
                .unwrap();
            // Any instant will do: what counts is that they differ.
            std::thread::sleep(Duration::from_micros(1500 + (seed * 7919 + rounds * 3571) % 9000));
            assert_eq!(collector.try_wait().unwrap(), None, "the collector failed");
            collector.kill().unwrap();
            collector.wait().unwrap();
            rounds += 1;
            kills += 1;
        }
        program.wait().unwrap();
        let begun = lab.out().join(".journal").exists();
        let begin = if begun { Collector::resume } else { Collector::new };
        let mut collector = begin(&lab.out(), lab::identity(), None).unwrap();
        collector.add_source(&lab.runtime(), None, &streams).unwrap();
        let losses = collector.finish().unwrap();
        assert_eq!(losses.problems, [""; 0]);
        for stream in [MAIN, "fr"] {
            let loss = &losses.streams[stream];
            let trace = lab::check(&lab.out_of(stream), loss);
            lab::check_against_tally(&lab, loss);
            recorded += loss.recorded;
            let mut hits: Vec<_> =
                trace.events.iter().map(|e| (e.pid, e.tid, e.counter, e.id)).collect();
            let all = hits.len();
            hits.sort_unstable();
            hits.dedup();
            assert_eq!(hits.len(), all, "seed {seed}: something is there twice");
        }
        let triggers = std::fs::read(lab.out_of("fr").join("triggers.json")).unwrap();
        let triggers: Vec<serde_json::Value> = serde_json::from_slice(&triggers).unwrap();
        snapshots += triggers.len();
        assert!(!lab.out().join(".journal").exists() && !lab.out().join(".progress").exists());
    }
    eprintln!("{kills} kills, {recorded} recorded, {snapshots} snapshots");
    assert!(recorded > 10_000 && snapshots > 12);
}

/// An attached program's streams stay in the slots that they were given.
#[test]
fn an_attached_program() {
    let lab = lab::dormant();
    let program = Steady::start(&lab, 2);
    let dir = program.dir();
    let spec = StreamSpec { subbuffer: 1 << 20, subbuffers: 32, ..StreamSpec::default() };
    let mut rounds = 0;
    let losses = loop {
        let begin = if rounds == 0 { Collector::new } else { Collector::resume };
        let mut collector = begin(&lab.out(), lab::identity(), None).unwrap();
        collector.attach(&dir, None, std::slice::from_ref(&spec)).unwrap();
        lab::poll_until(&mut collector, program.progress(2, 5000));
        rounds += 1;
        if rounds == 4 {
            break collector.finish().unwrap();
        }
        // Simulates a kill: no destructor undoes anything.
        std::mem::forget(collector);
        let gone_on = program.progress(2, 2000);
        while !gone_on() {
            std::thread::yield_now();
        }
    };
    drop(program);
    let loss = losses.into_stream(MAIN);
    let trace = lab::check(&lab.out(), &loss);
    assert_eq!((loss.processes.len(), loss.dropped), (1, loss.torn));
    let hits = lab::by_thread(&trace, "tally:hit");
    assert_eq!(hits.len(), 2);
    for (tid, ids) in hits {
        assert!(lab::is_gapless(&ids), "thread {tid}");
        assert!(ids.len() > 20_000, "thread {tid}: {}", ids.len());
    }
}
