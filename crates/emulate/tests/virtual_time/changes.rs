//! Settings that change, delays that follow a file, and where counts begin.

use std::io::Write as _;

use crate::links::{Event, What, departed, link, packets, probe, run, settings};
use loopscope_emulate::model::{Drop, Fate, Link};
use loopscope_emulate::settings::Settings;
use loopscope_time::MonotonicNs;
use serde_json::json;

const MS: u64 = 1_000_000;

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

fn dues(settings: &Settings, events: &[Event]) -> Vec<u64> {
    departed(&run(settings, 1, events)).iter().map(|outcome| outcome.due.0).collect()
}

fn set(gap: u64, settings: Settings) -> Event {
    Event { gap, what: What::Set(Box::new(settings)) }
}

#[test]
fn what_is_in_the_line_stays_and_the_next_ones_keep_their_order() {
    let long = settings(json!({"delay_ns": 50 * MS}));
    let short = settings(json!({"delay_ns": 10 * MS}));
    let mut events = packets(&[(0, 100)]);
    events.push(set(5 * MS, short.clone()));
    events.extend(packets(&[(0, 100), (60 * MS, 100)]));
    assert_eq!(dues(&long, &events), [50 * MS, 50 * MS, 75 * MS]);
    // Packets that may overtake do so.
    let overtaking = settings(json!({"delay_ns": 10 * MS, "reorder": "by-jitter",
        "jitter": {"distribution": "uniform", "ns": 0}}));
    events[1] = set(5 * MS, overtaking);
    assert_eq!(dues(&long, &events), [15 * MS, 50 * MS, 75 * MS]);
}

#[test]
fn the_backlog_is_served_at_the_new_rate() {
    // 1 ms for each packet, then 2 ms.
    let fast = settings(json!({"rate_bps": 8_000_000, "delay_ns": 10 * MS, "mtu": 986}));
    let slow = settings(json!({"rate_bps": 4_000_000, "delay_ns": 20 * MS, "mtu": 986}));
    let mut events = packets(&[(0, 1000); 5]);
    events.push(set(2 * MS + MS / 2, slow));
    // Three have left. Of the fourth half is there, the other half takes 1 ms.
    let expected = [10 * MS, 11 * MS, 12 * MS, 23 * MS + MS / 2, 25 * MS + MS / 2];
    assert_eq!(dues(&fast, &events), expected);
    // Without a rate it leaves at once.
    events[5] = set(2 * MS + MS / 2, settings(json!({"delay_ns": 10 * MS})));
    let expected = [10 * MS, 11 * MS, 12 * MS, 12 * MS + MS / 2, 12 * MS + MS / 2];
    assert_eq!(dues(&fast, &events), expected);
}

#[test]
fn what_cannot_be_changes_nothing() {
    let before = settings(json!({"delay_ns": 10 * MS}));
    let mut link = link(&before, 1);
    let now = MonotonicNs(5);
    let missing = json!({"delay_ns": MS, "rate_bps": 1,
        "jitter": {"distribution": {"table": "/nowhere/table"}, "ns": 1}});
    let error = link.set(now, settings(missing)).expect_err("refused");
    assert!(error.starts_with("`jitter`: /nowhere/table: cannot be read"), "{error}");
    let error = link.set(now, Settings { duplicate: 2.0, ..before.clone() }).expect_err("refused");
    assert_eq!(error, "`duplicate`: 200 % is no probability. Write 0% to 100%");
    assert_eq!(link.settings(), &before);
    link.enqueue(now, probe(100));
    assert_eq!(link.next_due(), Some(now.plus(10 * MS)));
}

#[test]
fn a_file_with_a_hole_is_named_with_its_line() {
    for (key, text, words) in [
        ("delays", "at,delay\n0s,20ms\n1s,\n", ":3: delay is missing: a hole"),
        ("opportunities", "1\n\n2\n", ":2: is blank: a hole"),
    ] {
        let file = file(text);
        let error = Link::<crate::links::Probe>::new(settings(json!({key: file.path()})), 1, "l");
        let error = error.expect_err("refused");
        let name = file.path().display();
        assert!(error.starts_with(&format!("`{key}`: {name}{words}")), "{error}");
    }
}

