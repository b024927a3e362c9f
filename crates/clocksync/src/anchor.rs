//! Readings of other people's clocks against the counter, so that their stamps can be mapped.

use std::fmt;
use std::str::FromStr;

use nix::time::ClockId;

use crate::Span;
use crate::phc::Phc;
use crate::stamp::{Placer, bracketed};

/// Tries for a reading that nothing interrupts.
const TRIES: usize = 4;

/// A clock that is not loopscope's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ForeignClock {
    /// `CLOCK_REALTIME`.
    Realtime,
    /// `CLOCK_MONOTONIC`.
    Monotonic,
    /// The clock of a network interface, `/dev/ptpN`.
    Phc(u32),
}

impl fmt::Display for ForeignClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ForeignClock::Realtime => f.write_str("realtime"),
            ForeignClock::Monotonic => f.write_str("monotonic"),
            ForeignClock::Phc(number) => write!(f, "ptp{number}"),
        }
    }
}

/// No clock of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no clock: realtime, monotonic, ptp0, ptp1, …")]
pub struct NoClock(String);

impl FromStr for ForeignClock {
    type Err = NoClock;

    fn from_str(text: &str) -> Result<ForeignClock, NoClock> {
        match text {
            "realtime" => Ok(ForeignClock::Realtime),
            "monotonic" => Ok(ForeignClock::Monotonic),
            _ => {
                let number = text.strip_prefix("ptp").and_then(|number| number.parse().ok());
                number.map(ForeignClock::Phc).ok_or_else(|| NoClock(text.into()))
            }
        }
    }
}

/// What a clock showed, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The clock that was read.
    pub clock: ForeignClock,
    /// Nanoseconds of its epoch, cut to whole ones.
    pub ns: i64,
    /// The counter meanwhile.
    pub at: Span,
}

/// The clocks of this machine that can be read.
#[derive(Debug)]
pub struct ForeignClocks {
    phcs: Vec<Phc>,
}

impl ForeignClocks {
    /// The kernel's two, and each `/dev/ptp*` that may be opened.
    pub fn open() -> ForeignClocks {
        ForeignClocks { phcs: Phc::all() }
    }

    /// Reads all; `kernel` places `CLOCK_REALTIME` on the counter.
    pub fn read(&mut self, kernel: &mut Placer) -> Vec<Anchor> {
        let basic = [
            (ForeignClock::Realtime, ClockId::CLOCK_REALTIME),
            (ForeignClock::Monotonic, ClockId::CLOCK_MONOTONIC),
        ];
        let basic = basic.into_iter().filter_map(|(clock, id)| {
            let tries = (0..TRIES).map(|_| bracketed(id));
            tries.min_by_key(|(_, at)| at.width()).map(|(ns, at)| Anchor { clock, ns, at })
        });
        let mut anchors: Vec<Anchor> = basic.collect();
        for phc in &mut self.phcs {
            let clock = ForeignClock::Phc(phc.number());
            let reading = phc.read(kernel);
            anchors.extend(reading.map(|r| Anchor { clock, ns: r.clock.0, at: r.at }));
        }
        anchors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_log() {
        for clock in [ForeignClock::Realtime, ForeignClock::Monotonic, ForeignClock::Phc(12)] {
            assert_eq!(clock.to_string().parse(), Ok(clock));
        }
        assert!("ptp".parse::<ForeignClock>().is_err());
        assert!("boottime".parse::<ForeignClock>().unwrap_err().to_string().contains("boottime"));
    }
}
