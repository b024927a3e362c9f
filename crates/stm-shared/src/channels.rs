//! The channels that a service knows by their names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use loopscope_stm::{Channel, InputId, InputStatus, ItemStatus};

use crate::attached::{Changes, never};
use crate::channel::{Files, Named, Shared};
use crate::clock::now_ns;
use crate::found::{self, About, Found};
use crate::mapping::Words;
use crate::parties::{self, Process};
use crate::wire::{Connected, Held, Listed, Settings};

/// Bytes of a channel's name, at most.
const LONGEST: usize = 100;

struct Entry {
    files: Files,
    channel: Shared,
    options: Settings,
    /// Where its items come from, if it is a mirror.
    home: Option<String>,
    /// Tells it from others that had its name.
    incarnation: u64,
    life: Arc<()>,
}

/// A mirror that a service knows.
pub struct Mirrored {
    /// The channel.
    pub shared: Shared,
    /// What that of the home was made with.
    pub settings: Settings,
    /// The incarnation of the channel at home whose items it has.
    pub incarnation: u64,
    /// There for as long as the service knows it.
    pub life: Weak<()>,
}

/// A channel that a mirror on another host may have the items of.
pub struct Offered {
    /// The channel.
    pub channel: Shared,
    /// What it was made with.
    pub settings: Settings,
    /// Tells it from others that had its name.
    pub incarnation: u64,
    /// Tells the service from those that were at its place before.
    pub service: u64,
}

/// The channels of a service.
#[derive(Clone)]
pub struct Channels {
    all: Arc<Mutex<BTreeMap<String, Entry>>>,
    /// Where the service is, and what tells it from those that were there before.
    place: Arc<str>,
    service: u64,
}

impl Channels {
    /// Those of the service of a place, see `found::place`: what processes keep of the one before.
    pub(crate) fn of(place: &str) -> Channels {
        let mut all = BTreeMap::new();
        for Found { about, incarnation, files } in found::find(place) {
            let name = about.name.clone();
            // One that is damaged is nobody's.
            if let Ok(entry) = Entry::of(files, about, incarnation) {
                _ = entry.channel.service_has_ended();
                all.insert(name, entry);
            }
        }
        Channels { all: Arc::new(Mutex::new(all)), place: place.into(), service: now() }
    }

    /// The mirrors, by their names.
    pub(crate) fn mirrors(&self) -> Vec<(String, Mirrored)> {
        let channels = lock(&self.all);
        let mirrors = channels.iter().filter(|(_, entry)| entry.home.is_some());
        mirrors.map(|(name, entry)| (name.clone(), entry.mirrored())).collect()
    }

    /// The processes that use them.
    pub(crate) fn processes(&self) -> BTreeSet<u32> {
        lock(&self.all).values().flat_map(|entry| entry.channel.processes()).collect()
    }

    /// A channel, unless it is a mirror itself. Makes it with `settings`, if there is none.
    ///
    /// # Errors
    /// There is none, and it cannot be made; the answer says so.
    pub fn offer(&self, name: &str, settings: Option<Settings>) -> Result<Offered, String> {
        if let Some(settings) = settings.filter(|_| !self.has(name)) {
            self.create(name, settings)?;
        }
        let channels = lock(&self.all);
        let entry = channels.get(name).filter(|entry| entry.home.is_none());
        let entry = entry.ok_or_else(|| unknown(name, &channels))?;
        let Entry { channel, options, incarnation, .. } = entry;
        let (channel, settings, incarnation) = (channel.clone(), *options, *incarnation);
        Ok(Offered { channel, settings, incarnation, service: self.service })
    }

