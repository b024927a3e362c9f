//! One stream of one process: its slot in the control file, its rings, its account.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::atomic::Ordering;

use loopscope_ctf::{EventClass, Records};
use loopscope_time::Counter;
use loopscope_trace::configure::{SiteText, apply};
use loopscope_trace::layout::{BARE, CAUSES, Control, FREE, IN_RING, Ring, Section, Stream, TAKEN};

use crate::Error;
use crate::doubts::Doubts;
use crate::folder::Folder;
use crate::journal::Journal;
use crate::loss::{DISK_FULL, ProcessLoss, SiteLoss};
use crate::mapping::Mapping;
use crate::ring::{Mark, Most, RingCount, RingReader, count};
use crate::shortage;
use crate::sink::Tools;
use crate::site::Site;
use crate::stream_file::StreamFile;

/// A stream of a process under collection.
#[derive(Debug)]
pub(crate) struct ProcessStream {
    pub(crate) slot: usize,
    pub(crate) generation: u32,
    /// Index of its output.
    pub(crate) output: usize,
    rings: BTreeMap<OsString, (RingReader, Mark)>,
    unsound: BTreeSet<OsString>,
    /// Rings whose files are shorter than a ring's head: being made, or cut.
    short: BTreeSet<OsString>,
    doubts: Doubts,
}

/// What the collector has for a ring.
pub(crate) struct Ours {
    pub(crate) stream: StreamFile,
    /// In the file of progress.
    pub(crate) number: usize,
    /// An earlier collector had it before.
    pub(crate) resumed: bool,
}

/// Largest number of rings of a process in one stream: more than any process has threads.
const MOST_RINGS: usize = 1 << 15;

/// A call site about which nothing is asked.
pub(crate) const NOTHING: SiteText = SiteText { kind: 1, full_name: c"", fields: &[0] };

/// What a look at the rings found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level {
    /// How full the fullest ring was, 0 to 1.
    pub(crate) fill: f64,
    /// Bytes of the smallest ring.
    pub(crate) capacity: Option<u64>,
}

/// The stream, the generation and n in a file name `<what>-<stream>-<generation>-<n>`, where `what`
/// is `ring` or `cells`; `None` for any other name.
pub(crate) fn numbers<'a>(name: &'a OsStr, what: &str) -> Option<(usize, u32, &'a str)> {
    let mut parts = name.to_str()?.strip_prefix(what)?.strip_prefix('-')?.split('-');
    let found = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
    let digits = !found.2.is_empty() && found.2.bytes().all(|b| b.is_ascii_digit());
    (digits && parts.next().is_none()).then_some(found)
}

impl ProcessStream {
    pub(crate) fn new(slot: usize, generation: u32, output: usize) -> ProcessStream {
        let (rings, unsound, short) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        ProcessStream { slot, generation, output, rings, unsound, short, doubts: Doubts::default() }
    }

