//! Little memory for the programs' buffers: as much is recorded as there is room for, every other
//! hit is a counted drop, and what helps is said.

use std::collections::BTreeMap;

use crate::lab::{self, Lab, Small, Trace};
use loopscope_collect::stream::Kind;
use loopscope_collect::{LossReport, StreamSpec};

const KIB: u32 = 1024;

/// More than any of these file systems has room for.
fn large() -> StreamSpec {
    StreamSpec { subbuffer: 256 * KIB, subbuffers: 16, spares: 0, ..StreamSpec::default() }
}

/// Runs emit, then collects. The problems, and the account without them.
fn run(lab: &Lab, arguments: &str) -> (Vec<String>, LossReport) {
    let status = lab.tallied(lab::emit(), arguments).status().unwrap();
    assert!(status.success(), "the program does not notice");
    let loss = lab.finish(lab.collector());
    (loss.problems.clone(), LossReport { problems: Vec::new(), ..loss })
}

fn little(free_kib: u64, spec: &StreamSpec) -> Option<(Lab, Small)> {
    let (lab, small) = Lab::with_little_memory(spec, 8 * KIB)?;
    small.fill(free_kib);
    Some((lab, small))
}

/// Rings are made as small as the room asks for, and everything is recorded.
#[test]
fn rings_fit_into_what_there_is() {
    let Some((lab, _small)) = little(900, &large()) else { return };
    let (problems, loss) = run(&lab, "burst 900");
    assert_eq!(problems, [""; 0]);
    assert_eq!((loss.emitted, loss.recorded), (900, 900));
    assert_eq!(lab::check(&lab.out(), &loss).count("tally:hit"), 900);
}

/// Records as many threads as a machine has, in the memory that a container has.
#[test]
fn many_threads_in_a_containers_memory() {
    let Some((lab, _small)) = Lab::with_little_memory(&StreamSpec::default(), 64 * KIB) else {
        return;
    };
    let (problems, loss) = run(&lab, "crowd 60 100");
    assert_eq!(problems, [""; 0]);
    assert_eq!((loss.emitted, loss.recorded), (6000, 6000));
}

/// A smaller ring that was too small after all: the drops are said to come of it.
#[test]
fn a_small_ring_that_fills_up() {
    let Some((lab, _small)) = little(900, &large()) else { return };
    let (problems, loss) = run(&lab, "burst 90000");
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("smaller than asked for") && problems[0].contains("--shm-size"));
    assert!(loss.dropped > 80_000 && loss.recorded > 0 && loss.emitted == 90_000, "{loss:?}");
    lab::check(&lab.out(), &loss);
}

/// A flight recorder holds less than was asked for: that is said in any case.
#[test]
fn a_small_flight_recorder() {
    let flight = StreamSpec { kind: Kind::FlightRecorder, ..large() };
    let Some((lab, _small)) = little(900, &flight) else { return };
    let (problems, loss) = run(&lab, "burst 10");
    assert!(problems[0].contains("they hold less"), "{problems:?}");
    assert_eq!((loss.recorded, loss.dropped), (10, 0));
}

/// No room for any ring.
#[test]
fn no_ring() {
    let Some((lab, _small)) = little(316, &large()) else { return };
    let (problems, loss) = run(&lab, "burst 900");
    let drops = lab::check_loss(&loss);
    assert_eq!(drops, BTreeMap::from([(("tally:hit".into(), "no-ring".into()), 900)]));
    assert_eq!((loss.emitted, loss.dropped, loss.recorded), (900, 900, 0));
    assert_eq!(problems.len(), 1, "{problems:?}");
    let remedy =
        ["900 hits", "no-ring", "/small had no room left", "--shm-size", "smaller buffers"];
    assert!(remedy.iter().all(|part| problems[0].contains(part)), "{problems:?}");
}

