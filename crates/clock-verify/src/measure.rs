//! One measurement: hosts probe over a testbed while something happens to them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use loopscope_clocksync::probe::{Counts, Faults, Responder};
use loopscope_clocksync::stamp::ordered_counter;
use loopscope_clocksync::synthetic::{Step, SyntheticClock};
use loopscope_time::{Counter, Frequency};

use super::Run;
use super::attack::Attack;
use super::bed::{Bed, REFERENCE};
use super::follower::{Ended, Follower};
use super::mesh::{Meshed, Seen};
use super::relay::Relay;

/// Between the first burst and the measured time: as an experiment's gate, it lets the followers'
/// widths come down.
const SETTLING: Duration = Duration::from_secs(2);
/// After the measured time, where a counter was disturbed: what it was is told two seconds after it
/// was noticed, and that says which times do not hold.
const AFTERMATH: Duration = Duration::from_secs(4);
/// The delay of the replies in scenarios with an asymmetry.
pub(super) const ASYMMETRY: Duration = Duration::from_micros(100);
/// How far a counter steps: beyond the hard interval, and within it where a relay makes it wide, by
/// more than one of the two ways takes.
pub(super) const STEP: Duration = Duration::from_millis(1);
pub(super) const SMALL_STEP: Duration = Duration::from_micros(300);
pub(super) const STEP_PPM: i64 = 100;

const RELAY: &str = "relay";

/// The event during a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// No event.
    Calm,
    /// Every processor is busy, and so is the data network.
    Load,
    /// Packets and stamps are lost, and packets overtake each other.
    Loss,
    /// Replies are delayed all the time.
    Asymmetry,
    /// Replies are delayed from the middle of the measured time on.
    AsymmetryStep,
    /// The follower's counter jumps by so much in the middle of the measured time.
    CounterStep(Duration),
    /// Its rate changes there.
    RateStep,
    /// Somebody sends forged and old packets.
    Attack,
}

/// The result of a measurement, with the testbed's folder, which is removed with `bed`.
pub(super) struct Measured {
    pub(super) bed: Bed,
    /// The reference's hidden clock.
    pub(super) reference: SyntheticClock,
    pub(super) followers: BTreeMap<String, Ended>,
    pub(super) answers: Counts,
    /// Figures of followers that probe each other, if there are several.
    pub(super) seen: Option<Seen>,
    /// The measured time, true counters.
    pub(super) begin: Counter,
    pub(super) end: Counter,
    /// When it happened, where it happened at a moment.
    pub(super) event_at: Option<Counter>,
    /// Packets of an attack.
    pub(super) attacks: Option<u64>,
}

impl Measured {
    pub(super) fn frequency(&self) -> Frequency {
        self.bed.frequency
    }

    pub(super) fn hosts(&self) -> PathBuf {
        self.bed.hosts()
    }
}

/// Ticks of the true counter.
pub(super) fn ticks(frequency: Frequency, time: Duration) -> u64 {
    (time.as_secs_f64() * frequency.hz() as f64) as u64
}

pub(super) fn measure(run: &Run, followers: usize, event: Event) -> Result<Measured> {
    let names: Vec<String> = (2..followers + 2).map(|i| format!("h{i}")).collect();
    let on_a_relay = match event {
        Event::Asymmetry | Event::AsymmetryStep | Event::Attack => true,
        // Only if the round trip is longer than the step.
        Event::CounterStep(step) => step < STEP,
        _ => false,
    };
    let mut hosts = vec![REFERENCE.to_owned()];
    hosts.extend(names.iter().cloned());
    hosts.extend(on_a_relay.then(|| RELAY.to_owned()));
    let bed = Bed::build(&hosts)?;
    let _load = match event {
        Event::Load => bed.load(&names[0])?,
        _ => Vec::new(),
    };
    let faults = |number: u64| {
        let faults = Faults {
            seed: run.seed.wrapping_add(number),
            loss: 0.3,
            reordering: 0.05,
            lost_stamps: 0.1,
            clock_set: None,
        };
        (event == Event::Loss).then_some(faults)
    };
    let reference = SyntheticClock::new(run.seed, REFERENCE);
    let side = bed.side(REFERENCE, reference, faults(0))?;
    let responder = bed.within(REFERENCE, || Ok(Responder::start(side)?))?;
    let mut probed = responder.address();
    let relay = if on_a_relay {
        let own = bed.clock_address(RELAY)?;
        let relay = bed.within(RELAY, || Relay::start(own, responder.address()))?;
        probed = relay.address()?;
        Some(Arc::new(relay))
    } else {
        None
    };
    if let (Event::Asymmetry, Some(relay)) = (event, &relay) {
        relay.delay_replies(ASYMMETRY);
    }

    // Hidden clocks are made before anything is seen through them, and a step is part of one: it
    // comes in the middle of what is then measured, give or take the start of the probes.
    let planned = SETTLING + run.duration / 2;
    let step_at = Counter(ordered_counter().0 + ticks(bed.frequency, planned));
    let clock = |name: &str| {
        let clock = SyntheticClock::new(run.seed, name);
        match event {
            Event::CounterStep(step) => {
                let ticks = ticks(bed.frequency, step);
                clock.with_step(Step { at: step_at, ticks, rate_ppb: 0 })
            }
            Event::RateStep => {
                clock.with_step(Step { at: step_at, ticks: 0, rate_ppb: STEP_PPM * 1000 })
            }
            _ => clock,
        }
    };
    let mut running = BTreeMap::new();
    for (name, number) in names.iter().zip(1..) {
        run.check()?;
        let (clock, faults) = (clock(name), faults(number));
        let side = bed.side(name, clock, faults)?;
        let follower = bed.within(name, || Follower::start(side, clock, probed))?;
        running.insert(name.clone(), follower);
    }
    let meshed = (followers > 1).then(|| Meshed::start(&bed, &running)).transpose()?;
    run.sleep(SETTLING)?;
    let attack = match (event, &relay) {
        (Event::Attack, Some(relay)) => Some(Attack::start(relay.clone(), run.seed)?),
        _ => None,
    };
    let begin = ordered_counter();
    eprintln!("  measuring for {} s", run.duration.as_secs());
    run.sleep(run.duration / 2)?;
    let mut event_at = matches!(event, Event::CounterStep(_) | Event::RateStep).then_some(step_at);
    if let (Event::AsymmetryStep, Some(relay)) = (event, &relay) {
        relay.delay_replies(ASYMMETRY);
        event_at = Some(ordered_counter());
    }
    run.sleep(run.duration / 2)?;
    let end = ordered_counter();
    let attacks = attack.map(Attack::stop).transpose()?;
    if matches!(event, Event::CounterStep(_) | Event::RateStep) {
        run.sleep(AFTERMATH)?;
    }
    let seen = meshed.map(Meshed::stop).transpose()?;
    let mut followers = BTreeMap::new();
    for (name, follower) in running {
        followers.insert(name, follower.stop()?);
    }
    let answers = responder.stop()?;
    drop(relay);
    Ok(Measured { bed, reference, followers, answers, seen, begin, end, event_at, attacks })
}
