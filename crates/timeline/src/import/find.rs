//! The traces below a directory.

use std::fs;
use std::path::{Path, PathBuf};

use loopscope_ctf::tsdl;

use super::{ImportError, io};
use crate::foreign::stamps::Stamps;

/// A directory with metadata and streams.
pub(crate) struct Trace {
    /// Relative to the directory that is read; `.` where it is that.
    pub name: String,
    pub metadata: PathBuf,
    pub layout: tsdl::Trace,
    /// Its stream files, by name.
    pub files: Vec<PathBuf>,
    /// Index of its source.
    pub source: usize,
    /// By clock, where its stamps are on another time line; where it keeps its own, none.
    pub placed: Option<Vec<Stamps>>,
}

/// All of them, by path, on one time of their own.
pub(super) fn traces(dir: &Path) -> Result<Vec<Trace>, ImportError> {
    let found = below(dir)?;
    check_clocks(&found)?;
    Ok(found)
}

/// All of them, by path. Below a trace there are no others: what is in it is the tracer's.
pub(crate) fn below(dir: &Path) -> Result<Vec<Trace>, ImportError> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = path.join("metadata");
        if !metadata.is_file() {
            let mut below = entries(&path)?;
            below.retain(|entry| entry.is_dir() && !entry.is_symlink());
            waiting.extend(below.into_iter().rev());
            continue;
        }
        let bytes = fs::read(&metadata).map_err(io(&metadata))?;
        let layout = tsdl::Trace::read(&bytes)
            .and_then(|trace| trace.doubled.clone().map_or(Ok(trace), Err))
            .map_err(|source| ImportError::Metadata { path: metadata.clone(), source })?;
        let relative = path.strip_prefix(dir).unwrap_or(&path).display().to_string();
        let name = if relative.is_empty() { ".".to_owned() } else { relative };
        let mut files = entries(&path)?;
        files.retain(|file| {
            let hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
            file.is_file() && !hidden && *file != metadata
        });
        found.push(Trace { name, metadata, layout, files, source: 0, placed: None });
    }
    if found.is_empty() {
        return Err(ImportError::NoTrace(dir.to_owned()));
    }
    Ok(found)
}

/// What is in a directory, by name.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, ImportError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(io(dir))? {
        found.push(entry.map_err(io(dir))?.path());
    }
    found.sort();
    Ok(found)
}

/// Times of several traces may be compared where they count from the Unix epoch, or on one clock.
fn check_clocks(traces: &[Trace]) -> Result<(), ImportError> {
    let clocks = traces.iter().flat_map(|trace| {
        let used = trace.layout.streams.iter().filter_map(|stream| stream.clock);
        used.map(move |clock| (trace, &trace.layout.clocks[clock]))
    });
    let clocks: Vec<_> = clocks.collect();
    for (trace, clock) in clocks.iter().skip(1) {
        let (first, other) = clocks[0];
        let same_trace = std::ptr::eq(first, *trace);
        let same_clock = clock.uuid.is_some() && clock.uuid == other.uuid;
        let same_origin = clock.absolute && other.absolute;
        let same = same_trace && clock.name == other.name;
        if !(same || same_clock || same_origin) {
            return Err(ImportError::Clocks {
                first: first.metadata.clone(),
                second: trace.metadata.clone(),
            });
        }
    }
    Ok(())
}
