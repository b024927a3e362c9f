//! What other tools recorded on a run's hosts.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loopscope_clocksync::log::ProbeLog;
use loopscope_clocksync::placing::Placing;
use loopscope_time::{Bound, ClockMap, Frequency, GlobalNs};
use loopscope_timeline::{Clocks, Place, Problem, Progress, Source, Summary, add_foreign};
use pyo3::prelude::*;
use serde_json::Value;

use crate::{Failure, refuse};

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

/// Adds the tables of `foreign` to those in `out`; the summary of all. `clocks` are the hosts'.
pub(crate) fn with_foreign(
    mut summary: Summary,
    foreign: Vec<ForeignSource>,
    clocks: &BTreeMap<String, (ClockMap, Frequency)>,
    repeat_dir: &Path,
    out: &Path,
    progress: &mut Progress,
) -> Result<Value, Failure> {
    let placed = |name: &String| -> Result<Clocks, Failure> {
        let probes = repeat_dir.join("hosts").join(name).join("clock/probes");
        let Some((map, frequency)) = clocks.get(name).filter(|_| probes.is_dir()) else {
            return Ok(Clocks::default());
        };
        let anchors = ProbeLog::read(&probes)?.anchors;
        let place = |placing: Placing| -> Place {
            Arc::new(move |from, until| placing.global(from, until))
        };
        let all = Placing::of(&anchors, *frequency, map).into_iter();
        Ok(all.map(|(clock, placing)| (clock.to_string(), place(placing))).collect())
    };
    let mut of_hosts: BTreeMap<String, Clocks> = BTreeMap::new();
    let mut sources = Vec::new();
    for each in foreign {
        let clocks = match of_hosts.entry(each.host.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let clocks = placed(place.key())?;
                place.insert(clocks)
            }
        };
        let clocks = clocks.clone();
        sources.push(each.source(repeat_dir, clocks));
    }
    let own = summary.events.keys().filter_map(|entity| entity.split_once(':'));
    let own = own.map(|(group, name)| (group.to_owned(), name.to_owned())).collect();
    let added = add_foreign(&sources, &own, out, progress)?;
    for source in &added {
        let problem = |what: &String| Problem {
            host: source.host.clone(),
            file: source.source.clone(),
            what: what.clone(),
        };
        summary.problems.extend(source.problems.iter().map(problem));
    }
    let mut all = serde_json::to_value(summary)?;
    all["foreign"] = serde_json::to_value(added)?;
    Ok(all)
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
