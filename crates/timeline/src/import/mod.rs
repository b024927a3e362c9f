//! Any CTF 1.8 trace as tables: `schema/import.md`.
//!
//! Two passes over the streams, a packet at a time: the first finds the packets and counts what was
//! lost, the second decodes their events in the order of time, straight into columns.

pub(crate) mod cells;
pub(crate) mod find;
pub(crate) mod frame;
pub(crate) mod index;
pub(crate) mod merge;
pub(crate) mod output;
pub(crate) mod table;

use std::path::{Path, PathBuf};

use loopscope_ctf::decode::Fault;
use serde::Serialize;

use crate::error::BuildError;
use crate::source::Progress;

/// Why a trace was not imported. Nothing is left where the tables would have been.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A file or directory could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is no trace.
    #[error(
        "{0}: no trace: neither it nor a directory below it has a file `metadata`. Name the \
         directory that your tracer wrote"
    )]
    NoTrace(PathBuf),
    /// A metadata file breaks the specification.
    #[error("{path}: {source}")]
    Metadata {
        /// The metadata file.
        path: PathBuf,
        /// What is wrong with it.
        source: loopscope_ctf::ParseError,
    },
    /// A stream breaks the specification, or its metadata.
    #[error("{path}: in the packet at byte {packet}, at byte {byte}: {fault}")]
    Stream {
        /// The stream file.
        path: PathBuf,
        /// Where the packet begins.
        packet: u64,
        /// The place in the file.
        byte: u64,
        /// What is wrong there.
        fault: Fault,
    },
    /// Two traces' times cannot be compared.
    #[error(
        "{first} and {second} have clocks that nothing relates: neither are both absolute, nor have \
         they the same UUID. Import each by itself"
    )]
    Clocks {
        /// Metadata of the one.
        first: PathBuf,
        /// Metadata of the other.
        second: PathBuf,
    },
    /// The place for the tables is taken.
    #[error("{0} is there already and not empty: remove it, or name another directory")]
    Taken(PathBuf),
    /// The caller has cancelled through the progress callback.
    #[error("stopped")]
    Stopped,
    /// A table could not be made or written.
    #[error(transparent)]
    Table(#[from] BuildError),
}

impl From<arrow_schema::ArrowError> for ImportError {
    fn from(error: arrow_schema::ArrowError) -> ImportError {
        ImportError::Table(error.into())
    }
}

pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> ImportError {
    move |source| ImportError::Io { path: path.to_owned(), source }
}

/// What came in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImportSummary {
    /// The directory that was read.
    pub source: String,
    /// Where the tables are; null where only the summary was asked for.
    pub out: Option<String>,
    /// Number of them.
    pub events: u64,
    /// Time of the first event, if any has one.
    pub from_ns: Option<i64>,
    /// Time of the last one.
    pub until_ns: Option<i64>,
    /// What the tracers lost.
    pub lost: Lost,
    /// By name.
    pub tables: Vec<TableSummary>,
    /// By path.
    pub traces: Vec<TraceSummary>,
    /// The streams that lost something.
    pub losses: Vec<StreamLoss>,
    /// What a reader of the tables has to know.
    pub problems: Vec<String>,
}

/// What tracers say that they lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Events, between one packet of a stream and the next.
    pub events: u64,
    /// At most so many more, before or in the first packets of the streams.
    pub events_before: u64,
    /// Packets missing between those that are there.
    pub packets: u64,
}

impl std::ops::AddAssign for Lost {
    fn add_assign(&mut self, other: Lost) {
        self.events = self.events.saturating_add(other.events);
        self.events_before = self.events_before.saturating_add(other.events_before);
        self.packets = self.packets.saturating_add(other.packets);
    }
}

/// One table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableSummary {
    /// `group.name`, the names of its directories.
    pub table: String,
    /// The event's own name.
    pub event: String,
    /// Its rows.
    pub rows: u64,
    /// Time of the first one, if it has one.
    pub from_ns: Option<i64>,
    /// End of the last one.
    pub until_ns: Option<i64>,
}

/// One trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceSummary {
    /// Its directory, relative to the one that was read.
    pub path: String,
    /// Its UUID, if it has one.
    pub uuid: Option<String>,
    /// Its clocks' names.
    pub clocks: Vec<String>,
    /// Its stream files.
    pub streams: usize,
    /// Packets in them.
    pub packets: u64,
}

/// What one stream lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamLoss {
    /// The stream's first file, relative to the directory that was read.
    pub stream: String,
    /// What.
    #[serde(flatten)]
    pub lost: Lost,
}

/// Told of what is wrong with a trace (its index): an error where that is not to be borne.
pub(crate) type Faults<'a> = dyn FnMut(usize, ImportError) -> Result<(), ImportError> + 'a;

/// Reads the traces in `dir` and writes their tables to `out`; without it, only tells what is
/// there.
pub fn import(
    dir: &Path,
    out: Option<&Path>,
    progress: &mut Progress,
) -> Result<ImportSummary, ImportError> {
    let output = out.map(output::Output::new).transpose()?;
    let traces = find::traces(dir)?;
    let mut fault = |_: usize, error: ImportError| Err(error);
    let index = index::index(&traces, &mut fault, progress)?;
    let frame = frame::Plain { files: frame::FileOf::all(&traces) };
    let place = output.as_ref().map(output::Output::place);
    let mut tables = table::Tables::new(&traces, place, &frame);
    merge::merge(&traces, &index, &mut tables, &mut fault, progress)?;
    let summary = summary(dir, out, &traces, &index, tables)?;
    if let Some(output) = output {
        let file = output.place().join("import.json");
        let text = serde_json::to_string_pretty(&summary)
            .map_err(|error| io(&file)(std::io::Error::other(error)))?;
        std::fs::write(&file, text + "\n").map_err(io(&file))?;
        output.keep()?;
    }
    Ok(summary)
}

fn summary(
    dir: &Path,
    out: Option<&Path>,
    traces: &[find::Trace],
    index: &index::Index,
    tables: table::Tables,
) -> Result<ImportSummary, ImportError> {
    let (tables, of_tables) = tables.finish()?;
    let problems = index.problems.iter().map(|(_, what)| what.clone()).chain(of_tables).collect();
    let losses: Vec<StreamLoss> = index.losses(traces).into_iter().map(|(_, loss)| loss).collect();
    let mut lost = Lost::default();
    for loss in &losses {
        lost += loss.lost;
    }
    Ok(ImportSummary {
        source: dir.display().to_string(),
        out: out.map(|out| out.display().to_string()),
        events: tables.iter().map(|table| table.rows).sum(),
        from_ns: tables.iter().filter_map(|table| table.from_ns).min(),
        until_ns: tables.iter().filter_map(|table| table.until_ns).max(),
        lost,
        tables,
        traces: index.traces(traces),
        losses,
        problems,
    })
}
