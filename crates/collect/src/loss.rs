//! The account of every event (`loss.json` in `schema/trace.md`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Cost, Unmatched};

/// Cause of drops on the collector's side: the output's file system was full.
pub const DISK_FULL: &str = "disk-full";

/// A stream's account: `emitted = recorded + overwritten + dropped`, for each process and in sum.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LossReport {
    /// Version of the format: 2.
    pub version: u32,
    /// Hits of enabled call sites that filters let through, counted in the programs.
    pub emitted: u64,
    /// Records in the stream's files.
    pub recorded: u64,
    /// Records of a flight recorder that newer ones took the place of, or that no trigger wrote.
    pub overwritten: u64,
    /// Hits that are no records, torn ones included.
    pub dropped: u64,
    /// Hits that a thread had begun and not finished when it was killed or recording ended.
    pub torn: u64,
    /// Hits that filters kept out; in no other number.
    pub filtered: u64,
    /// Records of the last state of counters and histograms, made by the collector; not in
    /// `recorded`.
    #[serde(rename = "final")]
    pub finals: u64,
    /// What an event costs on this machine, where it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// For a flight recorder: the number of triggers in its `triggers.json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triggers: Option<u64>,
    /// By process, in the order of discovery; a forked child and a program that replaced another
    /// by exec count separately.
    pub processes: Vec<ProcessLoss>,
    /// What was found wrong, in words; not in the file.
    #[serde(skip)]
    pub problems: Vec<String>,
    /// Files of the recording's folder that its disk had no room for, by their paths there, with
    /// what they were to hold; not in the file.
    #[serde(skip)]
    pub unwritten: BTreeMap<String, Vec<u8>>,
}

/// One process's account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLoss {
    /// Name of program or component.
    pub process: String,
    /// Process id.
    pub pid: u32,
    /// See [`LossReport`].
    pub emitted: u64,
    /// See [`LossReport`].
    pub recorded: u64,
    /// See [`LossReport`].
    pub overwritten: u64,
    /// See [`LossReport`].
    pub dropped: u64,
    /// See [`LossReport`].
    pub torn: u64,
    /// See [`LossReport`].
    pub filtered: u64,
    /// See [`LossReport`].
    #[serde(rename = "final")]
    pub finals: u64,
    /// Why more may have happened in it than is counted here, in words; empty where nothing is in
    /// doubt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
    /// Its call sites.
    pub sites: Vec<SiteLoss>,
}

/// One call site's drops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteLoss {
    /// `group:name`.
    pub entity: String,
    /// Source file.
    pub file: String,
    /// Line there.
    pub line: u32,
    /// By cause; only causes that occurred.
    pub dropped: BTreeMap<String, u64>,
    /// Hits that the stream's filters kept out; in none of the sums.
    pub filtered: u64,
}

impl LossReport {
    /// Sums the processes' accounts.
    pub(crate) fn new(processes: Vec<ProcessLoss>) -> LossReport {
        let sum =
            |of: fn(&ProcessLoss) -> u64| processes.iter().map(of).fold(0, u64::saturating_add);
        let unknown = processes.iter().flat_map(|p| p.unknown.iter().map(move |what| (p, what)));
        let problems = unknown.map(|(p, what)| format!("{} ({}): {what}", p.process, p.pid));
        let problems = problems.collect();
        LossReport {
            version: 2,
            emitted: sum(|p| p.emitted),
            recorded: sum(|p| p.recorded),
            overwritten: sum(|p| p.overwritten),
            dropped: sum(|p| p.dropped),
            torn: sum(|p| p.torn),
            filtered: sum(|p| p.filtered),
            finals: sum(|p| p.finals),
            cost: None,
            triggers: None,
            processes,
            problems,
            unwritten: BTreeMap::new(),
        }
    }
}

impl ProcessLoss {
    /// The account of a process of which nothing could be recorded.
    pub(crate) fn nothing_known(process: String, pid: u32, why: String) -> ProcessLoss {
        ProcessLoss {
            process,
            pid,
            emitted: 0,
            recorded: 0,
            overwritten: 0,
            dropped: 0,
            torn: 0,
            filtered: 0,
            finals: 0,
            unknown: vec![why],
            sites: Vec::new(),
        }
    }
}

/// The accounts of all streams of a recording, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Losses {
    /// By stream.
    pub streams: BTreeMap<String, LossReport>,
    /// What was found wrong and belongs to no one stream.
    pub problems: Vec<String>,
    /// Patterns of the streams that matched no entity.
    pub unmatched: Vec<Unmatched>,
}

impl Losses {
    /// The account of one stream, with the problems that belong to none and every stream's files
    /// that were not written; empty if it is not there.
    pub fn into_stream(mut self, name: &str) -> LossReport {
        let mut report = self.streams.remove(name).unwrap_or_default();
        report.problems.append(&mut self.problems);
        self.streams.into_values().for_each(|other| report.unwritten.extend(other.unwritten));
        report
    }
}
