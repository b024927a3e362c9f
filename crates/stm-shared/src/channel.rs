//! A channel in shared memory, as a process uses it.

use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use loopscope_stm::{Channel, Config, Counts, From, JoinError, Time};

use crate::attached::{Attached, Changes, finish, never};
use crate::error::{ConnectError, FileError, Unusable};
use crate::events::Events;
use crate::input::Input;
use crate::local_output::LocalOutput;
use crate::lock::{self, Left};
use crate::mapping::{self, AtHome, Control, Own, Payload, Words};
use crate::output::Output;
use crate::parties::{self, Process};
use crate::remote_output::RemoteOutput;
use crate::room;

/// The first word of a channel's file, and the version of what is in it.
const MAGIC: u64 = u64::from_le_bytes(*b"lsshare\x06");

/// A home that does not answer for so long is away.
const HOME_ANSWERS: Duration = Duration::from_secs(5);

/// What a channel has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// See [`Config`].
    pub config: Config,
    /// Bytes that an item may have, 1 to 2³² − 64.
    pub item_bytes: u32,
    /// Processes that may use it at one time, 1 to 4096; of a service's channel, one less.
    pub processes: u32,
}

/// The files of a channel. They have no name: only a process that was given them can use it.
#[derive(Debug)]
pub struct Files {
    /// All but the items' bytes. Every process that uses the channel writes it.
    pub control: File,
    /// The items' bytes, for those that put.
    pub payload: File,
}

impl Files {
    /// Makes a channel. It stays for as long as a process has one of the files or their mappings.
    ///
    /// # Errors
    /// The options are not such as they have to be, or there is too little memory.
    pub fn create(options: &Options) -> Result<Files, FileError> {
        Files::new(options, &Named::default())
    }

    /// Makes the channel of a name.
    pub(crate) fn new(options: &Options, named: &Named<'_>) -> Result<Files, FileError> {
        let Options { config, item_bytes, processes } = *options;
        let words = Channel::<Words>::words_needed(&config).ok_or(FileError::Options)?;
        // A slot begins in a cache line of its own.
        let slot_bytes = item_bytes.checked_next_multiple_of(64).filter(|bytes| *bytes > 0);
        let slot_bytes = u64::from(slot_bytes.ok_or(FileError::Options)?);
        if !(1..=parties::MOST).contains(&processes) {
            return Err(FileError::Options);
        }
        let control_bytes = Control::bytes(processes as usize, words);
        let payload_bytes = slot_bytes * u64::from(config.slots);
        let needed = control_bytes + payload_bytes;
        if let Some(available) = room::available().filter(|available| needed > *available) {
            return Err(FileError::NoMemory { needed, available });
        }
        let control = mapping::file(&named.file(CONTROL), control_bytes)
            .map_err(FileError::system("cannot make the memory of the channel"))?;
        let payload = mapping::file(&named.file(PAYLOAD), payload_bytes)
            .map_err(FileError::system("cannot make the memory of the items"))?;
        let mapped = Control::of(&control, |_| processes as usize)
            .map_err(FileError::system("cannot map the memory of the channel"))?;
        Channel::create(&config, mapped.words()).ok_or(FileError::Options)?;
        let head = mapped.head();
        head.slot_bytes.store(slot_bytes, Ordering::Relaxed);
        head.parties.store(processes.into(), Ordering::Relaxed);
        head.home.store(named.home, Ordering::Relaxed);
        if !head.set_about(named.about) {
            return Err(FileError::Options);
        }
        // Its service has a connection to the home, and is about to use it.
        head.set_at_home(AtHome::Asked);
        head.newest.write(None, &[]);
        // Release pairs with the Acquire of `Shared::open`, which sees all of the above.
        head.magic.store(MAGIC, Ordering::Release);
        Ok(Files { control, payload })
    }

    /// The file of the items for those that only get.
    ///
    /// # Errors
    /// The system refuses.
    pub fn read_only(&self) -> io::Result<File> {
        mapping::read_only(&self.payload)
    }
}

/// The names of the files, which have the channel's incarnation behind them.
pub(crate) const CONTROL: &str = "loopscope-stm-";
pub(crate) const PAYLOAD: &str = "loopscope-stm-items-";

/// What is known of the channel of a service.
#[derive(Default)]
pub(crate) struct Named<'a> {
    pub(crate) incarnation: u64,
    /// Not 0: the incarnation of a channel on another host, whose items a [`crate::MirrorEnd`] puts.
    pub(crate) home: u64,
    /// What the next service has to know.
    pub(crate) about: &'a [u8],
}

