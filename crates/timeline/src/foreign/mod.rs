//! What other tools recorded on a run's hosts, on the run's time line: `schema/foreign.md`.
//!
//! Traces of CTF go the way of an import ([`crate::import`]), with other columns for all tables and
//! with stamps that are placed; damage costs the rest of its stream and nothing else. Captures of
//! packets have a table of their own.

mod capture;
mod frame;
mod packet;
pub(crate) mod stamps;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::import::find::{self, Trace};
use crate::import::frame::FileOf;
use crate::import::table::Tables;
use crate::import::{ImportError, Lost, index, io, merge};
use crate::source::Progress;
use stamps::Stamps;
pub use stamps::{Clocks, Place};

/// What another tool recorded on a host.
#[derive(Clone)]
pub struct Source {
    /// The host.
    pub host: String,
    /// What recorded it: events of processes that are not known are this one's.
    pub process: String,
    /// A directory of CTF traces, or a capture file.
    pub path: PathBuf,
    /// Its name in summaries and problems.
    pub name: String,
    /// Name of the host's clock that made its stamps, if the source does not name it.
    pub clock: Option<String>,
    /// The host's clocks that were read.
    pub clocks: Clocks,
    /// The boot of the host that the run was in.
    pub boot: Option<[u8; 16]>,
    /// The host's processes by number.
    pub processes: HashMap<u32, String>,
}

/// What came of a [`Source`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceSummary {
    /// The host.
    pub host: String,
    /// What recorded it.
    pub process: String,
    /// The source's name.
    pub source: String,
    /// `ctf` or `pcap`; null where it cannot be told.
    pub kind: Option<&'static str>,
    /// The clock of its stamps; null where it was refused.
    pub clock: Option<String>,
    /// Rows in tables.
    pub events: u64,
    /// Events whose maximum error is unknown.
    pub unknown: u64,
    /// Global time of the first row.
    pub from_ts: Option<i64>,
    /// And of the last.
    pub until_ts: Option<i64>,
    /// What the tool says that it lost.
    pub lost: Lost,
    /// Whether all that it recorded was read.
    pub whole: bool,
    /// The tables that have rows of it.
    pub tables: Vec<String>,
    /// What a reader of them has to know.
    pub problems: Vec<String>,
}

