//! Giving a connection back: its socket is advanced to where the stack came.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use libc::{IPPROTO_TCP, SOL_SOCKET, c_int};
use loopscope_stack::packet::{Checksums, Flow, MOST_HEADERS, Written, write};
use loopscope_stack::{Blocks, Ecn, Flags, Segment, Seq, State, Timestamps};
use rustix::net::SendFlags;

use crate::frozen::{Frozen, REPAIR_OFF, REPAIR_ON, SO_BUF_LOCK, TakeoverError, Trying};
use crate::options::{self, RepairWindow, get, set};
use crate::queues::{self, Queue};

/// Bytes of no meaning that are queued at once, before an acknowledgement frees them.
const FILLER: usize = 1 << 20;
/// Room in buffers besides the bytes themselves, which the kernel counts with their descriptions.
pub(crate) const MORE_ROOM: usize = 1 << 16;
/// For the kernel to take an acknowledgement.
const PATIENCE: Duration = Duration::from_secs(1);

/// Gives the kernel an IP packet as if it came from the network, with the mark that the socket's
/// filter lets through.
pub type Inject<'i> = &'i mut dyn FnMut(&[u8]) -> io::Result<()>;

/// Where the streams of a frozen socket are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    /// End of what is in the send queue, and bytes of it.
    written: Seq,
    queued: usize,
    /// RCV.NXT, and bytes before it that are in the receive queue.
    expected: Seq,
    unread: usize,
}

impl At {
    pub(crate) fn read(fd: BorrowedFd<'_>) -> io::Result<At> {
        let written = queues::seq(fd, Queue::Send)?;
        let expected = queues::seq(fd, Queue::Receive)?;
        queues::choose(fd, Queue::None)?;
        let queued = options::count(fd, queues::SIOCOUTQ)?;
        Ok(At { written, queued, expected, unread: options::count(fd, queues::SIOCINQ)? })
    }

    /// Bytes that were acknowledged since, as far as 32 bits tell.
    pub(crate) fn acknowledged(&self, state: &State) -> usize {
        let begin = self.written.0.wrapping_sub(self.queued as u32);
        state.unacknowledged.0.wrapping_sub(begin) as usize
    }

    /// Bytes that came since, as far as 32 bits tell.
    pub(crate) fn came(&self, state: &State) -> usize {
        state.expected.0.wrapping_sub(self.expected.0) as usize
    }

    /// Whether the connection can have become this one: of the bytes that were written none has
    /// vanished, and what is to be read has come.
    pub(crate) fn leads_to(&self, state: &State) -> bool {
        self.acknowledged(state) + state.queued.len() >= self.queued
            && self.unread + self.came(state) >= state.unread.len()
            && state.sent <= state.queued.len()
    }
}

impl Frozen {
    /// Advances the socket to `state`, and leaves it to the kernel. `flow` is that of the segments
    /// that come. Where that fails, the socket stays frozen. Where a process was killed in here,
    /// another one can do the same again, and it goes on.
    ///
    /// Packets may come to the kernel again from when this returns on.
    pub fn give_back(
        &self,
        state: &State,
        flow: &Flow,
        inject: Inject<'_>,
    ) -> Result<(), TakeoverError> {
        let fd = self.socket.as_fd();
        set(fd, IPPROTO_TCP, libc::TCP_REPAIR, REPAIR_ON).to("begin TCP_REPAIR")?;
        // Without its filter it has been advanced already.
        if options::has_filter(fd).to("look for a filter")? {
            let at = At::read(fd).to("read the queues' numbers")?;
            if !at.leads_to(state) {
                return Err(TakeoverError::Impossible);
            }
            make_room(fd, at, state).to("make room in the buffers")?;
            advance_received(fd, at, state).to("advance the receive queue")?;
            advance_sent(fd, at, state, flow, inject)?;
            set_windows(fd, state).to("set the windows")?;
            set(fd, SOL_SOCKET, libc::SO_DETACH_FILTER, 0).to("detach the filter")?;
        }
        let written = At::read(fd).to("read the queues' numbers")?.written;
        let in_queue = written.0.wrapping_sub(state.unacknowledged.0) as usize;
        let rest = state.queued.get(in_queue..).ok_or(TakeoverError::Impossible)?;
        set(fd, IPPROTO_TCP, libc::TCP_REPAIR, REPAIR_OFF).to("end TCP_REPAIR")?;
        self.kept.restore(fd).to("restore the socket's options")?;
        send_rest(fd, rest).to("send what was not sent")?;
        set(fd, SOL_SOCKET, libc::SO_SNDBUFFORCE, self.kept.send_buffer / 2)
            .to("restore SO_SNDBUF")?;
        set(fd, SOL_SOCKET, SO_BUF_LOCK, self.kept.buffer_lock).to("restore SO_BUF_LOCK")?;
        wake_readers(fd).to("wake the readers")
    }
}

