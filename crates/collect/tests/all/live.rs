//! Recording programs that run already, and changing what is recorded meanwhile.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::lab::{self, Lab, Steady, Trace};
use loopscope_collect::stream::{Choice, Filter, Kind};
use loopscope_collect::{Collector, LossReport, MAIN, Predicate, StreamSpec};
use loopscope_trace::layout::{Control, Ring, Stream, TAKEN};

fn collector(lab: &Lab, out: &str) -> (Collector, PathBuf) {
    let out = lab.out().with_file_name(out);
    (Collector::new(&out, lab::identity(), None).unwrap(), out)
}

fn account(collector: Collector, out: &std::path::Path) -> (LossReport, Trace) {
    let loss = collector.finish().unwrap().into_stream(MAIN);
    let trace = lab::check(out, &loss);
    (loss, trace)
}

fn large() -> StreamSpec {
    StreamSpec { subbuffer: 1 << 20, subbuffers: 16, spares: 0, ..StreamSpec::default() }
}

#[test]
fn attached_again_and_again() {
    let lab = lab::dormant();
    let program = Steady::start(&lab, 3);
    let dir = program.dir();
    let mut last: BTreeMap<u32, i64> = BTreeMap::new();
    for round in 0..6 {
        let (mut collector, out) = collector(&lab, &format!("out-{round}"));
        collector.attach(&dir, Some("steady".into()), &[large()]).unwrap();
        lab::poll_until(&mut collector, program.progress(3, 7000));
        if round % 2 == 0 {
            collector.detach(&dir).unwrap();
            // What comes now is nobody's.
            program.wait_for_hits();
            collector.poll().unwrap();
        }
        let (loss, trace) = account(collector, &out);
        lab::check_outrun(&loss, &trace, "tally:hit");
        assert_eq!(loss.processes.len(), 1, "{loss:?}");
        assert!(loss.processes[0].process == "steady" && loss.recorded >= 20_000);
        for (tid, ids) in lab::by_thread(&trace, "tally:hit") {
            let before = last.insert(tid, *ids.last().unwrap());
            assert!(before.is_none_or(|before| before < ids[0]));
        }
        assert_eq!(last.len(), 3);
        // Nothing is left in the program's directory, and it goes on.
        let files = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name());
        let left: Vec<_> = files.filter(|f| f != "control" && f != "sites").collect();
        assert!(left.is_empty(), "{left:?}");
        program.wait_for_hits();
    }
}

/// A hit that the end of its recording overtakes is counted once, and later ones are nobody's. The
/// end is made as the collector makes it, but for the call sites, which stay enabled: every hit is
/// one that had looked before.
#[test]
fn hits_that_the_end_overtakes() {
    let lab = lab::dormant();
    let program = Steady::start(&lab, 2);
    let dir = program.dir();
    let (mut collector, out) = collector(&lab, "out");
    collector.attach(&dir, None, &[large()]).unwrap();
    lab::poll_until(&mut collector, program.progress(2, 5000));
    let put = |path: PathBuf, offset: usize, word: u32| {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&word.to_ne_bytes(), offset as u64).unwrap();
    };
    let state = offset_of!(Control, streams) + offset_of!(Stream, state);
    put(dir.join("control"), state, TAKEN);
    let files = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let rings: Vec<PathBuf> =
        files.filter(|path| path.to_string_lossy().contains("ring-")).collect();
    for ring in &rings {
        put(ring.clone(), offset_of!(Ring, revoked), 1);
        for half in [0, 4] {
            put(ring.clone(), offset_of!(Ring, limit) + half, 0);
        }
    }
    let gone_on = program.progress(2, 5000);
    while !gone_on() {
        std::thread::yield_now();
    }
    let (loss, _) = account(collector, &out);
    assert_eq!((rings.len(), loss.dropped, loss.torn), (2, 2, 2), "{loss:?}");
}

