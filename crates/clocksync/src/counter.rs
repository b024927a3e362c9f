//! Whether the counter can be believed: at the start by what the machine says of it, during a run
//! by what other clocks say and by what two processors say of each other.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use loopscope_time::source::CounterKind::{Cycles, MonotonicRaw};
use loopscope_time::source::{Fault, counter_kind, fault_of_cycles};
use loopscope_time::{Counter, Frequency};
use nix::sched::sched_getcpu;
use nix::time::ClockId;

use crate::Span;
use crate::stamp::{bracketed, nanoseconds_of};
use crate::vmclock::VmClock;

/// A counter that does not tell time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CounterError {
    /// The processor does not promise a constant rate.
    #[error(
        "the processor's counter is not invariant: /proc/cpuinfo does not list nonstop_tsc, so its \
         rate may change or it may stop; use the counter {MonotonicRaw}, or let a virtual machine \
         have the flags of its processor"
    )]
    NotInvariant,
    /// The kernel has found it wanting.
    #[error(
        "the kernel keeps time by {0}, not by the processor's counter, and may have found that \
         unstable: look for \"tsc\" in the kernel's log, and set {SOURCE} to tsc if it is listed as \
         available; or use the counter {MonotonicRaw}"
    )]
    ClockSource(String),
    /// Two processors could not be compared.
    #[error(
        "the counters of processors {} and {} could not be compared: within a second the two never \
         ran loopscope at the same time; take load off them, and real-time programs first",
        .0[0], .0[1]
    )]
    Busy([u32; 2]),
    /// The processors do not agree.
    #[error(
        "the counters of processors {} and {} differ by more than {ns} ns, and {limit_ns} ns is \
         allowed: times on this machine would be wrong by that; keep programs and loopscope on \
         processors that agree (taskset), or use another machine",
        .processors[0], .processors[1]
    )]
    Processors {
        /// The two processors.
        processors: [u32; 2],
        /// By how much, at least.
        ns: u64,
        /// The largest difference that is allowed.
        limit_ns: u64,
    },
}

/// What keeps this machine's cycles from telling time, whichever counter is in use.
pub fn mistrust_of_cycles() -> Option<CounterError> {
    fault_of_cycles().map(|fault| match fault {
        Fault::NotInvariant => CounterError::NotInvariant,
        Fault::Distrusted => CounterError::ClockSource(ClockSource::open().name()),
    })
}

/// Refuses cycles that do not tell time; `CLOCK_MONOTONIC_RAW` always does.
pub(crate) fn require_sound() -> Result<(), CounterError> {
    match counter_kind() {
        MonotonicRaw => Ok(()),
        Cycles => mistrust_of_cycles().map_or(Ok(()), Err),
    }
}

const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// What the kernel keeps time by, as it says in [`SOURCE`].
#[derive(Debug)]
pub struct ClockSource(Option<File>);

/// The name of a clock source, filled up with zeros (`CS_NAME_LEN` of the kernel).
type SourceName = [u8; 32];

impl ClockSource {
    /// Opens the file; where there is none nothing is known.
    pub fn open() -> ClockSource {
        ClockSource(File::open(SOURCE).ok())
    }

    fn bytes(&self) -> Option<SourceName> {
        let mut name = SourceName::default();
        self.0.as_ref()?.read_at(&mut name, 0).ok()?;
        Some(name)
    }

    /// The present name, for people.
    pub fn name(&self) -> String {
        let name = self.bytes().map(|name| String::from_utf8_lossy(&name).into_owned());
        name.map_or("something unknown".into(), |name| name.trim_end_matches(['\0', '\n']).into())
    }
}

/// What happened to the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// The machine slept: `CLOCK_BOOTTIME` went on without `CLOCK_MONOTONIC`.
    Suspended,
    /// It moved against `CLOCK_MONOTONIC_RAW`, on one processor.
    Stepped,
    /// It moved against `CLOCK_MONOTONIC_RAW` between two processors: theirs differ.
    Processors,
    /// The hypervisor says that the virtual machine was moved or set back ([`crate::vmclock`]).
    Machine,
    /// The kernel keeps time by something else from now on: it has found the old source unstable,
    /// or was told to. `CLOCK_MONOTONIC_RAW` has another rate then.
    Source,
}

