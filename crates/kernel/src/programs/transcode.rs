//! Records of programs in the kernel, of a processor, as a stream.

use std::collections::VecDeque;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

use loopscope_time::Frequency;

use super::place::{self, Placement, Reading};
use super::record::{self, Names, Record};
use crate::recording::{RecordingError, failed};
use crate::transcode::{Found, Writer, open};

/// How many records of a processor may be made between when one takes its place in the ring and
/// when it gets its stamp: those of interrupts that come in between.
const NESTED: usize = 64;

/// Makes a stream of the records in a file, placed by the `readings` in another one.
pub(crate) fn transcode(
    records: &Path,
    readings: &Path,
    names: &Names,
    frequency: Frequency,
    mut out: Writer<'_>,
) -> Result<Found, RecordingError> {
    let Some(file) = open(records, &mut out.found)? else { return out.finish() };
    let mut file = BufReader::new(file);
    let placement = match open(readings, &mut out.found)? {
        Some(file) => read_placement(BufReader::new(file)).map_err(failed("read", readings))?,
        None => None,
    };
    let Some(placement) = placement else {
        out.found.problem(0, "the readings of the records' clock cannot be used");
        return out.finish();
    };
    let tick_ns = 1e9 / frequency.hz() as f64;
    let (mut fields, mut text) = (Vec::new(), String::new());
    let mut waiting: VecDeque<(u64, Record)> = VecDeque::new();
    let mut put = |out: &mut Writer<'_>, (at, found): (u64, Record)| {
        let placed = placement.place(found.at());
        fields.clear();
        let within = (placed.within * tick_ns).ceil().min(f64::from(u32::MAX)) as u32;
        found.put(within, names, &mut fields, &mut text);
        out.put(at, found.kind().number(), placed.counter, found.tid().into(), &fields);
    };
    let mut at = 0;
    let mut bytes = [0; record::SIZE];
    while read(&mut file, &mut bytes).map_err(failed("read", records))? {
        match Record::of(&bytes) {
            Some(found) => {
                let place = waiting.partition_point(|(_, other)| other.at() <= found.at());
                waiting.insert(place, (at, found));
            }
            None => out.found.problem(at, "this is no record"),
        }
        at += record::SIZE as u64;
        if waiting.len() > NESTED
            && let Some(first) = waiting.pop_front()
        {
            put(&mut out, first);
        }
    }
    for each in waiting {
        put(&mut out, each);
    }
    out.finish()
}

fn read_placement(mut file: impl Read) -> std::io::Result<Option<Placement>> {
    let mut found = Vec::new();
    let mut bytes = [0; place::SIZE];
    while read(&mut file, &mut bytes)? {
        found.push(Reading::of_bytes(&bytes));
    }
    Ok(Placement::new(found))
}

/// Fills `bytes`; `false` at the end of the file, also where the last ones are too few: a host that
/// was cut off leaves a part.
fn read(file: &mut impl Read, bytes: &mut [u8]) -> std::io::Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
