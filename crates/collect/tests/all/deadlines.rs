//! A message that takes longer than its path's deadline triggers a flight recorder, long before the
//! sub-buffer that it is in is complete.

use std::time::Duration;

use crate::lab::{self, Lab};
use loopscope_collect::stream::Kind;
use loopscope_collect::{Cause, Collector, Deadline, Departure, Point, Role, StreamSpec, Trigger};
use loopscope_time::Counter;
use loopscope_time::source::read_counter;

fn deadline(process: &str, limit: Duration) -> Deadline {
    let point =
        |entity: &str| Point { process: process.to_owned(), entity: format!("tally:{entity}") };
    let (first, last) = (point("hit"), point("second"));
    Deadline { path: "pair".into(), stream: "recorder".into(), first, last, limit, role: None }
}

/// The triggers seen while 50 pairs, one hit after the other, are recorded.
fn triggers(deadline: Deadline) -> Vec<(String, Trigger)> {
    let recorder = StreamSpec {
        name: "recorder".into(),
        kind: Kind::FlightRecorder,
        on_death: false,
        ..StreamSpec::default()
    };
    let streams = [StreamSpec::default(), recorder];
    let lab = Lab::with(&streams);
    let mut collector = Collector::new(&lab.out(), lab::identity(), None).unwrap();
    collector.watch(deadline.clone());
    collector.watch(deadline);
    collector.add_source(&lab.runtime(), Some("node".into()), &streams).unwrap();
    let ended = lab.tallied(lab::emit(), "pair 50").status().unwrap();
    assert!(ended.success());
    let mut seen = collector.poll().unwrap().triggers;
    seen.extend(collector.poll().unwrap().triggers);
    let losses = collector.finish().unwrap();
    assert_eq!(losses.problems, [""; 0]);
    let loss = &losses.streams["recorder"];
    // The snapshot was taken if and only if there was a trigger.
    assert_eq!(loss.recorded > 0, !seen.is_empty());
    assert_eq!(loss.emitted, loss.recorded + loss.overwritten + loss.dropped);
    seen
}

#[test]
fn the_first_late_message_triggers() {
    let seen = triggers(deadline("node", Duration::ZERO));
    let (stream, trigger) = &seen[0];
    assert_eq!((stream.as_str(), trigger.cause), ("recorder", Cause::Path));
    assert_eq!((trigger.entity.as_deref(), trigger.id), (Some("tally:second"), Some(0)));
    // The other 49 find the recorder triggered.
    assert_eq!(seen.len(), 1);
}

#[test]
fn no_message_of_a_long_deadline_or_another_process_does() {
    assert_eq!(triggers(deadline("node", Duration::from_secs(3600))), []);
    assert_eq!(triggers(deadline("other", Duration::ZERO)), []);
}

/// Where a path begins elsewhere the messages are those that the other host has told of.
#[test]
fn the_ends_of_a_path_may_be_on_two_hosts() {
    let limit = Duration::from_millis(1);
    let first = Deadline { role: Some(Role::First), ..deadline("node", limit) };
    let last = Deadline { role: Some(Role::Last), ..first.clone() };
    let another = Deadline { stream: "other".into(), ..first.clone() };
    let recorder = StreamSpec {
        name: "recorder".into(),
        kind: Kind::FlightRecorder,
        on_death: false,
        ..StreamSpec::default()
    };
    let streams = [StreamSpec::default(), recorder];
    let lab = Lab::with(&streams);
    let mut collector = Collector::new(&lab.out(), lab::identity(), None).unwrap();
    [first, another, last].into_iter().for_each(|deadline| collector.watch(deadline));
    collector.add_source(&lab.runtime(), Some("node".into()), &streams).unwrap();
    // All may have left just now, but one that left a minute ago for sure. A path of another name
    // is another.
    let (minute, never) = (60 * lab::identity().frequency.hz(), Counter(u64::MAX));
    let earlier = Counter(read_counter().0 - minute);
    let told = |id| Departure { id, lo: earlier, hi: if id == 20 { earlier } else { never } };
    collector.departed("pear", &[Departure { hi: earlier, ..told(10) }]);
    collector.departed("pair", &(0..50).map(told).collect::<Vec<_>>());
    assert!(lab.tallied(lab::emit(), "pair 50").status().unwrap().success());
    let activity = collector.poll().unwrap();
    let [(path, departures)] = activity.departures.as_slice() else { panic!("{activity:?}") };
    assert_eq!(path, "pair");
    assert_eq!(departures.iter().map(|d| d.id).collect::<Vec<_>>(), Vec::from_iter(0..50));
    assert!(departures.iter().all(|departure| departure.lo == departure.hi));
    let [(stream, trigger)] = activity.triggers.as_slice() else { panic!("{activity:?}") };
    assert_eq!((stream.as_str(), trigger.cause, trigger.id), ("recorder", Cause::Path, Some(20)));
    assert_eq!(collector.poll().unwrap().departures, []);
    assert_eq!(collector.finish().unwrap().problems, [""; 0]);
}