impl Disturbance {
    /// All of them.
    pub const ALL: [Disturbance; 5] = [
        Disturbance::Suspended,
        Disturbance::Stepped,
        Disturbance::Processors,
        Disturbance::Machine,
        Disturbance::Source,
    ];

    /// The name in the log.
    pub fn name(self) -> &'static str {
        match self {
            Disturbance::Suspended => "suspended",
            Disturbance::Stepped => "stepped",
            Disturbance::Processors => "processors",
            Disturbance::Machine => "machine",
            Disturbance::Source => "source",
        }
    }
}

impl std::fmt::Display for Disturbance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Disturbance::Suspended => "the machine slept",
            Disturbance::Stepped => "the counter moved against the kernel's clock",
            Disturbance::Processors => "the counters of two processors differ",
            Disturbance::Machine => "the virtual machine was moved or set back to a snapshot",
            Disturbance::Source => "the kernel keeps time by another clock source",
        })
    }
}

/// A disturbance, when, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterEvent {
    /// What.
    pub disturbance: Disturbance,
    /// Within this time. Of a counter that began anew: from what it is now to what it was.
    pub within: Span,
    /// When it was noticed: before the end of `within` if the counter went back. A log has no more
    /// than that end.
    pub after: Span,
    /// How long the machine slept, or how far the counter went ahead; nanoseconds.
    pub ns: i64,
    /// The processors before and after.
    pub processors: [u32; 2],
}

/// What can be said of the counter at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// `CLOCK_MONOTONIC_RAW`, which nobody steers, in nanoseconds.
    pub raw: i64,
    /// When it was read.
    pub at: Span,
    /// Range of the time that the machine has slept since it was started, in nanoseconds.
    pub slept: (i64, i64),
    /// The processor that read.
    pub processor: u32,
    /// What the hypervisor says ([`VmClock::marker`]), where it says anything.
    pub marker: Option<u64>,
    /// What the kernel keeps time by, where it says so.
    pub source: Option<SourceName>,
}

impl Look {
    /// Looks now, several times: the narrowest look is the best.
    pub fn take(machine: Option<&VmClock>, source: &ClockSource) -> Look {
        let source = source.bytes();
        // One that is being written will be read by the next look.
        let marker = machine.and_then(|machine| machine.marker().ok());
        let one = || {
            let processor = sched_getcpu().unwrap_or_default() as u32;
            let before = nanoseconds_of(ClockId::CLOCK_MONOTONIC);
            let boot = nanoseconds_of(ClockId::CLOCK_BOOTTIME);
            let after = nanoseconds_of(ClockId::CLOCK_MONOTONIC);
            let (raw, at) = bracketed(ClockId::CLOCK_MONOTONIC_RAW);
            Look {
                raw,
                at,
                slept: (boot - after - 2, boot - before + 2),
                processor,
                marker,
                source,
            }
        };
        (0..4).map(|_| one()).min_by_key(|look| look.at.width()).expect("there are looks")
    }
}

/// Allowed drift of `CLOCK_MONOTONIC_RAW` against the counter: of another oscillator where the
/// kernel does not keep time by the counter itself.
const DRIFT: f64 = 500e-6;
/// Clocks are cut to whole nanoseconds.
const ROUNDING_NS: f64 = 4.0;
/// What passes for one and the same time asleep.
const ASLEEP_NS: i64 = 1_000_000;

/// Compares each look with the one before. A counter that is `CLOCK_MONOTONIC_RAW` itself cannot step
/// against it; its source, the machine's sleep and the hypervisor tell of what disturbs it.
#[derive(Debug)]
pub struct CounterWatch {
    frequency: Frequency,
    last: Look,
}

impl CounterWatch {
    /// Watches from `look` on.
    pub fn new(frequency: Frequency, look: Look) -> CounterWatch {
        CounterWatch { frequency, last: look }
    }

