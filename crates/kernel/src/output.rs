//! A file that grows by whole blocks.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use crate::recording::{RecordingError, failed};

/// Bytes that are written at once, about.
const BLOCK: usize = 256 << 10;

/// A file, and what is to be written to it next.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    file: File,
    block: Vec<u8>,
    /// Bytes of the file, all of them whole.
    written: u64,
}

impl Output {
    pub(crate) fn make(path: PathBuf) -> Result<Output, RecordingError> {
        let file = File::create(&path).map_err(failed("write", &path))?;
        Ok(Output { path, file, block: Vec::new(), written: 0 })
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    /// Whether there is enough for a block.
    pub(crate) fn is_full(&self) -> bool {
        self.block.len() >= BLOCK
    }

    /// Writes what there is; all of it, or nothing and it is kept.
    pub(crate) fn write(&mut self) -> Result<(), RecordingError> {
        if let Err(error) = self.file.write_all(&self.block) {
            // A part of it may be there.
            self.file.set_len(self.written).map_err(failed("shorten", &self.path))?;
            return Err(failed("write", &self.path)(error));
        }
        self.written += self.block.len() as u64;
        self.block.clear();
        Ok(())
    }

    /// What was not written, which never will be.
    pub(crate) fn give_up(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.block)
    }
}
