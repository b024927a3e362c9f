//! One entity's table while it grows, and as Arrow.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, Int32Array, Int32DictionaryArray, Int64Array, RecordBatch, UInt16Array, UInt32Array,
    UInt64Array, new_null_array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use loopscope_ctf::{EventClass, FieldType, Kind};

use crate::block::{Block, Origin, Whereabouts};
use crate::column::{Column, ColumnType, Flaws};
use crate::earlier::LONGEST_NS;
use crate::order::{Merge, Piece, Row};

/// The table of an entity: rows that were decoded, and those of them that are in order.
#[derive(Default)]
pub(crate) struct Table {
    /// In the order of their streams.
    blocks: Vec<Block>,
    ts: Vec<i64>,
    err_ns: Vec<i64>,
    counter: Vec<u64>,
    id: Vec<i64>,
    /// Index in `origins`.
    origin: Vec<u32>,
    origins: Vec<Origin>,
    known: HashMap<Origin, u32>,
    fields: Vec<Column>,
    /// Kinds of its call sites.
    kinds: BTreeSet<Kind>,
    sites: Vec<Site>,
    /// Whether a call site's events are of instants before they were recorded.
    earlier: bool,
    /// Whether a call site is a kernel's.
    kernel: bool,
    /// By index of the stream file.
    flaws: BTreeMap<usize, Flaws>,
}

thread_local! {
    static MERGE: RefCell<Merge> = RefCell::default();
}

/// Approximate size of a row without its fields, in bytes.
const ROW: usize = 44;

/// What every table has, before the classes' own fields.
const COMMON: [&str; 10] =
    ["ts", "err_ns", "counter", "host", "process", "pid", "tid", "cpu", "id", "entity_kind"];

/// The columns of a call site's values.
type Site = Vec<usize>;

/// Text values of the run, each stored once.
#[derive(Default)]
pub(crate) struct Names {
    names: Vec<String>,
    index: HashMap<String, u32>,
}

impl Names {
    pub fn intern(&mut self, name: &str) -> u32 {
        if let Some(&index) = self.index.get(name) {
            return index;
        }
        let index = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.index.insert(name.to_owned(), index);
        index
    }

    pub fn name(&self, index: u32) -> &str {
        &self.names[index as usize]
    }
}

/// Texts, each stored once.
pub(crate) fn dictionary<'a>(rows: impl Iterator<Item = &'a str>) -> Result<ArrayRef, ArrowError> {
    let mut builder = StringDictionaryBuilder::<Int32Type>::new();
    for row in rows {
        builder.append(row)?;
    }
    Ok(Arc::new(builder.finish()))
}

/// The columns that a class's records fill. An interval's ticks become global time.
fn columns(class: &EventClass) -> Vec<(&str, ColumnType)> {
    if class.kind == Kind::Interval {
        let ns = ColumnType::Fixed(FieldType::I64);
        return vec![("start", ns), ("duration", ns)];
    }
    let mut columns = Vec::new();
    for (name, field_type) in &class.fields {
        match field_type {
            FieldType::String => columns.push((name.as_str(), ColumnType::Text)),
            FieldType::Bytes => columns.push((name, ColumnType::Binary)),
            FieldType::Buckets => {
                columns.extend([("bucket", ColumnType::Indexes), ("n", ColumnType::Counts)]);
            }
            fixed => columns.push((name, ColumnType::Fixed(*fixed))),
        }
    }
    columns
}

impl Table {
    /// Makes room for a call site's values; returns its number, and the names that had to be
    /// changed because the table has such a column already and it is another one. `earlier`: its
    /// events are of instants before they were recorded. `kernel`: it is a kernel's.
    pub fn site(
        &mut self,
        class: &EventClass,
        earlier: bool,
        kernel: bool,
    ) -> (usize, Vec<String>) {
        let mut renamed = Vec::new();
        self.earlier |= earlier;
        self.kernel |= kernel;
        self.kinds.insert(class.kind);
        let mut site = Site::new();
        for (wanted, column_type) in columns(class) {
            let mut name = wanted.to_owned();
            let column = loop {
                let column = self.fields.iter().position(|c| c.name == name);
                let free = match column {
                    None => !COMMON.contains(&name.as_str()),
                    Some(i) => self.fields[i].column_type == column_type && !site.contains(&i),
                };
                if free {
                    break column;
                }
                name = format!("{name}_{}", column_type.name());
            };
            if name != wanted {
                renamed.push(wanted.to_owned());
            }
            site.push(column.unwrap_or_else(|| {
                self.fields.push(Column::new(name, column_type));
                self.fields.len() - 1
            }));
        }
        self.sites.push(site);
        (self.sites.len() - 1, renamed)
    }

