//! Recording programs that run already, and changing what is recorded meanwhile.

mod lab;

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Child;

use lab::{Lab, Trace};
use loopscope_collect::stream::{Choice, Filter, Kind};
use loopscope_collect::{Collector, LossReport, MAIN, Predicate, StreamSpec};
use loopscope_trace::layout::{Control, Ring, Stream, TAKEN};

/// A running program, which ends with this.
struct Steady<'a> {
    lab: &'a Lab,
    child: Child,
}

impl<'a> Steady<'a> {
    fn start(lab: &'a Lab, threads: u32) -> Steady<'a> {
        let child = lab.tallied(lab::emit(), &format!("steady {threads}")).spawn().unwrap();
        Steady { lab, child }
    }

    fn dir(&self) -> PathBuf {
        let prefix = format!("{}-", self.child.id());
        loop {
            let names = std::fs::read_dir(self.lab.runtime()).unwrap().map(|e| e.unwrap().path());
            let found = names.into_iter().find(|path| {
                let name = path.file_name().unwrap().to_string_lossy();
                name.starts_with(&prefix) && path.join("control").exists()
            });
            if let Some(found) = found {
                self.wait_for_hits();
                return found;
            }
            std::thread::yield_now();
        }
    }

    fn done(&self) -> u64 {
        if self.lab.tally().exists() {
            self.lab.slots().iter().map(|slot| slot.done).sum()
        } else {
            0
        }
    }

    /// Until the program has gone on for a while.
    fn wait_for_hits(&self) {
        let before = self.done();
        while self.done() < before + 2000 {
            std::thread::yield_now();
        }
    }

    /// Whether each thread has gone on for so many hits since this was made.
    fn progress(&self, threads: usize, hits: u64) -> impl Fn() -> bool + '_ {
        let begun: Vec<u64> = self.lab.slots().iter().map(|slot| slot.done).collect();
        move || {
            let slots = self.lab.slots();
            let gone_on =
                |(i, done): (usize, u64)| done >= begun.get(i).copied().unwrap_or(0) + hits;
            slots.len() >= threads && slots.iter().map(|s| s.done).enumerate().all(gone_on)
        }
    }

    fn tell(&self, what: &str) {
        std::fs::write(format!("{}-{what}", self.lab.tally().display()), "").unwrap();
    }
}

