//! Other people's clocks, and what happened to a host's clocks, on the global time line of a run.

use std::fmt;

use loopscope_time::{Bound, ClockMap, Counter, Frequency, GlobalNs};

use crate::Span;
use crate::anchor::{Anchor, ForeignClock};
use crate::counter::{CounterEvent, Disturbance};
use crate::foreign::{ForeignMap, Step};
use crate::log::HostClock;
use crate::loops::Survey;
use crate::offline::{self, Cause};

/// How far a reference's counter, scaled in integers, may be from its map, in nanoseconds.
const ROUNDING_NS: i64 = 2;

/// A number of nanoseconds and its hard maximum error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The offset as measured.
    pub ns: i64,
    /// The true one is within this of it.
    pub err_ns: i64,
}

impl Measured {
    /// What lies between two numbers.
    fn between(lo: i64, hi: i64) -> Measured {
        let ns = lo + (hi - lo) / 2;
        Measured { ns, err_ns: hi - ns }
    }

    fn ends(self) -> (i64, i64) {
        (self.ns - self.err_ns, self.ns + self.err_ns)
    }
}

/// What another clock showed at an instant of global time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The clock.
    pub clock: ForeignClock,
    /// When.
    pub ts: GlobalNs,
    /// Hard maximum error of that.
    pub err: Bound,
    /// What it gained on global time since its first reading; none where global time is unknown.
    pub gained: Option<Measured>,
    /// By how much it is ahead of the reference's clock of the same name at the same instant; of
    /// `CLOCK_REALTIME` only. None where global time is unknown or the reference's was set about
    /// then.
    pub offset: Option<Measured>,
}

/// Each reading of a host's other clocks, by time. `reference` is none for the reference itself.
///
/// Readings of `CLOCK_REALTIME` before the reference's first one or after its last are left out.
pub fn readings(own: &HostClock, reference: Option<&HostClock>) -> Vec<Reading> {
    let other = reference.map(|r| Reference::of(&r.anchors, r.frequency));
    let mut first: Vec<(ForeignClock, Measured)> = Vec::new();
    let mut found = Vec::new();
    for anchor in &own.anchors {
        let when = global(&own.map, anchor.at);
        let (ts, err) = match when {
            Some(when) => (GlobalNs(when.ns), Bound::of_rounded(when.err_ns as f64)),
            None => (own.map.map(anchor.at.lo).0, Bound::UNKNOWN),
        };
        let realtime = anchor.clock == ForeignClock::Realtime;
        if realtime && other.as_ref().is_some_and(|other| other.was_silent(ts)) {
            continue;
        }
        let ahead = when.map(|when| {
            let (lo, hi) = when.ends();
            Measured::between(anchor.ns - hi, anchor.ns + 1 - lo)
        });
        if let Some(ahead) = ahead
            && first.iter().all(|(clock, _)| *clock != anchor.clock)
        {
            first.push((anchor.clock, ahead));
        }
        let since = first.iter().find(|(clock, _)| *clock == anchor.clock);
        let gained = ahead.zip(since).map(|(ahead, (_, first))| Measured {
            ns: ahead.ns - first.ns,
            err_ns: ahead.err_ns + first.err_ns,
        });
        let offset = match (&other, when) {
            _ if !realtime => None,
            (None, _) => Some(Measured { ns: 0, err_ns: 0 }),
            (Some(other), Some(when)) => other.offset(anchor, when),
            (Some(_), None) => None,
        };
        found.push(Reading { clock: anchor.clock, ts, err, gained, offset });
    }
    found
}

/// The reference's `CLOCK_REALTIME`.
struct Reference {
    map: ForeignMap,
    frequency: Frequency,
    /// From its first reading to its last.
    read: Option<Span>,
}

impl Reference {
    fn of(anchors: &[Anchor], frequency: Frequency) -> Reference {
        let mut of_it = anchors.iter().filter(|a| a.clock == ForeignClock::Realtime);
        let first = of_it.next();
        let last = of_it.next_back().or(first);
        Reference {
            map: ForeignMap::of(ForeignClock::Realtime, anchors, frequency),
            frequency,
            read: first.zip(last).map(|(first, last)| Span { lo: first.at.lo, hi: last.at.hi }),
        }
    }

    /// Whether nobody read it at `ts`.
    fn was_silent(&self, ts: GlobalNs) -> bool {
        let counter = self.frequency.unscale(ts);
        self.read.is_some_and(|read| counter < read.lo || counter > read.hi)
    }

    /// By how much `anchor`, read within `when`, is ahead.
    fn offset(&self, anchor: &Anchor, when: Measured) -> Option<Measured> {
        let (lo, hi) = when.ends();
        let counter = |ns| self.frequency.unscale(GlobalNs(ns));
        let at = Span { lo: counter(lo - ROUNDING_NS), hi: counter(hi + ROUNDING_NS) };
        let (least, most) = self.map.during(at)?;
        Some(Measured::between(anchor.ns - most, anchor.ns + 1 - least))
    }
}

