//! Decoded events of one call site, as columns.

use std::sync::Arc;

use loopscope_ctf::Kind;

/// What events happened in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Whereabouts {
    /// A thread of a program.
    Thread { pid: u32, tid: u32 },
    /// A kernel, on a processor; each event's id is the thread.
    Processor(u32),
}

/// Where events come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// Index of its name.
    pub host: u32,
    /// Index of its name.
    pub process: u32,
    pub within: Whereabouts,
    pub kind: Kind,
    /// Whether the counter was read at the events' instants.
    pub counted: bool,
}

/// Encoded fields of the rows of a block.
pub(crate) struct Fields {
    pub bytes: Arc<Vec<u8>>,
    /// Where each row's begin, or [`Fields::NONE`].
    pub at: Vec<u32>,
}

impl Fields {
    /// Offset of a row whose values are null.
    pub const NONE: u32 = u32::MAX;

    /// The bytes of a row and everything after it; `None` if its values are null.
    pub fn row(&self, row: usize) -> Option<&[u8]> {
        let at = self.at[row];
        (at != Fields::NONE).then(|| &self.bytes[at as usize..])
    }
}

/// Events of one call site, by one thread, in the order of `ts` and then of `counter`.
pub(crate) struct Block {
    pub table: usize,
    /// Index of the call site in its table.
    pub site: usize,
    /// Index of the stream file.
    pub file: usize,
    pub origin: Origin,
    pub ts: Vec<i64>,
    pub err: Vec<i64>,
    pub counter: Vec<u64>,
    pub id: Vec<i64>,
    /// Where the call site has fields.
    pub fields: Option<Fields>,
    /// How many of its first rows are in the table already.
    pub taken: usize,
}

impl Block {
    /// Cuts rows that are only in the order of their counters where time goes back, as a clock's
    /// map may between its epochs.
    pub fn ascending(mut self, blocks: &mut Vec<Block>) {
        if self.ts.is_sorted() {
            return blocks.push(self);
        }
        let mut later = Vec::new();
        while let Some(back) = self.ts.windows(2).rposition(|pair| pair[1] < pair[0]) {
            let at = back + 1;
            later.push(Block {
                ts: self.ts.split_off(at),
                err: self.err.split_off(at),
                counter: self.counter.split_off(at),
                id: self.id.split_off(at),
                fields: self.fields.as_mut().map(|fields| Fields {
                    bytes: fields.bytes.clone(),
                    at: fields.at.split_off(at),
                }),
                ..self
            });
        }
        blocks.push(self);
        blocks.extend(later.into_iter().rev());
    }

    /// How many rows are before an instant; all, without one.
    pub fn before(&self, until: Option<i64>) -> usize {
        let later = |until| self.taken + self.ts[self.taken..].partition_point(|ts| *ts < until);
        until.map_or(self.ts.len(), later)
    }

    /// Whether rows are in the order of instants, then counters, then ids.
    pub fn is_sorted(&self, rows: std::ops::Range<usize>) -> bool {
        rows.map(|row| (self.ts[row], self.counter[row], self.id[row])).is_sorted()
    }
}
