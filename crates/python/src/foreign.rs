//! What other tools recorded on a run's hosts.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loopscope_clocksync::log::{HostClock, ProbeLog};
use loopscope_clocksync::placing::Placing;
use loopscope_time::{Bound, GlobalNs};
use loopscope_timeline::{Clocks, Place, Problem, Source, Summary, add_foreign};
use pyo3::prelude::*;

use crate::refuse;

/// A dictionary: `host`, `process` (what recorded it), `file` (under the host's directory: CTF traces
/// or a capture), `clock` (what it is stamped by, None: what it says), `boot` (the host's, 32 digits,
/// or None), `processes` (the host's, by number).
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ForeignSource {
    host: String,
    process: String,
    file: String,
    clock: Option<String>,
    boot: Option<String>,
    processes: HashMap<u32, String>,
}

impl ForeignSource {
    fn source(self, repeat_dir: &Path, clocks: Clocks) -> Source {
        let boot = self.boot.and_then(|boot| u128::from_str_radix(&boot, 16).ok());
        Source {
            path: repeat_dir.join("hosts").join(&self.host).join(&self.file),
            host: self.host,
            process: self.process,
            name: self.file,
            clock: self.clock,
            clocks,
            boot: boot.map(u128::to_be_bytes),
            processes: self.processes,
        }
    }
}

/// Adds the tables of `foreign`; the summary of all.
pub(crate) fn with_foreign(
    mut summary: Summary,
    foreign: Vec<ForeignSource>,
    repeat_dir: &Path,
    clocks: &BTreeMap<String, HostClock>,
) -> PyResult<String> {
    let placed = |host: &HostClock| -> Clocks {
        let place = |placing: Placing| -> Place {
            Arc::new(move |from, until| placing.global(from, until))
        };
        let all = Placing::of_host(host).into_iter();
        all.map(|(clock, placing)| (clock.to_string(), place(placing))).collect()
    };
    let placed: BTreeMap<&String, Clocks> =
        clocks.iter().map(|(name, host)| (name, placed(host))).collect();
    let sources: Vec<Source> = foreign
        .into_iter()
        .map(|each| {
            let clocks = placed.get(&each.host).cloned().unwrap_or_default();
            each.source(repeat_dir, clocks)
        })
        .collect();
    let added = add_foreign(&sources, repeat_dir).map_err(refuse)?;
    for source in &added {
        let problem = |what: &String| Problem {
            host: source.host.clone(),
            file: source.source.clone(),
            what: what.clone(),
        };
        summary.problems.extend(source.problems.iter().map(problem));
    }
    let mut all = serde_json::to_value(summary).map_err(refuse)?;
    all["foreign"] = serde_json::to_value(added).map_err(refuse)?;
    serde_json::to_string(&all).map_err(refuse)
}

/// check_foreign(repeat_dir, source, path) -> None
///
/// Whether what is at `path` can be placed on a run's time line as that source of it. Raises
/// ValueError with the reason where it cannot.
#[pyfunction]
pub(crate) fn check_foreign(
    repeat_dir: PathBuf,
    source: ForeignSource,
    path: PathBuf,
) -> PyResult<()> {
    let probes = repeat_dir.join("hosts").join(&source.host).join("clock/probes");
    let log = ProbeLog::read(&probes).map_err(refuse)?;
    let nowhere: Place = Arc::new(|_, _| (GlobalNs::default(), Bound::UNKNOWN));
    let clocks = log.anchors.iter().map(|a| (a.clock.to_string(), nowhere.clone())).collect();
    let source = Source { path: path.clone(), ..source.source(&repeat_dir, clocks) };
    loopscope_timeline::check_foreign(&source)
        .map_err(|what| refuse(format!("{}: {what}", path.display())))
}
