//! Message patterns: one program plays every type of a message table ([`loopscope_messages`]) that
//! the table gives to it, as its producer or as its consumer.
//!
//! # Messages
//!
//! The first eight bytes are the message's [`id`]; the rest is zero. A message over TCP has no other
//! frame: both ends know its size from the table. Over UDP it is one datagram; one above the MTU is
//! fragmented by IP. Multicast goes no farther than the link (TTL 1), by the interface that the
//! producer reaches its consumers by.
//!
//! # Connections
//!
//! From each producer of a type to each of its consumers there is one TCP connection. It begins with
//! the type's id with number 0 (u64) and its size (u32), so that tables that differ are found out;
//! the consumer answers, when it is ready to receive, with the port (u16) that it wants datagrams
//! at, 0 if it wants none. Then it carries the messages; of a UDP type it says at the end how many
//! were sent (u64). All little-endian.
//!
//! # Pace
//!
//! Absolute deadlines, a period apart, the first at a random part of a period (seeded), so that not
//! all types fire at once. A producer that falls behind sends what is overdue at once; a connection
//! that takes nothing delays its own type only.
//!
//! # Events
//!
//! `pattern:sent` with the message's id, `message_type` (the row's number, from 0), `producer`,
//! `late_ns`, how long after its deadline, and `within_ns`: the stamp, just before the message is
//! handed to the kernel, and the reading of the clock that `late_ns` is from are no farther apart.
//! Where the program was held up in between it records the message again, with a wider bound: of
//! several with one id the last counts. `pattern:received` once for each arrival, stamped after the
//! call that returned its last byte.
//!
//! # Phases
//!
//! `listen` (consumer) binds and publishes `port`; `connect` makes all connections; `run` sends and
//! receives until every producer has ended.

mod args;
mod consume;
mod flow;
mod id;
mod outlet;
mod produce;
mod receipts;
mod report;
mod series;
mod udp;

use std::sync::Arc;

use anyhow::Result;
use loopscope_phase::{Config, Session};

pub use args::{ConsumeArgs, PatternArgs, PatternRole, ProduceArgs};

use crate::program::run;
use crate::stop::Stop;

/// Plays a message table's types to the end; prints a table of what it sent or received.
pub fn main_pattern(args: PatternArgs) -> Result<()> {
    let phases: &[&str] = match args.role {
        PatternRole::Produce(_) => &["connect", "run"],
        PatternRole::Consume(_) => &["listen", "connect", "run"],
    };
    let session = Session::connect(phases, Config::default())?;
    let component = session.component().map(str::to_owned);
    let stop = Stop::new()?;
    match args.role {
        PatternRole::Produce(args) => {
            run(session, produce::phases(args, component, Arc::clone(&stop)))?;
        }
        PatternRole::Consume(args) => {
            run(session, consume::phases(args, component, Arc::clone(&stop)))?;
        }
    }
    stop.exit_if_interrupted();
    Ok(())
}
