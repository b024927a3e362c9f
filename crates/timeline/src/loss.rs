//! The loss account that a collector leaves next to its streams (`loss.json`, schema/trace.md).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::ArrowError;
use serde::{Deserialize, Serialize};

/// The newest version of the account that is understood.
const VERSION: u32 = 2;

/// `loss.json`, as far as the time line checks it. What is not in an older version is zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Version of the format.
    pub version: u32,
    /// Hits of enabled call sites that no filter kept out.
    pub emitted: u64,
    /// Records of hits that reached the streams.
    pub recorded: u64,
    /// Records that a flight recorder replaced by newer ones.
    #[serde(default)]
    pub overwritten: u64,
    /// Hits that became no record, counted at the call site with their cause.
    pub dropped: u64,
    /// Hits that a filter kept out.
    #[serde(default)]
    pub filtered: u64,
    /// Records of the last states of counters and histograms.
    #[serde(default, rename = "final")]
    pub last_states: u64,
    /// Records begun by a thread that was killed: the part of `dropped` without a call site.
    pub torn: u64,
    /// What the instrumentation itself costs, where the collector has measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Per process.
    pub processes: Vec<ProcessLoss>,
}

/// Costs on the host, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Cost of an enabled event with an id.
    pub event_ns: Spread,
}

/// A cost over the batches in which it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Half of them are below.
    pub median: f64,
    /// A tenth is below.
    pub p10: f64,
    /// A tenth is above.
    pub p90: f64,
}

/// One process of a [`Loss`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLoss {
    /// Component or program.
    pub process: String,
    /// Process id.
    pub pid: u32,
    /// See [`Loss::emitted`].
    pub emitted: u64,
    /// See [`Loss::recorded`].
    pub recorded: u64,
    /// See [`Loss::overwritten`].
    #[serde(default)]
    pub overwritten: u64,
    /// See [`Loss::dropped`].
    pub dropped: u64,
    /// See [`Loss::torn`].
    #[serde(default)]
    pub torn: u64,
    /// See [`Loss::filtered`].
    #[serde(default)]
    pub filtered: u64,
    /// See [`Loss::last_states`].
    #[serde(default, rename = "final")]
    pub last_states: u64,
    /// Why more may have happened than is counted, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// Records in the streams, by process and pid.
pub(crate) type Counted = BTreeMap<(String, u32), u64>;

impl Loss {
    /// Where the account does not balance or says other than the streams, in words.
    pub(crate) fn contradictions(&self, counted: &Counted) -> Vec<String> {
        let mut found = Vec::new();
        if !(1..=VERSION).contains(&self.version) {
            let version = self.version;
            found.push(format!("has version {version}, known are 1 to {VERSION}"));
        }
        let mut claimed = Counted::new();
        for each in &self.processes {
            if each.emitted != each.recorded + each.overwritten + each.dropped {
                found.push(format!(
                    "{} (pid {}): emitted {} is not recorded {} + overwritten {} + dropped {}",
                    each.process,
                    each.pid,
                    each.emitted,
                    each.recorded,
                    each.overwritten,
                    each.dropped
                ));
            }
            let unknown = each.unknown.iter();
            found
                .extend(unknown.map(|what| format!("{} (pid {}): {what}", each.process, each.pid)));
            *claimed.entry((each.process.clone(), each.pid)).or_default() +=
                each.recorded + each.last_states;
        }
        for key in claimed.keys().chain(counted.keys()).collect::<BTreeSet<_>>() {
            let (said, held) = (claimed.get(key).unwrap_or(&0), counted.get(key).unwrap_or(&0));
            if said != held {
                let (process, pid) = key;
                found.push(format!(
                    "{process} (pid {pid}): {said} records were stored, the streams hold {held}"
                ));
            }
        }
        found
    }

    /// Adds another host's sums.
    pub(crate) fn add(&mut self, other: &Loss) {
        self.emitted += other.emitted;
        self.recorded += other.recorded;
        self.overwritten += other.overwritten;
        self.dropped += other.dropped;
        self.filtered += other.filtered;
        self.last_states += other.last_states;
        self.torn += other.torn;
    }
}

/// The accounts of all hosts' processes.
pub(crate) fn loss_table(hosts: &[(String, Loss)]) -> Result<RecordBatch, ArrowError> {
    let all =
        || hosts.iter().flat_map(|(host, loss)| loss.processes.iter().map(move |p| (host, p)));
    let counts = |of: &dyn Fn(&ProcessLoss) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(all().map(|(_, p)| of(p).cast_signed())))
    };
    let names = StringArray::from_iter_values(all().map(|(host, _)| host));
    let processes = StringArray::from_iter_values(all().map(|(_, p)| &p.process));
    RecordBatch::try_from_iter([
        ("host", Arc::new(names) as ArrayRef),
        ("process", Arc::new(processes)),
        ("pid", counts(&|p| p.pid.into())),
        ("emitted", counts(&|p| p.emitted)),
        ("recorded", counts(&|p| p.recorded)),
        ("overwritten", counts(&|p| p.overwritten)),
        ("dropped", counts(&|p| p.dropped)),
        ("torn", counts(&|p| p.torn)),
        ("filtered", counts(&|p| p.filtered)),
        ("final", counts(&|p| p.last_states)),
    ])
}
