//! Bulk data from one host to another, after ttcp: how much the way takes, what it loses, and what
//! it costs the hosts; and competing network load for others.
//!
//! # Streams
//!
//! Each stream sends blocks as fast as the kernel takes them or at its share of a rate, over a TCP
//! connection or as UDP packets of a socket of its own (`wire.rs` says what the ends tell each
//! other). The content is known to both ends, so that the receiver can compare every byte. At its
//! end a receiver gives the sender its account.
//!
//! # Events
//!
//! `ettcp:write` just before a block is handed to the kernel, `ettcp:read` when the receiver has
//! read it whole; the id is the stream times 2^48 plus the block's number from 1. `ettcp:second` at
//! each end with the bytes of each second.
//!
//! # Phases
//!
//! `listen` (receiver) binds and publishes `port`; `connect` makes the streams; `run` moves the
//! data. A sender with an amount or a duration is done with `run` when it has sent that. One
//! without is done when it has begun, and goes on until the run ends: competing load behind the
//! phases; so is its receiver.

mod clock;
mod content;
mod meter;
mod receive;
mod report;
mod send;
mod sequence;
mod share;
mod socket;
mod tcp;
mod udp;
mod wire;

use anyhow::Result;
use clap::ValueEnum;
use loopscope_phase::{Config, Session};
use loopscope_trace::{describe, describe_group};

pub use receive::ReceiveArgs;
pub use send::SendArgs;

use crate::stop::Stop;

describe_group!("ettcp", "Bulk data, block by block, at both ends.");
describe!("ettcp", "write", "", "A block is about to be handed to the kernel.");
describe!("ettcp", "read", "", "A block has been read whole.");
describe!("ettcp", "second", "", "A second of this end's run has passed.");

/// An end of a bulk transfer.
#[derive(Clone, Debug, clap::Args)]
pub struct EttcpArgs {
    /// The role of this process.
    #[command(subcommand)]
    pub role: EttcpRole,
}

/// The ends.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum EttcpRole {
    /// Send bulk data; without an amount or a duration until Ctrl-C or the end of the run
    Send(SendArgs),
    /// Receive and discard it, or compare it with what was sent
    Receive(ReceiveArgs),
}

/// What carries the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// A connection for each stream.
    Tcp,
    /// Packets, with their loss and reordering counted.
    Udp,
}

/// A stream's end, as this program saw it.
struct Stream {
    stream: u16,
    account: wire::Account,
    /// Sender: the receiver's account; `None` if it did not come.
    peer: Option<wire::Account>,
    tcp: Option<socket::TcpState>,
}

/// Runs an end of a transfer and prints its report.
pub fn main_ettcp(args: EttcpArgs) -> Result<()> {
    let stop = Stop::new()?;
    let outcome = match args.role {
        EttcpRole::Send(args) => {
            let session = Session::connect(&["connect", "run"], Config::default())?;
            send::run_phases(session, &args, &stop)
        }
        EttcpRole::Receive(args) => {
            let session = Session::connect(&["listen", "connect", "run"], Config::default())?;
            receive::run_phases(session, &args, &stop)
        }
    };
    outcome?;
    stop.exit_if_interrupted();
    Ok(())
}
