//! Records of looks at threads as a stream.

use std::io::Read as _;
use std::path::Path;

use loopscope_ctf::FieldType;
use loopscope_time::Frequency;

use super::SIZE;
use crate::recording::{RecordingError, failed};
use crate::transcode::{Found, Writer, open};

/// Fields of the event, in the record's order; the thread's name follows as a text.
const FIELDS: [(&str, FieldType); 5] = [
    ("took_ns", FieldType::U32),
    ("root", FieldType::U32),
    ("run_ns", FieldType::U64),
    ("wait_ns", FieldType::U64),
    ("slices", FieldType::U64),
];

/// The fields of the event.
pub(crate) fn fields() -> Vec<(String, FieldType)> {
    let numbers = FIELDS.map(|(name, kind)| (name.to_owned(), kind));
    numbers.into_iter().chain([("comm".to_owned(), FieldType::String)]).collect()
}

/// Makes a stream of the records in a file.
pub(crate) fn transcode(
    records: &Path,
    frequency: Frequency,
    mut out: Writer<'_>,
) -> Result<Found, RecordingError> {
    let Some(mut file) = open(records, &mut out.found)? else { return out.finish() };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed("read", records))?;
    let mut fields = Vec::new();
    let number_in = |record: &[u8], at: usize| {
        let mut value = [0; 8];
        value.copy_from_slice(&record[at..at + 8]);
        u64::from_le_bytes(value)
    };
    // A host that was cut off leaves a part of a record.
    let mut found: Vec<(usize, &[u8])> = bytes.chunks_exact(SIZE).enumerate().collect();
    // The look before a change is written after others of its time.
    found.sort_by_key(|(_, record)| number_in(record, 0));
    for (number, record) in found {
        let number_at = |at: usize| number_in(record, at);
        let took_ns = (number_at(8) as f64 * 1e9 / frequency.hz() as f64).ceil() as u32;
        let tid = number_at(40) as u32;
        fields.clear();
        fields.extend_from_slice(&took_ns.to_le_bytes());
        fields.extend_from_slice(&record[44..48]);
        fields.extend_from_slice(&record[16..40]);
        let name = &record[56..];
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        fields.extend_from_slice(&name[..end]);
        fields.push(0);
        out.put((number * SIZE) as u64, 0, number_at(0), tid.into(), &fields);
    }
    out.finish()
}
