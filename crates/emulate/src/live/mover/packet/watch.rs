//! Frames that others move: seen as they come in and as they go out.

use std::os::fd::{AsFd as _, BorrowedFd};

use loopscope_time::MonotonicNs;

use super::socket::{Buffers, Socket};
use super::{monotonic, realtime_offset};
use crate::EmulateError;
use crate::settings::Port;

/// Somebody has set the clock if it is off by so much, or this thread was interrupted as it looked.
const STEP_NS: u64 = 10_000_000;

/// The devices of a switch, all in one socket: what goes out is never seen before it came in.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
    /// By port, the devices' numbers.
    indexes: Vec<i32>,
    buffers: Buffers,
    /// CLOCK_MONOTONIC less CLOCK_REALTIME, by which the kernel stamps frames. The same for both
    /// ends of a frame's stay, unless somebody sets the clock.
    offset: i64,
    /// `None`: the kernel does not say.
    missed: Option<u64>,
}

/// A frame at a port.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Index of the port.
    pub port: usize,
    /// Towards the host, behind all queues.
    pub outgoing: bool,
    /// When, as the kernel says.
    pub at: Option<MonotonicNs>,
    /// The frame.
    pub bytes: &'a [u8],
}

impl Watch {
    /// Watches these devices of the current network namespace.
    pub fn open(ports: &[Port]) -> Result<Watch, EmulateError> {
        let devices: Vec<&str> = ports.iter().map(|port| port.device.as_str()).collect();
        let (socket, indexes) = Socket::watch(&devices)?;
        let offset = settled_offset();
        Ok(Watch { socket, indexes, buffers: Buffers::new(), offset, missed: Some(0) })
    }

    /// Hands some of what there is to `sink`; how many.
    pub fn receive(&mut self, sink: &mut impl FnMut(Seen<'_>)) -> Result<usize, EmulateError> {
        if realtime_offset().abs_diff(self.offset) > STEP_NS {
            self.offset = settled_offset();
        }
        let received = self.socket.receive(&mut self.buffers);
        let received = received.map_err(EmulateError::system("cannot watch the ports"))?;
        for i in 0..received {
            let frame = self.buffers.frame(i);
            let port = self.indexes.iter().position(|index| *index == frame.index);
            let Some(port) = port else { continue };
            let at = frame.real_ns.and_then(|ns| monotonic(ns, self.offset));
            sink(Seen { port, outgoing: frame.outgoing, at, bytes: frame.bytes });
        }
        Ok(received)
    }

    /// Readable when there is something.
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sights that did not fit into the kernel's buffer, so far; `None`: the kernel does not say.
    pub fn missed(&mut self) -> Option<u64> {
        // Reading the kernel's counter sets it back.
        self.missed = self.missed.zip(self.socket.dropped()).map(|(before, more)| before + more);
        self.missed
    }
}

/// An interruption between both clocks makes one of several too large, not all.
fn settled_offset() -> i64 {
    (0..10).map(|_| realtime_offset()).min().unwrap_or(0)
}