    /// What happened since the last look.
    pub fn see(&mut self, look: Look) -> Option<CounterEvent> {
        let mut last = std::mem::replace(&mut self.last, look);
        self.last.marker = look.marker.or(last.marker);
        let event = |disturbance, ns| {
            let within = Span { lo: last.at.lo.min(look.at.lo), hi: look.at.hi.max(last.at.hi) };
            let processors = [last.processor, look.processor];
            Some(CounterEvent { disturbance, within, after: look.at, ns, processors })
        };
        if let (Some(before), Some(now)) = (last.marker.take(), look.marker)
            && before != now
        {
            return event(Disturbance::Machine, 0);
        }
        self.last.source = look.source.or(last.source);
        if let (Some(before), Some(now)) = (last.source, look.source)
            && before != now
        {
            return event(Disturbance::Source, 0);
        }
        let slept = look.slept.0 - last.slept.1;
        if slept > ASLEEP_NS {
            return event(Disturbance::Suspended, slept);
        }
        let per_tick = self.frequency.ns_per_tick();
        let counted = ticks(last.at.lo, look.at.lo) * per_tick;
        let passed = (look.raw - last.raw) as f64;
        let brackets = (look.at.width() + last.at.width()) as f64 * per_tick;
        let ahead = counted - passed;
        if ahead.abs() <= passed.abs() * DRIFT + brackets + ROUNDING_NS {
            return None;
        }
        let same = look.processor == last.processor;
        event(if same { Disturbance::Stepped } else { Disturbance::Processors }, ahead as i64)
    }
}

fn ticks(from: Counter, to: Counter) -> f64 {
    to.ticks_since(from) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const HZ: u64 = 2_000_000_000;

    fn look(ns: i64, ahead_ns: i64, slept_ns: i64, processor: u32) -> Look {
        let ticks = (ns + ahead_ns).unsigned_abs() * 2;
        Look {
            raw: ns,
            at: Span { lo: Counter(ticks - 40), hi: Counter(ticks + 40) },
            slept: (slept_ns - 30, slept_ns + 30),
            processor,
            marker: None,
            source: Some(*b"tsc\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        }
    }

    fn seen(look_after: Look) -> Option<CounterEvent> {
        let begin = look(1_000_000_000, 0, 5_000, 0);
        CounterWatch::new(Frequency::from_hz(HZ).unwrap(), begin).see(look_after)
    }

    #[test]
    fn disturbances_are_told_apart_with_their_size() {
        // A tenth of a second later.
        assert_eq!(seen(look(1_100_000_000, 0, 5_000, 0)), None);
        assert_eq!(seen(look(1_100_000_000, 40_000, 5_000, 1)), None);
        let of = |event: Option<CounterEvent>| event.map(|e| (e.disturbance, e.ns / 1000));
        let stepped = seen(look(1_100_000_000, 60_000, 5_000, 0));
        assert_eq!(of(stepped), Some((Disturbance::Stepped, 60)));
        let within = stepped.unwrap().within;
        assert!(within.lo.0 <= 2_000_000_000 && within.hi.0 >= 2_200_120_000, "{within:?}");
        let other = seen(look(1_100_000_000, -60_000, 5_000, 1));
        assert_eq!(of(other), Some((Disturbance::Processors, -60)));
        let mut other_source = look(1_100_000_000, 0, 5_000, 0);
        other_source.source = Some([b'x'; 32]);
        assert_eq!(of(seen(other_source)), Some((Disturbance::Source, 0)));
        other_source.source = None;
        assert_eq!(seen(other_source), None, "nothing is known of it");
        let slept = seen(look(1_100_000_000, 0, 3_000_005_000, 0));
        assert_eq!(slept.map(|e| e.disturbance), Some(Disturbance::Suspended));
        assert!((slept.unwrap().ns - 3_000_000_000).abs() < 100);
    }

    #[test]
    fn this_machine_is_not_disturbed() {
        // The tests' other machines may be: what is asked is that looking costs no false alarm.
        let take = || Look::take(None, &ClockSource::open());
        let before = take();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let (begin, end) = (take(), take());
        assert!(begin.at.lo <= begin.at.hi && begin.at.hi <= end.at.lo);
        assert!(begin.raw <= end.raw && begin.slept.0 <= begin.slept.1);
        // A thread that is taken off the CPU between the two reads needs the right frequency, that
        // of this machine.
        let ticks = begin.at.lo.ticks_since(before.at.lo) as f64;
        let hz =
            Frequency::from_hz((ticks * 1e9 / (begin.raw - before.raw) as f64) as u64).unwrap();
        assert_eq!(CounterWatch::new(hz, begin).see(end).map(|e| e.disturbance), None);
    }
}