    /// Takes decoded rows.
    pub fn add(&mut self, block: Block) {
        self.blocks.push(block);
    }

    /// Puts what was decoded in order, as far as it is before `until`: all without it.
    pub fn order(&mut self, until: Option<i64>) {
        // An event that is still to be read may be of an instant so long before its record.
        let back = if self.earlier { LONGEST_NS } else { 0 };
        let until = until.map(|until| until.saturating_sub(back));
        // Blocks of one stream come in their order.
        self.blocks.sort_by_key(|block| block.file);
        let mut blocks = std::mem::take(&mut self.blocks);
        MERGE.with_borrow_mut(|merge| {
            merge.pieces(&blocks, until, |piece| match piece {
                Piece::Run(block, rows) => self.append(&blocks[block], rows),
                Piece::Mixed(rows) => self.append_mixed(&blocks, rows),
            });
        });
        blocks.retain_mut(|block| {
            block.taken = block.before(until);
            block.taken < block.ts.len()
        });
        self.blocks = blocks;
    }

    fn append(&mut self, block: &Block, rows: Range<usize>) {
        let first = self.rows();
        self.ts.extend_from_slice(&block.ts[rows.clone()]);
        self.err_ns.extend_from_slice(&block.err[rows.clone()]);
        self.counter.extend_from_slice(&block.counter[rows.clone()]);
        self.id.extend_from_slice(&block.id[rows.clone()]);
        let origin = self.origin(block.origin);
        self.origin.resize(self.ts.len(), origin);
        if let Some(fields) = &block.fields {
            let all = rows.map(|row| (block, fields.row(row))).collect();
            self.append_fields(first, all);
        }
    }

    fn append_mixed(&mut self, blocks: &[Block], rows: &[Row]) {
        let first = self.rows();
        self.ts.extend(rows.iter().map(|row| row.ts));
        self.counter.extend(rows.iter().map(|row| row.counter));
        self.id.extend(rows.iter().map(|row| row.id));
        self.err_ns.extend(rows.iter().map(|row| blocks[row.block as usize].err[row.row as usize]));
        let origins: Vec<u32> = blocks.iter().map(|block| self.origin(block.origin)).collect();
        self.origin.extend(rows.iter().map(|row| origins[row.block as usize]));
        if blocks.iter().any(|block| block.fields.is_some()) {
            let fields = |row: &Row| {
                let block = &blocks[row.block as usize];
                (block, block.fields.as_ref().and_then(|fields| fields.row(row.row as usize)))
            };
            self.append_fields(first, rows.iter().map(fields).collect());
        }
    }

    /// Sets the fields of the rows from `first` on.
    fn append_fields(&mut self, first: usize, mut rows: Vec<(&Block, Option<&[u8]>)>) {
        let Table { sites, fields: columns, flaws, .. } = self;
        let Some((of_first, _)) = rows.first() else { return };
        let site = of_first.site;
        if rows.iter().all(|(block, fields)| block.site == site && fields.is_some()) {
            for &column in &sites[site] {
                columns[column].extend(first, &mut rows, flaws);
            }
            return;
        }
        for (row, (block, fields)) in (first..).zip(rows) {
            let Some(mut rest) = fields else { continue };
            for &column in &sites[block.site] {
                rest = columns[column].push(row, rest, flaws.entry(block.file).or_default());
            }
        }
    }

    fn origin(&mut self, origin: Origin) -> u32 {
        let origins = &mut self.origins;
        *self.known.entry(origin).or_insert_with(|| {
            origins.push(origin);
            origins.len() as u32 - 1
        })
    }

    /// Rows that are in order and were not given away.
    pub fn rows(&self) -> usize {
        self.ts.len()
    }

    /// About how much memory they take.
    pub fn weight(&self) -> usize {
        ROW * self.rows() + self.fields.iter().map(Column::weight).sum::<usize>()
    }

    /// What could not be held as it was recorded, by index of the stream file.
    pub fn flaws(&self) -> &BTreeMap<usize, Flaws> {
        &self.flaws
    }

