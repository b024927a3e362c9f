//! One table for each name of an event, in parts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field as ArrowField, Schema};
use loopscope_ctf::decode::Columns;
use loopscope_ctf::tsdl::Field;

use super::cells::{Cells, Shape, free_name};
use super::find::Trace;
use super::index::stream_name;
use super::{ImportError, TableSummary};
use crate::store;
use crate::table::dictionary;

/// About how much memory a table's part may take before it is written, and all of them together.
const PART: usize = 64 << 20;
const ALL: usize = 256 << 20;

/// What every table has, before the event's own fields.
const COMMON: [&str; 4] = ["ts", "trace", "stream", "cpu"];

/// Where a value of an event lies.
#[derive(Clone, Copy)]
pub(super) enum Part {
    PacketContext,
    StreamContext,
    EventContext,
    /// A member of the fields.
    Field(usize),
}

/// Where the values of an event go.
pub(super) trait Sink {
    type Column: Columns;
    /// Of a part.
    fn column(&mut self, part: Part) -> &mut Self::Column;
}

impl Sink for () {
    type Column = ();
    fn column(&mut self, _: Part) -> &mut () {
        self
    }
}

/// A row in the making.
pub(super) struct Row<'a> {
    table: &'a mut Table,
    site: &'a Site,
}

impl Sink for Row<'_> {
    type Column = Cells;
    fn column(&mut self, part: Part) -> &mut Cells {
        let index = match part {
            Part::PacketContext => self.site.packet_context,
            Part::StreamContext => self.site.stream_context,
            Part::EventContext => self.site.event_context,
            Part::Field(member) => self.site.fields[member],
        };
        let cells = &mut self.table.columns[index].cells;
        cells.pad(self.table.ts.len());
        cells
    }
}

struct Column {
    name: String,
    shape: Shape,
    cells: Cells,
}

/// An event class's place in its table: the columns of its parts. Those of parts that it does not
/// have are not asked for.
#[derive(Default)]
struct Site {
    table: usize,
    packet_context: usize,
    stream_context: usize,
    event_context: usize,
    fields: Vec<usize>,
    /// Whether the packet's context has anything to keep.
    has_packet_context: bool,
}

struct Table {
    event: String,
    /// Its directory under `timeline/`.
    group: String,
    name: String,
    columns: Vec<Column>,
    ts: Vec<Option<i64>>,
    /// Indexes of their stream files.
    files: Vec<usize>,
    cpu: Vec<Option<u32>>,
    /// About how much memory its rows take.
    weight: usize,
    written: u64,
    parts: usize,
    from_ns: Option<i64>,
    until_ns: Option<i64>,
    not_utf8: u64,
}

/// All tables.
pub(super) struct Tables {
    /// The directory of the tables, if they are wanted.
    place: Option<PathBuf>,
    tables: Vec<Table>,
    /// By trace, stream class, event class.
    sites: Vec<Vec<Vec<Site>>>,
    /// Trace and stream of each file, and the index of the first file of each trace.
    files: Vec<(String, String)>,
    first_file: Vec<usize>,
    weight: usize,
    problems: Vec<String>,
}

/// Where an event comes from.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    pub trace: usize,
    pub file: usize,
    pub stream: usize,
    pub event: usize,
    pub cpu: Option<u64>,
}

