//! What the two ends tell each other, over the way that the data take.
//!
//! TCP: a message is its length (four bytes, little-endian) and JSON. Each stream is a connection:
//! `hello` and `ready`, then nothing but data until the sender shuts its side down, then the
//! receiver's `account`.
//!
//! UDP: each packet begins with its id and the run's token, eight bytes each, little-endian. The id
//! is the stream times 2^48 plus the packet's number from 1; behind number 0 stands a message as
//! JSON. The sender repeats `hello` until `ready` comes, and `end` until the `account` comes, which
//! `bye` acknowledges.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::sequence::Arrivals;

/// Version of the messages and of the data's content.
pub(super) const VERSION: u32 = 1;

/// Bytes in front of a packet's content.
pub(super) const HEAD: usize = 16;

/// Bits of an id that are the number.
const NUMBER_BITS: u32 = 48;

/// The largest message.
const MESSAGE_LIMIT: usize = 4096;

/// How a stream's content is made, and which stream it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) version: u32,
    /// Tells this run's streams and packets from a stranger's.
    pub(super) token: u64,
    pub(super) stream: u16,
    pub(super) streams: u16,
    /// Bytes of a block; for UDP of a packet.
    pub(super) block: u32,
    /// Seed of random content.
    pub(super) seed: Option<u64>,
    /// The sender sends until it is told to end.
    pub(super) background: bool,
}

impl Hello {
    /// Seed of this stream's content, different for each stream.
    pub(super) fn seed(&self) -> Option<u64> {
        self.seed.map(|seed| seed.wrapping_add(u64::from(self.stream)))
    }
}

/// What one end did or saw of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Account {
    pub(super) bytes: u64,
    /// Calls of the kernel that moved them.
    pub(super) calls: u64,
    /// The sender: from the begin of the run to the last write's return. The receiver: from the
    /// first read's return to the last's.
    pub(super) seconds: f64,
    /// UDP, receiver.
    pub(super) arrivals: Option<Arrivals>,
    /// Receiver: bytes that were compared with what they should be; `None`: not asked for.
    pub(super) verified: Option<u64>,
    /// The first that was wrong, counted from the stream's begin.
    pub(super) wrong_at: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Message {
    Hello(Hello),
    Ready,
    /// So many packets were sent.
    End(u64),
    Account(Account),
    Bye,
}

/// Writes a message into a stream.
pub(super) fn send(mut stream: &TcpStream, message: &Message) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    stream.write_all(&[&(json.len() as u32).to_le_bytes()[..], &json].concat())
}

/// Reads a message from a stream.
pub(super) fn receive(mut stream: &TcpStream) -> Result<Message> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    ensure!(length <= MESSAGE_LIMIT, "a message of {length} bytes; is it ettcp?");
    let mut json = vec![0; length];
    stream.read_exact(&mut json)?;
    serde_json::from_slice(&json).context("a message that is not ettcp's")
}

/// A packet's head, or a number in an event.
pub(super) fn id(stream: u16, number: u64) -> u64 {
    u64::from(stream) << NUMBER_BITS | number
}

/// Begins a packet.
pub(super) fn head(id: u64, token: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&id.to_le_bytes());
    head[8..].copy_from_slice(&token.to_le_bytes());
    head
}

/// A packet with a message.
pub(super) fn packet(stream: u16, token: u64, message: &Message) -> Result<Vec<u8>> {
    Ok([&head(id(stream, 0), token)[..], &serde_json::to_vec(message)?].concat())
}

/// A packet of ours.
pub(super) struct Packet<'a> {
    pub(super) stream: u16,
    /// 0: the body is a message.
    pub(super) number: u64,
    pub(super) token: u64,
    pub(super) body: &'a [u8],
}

impl Packet<'_> {
    /// `None`: too short to be ours.
    pub(super) fn read(bytes: &[u8]) -> Option<Packet<'_>> {
        let (head, body) = bytes.split_first_chunk::<HEAD>()?;
        let (id, token) = head.split_first_chunk::<8>()?;
        let id = u64::from_le_bytes(*id);
        Some(Packet {
            stream: (id >> NUMBER_BITS) as u16,
            number: id & ((1 << NUMBER_BITS) - 1),
            token: u64::from_le_bytes(token.try_into().ok()?),
            body,
        })
    }

    /// The message, of who speaks this protocol.
    pub(super) fn message(&self) -> Option<Message> {
        if self.number != 0 {
            return None;
        }
        serde_json::from_slice(self.body).ok()
    }
}

/// Refuses a sender of another version or one that a peer cannot have meant.
pub(super) fn check(hello: &Hello) -> Result<()> {
    if hello.version != VERSION {
        bail!("the sender speaks version {}, this is {VERSION}; use one loopscope", hello.version);
    }
    ensure!(hello.stream < hello.streams && hello.block > 0, "a hello that makes no sense");
    Ok(())
}
