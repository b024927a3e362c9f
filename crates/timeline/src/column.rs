//! A column of a table's own while it grows, and as Arrow.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder as _, BinaryBuilder, BooleanBufferBuilder, ListBuilder, StringBuilder,
    UInt16Builder, UInt64Builder,
};
use arrow_array::{
    ArrayRef, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array,
    UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use loopscope_ctf::{BucketCounts, FieldType, Value};
use serde::{Deserialize, Serialize};

use crate::block::Block;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnType {
    /// A number.
    Fixed(FieldType),
    Text,
    Binary,
    /// Indexes of a histogram's non-empty buckets.
    Indexes,
    /// The same ones' counts.
    Counts,
}

impl ColumnType {
    /// For names.
    pub fn name(self) -> &'static str {
        match self {
            ColumnType::Fixed(field_type) => field_type.tsdl().trim_end_matches("_t"),
            ColumnType::Text => "string",
            ColumnType::Binary => "bytes",
            ColumnType::Indexes => "indexes",
            ColumnType::Counts => "counts",
        }
    }
}

/// What a table could not hold as it was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flaws {
    /// Strings that are not UTF-8; what is wrong in them was replaced.
    pub not_utf8: u64,
    /// Values that are null because their column was full.
    pub left_out: u64,
    /// Intervals that start after their end: their values are null.
    pub backward: u64,
}

impl Flaws {
    /// Each with its number.
    pub fn counts(&self) -> [(u64, &'static str); 3] {
        [
            (self.not_utf8, "strings are not UTF-8; what is wrong in them became \u{fffd}"),
            (
                self.left_out,
                "values are null in the tables: a group of rows holds 2 GiB of them at most",
            ),
            (self.backward, "intervals start after their end; start and duration are null"),
        ]
    }
}

/// Bytes, or elements of lists, that Arrow's 32-bit offsets let a column hold.
#[cfg(not(test))]
const MOST: usize = i32::MAX as usize;
#[cfg(test)]
const MOST: usize = 10;

pub(crate) struct Column {
    pub name: String,
    pub column_type: ColumnType,
    data: Data,
}

enum Data {
    /// The values' own little-endian bytes, and which rows have one.
    Bits(FieldType, Vec<u64>, BooleanBufferBuilder),
    Text(StringBuilder),
    Binary(BinaryBuilder),
    Indexes(ListBuilder<UInt16Builder>),
    Counts(ListBuilder<UInt64Builder>),
}

impl Column {
    pub fn new(name: String, column_type: ColumnType) -> Column {
        let data = match column_type {
            ColumnType::Fixed(t) => Data::Bits(t, Vec::new(), BooleanBufferBuilder::new(0)),
            ColumnType::Text => Data::Text(StringBuilder::new()),
            ColumnType::Binary => Data::Binary(BinaryBuilder::new()),
            ColumnType::Indexes => Data::Indexes(ListBuilder::new(UInt16Builder::new())),
            ColumnType::Counts => Data::Counts(ListBuilder::new(UInt64Builder::new())),
        };
        Column { name, column_type, data }
    }