/// The global time that is surely within `at`'s; none where nothing is known of it.
pub(crate) fn global(map: &ClockMap, at: Span) -> Option<Measured> {
    let ((lo, below), (hi, above)) = (map.map(at.lo), map.map(at.hi));
    let known = below.is_known() && above.is_known();
    let end = |bound: Bound| bound.ns().cast_signed();
    known.then(|| Measured::between(lo.0 - end(below), hi.0 + end(above)))
}

/// Something happened to one of a host's clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockEvent {
    /// `counter`, or the other clock's name.
    pub clock: String,
    /// `set` of other clocks; of the counter `step`, `rate` or `unclear` where the probes tell it,
    /// `contradiction` where a loop does, `suspended`, `stepped` or `processors` where the host
    /// itself saw it.
    pub kind: &'static str,
    /// Not before this global time, where that is known.
    pub from: Option<GlobalNs>,
    /// Not after this global time, if that is known.
    pub until: Option<GlobalNs>,
    /// By how many nanoseconds: at least, at most, where that can be said.
    pub ns: Option<(i64, i64)>,
    /// In words.
    pub what: String,
}

impl fmt::Display for ClockEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// What happened to a host's clocks: its counter first, then the others, each by time.
pub fn events(host: &HostClock) -> Vec<ClockEvent> {
    let place = |at: Span| Place::of(&host.map, at);
    let mut found: Vec<ClockEvent> =
        host.disturbances.iter().map(|each| disturbed(each, place)).collect();
    found.extend(host.counter_events.iter().map(|event| counter_event(event, place)));
    let mut clocks: Vec<ForeignClock> = host.anchors.iter().map(|anchor| anchor.clock).collect();
    clocks.sort();
    clocks.dedup();
    for clock in clocks {
        let map = ForeignMap::of(clock, &host.anchors, host.frequency);
        found.extend(map.steps().iter().map(|step| set(clock, step, place)));
    }
    found
}

/// Where the loop that an edge closes contradicts itself, if it does: on the prober's clock, `map`.
pub fn contradiction(map: &ClockMap, peer: &str, survey: &Survey) -> Option<ClockEvent> {
    let Place { from, until } = Place::of(map, survey.contradicted?);
    let Survey { contradictions, instants, .. } = survey;
    let what = format!(
        "its time and {peer}'s contradict the probes between the two, at {contradictions} of \
         {instants} instants: the clock of one of them or of the reference, or a stamp, is wrong, \
         and maximum errors of times between hosts may be"
    );
    Some(ClockEvent { clock: "counter".into(), kind: "contradiction", from, until, ns: None, what })
}

/// When something happened, as far as it is known.
struct Place {
    from: Option<GlobalNs>,
    until: Option<GlobalNs>,
}

impl Place {
    fn of(map: &ClockMap, within: Span) -> Place {
        let end = |counter: Counter, sign: i64| {
            let (ts, bound) = map.map(counter);
            let inside = counter > Counter(0) && counter < Counter(u64::MAX) && bound.is_known();
            inside.then(|| GlobalNs(ts.0 + sign * bound.ns().cast_signed()))
        };
        Place { from: end(within.lo, -1), until: end(within.hi, 1) }
    }
}

fn disturbed(disturbance: &offline::Disturbance, place: impl Fn(Span) -> Place) -> ClockEvent {
    let offline::Disturbance { from, until, cause } = disturbance;
    let Place { from, until } = place(Span { lo: *from, hi: *until });
    let kind = match cause {
        Cause::Step(_) => "step",
        Cause::Rate(_) => "rate",
        Cause::Unclear => "unclear",
        Cause::Watched(disturbance) => disturbance.name(),
    };
    let what = format!(
        "its clock or the reference's was disturbed: {cause}; the time of its events meanwhile is \
         unknown"
    );
    ClockEvent { clock: "counter".into(), kind, from, until, ns: None, what }
}

fn counter_event(event: &CounterEvent, place: impl Fn(Span) -> Place) -> ClockEvent {
    let Place { from, until } = place(event.within);
    let ms = event.ns as f64 * 1e-6;
    let [before, after] = event.processors;
    let what = match event.disturbance {
        Disturbance::Suspended => format!("the machine slept for {ms:.3} ms"),
        Disturbance::Stepped => {
            format!("its counter stepped by {ms:+.3} ms against CLOCK_MONOTONIC_RAW")
        }
        Disturbance::Processors => {
            format!("the counters of processors {before} and {after} differ by {ms:+.3} ms")
        }
        Disturbance::Machine | Disturbance::Source => event.disturbance.to_string(),
    };
    let sizeless = matches!(event.disturbance, Disturbance::Machine | Disturbance::Source);
    let ns = (!sizeless).then_some((event.ns, event.ns));
    let kind = event.disturbance.name();
    ClockEvent { clock: "counter".into(), kind, from, until, ns, what }
}

