//! All streams of a run, in the order of time and in little memory.
//!
//! Each round reads on where the least time has been reached, decodes what that brings and hands it
//! out with the instant that nothing to come is before. What a round reads depends on the streams
//! alone, never on how many threads there are: tables are the same from run to run.

use std::path::PathBuf;

use rayon::prelude::*;

use crate::block::Block;
use crate::cursor::{Cursor, Source, Tally};
use crate::error::BuildError;
use crate::packets;
use crate::source::{Host, Progress};

/// Bytes that are read in a round.
const ROUND: usize = 1 << 20;
/// Bytes of all streams that are held together, about, and bounds of those of each.
const HELD: usize = 64 << 20;
const PIECE: std::ops::RangeInclusive<usize> = 16 << 10..=128 << 10;

/// A stream file of a host's.
pub(crate) struct Stream {
    /// The index of its host.
    pub host: usize,
    /// The index of its trace there.
    pub trace: usize,
    /// Its folder's, see [`Trace::under`](crate::source::Trace).
    under: &'static str,
    pub path: PathBuf,
}

impl Stream {
    /// Under its host's directory.
    pub fn name(&self) -> String {
        format!(
            "{}trace/{}",
            self.under,
            self.path.file_name().unwrap_or_default().to_string_lossy()
        )
    }
}

/// The stream files of a run: of its hosts in their order, of each by name.
pub(crate) fn find(hosts: &[Host]) -> Result<Vec<Stream>, BuildError> {
    let mut found = Vec::new();
    for (number, host) in hosts.iter().enumerate() {
        for (trace, of) in host.traces.iter().enumerate() {
            let (paths, under) = (packets::files(&of.dir.join("trace"))?, of.under);
            found.extend(paths.into_iter().map(|path| Stream { host: number, trace, under, path }));
        }
    }
    Ok(found)
}

/// Reads stream files, each with its index among those of the run. `take` is given decoded events and
/// the instant that none to come is before; after the last ones there is no such instant. `progress`
/// is told of bytes, after each round. What was found in each file comes in the order of these.
pub(crate) fn read_all(
    hosts: &[Host],
    streams: &[(usize, Stream)],
    progress: &mut Progress,
    mut take: impl FnMut(Vec<Block>, Option<i64>) -> Result<(), BuildError>,
) -> Result<Vec<Tally>, BuildError> {
    let floors: Vec<_> = hosts.iter().map(|host| host.clock.map.floor()).collect();
    let source = |(file, stream): &(usize, Stream)| {
        let (host, path) = (stream.host, stream.path.clone());
        let Host { traces, clock, .. } = &hosts[host];
        let decoders = &traces[stream.trace].decoders;
        Source { path, file: *file, decoders, map: &clock.map, floor: &floors[host] }
    };
    let sources: Vec<Source> = streams.iter().map(source).collect();
    let find =
        |source: &Source| packets::find(&source.path, |class| source.decoders.contains_key(&class));
    let packets = sources.par_iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let runs: usize = packets.iter().map(|(runs, _)| runs.len()).sum();
    let piece = (HELD / runs.max(1)).clamp(*PIECE.start(), *PIECE.end());
    let mut tallies = Vec::new();
    let mut cursors = Vec::new();
    for (number, (source, (runs, damage))) in sources.iter().zip(packets).enumerate() {
        tallies.push(Tally { damage, ..Tally::default() });
        cursors.extend(runs.into_iter().map(|run| (number, Cursor::new(source, run, piece))));
    }
    let mut reading: Vec<&mut Cursor> = cursors.iter_mut().map(|(_, cursor)| cursor).collect();
    let all: u64 = reading.iter().map(|cursor| cursor.left()).sum();
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
        let left: u64 = reading.iter().map(|cursor| cursor.left()).sum();
        if !progress(all - left, all) {
            return Err(BuildError::Stopped);
        }
    }
    for (number, cursor) in cursors {
        tallies[number].add(cursor.tally);
    }
    Ok(tallies)
}
