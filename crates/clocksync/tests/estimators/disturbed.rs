//! Disturbances of a counter that somebody sees who watches it, in virtual time, against the truth:
//! what was known ends with them, in both estimators, whether messages show them or not.

use crate::scenario::{Follower, HZ, QUIET, Scenario, at, frequency};
use loopscope_clocksync::Span;
use loopscope_clocksync::counter::{CounterEvent, Disturbance};
use loopscope_clocksync::exchange::Exchange;
use loopscope_clocksync::offline::{Cause, DEFAULT_WANDER, SolveError, solve_between};
use loopscope_clocksync::online::{Online, What};
use loopscope_clocksync::state::Status;
use loopscope_time::Counter;

const AT_S: f64 = 5.0;

fn calm() -> Follower {
    Scenario { seconds: 10.0, ..QUIET }.run(7).remove(0)
}

/// Seen between two looks, a tenth of a second apart.
fn suspended(follower: &Follower) -> CounterEvent {
    let [lo, hi] = [AT_S - 0.05, AT_S + 0.05].map(|s| follower.own.apply(at(s * 1e9)));
    let disturbance = Disturbance::Suspended;
    let after = Span { lo: hi, hi };
    CounterEvent { disturbance, within: Span { lo, hi }, after, ns: 1_000_000, processors: [0, 0] }
}

/// Whether anything is said of an instant, which is right then.
fn is_known(online: &Online, follower: &Follower, when: Counter, own: Counter) -> bool {
    let Some((told, bound)) = online.to_global(own) else { return false };
    let truth = frequency().scale(follower.reference.apply(when));
    assert!((told - truth).unsigned_abs() <= bound.ns() + 2, "{told:?} {truth:?} {bound}");
    true
}

#[test]
fn after_a_suspend_nothing_is_known_before_new_probes() {
    let follower = calm();
    let event = suspended(&follower);
    let mut online = Online::follower(frequency(), frequency(), DEFAULT_WANDER);
    let until = at((AT_S + 0.05) * 1e9);
    let (before, after): (Vec<_>, Vec<_>) =
        follower.completed.iter().partition(|(when, _)| *when < until);
    before.iter().for_each(|(_, exchange)| online.see(exchange));
    let before_it = follower.own.apply(at(4e9));
    assert!(online.to_global(before_it).is_some());
    online.disturbed(&event);
    let changes = online.changes();
    let [change] = &changes[..] else { panic!("{changes:?}") };
    let cause = Cause::Watched(Disturbance::Suspended);
    assert_eq!((change.from, change.until), (event.within.lo, event.within.hi));
    assert_eq!(change.what, What::Disturbed { epoch: 1, cause });
    // Not of now, nor of what was; not by messages from before either.
    online.see(&before[before.len() - 1].1);
    for own in [before_it, event.within.hi, Counter(event.within.hi.0 + HZ)] {
        assert_eq!(online.to_global(own), None);
        assert_eq!(online.state(own).epoch, 1);
    }
    let mut known = 0;
    for (when, exchange) in &after {
        online.see(exchange);
        known += usize::from(is_known(&online, &follower, *when, follower.own.apply(*when)));
    }
    // From the first exchange on, but for a message or two that could be those of a step.
    assert!(known > after.len() - 10, "{known} of {}", after.len());
    let state = online.state(follower.own.apply(follower.end));
    assert!(event.within.lo < state.since && state.since <= Counter(event.within.hi.0 + HZ / 10));
    assert_eq!(online.to_global(before_it), None);
}

/// The machine slept, and its counter began anew near zero.
#[test]
fn a_counter_that_begins_anew_is_another_one() {
    let follower = calm();
    let began = follower.own.apply(at(AT_S * 1e9)).0 - HZ;
    let now = |own: Counter| if own.0 > began + HZ { Counter(own.0 - began) } else { own };
    let span = |span: Option<Span>| span.map(|Span { lo, hi }| Span { lo: now(lo), hi: now(hi) });
    let mut online = Online::follower(frequency(), frequency(), DEFAULT_WANDER);
    let (mut told, mut known, mut asked) = (false, 0, 0);
    for (when, exchange) in &follower.completed {
        let own = now(follower.own.apply(*when));
        if when.0 > at(AT_S * 1e9).0 && !told {
            told = true;
            let (hi, after) = (Counter(began + HZ), Span { lo: own, hi: own });
            let disturbance = Disturbance::Suspended;
            let within = Span { lo: own, hi };
            let ns = 864_000_000_000_000;
            online.disturbed(&CounterEvent { disturbance, within, after, ns, processors: [0, 0] });
            assert_eq!(online.state(own).status, Status::Unknown);
            // Late news of the counter as it was.
            let earlier = follower.completed.iter().rev().find(|(when, _)| when.0 < at(4.9e9).0);
            online.see(&earlier.unwrap().1);
            assert_eq!(online.state(own).status, Status::Unknown);
        }
        let exchange = Exchange { t1: span(exchange.t1), t4: span(exchange.t4), ..*exchange };
        online.see(&exchange);
        if told {
            asked += 1;
            known += usize::from(is_known(&online, &follower, *when, own));
        }
    }
    assert!(asked > 400 && known > asked - 10, "{known} of {asked}");
    // Readings of ten days ago, in ticks of then.
    assert_eq!(online.to_global(follower.own.apply(at(4e9))), None);
}

#[test]
fn offline_an_epoch_begins_and_what_lies_between_is_unknown() {
    let follower = calm();
    let event = suspended(&follower);
    let hz = frequency();
    let all = &follower.exchanges;
    let solution = solve_between(all, &[], hz, hz, DEFAULT_WANDER, &[event]).unwrap();
    let [disturbance] = solution.disturbances[..] else { panic!("{:?}", solution.disturbances) };
    assert_eq!(disturbance.cause, Cause::Watched(Disturbance::Suspended));
    assert!(disturbance.from < event.within.lo && event.within.hi < disturbance.until);
    for (s, epoch) in [(1.0, Some(0)), (AT_S, None), (9.0, Some(1))] {
        let own = follower.own.apply(at(s * 1e9));
        assert_eq!(solution.map.epoch(own), epoch);
        let (told, bound) = solution.map.map(own);
        let truth = hz.scale(follower.reference.apply(at(s * 1e9)));
        assert!((told - truth).unsigned_abs() <= bound.ns() + 2);
        assert_eq!(bound.is_known(), epoch.is_some());
    }
    // A counter that began anew may be anything between what it was and what it is.
    let anew = CounterEvent { within: Span { lo: Counter(0), hi: Counter(u64::MAX) }, ..event };
    let error = solve_between(all, &[], hz, hz, DEFAULT_WANDER, &[anew]).unwrap_err();
    assert_eq!(error, SolveError::Disturbed(Disturbance::Suspended));
}