impl Tables {
    pub fn new(traces: &[Trace], place: Option<&Path>) -> Tables {
        let mut all = Tables {
            place: place.map(|place| place.join("timeline")),
            tables: Vec::new(),
            sites: Vec::new(),
            files: Vec::new(),
            first_file: Vec::new(),
            weight: 0,
            problems: Vec::new(),
        };
        let mut index = HashMap::new();
        for trace in traces {
            all.first_file.push(all.files.len());
            let names = (0..trace.files.len()).map(|file| stream_name(trace, file));
            all.files.extend(names.map(|name| (trace.name.clone(), name)));
            let domain = trace.layout.env_text("domain").unwrap_or("trace");
            let mut of_trace = Vec::new();
            for stream in &trace.layout.streams {
                let contexts = [&stream.packet_context, &stream.event_context];
                let mut of_stream = Vec::new();
                for event in &stream.events {
                    let (group, name) = event.name.split_once(':').unwrap_or((domain, &event.name));
                    let key = (group.to_owned(), name.to_owned());
                    let table = *index.entry(key).or_insert_with(|| {
                        all.tables.push(Table::new(&all.tables, &event.name, group, name));
                        all.tables.len() - 1
                    });
                    let [packet, common] = contexts;
                    let fields = [packet, common, &event.context, &event.payload];
                    let (site, renamed) = all.tables[table].site(table, fields);
                    for (wanted, name) in renamed {
                        let Table { group, name: table, .. } = &all.tables[table];
                        all.problems.push(format!(
                            "{group}.{table}: {wanted} of the event in {} is the column {name}: \
                             there is another {wanted}",
                            trace.name
                        ));
                    }
                    of_stream.push(site);
                }
                of_trace.push(of_stream);
            }
            all.sites.push(of_trace);
        }
        all
    }

    /// Takes an event: `decode` is given the places of its values, or none where no table is wanted,
    /// and returns how many bits they took.
    pub fn add<E>(
        &mut self,
        origin: Origin,
        ts: Option<i64>,
        decode: impl FnOnce(Option<Row>, bool) -> Result<u64, E>,
    ) -> Result<(), ImportError>
    where
        ImportError: From<E>,
    {
        let site = &self.sites[origin.trace][origin.stream][origin.event];
        let table = &mut self.tables[site.table];
        table.from_ns = table.from_ns.or(ts);
        table.until_ns = ts.or(table.until_ns);
        let Some(place) = &self.place else {
            decode(None, false)?;
            table.written += 1;
            return Ok(());
        };
        let bits = decode(Some(Row { table, site }), site.has_packet_context)?;
        table.ts.push(ts);
        table.files.push(self.first_file[origin.trace] + origin.file);
        table.cpu.push(origin.cpu.and_then(|cpu| u32::try_from(cpu).ok()));
        let width: usize = table.columns.iter().map(|column| column.shape.width()).sum();
        let weight = 40 + 8 * width + (bits / 8) as usize;
        table.weight += weight;
        self.weight += weight;
        if table.weight >= PART {
            self.weight -= table.weight;
            return table.write(place, &self.files);
        }
        if self.weight >= ALL
            && let Some(largest) = self.tables.iter_mut().max_by_key(|table| table.weight)
        {
            self.weight -= largest.weight;
            largest.write(place, &self.files)?;
        }
        Ok(())
    }

    /// Writes what is left; what the tables hold, and what has to be known of them.
    pub fn finish(mut self) -> Result<(Vec<TableSummary>, Vec<String>), ImportError> {
        let mut problems = self.problems;
        let mut summaries = Vec::new();
        for mut table in self.tables {
            if let Some(place) = &self.place
                && !table.ts.is_empty()
            {
                table.write(place, &self.files)?;
            }
            let Table { group, name, not_utf8, .. } = &table;
            if *not_utf8 > 0 {
                problems.push(format!(
                    "{group}.{name}: {not_utf8} texts are not UTF-8; what is wrong in them is \u{fffd}"
                ));
            }
            if table.written > 0 {
                summaries.push(TableSummary {
                    table: format!("{group}.{name}"),
                    event: table.event,
                    rows: table.written,
                    from_ns: table.from_ns,
                    until_ns: table.until_ns,
                });
            }
        }
        self.files.clear();
        summaries.sort_by(|a, b| a.table.cmp(&b.table));
        Ok((summaries, problems))
    }
}

impl Table {
    fn new(others: &[Table], event: &str, group: &str, name: &str) -> Table {
        let (group, wanted) = (file_name(group), file_name(name));
        let same =
            |name: &str| others.iter().any(|other| other.group == group && other.name == name);
        let name = free_name(&wanted, same);
        Table {
            event: event.to_owned(),
            group,
            name,
            columns: Vec::new(),
            ts: Vec::new(),
            files: Vec::new(),
            cpu: Vec::new(),
            weight: 0,
            written: 0,
            parts: 0,
            from_ns: None,
            until_ns: None,
            not_utf8: 0,
        }
    }

