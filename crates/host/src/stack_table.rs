//! The connections of a service of the stack, for a person to read.

use std::io::{self, Write};

use loopscope_stack_service::{Status, Streams};

const COLUMNS: usize = 13;
const HEADS: [&str; COLUMNS] = [
    "PID", "UID", "PROTO", "LOCAL", "PEER", "DEVICE", "PACKETS", "BYTES", "LOST", "UNACKED",
    "UNREAD", "MSS", "RTT",
];
/// Columns of words. Those of numbers are set to the right.
const WORDS: [usize; 4] = [2, 3, 4, 5];

/// Writes a line for each connection. What is not known is a dash.
pub fn write(out: &mut impl Write, programs: usize, connections: &[Status]) -> io::Result<()> {
    let s = if programs == 1 { "" } else { "s" };
    let of = |count: usize| if count == 1 { "connection" } else { "connections" };
    let count = connections.len();
    writeln!(out, "{count} {} of {programs} program{s} by the stack", of(count))?;
    if connections.is_empty() {
        return Ok(());
    }
    let rows: Vec<[String; COLUMNS]> =
        [HEADS.map(String::from)].into_iter().chain(connections.iter().map(row)).collect();
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let cell = if WORDS.contains(&column) {
                format!("{cell:<width$}  ")
            } else {
                format!("{cell:>width$}  ")
            };
            line.push_str(&cell);
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn row(status: &Status) -> [String; COLUMNS] {
    let streams = status.streams.as_ref();
    let of = |get: fn(&Streams) -> usize| known(streams.map(get));
    let trip = streams.and_then(|streams| streams.round_trip_us);
    [
        known(status.process),
        known(status.user),
        status.protocol.clone(),
        status.local.to_string(),
        status.peer.to_string(),
        status.device.clone(),
        known(status.packets),
        known(status.payload),
        known(status.lost),
        of(|streams| streams.unacknowledged),
        of(|streams| streams.unread),
        of(|streams| streams.segment),
        trip.map_or("-".into(), |[trip, variation]| format!("{trip:.0}±{variation:.0}µs")),
    ]
}

fn known(number: Option<impl ToString>) -> String {
    number.map_or("-".into(), |number| number.to_string())
}
