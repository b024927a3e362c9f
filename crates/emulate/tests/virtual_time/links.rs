//! Links in virtual time, for tests.

use loopscope_emulate::model::{Fate, Link, Outcome, Packet};
use loopscope_emulate::settings::Settings;
use loopscope_time::MonotonicNs;
use proptest::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub size: usize,
    pub flipped: Vec<u64>,
}

impl Packet for Probe {
    fn size(&self) -> usize {
        self.size
    }

    fn duplicate(&self) -> Probe {
        self.clone()
    }

    fn flip(&mut self, bit: u64) {
        self.flipped.push(bit);
    }
}

pub fn probe(size: usize) -> Probe {
    Probe { size, flipped: Vec::new() }
}

/// A packet of `size` bytes, or other settings, `gap` after the one before.
#[derive(Clone, Debug)]
pub struct Event {
    pub gap: u64,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    Packet(usize),
    Set(Box<Settings>),
}

pub fn packets(arrivals: &[(u64, usize)]) -> Vec<Event> {
    arrivals.iter().map(|&(gap, size)| Event { gap, what: What::Packet(size) }).collect()
}

pub fn settings(json: serde_json::Value) -> Settings {
    serde_json::from_value(json).expect("settings")
}

pub fn link(settings: &Settings, seed: u64) -> Link<Probe> {
    Link::new(settings.clone(), seed, "h1 -> h2").expect("a link")
}

/// Polls at each instant that is due, and after the last event until nothing is left.
pub fn run(settings: &Settings, seed: u64, events: &[Event]) -> Vec<Outcome<Probe>> {
    let mut link = link(settings, seed);
    let mut outcomes = Vec::new();
    let mut now = MonotonicNs(0);
    for event in events {
        now = now.plus(event.gap);
        while let Some(due) = link.next_due().filter(|due| *due <= now) {
            outcomes.push(link.poll(due).expect("an outcome when it is due"));
        }
        happen(&mut link, now, event);
    }
    while let Some(due) = link.next_due() {
        outcomes.push(link.poll(due).expect("an outcome when it is due"));
    }
    outcomes
}

pub fn happen(link: &mut Link<Probe>, now: MonotonicNs, event: &Event) {
    match &event.what {
        What::Packet(size) => {
            link.enqueue(now, probe(*size));
        }
        What::Set(settings) => link.set(now, Settings::clone(settings)).expect("settings"),
    }
}

pub fn departed(outcomes: &[Outcome<Probe>]) -> Vec<&Outcome<Probe>> {
    outcomes.iter().filter(|outcome| outcome.fate == Fate::Departs).collect()
}

/// Packets of all sizes that come in bunches and after pauses.
pub fn arrivals(most: usize) -> impl Strategy<Value = Vec<(u64, usize)>> {
    let gap = prop_oneof![Just(0), 0u64..20_000, 0u64..2_000_000];
    let size = prop_oneof![Just(1514usize), 42usize..1514];
    prop::collection::vec((gap, size), 1..most)
}

/// Settings with which a queue of some packets builds up.
pub fn any_settings() -> impl Strategy<Value = Settings> {
    use serde_json::json;
    let share = || prop_oneof![Just(0.0), 0.0..0.5f64, Just(1.0)];
    let loss = prop_oneof![
        Just(json!(null)),
        (share(), 0.0..0.9f64)
            .prop_map(|(p, c)| json!({"kind": "independent", "probability": p, "correlation": c})),
        (share(), share(), share(), share()).prop_map(
            |(p, r, g, b)| json!({"kind": "gilbert-elliott", "p": p, "r": r, "good": g, "bad": b})
        ),
        (1u64..9).prop_map(|every| json!({"kind": "periodic", "every": every})),
    ];
    let limit = prop_oneof![
        Just(json!(null)),
        (1u64..20).prop_map(|n| json!({"packets": n})),
        (1514u64..20_000).prop_map(|n| json!({"bytes": n})),
        (1u64..5_000_000).prop_map(|n| json!({"time-ns": n})),
    ];
    let discipline = prop_oneof![
        Just(json!("drop-tail")),
        (1u64..200_000, 200_000u64..2_000_000)
            .prop_map(|(t, i)| json!({"codel": {"target_ns": t, "interval_ns": i}})),
    ];
    let rate = prop_oneof![
        Just(None),
        (1_000_000u64..1_000_000_000, prop::option::of(1514u64..9000)).prop_map(Some),
    ];
    let shape = prop_oneof![Just("uniform"), Just("normal"), Just("pareto"), Just("exponential")];
    let jitter = prop::option::of((shape, 0.0..1.0f64, prop_oneof![Just(0.0), 0.0..0.99f64]));
    let reorder = prop_oneof![
        Just(json!(null)),
        Just(json!("by-jitter")),
        share().prop_map(|p| json!({"skip": {"probability": p}})),
    ];
    let mtu = prop_oneof![4 => Just(json!(null)), 1 => Just(json!(1000))];
    ((mtu, loss, share(), share()), (rate, limit, discipline), (0u64..3_000_000, jitter, reorder))
        .prop_map(|((mtu, loss, duplicate, corrupt), (rate, limit, discipline), line)| {
            let (delay, jitter, reorder) = line;
            let mut all = json!({
                "mtu": mtu, "loss": loss, "duplicate": duplicate, "corrupt": corrupt,
                "delay_ns": delay,
            });
            if let Some((shape, width, correlation)) = &jitter {
                let ns = (delay as f64 * width) as u64;
                all["jitter"] =
                    json!({"distribution": shape, "ns": ns, "correlation": correlation});
            }
            if delay > 0 && (jitter.is_some() || reorder != json!("by-jitter")) {
                all["reorder"] = reorder;
            }
            if let Some((bps, burst)) = rate {
                all["rate_bps"] = json!(bps);
                all["burst_bytes"] = json!(burst);
                all["queue"] = json!({"limit": limit, "discipline": discipline});
            }
            let settings: Settings = serde_json::from_value(all).expect("settings");
            settings.check().expect("sound settings");
            settings
        })
}

/// Packets, with other settings now and then.
pub fn any_events(most: usize) -> impl Strategy<Value = Vec<Event>> {
    let set = (0u64..2_000_000, any_settings())
        .prop_map(|(gap, settings)| Event { gap, what: What::Set(Box::new(settings)) });
    let some = (arrivals(most), prop::collection::vec((any::<prop::sample::Index>(), set), 0..3));
    some.prop_map(|(arrivals, sets)| {
        let mut events = packets(&arrivals);
        for (index, set) in sets {
            events.insert(index.index(events.len()), set);
        }
        events
    })
}
