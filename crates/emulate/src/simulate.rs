//! A link in virtual time: packets as CSV go in, what becomes of them comes out. It is the model
//! alone, to try settings, and for tests of their statistics.

use std::io::{self, BufRead, BufWriter, Write};

use loopscope_time::MonotonicNs;
use serde_json::{Map, Value};

use crate::model::{Fate, Link, Outcome, Packet};
use crate::settings::check_json;

/// Why a simulation cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The settings make no sense.
    #[error("settings: {0}")]
    Settings(String),
    /// A line of the input is no packet.
    #[error("input line {line}: {problem}")]
    Line {
        /// From 1.
        line: u64,
        /// What is wrong with it, and the remedy.
        problem: String,
    },
    /// The input cannot be read or the output not be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A frame without its bytes.
#[derive(Debug)]
struct Frame {
    size: usize,
}

impl Packet for Frame {
    fn size(&self) -> usize {
        self.size
    }

    fn duplicate(&self) -> Frame {
        Frame { size: self.size }
    }

    fn flip(&mut self, _bit: u64) {}
}

/// Reads packets from `input` (CSV `at_ns,size`, a header allowed, in order of time; bytes of
/// Ethernet frames) and writes the outcome of each on a link of these settings to `output`, in
/// order of time: CSV with the columns that its header says. `duplicate` is 1 of a second one,
/// `corrupted` 1 where a bit was flipped.
pub fn run(
    settings_json: &str,
    seed: u64,
    name: &str,
    input: impl BufRead,
    output: impl Write,
) -> Result<(), SimulateError> {
    let all: Map<String, Value> = serde_json::from_str(settings_json)
        .map_err(|error| SimulateError::Settings(error.to_string()))?;
    let settings =
        check_json(&all).map_err(|mistake| SimulateError::Settings(mistake.to_string()))?;
    let mut link = Link::new(settings, seed, name).map_err(SimulateError::Settings)?;
    let mut output = BufWriter::new(output);
    writeln!(output, "number,size,enqueued_ns,due_ns,fate,reason,duplicate,corrupted")?;
    let mut last = MonotonicNs(0);
    for (line, number) in input.lines().zip(1..) {
        let line = line?;
        if number == 1 && line.starts_with("at_ns") {
            continue;
        }
        let (at, size) = packet(&line).ok_or_else(|| SimulateError::Line {
            line: number,
            problem: format!("`{line}` is no packet. Write at_ns,size as in 1000000,1514"),
        })?;
        if at < last {
            let problem = format!("{} ns is before the line above. Put them in order", at.0);
            return Err(SimulateError::Line { line: number, problem });
        }
        last = at;
        drain(&mut link, Some(at), &mut output)?;
        link.enqueue(at, Frame { size });
    }
    drain(&mut link, None, &mut output)?;
    output.flush()?;
    Ok(())
}

fn packet(line: &str) -> Option<(MonotonicNs, usize)> {
    let (at, size) = line.split_once(',')?;
    Some((MonotonicNs(at.trim().parse().ok()?), size.trim().parse().ok()?))
}

/// Writes what is due until `until`; `None`: all.
fn drain(
    link: &mut Link<Frame>,
    until: Option<MonotonicNs>,
    output: &mut impl Write,
) -> Result<(), io::Error> {
    while let Some(due) = link.next_due() {
        if until.is_some_and(|until| due > until) {
            break;
        }
        while let Some(outcome) = link.poll(due) {
            write_outcome(&outcome, output)?;
        }
    }
    Ok(())
}

fn write_outcome(outcome: &Outcome<Frame>, output: &mut impl Write) -> Result<(), io::Error> {
    let (fate, reason) = match outcome.fate {
        Fate::Departs => ("departs", ""),
        Fate::Dropped(drop) => ("dropped", drop.name()),
    };
    let Outcome { packet, number, enqueued, due, .. } = outcome;
    let (duplicate, corrupted) = (u8::from(outcome.duplicate), u8::from(outcome.corrupted));
    let size = packet.size;
    writeln!(
        output,
        "{number},{size},{},{},{fate},{reason},{duplicate},{corrupted}",
        enqueued.0, due.0
    )
}