impl Drop for Steady<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.tell("stop");
        } else {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// A lab whose programs wait for somebody to attach.
fn dormant() -> Lab {
    let lab = Lab::with(&[]);
    std::fs::remove_file(lab.runtime().join("streams")).unwrap();
    lab
}

fn collector(lab: &Lab, out: &str) -> (Collector, PathBuf) {
    let out = lab.out().with_file_name(out);
    (Collector::new(&out, lab::identity(), None).unwrap(), out)
}

fn poll_until(collector: &mut Collector, mut enough: impl FnMut() -> bool) {
    while !enough() {
        collector.poll().unwrap();
        std::thread::yield_now();
    }
}

fn account(collector: Collector, out: &std::path::Path) -> (LossReport, Trace) {
    let loss = collector.finish().unwrap().into_stream(MAIN);
    let trace = lab::check(out, &loss);
    (loss, trace)
}

/// Each thread's ids of an entity, in order.
fn by_thread(trace: &Trace, entity: &str) -> BTreeMap<u32, Vec<i64>> {
    let mut ids: BTreeMap<u32, Vec<(u64, i64)>> = BTreeMap::new();
    for event in trace.events.iter().filter(|e| e.entity == entity) {
        ids.entry(event.tid).or_default().push((event.counter, event.id));
    }
    let sorted = ids.into_iter().map(|(tid, mut ids)| {
        ids.sort_unstable();
        (tid, ids.into_iter().map(|(_, id)| id).collect())
    });
    sorted.collect()
}

fn is_gapless(ids: &[i64]) -> bool {
    ids.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

fn large() -> StreamSpec {
    StreamSpec { subbuffer: 1 << 20, subbuffers: 16, spares: 0, ..StreamSpec::default() }
}

#[test]
fn attached_again_and_again() {
    let lab = dormant();
    let program = Steady::start(&lab, 3);
    let dir = program.dir();
    let mut last: BTreeMap<u32, i64> = BTreeMap::new();
    for round in 0..6 {
        let (mut collector, out) = collector(&lab, &format!("out-{round}"));
        collector.attach(&dir, Some("steady".into()), &[large()]).unwrap();
        poll_until(&mut collector, program.progress(3, 7000));
        if round % 2 == 0 {
            collector.detach(&dir).unwrap();
            // What comes now is nobody's.
            program.wait_for_hits();
            collector.poll().unwrap();
        }
        let (loss, trace) = account(collector, &out);
        assert_eq!((loss.dropped - loss.torn, loss.processes.len()), (0, 1), "{loss:?}");
        assert!(loss.processes[0].process == "steady" && loss.recorded >= 20_000);
        for (tid, ids) in by_thread(&trace, "tally:hit") {
            assert!(is_gapless(&ids), "round {round}: thread {tid}");
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
    let lab = dormant();
    let program = Steady::start(&lab, 2);
    let dir = program.dir();
    let (mut collector, out) = collector(&lab, "out");
    collector.attach(&dir, None, &[large()]).unwrap();
    poll_until(&mut collector, program.progress(2, 5000));
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
    let lab = dormant();
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
    poll_until(&mut one, || {
        two.poll().unwrap();
        gone_on()
    });
    let (loss_two, trace_two) = account(two, &out_two);
    assert!(loss_two.overwritten > 0 && loss_two.recorded > 0);
    assert!(trace_two.count("tally:second") == 0);
    // The other goes on alone.
    poll_until(&mut one, program.progress(2, 2000));
    let (loss_one, trace_one) = account(one, &out_one);
    assert_eq!(loss_one.dropped, loss_one.torn);
    assert!(trace_one.ids("tally:hit").iter().all(|id| id % 2 == 0));
    for ids in by_thread(&trace_one, "tally:second").values() {
        assert!(is_gapless(ids));
    }
    let filtered: u64 = loss_one.processes[0].sites.iter().map(|site| site.filtered).sum();
    let hits = trace_one.count("tally:hit");
    assert!(filtered.abs_diff(hits) <= 2, "{filtered} {hits}");
}

#[test]
fn children_of_an_attached_program() {
    let lab = dormant();
    let program = Steady::start(&lab, 1);
    let dir = program.dir();
    let (mut collector, out) = collector(&lab, "out");
    collector.attach(&dir, None, &[large()]).unwrap();
    program.tell("fork");
    // The child takes the second slot of the tally.
    let child_hits = || lab.slots().get(1).map_or(0, |slot| slot.done);
    poll_until(&mut collector, || child_hits() > 10_000);
    let (loss, trace) = account(collector, &out);
    assert_eq!(loss.processes.len(), 2);
    let child = lab.slots()[1].pid;
    let ids: Vec<i64> = trace
        .events
        .iter()
        .filter(|e| e.pid == child && e.entity == "tally:hit")
        .map(|e| e.id)
        .collect();
    assert!(ids[0] == 0 && is_gapless(&ids) && ids.len() >= 10_000);
    assert_eq!(loss.dropped, loss.torn);
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
    let lab = dormant();
    let mut program = Steady::start(&lab, 2);
    let dir = program.dir();
    let (mut collector, out) = collector(&lab, "out");
    collector.attach(&dir, None, &[large()]).unwrap();
    poll_until(&mut collector, program.progress(2, 5000));
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    poll_until(&mut collector, || !dir.exists());
    let (loss, trace) = account(collector, &out);
    assert!(loss.torn <= 2 && loss.dropped == loss.torn, "{loss:?}");
    let mut ends = Vec::new();
    for ids in by_thread(&trace, "tally:hit").values() {
        assert!(is_gapless(ids));
        ends.push(ids.last().unwrap().cast_unsigned() + 1);
    }
    // Up to the very end: each thread's slot says where that was.
    let slots = lab.slots();
    let is_end = |end: &u64| slots.iter().any(|s| (s.done..=s.begun).contains(end));
    assert!(ends.len() == 2 && ends.iter().all(is_end), "{ends:?} {slots:?}");
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
    poll_until(&mut collector, program.progress(2, 20_000));
    collector.reconfigure(&[only("*:second")]).unwrap();
    poll_until(&mut collector, program.progress(2, 20_000));
    assert!(collector.reconfigure(&[StreamSpec { name: "x".into(), ..large() }]).is_err());
    let loss = lab.finish(collector);
    let trace = lab::check(&lab.out(), &loss);
    assert_eq!(loss.dropped, loss.torn);
    let (hits, seconds) = (by_thread(&trace, "tally:hit"), by_thread(&trace, "tally:second"));
    for (tid, hits) in &hits {
        let seconds = &seconds[tid];
        assert!(is_gapless(hits) && is_gapless(seconds));
        // One began and the other ended when it was asked for; one call site goes after the other.
        assert!(seconds[0] >= 20_000, "{}", seconds[0]);
        assert!(hits.last().unwrap() < seconds.last().unwrap());
    }
}
