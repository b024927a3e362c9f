//! A file that grows by whole blocks, and what a flight recorder holds back from it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use crate::recording::{BufferCounts, RecordingError, failed};

/// Bytes that are written at once, about.
const BLOCK: usize = 256 << 10;
/// Bytes that a flight recorder holds of a file, at most.
const HELD: usize = 64 << 20;

/// A file, and what is to be written to it next.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    file: File,
    block: Vec<u8>,
    /// Bytes of the file, all of them whole.
    written: u64,
    /// What may be written later; `None`: everything is written at once.
    held: Option<Held>,
}

/// The newest of what came, in the order in which it did.
#[derive(Debug, Default)]
struct Held {
    pieces: VecDeque<Piece>,
    bytes: usize,
}

/// What came between two values of the counter.
#[derive(Debug)]
struct Piece {
    begin: u64,
    end: u64,
    bytes: Vec<u8>,
}

/// What is never written because newer events came.
#[derive(Debug, Default)]
pub(crate) struct Replaced {
    /// Events.
    pub(crate) count: u64,
    /// As [`BufferCounts::gaps`].
    gaps: Vec<(u64, u64, u64)>,
}

impl Output {
    pub(crate) fn make(path: PathBuf) -> Result<Output, RecordingError> {
        let file = File::create(&path).map_err(failed("write", &path))?;
        Ok(Output { path, file, block: Vec::new(), written: 0, held: None })
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    /// Whether there is enough for a block that can be written now.
    pub(crate) fn is_full(&self) -> bool {
        self.held.is_none() && self.block.len() >= BLOCK
    }

    /// Writes what there is, but for what is held back; all of it, or nothing and it is kept.
    pub(crate) fn write(&mut self) -> Result<(), RecordingError> {
        if self.held.is_some() {
            return Ok(());
        }
        if let Err(error) = self.file.write_all(&self.block) {
            // A part of it may be there.
            self.file.set_len(self.written).map_err(failed("shorten", &self.path))?;
            return Err(failed("write", &self.path)(error));
        }
        self.written += self.block.len() as u64;
        self.block.clear();
        Ok(())
    }

    /// Holds back what comes from now on.
    pub(crate) fn hold(&mut self) -> Result<(), RecordingError> {
        self.write()?;
        self.held.get_or_insert_default();
        Ok(())
    }

    /// Writes what is held, and what comes from now on.
    pub(crate) fn release(&mut self) -> Result<(), RecordingError> {
        if let Some(held) = self.held.take() {
            let newest = std::mem::take(&mut self.block);
            held.pieces.into_iter().for_each(|piece| self.block.extend(piece.bytes));
            self.block.extend(newest);
        }
        self.write()
    }

    /// What was put came between two values of the counter: it is held if anything is,
    /// and what came before `oldest` is not any more. `events` counts those in some bytes.
    pub(crate) fn came(
        &mut self,
        (begin, end): (u64, u64),
        oldest: u64,
        events: impl Fn(&[u8]) -> u64,
        replaced: &mut Replaced,
    ) {
        let Some(held) = &mut self.held else { return };
        held.bytes += self.block.len();
        held.pieces.push_back(Piece { begin, end, bytes: std::mem::take(&mut self.block) });
        while let Some(first) = held.pieces.front()
            && (first.end < oldest || held.bytes > HELD)
        {
            held.bytes -= first.bytes.len();
            replaced.add(first.begin, first.end, events(&first.bytes));
            held.pieces.pop_front();
        }
    }

    /// What is held is never written.
    pub(crate) fn replace(&mut self, events: impl Fn(&[u8]) -> u64, replaced: &mut Replaced) {
        for piece in self.held.take().into_iter().flat_map(|held| held.pieces) {
            replaced.add(piece.begin, piece.end, events(&piece.bytes));
        }
    }

    /// What was not written, which never will be.
    pub(crate) fn give_up(&mut self) -> Vec<u8> {
        let held = self.held.take().into_iter().flat_map(|held| held.pieces);
        let mut bytes: Vec<u8> = held.flat_map(|piece| piece.bytes).collect();
        bytes.append(&mut self.block);
        bytes
    }
}

impl Replaced {
    fn add(&mut self, begin: u64, end: u64, count: u64) {
        self.count += count;
        match self.gaps.last_mut() {
            Some(last) if begin <= last.1 => {
                last.1 = end;
                last.2 += count;
            }
            _ if count > 0 => self.gaps.push((begin, end, count)),
            _ => {}
        }
    }

    /// Puts them into an account in which they were recorded.
    pub(crate) fn account(&self, counts: &mut BufferCounts) {
        let count = self.count.min(counts.recorded);
        counts.recorded -= count;
        counts.overwritten += count;
        counts.gaps.extend(self.gaps.iter().filter(|gap| gap.2 > 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(bytes: &[u8]) -> u64 {
        bytes.len() as u64
    }

    /// A byte is an event, which comes once in each tick of the counter.
    #[test]
    fn the_newest_is_written_and_the_rest_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut output = Output::make(path.clone()).unwrap();
        let mut replaced = Replaced::default();
        output.hold().unwrap();
        let mut run = |output: &mut Output, ticks: std::ops::Range<u8>| {
            for tick in ticks {
                output.put(&[tick]);
                let at = u64::from(tick);
                output.came((at, at + 1), (at + 1).saturating_sub(10), events, &mut replaced);
            }
        };
        run(&mut output, 0..50);
        output.release().unwrap();
        run(&mut output, 50..53);
        output.hold().unwrap();
        run(&mut output, 53..100);
        output.replace(events, &mut replaced);
        output.write().unwrap();
        let kept: Vec<u8> = (39..53).collect();
        assert_eq!(std::fs::read(path).unwrap(), kept);
        assert_eq!(replaced.gaps, [(0, 39, 39), (53, 100, 47)]);
        let mut counts = BufferCounts { recorded: 100, ..BufferCounts::default() };
        replaced.account(&mut counts);
        assert_eq!((counts.recorded, counts.overwritten), (14, 86));
    }

    #[test]
    fn what_is_held_takes_no_more_than_its_room() {
        let folder = tempfile::tempdir().unwrap();
        let mut output = Output::make(folder.path().join("file")).unwrap();
        let mut replaced = Replaced::default();
        output.hold().unwrap();
        for tick in 0..100 {
            output.put(&vec![0; 1 << 20]);
            output.came((tick, tick + 1), 0, events, &mut replaced);
        }
        assert_eq!(replaced.count, 36 << 20);
        assert_eq!(output.give_up().len(), HELD);
    }
}
