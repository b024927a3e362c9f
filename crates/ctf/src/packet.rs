//! Packet layout: header, context and event headers at fixed offsets, little-endian, packed.
//!
//! The instrumentation's writer (C) fills the same offsets; a test in the `trace` crate holds the
//! two together.

use loopscope_time::Counter;

/// CTF's packet magic.
pub const MAGIC: u32 = 0xC1FC_1FC1;
/// Offset of the trace UUID (16 bytes).
pub const UUID: usize = 4;
/// Offset of the stream class id (u32).
pub const STREAM_ID: usize = 20;
/// Offset of the first stamp's full counter (u64).
pub const TIMESTAMP_BEGIN: usize = 24;
/// Offset of the end counter (u64), not before the packet's last stamp.
pub const TIMESTAMP_END: usize = 32;
/// Offset of the used size in bits (u64).
pub const CONTENT_SIZE: usize = 40;
/// Offset of the size in bits (u64).
pub const PACKET_SIZE: usize = 48;
/// Offset of the sequence number in the stream (u64), from 0.
pub const SEQUENCE: usize = 56;
/// Offset of the count of events discarded in the stream so far (u64, cumulative).
pub const DISCARDED: usize = 64;
/// Offset of the process id (u32).
pub const PID: usize = 72;
/// Offset of the thread id (u32).
pub const TID: usize = 76;
/// Size of header and context; records follow.
pub const RECORDS: usize = 80;

/// Size of a record before its extra fields: class id (u16), low 32 bits of the counter, id (i64).
pub const RECORD: usize = 14;
/// Offset in an interval's record of the full counter at its start (u64).
pub const INTERVAL_START: usize = RECORD;
/// Offset in an interval's record of its duration in ticks (u64): the stamp less the start.
pub const INTERVAL_DURATION: usize = RECORD + 8;

/// A packet's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Trace UUID of the packet header.
    pub uuid: [u8; 16],
    /// Stream class.
    pub stream_id: u32,
    /// Full counter at the packet's begin; the 32-bit stamps of its records continue from it.
    pub begin: Counter,
    /// Full counter at the packet's end.
    pub end: Counter,
    /// Used bytes, header and context included.
    pub content_size: usize,
    /// Bytes to the next packet.
    pub packet_size: usize,
    /// Number of the packet in its stream.
    pub sequence: u64,
    /// Events discarded in the stream before the end of this packet.
    pub discarded: u64,
    /// Process.
    pub pid: u32,
    /// Thread that wrote the packet.
    pub tid: u32,
}

/// Reads a little-endian u64.
///
/// # Panics
/// If `bytes` ends before `at + 8`.
#[inline]
pub fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the slice has eight bytes"))
}

/// Reads a little-endian u32.
///
/// # Panics
/// If `bytes` ends before `at + 4`.
#[inline]
pub fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the slice has four bytes"))
}

/// Reads a little-endian u16.
///
/// # Panics
/// If `bytes` ends before `at + 2`.
#[inline]
pub fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Writes header and context to the first [`RECORDS`] bytes.
///
/// # Panics
/// If `bytes` is shorter.
pub fn put_context(bytes: &mut [u8], context: &Context) {
    let bits = |size: usize| (size as u64 * 8).to_le_bytes();
    bytes[..UUID].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[UUID..STREAM_ID].copy_from_slice(&context.uuid);
    bytes[STREAM_ID..TIMESTAMP_BEGIN].copy_from_slice(&context.stream_id.to_le_bytes());
    bytes[TIMESTAMP_BEGIN..TIMESTAMP_END].copy_from_slice(&context.begin.0.to_le_bytes());
    bytes[TIMESTAMP_END..CONTENT_SIZE].copy_from_slice(&context.end.0.to_le_bytes());
    bytes[CONTENT_SIZE..PACKET_SIZE].copy_from_slice(&bits(context.content_size));
    bytes[PACKET_SIZE..SEQUENCE].copy_from_slice(&bits(context.packet_size));
    bytes[SEQUENCE..DISCARDED].copy_from_slice(&context.sequence.to_le_bytes());
    bytes[DISCARDED..PID].copy_from_slice(&context.discarded.to_le_bytes());
    bytes[PID..TID].copy_from_slice(&context.pid.to_le_bytes());
    bytes[TID..RECORDS].copy_from_slice(&context.tid.to_le_bytes());
}

/// Reads header and context of the packet that `bytes` begin with; `left` is how many bytes the stream
/// has from there on. Says what is wrong where they are none.
pub fn get_context(bytes: &[u8], left: u64) -> Result<Context, String> {
    if bytes.len() < RECORDS {
        return Err(format!("{left} bytes left, a packet's head has {RECORDS}"));
    }
    if get_u32(bytes, 0) != MAGIC {
        return Err("no packet magic".into());
    }
    let size = |at| get_u64(bytes, at) / 8;
    let (content_size, packet_size) = (size(CONTENT_SIZE), size(PACKET_SIZE));
    if content_size < RECORDS as u64 || content_size > packet_size || packet_size > left {
        return Err(format!(
            "sizes do not fit: content {content_size} B, packet {packet_size} B, {left} B left"
        ));
    }
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&bytes[UUID..STREAM_ID]);
    Ok(Context {
        uuid,
        stream_id: get_u32(bytes, STREAM_ID),
        begin: Counter(get_u64(bytes, TIMESTAMP_BEGIN)),
        end: Counter(get_u64(bytes, TIMESTAMP_END)),
        content_size: content_size as usize,
        packet_size: packet_size as usize,
        sequence: get_u64(bytes, SEQUENCE),
        discarded: get_u64(bytes, DISCARDED),
        pid: get_u32(bytes, PID),
        tid: get_u32(bytes, TID),
    })
}

/// Continues a full counter with the low 32 bits of a later stamp less than 2^32 ticks after it.
#[inline]
pub fn extend(previous: Counter, low: u32) -> Counter {
    let step = low.wrapping_sub(previous.0 as u32);
    Counter(previous.0.wrapping_add(u64::from(step)))
}
