//! Live control: streams are given to programs that run already, changed while they are recorded,
//! and taken away again.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::mem::offset_of;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use loopscope_time::Frequency;
use loopscope_trace::configure::{SiteText, apply};
use loopscope_trace::layout::{
    ACTIVE, Control, FLIGHT_RECORDER, FREE, NORMAL, STREAMS, Section, TAKEN,
};
use nix::fcntl::{FallocateFlags, fallocate};

use crate::collector::{Collector, Source};
use crate::journal::{Entry, Taken};
use crate::process::Process;
use crate::recorded::{Recorded, numbers};
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
        let opened = || {
            let found = Process::open(process_dir, self.sources.len(), 0, None);
            found.map_err(Error::file("attach to", process_dir))
        };
        if !self.journal.past.is_closed(process_dir) && opened()?.is_none() {
            let absent = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(Error::file("attach to", process_dir)(absent));
        }
        let outputs =
            streams.iter().map(|spec| self.output_of(spec)).collect::<Result<Vec<_>, _>>()?;
        let dir = process_dir.parent().unwrap_or(Path::new("/")).to_owned();
        let mut family: BTreeSet<OsString> =
            process_dir.file_name().map(ToOwned::to_owned).into_iter().collect();
        // An earlier collector's: their parents may have ended.
        family.extend(self.journal.past.processes.keys().map(OsString::from));
        self.sources.push(Source {
            dir,
            process,
            seen: BTreeSet::new(),
            outputs,
            streams: streams.to_vec(),
            family: Some(family),
            changed: false,
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
            process.read_sites()?;
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
    pub(crate) fn adopts(&mut self, name: &OsString, control: &Control) -> bool {
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
        parent: Option<&[Recorded]>,
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
                (None, None) => take_slot(&self.dir, control, spec, frequency)?,
            };
            self.streams.push(Recorded::new(slot, generation, *output));
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
            let of = |recorded: &&Recorded| recorded.output == *output;
            self.streams.iter().find(of).map(|recorded| recorded.slot)
        };
        let streams = source.streams.iter().zip(&source.outputs);
        let streams = streams.filter_map(|(spec, output)| Some((slot_of(output)?, spec)));
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
    pub(crate) fn release(&self, lives: bool) -> Result<(), Error> {
        for entry in std::fs::read_dir(&self.dir).map_err(Error::file("read", &self.dir))? {
            let entry = entry.map_err(Error::file("read", &self.dir))?;
            let name = entry.file_name();
            let of = numbers(&name, "ring").or_else(|| numbers(&name, "cells"));
            let Some((slot, generation, _)) = of else { continue };
            if self.streams.iter().any(|r| (r.slot, r.generation) == (slot, generation)) {
                std::fs::remove_file(entry.path()).map_err(Error::file("remove", &entry.path()))?;
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

/// Takes a free slot and sets the stream up in it.
fn take_slot(
    dir: &Path,
    control: &Control,
    spec: &StreamSpec,
    frequency: Frequency,
) -> Result<(usize, u32), Error> {
    let free = |slot: &usize| {
        let state = &control.streams[*slot].state;
        // Acquire pairs with the release store of FREE by who let the slot go.
        state.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let Some(slot) = (0..STREAMS).find(free) else {
        let what = format!("all {STREAMS} streams of {} are in use", dir.display());
        return Err(Error::Stream { name: spec.name.clone(), what });
    };
    let stream = &control.streams[slot];
    if let Err(error) = allocate(dir, slot) {
        // Release pairs with the compare-and-swap above, another collector's.
        stream.state.store(FREE, Ordering::Release);
        return Err(error);
    }
    // The files of an earlier use have other names.
    let generation = stream.generation.fetch_add(1, Ordering::Relaxed) + 1;
    clear(&control.sections[slot]);
    let set = |word: &AtomicU32, value| word.store(value, Ordering::Relaxed);
    set(&stream.kind, if spec.kind == Kind::Normal { NORMAL } else { FLIGHT_RECORDER });
    set(&stream.subbuffer_size, spec.subbuffer);
    set(&stream.subbuffer_count, spec.subbuffers);
    set(&stream.spares, spec.spares);
    set(&stream.trigger_site, 0);
    stream.post.store(ticks(spec.post, frequency), Ordering::Relaxed);
    stream.freeze.store(0, Ordering::Relaxed);
    stream.trigger.store(0, Ordering::Relaxed);
    control.frequency.store(frequency.hz(), Ordering::Relaxed);
    // Release pairs with the acquire load in loopscope_make_ring (ring.c): the rest is there.
    stream.state.store(ACTIVE, Ordering::Release);
    Ok((slot, generation))
}

/// Makes sure that the slot's tables have memory: a page that is not there would be the end of
/// whoever counts in it.
fn allocate(dir: &Path, slot: usize) -> Result<(), Error> {
    let path = dir.join("control");
    let file = File::options().write(true).open(&path).map_err(Error::file("open", &path))?;
    let offset = offset_of!(Control, sections) + slot * size_of::<Section>();
    let length = size_of::<Section>() as i64;
    fallocate(&file, FallocateFlags::empty(), offset as i64, length)
        .map_err(std::io::Error::from)
        .map_err(Error::file("find memory for a stream in", &path))
}

fn clear(section: &Section) {
    let zero = |word: &AtomicU64| word.store(0, Ordering::Relaxed);
    section.drops.iter().flatten().for_each(zero);
    section.filtered.iter().for_each(zero);
    section.filter.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    section.code.iter().for_each(zero);
    section.code_used.store(0, Ordering::Relaxed);
    section.code_refused.store(0, Ordering::Relaxed);
}