fn set(clock: ForeignClock, step: &Step, place: impl Fn(Span) -> Place) -> ClockEvent {
    let Place { from, until } = place(step.within);
    let Measured { ns, err_ns } = Measured::between(step.ns.0, step.ns.1);
    let name = match clock {
        ForeignClock::Realtime => "CLOCK_REALTIME".into(),
        ForeignClock::Monotonic => "CLOCK_MONOTONIC".into(),
        ForeignClock::Phc(number) => format!("/dev/ptp{number}"),
    };
    let way = if ns < 0 { "back" } else { "forward" };
    let what = format!(
        "its {name} was set {way} by {:.3} ms ± {:.1} µs; no event is stamped by it, so none moved",
        ns.unsigned_abs() as f64 * 1e-6,
        err_ns as f64 * 1e-3,
    );
    ClockEvent { clock: clock.to_string(), kind: "set", from, until, ns: Some(step.ns), what }
}

#[cfg(test)]
pub(crate) mod tests {
    use loopscope_time::{Epoch, Knot};
    use proptest::prelude::*;

    use super::*;

    const HZ: u64 = 2_000_000_000;
    pub(crate) const EPOCH: i64 = 1_780_000_000_000_000_000;
    /// Begin of the run, on every counter and in global time.
    pub(crate) const BEGIN_NS: i64 = 500_000_000_000;

    fn frequency() -> Frequency {
        Frequency::from_hz(HZ).unwrap()
    }

    fn counter(ns: i64) -> Counter {
        Counter(ns.cast_unsigned() * (HZ / 1_000_000_000))
    }

    /// A host whose counter shows global time, its clocks read ten times a second for ten seconds;
    /// `ahead` is what its `CLOCK_REALTIME` is ahead of global time by, after so many nanoseconds.
    pub(crate) fn host(late_ns: i64, map: ClockMap, ahead: impl Fn(i64) -> i64) -> HostClock {
        let read = |i: i64| {
            let since = i * 100_000_000 + late_ns;
            let at = Span { lo: counter(BEGIN_NS + since), hi: counter(BEGIN_NS + since + 60) };
            let shown = BEGIN_NS + since + 30;
            let anchor = |clock, ns| Anchor { clock, ns, at };
            [
                anchor(ForeignClock::Realtime, EPOCH + shown + ahead(since)),
                anchor(ForeignClock::Monotonic, shown),
            ]
        };
        HostClock {
            map,
            exchanges: 0,
            rejected: 0,
            disturbances: Vec::new(),
            unbelievable_ppm: None,
            frequency: frequency(),
            ambiguous: 0,
            torn_bytes: 0,
            anchors: (0..100).flat_map(read).collect(),
            counter_events: Vec::new(),
        }
    }

    fn exact() -> ClockMap {
        ClockMap::reference(frequency(), counter(BEGIN_NS))
    }

    /// A map that is off by `error_ns` and says so.
    pub(crate) fn off_by(error_ns: f64, width_ns: f64) -> ClockMap {
        let knot = |ns: i64| Knot {
            counter: counter(BEGIN_NS + ns),
            offset_ns: ns as f64 + error_ns,
            err_ns: width_ns,
            calibrated_ns: width_ns,
        };
        let knots = vec![knot(0), knot(20_000_000_000)];
        ClockMap::new(GlobalNs(BEGIN_NS), knots, 0.5, 0.0).unwrap()
    }

    fn offsets(readings: &[Reading]) -> Vec<Option<Measured>> {
        let of = readings.iter().filter(|r| r.clock == ForeignClock::Realtime);
        of.map(|r| r.offset).collect()
    }

    proptest! {
        /// The true offset is inside its error, however far the map is off within its width, and
        /// so is what the clock gained.
        #[test]
        fn the_true_offset_is_inside(
            late_ns in 0i64..99_000_000, width in 1.0..50_000.0f64, part in -1.0..1.0f64,
            ahead_ns in -1i64 << 40..1 << 40, ppm in -200i64..200,
        ) {
            let reference = host(0, exact(), |_| 0);
            let truth = |since: i64| ahead_ns + since * ppm / 1_000_000;
            let own = host(late_ns, off_by(part * width, width), truth);
            let found = readings(&own, Some(&reference));
            let offsets = offsets(&found);
            // The last is after the reference's last.
            prop_assert!(offsets.len() >= 98, "{}", offsets.len());
            for (i, offset) in (0..).zip(offsets) {
                let Measured { ns, err_ns } = offset.unwrap();
                let error = ns - truth(i * 100_000_000 + late_ns);
                prop_assert!(error.abs() <= err_ns, "{error} ± {err_ns}");
                prop_assert!((err_ns as f64) < 1.01 * width + 400.0, "{err_ns} for {width}");
            }
            for reading in found.iter().filter(|r| r.clock == ForeignClock::Monotonic) {
                let gained = reading.gained.unwrap();
                prop_assert!(gained.ns.abs() <= gained.err_ns, "{gained:?}");
                prop_assert_eq!(reading.offset, None);
            }
        }
    }

