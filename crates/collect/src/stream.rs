//! What to record: streams, and the `streams` file that tells programs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use loopscope_time::Frequency;
use loopscope_trace::layout::STREAMS;
use serde::{Deserialize, Serialize};

use crate::{Error, Predicate};

/// The stream that [`StreamSpec::default`] describes, whose output lies where a recording with one
/// stream has it.
pub const MAIN: &str = "main";
/// What programs read in their runtime directory.
pub const FILE: &str = "streams";

/// What happens when a ring is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The newest hits are dropped, and counted.
    #[default]
    Normal,
    /// The oldest records are overwritten, and counted; a trigger writes what is there.
    FlightRecorder,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Normal => "normal",
            Kind::FlightRecorder => "flight-recorder",
        }
    }
}

/// A shell pattern (fnmatch(3) without flags) that is matched against `group:name`, and what it
/// says of the entities that it matches. The last one that matches decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Choice {
    /// Record them.
    Enable(String),
    /// Leave them out.
    Disable(String),
}

impl Choice {
    /// A pattern as people write it: with `!` before it, it leaves out.
    pub fn parse(pattern: &str) -> Choice {
        match pattern.strip_prefix('!') {
            Some(glob) => Choice::Disable(glob.to_owned()),
            None => Choice::Enable(pattern.to_owned()),
        }
    }
}

/// A filter for the hits of the entities that a pattern matches. What is kept out is neither
/// emitted nor dropped, but counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Pattern.
    pub glob: String,
    /// Must hold; that of every filter that matches.
    pub condition: Option<Predicate>,
    /// One in so many; that of the last filter that matches and has one.
    pub every: Option<u64>,
    /// At most so many in each second of the counter; that of the last filter that matches and has
    /// one.
    pub rate: Option<u64>,
}

/// A stream: its entities, buffers, filters and triggers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSpec {
    /// Names its output; letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Normal or flight recorder.
    pub kind: Kind,
    /// Patterns that choose its entities; one that no pattern matches is not recorded.
    pub entities: Vec<Choice>,
    /// Size of a sub-buffer in bytes, a multiple of 8.
    pub subbuffer: u32,
    /// Number of sub-buffers in a ring.
    pub subbuffers: u32,
    /// Rings that are made ahead, so that a thread's first hit finds one.
    pub spares: u32,
    /// How long a flight recorder goes on after its trigger.
    pub post: Duration,
    /// Filters for the entities' hits.
    pub filters: Vec<Filter>,
    /// Patterns with predicates: a hit of which one holds triggers a flight recorder.
    pub triggers: Vec<(String, Predicate)>,
    /// Whether a flight recorder is triggered by the recorder's SIGUSR1.
    pub on_signal: bool,
    /// Whether a flight recorder's rings are written when their process or the recording ends.
    pub on_death: bool,
}

const SUBBUFFER: RangeInclusive<u32> = 256..=1 << 30;
const SUBBUFFERS: RangeInclusive<u32> = 2..=65536;
/// A place for initialisation, one that is written to, and one that is whole.
const LEAST_FLIGHT_RECORDER: u32 = 3;
const MOST_SPARES: u32 = 512;
const LONGEST_GLOB: usize = 1000;
const LONGEST_NAME: usize = 64;

impl Default for StreamSpec {
    /// Every entity, 16 sub-buffers of 256 KiB in each ring, two rings ahead.
    fn default() -> StreamSpec {
        StreamSpec {
            name: MAIN.into(),
            kind: Kind::Normal,
            entities: vec![Choice::Enable("*".into())],
            subbuffer: 256 << 10,
            subbuffers: 16,
            spares: 2,
            post: Duration::ZERO,
            filters: Vec::new(),
            triggers: Vec::new(),
            on_signal: true,
            on_death: true,
        }
    }
}

impl StreamSpec {
    /// The default, with these patterns instead of every entity.
    pub fn of(patterns: impl IntoIterator<Item = String>) -> StreamSpec {
        let entities = patterns.into_iter().map(Choice::Enable).collect();
        StreamSpec { entities, ..StreamSpec::default() }
    }

