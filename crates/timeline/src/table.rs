//! One entity's table while it grows, and as Arrow.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt32Array, UInt64Array, new_null_array};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use loopscope_ctf::{EventClass, FieldType, Kind, Record};
use loopscope_time::{Bound, GlobalNs};

use crate::column::{Column, ColumnType, Flaws};

/// Where a stream's records come from.
pub(crate) struct Origin {
    pub host: usize,
    pub process: usize,
    pub pid: u32,
    pub tid: u32,
}

/// The growing table of an entity.
#[derive(Default)]
pub(crate) struct Table {
    ts: Vec<i64>,
    err_ns: Vec<i64>,
    counter: Vec<u64>,
    host: Vec<usize>,
    process: Vec<usize>,
    pid: Vec<u32>,
    tid: Vec<u32>,
    id: Vec<i64>,
    kind: Vec<Kind>,
    fields: Vec<Column>,
    /// Of its call sites.
    kinds: BTreeSet<Kind>,
}

/// What every table has, before the classes' own fields.
const COMMON: [&str; 10] =
    ["ts", "err_ns", "counter", "host", "process", "pid", "tid", "cpu", "id", "entity_kind"];

/// A call site's place in its entity's table.
pub(crate) struct Site {
    pub kind: Kind,
    /// The column of each of its values.
    columns: Vec<usize>,
}

/// Text values of the run, each stored once.
#[derive(Default)]
pub(crate) struct Names {
    names: Vec<String>,
    index: HashMap<String, usize>,
}

impl Names {
    pub fn intern(&mut self, name: &str) -> usize {
        if let Some(&index) = self.index.get(name) {
            return index;
        }
        self.names.push(name.to_owned());
        self.index.insert(name.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }

    fn column(&self, rows: &[usize]) -> Result<ArrayRef, ArrowError> {
        dictionary(rows.iter().map(|&row| self.names[row].as_str()))
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
    /// Makes room for a call site's values; returns its place, and the names that had to be changed
    /// because the table has such a column already and it is another one.
    pub fn site(&mut self, class: &EventClass) -> (Site, Vec<String>) {
        let mut renamed = Vec::new();
        self.kinds.insert(class.kind);
        let mut site = Site { kind: class.kind, columns: Vec::new() };
        for (wanted, column_type) in columns(class) {
            let mut name = wanted.to_owned();
            let column = loop {
                let column = self.fields.iter().position(|c| c.name == name);
                let free = match column {
                    None => !COMMON.contains(&name.as_str()),
                    Some(i) => {
                        self.fields[i].column_type == column_type && !site.columns.contains(&i)
                    }
                };
                if free {
                    break column;
                }
                name = format!("{name}_{}", column_type.name());
            };
            if name != wanted {
                renamed.push(wanted.to_owned());
            }
            site.columns.push(column.unwrap_or_else(|| {
                self.fields.push(Column::new(name, column_type));
                self.fields.len() - 1
            }));
        }
        (site, renamed)
    }

    /// Appends a record. `fields` are its own, or an interval's in global time; without them its
    /// values are null.
    pub fn push(
        &mut self,
        (ts, bound): (GlobalNs, Bound),
        record: &Record,
        origin: &Origin,
        site: &Site,
        fields: Option<&[u8]>,
        flaws: &mut Flaws,
    ) {
        let row = self.ts.len();
        self.ts.push(ts.0);
        self.err_ns.push(bound.ns().cast_signed());
        self.counter.push(record.counter.0);
        self.host.push(origin.host);
        self.process.push(origin.process);
        self.pid.push(origin.pid);
        self.tid.push(origin.tid);
        self.id.push(record.id);
        self.kind.push(site.kind);
        let Some(mut rest) = fields else { return };
        for &column in &site.columns {
            rest = self.fields[column].push(row, rest, flaws);
        }
    }

    pub fn rows(&self) -> usize {
        self.ts.len()
    }

    /// The table in the order of schema/run-directory.md, not yet sorted.
    pub fn into_batch(self, names: &Names) -> Result<RecordBatch, ArrowError> {
        let rows = self.rows();
        let mut fields = vec![
            Field::new("ts", DataType::Int64, false),
            Field::new("err_ns", DataType::Int64, false),
            Field::new("counter", DataType::UInt64, false),
        ];
        let host = names.column(&self.host)?;
        let process = names.column(&self.process)?;
        fields.push(Field::new("host", host.data_type().clone(), false));
        fields.push(Field::new("process", process.data_type().clone(), false));
        fields.extend([
            Field::new("pid", DataType::UInt32, false),
            Field::new("tid", DataType::UInt32, false),
            Field::new("cpu", DataType::UInt16, true),
            Field::new("id", DataType::Int64, false),
        ]);
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(self.ts)),
            Arc::new(Int64Array::from(self.err_ns)),
            Arc::new(UInt64Array::from(self.counter)),
            host,
            process,
            Arc::new(UInt32Array::from(self.pid)),
            Arc::new(UInt32Array::from(self.tid)),
            new_null_array(&DataType::UInt16, rows),
            Arc::new(Int64Array::from(self.id)),
        ];
        if self.kinds.len() > 1 {
            let kind = dictionary(self.kind.iter().map(|kind| kind.name()))?;
            fields.push(Field::new("entity_kind", kind.data_type().clone(), false));
            columns.push(kind);
        }
        for column in self.fields {
            let name = column.name.clone();
            let array = column.into_array(rows);
            fields.push(Field::new(name, array.data_type().clone(), true));
            columns.push(array);
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
    }
}
