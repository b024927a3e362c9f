//! Filters of many call sites, filters that are changed over and over, and what happens where there
//! is no place for them: no hit is lost without being counted.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::lab::{self, Lab};
use loopscope_collect::stream::Filter;
use loopscope_collect::{LossReport, Predicate, StreamSpec};

const SITES: u64 = 1000;

fn holds(condition: &str) -> Predicate {
    Predicate::parse(condition, lab::identity().frequency).unwrap()
}

fn filter(glob: &str, condition: &str) -> Filter {
    Filter { glob: glob.into(), condition: Some(holds(condition)), every: None, rate: None }
}

fn filtered(filters: Vec<Filter>) -> StreamSpec {
    StreamSpec { filters, ..StreamSpec::default() }
}

/// Records `many` for so many rounds.
fn many(spec: &StreamSpec, rounds: u64) -> (Lab, LossReport) {
    many_in_threads(spec, rounds, 1)
}

/// The same in each of so many threads.
fn many_in_threads(spec: &StreamSpec, rounds: u64, threads: u64) -> (Lab, LossReport) {
    let lab = Lab::new(spec);
    // Tests run at once: none may write a program that another one starts.
    static MANY: OnceLock<PathBuf> = OnceLock::new();
    let program =
        MANY.get_or_init(|| lab::build("many", &["cc", "-std=gnu99", "-O1"], &["many.c"]));
    let loss = lab.collect(lab.command(program).args([rounds, threads].map(|n| n.to_string())));
    (lab, loss.into_stream("main"))
}

#[test]
fn each_of_many_call_sites_has_a_filter() {
    let spec = filtered(vec![filter("*", "id % 10 == 0 && size > 1")]);
    let (lab, loss) = many(&spec, 20);
    let trace = lab::check(&lab.out(), &loss);
    assert_eq!((loss.emitted, loss.recorded, loss.filtered), (2 * SITES, 2 * SITES, 18 * SITES));
    assert!(trace.events.iter().all(|event| event.id % 10 == 0));
}

#[test]
fn one_in_so_many_of_each_call_site() {
    let every = Filter { glob: "*".into(), condition: None, every: Some(4), rate: Some(1000) };
    let (_, loss) = many(&filtered(vec![every]), 8);
    assert_eq!((loss.recorded, loss.filtered, loss.dropped), (2 * SITES, 6 * SITES, 0));
}

/// The count is of the call site, in whichever threads it is hit.
#[test]
fn one_in_so_many_counts_the_hits_of_all_threads() {
    let every = Filter { glob: "*".into(), condition: None, every: Some(4), rate: None };
    let (_, loss) = many_in_threads(&filtered(vec![every]), 6, 2);
    // Each thread by itself would have two of six: four of a call site's twelve.
    assert_eq!((loss.recorded, loss.filtered, loss.dropped), (3 * SITES, 9 * SITES, 0));
}

/// Filters beyond what there is place for: the hits of their call sites are drops, and it is said.
#[test]
fn filters_without_a_place() {
    let long = (0..8).map(|n| format!("size != {}", 100 + n)).collect::<Vec<_>>().join(" || ");
    let rest = filter("*", "id % 10 == 0");
    let filters = (0..4).map(|_| filter("*", &long)).chain([rest]);
    let (lab, loss) = many(&filtered(filters.collect()), 10);
    let (told, drops) = without_problems(&loss);
    assert!(told[0].contains("no-filter") && told[0].contains("fewer or shorter"), "{told:?}");
    assert_eq!(told.len(), 1);
    let dropped: u64 = drops.values().sum();
    let refused = drops.len() as u64;
    assert!(refused > 100 && refused < SITES, "{refused}");
    assert!(drops.keys().all(|(_, cause)| cause == "no-filter"));
    assert_eq!((dropped, loss.filtered), (10 * refused, 9 * (SITES - refused)));
    assert_eq!((loss.recorded, loss.emitted), (SITES - refused, SITES - refused + dropped));
    assert_eq!(lab::Trace::read(&lab.out()).events.len() as u64, loss.recorded);
}

/// The drops, and what was said.
fn without_problems(
    loss: &LossReport,
) -> (Vec<String>, std::collections::BTreeMap<(String, String), u64>) {
    let quiet = LossReport { problems: Vec::new(), ..loss.clone() };
    (loss.problems.clone(), lab::check_loss(&quiet))
}

/// What a changed filter had is used again, while threads ask it.
#[test]
fn filters_are_changed_again_and_again() {
    let even = |n: u64| filter("tally:*", &format!("id % 2 == 0 && id < {}", 1_000_000_000 + n));
    let lab = Lab::new(&filtered(vec![even(0)]));
    let mut collector = lab.collector();
    let mut child = lab.tallied(lab::emit(), "steady 2").spawn().unwrap();
    for n in 0..400 {
        collector.reconfigure(&[filtered(vec![even(n)])]).unwrap();
        collector.poll().unwrap();
    }
    let before = lab.slots().iter().map(|slot| slot.done).sum::<u64>();
    while lab.slots().iter().map(|slot| slot.done).sum::<u64>() < before + 1000 {
        collector.poll().unwrap();
    }
    std::fs::write(format!("{}-stop", lab.tally().display()), "").unwrap();
    while child.try_wait().unwrap().is_none() {
        collector.poll().unwrap();
    }
    let loss = lab.finish(collector);
    let drops = lab::check_loss(&loss);
    assert!(drops.keys().all(|(_, cause)| cause == "ring-full"), "{drops:?}");
    let trace = lab::Trace::read(&lab.out());
    assert!(!trace.events.is_empty() && trace.events.iter().all(|event| event.id % 2 == 0));
    let hits = lab.slots().iter().map(|slot| slot.done).sum::<u64>();
    assert_eq!(loss.emitted + loss.filtered, 2 * hits);
}

/// A decimal fraction means the same in programs whose language writes it with a comma.
#[test]
fn fractions_do_not_depend_on_the_locale() {
    // The way of the system's own tests: a locale of our own, made from the sources of glibc's.
    let made = Command::new("localedef")
        .args(["--no-archive", "-i", "de_DE", "-f", "UTF-8"])
        .arg(lab::builds().join("de_DE.UTF-8"))
        .output();
    if !made.as_ref().is_ok_and(|done| done.status.code() == Some(0)) {
        let why = format!("needs localedef and the sources of the locale de_DE: {made:?}");
        lab::skip::skipped(&why);
        return;
    }
    let program = lab::build("locale", &["cc", "-std=gnu99", "-O1"], &["locale.c"]);
    let lab = Lab::new(&filtered(vec![filter("[a-z]*:h[!a-g]t", "share >= 0.5")]));
    let mut command = lab.command(&program);
    command.arg("de_DE.UTF-8").env("LOCPATH", lab::builds());
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), ",\n", "the locale is not in use");
    let loss = lab.finish(lab.collector());
    let trace = lab::check(&lab.out(), &loss);
    assert_eq!(trace.ids("locale:hit"), (50..100).collect::<Vec<_>>());
}
