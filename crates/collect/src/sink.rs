//! The writing side of a ring: its stream file, and the counts of its records.

use std::cell::RefCell;
use std::collections::BTreeMap;

use loopscope_ctf::{EventClass, PacketError, Records};
use loopscope_time::Counter;

use crate::packets::{Packet, context_from, convert};
use crate::progress::ProgressFile;
use crate::stream_file::StreamFile;
use crate::subbuffer::Piece;
use crate::{ClockMap, Error};

/// Where a ring's records go, and how many went.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) stream: StreamFile,
    pub(crate) recorded: u64,
    /// By event class: records that were lost on a full disk.
    pub(crate) lost: BTreeMap<usize, u64>,
    /// End of the newest packet.
    pub(crate) last: Counter,
}

/// What all rings are read with.
#[derive(Clone, Copy)]
pub(crate) struct Tools<'a> {
    pub(crate) records: &'a Records,
    pub(crate) classes: &'a [EventClass],
    pub(crate) clock: Option<&'a ClockMap>,
    pub(crate) progress: &'a ProgressFile,
    /// Copies of sub-buffers.
    pub(crate) copies: &'a RefCell<Vec<u8>>,
    /// The classes of what is read cannot be told to readers now: nothing may be written.
    pub(crate) blocked: bool,
}

impl Tools<'_> {
    /// Adds the packets that a ring's packet becomes, see [`convert`].
    pub(crate) fn convert<'a>(
        self,
        piece: Piece<'a>,
        packets: &mut Vec<Packet<'a>>,
    ) -> Result<(), PacketError> {
        convert(piece, self.records, self.classes, self.clock, packets)
    }
}

impl Sink {
    pub(crate) fn new(stream: StreamFile) -> Sink {
        Sink { stream, recorded: 0, lost: BTreeMap::new(), last: Counter(0) }
    }

    /// Records that came here.
    pub(crate) fn taken(&self) -> u64 {
        self.recorded + self.lost.values().sum::<u64>()
    }

    /// Returns the packets that there was room for.
    pub(crate) fn write(&mut self, packets: &[Packet], tools: Tools) -> Result<usize, Error> {
        let done = if tools.blocked { 0 } else { self.stream.write(packets)? };
        let records = |packets: &[Packet]| packets.iter().map(|packet| packet.records).sum::<u64>();
        if tools.blocked {
            self.stream.at.lost += records(packets);
        }
        if let Some(packet) = packets.last() {
            self.last = self.last.max(packet.end);
        }
        self.recorded += records(&packets[..done]);
        for packet in &packets[done..] {
            // They were counted before: nothing is wrong with them.
            let _ = tools.records.decode(&context_from(packet.begin), &packet.body, |record| {
                *self.lost.entry(record.class).or_default() += 1;
            });
        }
        Ok(done)
    }
}