/// Threads that begin when the directory is closed already, as it is at the end of a recording:
/// their hits are counted, and it is said that nothing was short.
#[test]
fn threads_that_begin_at_the_end() {
    // Where all threads had their rings before it could be closed, it is tried again.
    let told = (0..100).find_map(|_| close_beside_a_crowd());
    let (without, problems) = told.expect("no thread began too late");
    assert_eq!(problems.len(), 1, "{problems:?}");
    let told = [&*format!("{without} hits"), "no-ring", "about to end", "nothing was short"];
    assert!(told.iter().all(|part| problems[0].contains(part)), "{problems:?}");
}

/// The hits without a ring of a program whose directory is closed while its threads begin, and the
/// problems.
fn close_beside_a_crowd() -> Option<(u64, Vec<String>)> {
    let small = StreamSpec { subbuffer: 4096, subbuffers: 4, spares: 0, ..StreamSpec::default() };
    let lab = Lab::new(&small);
    let mut program = lab.tallied(lab::emit(), "crowd 250 100").spawn().unwrap();
    while lab.slots().is_empty() {
        std::thread::yield_now();
    }
    let aside = lab.runtime().with_file_name("aside");
    std::fs::rename(lab.runtime(), &aside).unwrap();
    assert!(program.wait().unwrap().success(), "the program does not notice");
    std::fs::rename(&aside, lab.runtime()).unwrap();
    let loss = lab.finish(lab.collector());
    let problems = loss.problems.clone();
    let drops = lab::check_loss(&LossReport { problems: Vec::new(), ..loss });
    drops.get(&("tally:hit".into(), "no-ring".into())).map(|without| (*without, problems))
}

/// No room even for the tables in which call sites count.
#[test]
fn no_tables() {
    let Some((lab, _small)) = little(100, &large()) else { return };
    let (problems, loss) = run(&lab, "pair 450");
    assert_eq!((loss.emitted, loss.dropped, loss.recorded), (900, 900, 0));
    assert!(problems[0].contains("none of its 900 hits was recorded"), "{problems:?}");
    assert!(problems[0].contains("--shm-size"));
    assert_eq!(Trace::read(&lab.out()).events.len(), 0);
}

/// No room for anything: that there was a program, and why nothing is known of it.
#[test]
fn no_control_file() {
    let Some((lab, _small)) = little(8, &large()) else { return };
    let (problems, loss) = run(&lab, "burst 900");
    assert_eq!(loss.emitted, 0);
    assert_eq!(problems.len(), 1, "{problems:?}");
    let told = ["was not recorded", "how many hits it had is not known", "no room left"];
    assert!(told.iter().all(|part| problems[0].contains(part)), "{problems:?}");
}

/// No room for what filters are kept in: whether a hit would have been kept is not known.
#[test]
fn filters_without_memory() {
    let holds = loopscope_collect::Predicate::parse("id % 2 == 0", lab::identity().frequency);
    let filter = loopscope_collect::stream::Filter {
        glob: "*".into(),
        condition: Some(holds.unwrap()),
        every: None,
        rate: None,
    };
    let Some((lab, _small)) = little(340, &StreamSpec { filters: vec![filter], ..large() }) else {
        return;
    };
    let (problems, loss) = run(&lab, "burst 900");
    let drops = lab::check_loss(&loss);
    assert_eq!(drops, BTreeMap::from([(("tally:hit".into(), "no-filter".into()), 900)]));
    assert!(problems[0].contains("no-filter"), "{problems:?}");
}

/// Buffers lie in memory as long as there is room for them.
#[test]
fn where_buffers_lie() {
    let memory = std::path::Path::new("/dev/shm");
    let elsewhere = std::env::temp_dir();
    for (kib, expected) in [(8 * KIB, &*elsewhere), (64 * KIB, memory)] {
        let Some(_small) = Small::mount(memory, kib) else { return };
        assert_eq!(loopscope_collect::sweep::memory(), expected, "{kib} KiB");
    }
}