    /// Checks all that programs would not understand.
    pub fn validate(&self) -> Result<(), Error> {
        let name = &self.name;
        let wrong = |what: String| Err(Error::Stream { name: name.clone(), what });
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let length = 1..=LONGEST_NAME;
        if !length.contains(&name.len()) || name.starts_with('.') || !name.chars().all(plain) {
            return wrong(
                "a name is 1 to 64 letters, digits, `.`, `_` or `-`, not `.` first".into(),
            );
        }
        if !SUBBUFFER.contains(&self.subbuffer) || !self.subbuffer.is_multiple_of(8) {
            let size = self.subbuffer;
            return wrong(format!(
                "a sub-buffer has from 256 B to 1 GiB in steps of 8 B, not {size} B"
            ));
        }
        if !SUBBUFFERS.contains(&self.subbuffers) {
            return wrong(format!("a ring has 2 to 65536 sub-buffers, not {}", self.subbuffers));
        }
        if self.kind == Kind::FlightRecorder && self.subbuffers < LEAST_FLIGHT_RECORDER {
            let count = self.subbuffers;
            return wrong(format!(
                "a flight recorder's ring has at least 3 sub-buffers, not {count}: the first is \
                 kept for good"
            ));
        }
        if self.spares > MOST_SPARES {
            return wrong(format!("at most 512 rings are made ahead, not {}", self.spares));
        }
        if self.kind == Kind::Normal && !self.triggers.is_empty() {
            return wrong("only a flight recorder has triggers".into());
        }
        let chosen =
            self.entities.iter().map(|(Choice::Enable(glob) | Choice::Disable(glob))| glob);
        let filtered = self.filters.iter().map(|filter| &filter.glob);
        let triggering = self.triggers.iter().map(|(glob, _)| glob);
        for glob in chosen.chain(filtered).chain(triggering) {
            let unfit = |c: char| c.is_whitespace() || c.is_control();
            if glob.is_empty() || glob.len() > LONGEST_GLOB || glob.contains(unfit) {
                return wrong(format!(
                    "the pattern {glob:?} is empty, has spaces or is longer than 1000 bytes"
                ));
            }
        }
        for filter in &self.filters {
            if filter.every == Some(0) {
                return wrong(format!("one in 0 of {}: the least is one in 1", filter.glob));
            }
        }
        Ok(())
    }

    fn write(&self, slot: usize, frequency: Frequency, text: &mut String) {
        // Infallible: writing to a String.
        let _ = write!(
            text,
            "stream {slot} {} {}\nsubbuffer {}\nsubbuffers {}\nspares {}\npost {}\n",
            self.name,
            self.kind.name(),
            self.subbuffer,
            self.subbuffers,
            self.spares,
            ticks(self.post, frequency)
        );
        for choice in &self.entities {
            let _ = match choice {
                Choice::Enable(glob) => writeln!(text, "enable {glob}"),
                Choice::Disable(glob) => writeln!(text, "disable {glob}"),
            };
        }
        for filter in &self.filters {
            let Filter { glob, condition, every, rate } = filter;
            if let Some(predicate) = condition {
                let _ = writeln!(text, "where {glob} {}", predicate.rpn());
            }
            if let Some(every) = every {
                let _ = writeln!(text, "every {glob} {every}");
            }
            if let Some(rate) = rate {
                let _ = writeln!(text, "rate {glob} {rate}");
            }
        }
        for (glob, predicate) in &self.triggers {
            let _ = writeln!(text, "trigger {glob} {}", predicate.rpn());
        }
    }
}

/// A duration in ticks, rounded down.
pub(crate) fn ticks(duration: Duration, frequency: Frequency) -> u64 {
    let ticks = duration.as_nanos() * u128::from(frequency.hz()) / 1_000_000_000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// Checks streams that are to be recorded together.
pub fn validate(streams: &[StreamSpec]) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    for stream in streams {
        stream.validate()?;
        if !names.insert(&stream.name) {
            let what = "there is another stream of this name".into();
            return Err(Error::Stream { name: stream.name.clone(), what });
        }
    }
    if streams.len() > STREAMS {
        let name = streams[STREAMS].name.clone();
        let what = format!("there are {} streams, at most {STREAMS} go together", streams.len());
        return Err(Error::Stream { name, what });
    }
    Ok(())
}

/// The text of the `streams` file; each stream in the slot that goes with it.
pub(crate) fn text<'a>(
    streams: impl IntoIterator<Item = (usize, &'a StreamSpec)>,
    frequency: Frequency,
) -> String {
    let mut text = format!("frequency {}\n", frequency.hz());
    for (slot, stream) in streams {
        stream.write(slot, frequency, &mut text);
    }
    text
}

/// Writes the `streams` file of a runtime directory, replacing one that is there. Programs read it
/// when they start and when they load instrumented libraries.
pub fn write(
    streams: &[StreamSpec],
    runtime_dir: &Path,
    frequency: Frequency,
) -> Result<(), Error> {
    validate(streams)?;
    let path = runtime_dir.join(FILE);
    let fresh = runtime_dir.join(".streams");
    std::fs::write(&fresh, text(streams.iter().enumerate(), frequency))
        .and_then(|()| std::fs::rename(&fresh, &path))
        .map_err(Error::file("write", &path))
}
