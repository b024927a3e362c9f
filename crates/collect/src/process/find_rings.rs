//! Finding the rings that a process has made.

use std::ffi::OsStr;
use std::io;

use super::{Process, ours};
use crate::Error;
use crate::journal::Journal;
use crate::output::Output;
use crate::process_stream::{ProcessStream, numbers};
use crate::ring::Most;

impl Process {
    /// Looks for rings that its directory did not have before. The inner error: it cannot be read.
    pub(super) fn find_rings(
        &mut self,
        outputs: &mut [Output],
        journal: &mut Journal,
    ) -> Result<io::Result<()>, Error> {
        let list = || {
            let state = self.runtime.state_of(&self.dir)?;
            if self.listed == Some((state, self.streams.len())) {
                return Ok(None);
            }
            // Before the names are read: what comes meanwhile is another state.
            let is_final = state.is_final();
            let folder = self.folder()?;
            Ok(Some((folder.names()?, folder, is_final.then_some(state))))
        };
        let (names, folder, mut state) = match list() {
            Ok(Some(listed)) => listed,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        };
        for name in names {
            let Some((slot, generation, n)) = numbers(&name, "ring") else { continue };
            let of = |r: &&mut ProcessStream| (r.slot, r.generation) == (slot, generation);
            let Some(recorded) = self.streams.iter_mut().find(of) else { continue };
            if recorded.is_new(&name) {
                let output = &mut outputs[recorded.output];
                let most = Most { size: output.spec.subbuffer, count: output.spec.subbuffers };
                let process = (self.id, self.name.as_str(), self.pid);
                let ours =
                    |journal: &mut Journal, ring: &OsStr| ours(output, journal, process, ring, n);
                recorded.add_ring(&folder, name.clone(), most, journal, ours)?;
                if recorded.is_new(&name) {
                    // Its program is still making it.
                    state = None;
                }
            }
        }
        self.listed = state.map(|state| (state, self.streams.len()));
        Ok(Ok(()))
    }
}
