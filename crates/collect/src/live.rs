//! Live control: streams are given to programs that run already, changed while they are recorded,
//! and taken away again.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use loopscope_time::Frequency;
use loopscope_trace::configure::{SiteText, apply};
use loopscope_trace::layout::{
    ACTIVE, Control, FLIGHT_RECORDER, FREE, NORMAL, STREAMS, Section, TAKEN,
};
use nix::fcntl::{FallocateFlags, fallocate};

use crate::collector::{Collector, Source};
use crate::folder::Folder;
use crate::journal::{Entry, Taken};
use crate::process::Process;
use crate::process_stream::{ProcessStream, numbers};
use crate::site::Site;
use crate::stream::{Kind, StreamSpec, text, ticks, validate};
use crate::{Error, stream};

impl Collector {
    /// Records a program that runs already, and its children from now on. `process_dir` is what it
    /// has made in the runtime directory of its user. [`Collector::detach`] or the end of the
    /// recording gives the program back as it was.
    pub fn attach(
        &mut self,
        process_dir: &Path,
        process: Option<String>,
        streams: &[StreamSpec],
    ) -> Result<(), Error> {
        validate(streams)?;
        let failed = Error::file("attach to", process_dir);
        let name = process_dir.file_name().unwrap_or_default().to_owned();
        let parent = process_dir.parent().unwrap_or(Path::new("/"));
        // What the program says of where it is, another user says.
        let opened = Folder::open_unlinked(parent).and_then(|folder| {
            let folder = Arc::new(folder);
            let found = Process::open(&folder, &name, self.sources.len(), 0, None);
            if !self.journal.past.is_closed(process_dir) && found?.is_none() {
                return Err(io::ErrorKind::NotFound.into());
            }
            let owner = folder.child(&name).map(|child| child.owner);
            Ok((folder, owner.ok()))
        });
        let (folder, owner) = opened.map_err(failed)?;
        let outputs =
            streams.iter().map(|spec| self.output_of(spec)).collect::<Result<Vec<_>, _>>()?;
        let mut family: BTreeSet<OsString> = BTreeSet::from([name]);
        // An earlier collector's: their parents may have ended.
        family.extend(self.journal.past.processes.keys().map(OsString::from));
        self.sources.push(Source {
            dir: parent.to_owned(),
            folder,
            owner,
            process,
            seen: BTreeSet::new(),
            outputs,
            streams: streams.to_vec(),
            family: Some(family),
            changed: false,
            listed: None,
        });
        self.discover()?;
        self.copy().map(|_| ())
    }

    /// Changes what is recorded from now on: entities, filters and triggers of the streams of these
    /// names, in all programs that run and that start later. Their buffers stay.
    pub fn reconfigure(&mut self, streams: &[StreamSpec]) -> Result<(), Error> {
        validate(streams)?;
        for spec in streams {
            let Some(output) = self.outputs.iter_mut().find(|o| o.spec.name == spec.name) else {
                let what = "it is not recorded".into();
                return Err(Error::Stream { name: spec.name.clone(), what });
            };
            if output.spec.kind != spec.kind {
                let what = "a stream stays normal or a flight recorder".into();
                return Err(Error::Stream { name: spec.name.clone(), what });
            }
            (output.spec.on_signal, output.spec.on_death) = (spec.on_signal, spec.on_death);
            for known in self.sources.iter_mut().flat_map(|s| &mut s.streams) {
                if known.name == spec.name {
                    known.entities.clone_from(&spec.entities);
                    known.filters.clone_from(&spec.filters);
                    known.triggers.clone_from(&spec.triggers);
                }
            }
        }
        self.journal.note(&Entry::Streams(self.streams()))?;
        // First for programs that start from now on, then for those that have read the old one.
        for source in self.sources.iter_mut().filter(|source| source.family.is_none()) {
            source.changed = true;
            stream::write(&source.streams, &source.dir, self.identity.frequency)?;
        }
        self.discover()?;
        for process in &mut self.processes {
            process.configure(&self.sources[process.source], self.identity.frequency);
            process.read_sites();
            process.apply();
        }
        Ok(())
    }

    /// The streams of all sources as they are asked for now.
    pub fn streams(&self) -> Vec<StreamSpec> {
        let mut streams: Vec<StreamSpec> = Vec::new();
        for spec in self.sources.iter().flat_map(|source| &source.streams) {
            if streams.iter().all(|known| known.name != spec.name) {
                streams.push(spec.clone());
            }
        }
        streams
    }
}

