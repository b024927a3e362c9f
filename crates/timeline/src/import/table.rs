//! One table for each name of an event, in parts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{Array as _, RecordBatch};
use arrow_schema::{Field as ArrowField, Schema};
use loopscope_ctf::decode::Columns;
use loopscope_ctf::tsdl::Field;
use loopscope_time::Bound;

use super::cells::{Cells, Shape, free_name};
use super::find::Trace;
use super::frame::{Frame, Rows};
use super::{ImportError, TableSummary};
use crate::store;

/// About how much memory a table's part may take before it is written, and all of them together.
const PART: usize = 64 << 20;
const ALL: usize = 256 << 20;

/// Where a value of an event lies.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    PacketContext,
    StreamContext,
    EventContext,
    /// A member of the fields.
    Field(usize),
}

/// Where the values of an event go.
pub(crate) trait Sink {
    type Column: Columns;
    /// The column of a part.
    fn column(&mut self, part: Part) -> &mut Self::Column;
}

impl Sink for () {
    type Column = ();
    fn column(&mut self, _: Part) -> &mut () {
        self
    }
}

/// A row in the making.
pub(crate) struct Row<'a> {
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
        cells.pad(self.table.rows.len());
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
    /// Its events.
    events: u64,
}

struct Table {
    event: String,
    /// Its directory under `timeline/`.
    group: String,
    name: String,
    columns: Vec<Column>,
    rows: Rows,
    /// About how much memory its rows take.
    weight: usize,
    written: u64,
    parts: usize,
    from_ns: Option<i64>,
    until_ns: Option<i64>,
    not_utf8: u64,
}

/// All tables.
pub(crate) struct Tables<'f> {
    /// The directory of the tables, if they are wanted.
    place: Option<PathBuf>,
    frame: &'f dyn Frame,
    tables: Vec<Table>,
    /// By trace, stream class, event class.
    sites: Vec<Vec<Vec<Site>>>,
    /// The index of the first file of each trace, among those of all.
    first_file: Vec<usize>,
    /// By trace.
    seen: Vec<Seen>,
    weight: usize,
    problems: Vec<String>,
}

/// What a trace's events are together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub events: u64,
    /// Events whose maximum error is unknown.
    pub unknown: u64,
    pub from: Option<i64>,
    pub until: Option<i64>,
}

impl Seen {
    fn add(&mut self, Time { ts, err_ns }: Time) {
        self.events += 1;
        self.unknown += u64::from(err_ns >= Bound::UNKNOWN.ns().cast_signed());
        self.from = self.from.or(ts);
        self.until = ts.or(self.until);
    }
}

/// When an event was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Time {
    /// None without a clock.
    pub ts: Option<i64>,
    /// Maximum error; 0 where stamps keep their own time.
    pub err_ns: i64,
}

/// Where an event comes from.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub trace: usize,
    pub file: usize,
    pub stream: usize,
    pub event: usize,
    pub cpu: Option<u64>,
}

