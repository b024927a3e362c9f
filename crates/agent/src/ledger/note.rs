//! Records of a child about itself in the ledger.

use std::fs::File;
use std::io;
use std::sync::Arc;

use nix::fcntl::Flock;

/// Room for the largest process number.
pub(super) const DIGITS: usize = 10;

/// The line that a child writes about itself between fork and exec, where it may not allocate.
pub(crate) struct Note {
    file: Arc<Flock<File>>,
    line: Vec<u8>,
}

impl Note {
    pub(super) fn new(file: Arc<Flock<File>>, line: Vec<u8>) -> Note {
        Note { file, line }
    }

    /// Writes the entry of process `pid`. Allocates nothing and takes no lock.
    pub(crate) fn write(&mut self, pid: i32) -> io::Result<()> {
        let mut at = self.line.len() - "}\n".len();
        let mut rest = pid.unsigned_abs();
        loop {
            at -= 1;
            self.line[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if nix::unistd::write(&**self.file, &self.line)? != self.line.len() {
            return Err(io::Error::from_raw_os_error(nix::libc::ENOSPC));
        }
        Ok(())
    }
}
