//! TCP_INFO of a connection that the stack has: what the kernel's socket tells of the time before,
//! and what the stack has done since (`struct tcp_info`, linux/tcp.h).

use std::time::Duration;

use libc::c_int;
use loopscope_stack::Connection;

use crate::descriptor;
use crate::state::State;

/// Where the fields begin that the stack knows better than the kernel's socket.
mod at {
    pub(super) const SEGMENT: usize = 16;
    pub(super) const UNACKNOWLEDGED: usize = 24;
    pub(super) const ROUND_TRIP: usize = 68;
    pub(super) const VARIATION: usize = 72;
    pub(super) const WINDOW: usize = 80;
    pub(super) const SENT_AGAIN: usize = 100;
    pub(super) const BYTES_ACKNOWLEDGED: usize = 120;
    pub(super) const BYTES_RECEIVED: usize = 128;
    pub(super) const SEGMENTS_WITH_DATA: [usize; 2] = [152, 156];
}

/// Puts what the stack knows into what the kernel has told of a descriptor. The program may have
/// asked for the first bytes only. Where the kernel has the connection by now, nothing changes.
pub(crate) fn complete(told: &mut [u8], state: &mut State, fd: c_int) {
    state.turn();
    let Some(bytes) = state.bytes(fd) else { return };
    let Some(connection) = state.connection(fd) else { return };
    let [unread, unacknowledged] = descriptor::queued(fd);
    put(told, connection, bytes, [unread, unacknowledged]);
}

/// `bytes` are those that the program has read from the stack and written to it, and `queued` those
/// that wait in the kernel's socket, which were passed to the stack.
fn put(told: &mut [u8], connection: &Connection, bytes: [u64; 2], queued: [u64; 2]) {
    let counts = connection.counts();
    let [read, written] = bytes;
    let came = read + connection.readable() as u64;
    let passed = queued[1] + written;
    add(told, at::BYTES_RECEIVED, came.saturating_sub(queued[0]));
    add(told, at::BYTES_ACKNOWLEDGED, passed.saturating_sub(connection.unacknowledged() as u64));
    let [received, sent] = at::SEGMENTS_WITH_DATA;
    for (place, count) in
        [(received, counts.received), (sent, counts.sent), (at::SENT_AGAIN, counts.sent_again)]
    {
        let before = number(told, place).unwrap_or(0);
        set(told, place, before.wrapping_add(count as u32));
    }
    if let Some((trip, variation)) = connection.round_trip() {
        set(told, at::ROUND_TRIP, micros(trip));
        set(told, at::VARIATION, micros(variation));
    }
    let segment = number(told, at::SEGMENT).unwrap_or(0).max(1);
    let segments = |bytes: usize| (bytes as u32).div_ceil(segment);
    set(told, at::WINDOW, segments(connection.window()));
    set(told, at::UNACKNOWLEDGED, segments(connection.in_flight()));
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

fn number(told: &[u8], place: usize) -> Option<u32> {
    let bytes = told.get(place..place + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn set(told: &mut [u8], place: usize, number: u32) {
    if let Some(field) = told.get_mut(place..place + 4) {
        field.copy_from_slice(&number.to_ne_bytes());
    }
}

/// Adds to a field of 64 bits.
fn add(told: &mut [u8], place: usize, more: u64) {
    if let Some(field) = told.get_mut(place..place + 8)
        && let Ok(before) = <[u8; 8]>::try_from(&*field)
    {
        field.copy_from_slice(&u64::from_ne_bytes(before).wrapping_add(more).to_ne_bytes());
    }
}
