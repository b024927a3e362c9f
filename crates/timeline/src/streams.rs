//! All streams of a run, in the order of time and in little memory.
//!
//! Each round reads on where the least time has been reached, decodes what that brings and hands it
//! out with the instant that nothing to come is before. What a round reads depends on the streams
//! alone, never on how many threads there are: tables are the same from run to run.

use std::collections::BTreeMap;

use loopscope_time::Bound;
use rayon::prelude::*;

use crate::block::Block;
use crate::build::{BuildError, Host, HostClock, HostSummary, Problem, read};
use crate::column::Flaws;
use crate::cursor::{Cursor, Source, Tally};
use crate::loss::{Loss, Spread};
use crate::packets::{self, Damage};
use crate::table::Names;

/// Bytes that are read in a round.
const ROUND: usize = 1 << 20;
/// Bytes of all streams that are held together, about, and bounds of those of each.
const HELD: usize = 64 << 20;
const PIECE: std::ops::RangeInclusive<usize> = 16 << 10..=128 << 10;

/// What was found in the streams of a host.
pub(crate) struct Found {
    pub summary: HostSummary,
    /// Good records, by process and pid.
    recorded: BTreeMap<(u32, u32), u64>,
    /// By index of the stream file.
    files: BTreeMap<usize, File>,
}

/// What was found in a stream file.
struct File {
    name: String,
    damage: Vec<Damage>,
    flaws: Flaws,
}

/// Reads the streams of all hosts. `take` is given decoded events and the instant that none to come is
/// before; after the last ones there is no such instant.
pub(crate) fn read_all(
    hosts: &[Host],
    mut take: impl FnMut(Vec<Block>, Option<i64>) -> Result<(), BuildError>,
) -> Result<Vec<Found>, BuildError> {
    let floors: Vec<_> = hosts.iter().map(|host| host.clock.map.floor()).collect();
    let mut sources = Vec::new();
    for (number, (host, floor)) in hosts.iter().zip(&floors).enumerate() {
        let (decoders, map) = (&host.decoders, &host.clock.map);
        let paths = if host.traced { packets::files(&host.dir.join("trace"))? } else { Vec::new() };
        for path in paths {
            let file = sources.len();
            sources.push(Source { path, file, host: number, decoders, map, floor });
        }
    }
    let find =
        |source: &Source| packets::find(&source.path, |class| source.decoders.contains_key(&class));
    let packets = sources.par_iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let runs: usize = packets.iter().map(|(runs, _)| runs.len()).sum();
    let piece = (HELD / runs.max(1)).clamp(*PIECE.start(), *PIECE.end());
    let mut found: Vec<Found> = hosts.iter().map(Found::new).collect();
    let mut cursors = Vec::new();
    for (source, (runs, damage)) in sources.iter().zip(packets) {
        let name = source.path.file_name().unwrap_or_default().to_string_lossy();
        let file = File { name: format!("trace/{name}"), damage, flaws: Flaws::default() };
        found[source.host].files.insert(source.file, file);
        cursors.extend(runs.into_iter().map(|run| Cursor::new(source, run, piece)));
    }
    let mut reading: Vec<&mut Cursor> = cursors.iter_mut().collect();
    while !reading.is_empty() {
        reading.sort_by_key(|cursor| (cursor.floor, cursor.source.file));
        // What is far ahead of the others waits, so that each stream holds two pieces at most.
        let reached = reading[0].floor;
        let near = reading.iter().take((ROUND / piece).max(1));
        let count = near.take_while(|cursor| cursor.before <= reached).count().max(1);
        let now = &mut reading[..count];
        now.sort_by_key(|cursor| cursor.source.file);
        let read = now.par_iter_mut().map(|cursor| cursor.advance());
        let blocks: Vec<_> = read.collect::<Result<_, _>>()?;
        reading.retain(|cursor| cursor.floor.is_some());
        let until = reading.iter().filter_map(|cursor| cursor.floor).min();
        take(blocks.into_iter().flatten().collect(), until)?;
    }
    for cursor in cursors {
        found[cursor.source.host].add(cursor.source.file, cursor.tally);
    }
    Ok(found)
}

impl Found {
    fn new(host: &Host) -> Found {
        let HostClock { reference, exchanges, rejected, map, .. } = &host.clock;
        let summary = HostSummary {
            reference: *reference,
            max_err_ns: 0,
            drift_ppm: map.drift().map_or(f64::NAN, |drift| drift * 1e6),
            exchanges: *exchanges,
            rejected: *rejected,
            events: 0,
            event_cost_ns: None,
        };
        Found { summary, recorded: BTreeMap::new(), files: BTreeMap::new() }
    }

    fn add(&mut self, file: usize, tally: Tally) {
        for (whose, count) in tally.recorded {
            *self.recorded.entry(whose).or_default() += count;
            self.summary.events += count;
        }
        self.summary.max_err_ns = self.summary.max_err_ns.max(tally.max_err_ns);
        if let Some(file) = self.files.get_mut(&file) {
            file.damage.extend(tally.damage);
            file.flaws.backward += tally.backward;
        }
    }

    /// Adds what a table could not hold, if it is of a stream file of this host's.
    pub fn add_flaws(&mut self, file: usize, flaws: &Flaws) {
        if let Some(file) = self.files.get_mut(&file) {
            file.flaws.not_utf8 += flaws.not_utf8;
            file.flaws.left_out += flaws.left_out;
        }
    }

    /// Ends a host's account: its summary and what is wrong with it. Its own account of loss goes to
    /// `losses`; what the collector says it recorded must be in the streams.
    pub fn finish(
        mut self,
        host: &Host,
        names: &Names,
        losses: &mut Vec<(String, Loss)>,
    ) -> Result<(HostSummary, Vec<Problem>), BuildError> {
        if self.summary.events == 0 {
            let widest = host.clock.map.knots().iter().map(|k| k.err_ns).fold(0.0, f64::max);
            self.summary.max_err_ns = Bound::of_rounded(widest).ns();
        }
        let mut problems = Vec::new();
        let mut problem = |file: &str, what: String| {
            problems.push(Problem { host: host.name.clone(), file: file.into(), what });
        };
        for file in self.files.values_mut() {
            file.damage.sort_by_key(|(offset, _)| *offset);
            for (_, what) in file.damage.drain(..) {
                problem(&file.name, what);
            }
            for (count, what) in file.flaws.told() {
                if count > 0 {
                    problem(&file.name, format!("{count} {what}"));
                }
            }
        }
        let path = host.dir.join("loss.json");
        if host.traced && !path.exists() {
            problem("loss.json", "is missing: nobody accounts for lost events".into());
        } else if host.traced {
            let loss: Loss = serde_json::from_slice(&read(&path)?)
                .map_err(|source| BuildError::Loss { path: path.clone(), source })?;
            let name = |index| names.name(index).to_owned();
            let recorded = self.recorded.iter().map(|((of, pid), n)| ((name(*of), *pid), *n));
            for what in loss.contradictions(&recorded.collect()) {
                problem("loss.json", what);
            }
            self.summary.event_cost_ns = loss.cost.map(|cost| {
                let Spread { median, p10, p90 } = cost.event_ns;
                (median, p90 - p10)
            });
            losses.push((host.name.clone(), loss));
        }
        Ok((self.summary, problems))
    }
}