    /// Forgets the rows that are in order.
    pub fn clear(&mut self) {
        self.ts.clear();
        self.err_ns.clear();
        self.counter.clear();
        self.id.clear();
        self.origin.clear();
        self.origins.clear();
        self.known.clear();
        for column in &mut self.fields {
            *column = Column::new(std::mem::take(&mut column.name), column.column_type);
        }
    }

    /// Gives away the rows that are in order, with the columns of schema/run-directory.md.
    pub fn batch(&mut self, names: &Names) -> Result<RecordBatch, ArrowError> {
        let rows = self.rows();
        let (origins, of) = (std::mem::take(&mut self.origins), std::mem::take(&mut self.origin));
        self.known.clear();
        let ids = std::mem::take(&mut self.id);
        let [pid, tid, cpu] = whereabouts(&origins, &of, &ids, self.kernel);
        let host = texts(origins.iter().map(|origin| names.name(origin.host)), &of)?;
        let process = texts(origins.iter().map(|origin| names.name(origin.process)), &of)?;
        let mut columns: Vec<(String, bool, ArrayRef)> = Vec::new();
        let mut column = |name: &str, nullable, array| columns.push((name.into(), nullable, array));
        column("ts", false, Arc::new(Int64Array::from(std::mem::take(&mut self.ts))));
        column("err_ns", false, Arc::new(Int64Array::from(std::mem::take(&mut self.err_ns))));
        let counters = std::mem::take(&mut self.counter);
        let counter: UInt64Array = if self.earlier {
            let known = |(counter, o): (u64, &u32)| origins[*o as usize].counted.then_some(counter);
            counters.into_iter().zip(&of).map(known).collect()
        } else {
            counters.into()
        };
        column("counter", self.earlier, Arc::new(counter));
        column("host", false, host);
        column("process", false, process);
        column("pid", self.kernel, pid);
        column("tid", false, tid);
        column("cpu", true, cpu);
        column("id", false, Arc::new(Int64Array::from(ids)));
        if self.kinds.len() > 1 {
            column("entity_kind", false, texts(origins.iter().map(|o| o.kind.name()), &of)?);
        }
        for of_field in &mut self.fields {
            let array = of_field.take(rows);
            column(&of_field.name, true, array);
        }
        let fields: Vec<Field> = columns
            .iter()
            .map(|(name, nullable, array)| Field::new(name, array.data_type().clone(), *nullable))
            .collect();
        let arrays = columns.into_iter().map(|(.., array)| array).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
    }
}

/// The columns `pid`, `tid` and `cpu` of rows, of which `of` are the indexes among the origins.
/// `kernel`: whether there are events of a kernel among them.
fn whereabouts(origins: &[Origin], of: &[u32], ids: &[i64], kernel: bool) -> [ArrayRef; 3] {
    let within = || of.iter().map(|origin| origins[*origin as usize].within);
    let pids = within().map(|within| match within {
        Whereabouts::Thread { pid, .. } => Some(pid),
        Whereabouts::Processor(_) => None,
    });
    let tids = within().zip(ids).map(|(within, id)| match within {
        Whereabouts::Thread { tid, .. } => tid,
        Whereabouts::Processor(_) => u32::try_from(*id).unwrap_or_default(),
    });
    let tids = Arc::new(UInt32Array::from_iter_values(tids));
    if !kernel {
        let pids = UInt32Array::from_iter_values(pids.map(Option::unwrap_or_default));
        return [Arc::new(pids), tids, new_null_array(&DataType::UInt16, of.len())];
    }
    let processors = within().map(|within| match within {
        Whereabouts::Thread { .. } => None,
        Whereabouts::Processor(number) => u16::try_from(number).ok(),
    });
    [Arc::new(pids.collect::<UInt32Array>()), tids, Arc::new(processors.collect::<UInt16Array>())]
}

/// A text of each row, each stored once. `of` are the rows' indexes among the texts.
fn texts<'a>(texts: impl Iterator<Item = &'a str>, of: &[u32]) -> Result<ArrayRef, ArrowError> {
    let mut builder = StringDictionaryBuilder::<Int32Type>::new();
    let keys = texts.map(|text| builder.append(text)).collect::<Result<Vec<i32>, _>>()?;
    let values = builder.finish().values().clone();
    let rows = Int32Array::from_iter_values(of.iter().map(|text| keys[*text as usize]));
    Ok(Arc::new(Int32DictionaryArray::try_new(rows, values)?))
}