impl Source {
    /// Whether a process belongs to it: it is in a directory of the recording's own, or is the one
    /// that was attached to, or a child of such a one.
    pub(crate) fn adopts(&mut self, name: &OsString, owner: u32, control: &Control) -> bool {
        if self.owner.is_some_and(|of_the_first| of_the_first != owner) {
            return false;
        }
        let Some(family) = &mut self.family else { return true };
        let pid = control.parent_pid.load(Ordering::Relaxed);
        let stamp = control.parent_stamp.load(Ordering::Relaxed);
        let parent = OsString::from(format!("{pid}-{stamp:x}"));
        let belongs = family.contains(name) || (stamp != 0 && family.contains(&parent));
        if belongs {
            family.insert(name.clone());
        }
        belongs
    }
}

impl Process {
    /// Gives the process the streams of a source that it did not read from a file: in slots that it
    /// has from its parent or an earlier collector already, or in free ones.
    pub(crate) fn take_slots(
        &mut self,
        source: &Source,
        known: &[Taken],
        parent: Option<&[ProcessStream]>,
        frequency: Frequency,
    ) -> Result<(), Error> {
        for (spec, output) in source.streams.iter().zip(&source.outputs) {
            let control = self.control.get();
            // Acquire of the state pairs with the release store of who set the stream up.
            let inherited = parent.into_iter().flatten().find(|recorded| {
                let stream = &control.streams[recorded.slot];
                recorded.output == *output
                    && stream.state.load(Ordering::Acquire) == ACTIVE
                    && stream.generation.load(Ordering::Relaxed) == recorded.generation
            });
            let known = known.iter().find(|(_, _, name)| *name == spec.name);
            let (slot, generation) = match (known, inherited) {
                (Some((slot, generation, _)), _) => (*slot, *generation),
                (None, Some(recorded)) => (recorded.slot, recorded.generation),
                (None, None) => self.take_slot(spec, frequency)?,
            };
            self.streams.push(ProcessStream::new(slot, generation, *output));
        }
        self.undeclare();
        self.configure(source, frequency);
        Ok(())
    }

    /// The slots of a source's streams that the collector took itself.
    pub(crate) fn slots_in(&self, source: &Source) -> Vec<Taken> {
        let streams = source.streams.iter().zip(&source.outputs);
        let taken = streams.filter(|_| source.family.is_some()).filter_map(|(spec, output)| {
            let recorded = self.streams.iter().find(|recorded| recorded.output == *output)?;
            Some((recorded.slot, recorded.generation, spec.name.clone()))
        });
        taken.collect()
    }

    /// What is applied to call sites from now on, those that are known already included.
    pub(crate) fn configure(&mut self, source: &Source, frequency: Frequency) {
        let slot_of = |output: &usize| {
            let of = |recorded: &&ProcessStream| recorded.output == *output;
            self.streams.iter().find(of).map(|recorded| recorded.slot)
        };
        let streams = source.streams.iter().zip(&source.outputs);
        let streams = streams.filter_map(|(spec, output)| Some((slot_of(output)?, spec)));
        for (spec, output) in source.streams.iter().zip(&source.outputs) {
            if let Some(slot) = slot_of(output) {
                self.prepare_filters(slot, spec);
            }
        }
        // Validated: there is no NUL in it.
        self.text = CString::new(text(streams, frequency)).ok();
        self.applied = 0;
    }

    /// Applies what the streams ask for to call sites that have not seen it.
    pub(crate) fn apply(&mut self) {
        let Some(text) = &self.text else { return };
        for site in &self.sites[self.applied..] {
            let Ok(full_name) = CString::new(site.entity()) else { continue };
            let fields = site_fields(site);
            let told = SiteText { kind: site.kind as u32, full_name: &full_name, fields: &fields };
            for recorded in &self.streams {
                let control = self.control.get();
                apply(control, recorded.slot, usize::from(site.index), told, text);
            }
        }
        self.applied = self.sites.len();
    }

    /// Gives the slots back and removes the files of their use. Of a process that has ended nothing
    /// is left when its last slot is free.
    pub(crate) fn release(&self, lives: bool) -> io::Result<()> {
        let folder = self.folder()?;
        for name in folder.names()? {
            let of = numbers(&name, "ring").or_else(|| numbers(&name, "cells"));
            let Some((slot, generation, _)) = of else { continue };
            if self.streams.iter().any(|r| (r.slot, r.generation) == (slot, generation)) {
                folder.remove(&name)?;
            }
        }
        let control = self.control.get();
        for recorded in &self.streams {
            // Release pairs with the compare-and-swap of who takes the slot next.
            recorded.slot(control).state.store(FREE, Ordering::Release);
        }
        let free =
            |stream: &loopscope_trace::layout::Stream| stream.state.load(Ordering::Acquire) == FREE;
        if !lives && control.streams.iter().all(free) {
            return self.remove();
        }
        Ok(())
    }

