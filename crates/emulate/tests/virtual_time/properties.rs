//! What holds of every link, whatever its settings, also when they change on the way.

use std::collections::BTreeMap;

use crate::links::{
    Event, Probe, What, any_events, any_settings, arrivals, departed, happen, link, packets, run,
};
use loopscope_emulate::model::{Counts, Drop, Fate, Outcome};
use loopscope_emulate::settings::{Reorder, Settings};
use loopscope_time::MonotonicNs;
use proptest::prelude::*;

proptest! {
    #[test]
    fn no_packet_is_lost_or_made_without_being_counted(
        settings in any_settings(), events in any_events(120), seed: u64,
    ) {
        let mut link = link(&settings, seed);
        let mut told = Counts::default();
        let mut fates: BTreeMap<(u64, bool), Fate> = BTreeMap::new();
        let mut now = MonotonicNs(0);
        for event in &events {
            now = now.plus(event.gap);
            happen(&mut link, now, event);
            told.arrived += u64::from(matches!(event.what, What::Packet(_)));
            while let Some(outcome) = link.poll(now) {
                match outcome.fate {
                    Fate::Departs => told.departed += 1,
                    Fate::Dropped(_) => told.dropped += 1,
                }
                let twice = fates.insert((outcome.number, outcome.duplicate), outcome.fate);
                prop_assert_eq!(twice, None);
            }
            let counts = link.counts();
            prop_assert_eq!(counts.arrived, told.arrived);
            prop_assert_eq!((counts.departed, counts.dropped), (told.departed, told.dropped));
            prop_assert_eq!(
                counts.arrived + counts.duplicated,
                counts.departed + counts.dropped + counts.held
            );
        }
        let mut last = now;
        while let Some(due) = link.next_due() {
            prop_assert!(due >= last);
            last = due;
            let outcome = link.poll(due).expect("an outcome when it is due");
            let twice = fates.insert((outcome.number, outcome.duplicate), outcome.fate);
            prop_assert_eq!(twice, None);
        }
        let counts = link.counts();
        prop_assert_eq!(counts.held, 0);
        let of = |duplicate| fates.keys().filter(|key| key.1 == duplicate).count() as u64;
        prop_assert_eq!((of(false), of(true)), (counts.arrived, counts.duplicated));
    }

    #[test]
    fn order_is_kept_unless_it_is_not_asked_for(
        settings in any_settings(), events in any_events(120), seed: u64,
    ) {
        let kept = |settings: &Settings| Settings { reorder: None, ..settings.clone() };
        let events = events.iter().map(|event| match &event.what {
            What::Set(settings) => Event { what: What::Set(Box::new(kept(settings))), ..event.clone() },
            What::Packet(_) => event.clone(),
        });
        let outcomes = run(&kept(&settings), seed, &events.collect::<Vec<_>>());
        for pair in departed(&outcomes).windows(2) {
            prop_assert!(pair[0].number <= pair[1].number);
            prop_assert!(pair[0].due <= pair[1].due && pair[1].due >= pair[1].enqueued);
        }
    }

    /// It has nothing before, and something then.
    #[test]
    fn next_due_is_exact(settings in any_settings(), events in any_events(120), seed: u64) {
        let mut link = link(&settings, seed);
        let mut now = MonotonicNs(0);
        for index in 0..=events.len() {
            let until = events.get(index).map(|event| now.plus(event.gap));
            while let Some(due) = link.next_due().filter(|due| until.is_none_or(|until| *due <= until)) {
                prop_assert!(due >= now);
                if due > now {
                    prop_assert_eq!(link.poll(MonotonicNs(due.0 - 1)), None);
                    prop_assert_eq!(link.next_due(), Some(due));
                }
                prop_assert!(link.poll(due).is_some());
                now = due;
            }
            let Some(until) = until else { break };
            prop_assert_eq!(link.poll(until), None);
            now = until;
            happen(&mut link, now, &events[index]);
        }
        prop_assert_eq!(link.counts().held, 0);
    }

    /// When a packet is due does not depend on when somebody asks.
    #[test]
    fn the_same_seed_and_packets_have_the_same_fates(
        settings in any_settings(), events in any_events(120), seed: u64, late in 0usize..9,
    ) {
        let eager = run(&settings, seed, &events);
        let mut lazy = Vec::new();
        let mut link = link(&settings, seed);
        let mut now = MonotonicNs(0);
        for (index, event) in events.iter().enumerate() {
            now = now.plus(event.gap);
            happen(&mut link, now, event);
            if late > 0 && index % late == 0 {
                lazy.extend(std::iter::from_fn(|| link.poll(now)));
            }
        }
        lazy.extend(std::iter::from_fn(|| link.poll(MonotonicNs(u64::MAX / 2))));
        let key = |outcome: &Outcome<Probe>| (outcome.number, outcome.duplicate);
        let sorted = |mut outcomes: Vec<Outcome<Probe>>| {
            outcomes.sort_by_key(key);
            outcomes
        };
        prop_assert_eq!(sorted(eager), sorted(lazy));
    }

    /// What one impairment chooses does not depend on whether there are others.
    #[test]
    fn impairments_choose_by_themselves(
        settings in any_settings(), arrivals in arrivals(120), seed: u64,
    ) {
        // Without a queue each packet's own delay is seen; so it is when order need not be kept.
        let jitter = settings.jitter.clone().map(|mut jitter| {
            jitter.ns = jitter.ns.min(settings.delay_ns / 3);
            jitter
        });
        let all = Settings {
            rate_bps: None, burst_bytes: None, queue: None, mtu: None,
            reorder: jitter.is_some().then_some(Reorder::ByJitter), jitter, ..settings
        };
        let events = packets(&arrivals);
        let delays = |settings: &Settings| -> BTreeMap<u64, u64> {
            let outcomes = run(settings, seed, &events);
            let outcomes = departed(&outcomes).into_iter().filter(|outcome| !outcome.duplicate)
                .map(|outcome| (outcome.number, outcome.due.0 - outcome.enqueued.0));
            outcomes.collect()
        };
        let flips = |settings: &Settings| -> BTreeMap<u64, Vec<u64>> {
            let outcomes = run(settings, seed, &events);
            let outcomes = departed(&outcomes).into_iter().filter(|outcome| !outcome.duplicate)
                .map(|outcome| (outcome.number, outcome.packet.flipped.clone()));
            outcomes.collect()
        };
        let lost = |settings: &Settings| -> Vec<u64> {
            let outcomes = run(settings, seed, &events).into_iter()
                .filter(|outcome| outcome.fate == Fate::Dropped(Drop::Loss));
            outcomes.map(|outcome| outcome.number).collect()
        };
        let only_loss = Settings { loss: all.loss.clone(), ..Settings::default() };
        prop_assert_eq!(lost(&all), lost(&only_loss));
        let no_loss = Settings { loss: None, duplicate: 0.0, corrupt: 0.0, ..all.clone() };
        let with_all = delays(&all);
        let mut alone = delays(&no_loss);
        alone.retain(|number, _| with_all.contains_key(number));
        prop_assert_eq!(with_all, alone);
        let only_corrupt = Settings { corrupt: all.corrupt, ..Settings::default() };
        let with_all = flips(&all);
        let mut alone = flips(&only_corrupt);
        alone.retain(|number, _| with_all.contains_key(number));
        prop_assert_eq!(with_all, alone);
    }
}

