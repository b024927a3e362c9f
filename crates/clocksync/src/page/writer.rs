//! Publishing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use loopscope_clock::layout::{WORDS, word};
use loopscope_time::Frequency;

use super::file::{self, Owned, PageError};
use super::line::{self, OutOfRange};
use super::ring::Ring;
use super::service::Service;
use crate::state::State;

/// The only writer of a clock page.
///
/// Dropped, it leaves the page to expire, or to the writer that takes it over; [`Self::retire`] takes
/// it away.
#[derive(Debug)]
pub struct PageWriter {
    path: PathBuf,
    owned: Owned,
    newest: u64,
    pid: u64,
    start: u64,
}

impl PageWriter {
    /// Makes the page at `path`, readable by all, or takes it over from a writer that ended;
    /// `frequency` is the counter's, nominal. Readers of a page that cannot be gone on with (another
    /// boot's, another version's) find the new one.
    pub fn create(path: &Path, frequency: Frequency) -> Result<PageWriter, PageError> {
        let owned = file::own(path, frequency)?;
        let start = own_start().map_err(|error| PageError::Io { path: path.into(), error })?;
        let pid = std::process::id().into();
        let mut writer = PageWriter { path: path.into(), owned, newest: 0, pid, start };
        writer.newest = writer.ring().newest();
        Ok(writer)
    }

    /// The epoch of the newest publication: of the writer before, until this one publishes. Epochs
    /// of a page must not begin anew.
    pub fn epoch(&self) -> Option<u32> {
        // With no other writer nothing can be lost.
        self.ring().read().map(|(_, words)| words[word::STANDING] as u32)
    }

    /// Makes this what readers see from now on.
    pub fn publish(&mut self, state: &State, service: Service) -> Result<(), OutOfRange> {
        self.publish_slowly(state, service, |_| {})
    }

    /// `before` is called before each word is stored, and before the publication is made current.
    pub(super) fn publish_slowly(
        &mut self,
        state: &State,
        service: Service,
        before: impl FnMut(usize),
    ) -> Result<(), OutOfRange> {
        let mut words = line::words(state, service)?;
        words[word::PID] = self.pid;
        words[word::START] = self.start;
        self.ring().publish(self.newest + 1, &words, before);
        self.newest += 1;
        Ok(())
    }

    /// Removes the page; what programs have mapped says UNKNOWN from now on.
    pub fn retire(self) -> io::Result<()> {
        let PageWriter { path, owned, .. } = self;
        fs::remove_file(&path)?;
        file::retire(owned.mapping.page());
        // Last: while it is there nobody else makes a page of this name.
        fs::remove_file(file::beside(&path, ".lock"))
    }

    fn ring(&self) -> Ring<'_, AtomicU64, WORDS> {
        let page = self.owned.mapping.page();
        Ring { current: &page.current, slots: &page.slots }
    }
}

/// When this process started: field 22 of `/proc/self/stat`, in clock ticks after boot.
fn own_start() -> io::Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The second field is the program's name in parentheses and may hold anything.
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let start = behind.split_ascii_whitespace().nth(19);
    start.and_then(|text| text.parse().ok()).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "/proc/self/stat has no start of the process")
    })
}