    /// Makes room for an event class: packet's, stream's and own context, and fields. The names that
    /// had to be changed come back, as wanted and as they are.
    fn site(&mut self, table: usize, parts: [&Option<Field>; 4]) -> (Site, Vec<(String, String)>) {
        let [packet, stream, event, payload] = parts;
        let mut site = Site { table, ..Site::default() };
        let mut used = Vec::new();
        let mut renamed = Vec::new();
        let mut column = |wanted: &str, shape: Shape| {
            let index = self.column(wanted, shape, &used);
            if self.columns[index].name != wanted {
                renamed.push((wanted.to_owned(), self.columns[index].name.clone()));
            }
            used.push(index);
            index
        };
        if let Some(shape) = packet.as_ref().map(Shape::of).filter(Shape::is_kept) {
            site.packet_context = column("packet_context", shape);
            site.has_packet_context = true;
        }
        if let Some(field) = stream {
            site.stream_context = column("stream_context", Shape::of(field));
        }
        if let Some(field) = event {
            site.event_context = column("event_context", Shape::of(field));
        }
        for member in payload.iter().flat_map(|payload| payload.members()) {
            site.fields.push(column(member.plain_name(), Shape::of(&member.field)));
        }
        (site, renamed)
    }

    /// The column of this name and shape that is not used yet, made if need be.
    fn column(&mut self, wanted: &str, shape: Shape, used: &[usize]) -> usize {
        let free = |name: &str| {
            let found = self.columns.iter().position(|column| column.name == name);
            match found {
                Some(index) => self.columns[index].shape == shape && !used.contains(&index),
                None => !COMMON.contains(&name),
            }
        };
        let name = free_name(wanted, |name| !free(name));
        let found = self.columns.iter().position(|column| column.name == name);
        found.unwrap_or_else(|| {
            let cells = Cells::new(&shape);
            self.columns.push(Column { name, shape, cells });
            self.columns.len() - 1
        })
    }

    /// Writes the rows as the table's next part.
    fn write(&mut self, place: &Path, files: &[(String, String)]) -> Result<(), ImportError> {
        let rows = self.ts.len();
        let ts = Int64Array::from(std::mem::take(&mut self.ts));
        let of_rows = std::mem::take(&mut self.files);
        let trace = dictionary(of_rows.iter().map(|file| files[*file].0.as_str()))?;
        let stream = dictionary(of_rows.iter().map(|file| files[*file].1.as_str()))?;
        let cpu = UInt32Array::from(std::mem::take(&mut self.cpu));
        let arrays: [ArrayRef; 4] = [Arc::new(ts), trace, stream, Arc::new(cpu)];
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (name, array) in COMMON.into_iter().zip(arrays) {
            let nullable = matches!(array.data_type(), DataType::Int64 | DataType::UInt32);
            fields.push(ArrowField::new(name, array.data_type().clone(), nullable));
            columns.push(array);
        }
        for column in &mut self.columns {
            let cells = std::mem::replace(&mut column.cells, Cells::new(&column.shape));
            self.not_utf8 += cells.not_utf8();
            if let Some(array) = cells.into_array(rows)? {
                fields.push(ArrowField::new(&column.name, array.data_type().clone(), true));
                columns.push(array);
            }
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        let file = format!("part-{}.parquet", self.parts);
        store::write(&place.join(&self.group).join(&self.name).join(file), &batch)?;
        self.parts += 1;
        self.written += rows as u64;
        self.weight = 0;
        Ok(())
    }
}

/// A name that can be a directory's: what cannot be in one is `_`.
fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "_+-.@".contains(c) { c } else { '_' };
    let mut name: String = name.chars().map(plain).take(80).collect();
    if name.is_empty() || name.starts_with('.') {
        name.insert(0, '_');
    }
    name
}
