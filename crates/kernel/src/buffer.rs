//! One processor's events of a class: taken out of the kernel's buffer, counted, and put into a file.

use loopscope_time::source::read_counter;

use crate::error::RecorderError;
use crate::output::{Output, Replaced};
use crate::page;
use crate::recording::BufferCounts;
use crate::tracefs::{Counts, Pages};

/// How many events there are in pages that follow each other.
pub(crate) fn events_of(mut pages: &[u8]) -> u64 {
    let mut count = 0;
    while let Ok((header, size)) = page::header(pages) {
        let records = &pages[page::HEADER..page::HEADER + header.size];
        // Pages that are not understood are not counted: there is no count of them.
        let _ = page::events(&header, records, |_, _| count += 1);
        pages = &pages[size..];
    }
    count
}

/// One processor's events of a class.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) class: String,
    /// Its index.
    pub(crate) instance: usize,
    pub(crate) processor: u32,
    pub(crate) pages: Pages,
    /// It has whole pages.
    pub(crate) file: Output,
    /// The counter just before the buffer was emptied last.
    pub(crate) emptied: u64,
    pub(crate) counts: BufferCounts,
    /// What a flight recorder has not written.
    pub(crate) replaced: Replaced,
    /// The counter at the last look at the kernel's counts.
    pub(crate) looked: u64,
}

impl Buffer {
    /// Bytes that were in it.
    pub(crate) fn take(
        &mut self,
        page: &mut [u8],
        all: bool,
        keep: u64,
    ) -> Result<usize, RecorderError> {
        let (mut taken, mut first) = (0, true);
        // Events came while it was emptied.
        let begin = std::mem::replace(&mut self.emptied, read_counter().0);
        while let Some(room) = self.pages.take(page)? {
            let of_class = |error| {
                let (class, processor) = (&self.class, self.processor);
                RecorderError::Pages(format!("{class} of processor {processor}: {error}"))
            };
            let (_, size) = page::header(page).map_err(of_class)?;
            self.file.put(&page[..size]);
            taken += size;
            if self.file.is_full() {
                self.file.write()?;
            }
            // Taking a page can make events, which would be taken for ever. One with much room left
            // is the newest, or the rest of the one that was the newest the last time.
            if !all && !first && size < room - room / 4 {
                break;
            }
            first = false;
        }
        let now = read_counter().0;
        let oldest = now.saturating_sub(keep);
        self.file.came((begin, now), oldest, events_of, &mut self.replaced);
        if all {
            self.file.write()?;
        }
        Ok(taken)
    }

    pub(crate) fn give_up(&mut self, now: u64, found: Counts) {
        // Those that are waiting to be written belong to what is lost as well.
        let unwritten = events_of(&self.file.give_up());
        let lost = found.held + unwritten;
        let BufferCounts { recorded, dropped, gaps, .. } = &mut self.counts;
        *recorded -= unwritten.min(*recorded);
        *dropped += lost;
        if lost > 0 {
            gaps.push((self.emptied, now, lost));
        }
    }

    pub(crate) fn look(&mut self, now: u64, found: Counts) {
        let BufferCounts { recorded, overwritten, dropped, gaps, .. } = &mut self.counts;
        let lost = found.dropped + found.overwritten;
        let before = *dropped + *overwritten;
        if lost > before {
            gaps.push((self.looked, now, lost - before));
        }
        (*recorded, *overwritten, *dropped) = (found.read, found.overwritten, found.dropped);
        self.looked = now;
    }
}
