//! Traces of one process, and the tables that are made of them.

#![allow(dead_code, reason = "each test program uses its part")]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use loopscope_ctf::{EventClass, FieldType, Metadata, PacketWriter, StreamClass};
use loopscope_time::{ClockMap, Counter, Frequency, Knot};
use loopscope_timeline::HostClock;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

pub const HZ: u64 = 2_000_000_000;

pub fn event(id: u16, name: &str, fields: &[(&str, FieldType)]) -> EventClass {
    EventClass {
        id,
        group: "pipe".into(),
        name: name.into(),
        fields: fields.iter().map(|(n, t)| ((*n).to_owned(), *t)).collect(),
        file: "pipe.c".into(),
        line: u32::from(id) + 1,
        ..EventClass::default()
    }
}

/// Class, counter, id and fields.
pub type Written = (u16, u64, i64, Vec<u8>);

pub fn metadata(events: Vec<EventClass>) -> Metadata {
    Metadata {
        uuid: [1; 16],
        host: "h".into(),
        clock_uuid: [2; 16],
        frequency: Frequency::from_hz(HZ).unwrap(),
        streams: BTreeMap::from([(
            0,
            StreamClass { id: 0, process: "node".into(), kernel: false, events },
        )]),
        groups: BTreeMap::from([("pipe".into(), "of messages".into())]),
    }
}

/// Packets of 200 bytes.
pub fn packets(tid: u32, records: &[Written]) -> Vec<u8> {
    packets_of(200, tid, records)
}

/// Packets of at most so many bytes, or of one record.
pub fn packets_of(limit: usize, tid: u32, records: &[Written]) -> Vec<u8> {
    let mut writer = PacketWriter::new([1; 16], 0, 7, tid, limit);
    let mut stream = Vec::new();
    for (class, counter, id, fields) in records {
        let full = writer.record(*class, Counter(*counter), *id, fields).unwrap();
        stream.extend(full.unwrap_or_default());
    }
    stream.extend(writer.flush().unwrap_or_default());
    stream
}

pub fn knot(counter: u64, offset_ns: f64, err_ns: f64) -> Knot {
    Knot { counter: Counter(counter), offset_ns, err_ns, calibrated_ns: err_ns }
}

pub fn plain() -> HostClock {
    let frequency = Frequency::from_hz(HZ).unwrap();
    HostClock {
        map: ClockMap::reference(frequency, Counter(0)),
        frequency,
        reference: true,
        exchanges: 0,
        rejected: 0,
        readings: Vec::new(),
        events: Vec::new(),
    }
}

pub fn read(path: &Path) -> RecordBatch {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let batches: Vec<_> = reader.with_batch_size(1 << 20).build().unwrap().collect();
    assert_eq!(batches.len(), 1);
    batches.into_iter().next().unwrap().unwrap()
}

pub fn ints(batch: &RecordBatch, name: &str) -> Vec<i64> {
    batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec()
}