/// Recorded once: the same on every machine, and in later versions.
#[test]
fn fates_are_golden() {
    let settings = crate::links::settings(serde_json::json!({
        "loss": {"kind": "gilbert-elliott", "p": 0.05, "r": 0.3},
        "duplicate": 0.1, "corrupt": 0.1, "rate_bps": 100_000_000,
        "queue": {"limit": {"packets": 20}}, "delay_ns": 5_000_000,
        "jitter": {"distribution": "pareto", "ns": 2_000_000, "correlation": 0.4},
        "reorder": "by-jitter",
    }));
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for shape in ["uniform", "normal", "pareto", "exponential"] {
        let change = serde_json::json!({"jitter":
            {"distribution": shape, "ns": 2_000_000, "correlation": 0.4}});
        let settings = settings.changed(change.as_object().expect("an object")).expect("settings");
        let arrivals: Vec<(u64, usize)> =
            (0..2_000).map(|n| ((n * 7_919) % 100_000, 60 + (n as usize * 31) % 1450)).collect();
        for outcome in run(&settings, 42, &packets(&arrivals)) {
            let Outcome { packet, number, due, fate, duplicate, .. } = outcome;
            let told = format!("{number} {} {fate:?} {duplicate} {:?}", due.0, packet.flipped);
            for byte in told.bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    assert_eq!(hash, 0xb788_999f_1b10_161a, "{hash:#x}");
}

#[test]
fn another_seed_or_name_is_another_chance() {
    let settings = crate::links::settings(serde_json::json!({
        "loss": {"kind": "independent", "probability": 0.5}
    }));
    let events = packets(&[(1000, 100); 100]);
    assert_ne!(run(&settings, 1, &events), run(&settings, 2, &events));
}