    pub(crate) fn slot<'a>(&self, control: &'a Control) -> &'a Stream {
        &control.streams[self.slot]
    }

    /// The slot's tables; `None` while they are not there.
    fn section<'a>(&self, control: &'a Control) -> Option<&'a Section> {
        // Acquire pairs with the release store of who set the stream up: the tables are there.
        let state = self.slot(control).state.load(Ordering::Acquire);
        (state != FREE && state != BARE).then(|| &control.sections[self.slot])
    }

    /// Whether the file of this name is a ring of this stream that is not known yet.
    pub(crate) fn is_new(&self, name: &OsStr) -> bool {
        !self.rings.contains_key(name) && !self.unsound.contains(name)
    }

    /// Takes up a ring; `stream` makes its stream file. Not there yet is none at all.
    pub(crate) fn add_ring(
        &mut self,
        folder: &Folder,
        name: OsString,
        most: Most,
        journal: &mut Journal,
        stream: impl FnOnce(&mut Journal, &OsStr) -> Result<Ours, Error>,
    ) -> Result<(), Error> {
        let opened = folder.write(&name).and_then(|file| {
            let is_short = file.metadata()?.len() < size_of::<Ring>() as u64;
            Ok((Mapping::<Ring>::of(&file, most.bytes())?, is_short))
        });
        let map = match opened {
            // A ring that its program gave up again.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                self.refuse(name, &error.to_string());
                return Ok(());
            }
            Ok((None, true)) => {
                self.short.insert(name);
                return Ok(());
            }
            Ok((None, false)) => return Ok(()),
            Ok((Some(map), _)) => map,
        };
        self.short.remove(&name);
        if self.rings.len() >= MOST_RINGS {
            self.refuse(name, &format!("there are more than {MOST_RINGS} rings"));
            return Ok(());
        }
        let Ours { stream, number, resumed } = stream(journal, &name)?;
        let known = name.to_string_lossy().into_owned();
        match RingReader::new(known, map, stream, number, most) {
            Some(mut ring) => {
                if resumed {
                    ring.resume(&journal.progress)?;
                }
                let mark = ring.mark();
                self.rings.insert(name, (ring, mark));
            }
            None => self.refuse(name, "its head makes no sense"),
        }
        Ok(())
    }

    /// Leaves a ring out.
    fn refuse(&mut self, name: OsString, why: &str) {
        self.doubts.add(format!("{}: {why}; it was not read", name.display()));
        self.unsound.insert(name);
    }

    pub(crate) fn mark(&mut self) -> Level {
        let mut level = Level::default();
        for (ring, mark) in self.rings.values_mut() {
            *mark = ring.mark();
            level.fill = level.fill.max(ring.fill(*mark));
            let capacity = ring.size as u64 * ring.count;
            level.capacity = Some(level.capacity.map_or(capacity, |least| least.min(capacity)));
        }
        level
    }

    /// Calls `each` with class, stamp and id of what the marks cover and it has not been told.
    pub(crate) fn observe(&mut self, records: &Records, mut each: impl FnMut(usize, Counter, i64)) {
        for (ring, mark) in self.rings.values_mut() {
            ring.observe(*mark, records, &mut each);
        }
    }

    /// Copies what the marks cover. Returns the sub-buffers.
    pub(crate) fn drain(&mut self, tools: Tools) -> Result<u64, Error> {
        let mut copied = 0;
        for (ring, mark) in self.rings.values_mut() {
            copied += ring.drain(*mark, tools, &mut self.doubts)?;
        }
        Ok(copied)
    }

    /// Writes what flight recorders held at the marks.
    pub(crate) fn snapshot(&mut self, tools: Tools) -> Result<u64, Error> {
        let mut packets = 0;
        for (ring, mark) in self.rings.values_mut() {
            packets += ring.snapshot(*mark, tools, &mut self.doubts)?;
        }
        Ok(packets)
    }

    /// Records that were written.
    pub(crate) fn stored(&self) -> u64 {
        self.rings.values().map(|(ring, _)| ring.sink.recorded).sum()
    }

    /// End of the newest packet, on the trace's clock.
    pub(crate) fn last(&self) -> Counter {
        self.rings.values().map(|(ring, _)| ring.sink.last).max().unwrap_or(Counter(0))
    }

    /// Whether records were lost because the disk was full.
    pub(crate) fn was_full(&self) -> bool {
        self.rings.values().any(|(ring, _)| !ring.sink.lost.is_empty())
    }

    /// Disables every entity in this stream.
    pub(crate) fn disable(&self, control: &Control) {
        let bit = 1u32 << self.slot;
        for (index, flag) in control.flags.iter().enumerate() {
            if flag.load(Ordering::Relaxed) & bit != 0 {
                apply(control, self.slot, index, NOTHING, c"");
            }
        }
        let state = &self.slot(control).state;
        if ![FREE, BARE].contains(&state.load(Ordering::Relaxed)) {
            // No ring is made for it any more. Release pairs with the acquire load in
            // loopscope_make_ring (ring.c).
            state.store(TAKEN, Ordering::Release);
        }
    }

    /// Reads nothing more of any ring.
    pub(crate) fn abandon(&mut self) {
        self.rings.values_mut().for_each(|(ring, _)| ring.broken = true);
    }

    /// Whether no thread is inside a hit. Everything must have been drained.
    pub(crate) fn is_settled(&self, records: &Records) -> bool {
        self.rings.values().all(|(ring, _)| ring.is_settled(records))
    }

    pub(crate) fn revoke(&self) {
        for (ring, _) in self.rings.values() {
            ring.revoke();
        }
    }

    /// Takes all that is left and gives the account; adds to `problems` what a lack of memory has
    /// done. Where the process `lives`, threads may go on.
    pub(crate) fn close(
        &mut self,
        of: &Of,
        tools: Tools,
        problems: &mut Vec<String>,
    ) -> Result<ProcessLoss, Error> {
        let mut sum = RingCount::default();
        let mut inside = 0;
        let mut lost: BTreeMap<u16, u64> = BTreeMap::new();
        for (ring, _) in self.rings.values_mut() {
            let count = ring.close(tools, of.lives, &mut self.doubts)?;
            sum.emitted += count.emitted;
            sum.recorded += count.recorded;
            sum.overwritten += count.overwritten;
            inside += u64::from(count.inside);
            for (class, records) in count.lost {
                // A resumed recording knows how many, not always of which.
                let class = of.classes.get(class).map_or(0, |class| class.id);
                *lost.entry(class).or_default() += records;
            }
        }
        for name in &self.short {
            self.doubts.add(format!("{}: its file is too short; it was not read", name.display()));
        }
        let stream = self.slot(of.control);
        let uncounted = stream.uncounted.load(Ordering::Relaxed);
        sum.emitted += uncounted;
        let mut dropped = uncounted;
        let mut sites = Vec::new();
        let section = self.section(of.control);
        for (index, site) in of.sites.iter().enumerate() {
            let mut causes = BTreeMap::new();
            let mut filtered = 0;
            if let Some(section) = section {
                for (cause, dropped) in section.drops[index].iter().enumerate() {
                    let dropped = count(dropped, Ordering::Relaxed);
                    if dropped > 0 {
                        causes.insert(CAUSES[cause].to_owned(), dropped);
                        // Rings count the hits that they had no room for; others reached no ring.
                        sum.emitted += if IN_RING[cause] { 0 } else { dropped };
                    }
                }
                filtered = count(&section.filtered[index], Ordering::Relaxed);
            }
            if let Some(lost) = lost.get(&site.index) {
                causes.insert(DISK_FULL.to_owned(), *lost);
            }
            dropped += causes.values().sum::<u64>();
            let has_records = of.classes.iter().any(|class| class.id == site.index);
            if has_records || !causes.is_empty() || filtered > 0 {
                sites.push(SiteLoss {
                    entity: site.entity(),
                    file: site.file.clone(),
                    line: site.line,
                    dropped: causes,
                    filtered,
                });
            }
        }
        let who = format!("{} ({})", of.process, of.pid);
        problems.extend(shortage::problems(&who, of.dir, stream, uncounted, &sites));
        let accounted = sum.recorded + sum.overwritten + dropped;
        // At most one hit of each ring whose thread was inside one is neither record nor drop.
        let torn = sum.emitted.saturating_sub(accounted).min(inside);
        if sum.emitted != accounted + torn {
            let (emitted, overwritten) = (sum.emitted, sum.overwritten);
            self.doubts.add(format!(
                "{emitted} events emitted, but {} recorded, {overwritten} overwritten and {} dropped",
                sum.recorded,
                dropped + torn
            ));
        }
        let mut unknown = of.unknown.to_vec();
        unknown.extend(self.doubts.texts());
        Ok(ProcessLoss {
            process: of.process.to_owned(),
            pid: of.pid,
            // What is known to have been; `unknown` says why there may be more.
            emitted: accounted + torn,
            recorded: sum.recorded,
            overwritten: sum.overwritten,
            dropped: dropped + torn,
            torn,
            filtered: sites.iter().map(|site| site.filtered).sum(),
            finals: 0,
            unknown,
            sites,
        })
    }
}

/// The process that a stream is closed for, see [`ProcessStream::close`].
pub(crate) struct Of<'a> {
    pub(crate) process: &'a str,
    pub(crate) pid: u32,
    pub(crate) dir: &'a Path,
    pub(crate) control: &'a Control,
    pub(crate) sites: &'a [Site],
    pub(crate) classes: &'a [EventClass],
    pub(crate) lives: bool,
    pub(crate) unknown: &'a [String],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        let ring = |name: &'static str| numbers(OsStr::new(name), "ring");
        assert_eq!(ring("ring-3-1-12"), Some((3, 1, "12")));
        for other in ["cells-3-1-12", "ring-3-1", "ring-3-1-12-4", "ring-a-1-2", "ring-3-1-x"] {
            assert_eq!(ring(other), None, "{other}");
        }
    }
}
