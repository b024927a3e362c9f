//! TCP connections while data are transferred, without I/O.
//!
//! The kernel makes connections. A [`Connection`] takes one over as a [`State`] that was read from
//! the kernel's socket, transfers its data, and becomes a [`State`] again, of which the kernel makes
//! a socket. It knows no sockets, packets or clocks: segments and times are arguments, so that
//! simulations run in virtual time.
//!
//! | what | by |
//! |---|---|
//! | acceptance of segments, windows, probes of closed windows, Nagle | RFC 9293 |
//! | window scale, timestamps, PAWS | RFC 7323 |
//! | selective acknowledgements, also of what came twice | RFC 2018, RFC 2883 |
//! | losses, probes for the last segments | RFC 8985 (RACK-TLP), in place of RFC 6675's counts |
//! | bytes that are on their way | RFC 6675 §4 (pipe) |
//! | retransmission time-out | RFC 6298, with a least time-out that the user sets |
//! | congestion window | RFC 9438 (CUBIC), RFC 5681 (Reno), RFC 6937 |
//! | marks of congestion | RFC 3168 |
//! | packets that are too large for the path | RFC 1191, RFC 8201, RFC 5927 |
//! | resets and acknowledgements of strangers | RFC 5961 |
//!
//! Datagrams of UDP have no state but their flow: [`datagram`] reads and writes their packets.
//!
//! What closes a stream, and urgent data, are the kernel's: [`Connection::end`] says so.

mod checksum;
mod congested;
mod congestion;
mod connection;
mod connections;
pub mod datagram;
mod flight;
pub mod icmp;
mod input;
mod outline;
pub mod packet;
mod place;
mod receive;
mod ring;
mod round_trip;
mod saved;
mod segment;
mod state;
mod timers;

pub use congestion::Algorithm;
pub use connection::Connection;
pub use connections::{Connections, Id, Leaving};
pub use outline::{Outline, in_ring};
pub use place::{Place, Seq};
pub use ring::Memory;
pub use segment::{Blocks, Ecn, Flags, MOST_BLOCKS, Segment, Timestamps};
pub use state::{Clocks, Config, Counts, End, KeepAlive, State};
pub use timers::{Expired, Timer};
