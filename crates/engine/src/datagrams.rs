//! Connected sockets of UDP whose datagrams are transferred here.

use foldhash::HashMap;
use loopscope_stack::datagram::{self, Waiting};
use loopscope_stack::packet::{Checksums, Flow};

use crate::wire::Counts;

/// One of the sockets: its number at the service, which no other one ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatagramsId(pub(crate) u64);

/// What sending a datagram came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It was given to the device, with so many bytes.
    Whole(usize),
    /// It is larger than a packet of the device. The kernel's socket can send it.
    TooLarge,
    /// The service has ended: the socket is the kernel's.
    NotHere,
}

/// What is left of a socket whose datagrams are the kernel's again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// What came to the program. None: the service had ended.
    pub counts: Option<Counts>,
    /// Datagrams that came to the program and had no room, and were dropped.
    pub dropped: u64,
}

/// A socket.
#[derive(Debug)]
pub(crate) struct Held {
    /// The flow of what comes.
    pub(crate) comes: Flow,
    /// Bytes of the largest payload in one packet of the device.
    pub(crate) most: usize,
    pub(crate) waiting: Waiting,
}

/// All of a program.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    pub(crate) held: HashMap<u64, Held>,
    /// Their numbers, by the flows of what comes.
    numbers: HashMap<Flow, u64>,
    /// Datagrams that were damaged on their way, which are dropped as the kernel drops them.
    damaged: u64,
}

impl Datagrams {
    pub(crate) fn add(&mut self, number: u64, held: Held) {
        self.numbers.insert(held.comes, number);
        self.held.insert(number, held);
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Held> {
        let held = self.held.remove(&number)?;
        self.numbers.remove(&held.comes);
        Some(held)
    }

    /// Takes a packet. False: it came for a socket whose datagrams are the kernel's by now.
    pub(crate) fn receive(&mut self, packet: &[u8], checksums: Checksums) -> bool {
        let Ok((flow, payload)) = datagram::parse(packet, checksums) else {
            self.damaged += 1;
            return true;
        };
        let number = self.numbers.get(&flow);
        let Some(held) = number.and_then(|number| self.held.get_mut(number)) else { return false };
        held.waiting.push(payload);
        true
    }
}