impl Named<'_> {
    fn file(&self, kind: &str) -> String {
        format!("{kind}{:016x}", self.incarnation)
    }
}

/// A channel that this process uses, all of its threads.
#[derive(Clone)]
pub struct Shared {
    pub(crate) inner: Arc<Attached>,
    /// Makes a way to its home, if it has that on another host and items may be put.
    pub(crate) way_home: Option<Arc<WayHome>>,
}

/// A connection to the home of a mirror if that has the channel of this incarnation, and how many loans
/// it may have; or why there is none.
pub(crate) type WayHome = dyn Fn(u64) -> Result<(TcpStream, u32), String> + Send + Sync;

impl Shared {
    /// Uses the channel of these files.
    ///
    /// # Errors
    /// They are no channel of this version, as many processes use it as may, or the system refuses.
    pub fn open(control: &File, payload: &File) -> Result<Shared, FileError> {
        Shared::open_named(control, payload, None, false)
    }

    /// The same; what this process does is recorded as events of the group of the channel's name.
    ///
    /// `keeps`: it keeps the files, as far as it may have so many, so that the next service finds them.
    pub(crate) fn open_named(
        control: &File,
        payload: &File,
        name: Option<&str>,
        keeps: bool,
    ) -> Result<Shared, FileError> {
        let kept = if keeps { mapping::kept([control, payload]) } else { None };
        let process = Process::own().map_err(FileError::system("cannot tell when we began"))?;
        let own = Own::new().map_err(FileError::system("cannot map a page"))?;
        let control = Control::of(control, |head| {
            // Acquire pairs with the Release of `Files::create`.
            let is_one = head.magic.load(Ordering::Acquire) == MAGIC;
            let parties = head.parties.load(Ordering::Relaxed);
            if is_one { usize::try_from(parties).unwrap_or(usize::MAX) } else { 0 }
        });
        let control = control.map_err(FileError::system("cannot map the memory of the channel"))?;
        let head = control.head();
        if control.entries().is_empty() {
            return Err(FileError::NoChannel);
        }
        let slot_bytes = head.slot_bytes.load(Ordering::Relaxed);
        let slot_bytes = u32::try_from(slot_bytes).map_err(|_| FileError::NoChannel)?;
        let owner =
            parties::enter(control.entries(), process).ok_or(FileError::TooManyProcesses)?;
        let lock = &control.head().lock.0;
        let left = lock::take(lock, owner, |of| parties::is_gone(control.entries(), of));
        let channel = catch_unwind(AssertUnwindSafe(|| {
            // It undoes what a dead owner of the lock has left unfinished.
            let mut channel = Channel::open(control.words())?;
            if left == Left::Unfinished {
                finish(&control, &mut channel);
                // The next one that changes something shows it again.
                head.newest.write(None, &[]);
            }
            Some(channel)
        }));
        lock::give(lock);
        let leave = || parties::leave(control.entries(), owner);
        let opened = channel.ok().flatten().ok_or(FileError::NoChannel).and_then(|channel| {
            let slots = channel.config().slots;
            let payload = Payload::of(payload, slots, slot_bytes as usize)
                .map_err(FileError::system("cannot map the memory of the items"))?;
            Ok((channel, payload))
        });
        let (mut channel, payload) = opened.inspect_err(|_| leave())?;
        let config = *channel.config();
        let events = name.and_then(Events::of);
        if let Some(watch) = events.and_then(|events| events.memory()) {
            channel.watch_slots(watch);
        }
        let channel = Mutex::new(channel);
        let is_mirror = control.head().home.load(Ordering::Relaxed) != 0;
        let inner = Attached {
            control,
            payload,
            own,
            owner,
            channel,
            config,
            events,
            is_mirror,
            _kept: kept,
        };
        Ok(Shared { inner: Arc::new(inner), way_home: None })
    }

    /// What the channel was made with.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Bytes that an item may have.
    pub fn item_bytes(&self) -> usize {
        self.inner.payload.slot_bytes
    }

