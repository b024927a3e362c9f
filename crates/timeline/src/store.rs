//! Tables to Parquet files.

use std::fs::{self, File};
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SortOptions};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use crate::build::BuildError;

/// Sorts by `ts`; rows of the same instant keep the order of their streams' counters.
pub(crate) fn sorted(batch: &RecordBatch) -> Result<RecordBatch, BuildError> {
    let column = |name: &str| arrow_ord::sort::SortColumn {
        values: batch.column_by_name(name).expect("every timeline table has it").clone(),
        options: Some(SortOptions::default()),
    };
    let by = ["ts", "counter", "id"].map(column);
    let order = arrow_ord::sort::lexsort_to_indices(&by, None)?;
    Ok(arrow_select::take::take_record_batch(batch, &order)?)
}

/// Writes one table. Instants, counters and ids are differences in disguise: delta encoding keeps
/// them small.
pub(crate) fn write(path: &Path, batch: &RecordBatch) -> Result<(), BuildError> {
    let mut properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()));
    for field in batch.schema_ref().fields() {
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
    let file = File::create(path).map_err(at)?;
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties.build()))?;
    writer.write(batch)?;
    writer.close()?;
    Ok(())
}
