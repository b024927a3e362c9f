//! Counters and histograms: their last state, as records of a stream of its own.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use loopscope_ctf::{EventClass, Kind, PacketWriter};
use loopscope_time::Counter;
use loopscope_trace::layout::{Cells as Head, MOST_CELLS};

use crate::doubts::Doubts;
use crate::folder::Folder;
use crate::mapping::Mapping;
use crate::process_stream::numbers;
use crate::site::{Cells, Site, SiteKind};

/// Final records have classes of their own: this plus the index of the entity's first site that
/// adds.
pub(crate) const FINAL_CLASS: u16 = 0x8000;

/// A final record: its class and the encoded fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Final {
    pub(crate) class: EventClass,
    pub(crate) fields: Vec<u8>,
}

/// The cells files of one stream of one process.
struct Files {
    /// What the state was when it was last reset.
    base: Option<Mapping<Head>>,
    threads: Vec<Mapping<Head>>,
}

/// Bytes of a whole cells file.
const WHOLE: usize = size_of::<Head>() + 8 * MOST_CELLS;
/// Files of one stream: its threads at once (runtime.h), and the base.
const MOST_FILES: usize = 4097;

impl Files {
    fn open(folder: &Folder, slot: usize, generation: u32, doubts: &mut Doubts) -> Files {
        let mut files = Files { base: None, threads: Vec::new() };
        let names = folder.names().unwrap_or_else(|error| {
            doubts.add(format!("its counters and histograms cannot be read: {error}"));
            Vec::new()
        });
        for name in names {
            let Some((of_slot, of_generation, n)) = numbers(&name, "cells") else { continue };
            if (of_slot, of_generation) != (slot, generation) {
                continue;
            }
            let told = name.display();
            if files.threads.len() == MOST_FILES {
                doubts.add(format!("{told}: there are more than {MOST_FILES} like it"));
                break;
            }
            match folder.write(&name).and_then(|file| Mapping::<Head>::of(&file, WHOLE)) {
                Ok(Some(map)) if n == "0" => files.base = Some(map),
                Ok(Some(map)) => files.threads.push(map),
                Ok(None) => {}
                Err(error) => doubts.add(format!("{told}: {error}; it was not read")),
            }
        }
        files
    }

    /// Whether anything was ever added to these cells.
    fn touched(&self, cells: std::ops::Range<usize>) -> bool {
        let any = |map: &Mapping<Head>| cells.clone().any(|cell| value(map, cell) != 0);
        self.threads.iter().any(any)
    }

    /// An entity's state: what threads added, less what the state was at the last reset.
    fn state(&self, cell: usize) -> u64 {
        let sum = self.threads.iter().fold(0u64, |sum, map| sum.wrapping_add(value(map, cell)));
        sum.wrapping_sub(self.base.as_ref().map_or(0, |map| value(map, cell)))
    }
}

/// The value of a cell; 0 if the file does not have it, because then nothing was added to it.
fn value(map: &Mapping<Head>, cell: usize) -> u64 {
    // Acquire pairs with the release store in extend (cells.c): the cells are there.
    if cell as u64 >= map.get().count.load(Ordering::Acquire) {
        return 0;
    }
    map.word(size_of::<Head>() + 8 * cell).map_or(0, |value| value.load(Ordering::Relaxed))
}

/// The last state of every counter and histogram of a stream that anything was ever added to.
pub(crate) fn finals(
    folder: &Folder,
    slot: usize,
    generation: u32,
    sites: &[Site],
    described: impl Fn(&Site) -> (String, String),
    doubts: &mut Doubts,
) -> Vec<Final> {
    let adds = [SiteKind::CounterAdd, SiteKind::HistogramAdd];
    if !sites.iter().any(|site| adds.contains(&site.kind)) {
        return Vec::new();
    }
    let files = Files::open(folder, slot, generation, doubts);
    let (mut seen, mut left) = (BTreeSet::new(), MOST_CELLS);
    let mut finals = Vec::new();
    for site in sites.iter().filter(|site| adds.contains(&site.kind)) {
        let Some(cells) = site.cells else { continue };
        if !seen.insert(cells.first()) {
            continue;
        }
        let Some(rest) = left.checked_sub(cells.all().len()) else {
            doubts.add(format!("{}: it shares cells with others", site.entity()));
            break;
        };
        left = rest;
        if !files.touched(cells.all()) {
            continue;
        }
        let (kind, fields) = match cells {
            Cells::Counter { first } => (Kind::Counter, files.state(first).to_le_bytes().to_vec()),
            Cells::Histogram { first, buckets, .. } => {
                (Kind::Histogram, histogram(first, buckets, |cell| files.state(cell)))
            }
        };
        let (unit, description) = described(site);
        let types = kind.fields().unwrap_or_default().iter();
        let class = EventClass {
            id: FINAL_CLASS + site.index,
            group: site.group.clone(),
            name: site.name.clone(),
            kind,
            fields: types.map(|(name, t)| ((*name).to_owned(), *t)).collect(),
            unit,
            description,
            histogram: cells.buckets(),
            file: String::new(),
            line: 0,
        };
        finals.push(Final { class, fields });
    }
    if files.threads.iter().chain(&files.base).any(Mapping::is_cut) {
        doubts.add("the last states of its counters and histograms: a file was cut short".into());
        return Vec::new();
    }
    finals
}

/// A histogram's fields from its cells: values below the range, buckets, values above, their sum.
fn histogram(first: usize, buckets: usize, state: impl Fn(usize) -> u64) -> Vec<u8> {
    let (below, above) = (state(first), state(first + 1 + buckets));
    let sum = state(first + buckets + 2);
    let filled: Vec<(u16, u64)> = (0..buckets)
        .map(|bucket| (bucket as u16, state(first + 1 + bucket)))
        .filter(|(_, values)| *values != 0)
        .collect();
    let inside = filled.iter().fold(0u64, |count, (_, values)| count.wrapping_add(*values));
    let count = inside.wrapping_add(below).wrapping_add(above);
    let mut fields = Vec::new();
    for word in [count, sum, below, above] {
        fields.extend_from_slice(&word.to_le_bytes());
    }
    fields.extend_from_slice(&(filled.len() as u32).to_le_bytes());
    for (bucket, _) in &filled {
        fields.extend_from_slice(&bucket.to_le_bytes());
    }
    for (_, values) in &filled {
        fields.extend_from_slice(&values.to_le_bytes());
    }
    fields
}

/// The stream of the final records, all at one instant.
pub(crate) fn packets(
    finals: &[Final],
    uuid: [u8; 16],
    stream_id: u32,
    pid: u32,
    at: Counter,
) -> Vec<u8> {
    let mut writer = PacketWriter::new(uuid, stream_id, pid, 0, 1 << 20);
    let mut bytes = Vec::new();
    for last in finals {
        let full = writer.record(last.class.id, at, 0, &last.fields);
        bytes.extend(full.expect("all stamps are the same").into_iter().flatten());
    }
    bytes.extend(writer.flush().into_iter().flatten());
    bytes
}