    /// Takes a free slot and sets the stream up in it.
    fn take_slot(&self, spec: &StreamSpec, frequency: Frequency) -> Result<(usize, u32), Error> {
        let control = self.control.get();
        let free = |slot: &usize| {
            let state = &control.streams[*slot].state;
            // Acquire pairs with the release store of FREE by who let the slot go.
            state.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let Some(slot) = (0..STREAMS).find(free) else {
            let what = format!("all {STREAMS} streams of {} are in use", self.path().display());
            return Err(Error::Stream { name: spec.name.clone(), what });
        };
        let stream = &control.streams[slot];
        // An earlier use of the slot may have left filters.
        let filters = control.sections[slot].filters_ready.load(Ordering::Relaxed) != 0;
        if let Err(error) = self.allocate(slot, if filters { ALL } else { TABLES }) {
            // Release pairs with the compare-and-swap above, another collector's.
            stream.state.store(FREE, Ordering::Release);
            let path = self.path().join("control");
            return Err(Error::file("find memory for a stream in", &path)(error));
        }
        // The files of an earlier use have other names.
        let generation = stream.generation.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        clear(&control.sections[slot]);
        let set = |word: &AtomicU32, value| word.store(value, Ordering::Relaxed);
        set(&stream.kind, if spec.kind == Kind::Normal { NORMAL } else { FLIGHT_RECORDER });
        set(&stream.subbuffer_size, spec.subbuffer);
        set(&stream.subbuffer_count, spec.subbuffers);
        set(&stream.spares, spec.spares);
        set(&stream.trigger_site, 0);
        set(&stream.refusal, 0);
        set(&stream.small, 0);
        stream.post.store(ticks(spec.post, frequency), Ordering::Relaxed);
        stream.freeze.store(0, Ordering::Relaxed);
        stream.trigger.store(0, Ordering::Relaxed);
        control.frequency.store(frequency.hz(), Ordering::Relaxed);
        // Release pairs with the acquire load in loopscope_make_ring (ring.c): the rest is there.
        stream.state.store(ACTIVE, Ordering::Release);
        Ok((slot, generation))
    }

    /// Makes sure that a part of the slot's section has memory: a page that is not there would be
    /// the end of the process that counts in it.
    fn allocate(&self, slot: usize, part: Range<usize>) -> io::Result<()> {
        let file = self.folder()?.write(OsStr::new("control"))?;
        let offset = offset_of!(Control, sections) + slot * size_of::<Section>() + part.start;
        Ok(fallocate(&file, FallocateFlags::empty(), offset as i64, part.len() as i64)?)
    }

    /// Allocates what a stream's filters need, if it has any. Without room for them hits are
    /// dropped and counted, cause `no-filter`.
    fn prepare_filters(&self, slot: usize, spec: &StreamSpec) {
        let control = self.control.get();
        let section = &control.sections[slot];
        if (spec.filters.is_empty() && spec.triggers.is_empty())
            || control.streams[slot].state.load(Ordering::Acquire) != ACTIVE
            || section.filters_ready.load(Ordering::Acquire) != 0
        {
            return;
        }
        if self.allocate(slot, FILTERS).is_ok() {
            // Release pairs with the acquire load in loopscope_filter_put (filter.c): the blocks
            // are there.
            section.filters_ready.store(1, Ordering::Release);
        }
    }
}

/// A site's fields as call sites carry them: per field its type's code, its name and NUL; then 0.
fn site_fields(site: &Site) -> Vec<u8> {
    let mut fields = Vec::new();
    for (name, field_type) in site.parse_fields().unwrap_or_default() {
        fields.push(field_type as u8);
        fields.extend_from_slice(name.as_bytes());
        fields.push(0);
    }
    fields.push(0);
    fields
}

/// What every stream needs of a section.
const TABLES: Range<usize> = 0..offset_of!(Section, counted);
/// What filters need.
const FILTERS: Range<usize> = TABLES.end..size_of::<Section>();
const ALL: Range<usize> = 0..FILTERS.end;

fn clear(section: &Section) {
    let zero = |word: &AtomicU64| word.store(0, Ordering::Relaxed);
    section.drops.iter().flatten().for_each(zero);
    section.filtered.iter().for_each(zero);
    section.filter.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    if section.filters_ready.load(Ordering::Relaxed) != 0 {
        section.block_taken.iter().for_each(|byte| byte.store(0, Ordering::Relaxed));
    }
}