    /// The reference is what the others are compared with; its own steps show in what it gained.
    #[test]
    fn the_reference_has_no_offset() {
        let reference =
            host(0, exact(), |since| if since > 5_000_000_000 { 22_000_000 } else { 0 });
        let found = readings(&reference, None);
        assert!(offsets(&found).iter().all(|o| *o == Some(Measured { ns: 0, err_ns: 0 })));
        let last = found.iter().rfind(|r| r.clock == ForeignClock::Realtime).unwrap();
        let gained = last.gained.unwrap();
        assert!((gained.ns - 22_000_000).abs() <= gained.err_ns && gained.err_ns < 100);
        // Only the readings of the other hosts about the step carry no information.
        let own = host(3_000_000, exact(), |_| 0);
        let offsets = offsets(&readings(&own, Some(&reference)));
        let unknown: Vec<usize> =
            (0..).zip(&offsets).filter(|(_, o)| o.is_none()).map(|(i, _)| i).collect();
        assert_eq!(unknown, [50]);
        for (i, truth) in [(49, 0), (51, -22_000_000)] {
            let Measured { ns, err_ns } = offsets[i].unwrap();
            assert!((ns - truth).abs() <= err_ns && err_ns < 200, "{ns} ± {err_ns}");
        }
    }

    #[test]
    fn a_step_is_told_with_its_time_and_size() {
        let own = host(
            0,
            off_by(0.0, 500.0),
            |since| {
                if since >= 4_050_000_000 { -22_000_000 } else { 0 }
            },
        );
        let found = events(&own);
        assert_eq!(found.len(), 1, "{found:?}");
        let event = &found[0];
        assert_eq!((event.clock.as_str(), event.kind), ("realtime", "set"));
        let (least, most) = event.ns.unwrap();
        assert!(least <= -22_000_000 && -22_000_000 <= most && most - least < 1000, "{event:?}");
        let (from, until) = (event.from.unwrap().0, event.until.unwrap().0);
        assert_eq!(from, BEGIN_NS + 4_000_000_000 - 501);
        assert_eq!(until, BEGIN_NS + 4_100_000_060 + 501);
        let what = event.to_string();
        assert!(what.starts_with("its CLOCK_REALTIME was set back by 22.000 ms ± 0."), "{what}");
    }

    /// Where global time is unknown, so is everything that is told in it.
    #[test]
    fn in_a_disturbance_nothing_is_said() {
        let epoch = |number, from, until, begin_ns: i64| Epoch {
            number,
            from,
            until,
            knots: vec![Knot {
                counter: counter(BEGIN_NS + begin_ns),
                offset_ns: begin_ns as f64,
                err_ns: 100.0,
                calibrated_ns: 100.0,
            }],
            ns_per_tick: 0.5,
            drift: 0.0,
        };
        let at = |ns: i64| counter(BEGIN_NS + ns);
        let epochs = vec![
            epoch(0, Counter(0), at(3_050_000_000), 0),
            epoch(1, at(3_350_000_000), Counter(u64::MAX), 4_000_000_000),
        ];
        let map = ClockMap::of_epochs(GlobalNs(BEGIN_NS), epochs).unwrap();
        let mut own = host(0, map, |_| 7);
        let within = Span { lo: at(3_100_000_000), hi: at(3_200_000_000) };
        own.counter_events.push(CounterEvent {
            disturbance: Disturbance::Suspended,
            within,
            after: within,
            ns: 300_000_000,
            processors: [0, 1],
        });
        own.disturbances.push(offline::Disturbance {
            from: at(3_050_000_000),
            until: at(3_350_000_000),
            cause: Cause::Step(9e5),
        });
        let reference = host(0, exact(), |_| 0);
        let offsets = offsets(&readings(&own, Some(&reference)));
        let unknown: Vec<usize> =
            (0..).zip(&offsets).filter(|(_, o)| o.is_none()).map(|(i, _)| i).collect();
        assert_eq!(unknown, [31, 32, 33]);
        let told = events(&own);
        let of = |e: &ClockEvent| (e.kind, e.from.map(|f| f.0 - BEGIN_NS), e.ns);
        assert_eq!(of(&told[0]), ("step", Some(3_050_000_000 - 101), None));
        assert_eq!(of(&told[1]), ("suspended", None, Some((300_000_000, 300_000_000))));
    }
}