fn make_room(fd: BorrowedFd<'_>, at: At, state: &State) -> io::Result<()> {
    let send = 2 * (state.queued.len() + at.queued + FILLER) + MORE_ROOM;
    let receive = 4 * (state.unread.len() + at.unread) + 4 * MORE_ROOM;
    for (option, room, force) in [
        (libc::SO_SNDBUF, send, libc::SO_SNDBUFFORCE),
        (libc::SO_RCVBUF, receive, libc::SO_RCVBUFFORCE),
    ] {
        let now: c_int = get(fd, SOL_SOCKET, option)?;
        if (now as usize) < room {
            // The kernel doubles it.
            set(fd, SOL_SOCKET, force, (room / 2) as c_int)?;
        }
    }
    Ok(())
}

/// The receive queue has what it had, and then takes what came: bytes that were read go through
/// it, those that were not stay.
fn advance_received(fd: BorrowedFd<'_>, at: At, state: &State) -> io::Result<()> {
    let mut read = at.unread + at.came(state) - state.unread.len();
    let of_kernel = read.min(at.unread);
    queues::drain(fd, of_kernel)?;
    read -= of_kernel;
    let filler = vec![0; read.min(MORE_ROOM)];
    while read > 0 {
        let piece = &filler[..read.min(filler.len())];
        queues::append(fd, Queue::Receive, piece)?;
        queues::drain(fd, piece.len())?;
        read -= piece.len();
    }
    let there = at.unread - of_kernel;
    queues::append(fd, Queue::Receive, &state.unread[there..])
}

/// The send queue goes on from the first byte that is unacknowledged, to the last that was sent. What
/// the kernel had is in it already.
fn advance_sent(
    fd: BorrowedFd<'_>,
    at: At,
    state: &State,
    flow: &Flow,
    inject: Inject<'_>,
) -> Result<(), TakeoverError> {
    mark_as_sent(fd).to("mark what was queued as sent")?;
    let mut written = at.written;
    let mut acknowledge = |until: Seq, written: Seq| {
        let left = written.0.wrapping_sub(until.0) as usize;
        inject_ack(fd, state, flow, until, inject).to("acknowledge what is gone")?;
        wait_for(fd, left)
    };
    // The program's bytes from before are all acknowledged, and others besides.
    let mut gone = at.acknowledged(state).saturating_sub(at.queued);
    if gone > 0 {
        acknowledge(written, written)?;
    }
    let filler = vec![0; gone.min(FILLER)];
    while gone > 0 {
        let piece = &filler[..gone.min(FILLER)];
        queues::append(fd, Queue::Send, piece).to("advance the send queue")?;
        written = Seq(written.0.wrapping_add(piece.len() as u32));
        acknowledge(written, written)?;
        gone -= piece.len();
    }
    // What is in the socket's queue already.
    let there = written.0.wrapping_sub(state.unacknowledged.0) as usize;
    if there < state.sent {
        let more = &state.queued[there..state.sent];
        queues::append(fd, Queue::Send, more).to("fill the send queue")?;
        written = Seq(written.0.wrapping_add(more.len() as u32));
    }
    acknowledge(state.unacknowledged, written)
}

