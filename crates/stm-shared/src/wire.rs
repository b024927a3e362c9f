//! What processes and the service of a machine's channels tell each other: a request and its answer in
//! turn. Descriptors go with an answer.

use std::fmt;
use std::time::Duration;

use loopscope_stm::{Config, Full, Orphans};
use serde::{Deserialize, Serialize};

use crate::channel::Options;

/// What a process asks for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// The first one: who asks.
    Hello { pid: u32 },
    /// A new channel, or the one of this name if it was made with the same options.
    Create { name: String, options: Settings },
    /// The files of a channel; `puts`: those of the items for writing, too.
    Open { name: String, puts: bool },
    /// A connection to the home of a mirror, by which items are put; the home has to have this
    /// incarnation.
    Output { name: String, incarnation: u64 },
    /// All channels and what they have.
    List,
    /// The service forgets a channel; those that use it go on.
    Remove { name: String },
}

/// What the service answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// It is done; of `create`, whether the channel is new.
    Done(bool),
    Listed(Vec<Listed>),
    /// How many loans an output connection may have.
    Loans(u32),
    Refused(String),
}

/// [`Options`] by their names, as a document says them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    capacity: u32,
    slots: u32,
    item_bytes: u32,
    inputs: u32,
    outputs: u32,
    processes: u32,
    loans: u32,
    ahead: u32,
    remembered: u32,
    discard_orphans: bool,
    drop_when_full: bool,
    /// Not 0: items go to other hosts in datagrams, and are worthless so long after their put.
    #[serde(default)]
    lifespan_us: u32,
}

impl fmt::Display for Settings {
    /// `capacity 4, slots 6, …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(serde_json::Value::Object(all)) = serde_json::to_value(self) else {
            return Err(fmt::Error);
        };
        let words: Vec<_> = all.iter().map(|(name, value)| format!("{name} {value}")).collect();
        f.write_str(&words.join(", "))
    }
}

impl From<&Options> for Settings {
    fn from(options: &Options) -> Settings {
        Settings::new(options)
    }
}

impl Settings {
    /// Those of a channel whose items go to other hosts in datagrams, and not any more so long after their
    /// put: a microsecond to 71 minutes. None: they go over TCP.
    #[must_use]
    pub fn with_lifespan(self, lifespan: Option<Duration>) -> Settings {
        let us =
            |lifespan: Duration| u32::try_from(lifespan.as_micros()).unwrap_or(u32::MAX).max(1);
        Settings { lifespan_us: lifespan.map_or(0, us), ..self }
    }

    /// How long after their put items are worthless on other hosts, if they are.
    pub fn lifespan(&self) -> Option<Duration> {
        (self.lifespan_us > 0).then(|| Duration::from_micros(self.lifespan_us.into()))
    }

    /// The number of items that it has at most.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    pub(crate) fn new(options: &Options) -> Settings {
        let Options { config, item_bytes, processes } = *options;
        Settings {
            capacity: config.capacity,
            slots: config.slots,
            item_bytes,
            inputs: config.inputs,
            outputs: config.outputs,
            processes,
            loans: config.loans,
            ahead: config.ahead,
            remembered: config.remembered,
            discard_orphans: config.orphans == Orphans::Discard,
            drop_when_full: config.full == Full::Drop,
            lifespan_us: 0,
        }
    }

    /// Those of a mirror: items come by one connection, and are nobody's before somebody wants them.
    pub(crate) fn mirrored(self) -> Settings {
        let slots = self.capacity.saturating_add(1);
        Settings { slots, outputs: 1, loans: 1, discard_orphans: true, ..self }
    }

    /// The options of a channel that its service uses, too.
    pub(crate) fn with_service(self) -> Options {
        let more = u32::from(self.processes > 0);
        Settings { processes: self.processes.saturating_add(more), ..self }.options()
    }

    /// Items that an output connection may fill at one time.
    pub fn loans(&self) -> u32 {
        self.loans
    }

    pub(crate) fn options(self) -> Options {
        Options {
            config: Config {
                capacity: self.capacity,
                slots: self.slots,
                inputs: self.inputs,
                outputs: self.outputs,
                loans: self.loans,
                ahead: self.ahead,
                remembered: self.remembered,
                orphans: if self.discard_orphans { Orphans::Discard } else { Orphans::Keep },
                full: if self.drop_when_full { Full::Drop } else { Full::Refuse },
            },
            item_bytes: self.item_bytes,
            processes: self.processes,
        }
    }
}

/// A channel of the service, and what it has.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Where its items come from, if it has those of a channel on another host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// Items that it may have.
    pub capacity: u32,
    /// Bytes that an item may have.
    pub item_bytes: usize,
    /// Items that it has, gone ones that are held among them.
    pub items: u32,
    /// Bytes of these.
    pub bytes: u64,
    /// Items that were put, collected, and of these dropped to make room.
    pub put: u64,
    /// See `put`.
    pub collected: u64,
    /// See `put`.
    pub dropped: u64,
    /// The item with the lowest time, if there is one.
    pub oldest: Option<Held>,
    /// Its input connections.
    pub inputs: Vec<Connected>,
    /// The processes of its output connections, as far as they are there still.
    pub outputs: Vec<Option<u32>>,
    /// The processes that use it.
    pub processes: Vec<u32>,
}

/// The oldest item of a channel.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Held {
    /// Its time.
    pub time: i64,
    /// How long ago it was put, ns.
    pub age_ns: i64,
    /// Processes whose connections may get it still.
    pub wanted_by: Vec<Option<u32>>,
    /// Processes that hold it.
    pub held_by: Vec<Option<u32>>,
}

/// An input connection of a channel.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Connected {
    /// Its process, if that is there still.
    pub process: Option<u32>,
    /// Whether items may be dropped before it has consumed them.
    pub lossy: bool,
    /// All times below it are consumed.
    pub floor: i64,
    /// Items that it holds.
    pub held: u32,
    /// Items that were dropped though it wanted them.
    pub lost: u64,
    /// Items that it passed over by getting a newer one.
    pub skipped: u64,
}