    /// Makes an input connection, which may hold `holds` items; see `join_input` of [`Channel`].
    ///
    /// At a mirror it asks the home what is so there before, and waits afterwards until the home knows, so
    /// that no item that is put later is collected before it has come; where the home is away, or says
    /// nothing for 5 s, it does not.
    ///
    /// # Errors
    /// There are as many as there may be, or the channel cannot be used.
    pub fn input(&self, from: From, lossy: bool, holds: u32) -> Result<Input, ConnectError> {
        let inner = &self.inner;
        let until = Instant::now() + HOME_ANSWERS;
        if inner.is_mirror {
            inner.ask_home(until)?;
        }
        let joined = self.with_room(|channel, owner| channel.join_input(owner, from, lossy, holds));
        let (id, floor) = joined?;
        let input = Input::new(Arc::clone(inner), id, floor);
        if inner.is_mirror {
            inner.await_home(until, |head| head.at_home() == AtHome::Joined)?;
        }
        Ok(input)
    }

    /// Makes an output connection. Of a mirror it goes to the home: see `schema/stm.md`.
    ///
    /// # Errors
    /// There are as many as there may be, items can only be read here, the home is away, or the channel
    /// cannot be used.
    pub fn output(&self) -> Result<Output, ConnectError> {
        if !self.inner.is_mirror {
            return self.local_output().map(Output::from);
        }
        let way_home = self.way_home.as_ref().ok_or(ConnectError::ReadOnly)?;
        let (stream, loans) = way_home(self.home()).map_err(ConnectError::Home)?;
        let output = RemoteOutput::new(Arc::clone(&self.inner), stream, loans as usize);
        Ok(output.map_err(|error| ConnectError::Home(error.to_string()))?.into())
    }

    /// Makes an output connection of a channel that has its home here.
    ///
    /// # Errors
    /// There are as many as there may be, items can only be read here, or the channel cannot be used.
    pub fn local_output(&self) -> Result<LocalOutput, ConnectError> {
        if self.inner.is_mirror || !self.inner.payload.is_writable {
            return Err(ConnectError::ReadOnly);
        }
        let id = self.with_room(Channel::join_output)?;
        Ok(LocalOutput::new(Arc::clone(&self.inner), id))
    }

    /// What was counted.
    ///
    /// # Errors
    /// The channel cannot be used.
    pub fn counts(&self) -> Result<Counts, Unusable> {
        let Ok(counts) = self.inner.operate(Changes::Nothing, |channel| never(channel.counts()))?;
        Ok(counts)
    }

    /// The time of the newest item, without the lock; None: there is none, or it is just changing.
    pub fn newest(&self) -> Option<Time> {
        self.inner.newest().map(|seen| seen.item.time)
    }

    /// How many times its home has had another channel since it was opened here; 0 where that is here.
    ///
    /// What was put there between the last item that came of the one before and the first one of the next
    /// may be lost.
    pub fn restarts(&self) -> u64 {
        self.inner.control.head().restarts.load(Ordering::Relaxed)
    }

    /// Goes on as the mirror of another channel of the same home.
    pub fn goes_on_with(&self, incarnation: u64) {
        let head = self.inner.control.head();
        head.home.store(incarnation, Ordering::Relaxed);
        head.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// The incarnation of the channel on another host whose items it has; 0: its home is here.
    pub(crate) fn home(&self) -> u64 {
        self.inner.control.head().home.load(Ordering::Relaxed)
    }

    /// Knows that its service has ended, and with that the mirror's way to the home.
    pub(crate) fn service_has_ended(&self) -> Result<(), Unusable> {
        self.inner.reap()?;
        let head = self.inner.control.head();
        let Ok(done) = self.inner.operate(Changes::All, |_| {
            head.set_at_home(AtHome::Away);
            never(())
        })?;
        Ok(done)
    }

    /// Has no service find it any more.
    pub(crate) fn hide_from_services(&self) {
        self.inner.control.head().set_about(b"");
    }

    /// The numbers of the processes that use it.
    pub fn processes(&self) -> Vec<u32> {
        parties::all(self.inner.control.entries()).map(Process::pid).collect()
    }

    /// Ends the connections of processes that were killed; how many there were.
    ///
    /// One of the operations that wait does this every 50 ms, and a service as soon as a process ends.
    ///
    /// # Errors
    /// The channel cannot be used.
    pub fn reap(&self) -> Result<usize, Unusable> {
        self.inner.reap()
    }

    fn with_room<T>(
        &self,
        join: impl Fn(&mut Channel<Words>, u32) -> Result<T, JoinError>,
    ) -> Result<T, ConnectError> {
        let owner = self.inner.owner;
        let attempt = || self.inner.operate(Changes::Freed, |channel| join(channel, owner));
        match attempt()? {
            Err(JoinError::NoConnection) if self.inner.reap()? > 0 => Ok(attempt()??),
            joined => Ok(joined?),
        }
    }
}
