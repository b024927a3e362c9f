//! Reading packets.

use loopscope_time::Counter;

use crate::packet::{self, Context, MAGIC, RECORDS, get_u32, get_u64};

/// What is wrong with a packet, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset}: {what}")]
pub struct PacketError {
    /// Offset in the stream.
    pub offset: usize,
    /// What is wrong there.
    pub what: String,
}

/// Iterator over the packets of a stream: context and the bytes of the records. Ends after the
/// first error.
#[derive(Debug)]
pub struct Packets<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Packets<'a> {
    /// Of a whole stream file.
    pub fn new(bytes: &'a [u8]) -> Packets<'a> {
        Packets { bytes, offset: 0 }
    }

    fn packet(&self) -> Result<(Context, &'a [u8]), PacketError> {
        let rest = &self.bytes[self.offset..];
        let error = |what: String| PacketError { offset: self.offset, what };
        if rest.len() < RECORDS {
            return Err(error(format!("{} bytes left, a packet's head has {RECORDS}", rest.len())));
        }
        if get_u32(rest, 0) != MAGIC {
            return Err(error("no packet magic".into()));
        }
        let bytes = |at| usize::try_from(get_u64(rest, at) / 8).unwrap_or(usize::MAX);
        let (content_size, packet_size) = (bytes(packet::CONTENT_SIZE), bytes(packet::PACKET_SIZE));
        if content_size < RECORDS || content_size > packet_size || packet_size > rest.len() {
            return Err(error(format!(
                "sizes do not fit: content {content_size} B, packet {packet_size} B, {} B left",
                rest.len()
            )));
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&rest[packet::UUID..packet::STREAM_ID]);
        let context = Context {
            uuid,
            stream_id: get_u32(rest, packet::STREAM_ID),
            begin: Counter(get_u64(rest, packet::TIMESTAMP_BEGIN)),
            end: Counter(get_u64(rest, packet::TIMESTAMP_END)),
            content_size,
            packet_size,
            sequence: get_u64(rest, packet::SEQUENCE),
            discarded: get_u64(rest, packet::DISCARDED),
            pid: get_u32(rest, packet::PID),
            tid: get_u32(rest, packet::TID),
        };
        Ok((context, &rest[RECORDS..content_size]))
    }

    /// Offset in the stream of the packet that comes next.
    pub fn offset(&self) -> usize {
        self.offset
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<(Context, &'a [u8]), PacketError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset == self.bytes.len() {
            return None;
        }
        let item = self.packet();
        match &item {
            Ok((context, _)) => self.offset += context.packet_size,
            Err(_) => self.offset = self.bytes.len(),
        }
        Some(item)
    }
}