    /// Makes the mirror of a channel of another host. `home` is where its items come from, for people, and
    /// `incarnation` which channel there.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub fn mirror(
        &self,
        name: &str,
        settings: Settings,
        home: &str,
        incarnation: u64,
    ) -> Result<Mirrored, String> {
        let mut channels = lock(&self.all);
        let entry = self.made(name, settings, Some((home, incarnation)))?;
        let made = entry.mirrored();
        channels.insert(name.into(), entry);
        Ok(made)
    }

    /// Forgets a mirror, unless there is another one meanwhile.
    pub fn forget(&self, name: &str, life: &Weak<()>) {
        let mut channels = lock(&self.all);
        let is_it = |entry: &&Entry| std::ptr::eq(Arc::as_ptr(&entry.life), life.as_ptr());
        if let Some(entry) = channels.get(name).filter(is_it) {
            entry.channel.hide_from_services();
            channels.remove(name);
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        lock(&self.all).contains_key(name)
    }

    /// Makes a channel; whether it is new.
    pub(crate) fn create(&self, name: &str, options: Settings) -> Result<bool, String> {
        let mut channels = lock(&self.all);
        if let Some(Entry { options: others, .. }) = channels.get(name) {
            return if *others == options {
                Ok(false)
            } else {
                Err(format!("there is a channel {name} with other options: {others}"))
            };
        }
        channels.insert(name.into(), self.made(name, options, None)?);
        Ok(true)
    }

    /// A new channel; `home`: see `mirror`.
    fn made(
        &self,
        name: &str,
        settings: Settings,
        home: Option<(&str, u64)>,
    ) -> Result<Entry, String> {
        let is_name =
            !name.is_empty() && name.len() <= LONGEST && !name.chars().any(char::is_control);
        if !is_name {
            return Err(format!(
                "a channel's name has 1 to {LONGEST} bytes without control characters, and is not {name:?}"
            ));
        }
        let incarnation = now();
        let about = About {
            name: name.into(),
            settings,
            home: home.map(|(home, _)| home.into()),
            place: self.place.to_string(),
        };
        let options = if home.is_some() { settings.mirrored() } else { settings }.with_service();
        let said = serde_json::to_vec(&about).unwrap_or_default();
        let home = home.map_or(0, |(_, incarnation)| incarnation);
        let files = Files::new(&options, &Named { incarnation, home, about: &said });
        Entry::of(files.map_err(|error| error.to_string())?, about, incarnation)
    }

    /// The files of a channel; `puts`: those of the items for writing, too, unless they come from elsewhere.
    pub(crate) fn files(&self, name: &str, puts: bool) -> Result<io::Result<[File; 2]>, String> {
        let channels = lock(&self.all);
        let Entry { files, home, .. } =
            channels.get(name).ok_or_else(|| unknown(name, &channels))?;
        let is_writable = puts && home.is_none();
        let payload = if is_writable { files.payload.try_clone() } else { files.read_only() };
        Ok(files.control.try_clone().and_then(|control| Ok([control, payload?])))
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), String> {
        let mut channels = lock(&self.all);
        let removed = channels.remove(name).ok_or_else(|| unknown(name, &channels))?;
        removed.channel.hide_from_services();
        Ok(())
    }

    pub(crate) fn list(&self) -> Result<Vec<Listed>, String> {
        lock(&self.all).iter().map(|(name, entry)| listed(name, entry)).collect()
    }

    /// Ends the connections of processes that have ended.
    pub(crate) fn reap(&self) {
        for entry in lock(&self.all).values() {
            // A damaged channel is said to be so where it is used.
            _ = entry.channel.reap();
        }
    }
}

impl Entry {
    fn of(files: Files, about: About, incarnation: u64) -> Result<Entry, String> {
        let About { name, settings: options, home, .. } = about;
        // The entry has the files itself.
        let opened = Shared::open_named(&files.control, &files.payload, Some(&name), false);
        let channel = opened.map_err(|error| error.to_string())?;
        Ok(Entry { files, channel, options, home, incarnation, life: Arc::default() })
    }

    fn mirrored(&self) -> Mirrored {
        Mirrored {
            shared: self.channel.clone(),
            settings: self.options,
            incarnation: self.channel.home(),
            life: Arc::downgrade(&self.life),
        }
    }
}

/// A number that nothing has had before.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unknown(name: &str, channels: &BTreeMap<String, Entry>) -> String {
    let names: Vec<_> = channels.keys().map(String::as_str).collect();
    match names[..] {
        [] => format!("there is no channel {name}, nor any other"),
        _ => format!("there is no channel {name}; there are {}", names.join(", ")),
    }
}

/// What a channel has, or why that cannot be told.
fn listed(name: &str, entry: &Entry) -> Result<Listed, String> {
    let shared = &entry.channel;
    let look = |channel: &mut Channel<Words>| {
        let (inputs, outputs) = (channel.inputs(), channel.outputs());
        never((channel.counts(), channel.bytes(), channel.oldest(), inputs, outputs))
    };
    let Ok((counts, bytes, oldest, inputs, outputs)) =
        shared.inner.operate(Changes::Nothing, look).map_err(|why| format!("{name}: {why}"))?;
    let entries = shared.inner.control.entries();
    let process = |owner| parties::process(entries, owner).map(Process::pid);
    let of = |ids: &[InputId]| {
        let found = inputs.iter().filter(|input| ids.contains(&input.id));
        found.map(|input| process(input.owner)).collect()
    };
    let held = |each: &ItemStatus| Held {
        time: each.item.time,
        age_ns: now_ns() - each.item.put_ns,
        wanted_by: of(&each.wanted_by),
        held_by: of(&each.held_by),
    };
    let connected = |each: &InputStatus| Connected {
        process: process(each.owner),
        lossy: each.lossy,
        floor: each.counts.floor,
        held: each.counts.held,
        lost: each.counts.lost,
        skipped: each.counts.skipped,
    };
    Ok(Listed {
        name: name.into(),
        home: entry.home.clone(),
        capacity: shared.config().capacity,
        item_bytes: shared.item_bytes(),
        items: counts.present,
        bytes,
        put: counts.put,
        collected: counts.collected,
        dropped: counts.dropped,
        oldest: oldest.as_ref().map(held),
        inputs: inputs.iter().map(connected).collect(),
        outputs: outputs.iter().map(|each| process(each.owner)).collect(),
        processes: shared.processes(),
    })
}