impl<'f> Tables<'f> {
    /// `frame` is what all tables have; the tables go to `place`, under `timeline/`.
    pub fn new(traces: &[Trace], place: Option<&Path>, frame: &'f dyn Frame) -> Tables<'f> {
        let mut all = Tables {
            place: place.map(|place| place.join("timeline")),
            frame,
            tables: Vec::new(),
            sites: Vec::new(),
            first_file: Vec::new(),
            seen: vec![Seen::default(); traces.len()],
            weight: 0,
            problems: Vec::new(),
        };
        let mut index = HashMap::new();
        let mut files = 0;
        for trace in traces {
            all.first_file.push(files);
            files += trace.files.len();
            let domain = trace.layout.env_text("domain").unwrap_or("trace");
            let mut of_trace = Vec::new();
            for stream in &trace.layout.streams {
                let contexts = [&stream.packet_context, &stream.event_context];
                let mut of_stream = Vec::new();
                for event in &stream.events {
                    let (group, name) = event.name.split_once(':').unwrap_or((domain, &event.name));
                    let key = (group.to_owned(), name.to_owned());
                    let table = *index.entry(key).or_insert_with(|| {
                        let table = Table::new(&all.tables, frame, &event.name, group, name);
                        all.tables.push(table);
                        all.tables.len() - 1
                    });
                    let [packet, common] = contexts;
                    let fields = [packet, common, &event.context, &event.payload];
                    let (site, renamed) = all.tables[table].site(table, frame, fields);
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

    /// Takes an event: `decode` is given the places of its values, or none where no table is
    /// wanted, and returns how many bits they took.
    pub fn add<E>(
        &mut self,
        origin: Origin,
        time: Time,
        decode: impl FnOnce(Option<Row>, bool) -> Result<u64, E>,
    ) -> Result<(), ImportError>
    where
        ImportError: From<E>,
    {
        let site = &mut self.sites[origin.trace][origin.stream][origin.event];
        let table = &mut self.tables[site.table];
        let Some(place) = &self.place else {
            decode(None, false)?;
            table.span(time);
            table.written += 1;
            return Ok(());
        };
        let bits = match decode(Some(Row { table, site }), site.has_packet_context) {
            Ok(bits) => bits,
            Err(error) => {
                // What was read of it is beyond the last row, and goes with the columns.
                self.weight -= table.weight;
                table.write(place, self.frame)?;
                return Err(error.into());
            }
        };
        site.events += 1;
        table.span(time);
        self.seen[origin.trace].add(time);
        table.rows.ts.push(time.ts);
        table.rows.err_ns.push(time.err_ns);
        table.rows.files.push(self.first_file[origin.trace] + origin.file);
        table.rows.cpu.push(origin.cpu.and_then(|cpu| u32::try_from(cpu).ok()));
        let width: usize = table.columns.iter().map(|column| column.shape.width()).sum();
        let weight = 48 + 8 * width + (bits / 8) as usize;
        table.weight += weight;
        self.weight += weight;
        if table.weight >= PART {
            self.weight -= table.weight;
            return table.write(place, self.frame);
        }
        if self.weight >= ALL
            && let Some(largest) = self.tables.iter_mut().max_by_key(|table| table.weight)
        {
            self.weight -= largest.weight;
            largest.write(place, self.frame)?;
        }
        Ok(())
    }

    /// What was taken of each trace.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.clone()
    }

    /// The names of the tables that have events of a trace.
    pub fn of_trace(&self, trace: usize) -> impl Iterator<Item = String> {
        let sites = self.sites[trace].iter().flatten().filter(|site| site.events > 0);
        sites.map(|site| self.tables[site.table].full_name())
    }

    /// Writes what is left; what the tables hold, and what has to be known of them.
    pub fn finish(self) -> Result<(Vec<TableSummary>, Vec<String>), ImportError> {
        let mut problems = self.problems;
        let mut summaries = Vec::new();
        for mut table in self.tables {
            if let Some(place) = &self.place {
                table.write(place, self.frame)?;
            }
            let (name, not_utf8) = (table.full_name(), table.not_utf8);
            if not_utf8 > 0 {
                problems.push(format!(
                    "{name}: {not_utf8} texts are not UTF-8; what is wrong in them is \u{fffd}"
                ));
            }
            if table.written > 0 {
                summaries.push(TableSummary {
                    table: name,
                    event: table.event,
                    rows: table.written,
                    from_ns: table.from_ns,
                    until_ns: table.until_ns,
                });
            }
        }
        summaries.sort_by(|a, b| a.table.cmp(&b.table));
        Ok((summaries, problems))
    }
}

impl Table {
    fn new(others: &[Table], frame: &dyn Frame, event: &str, group: &str, name: &str) -> Table {
        let (group, wanted) = (file_name(group), file_name(name));
        let same = |other: &Table, name: &str| other.group == group && other.name == name;
        let taken = |name: &str| {
            others.iter().any(|other| same(other, name)) || frame.has_table(&group, name)
        };
        let name = free_name(&wanted, taken);
        Table {
            event: event.to_owned(),
            group,
            name,
            columns: Vec::new(),
            rows: Rows::default(),
            weight: 0,
            written: 0,
            parts: 0,
            from_ns: None,
            until_ns: None,
            not_utf8: 0,
        }
    }

    /// Makes room for an event class: packet's, stream's and own context, and fields. The names
    /// that had to be changed come back, as wanted and as they are.
    fn site(
        &mut self,
        table: usize,
        frame: &dyn Frame,
        parts: [&Option<Field>; 4],
    ) -> (Site, Vec<(String, String)>) {
        let [packet, stream, event, payload] = parts;
        let mut site = Site { table, ..Site::default() };
        let mut used = Vec::new();
        let mut renamed = Vec::new();
        let mut column = |wanted: &str, shape: Shape| {
            let index = self.column(wanted, frame.shape(wanted, shape), frame, &used);
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
    fn column(&mut self, wanted: &str, shape: Shape, frame: &dyn Frame, used: &[usize]) -> usize {
        let free = |name: &str| {
            let found = self.columns.iter().position(|column| column.name == name);
            match found {
                Some(index) => self.columns[index].shape == shape && !used.contains(&index),
                None => !frame.reserves(name, &shape),
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

    /// `group.name`.
    fn full_name(&self) -> String {
        format!("{}.{}", self.group, self.name)
    }

    /// Takes note of an event's time.
    fn span(&mut self, Time { ts, .. }: Time) {
        self.from_ns = self.from_ns.or(ts);
        self.until_ns = ts.or(self.until_ns);
    }

    /// Writes the rows, if there are any, as the table's next part.
    fn write(&mut self, place: &Path, frame: &dyn Frame) -> Result<(), ImportError> {
        let rows = std::mem::take(&mut self.rows);
        let count = rows.len();
        let mut own = Vec::new();
        for column in &mut self.columns {
            let cells = std::mem::replace(&mut column.cells, Cells::new(&column.shape));
            self.not_utf8 += cells.not_utf8();
            if count > 0
                && let Some(array) = cells.into_array(count)?
            {
                own.push((column.name.clone(), array));
            }
        }
        self.weight = 0;
        if count == 0 {
            return Ok(());
        }
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (field, array) in frame.columns(rows, &mut own)? {
            fields.push(field);
            columns.push(array);
        }
        for (name, array) in own {
            fields.push(ArrowField::new(name, array.data_type().clone(), true));
            columns.push(array);
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        let file = format!("part-{}.parquet", self.parts);
        store::write(&place.join(&self.group).join(&self.name).join(file), &batch)?;
        self.parts += 1;
        self.written += count as u64;
        Ok(())
    }
}

/// A name that can be a directory's: what cannot be in one is `_`.
pub(crate) fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "_+-.@".contains(c) { c } else { '_' };
    let mut name: String = name.chars().map(plain).take(80).collect();
    if name.is_empty() || name.starts_with('.') {
        name.insert(0, '_');
    }
    name
}