/// Makes the kernel take all that is in the send queue for sent: pushing it in repair mode does.
fn mark_as_sent(fd: BorrowedFd<'_>) -> io::Result<()> {
    let no_delay: c_int = get(fd, IPPROTO_TCP, libc::TCP_NODELAY)?;
    queues::choose(fd, Queue::Send)?;
    set(fd, IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    set(fd, IPPROTO_TCP, libc::TCP_NODELAY, no_delay)?;
    queues::choose(fd, Queue::None)
}

/// An acknowledgement in the name of the other end.
pub(crate) fn inject_ack(
    fd: BorrowedFd<'_>,
    state: &State,
    flow: &Flow,
    until: Seq,
    inject: Inject<'_>,
) -> io::Result<()> {
    // The program may have stored long ago what time it was.
    let now: u32 = get(fd, IPPROTO_TCP, libc::TCP_TIMESTAMP)?;
    let trip = state.round_trip.map_or(Duration::ZERO, |(smoothed, _)| smoothed);
    let segment = Segment {
        seq: state.expected,
        ack: Some(until),
        window: u16::try_from(state.peer_window >> state.peer_scale).unwrap_or(u16::MAX),
        flags: Flags::default(),
        ecn: Ecn::NotCapable,
        timestamps: state.timestamps.map(|clocks| Timestamps {
            value: clocks.newest.unwrap_or(0),
            // By which the kernel measures a round trip.
            echo: now.wrapping_sub(trip.as_millis() as u32),
        }),
        blocks: Blocks::default(),
        payload: &[],
    };
    let mut packet = [0; MOST_HEADERS];
    let Written { length, .. } = write(flow, &segment, Checksums::Whole, &mut packet);
    inject(&packet[..length])
}

/// Waits until so many bytes are unacknowledged.
pub(crate) fn wait_for(fd: BorrowedFd<'_>, expected: usize) -> Result<(), TakeoverError> {
    let begin = Instant::now();
    loop {
        let found = options::count(fd, queues::SIOCOUTQ).to("count the send queue")?;
        if found == expected {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            return Err(TakeoverError::NotAdvanced { expected, found });
        }
        std::thread::yield_now();
    }
}

pub(crate) fn set_windows(fd: BorrowedFd<'_>, state: &State) -> io::Result<()> {
    let before: RepairWindow = get(fd, IPPROTO_TCP, libc::TCP_REPAIR_WINDOW)?;
    let next = state.expected.0;
    let edge = next.wrapping_add(state.window as u32);
    let of_kernel = before.window_begin.wrapping_add(before.window);
    // The edge never goes back.
    let edge = if of_kernel.wrapping_sub(edge).cast_signed() > 0 { of_kernel } else { edge };
    let peer_window = state.peer_window as u32;
    let after = RepairWindow {
        wl1: next,
        peer_window,
        widest: before.widest.max(peer_window),
        window: edge.wrapping_sub(next),
        window_begin: next,
    };
    set(fd, IPPROTO_TCP, libc::TCP_REPAIR_WINDOW, after)
}

/// There is room for all of it.
pub(crate) fn send_rest(fd: BorrowedFd<'_>, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        let sent = rustix::net::send(fd, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        rest = &rest[sent..];
    }
    Ok(())
}

/// Programs that sleep until there are data are not woken by bytes that were put into the queue.
fn wake_readers(fd: BorrowedFd<'_>) -> io::Result<()> {
    let least: c_int = get(fd, SOL_SOCKET, libc::SO_RCVLOWAT)?;
    set(fd, SOL_SOCKET, libc::SO_RCVLOWAT, least)
}
