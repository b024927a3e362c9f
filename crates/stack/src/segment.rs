//! Segments, as they go to the network and come from it.

use crate::place::Seq;

/// How many blocks a segment with timestamps has room for (RFC 2018 §3).
pub const MOST_BLOCKS: usize = 3;

/// A segment of an established connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Sequence number of the first byte of `payload`.
    pub seq: Seq,
    /// The first byte that its sender waits for; `None`: it has no ACK.
    pub ack: Option<Seq>,
    /// The window as it is in the header, to be scaled.
    pub window: u16,
    /// The flags besides ACK.
    pub flags: Flags,
    /// The field of the IP header.
    pub ecn: Ecn,
    /// The option of RFC 7323 §3.2.
    pub timestamps: Option<Timestamps>,
    /// What the sender has beyond `ack` (RFC 2018), or has twice (RFC 2883).
    pub blocks: Blocks,
    /// The data.
    pub payload: &'a [u8],
}

/// Flags of a segment besides ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Flags {
    pub syn: bool,
    pub fin: bool,
    pub rst: bool,
    pub push: bool,
    pub urgent: bool,
    /// ECE: a packet that came was marked (RFC 3168 §6.1).
    pub marked: bool,
    /// CWR: the sender's window has shrunk.
    pub shrunk: bool,
}

/// What a packet says of congestion (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Its sender does not know marks: routers drop it.
    #[default]
    NotCapable,
    /// Routers may mark it (ECT).
    Capable,
    /// A router has marked it (CE).
    Marked,
}

/// Time stamps of both ends, each by its own clock (RFC 7323 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: when it was sent.
    pub value: u32,
    /// TSecr: the other end's stamp that it answers.
    pub echo: u32,
}

/// Up to [`MOST_BLOCKS`] ranges of sequence numbers, each without its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    blocks: [Option<(Seq, Seq)>; MOST_BLOCKS],
}

impl Blocks {
    /// Adds a block; false: there is no room for it.
    pub fn push(&mut self, begin: Seq, end: Seq) -> bool {
        match self.blocks.iter_mut().find(|each| each.is_none()) {
            Some(free) => {
                *free = Some((begin, end));
                true
            }
            None => false,
        }
    }

    /// The blocks in their order.
    pub fn iter(&self) -> impl Iterator<Item = (Seq, Seq)> {
        self.blocks.iter().flatten().copied()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.blocks[0].is_none()
    }
}