    /// Sets row `row` to the value that `fields` begins with; returns the rest. Rows that were
    /// passed over are null.
    pub fn push<'a>(&mut self, row: usize, fields: &'a [u8], flaws: &mut Flaws) -> &'a [u8] {
        self.pad(row);
        let mut fits = |held: usize, more: usize| {
            let fits = held + more <= MOST;
            flaws.left_out += u64::from(!fits);
            fits
        };
        match &mut self.data {
            Data::Bits(field_type, bits, valid) => {
                let (value, rest) = fields.split_at(field_type.size().unwrap_or_default());
                let mut raw = [0; 8];
                raw[..value.len()].copy_from_slice(value);
                bits.push(u64::from_le_bytes(raw));
                valid.append(true);
                rest
            }
            Data::Text(builder) => {
                let (value, rest) = split(FieldType::String, fields);
                let text = String::from_utf8_lossy(bytes(value));
                let fits = fits(builder.values_slice().len(), text.len());
                flaws.not_utf8 += u64::from(matches!(text, Cow::Owned(_)));
                builder.append_option(fits.then_some(text));
                rest
            }
            Data::Binary(builder) => {
                let (value, rest) = split(FieldType::Bytes, fields);
                let fits = fits(builder.values_slice().len(), bytes(value).len());
                builder.append_option(fits.then_some(bytes(value)));
                rest
            }
            // The two take one field between them: the first one leaves it to the second.
            Data::Indexes(builder) => {
                let indexes = buckets(split(FieldType::Buckets, fields).0).indexes();
                let fits = fits(builder.values().len(), indexes.len());
                builder.append_option(fits.then(|| indexes.map(Some)));
                fields
            }
            Data::Counts(builder) => {
                let (value, rest) = split(FieldType::Buckets, fields);
                let counts = buckets(value).counts();
                let fits = fits(builder.values().len(), counts.len());
                builder.append_option(fits.then(|| counts.map(Some)));
                rest
            }
        }
    }

    /// [`Self::push`] of each row from `first` on; the fields of all are there.
    pub fn extend(
        &mut self,
        first: usize,
        rows: &mut [(&Block, Option<&[u8]>)],
        flaws: &mut BTreeMap<usize, Flaws>,
    ) {
        macro_rules! fixed {
            ($bits:ident, $valid:ident, $t:ty) => {{
                $bits.extend(rows.iter_mut().filter_map(|(_, fields)| {
                    let (raw, rest) = (*fields)?.split_first_chunk()?;
                    *fields = Some(rest);
                    Some(u64::from(<$t>::from_le_bytes(*raw)))
                }));
                return $valid.append_n(rows.len(), true);
            }};
        }
        self.pad(first);
        if let Data::Bits(field_type, bits, valid) = &mut self.data {
            match field_type.size() {
                Some(1) => fixed!(bits, valid, u8),
                Some(2) => fixed!(bits, valid, u16),
                Some(4) => fixed!(bits, valid, u32),
                _ => fixed!(bits, valid, u64),
            }
        }
        for (row, (block, fields)) in (first..).zip(rows) {
            let flaws = flaws.entry(block.file).or_default();
            *fields = fields.map(|fields| self.push(row, fields, flaws));
        }
    }

    /// About how much memory its values take.
    pub fn weight(&self) -> usize {
        match &self.data {
            Data::Bits(_, bits, _) => 8 * bits.len(),
            Data::Text(builder) => 5 * builder.len() + builder.values_slice().len(),
            Data::Binary(builder) => 5 * builder.len() + builder.values_slice().len(),
            Data::Indexes(builder) => 5 * builder.len() + 2 * builder.values_ref().len(),
            Data::Counts(builder) => 5 * builder.len() + 8 * builder.values_ref().len(),
        }
    }

    fn pad(&mut self, rows: usize) {
        macro_rules! nulls {
            ($builder:expr) => {
                for _ in $builder.len()..rows {
                    $builder.append_null();
                }
            };
        }
        match &mut self.data {
            Data::Bits(_, bits, valid) => {
                valid.append_n(rows - bits.len(), false);
                bits.resize(rows, 0);
            }
            Data::Text(builder) => nulls!(builder),
            Data::Binary(builder) => nulls!(builder),
            Data::Indexes(builder) => nulls!(builder),
            Data::Counts(builder) => nulls!(builder),
        }
    }

    /// Gives away its values, of `rows` rows.
    pub fn take(&mut self, rows: usize) -> ArrayRef {
        self.pad(rows);
        match &mut self.data {
            Data::Bits(field_type, bits, valid) => {
                numbers(*field_type, &std::mem::take(bits), valid.finish().iter())
            }
            Data::Text(builder) => Arc::new(builder.finish()),
            Data::Binary(builder) => Arc::new(builder.finish()),
            Data::Indexes(builder) => Arc::new(builder.finish()),
            Data::Counts(builder) => Arc::new(builder.finish()),
        }
    }
}

/// The value that `fields` begins with, and the rest. The decoder has seen that it is whole.
fn split(field_type: FieldType, fields: &[u8]) -> (Value<'_>, &[u8]) {
    let size = field_type.extent(fields).unwrap_or_default();
    (field_type.decode(fields), &fields[size..])
}

fn bytes(value: Value<'_>) -> &[u8] {
    match value {
        Value::String(bytes) | Value::Bytes(bytes) => bytes,
        other => unreachable!("asked for bytes: {other:?}"),
    }
}

fn buckets(value: Value<'_>) -> BucketCounts<'_> {
    match value {
        Value::Buckets(buckets) => buckets,
        other => unreachable!("asked for buckets: {other:?}"),
    }
}

/// Values from their own little-endian bytes, where they are valid.
pub(crate) fn numbers(
    field_type: FieldType,
    bits: &[u64],
    valid: impl Iterator<Item = bool>,
) -> ArrayRef {
    macro_rules! array {
        ($array:ty, $value:expr) => {
            Arc::new(<$array>::from_iter(
                bits.iter().zip(valid).map(|(&bits, valid)| valid.then(|| $value(bits))),
            ))
        };
    }
    // Narrowing keeps exactly the value's own bytes.
    match field_type {
        FieldType::U8 => array!(UInt8Array, |b| b as u8),
        FieldType::U16 => array!(UInt16Array, |b| b as u16),
        FieldType::U32 => array!(UInt32Array, |b| b as u32),
        FieldType::U64 => array!(UInt64Array, |b| b),
        FieldType::I8 => array!(Int8Array, |b| b as i8),
        FieldType::I16 => array!(Int16Array, |b| b as i16),
        FieldType::I32 => array!(Int32Array, |b| b as i32),
        FieldType::I64 => array!(Int64Array, |b: u64| b.cast_signed()),
        FieldType::F32 => array!(Float32Array, |b| f32::from_bits(b as u32)),
        FieldType::F64 => array!(Float64Array, f64::from_bits),
        FieldType::String | FieldType::Bytes | FieldType::Buckets => {
            unreachable!("{field_type:?} is no number")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;

    #[test]
    fn a_full_column_leaves_values_out_and_counts_them() {
        let mut column = Column::new("text".into(), ColumnType::Text);
        let mut flaws = Flaws::default();
        for (row, text) in ["1234567\0", "1234\0", "123\0rest"].iter().enumerate() {
            assert_eq!(column.push(2 * row, text.as_bytes(), &mut flaws).len(), [0, 0, 4][row]);
        }
        assert_eq!(flaws, Flaws { left_out: 1, ..Flaws::default() });
        let array = column.take(6);
        let texts: Vec<_> = array.as_string::<i32>().iter().collect();
        assert_eq!(texts, [Some("1234567"), None, None, None, Some("123"), None]);
    }
}
