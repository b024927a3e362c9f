//! What the watch saw of a counter, from the probe logs to the clocks of a run.

use loopscope_time::Frequency;

use super::*;
use crate::offline;
use crate::record::{ProbeWriter, Source};

const HZ: u64 = 2_000_000_000;
const MS: u64 = HZ / 1000;
/// The follower's counter is ahead of the reference's by this, in ticks.
const AHEAD: u64 = 5_000 * HZ;
const SECONDS: u64 = 10;

fn writer(hosts: &Path, host: &str, number: u8) -> ProbeWriter {
    let identity = Identity {
        host: host.into(),
        trace_uuid: [number; 16],
        clock_uuid: [number + 100; 16],
        frequency: Frequency::from_hz(HZ).unwrap(),
    };
    let directory = hosts.join(host).join("clock/probes");
    ProbeWriter::create(Some(&directory), &identity, None).unwrap()
}

/// The time of an instant on the reference's counter.
fn at(ms: u64) -> Counter {
    Counter(100 * HZ + ms * MS)
}

fn around(counter: u64) -> Span {
    Span { lo: Counter(counter - 20), hi: Counter(counter + 20) }
}

/// The logs of ten seconds: a probe each 10 ms, 20 to 25 µs on its way. `events` are the disturbances
/// of the counter of `h1` (the reference) or `h2`.
fn record(hosts: &Path, events: &[(&str, CounterEvent)]) {
    let mut logs = BTreeMap::from([("h1", writer(hosts, "h1", 1)), ("h2", writer(hosts, "h2", 2))]);
    for seq in 0..SECONDS * 100 {
        let t1 = at(seq * 10).0;
        let [t2, t3] = [t1 + 40_000 + seq % 7 * 1_000, t1 + 60_000];
        let t4 = t3 + 40_000 + seq % 5 * 2_000;
        for (host, moment, counter) in [
            ("h2", Moment::ProbeSent, t1 + AHEAD),
            ("h1", Moment::ProbeReceived, t2),
            ("h1", Moment::ReplySent, t3),
            ("h2", Moment::ReplyReceived, t4 + AHEAD),
        ] {
            let span = around(counter);
            let seen = Observation { moment, peer: 7, seq: 2 * seq, span, source: Source::Kernel };
            logs.get_mut(host).unwrap().log(&seen).unwrap();
        }
    }
    for (host, event) in events {
        logs.get_mut(host).unwrap().log_counter_event(0, event).unwrap();
    }
    logs.values_mut().for_each(|log| log.flush().unwrap());
}

/// The machine slept, between two looks at its counter.
fn slept(from_ms: u64, until_ms: u64, ahead: u64) -> CounterEvent {
    let [lo, hi] = [from_ms, until_ms].map(|ms| Counter(at(ms).0 + ahead));
    let disturbance = Disturbance::Suspended;
    let after = Span { lo: hi, hi };
    CounterEvent { disturbance, within: Span { lo, hi }, after, ns: 3_000_000, processors: [0, 0] }
}

fn clock(events: &[(&str, CounterEvent)]) -> HostClock {
    let run = tempfile::tempdir().unwrap();
    record(run.path(), events);
    let mut clocks = solve_run(run.path(), "h1", offline::DEFAULT_WANDER).unwrap();
    clocks.remove("h2").unwrap()
}

/// The epoch and whether a time is known, of the follower's instant.
fn known(clock: &HostClock, ms: u64) -> (Option<usize>, bool) {
    let own = Counter(at(ms).0 + AHEAD);
    let (global, bound) = clock.map.map(own);
    let truth = clock.frequency.scale(at(ms));
    if bound.is_known() {
        assert!((global - truth).unsigned_abs() <= bound.ns() + 1, "{global:?} {truth:?} {bound}");
    }
    (clock.map.epoch(own).map(|epoch| epoch as usize), bound.is_known())
}

#[test]
fn undisturbed_counters_have_one_epoch() {
    let clock = clock(&[]);
    assert_eq!(clock.exchanges as u64, SECONDS * 100);
    assert!(clock.disturbances.is_empty());
    for ms in [1_000, 5_050, 9_000] {
        assert_eq!(known(&clock, ms), (Some(0), true));
    }
}

/// Messages show nothing: both counters went on alike.
#[test]
fn what_the_watch_saw_on_either_side_ends_an_epoch() {
    for (host, ahead) in [("h2", AHEAD), ("h1", 0)] {
        let clock = clock(&[(host, slept(5_001, 5_099, ahead))]);
        let [disturbance] = clock.disturbances[..] else { panic!("{:?}", clock.disturbances) };
        let cause = offline::Cause::Watched(Disturbance::Suspended);
        assert_eq!(disturbance.cause, cause, "{host}");
        assert_eq!(known(&clock, 1_000), (Some(0), true), "{host}");
        assert_eq!(known(&clock, 5_050), (None, false), "{host}");
        assert_eq!(known(&clock, 9_000), (Some(1), true), "{host}");
        // The log of the host whose counter it is has it.
        assert_eq!(clock.counter_events.len(), usize::from(host == "h2"));
    }
}
