//! Rows of several blocks in the order of time.

use std::hint::select_unpredictable;
use std::ops::Range;

use crate::block::Block;

/// A row, and what it is ordered by.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub ts: i64,
    pub counter: u64,
    pub id: i64,
    /// Index of its block.
    pub block: u32,
    /// Its place there.
    pub row: u32,
}

impl Row {
    fn key(&self) -> (i64, u64, i64) {
        (self.ts, self.counter, self.id)
    }

    /// Compares the keys, in a way that needs no branches.
    fn is_before(&self, other: &Row) -> bool {
        let instant = |row: &Row| {
            // The sign's bit turned over: as unsigned numbers they have the same order.
            let ts = row.ts.cast_unsigned() ^ 1 << 63;
            u128::from(ts) << 64 | u128::from(row.counter)
        };
        let (a, b) = (instant(self), instant(other));
        (a < b) | ((a == b) & (self.id < other.id))
    }
}

/// Rows that follow each other in a table.
pub(crate) enum Piece<'a> {
    /// So many of one block.
    Run(usize, Range<usize>),
    /// Rows from blocks that overlap in time.
    Mixed(&'a [Row]),
}

/// Puts rows in order. It keeps its memory: to have it from the system each time costs as much as
/// the merging does.
#[derive(Default)]
pub(crate) struct Merge {
    rows: Vec<Row>,
    /// Where each run of rows that are in order begins.
    runs: Vec<usize>,
    /// Room for the same.
    merged: Vec<Row>,
}

impl Merge {
    /// What the blocks have before `until` (all, without it): by time, then by counter, then by id,
    /// then as the blocks and their rows are.
    pub fn pieces(&mut self, blocks: &[Block], until: Option<i64>, mut each: impl FnMut(Piece)) {
        let rows = |(index, block): (usize, &Block)| (index, block.taken..block.before(until));
        let mut parts: Vec<_> = blocks.iter().enumerate().map(rows).collect();
        parts.retain(|(_, rows)| !rows.is_empty());
        let instant =
            |block: usize, row: usize| (blocks[block].ts[row], blocks[block].counter[row]);
        parts.sort_by_key(|(block, rows)| instant(*block, rows.start));
        let mut rest = parts.as_mut_slice();
        while let Some((block, rows)) = rest.first() {
            let mut last = instant(*block, rows.end - 1);
            let overlap = rest[1..].iter().take_while(|(block, rows)| {
                let overlaps = instant(*block, rows.start) <= last;
                last = last.max(instant(*block, rows.end - 1));
                overlaps
            });
            let count = 1 + overlap.count();
            let (group, later) = rest.split_at_mut(count);
            rest = later;
            match group {
                [(block, rows)] if blocks[*block].is_sorted(rows.clone()) => {
                    each(Piece::Run(*block, rows.clone()));
                }
                _ => each(Piece::Mixed(self.merge(blocks, group))),
            }
        }
    }

    fn merge(&mut self, blocks: &[Block], group: &mut [(usize, Range<usize>)]) -> &[Row] {
        self.rows.clear();
        self.runs.clear();
        group.sort_by_key(|(block, _)| *block);
        for (index, rows) in group {
            self.add(&blocks[*index], *index as u32, rows.clone());
        }
        while self.runs.len() > 1 {
            self.halve();
        }
        &self.rows
    }

    fn add(&mut self, block: &Block, index: u32, rows: Range<usize>) {
        let begin = self.rows.len();
        let Block { ts, counter, id, .. } = block;
        let columns = ts[rows.clone()].iter().zip(&counter[rows.clone()]).zip(&id[rows.clone()]);
        self.rows.extend(rows.zip(columns).map(|(row, ((ts, counter), id))| Row {
            ts: *ts,
            counter: *counter,
            id: *id,
            block: index,
            row: row as u32,
        }));
        let (before, added) = self.rows.split_at_mut(begin);
        if !added.is_sorted_by_key(Row::key) {
            added.sort_by_key(Row::key);
        }
        if before.last().is_none_or(|last| added[0].is_before(last)) {
            self.runs.push(begin);
        }
    }

    /// Merges each run with the next one.
    fn halve(&mut self) {
        let Merge { rows, runs, merged } = self;
        merged.clear();
        merged.reserve(rows.len());
        let mut begins = Vec::with_capacity(runs.len().div_ceil(2));
        for (i, pair) in runs.chunks(2).enumerate() {
            begins.push(merged.len());
            let end = runs.get(2 * i + 2).copied().unwrap_or(rows.len());
            let middle = pair.get(1).copied().unwrap_or(end);
            two(&rows[pair[0]..middle], &rows[middle..end], merged);
        }
        self.runs = begins;
        std::mem::swap(&mut self.rows, &mut self.merged);
    }
}

/// Merges two runs. Of rows that are equal those of the first one come first.
fn two(first: &[Row], second: &[Row], merged: &mut Vec<Row>) {
    let (mut i, mut j) = (0, 0);
    while let (Some(a), Some(b)) = (first.get(i), second.get(j)) {
        let later = b.is_before(a);
        merged.push(*select_unpredictable(later, b, a));
        i += usize::from(!later);
        j += usize::from(later);
    }
    merged.extend_from_slice(&first[i..]);
    merged.extend_from_slice(&second[j..]);
}
