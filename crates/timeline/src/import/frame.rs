//! What every table of an import has, before the event's own fields.

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, Int64Array, UInt32Array};
use arrow_schema::{DataType, Field};

use super::ImportError;
use super::cells::Shape;
use super::find::Trace;
use super::index::stream_name;
use crate::table::dictionary;

/// A stream file.
pub(crate) struct FileOf {
    /// Index of its trace.
    pub trace: usize,
    /// The trace's name.
    pub of: String,
    /// Its own.
    pub name: String,
}

impl FileOf {
    /// The files of all traces, in their order.
    pub fn all(traces: &[Trace]) -> Vec<FileOf> {
        let files = traces.iter().enumerate().flat_map(|(index, trace)| {
            (0..trace.files.len()).map(move |file| FileOf {
                trace: index,
                of: trace.name.clone(),
                name: stream_name(trace, file),
            })
        });
        files.collect()
    }
}

/// The rows of a table, apart from the events' own values.
#[derive(Default)]
pub(crate) struct Rows {
    pub ts: Vec<Option<i64>>,
    pub err_ns: Vec<i64>,
    /// Indexes of their stream files.
    pub files: Vec<usize>,
    pub cpu: Vec<Option<u32>>,
}

impl Rows {
    pub fn len(&self) -> usize {
        self.ts.len()
    }
}

/// The columns that all tables have.
pub(crate) trait Frame {
    /// Whether an event's own column cannot have this name.
    fn reserves(&self, name: &str, shape: &Shape) -> bool;
    /// The shape in which a column of an event's own is kept.
    fn shape(&self, name: &str, shape: Shape) -> Shape;
    /// Whether there is such a table already.
    fn has_table(&self, group: &str, name: &str) -> bool;
    /// The columns; those that it takes from the events' `own` are no longer among them.
    fn columns(
        &self,
        rows: Rows,
        own: &mut Vec<(String, ArrayRef)>,
    ) -> Result<Vec<(Field, ArrayRef)>, ImportError>;
}

/// The columns of traces without a time line.
pub(super) struct Plain {
    pub files: Vec<FileOf>,
}

const COMMON: [&str; 4] = ["ts", "trace", "stream", "cpu"];

impl Frame for Plain {
    fn reserves(&self, name: &str, _: &Shape) -> bool {
        COMMON.contains(&name)
    }

    fn shape(&self, _: &str, shape: Shape) -> Shape {
        shape
    }

    fn has_table(&self, _: &str, _: &str) -> bool {
        false
    }

    fn columns(
        &self,
        rows: Rows,
        _: &mut Vec<(String, ArrayRef)>,
    ) -> Result<Vec<(Field, ArrayRef)>, ImportError> {
        let trace = dictionary(rows.files.iter().map(|file| self.files[*file].of.as_str()))?;
        let stream = dictionary(rows.files.iter().map(|file| self.files[*file].name.as_str()))?;
        let (ts, cpu) = (Int64Array::from(rows.ts), UInt32Array::from(rows.cpu));
        let arrays: [ArrayRef; 4] = [Arc::new(ts), trace, stream, Arc::new(cpu)];
        let column = |(name, array): (&str, ArrayRef)| {
            let nullable = matches!(array.data_type(), DataType::Int64 | DataType::UInt32);
            (Field::new(name, array.data_type().clone(), nullable), array)
        };
        Ok(COMMON.into_iter().zip(arrays).map(column).collect())
    }
}
