//! Types of event fields.

use std::ffi::CStr;

use crate::packet::get_u32;

/// Type of an event field. The codes are those that call sites carry (`include/loopscope/trace.h`);
/// [`FieldType::Buckets`] is in records that the library makes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FieldType {
    /// Unsigned, 8 bits.
    U8 = 1,
    /// Unsigned, 16 bits.
    U16 = 2,
    /// Unsigned, 32 bits.
    U32 = 3,
    /// Unsigned, 64 bits.
    U64 = 4,
    /// Signed, 8 bits.
    I8 = 5,
    /// Signed, 16 bits.
    I16 = 6,
    /// Signed, 32 bits.
    I32 = 7,
    /// Signed, 64 bits.
    I64 = 8,
    /// IEEE 754 binary32.
    F32 = 9,
    /// IEEE 754 binary64.
    F64 = 10,
    /// Text: its bytes, then NUL.
    String = 11,
    /// Any bytes: their number (u32), then they.
    Bytes = 12,
    /// A histogram's non-empty buckets: their number (u32), their indexes (u16 each), then the
    /// count of values in each (u64 each).
    Buckets = 13,
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A value of any unsigned type.
    Unsigned(u64),
    /// A value of any signed type.
    Signed(i64),
    /// A value of a floating point type.
    Float(f64),
    /// A string without its NUL. Programs promise UTF-8; nobody checks it before this.
    String(&'a [u8]),
    /// A sequence of bytes.
    Bytes(&'a [u8]),
    /// Counts of a histogram.
    Buckets(BucketCounts<'a>),
}

/// The non-empty buckets of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketCounts<'a> {
    indexes: &'a [u8],
    counts: &'a [u8],
}

impl<'a> BucketCounts<'a> {
    /// Index of each bucket, in the order of the record.
    pub fn indexes(self) -> impl ExactSizeIterator<Item = u16> + 'a {
        self.indexes.as_chunks().0.iter().map(|raw| u16::from_le_bytes(*raw))
    }

    /// Count of values in each of them.
    pub fn counts(self) -> impl ExactSizeIterator<Item = u64> + 'a {
        self.counts.as_chunks().0.iter().map(|raw| u64::from_le_bytes(*raw))
    }
}

impl FieldType {
    /// The types that a call site can declare, in the order of their codes.
    pub const ALL: [FieldType; 12] = [
        FieldType::U8,
        FieldType::U16,
        FieldType::U32,
        FieldType::U64,
        FieldType::I8,
        FieldType::I16,
        FieldType::I32,
        FieldType::I64,
        FieldType::F32,
        FieldType::F64,
        FieldType::String,
        FieldType::Bytes,
    ];

    /// The type with this call-site code.
    pub fn from_code(code: u8) -> Option<FieldType> {
        Self::ALL.into_iter().find(|t| *t as u8 == code)
    }

    /// The type's name: that of the `typealias` in the metadata, where there is one.
    pub fn tsdl(self) -> &'static str {
        match self {
            FieldType::U8 => "uint8_t",
            FieldType::U16 => "uint16_t",
            FieldType::U32 => "uint32_t",
            FieldType::U64 => "uint64_t",
            FieldType::I8 => "int8_t",
            FieldType::I16 => "int16_t",
            FieldType::I32 => "int32_t",
            FieldType::I64 => "int64_t",
            FieldType::F32 => "float32_t",
            FieldType::F64 => "float64_t",
            FieldType::String => "string",
            FieldType::Bytes => "bytes",
            FieldType::Buckets => "buckets",
        }
    }

    /// The type that a call site can declare with this name.
    pub fn from_tsdl(name: &str) -> Option<FieldType> {
        Self::ALL.into_iter().find(|t| t.tsdl() == name)
    }

    /// Size in a record, in bytes; fields are packed. `None` where it differs from record to
    /// record.
    pub fn size(self) -> Option<usize> {
        match self {
            FieldType::U8 | FieldType::I8 => Some(1),
            FieldType::U16 | FieldType::I16 => Some(2),
            FieldType::U32 | FieldType::I32 | FieldType::F32 => Some(4),
            FieldType::U64 | FieldType::I64 | FieldType::F64 => Some(8),
            FieldType::String | FieldType::Bytes | FieldType::Buckets => None,
        }
    }

    /// Size of the value that `bytes` begins with; `None` if `bytes` ends before it does.
    pub fn extent(self, bytes: &[u8]) -> Option<usize> {
        let count = || bytes.first_chunk().map(|raw| u32::from_le_bytes(*raw) as usize);
        let size = match self {
            FieldType::String => CStr::from_bytes_until_nul(bytes).ok()?.count_bytes() + 1,
            FieldType::Bytes => 4 + count()?,
            FieldType::Buckets => 4 + 10 * count()?,
            fixed => fixed.size()?,
        };
        (size <= bytes.len()).then_some(size)
    }

    /// Decodes the value that `bytes` begins with.
    ///
    /// # Panics
    /// If `bytes` ends before it does.
    pub fn decode(self, bytes: &[u8]) -> Value<'_> {
        let size = self.extent(bytes).expect("the value is whole");
        let value = &bytes[..size];
        let mut raw = [0; 8];
        if self.size().is_some() {
            raw[..size].copy_from_slice(value);
        }
        let bits = u64::from_le_bytes(raw);
        match self {
            FieldType::U8 | FieldType::U16 | FieldType::U32 | FieldType::U64 => {
                Value::Unsigned(bits)
            }
            FieldType::I8 | FieldType::I16 | FieldType::I32 | FieldType::I64 => {
                // Left and then, signed, right extends the sign of the shorter types.
                let spare = 64 - 8 * size;
                Value::Signed((bits << spare).cast_signed() >> spare)
            }
            FieldType::F32 => Value::Float(f64::from(f32::from_bits(bits as u32))),
            FieldType::F64 => Value::Float(f64::from_bits(bits)),
            FieldType::String => Value::String(&value[..size - 1]),
            FieldType::Bytes => Value::Bytes(&value[4..]),
            FieldType::Buckets => {
                let (indexes, counts) = value[4..].split_at(2 * get_u32(value, 0) as usize);
                Value::Buckets(BucketCounts { indexes, counts })
            }
        }
    }
}
