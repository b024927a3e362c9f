//! What is asked of the links: the document that the experiment's plan is turned into
//! (`schema/links.md`), as JSON. Absent keys impair nothing. Unknown ones are errors.

mod check;

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::address::Address;

pub use check::{Mistake, check_json};

/// All links of an experiment.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// 1.
    pub version: u32,
    /// Seed of every random choice, together with the link's name.
    pub seed: u64,
    /// What moves the packets.
    #[serde(default)]
    pub mover: Mover,
    /// How the mover waits for a packet's time.
    #[serde(default)]
    pub wait: Wait,
    /// The experiment's phases, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<String>,
    /// Where packets carry their message's number.
    #[serde(default, skip_serializing_if = "MessageField::is_default")]
    pub message: MessageField,
    /// The host that impairs what it sends itself; absent: a router stands between the hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// The host between the others that forwards what they send to each other, and impairs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
    /// The router's devices, one for each host.
    pub ports: Vec<Port>,
    /// The links that differ from a plain wire.
    pub links: Vec<Link>,
}

/// Where a message's number stands in the payload of UDP and TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MessageField {
    /// Bytes before it.
    pub offset: u16,
    /// Its bytes, 1 to 8.
    pub width: u8,
    /// How its bytes are ordered.
    pub order: ByteOrder,
}

/// The order of a number's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ByteOrder {
    /// The least significant byte comes first.
    #[default]
    Little,
    /// The most significant byte comes first.
    Big,
}

/// The first eight bytes, little-endian, as loopscope's own programs write it.
impl Default for MessageField {
    fn default() -> MessageField {
        MessageField { offset: 0, width: 8, order: ByteOrder::Little }
    }
}

impl MessageField {
    fn is_default(&self) -> bool {
        *self == MessageField::default()
    }
}

/// A device of the router, and the host behind it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// The name in the experiment file.
    pub host: String,
    /// Its veth's end in the router's namespace. With `sender` or `router` there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device: String,
    /// The address of the host's own end: frames to it go to this port from the start, and netem
    /// recognises by it who sent a frame. Needed for netem only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// The host's IP address. Needed with `sender` and `router` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpAddr>,
}

/// What moves the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mover {
    /// `Xdp` where the kernel allows it, else `Tap`.
    #[default]
    Auto,
    /// AF_XDP.
    Xdp,
    /// AF_PACKET.
    Tap,
    /// The kernel's netem.
    Netem,
}

/// How the mover waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Sleeps, and wakes a learned guard early.
    #[default]
    Sleep,
    /// Takes a core.
    Spin,
}

/// One direction between two hosts.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Host.
    pub from: String,
    /// Host.
    pub to: String,
    /// From the start.
    #[serde(default)]
    pub settings: Settings,
    /// Changes, by time since the first measured phase began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

/// A change of some of a link's settings; the others stay. Null is a setting's default.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// When.
    pub at_ns: u64,
    /// Keys of [`Settings`].
    pub set: Map<String, Value>,
}

/// A link's impairments, in the order in which a packet meets them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Largest IP packet in bytes; larger ones are dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Packets lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Probability that a packet is doubled.
    pub duplicate: f64,
    /// Probability that one random bit of a packet, behind its Ethernet header, is flipped.
    pub corrupt: f64,
    /// Bits per second, of Ethernet frames without preamble and check sequence: a bucket of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// Bytes that may pass at once after idling, so that in no time `t` more than `rate * t +
    /// burst` pass; default: one largest frame. A packet above it (one that the sender's kernel has
    /// not segmented) waits for a full bucket and leaves it in debt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_bytes: Option<u64>,
    /// Delivery opportunities in mahimahi's format, instead of a rate: a file of milliseconds, one
    /// a line and never going back. At each, 1504 bytes pass: an IP packet of 1500 and the 4 that
    /// mahimahi's tunnel device adds. The last line is also the period after which it begins anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opportunities: Option<PathBuf>,
    /// What waits for the rate. Default: room for what is sent at this rate in twice delay and
    /// jitter and 20 ms more, but at least 100 largest frames; drop-tail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// Mean of the time on the wire.
    pub delay_ns: u64,
    /// Its variation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
    /// Delays over time, instead of `delay_ns`: a file with the header `at,delay` and lines as
    /// `1.5s,20ms`, from `0s` on, ascending. Each holds until the next, the last for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delays: Option<PathBuf>,
    /// Packets that overtake; none: order is kept, whatever the jitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
}