impl SourceSummary {
    fn of(source: &Source) -> SourceSummary {
        SourceSummary {
            host: source.host.clone(),
            process: source.process.clone(),
            source: source.name.clone(),
            kind: None,
            clock: None,
            events: 0,
            unknown: 0,
            from_ts: None,
            until_ts: None,
            lost: Lost::default(),
            whole: true,
            tables: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Part of it, or all, was not read.
    fn broken(&mut self, what: impl Into<String>) {
        self.whole = false;
        self.problems.push(what.into());
    }
}

/// Reads the sources and adds their tables to those in `dir`, by names that are not `own` either:
/// of tables (group, name) that are, or will be, elsewhere. What is wrong with a source is in its
/// summary. `progress` is told of bytes, anew in each pass over them.
pub fn add(
    sources: &[Source],
    own: &BTreeSet<(String, String)>,
    dir: &Path,
    progress: &mut Progress,
) -> Result<Vec<SourceSummary>, ImportError> {
    let mut summaries: Vec<SourceSummary> = sources.iter().map(SourceSummary::of).collect();
    let mut taken = tables_in(dir)?;
    taken.extend(own.iter().cloned());
    let mut traces = Vec::new();
    let mut captures = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let summary = &mut summaries[index];
        if source.path.is_dir() {
            summary.kind = Some("ctf");
            match traces_of(source, index) {
                Ok((clock, found)) => {
                    summary.clock = clock;
                    traces.extend(found);
                }
                Err(what) => summary.broken(what),
            }
        } else {
            match capture::Capture::open(source, index, summary) {
                Ok(capture) => captures.push(capture),
                Err(what) => summary.broken(what),
            }
        }
    }
    add_traces(sources, &traces, &taken, dir, &mut summaries, progress)?;
    taken.extend(tables_in(dir)?);
    capture::add(sources, captures, &taken, dir, &mut summaries, progress)?;
    for summary in &mut summaries {
        let Lost { events, events_before, packets } = summary.lost;
        if summary.lost != Lost::default() {
            summary.problems.push(format!(
                "{events} events and {packets} packets were lost by its recorder, and up to \
                 {events_before} events before its first packets"
            ));
        }
        if summary.unknown > 0 {
            summary.problems.push(format!(
                "of {} events the time is unknown: its clock was set about then, or nobody read it \
                 before them or after them",
                summary.unknown
            ));
        }
    }
    Ok(summaries)
}

/// Whether a source can be placed; why not.
pub fn check(source: &Source) -> Result<(), String> {
    if source.path.is_dir() {
        return traces_of(source, 0).map(drop);
    }
    capture::Capture::open(source, 0, &mut SourceSummary::of(source)).map(drop)
}

/// Group and name of the tables that are there.
fn tables_in(dir: &Path) -> Result<BTreeSet<(String, String)>, ImportError> {
    let timeline = dir.join("timeline");
    let mut found = BTreeSet::new();
    if timeline.is_dir() {
        for (group, path) in names_in(&timeline)? {
            let tables = names_in(&path)?.into_iter();
            found.extend(tables.map(|(name, _)| (group.clone(), name)));
        }
    }
    Ok(found)
}

fn names_in(dir: &Path) -> Result<Vec<(String, PathBuf)>, ImportError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(io(dir))? {
        let entry = entry.map_err(io(dir))?;
        found.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    Ok(found)
}

/// The traces of a source, their stamps placed, and the clock of those; or why not.
fn traces_of(source: &Source, index: usize) -> Result<(Option<String>, Vec<Trace>), String> {
    let mut traces = find::below(&source.path).map_err(|error| without(source, &error))?;
    let mut names = BTreeSet::new();
    for trace in &mut traces {
        trace.source = index;
        let mut placed = Vec::new();
        for clock in &trace.layout.clocks {
            let Source { clock: said, clocks, host, boot, .. } = source;
            let (name, stamps) = Stamps::of(clock, said.as_deref(), clocks, host, *boot)
                .map_err(|error| format!("{}: {error}", trace.name))?;
            names.insert(name);
            placed.push(stamps);
        }
        trace.placed = Some(placed);
    }
    let names: Vec<&str> = names.into_iter().collect();
    Ok(((!names.is_empty()).then(|| names.join(", ")), traces))
}

/// An error as the summary has it: places are below the source's.
fn without(source: &Source, error: &ImportError) -> String {
    let place = source.path.display().to_string();
    let text = error.to_string();
    match text.strip_prefix(&place) {
        Some(rest) => rest.trim_start_matches(['/', ':', ' ']).to_owned(),
        None => text,
    }
}

fn add_traces(
    sources: &[Source],
    traces: &[Trace],
    taken: &BTreeSet<(String, String)>,
    dir: &Path,
    summaries: &mut [SourceSummary],
    progress: &mut Progress,
) -> Result<(), ImportError> {
    let mut broken: Vec<(usize, String)> = Vec::new();
    let mut fault = |trace: usize, error: ImportError| match error {
        ImportError::Stream { .. } | ImportError::Io { .. } => {
            let source = traces[trace].source;
            let what = without(&sources[source], &error);
            broken.push((source, format!("{what}; the rest of the stream is left out")));
            Ok(())
        }
        other => Err(other),
    };
    let index = index::index(traces, &mut fault, progress)?;
    let frame = frame::OnLine::new(sources, traces, FileOf::all(traces), taken);
    let mut tables = Tables::new(traces, Some(dir), &frame);
    merge::merge(traces, &index, &mut tables, &mut fault, progress)?;
    for (source, what) in broken {
        summaries[source].broken(what);
    }
    for (trace, what) in &index.problems {
        summaries[traces[*trace].source].problems.push(what.clone());
    }
    for (trace, loss) in index.losses(traces) {
        summaries[traces[trace].source].lost += loss.lost;
    }
    for (trace, of) in traces.iter().enumerate() {
        let summary = &mut summaries[of.source];
        summary.tables.extend(tables.of_trace(trace));
        summary.tables.sort();
        summary.tables.dedup();
    }
    let seen = tables.seen();
    let (_, problems) = tables.finish()?;
    for (trace, seen) in traces.iter().zip(seen) {
        let summary = &mut summaries[trace.source];
        summary.events += seen.events;
        summary.unknown += seen.unknown;
        summary.from_ts = [summary.from_ts, seen.from].into_iter().flatten().min();
        summary.until_ts = summary.until_ts.max(seen.until);
    }
    // What is odd about the tables concerns all that are in them.
    if let Some(trace) = traces.first() {
        summaries[trace.source].problems.extend(problems);
    }
    Ok(())
}
