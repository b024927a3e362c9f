//! What takes frames off devices and puts them on others.

use std::os::fd::{AsFd, BorrowedFd};

use loopscope_time::MonotonicNs;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use serde::Serialize;

use crate::EmulateError;
use crate::router::Departure;

pub mod endpoint;
mod mtu;
pub mod packet;
pub mod probe;
pub mod xdp;

/// Frames taken from a port, or sent, at a time.
pub const BATCH: usize = 64;

/// The devices of a router, by port.
pub trait Mover {
    /// Looks which ports have something; called before the ports are received from.
    fn look(&mut self) -> Result<(), EmulateError>;

    /// Hands what has come to `port` to `sink`, oldest first and at most [`BATCH`], with the time at
    /// which the kernel saw it, if that is known; how many there were.
    fn receive(
        &mut self,
        port: usize,
        sink: &mut impl FnMut(Option<MonotonicNs>, &[u8]),
    ) -> Result<usize, EmulateError>;

    /// Sends each; marks as lost what the kernel did not take.
    fn transmit(&mut self, batch: &mut [Departure]) -> Result<(), EmulateError>;

    /// Readable when a port has something.
    fn ready(&self) -> BorrowedFd<'_>;

    /// What each port has lost so far before it could be received.
    fn losses(&mut self) -> Vec<Losses>;
}

/// Frames that a port lost before any link could take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// The mover was too slow: the kernel's buffers were full. `None`: the kernel does not say.
    pub full: Option<u64>,
    /// Larger than the device can send: not segmented by the sender's kernel.
    pub oversize: u64,
    /// To addresses that no bridge forwards (IEEE 802.1Q, 8.6.3). The router counts them.
    pub reserved: u64,
    /// Not lost, but without a checksum: the receiver drops them.
    pub unfinished: u64,
}

impl Default for Losses {
    fn default() -> Losses {
        Losses { full: Some(0), oversize: 0, reserved: 0, unfinished: 0 }
    }
}

impl Losses {
    /// What to do about them, for a person.
    pub fn advice(&self, device: &str) -> Vec<String> {
        let mut advice = Vec::new();
        match self.full {
            Some(0) => {}
            Some(full) => advice.push(format!(
                "{device}: {full} frames were lost before the router could take them: it was too slow"
            )),
            None => advice.push(format!(
                "{device}: the kernel does not say how many frames were lost before the router could \
                 take them"
            )),
        }
        if self.oversize > 0 {
            advice.push(format!(
                "{device}: {} frames were larger than its MTU and dropped; on the device at its other \
                 end: ethtool -K DEVICE tso off gso off gro off",
                self.oversize
            ));
        }
        if self.unfinished > 0 {
            advice.push(format!(
                "{device}: {} frames came without checksum, receivers drop them; on the device at its \
                 other end: ethtool -K DEVICE tx off",
                self.unfinished
            ));
        }
        advice
    }
}

/// Readable when any of the sockets is; an event's data is its socket's place.
fn readiness<'a, S: AsFd + 'a>(
    sockets: impl Iterator<Item = &'a S>,
) -> Result<Epoll, EmulateError> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
        .map_err(EmulateError::system("cannot make an epoll descriptor"))?;
    for (place, socket) in (0..).zip(sockets) {
        epoll
            .add(socket, EpollEvent::new(EpollFlags::EPOLLIN, place))
            .map_err(EmulateError::system("cannot wait for a socket"))?;
    }
    Ok(epoll)
}
