//! What was found in stream files, except their rows: so much that each file can be decoded by a
//! process of its own, and what all of them add up to.

use std::collections::BTreeMap;
use std::path::Path;

use loopscope_time::Bound;
use serde::{Deserialize, Serialize};

use crate::clocks::{HostClock, HostSummary};
use crate::column::Flaws;
use crate::error::{BuildError, read};
use crate::loss::{Loss, Spread};
use crate::packets::Damage;
use crate::source::{Host, Problem, Trace};
use crate::stored::{self, Stored};

/// What was found in some of a run's stream files, or in all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decoded {
    pub(crate) files: Vec<StreamFile>,
    /// Rows per entity (`group:name`) that has any.
    pub(crate) rows: BTreeMap<String, u64>,
}

impl Stored for Decoded {
    const WHAT: &str = "account of stream files";
    const VERSION: u32 = 1;
}

impl Decoded {
    /// Loads what [`Self::store`] stored.
    pub fn load(path: &Path) -> Result<Decoded, BuildError> {
        stored::load(path)
    }

    /// Stores it as JSON.
    pub fn store(&self, path: &Path) -> Result<(), BuildError> {
        stored::store(self, path)
    }
}

/// What was found in a stream file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamFile {
    pub host: String,
    /// The index of its trace on its host.
    pub trace: usize,
    /// Under the host's directory.
    pub file: String,
    pub damage: Vec<Damage>,
    pub flaws: Flaws,
    /// Good records, by process and pid.
    pub recorded: Vec<(String, u32, u64)>,
    /// Largest hard maximum error of an event.
    pub max_err_ns: u64,
}

/// A host's account: its summary and what is wrong with it, by what was found in its stream files.
/// Its own account of loss goes to `losses`; what the collector says it recorded must be in the
/// streams.
pub(crate) fn account(
    host: &Host,
    files: Vec<StreamFile>,
    losses: &mut Vec<(String, Loss)>,
) -> Result<(HostSummary, Vec<Problem>), BuildError> {
    let HostClock { reference, exchanges, rejected, map, .. } = &host.clock;
    let mut summary = HostSummary {
        reference: *reference,
        max_err_ns: files.iter().map(|file| file.max_err_ns).max().unwrap_or_default(),
        drift_ppm: map.drift().map_or(f64::NAN, |drift| drift * 1e6),
        apart_ns: map.apart_ns().map(|ns| ns.ceil() as u64),
        exchanges: *exchanges,
        rejected: *rejected,
        events: 0,
        event_cost_ns: None,
    };
    let mut counted = vec![BTreeMap::new(); host.traces.len()];
    let mut problems = Vec::new();
    let mut problem = |file: &str, what: String| {
        problems.push(Problem { host: host.name.clone(), file: file.into(), what });
    };
    for mut file in files {
        for (process, pid, count) in file.recorded {
            if let Some(counted) = counted.get_mut(file.trace) {
                *counted.entry((process, pid)).or_default() += count;
            }
            summary.events += count;
        }
        file.damage.sort_by_key(|(offset, _)| *offset);
        for (_, what) in file.damage {
            problem(&file.file, what);
        }
        for (count, what) in file.flaws.counts() {
            if count > 0 {
                problem(&file.file, format!("{count} {what}"));
            }
        }
    }
    if summary.events == 0 {
        let widest = map.knots().iter().map(|k| k.err_ns).fold(0.0, f64::max);
        summary.max_err_ns = Bound::of_rounded(widest).ns();
    }
    for (Trace { dir, under, .. }, counted) in host.traces.iter().zip(counted) {
        let (path, file) = (dir.join("loss.json"), format!("{under}loss.json"));
        if !path.exists() {
            problem(&file, "is missing: nobody accounts for lost events".into());
            continue;
        }
        let loss: Loss = serde_json::from_slice(&read(&path)?)
            .map_err(|source| BuildError::Loss { path: path.clone(), source })?;
        for what in loss.contradictions(&counted) {
            problem(&file, what);
        }
        if let Some(cost) = loss.cost {
            let Spread { median, p10, p90 } = cost.event_ns;
            summary.event_cost_ns = Some((median, p90 - p10));
        }
        losses.push((host.name.clone(), loss));
    }
    Ok((summary, problems))
}
