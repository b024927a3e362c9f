//! Reading packets.

use crate::packet::{self, Context, RECORDS};

/// What is wrong with a packet, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset}: {what}")]
pub struct PacketError {
    /// Offset in the stream.
    pub offset: usize,
    /// What is wrong there.
    pub what: String,
    /// Whether there would have to be more bytes.
    pub short: bool,
}

/// Iterator over the packets of a stream: context and the bytes of the records. Ends after the
/// first error.
#[derive(Debug)]
pub struct Packets<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Packets<'a> {
    /// The packets of a whole stream file.
    pub fn new(bytes: &'a [u8]) -> Packets<'a> {
        Packets { bytes, offset: 0 }
    }

    fn packet(&self) -> Result<(Context, &'a [u8]), PacketError> {
        let rest = &self.bytes[self.offset..];
        let context = packet::get_context(rest, rest.len() as u64).map_err(|what| {
            let short = rest.len() < RECORDS;
            PacketError { offset: self.offset, what, short }
        })?;
        Ok((context, &rest[RECORDS..context.content_size]))
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
