//! A writer of packets for streams that are not on anybody's hot path (clock logs, tests).

use loopscope_time::Counter;

use crate::packet::{self, Context, RECORD, RECORDS};

/// Why a record was refused; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Its stamp is before the stream's last one.
    #[error("a record's stamp is before its predecessor's")]
    BeforePredecessor,
}

/// Turns records into the packets of one stream.
///
/// Packets come out of [`PacketWriter::record`] when full and out of [`PacketWriter::flush`].
#[derive(Debug)]
pub struct PacketWriter {
    context: Context,
    last: Counter,
    limit: usize,
    buffer: Vec<u8>,
}

impl PacketWriter {
    /// A stream of class `stream_id` of the trace `uuid`; packets hold at most `limit` bytes (or
    /// one record if that is larger).
    pub fn new(uuid: [u8; 16], stream_id: u32, pid: u32, tid: u32, limit: usize) -> PacketWriter {
        let context = Context {
            uuid,
            stream_id,
            begin: Counter(0),
            end: Counter(0),
            content_size: 0,
            packet_size: 0,
            sequence: 0,
            discarded: 0,
            pid,
            tid,
        };
        PacketWriter { context, last: Counter(0), limit, buffer: Vec::new() }
    }

    /// Appends a record; returns the packet that this completed, if any. `fields` are the encoded
    /// extra fields in the order of the event class.
    pub fn record(
        &mut self,
        class: u16,
        counter: Counter,
        id: i64,
        fields: &[u8],
    ) -> Result<Option<Vec<u8>>, RecordError> {
        if counter < self.last {
            return Err(RecordError::BeforePredecessor);
        }
        let open = !self.buffer.is_empty();
        let full = self.buffer.len() + RECORD + fields.len() > self.limit;
        let gap = counter.0 - self.last.0 > u64::from(u32::MAX);
        let done = if open && (full || gap) { self.flush() } else { None };
        if self.buffer.is_empty() {
            self.buffer.resize(RECORDS, 0);
            self.context.begin = counter;
        }
        self.last = counter;
        self.buffer.extend_from_slice(&class.to_le_bytes());
        self.buffer.extend_from_slice(&(counter.0 as u32).to_le_bytes());
        self.buffer.extend_from_slice(&id.to_le_bytes());
        self.buffer.extend_from_slice(fields);
        Ok(done)
    }

    /// Closes the open packet and returns it; `None` if there is no record in it.
    pub fn flush(&mut self) -> Option<Vec<u8>> {
        if self.buffer.is_empty() {
            return None;
        }
        self.context.end = self.last;
        self.context.content_size = self.buffer.len();
        self.context.packet_size = self.buffer.len();
        packet::put_context(&mut self.buffer, &self.context);
        self.context.sequence += 1;
        Some(std::mem::take(&mut self.buffer))
    }
}