/// How packets are lost.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Loss {
    /// Each with the same probability.
    Independent {
        /// Probability that a packet is lost.
        probability: f64,
        /// Correlation of a packet's loss with the loss of the packet before, 0 to 1: with this
        /// probability its fate is the same. The share lost stays `probability`, which it does not
        /// in netem's `loss random`, whose correlated numbers are no longer uniform; in netem's
        /// terms this is `loss gemodel` with p = probability * (1 - correlation) and r = (1 -
        /// probability) * (1 - correlation).
        #[serde(default)]
        correlation: f64,
    },
    /// Two states, each with its loss: Gilbert, BSTJ 39 (1960); Elliott, BSTJ 42 (1963). It begins
    /// in the good one; a packet is lost by the state that it finds, then the state may change.
    GilbertElliott {
        /// Probability per packet of going from good to bad.
        p: f64,
        /// Probability of the way back.
        r: f64,
        /// Loss in the good state.
        #[serde(default)]
        good: f64,
        /// Loss in the bad state.
        #[serde(default = "one")]
        bad: f64,
    },
    /// One packet in every `every`, beginning with the `every`th.
    Periodic {
        /// At least 1.
        every: u64,
    },
    /// Losses as recorded, one line for each packet: 1 lost, 0 not; again from the start at its
    /// end.
    Trace {
        /// The file's path.
        path: PathBuf,
    },
}

fn one() -> f64 {
    1.0
}

/// How delays vary about their mean, `delay_ns`. What would be below zero is zero.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Jitter {
    /// Its shape.
    pub distribution: Distribution,
    /// Standard deviation; of `Uniform`, half the width. At most `delay_ns`.
    pub ns: u64,
    /// Correlation of a delay with the one before, 0 to 1: a Gaussian copula. Normal scores follow
    /// an autoregressive process of first order with this coefficient, and each is turned into the
    /// delay of the same quantile, so that the distribution stays what it is. Of normal jitter this
    /// is the correlation of the delays, of other shapes that of their normal scores.
    #[serde(default)]
    pub correlation: f64,
}

/// A shape with mean 0.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Between -1 and 1.
    Uniform,
    /// Deviation 1.
    Normal,
    /// Deviation 1, of shape 3, so that it has one.
    Pareto,
    /// Deviation 1.
    Exponential,
    /// Values of a file, one a line, brought to mean 0 and deviation 1.
    Table(PathBuf),
}

/// What waits for its turn.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// How much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// What is dropped.
    #[serde(default)]
    pub discipline: Discipline,
}

/// A queue's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Number of them.
    Packets(u64),
    /// A limit in bytes of frames.
    Bytes(u64),
    /// A limit of the time that a packet would wait.
    TimeNs(u64),
}

/// What is dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// Drops the packet that finds the queue full.
    #[default]
    DropTail,
    /// RFC 8289.
    Codel {
        /// 5 ms there.
        target_ns: u64,
        /// 100 ms there.
        interval_ns: u64,
    },
}

/// How packets overtake others.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reorder {
    /// Packets overtake where their jittered delays say so.
    ByJitter,
    /// Each with this probability skips the delay.
    Skip {
        /// Probability for a packet.
        probability: f64,
    },
}

impl Settings {
    /// These with some changed. The error is for a person.
    pub fn changed(&self, change: &Map<String, Value>) -> Result<Settings, String> {
        let Ok(Value::Object(mut all)) = serde_json::to_value(self) else {
            return Err("the settings cannot be written".into());
        };
        for (key, value) in change {
            match value {
                Value::Null => all.remove(key),
                _ => all.insert(key.clone(), value.clone()),
            };
        }
        check_json(&all).map_err(|mistake| mistake.to_string())
    }
}
