//! Tables to Parquet files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    ArrowColumnWriter, ArrowLeafColumn, ArrowRowGroupWriterFactory, compute_leaves,
};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use rayon::prelude::*;

use crate::error::BuildError;

/// A file that is opened for each write: there may be more tables than a process may have files.
struct Appended(PathBuf);

impl Write for Appended {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        File::options().append(true).open(&self.0)?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A table's file while it is written, a group of rows at a time.
pub(crate) struct Writer {
    file: SerializedFileWriter<Appended>,
    columns: ArrowRowGroupWriterFactory,
    groups: usize,
}

impl Writer {
    /// Instants, counters and ids are differences in disguise: delta encoding keeps them small.
    pub fn new(path: &Path, schema: SchemaRef) -> Result<Writer, BuildError> {
        let mut properties =
            WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()));
        for field in schema.fields() {
            if matches!(field.data_type(), DataType::Int64 | DataType::UInt64) {
                let column = ColumnPath::from(field.name().as_str());
                properties = properties
                    .set_column_dictionary_enabled(column.clone(), false)
                    .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
            }
        }
        let at = |source| BuildError::Io { path: path.to_owned(), source };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(at)?;
        }
        File::create(path).map_err(at)?;
        let file = Appended(path.to_owned());
        let writer = ArrowWriter::try_new(file, schema, Some(properties.build()))?;
        let (file, columns) = writer.into_serialized_writer()?;
        Ok(Writer { file, columns, groups: 0 })
    }

    /// Writes a group of rows; its columns are encoded at the same time.
    pub fn group(&mut self, batch: &RecordBatch) -> Result<(), BuildError> {
        let mut leaves = Vec::new();
        for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            leaves.extend(compute_leaves(field, array)?);
        }
        let writers = self.columns.create_column_writers(self.groups)?;
        let encode = |(mut writer, leaf): (ArrowColumnWriter, ArrowLeafColumn)| {
            writer.write(&leaf)?;
            writer.close()
        };
        let columns: Vec<_> = writers.into_iter().zip(leaves).collect();
        let chunks = columns.into_par_iter().map(encode).collect::<Result<Vec<_>, _>>()?;
        let mut group = self.file.next_row_group()?;
        for chunk in chunks {
            chunk.append_to_row_group(&mut group)?;
        }
        group.close()?;
        self.groups += 1;
        Ok(())
    }

    /// After the last group.
    pub fn close(self) -> Result<(), BuildError> {
        self.file.close()?;
        Ok(())
    }
}

/// Writes one table.
pub(crate) fn write(path: &Path, batch: &RecordBatch) -> Result<(), BuildError> {
    let mut writer = Writer::new(path, batch.schema())?;
    if batch.num_rows() > 0 {
        writer.group(batch)?;
    }
    writer.close()
}
