//! Records of looks as a stream.

use std::io::Read as _;
use std::path::Path;

use loopscope_time::Frequency;

use super::shape::Shape;
use crate::recording::{RecordingError, failed};
use crate::transcode::{Found, Writer, open};

/// Makes a stream of the records in a file.
pub(crate) fn transcode(
    shape: &Shape,
    records: &Path,
    frequency: Frequency,
    mut out: Writer<'_>,
) -> Result<Found, RecordingError> {
    let Some(mut file) = open(records, &mut out.found)? else { return out.finish() };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed("read", records))?;
    // A host that was cut off leaves a part of a record.
    let mut found: Vec<(usize, &[u8])> = bytes.chunks_exact(shape.size).enumerate().collect();
    // The look before a change is written after others of its time.
    found.sort_by_key(|(_, record)| number_at(record, 0));
    let mut fields = Vec::new();
    for (number, record) in found {
        let took_ns = number_at(record, 8) as f64 * 1e9 / frequency.hz() as f64;
        fields.clear();
        fields.extend_from_slice(&(took_ns.ceil() as u32).to_le_bytes());
        for (_, kind, at) in shape.numbers {
            let size = kind.size().expect("columns are numbers");
            fields.extend_from_slice(&record[*at..at + size]);
        }
        for (_, text) in shape.texts {
            fields.extend_from_slice(text(record).as_bytes());
            fields.push(0);
        }
        let tid = number_at(record, shape.tid) as u32;
        let place = (number * shape.size) as u64;
        out.put(place, 0, number_at(record, 0), tid.into(), &fields);
    }
    out.finish()
}

/// The 64 bits at a place of a record.
fn number_at(record: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&record[at..at + 8]);
    u64::from_le_bytes(value)
}