#[test]
fn two_collectors_at_once() {
    let lab = lab::dormant();
    let program = Steady::start(&lab, 2);
    let dir = program.dir();
    let (mut one, out_one) = collector(&lab, "one");
    let (mut two, out_two) = collector(&lab, "two");
    let even = Predicate::parse("id % 2 == 0", lab::identity().frequency).unwrap();
    let filter = Filter { glob: "*:hit".into(), condition: Some(even), every: None, rate: None };
    one.attach(&dir, None, &[StreamSpec { filters: vec![filter], ..large() }]).unwrap();
    let flight = StreamSpec {
        kind: Kind::FlightRecorder,
        subbuffer: 4096,
        subbuffers: 8,
        ..StreamSpec::of(["tally:hit".into()])
    };
    two.attach(&dir, None, &[flight]).unwrap();
    let gone_on = program.progress(2, 10_000);
    lab::poll_until(&mut one, || {
        two.poll().unwrap();
        gone_on()
    });
    let (loss_two, trace_two) = account(two, &out_two);
    assert!(loss_two.overwritten > 0 && loss_two.recorded > 0);
    assert!(trace_two.count("tally:second") == 0);
    // The other goes on alone.
    lab::poll_until(&mut one, program.progress(2, 2000));
    let (loss_one, trace_one) = account(one, &out_one);
    let whole = lab::check_outrun(&loss_one, &trace_one, "tally:second");
    assert!(trace_one.ids("tally:hit").iter().all(|id| id % 2 == 0));
    let filtered: u64 = loss_one.processes[0].sites.iter().map(|site| site.filtered).sum();
    let hits = trace_one.count("tally:hit");
    assert!(!whole || filtered.abs_diff(hits) <= 2, "{filtered} {hits}");
}

#[test]
fn children_of_an_attached_program() {
    let lab = lab::dormant();
    let program = Steady::start(&lab, 1);
    let dir = program.dir();
    let (mut collector, out) = collector(&lab, "out");
    collector.attach(&dir, None, &[large()]).unwrap();
    program.tell("fork");
    // The child takes the second slot of the tally.
    let child_hits = || lab.slots().get(1).map_or(0, |slot| slot.done);
    lab::poll_until(&mut collector, || child_hits() > 10_000);
    let (loss, trace) = account(collector, &out);
    assert_eq!(loss.processes.len(), 2);
    let child = lab.slots()[1].pid;
    let ids: Vec<i64> = trace
        .events
        .iter()
        .filter(|e| e.pid == child && e.entity == "tally:hit")
        .map(|e| e.id)
        .collect();
    assert!(ids[0] == 0 && ids.len() >= 10_000);
    lab::check_outrun(&loss, &trace, "tally:hit");
    let before = child_hits();
    poll_child(before, child_hits);
}

/// It goes on after the end of the recording.
fn poll_child(before: u64, hits: impl Fn() -> u64) {
    while hits() < before + 1000 {
        std::thread::yield_now();
    }
}

#[test]
fn an_attached_program_that_is_killed() {
    let lab = lab::dormant();
    let mut program = Steady::start(&lab, 2);
    let dir = program.dir();
    let (mut collector, out) = collector(&lab, "out");
    collector.attach(&dir, None, &[large()]).unwrap();
    lab::poll_until(&mut collector, program.progress(2, 5000));
    program.kill();
    lab::poll_until(&mut collector, || !dir.exists());
    let (loss, trace) = account(collector, &out);
    assert!(loss.torn <= 2, "{loss:?}");
    let whole = lab::check_outrun(&loss, &trace, "tally:hit");
    let mut ends = Vec::new();
    for ids in lab::by_thread(&trace, "tally:hit").values() {
        ends.push(ids.last().unwrap().cast_unsigned() + 1);
    }
    // Up to the very end: each thread's slot says where that was.
    let slots = lab.slots();
    let is_end = |end: &u64| slots.iter().any(|s| (s.done..=s.begun).contains(end));
    assert!(ends.len() == 2 && (!whole || ends.iter().all(is_end)), "{ends:?} {slots:?}");
}

#[test]
fn entities_change_while_they_are_recorded() {
    let only = |glob: &str| StreamSpec { entities: vec![Choice::Enable(glob.into())], ..large() };
    let lab = Lab::new(&only("*:hit"));
    let program = Steady::start(&lab, 2);
    let mut collector = lab.collector();
    while program.done() == 0 {
        std::thread::yield_now();
    }
    lab::poll_until(&mut collector, program.progress(2, 20_000));
    collector.reconfigure(&[only("*:second")]).unwrap();
    lab::poll_until(&mut collector, program.progress(2, 20_000));
    assert!(collector.reconfigure(&[StreamSpec { name: "x".into(), ..large() }]).is_err());
    let loss = lab.finish(collector);
    let trace = lab::check(&lab.out(), &loss);
    lab::check_outrun(&loss, &trace, "tally:hit");
    lab::check_outrun(&loss, &trace, "tally:second");
    let (hits, seconds) =
        (lab::by_thread(&trace, "tally:hit"), lab::by_thread(&trace, "tally:second"));
    for (tid, hits) in &hits {
        let seconds = &seconds[tid];
        // One began and the other ended when it was asked for; one call site goes after the other.
        assert!(seconds[0] >= 20_000, "{}", seconds[0]);
        assert!(hits.last().unwrap() < seconds.last().unwrap());
    }
}
