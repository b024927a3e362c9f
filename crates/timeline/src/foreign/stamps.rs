//! Finds the host's clock that made a trace's stamps, and their place on the time line.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use loopscope_ctf::format_uuid;
use loopscope_ctf::tsdl::Clock;
use loopscope_time::{Bound, GlobalNs};

/// Global time and hard maximum error of a stamp that is between two nanoseconds of a clock's own,
/// both cut to whole ones. Of different stamps the later ones' times are not earlier, but for their
/// maximum errors.
pub type Place = Arc<dyn Fn(i64, i64) -> (GlobalNs, Bound) + Send + Sync>;

/// A host's clocks that were read during the run, by the names of `tables/foreign_clocks.parquet`.
pub type Clocks = BTreeMap<String, Place>;

/// The clock whose origin is the boot: its stamps count, whatever offset metadata gives it.
const MONOTONIC: &str = "monotonic";

/// Why stamps cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoClock {
    #[error(
        "its clock {name:?} is none that was read on {host}: {read}. If it is one of them under \
         another name, say which with `clock`"
    )]
    Unknown { name: String, host: String, read: String },
    #[error("the clock {name:?} was not read on {host} during the run: {read}")]
    Unread { name: String, host: String, read: String },
    #[error("its clock is {own:?}, not {said:?} as `clock` says")]
    Other { own: String, said: String },
    #[error("it was recorded in another boot ({0}) than the run ({1})")]
    Boot(String, String),
}

/// The stamps of a trace's clock.
#[derive(Clone)]
pub(crate) struct Stamps {
    place: Place,
    /// Without the offset to the epoch, where stamps count without it.
    clock: Clock,
}

impl fmt::Debug for Stamps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stamps").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// The clock of this name, of those that were read on `host`.
pub(crate) fn named<'c>(
    name: &str,
    clocks: &'c Clocks,
    host: &str,
) -> Result<(&'c str, &'c Place), NoClock> {
    let found = clocks.get_key_value(name);
    found.map(|(name, place)| (name.as_str(), place)).ok_or_else(|| NoClock::Unread {
        name: name.into(),
        host: host.into(),
        read: read(clocks),
    })
}

fn read(clocks: &Clocks) -> String {
    let names: Vec<&str> = clocks.keys().map(String::as_str).collect();
    if names.is_empty() { "none was".into() } else { format!("read were {}", names.join(", ")) }
}

/// Whether these are the names of clocks that loopscope reads: then they mean those.
fn is_read(name: &str) -> bool {
    let number = name.strip_prefix("ptp").unwrap_or_default();
    ["monotonic", "realtime"].contains(&name)
        || (!number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
}

impl Stamps {
    /// The clock `clock` that metadata declares, or the host's clock named `said`, with its name.
    /// `boot` is that of the run.
    pub fn of<'c>(
        clock: &Clock,
        said: Option<&str>,
        clocks: &'c Clocks,
        host: &str,
        boot: Option<[u8; 16]>,
    ) -> Result<(&'c str, Stamps), NoClock> {
        if let Some(said) = said
            && is_read(&clock.name)
            && clock.name != said
        {
            return Err(NoClock::Other { own: clock.name.clone(), said: said.into() });
        }
        let (name, place) = match said {
            Some(said) => named(said, clocks, host)?,
            None if is_read(&clock.name) => named(&clock.name, clocks, host)?,
            None => {
                let (name, host) = (clock.name.clone(), host.to_owned());
                return Err(NoClock::Unknown { name, host, read: read(clocks) });
            }
        };
        // LTTng's clock has the boot's id for its UUID.
        let monotonic = name == MONOTONIC;
        if let (true, Some(own), Some(boot)) =
            (monotonic && clock.name == MONOTONIC, clock.uuid, boot)
            && own != boot
        {
            return Err(NoClock::Boot(format_uuid(&own), format_uuid(&boot)));
        }
        let mut clock = clock.clone();
        if monotonic {
            (clock.offset_s, clock.offset) = (0, 0);
        }
        Ok((name, Stamps { place: place.clone(), clock }))
    }

    /// Global time of a stamp and its maximum error.
    pub fn global(&self, stamp: u64) -> (GlobalNs, Bound) {
        let Some((from, until)) = self.clock.span(stamp) else {
            return ((self.place)(i64::MAX, i64::MAX).0, Bound::UNKNOWN);
        };
        (self.place)(from, until)
    }
}

