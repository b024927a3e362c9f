//! A packet that came in.

use std::net::SocketAddr;

use loopscope_time::Counter;

use super::packet;
use crate::record::Source;
use crate::stamp::StampNs;

/// A stamp that is not the program's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) ns: StampNs,
    pub(super) source: Source,
}

/// A packet as the socket received it.
pub(super) struct Arrival {
    /// One byte more than a packet has, so that a longer one shows.
    pub(super) bytes: [u8; packet::SIZE + 1],
    pub(super) length: usize,
    /// `None` if the kernel gave no address.
    pub(super) from: Option<SocketAddr>,
    pub(super) stamp: Option<Stamp>,
    /// The counter right after the system call.
    pub(super) read: Counter,
}
