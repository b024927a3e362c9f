//! Packets at exact times: a sender that keeps to a grid of intended instants and says how well it
//! did, and a receiver that measures it at the kernel's stamp.
//!
//! # Schedule
//!
//! A packet's intended time is its number times the interval, counted exactly from the start of the
//! run: no rounding and no lateness adds up. After a stall `--after-stall` says what becomes of the
//! packets that are overdue. Of several processes each sends every N-th packet of the one schedule,
//! from the same start.
//!
//! # Packets
//!
//! UDP, or blocks of that size over TCP with `TCP_NODELAY`. `packet.rs` has the bytes; the first
//! eight are the packet's number from 1.
//!
//! # Events
//!
//! `pace:sent`, with the packet's number as id, just before it goes to the kernel: `late_ns` after
//! its intended time (below zero where the kernel paces and is handed it ahead), `size`.
//! `pace:second`, with the second's number from 0 as id, when the second is over: `packets` and
//! `bytes` that left in it, `skipped`, `late_max_ns`, `bit_s`; each process has its own.
//! `pace:received`, with the packet's number as id, when the receiver has read it: `delay_ns` from
//! the intended time to the receiver's kernel stamp, by the two machines' own CLOCK_REALTIME, so
//! that it means something only if these are one clock or agree; `size`.
//!
//! # Phases
//!
//! `listen` (receiver) binds and publishes `port`; `connect` (sender) finds the receiver that `to`
//! names and starts the processes; `run` sends and receives. Without an agent the program runs them
//! by itself.

mod clocks;
mod crew;
mod distribution;
mod options;
mod order;
mod outlet;
mod pacer;
mod packet;
mod receive;
mod received;
mod schedule;
mod send;
mod sent;
mod signals;
mod text;
mod txtime;
mod work;

use anyhow::Result;
use loopscope_phase::{Config, Session};

pub use options::{DistributionKind, Protocol, SendArgs, TimerKind};
pub use pacer::AfterStall;
pub use receive::ReceiveArgs;

use crate::program::run;

loopscope_trace::describe_group!("pace", "Packets at exact times.");
loopscope_trace::describe!("pace", "sent", "", "A packet goes to the kernel.");
loopscope_trace::describe!("pace", "second", "", "A second of sending is over.");
loopscope_trace::describe!("pace", "received", "", "A packet was read.");

/// Send packets at exact times, or receive them and measure how exact they were.
#[derive(Clone, Debug, clap::Args)]
pub struct PaceArgs {
    /// The role of this process.
    #[command(subcommand)]
    pub role: PaceRole,
}

/// The two ends.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum PaceRole {
    /// Send packets at a rate or an interval, and report how exactly
    Send(Box<SendArgs>),
    /// Receive them; report loss, reordering, interval error, delay and jitter
    Receive(ReceiveArgs),
}

/// Runs a sender or a receiver to its end; prints its report.
pub fn main_pace(args: PaceArgs) -> Result<()> {
    let phases: &[&str] = match args.role {
        PaceRole::Send(_) => &["connect", "run"],
        PaceRole::Receive(_) => &["listen", "run"],
    };
    let signals = signals::Signals::heed()?;
    let session = Session::connect(phases, Config::default())?;
    let component = session.component().map(str::to_owned);
    match &args.role {
        PaceRole::Send(args) => run(session, send::send(args, &signals)),
        PaceRole::Receive(args) => {
            run(session, receive::receive(args, &signals, component.as_deref()))
        }
    }?;
    signals.exit_if_interrupted();
    Ok(())
}