#[cfg(test)]
mod tests {
    use loopscope_ctf::tsdl::Place as At;

    use super::*;

    fn clock(name: &str, frequency: u64, uuid: Option<[u8; 16]>) -> Clock {
        let (offset_s, offset, absolute) = (1_700_000_000, 5, false);
        let place = At::default();
        Clock { name: name.into(), uuid, frequency, offset_s, offset, absolute, place }
    }

    /// What was asked of the place, as it was asked.
    fn clocks() -> Clocks {
        let place: Place =
            Arc::new(|from, until| (GlobalNs(from), Bound::of_rounded((until - from) as f64)));
        ["monotonic", "realtime", "ptp1"].map(|name| (name.to_owned(), place.clone())).into()
    }

    #[test]
    fn monotonic_stamps_count_without_the_offset_and_others_with_it() {
        let read = clocks();
        let global = |clock: Clock, said| {
            let (name, stamps) = Stamps::of(&clock, said, &read, "h1", None).unwrap();
            let (ts, bound) = stamps.global(1_000_003);
            (name, ts.0, bound.ns())
        };
        let second = 1_700_000_000_000_000_000;
        let ghz = 1_000_000_000;
        assert_eq!(global(clock("monotonic", ghz, None), None), ("monotonic", 1_000_003, 1));
        assert_eq!(global(clock("realtime", ghz, None), None), ("realtime", second + 1_000_008, 1));
        assert_eq!(global(clock("mine", ghz, None), Some("ptp1")).1, second + 1_000_008);
        assert_eq!(global(clock("mine", ghz, None), Some("monotonic")).1, 1_000_003);
        // A stamp of a coarse clock is all of its tick's time, one of a fine clock is rounded.
        assert_eq!(global(clock("monotonic", 1_000_000, None), None).1, 1_000_003_000);
        assert_eq!(global(clock("monotonic", 1_000_000, None), None).2, 1000);
        assert_eq!(global(clock("monotonic", 4 * ghz, None), None), ("monotonic", 250_000, 1));
        // A rate of nearly 10⁹/3 Hz: from 3 000 012.000012 ns to 3 000 015.000015.
        let third = clock("monotonic", 333_333_000, None);
        assert_eq!(global(third, None), ("monotonic", 3_000_012, 4));
    }

    #[test]
    fn what_cannot_be_tied_to_a_clock_is_refused_with_the_reason() {
        let mut read = clocks();
        let why = |clock: Clock, said, read: &Clocks, boot| {
            Stamps::of(&clock, said, read, "h1", boot).unwrap_err().to_string()
        };
        let ghz = 1_000_000_000;
        let unknown = why(clock("mine", ghz, None), None, &read, None);
        assert!(unknown.contains("\"mine\"") && unknown.contains("monotonic, ptp1, realtime"));
        let other = why(clock("monotonic", ghz, None), Some("realtime"), &read, None);
        assert!(other.contains("\"monotonic\", not \"realtime\""), "{other}");
        let boot = why(clock("monotonic", ghz, Some([1; 16])), None, &read, Some([2; 16]));
        assert!(boot.contains("another boot (01010101-"), "{boot}");
        assert!(
            Stamps::of(&clock("monotonic", ghz, Some([1; 16])), None, &read, "h1", None).is_ok()
        );
        read.clear();
        let unread = why(clock("realtime", ghz, None), None, &read, None);
        assert!(unread.contains("on h1 during the run: none was"), "{unread}");
    }
}