#[test]
fn delays_follow_their_file_and_the_last_one_holds() {
    let steps = file("at,delay\n0s,20ms\n1s,5ms\n1.5s,40ms\n");
    let follows = settings(json!({"delays": steps.path()}));
    // The file begins with the first packet.
    let arrivals = packets(&[
        (7, 100),
        (1000 * MS - 1, 100),
        (1, 100),
        (500 * MS - 1, 100),
        (1, 100),
        (10_000 * MS, 100),
    ]);
    let delays: Vec<u64> = run(&follows, 1, &arrivals)
        .iter()
        .map(|outcome| outcome.due.0 - outcome.enqueued.0)
        .collect();
    // Order is kept: who comes a nanosecond after 20 ms waits for it.
    assert_eq!(delays, [20 * MS, 20 * MS, 20 * MS - 1, 5 * MS, 40 * MS, 40 * MS]);
}

#[test]
fn files_and_counts_begin_anew_when_told() {
    let (steps, lost) = (file("at,delay\n0s,20ms\n1s,5ms\n"), file("1\n0\n0\n"));
    let follows = settings(json!({"delays": steps.path(),
        "loss": {"kind": "trace", "path": lost.path()}}));
    let mut link = link(&follows, 1);
    let fate = |link: &mut Link<_>, now: u64| {
        let now = MonotonicNs(now);
        link.enqueue(now, probe(100));
        let due = link.next_due().expect("due");
        let outcome = link.poll(due).expect("an outcome");
        (outcome.fate, outcome.due.0 - now.0)
    };
    let lost = (Fate::Dropped(Drop::Loss), 0);
    assert_eq!(fate(&mut link, 100), lost);
    assert_eq!(fate(&mut link, 2000 * MS), (Fate::Departs, 5 * MS));
    link.restart(MonotonicNs(3000 * MS));
    assert_eq!(fate(&mut link, 3500 * MS), lost);
    assert_eq!(fate(&mut link, 3600 * MS), (Fate::Departs, 20 * MS));
    assert_eq!(fate(&mut link, 4000 * MS), (Fate::Departs, 5 * MS));
    // Other settings leave them where they are.
    link.set(MonotonicNs(4100 * MS), Settings { corrupt: 0.1, ..follows }).expect("settings");
    assert_eq!(fate(&mut link, 4200 * MS), lost);
    assert_eq!(fate(&mut link, 4300 * MS), (Fate::Departs, 5 * MS));
}

/// A mover polls by the clock and learns of a packet by a stamp that is older.
#[test]
fn a_poll_does_not_make_the_next_packet_later() {
    let mut link = link(&settings(json!({"delay_ns": 10 * MS, "rate_bps": 8_000_000})), 1);
    assert_eq!(link.poll(MonotonicNs(7 * MS)), None);
    link.enqueue(MonotonicNs(6 * MS), probe(1000));
    assert_eq!(link.next_due(), Some(MonotonicNs(16 * MS)));
}

#[test]
fn only_what_is_larger_than_the_mtu_is_too_large() {
    let narrow = settings(json!({"mtu": 1000}));
    let outcomes = run(&narrow, 1, &packets(&[(0, 1014), (0, 1015)]));
    let fates: Vec<Fate> = outcomes.iter().map(|outcome| outcome.fate).collect();
    assert_eq!(fates, [Fate::Departs, Fate::Dropped(Drop::Mtu)]);
}

#[test]
fn some_skip_the_delay_and_the_others_keep_their_order() {
    let skipping = settings(json!({"delay_ns": 10 * MS,
        "jitter": {"distribution": "normal", "ns": 2 * MS},
        "reorder": {"skip": {"probability": 0.25}}}));
    let outcomes = run(&skipping, 1, &packets(&vec![(MS / 10, 100); 10_000]));
    let (skipped, delayed): (Vec<_>, Vec<_>) =
        outcomes.iter().partition(|outcome| outcome.due == outcome.enqueued);
    assert!((2300..2700).contains(&skipped.len()), "{}", skipped.len());
    assert!(delayed.windows(2).all(|pair| pair[0].number < pair[1].number));
    assert!(delayed.iter().all(|outcome| outcome.due.0 - outcome.enqueued.0 > MS));
}
