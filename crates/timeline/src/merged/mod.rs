//! The tables of a run as one CTF 1.8 trace on its global clock: `schema/merged-ctf.md`.
//!
//! The tables are sorted, so they are read side by side, a batch of each at a time, and merged by
//! time into one stream for each program of a host.

mod layout;
mod stream;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array as _, ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use loopscope_ctf::{TYPES, format_uuid, quote};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use serde::Serialize;

use crate::error::BuildError;
use crate::import::output::Output;
use crate::import::table::file_name;
use crate::import::{ImportError, io};
use crate::source::Progress;
use layout::{Layout, is_text, put_text, text};
use stream::{HEADER, Stream};

/// Rows that are read at once of each table.
const BATCH: usize = 4096;
/// Events after which the progress is told.
const OFTEN: u64 = 1 << 16;
const NS: i64 = 1_000_000_000;

/// A table that becomes events of one name.
#[derive(Clone, Debug)]
pub struct EventTable {
    /// Names of the events, `group:name`.
    pub name: String,
    /// Its Parquet files, in the order of time.
    pub parts: Vec<PathBuf>,
}

/// What a merged trace says of itself.
#[derive(Clone, Debug)]
pub struct About {
    /// UUID of the trace.
    pub uuid: [u8; 16],
    /// UTC at the zero of global time, ns, where that is known.
    pub utc_ns: Option<i64>,
    /// The environment's entries.
    pub env: Vec<(String, String)>,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Merged {
    /// Events.
    pub events: u64,
    /// Streams, one for each program of a host.
    pub streams: usize,
    /// Classes of events, one for each set of fields that a table's rows have.
    pub classes: usize,
}

/// Writes the tables' rows to `out`, in the order of time. `progress` is told of rows.
pub fn write_merged(
    tables: &[EventTable],
    about: &About,
    out: &Path,
    progress: &mut Progress,
) -> Result<Merged, ImportError> {
    let output = Output::new(out)?;
    let mut total = 0;
    let mut readers = Vec::new();
    for table in tables {
        let (reader, rows) = Reader::open(table)?;
        total += rows;
        readers.push(reader);
    }
    let mut order = BinaryHeap::new();
    for (index, reader) in readers.iter_mut().enumerate() {
        if reader.next()? {
            order.push(Reverse((reader.ts(), index)));
        }
    }
    // Stamps are not negative; global times may be.
    let first = order.peek().map_or(0, |Reverse((ts, _))| *ts);
    let zero = first.min(0);
    let mut writer = Writer {
        place: output.place().to_owned(),
        uuid: about.uuid,
        streams: Vec::new(),
        index: HashMap::new(),
        classes: Vec::new(),
    };
    let mut events = 0;
    while let Some(Reverse((_, index))) = order.pop() {
        let reader = &mut readers[index];
        let limit = order.peek().map(|Reverse(next)| *next);
        loop {
            writer.write(reader, zero)?;
            events += 1;
            if events % OFTEN == 0 && !progress(events, total) {
                return Err(ImportError::Stopped);
            }
            if !reader.next()? {
                break;
            }
            let here = (reader.ts(), index);
            if limit.is_some_and(|limit| here > limit) {
                order.push(Reverse(here));
                break;
            }
        }
    }
    let (streams, classes) = (writer.streams.len(), writer.classes.len());
    writer.finish(about, zero)?;
    output.keep()?;
    Ok(Merged { events, streams, classes })
}

/// A table while it is read.
struct Reader {
    name: String,
    parts: VecDeque<PathBuf>,
    batches: Option<ParquetRecordBatchReader>,
    schema: SchemaRef,
    layout: Layout,
    arrays: Vec<ArrayRef>,
    ts: Int64Array,
    err_ns: Int64Array,
    host: ArrayRef,
    process: ArrayRef,
    row: usize,
    rows: usize,
    /// Host and process of the row before, as they stand in the columns, and its stream.
    stream: Option<(Option<(usize, usize)>, usize)>,
    bits: Vec<bool>,
    /// The values that the row before has, and its class.
    class: Option<(Vec<bool>, u32)>,
    classes: HashMap<Vec<bool>, u32>,
}

fn open(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>, ImportError> {
    let file = File::open(path).map_err(io(path))?;
    Ok(ParquetRecordBatchReaderBuilder::try_new(file).map_err(BuildError::from)?)
}

fn column(batch: &RecordBatch, path: &Path, name: &str) -> Result<ArrayRef, ImportError> {
    let missing = || io(path)(std::io::Error::other(format!("has no column {name}")));
    batch.column_by_name(name).cloned().ok_or_else(missing)
}

impl Reader {
    fn open(table: &EventTable) -> Result<(Reader, u64), ImportError> {
        let mut rows = 0;
        for part in &table.parts {
            rows += open(part)?.metadata().file_metadata().num_rows().cast_unsigned();
        }
        let none = || Int64Array::from(Vec::<i64>::new());
        let nothing: ArrayRef = Arc::new(none());
        let reader = Reader {
            name: table.name.clone(),
            parts: table.parts.iter().cloned().collect(),
            batches: None,
            schema: Arc::new(Schema::empty()),
            layout: Layout::default(),
            arrays: Vec::new(),
            ts: none(),
            err_ns: none(),
            host: nothing.clone(),
            process: nothing,
            row: 0,
            rows: 0,
            stream: None,
            bits: Vec::new(),
            class: None,
            classes: HashMap::new(),
        };
        Ok((reader, rows))
    }

    fn ts(&self) -> i64 {
        self.ts.value(self.row)
    }

    /// Goes to the next row; whether there is one.
    fn next(&mut self) -> Result<bool, ImportError> {
        self.row += 1;
        while self.row >= self.rows {
            match self.batches.as_mut().and_then(Iterator::next) {
                Some(batch) => self.take(&batch?)?,
                None => {
                    let Some(part) = self.parts.front() else { return Ok(false) };
                    let reader = open(part)?.with_batch_size(BATCH).build();
                    self.batches = Some(reader.map_err(BuildError::from)?);
                    self.parts.pop_front();
                }
            }
        }
        Ok(true)
    }

    fn take(&mut self, batch: &RecordBatch) -> Result<(), ImportError> {
        let path = PathBuf::from(&self.name);
        let number = |name| -> Result<Int64Array, ImportError> {
            let array = column(batch, &path, name)?;
            let wrong =
                || io(&path)(std::io::Error::other(format!("{name} is no column of int64")));
            array.as_primitive_opt::<Int64Type>().cloned().ok_or_else(wrong)
        };
        (self.ts, self.err_ns) = (number("ts")?, number("err_ns")?);
        let words = |name| -> Result<ArrayRef, ImportError> {
            let array = column(batch, &path, name)?;
            let wrong =
                || io(&path)(std::io::Error::other(format!("{name} is no column of texts")));
            is_text(array.data_type()).then_some(array).ok_or_else(wrong)
        };
        (self.host, self.process) = (words("host")?, words("process")?);
        if self.schema != *batch.schema_ref() {
            self.schema = batch.schema();
            self.layout = Layout::of(self.schema.fields())
                .map_err(|error| io(&path)(std::io::Error::other(error)))?;
            self.classes.clear();
            self.class = None;
        }
        self.arrays = batch.columns().to_vec();
        (self.row, self.rows) = (0, batch.num_rows());
        // Keys of dictionaries are the batch's own.
        self.stream = None;
        Ok(())
    }

    /// The keys of host and process, where they are of dictionaries.
    fn keys(&self) -> Option<(usize, usize)> {
        let key = |array: &ArrayRef| array.as_dictionary_opt::<Int32Type>()?.key(self.row);
        key(&self.host).zip(key(&self.process))
    }
}

/// The merged trace in the making.
struct Writer {
    place: PathBuf,
    uuid: [u8; 16],
    streams: Vec<Stream>,
    /// By host and process.
    index: HashMap<(String, String), usize>,
    /// Name and fields of each class.
    classes: Vec<(String, String)>,
}

impl Writer {
    /// Writes the row that a reader is at.
    fn write(&mut self, reader: &mut Reader, zero: i64) -> Result<(), ImportError> {
        let row = reader.row;
        let keys = reader.keys();
        let stream = match reader.stream {
            Some((known, stream)) if keys.is_some() && known == keys => stream,
            _ => self.stream(text(&reader.host, row), text(&reader.process, row)),
        };
        reader.stream = Some((keys, stream));
        reader.bits.clear();
        reader.layout.present(&reader.arrays, row, &mut reader.bits);
        let class = match &reader.class {
            Some((bits, class)) if *bits == reader.bits => *class,
            _ => self.class(reader),
        };
        let stamp = reader.ts().abs_diff(zero);
        let out = self.streams[stream].event(class, stamp)?;
        put_text(text(&reader.host, row), out);
        put_text(text(&reader.process, row), out);
        out.extend_from_slice(&reader.err_ns.value(row).to_le_bytes());
        reader.layout.put(&reader.arrays, row, out);
        Ok(())
    }

    fn stream(&mut self, host: &str, process: &str) -> usize {
        let key = (host.to_owned(), process.to_owned());
        *self.index.entry(key).or_insert_with(|| {
            let number = self.streams.len();
            let name = file_name(&format!("{number}-{host}-{process}"));
            self.streams.push(Stream::new(self.place.join(name), self.uuid, number as u64));
            number
        })
    }

    /// The class of the row that a reader is at.
    fn class(&mut self, reader: &mut Reader) -> u32 {
        let bits = reader.bits.clone();
        let class = *reader.classes.entry(bits.clone()).or_insert_with(|| {
            self.classes.push((reader.name.clone(), reader.layout.declare(&bits)));
            self.classes.len() as u32 - 1
        });
        reader.class = Some((bits, class));
        class
    }

    fn finish(mut self, about: &About, zero: i64) -> Result<(), ImportError> {
        for stream in &mut self.streams {
            stream.flush()?;
        }
        let path = self.place.join("metadata");
        fs::write(&path, self.metadata(about, zero)).map_err(io(&path))
    }

    fn metadata(&self, about: &About, zero: i64) -> String {
        let uuid = format_uuid(&about.uuid);
        let origin = zero + about.utc_ns.unwrap_or(0);
        let (offset_s, offset) = (origin.div_euclid(NS), origin.rem_euclid(NS));
        let absolute = if about.utc_ns.is_some() { "TRUE" } else { "FALSE" };
        let mut text = format!("/* CTF 1.8 */\n\n{TYPES}\n");
        let _ = write!(
            text,
            "trace {{\n\tmajor = 1;\n\tminor = 8;\n\tuuid = \"{uuid}\";\n\tbyte_order = le;\n\
             \tpacket.header := struct {{\n\t\tuint32_t magic;\n\t\tuint8_t uuid[16];\n\
             \t\tuint32_t stream_id;\n\t\tuint64_t stream_instance_id;\n\t}};\n}};\n\nenv {{\n"
        );
        for (key, value) in &about.env {
            let _ = writeln!(text, "\t{key} = {};", quote(value));
        }
        let _ = write!(
            text,
            "}};\n\nclock {{\n\tname = \"global\";\n\tdescription = \"time of all hosts\";\n\
             \tfreq = {NS};\n\toffset_s = {offset_s};\n\toffset = {offset};\n\
             \tabsolute = {absolute};\n}};\n\n\
             typealias integer {{ size = 64; align = 8; signed = false; \
             map = clock.global.value; }} := stamp_t;\n\n{HEADER}"
        );
        for (id, (name, fields)) in self.classes.iter().enumerate() {
            let name = quote(name);
            let _ = write!(
                text,
                "\nevent {{\n\tname = {name};\n\tid = {id};\n\tstream_id = 0;\n\
                 \tfields := struct {{\n{fields}\t}};\n}};\n"
            );
        }
        text
    }
}
