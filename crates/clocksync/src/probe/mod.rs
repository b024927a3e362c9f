//! The exchange of probes over UDP: a [`Responder`] on the reference, a [`Prober`] on each
//! follower, each a thread that blocks in `poll`. Where there are several followers, each may have
//! a responder too, and a [`Mesh`] that probes those before it.
//!
//! Their sockets are bound by the calling thread, so they belong to its network namespace.

mod arrival;
mod demand;
mod faults;
mod hardware;
mod load;
mod local_clocks;
mod mesh;
mod outcome;
mod pace;
mod packet;
mod prober;
mod probing;
mod replay;
mod reply_statistics;
mod responder;
mod socket;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

pub use faults::{ClockSet, Faults};
pub use hardware::{BeforeStamps, read_stamps, write_stamps};
pub use mesh::{EdgeEnd, MESH_BURST, MESH_RATE_HZ, Mesh, MeshConfig, Peer, Witness};
pub use outcome::{Observer, Outcome};
pub use prober::{DEFAULT_BURST, DEFAULT_RATE_HZ, Prober, ProberConfig};
pub use reply_statistics::ReplyStatistics;
pub use responder::{ReplyTime, Responder};
pub use socket::{DSCP, Traffic};

use crate::counter::CounterError;
use crate::key::Key;
use crate::record::{Filter, Identity, RecordError};

/// How long a reply or a kernel stamp is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// What both sides need to know.
#[derive(Clone)]
pub struct Side {
    /// Own address on the clock network; port 0 is one that the system chooses.
    pub address: SocketAddr,
    /// Where the log goes, in a run `clock/probes`; `None`: there is none.
    pub directory: Option<PathBuf>,
    /// What the log declares.
    pub identity: Identity,
    /// What both sides share and nobody else has.
    pub key: Key,
    /// The host's synthetic clock, if it has one.
    pub filter: Option<Filter>,
    /// What goes wrong on purpose.
    pub faults: Option<Faults>,
    /// Whether packets leave by the interface that has the address, whatever the routes say.
    pub own_interface: bool,
    /// Called before an interface's stamps are switched on; `None`: they just are.
    pub before_stamps: Option<BeforeStamps>,
}

/// Why probes cannot start or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(String),
    /// The socket could not be had.
    #[error("cannot use {address} for clock probes: {source}: {}", remedy(source))]
    Address {
        /// Own address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// No answer.
    #[error(
        "no clock probe from {address} was answered by {reference} within {} s: is the \
         reference's clock running with the same key, and does the clock network pass UDP between \
         the two?",
        probing::FIRST_ANSWER.as_secs()
    )]
    NoAnswer {
        /// Own address.
        address: SocketAddr,
        /// The reference's.
        reference: SocketAddr,
    },
    /// The counter does not tell time.
    #[error(transparent)]
    Counter(#[from] CounterError),
    /// The log could not be written.
    #[error(transparent)]
    Log(#[from] RecordError),
    /// The system refused a thread, a pipe or a wait.
    #[error("the clock probes at {address} failed: {source}")]
    System {
        /// Own address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A bug.
    #[error("the thread of the clock probes panicked: please report this")]
    Panicked,
}

/// What to do about an address that cannot be used.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "another program has this port, choose another one",
        io::ErrorKind::PermissionDenied => "ports below 1024 need root, choose a higher one",
        _ => "is it an address of this host?",
    }
}

/// Why a probe, a stamp or a packet came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A probe was not answered in time.
    NoReply,
    /// The system refused to send.
    SendFailed,
    /// The system reported an error on receiving.
    ReceiveFailed,
    /// There was no stamp of sending; the program's own was taken.
    NoTxStamp,
    /// There was no stamp of receiving; the program's own was taken.
    NoRxStamp,
    /// The stamping clock was set around the stamp; the program's own was taken.
    ClockStep,
    /// A reply to no probe that is waited for: late, or doubled on its way.
    UnexpectedReply,
    /// Not a packet of this protocol.
    MalformedPacket,
    /// A packet that was not coded by the key.
    ForgedPacket,
    /// A probe that has come before.
    ReplayedPacket,
    /// A packet from or for somebody else.
    ForeignPacket,
    /// A probe that names another session than this reference's, or one too many that asks for it.
    UnknownSession,
    /// The reference is another than before: its session has changed.
    ReferenceRestarted,
    /// The reference did not say when it sent a reply: the exchange is known in part until the logs
    /// are joined.
    UntoldStamp,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::NoReply => "no-reply",
            Cause::SendFailed => "send-failed",
            Cause::ReceiveFailed => "receive-failed",
            Cause::NoTxStamp => "no-tx-stamp",
            Cause::NoRxStamp => "no-rx-stamp",
            Cause::ClockStep => "clock-step",
            Cause::UnexpectedReply => "unexpected-reply",
            Cause::MalformedPacket => "malformed-packet",
            Cause::ForgedPacket => "forged-packet",
            Cause::ReplayedPacket => "replayed-packet",
            Cause::ForeignPacket => "foreign-packet",
            Cause::UnknownSession => "unknown-session",
            Cause::ReferenceRestarted => "reference-restarted",
            Cause::UntoldStamp => "untold-stamp",
        })
    }
}

/// What a side did. On a prober `sent = answered + lost[NoReply]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Probes (prober) or replies (responder) sent.
    pub sent: u64,
    /// Probes answered: by their reply (prober), or with one (responder).
    pub answered: u64,
    /// Probes, stamps and packets that came to nothing, by cause; only causes that occurred.
    pub lost: BTreeMap<Cause, u64>,
    /// What was sent in all.
    pub traffic: Traffic,
}

impl Counts {
    /// With those of another exchange.
    #[must_use]
    pub fn and(mut self, other: Counts) -> Counts {
        self.sent += other.sent;
        self.answered += other.answered;
        for (cause, count) in other.lost {
            *self.lost.entry(cause).or_default() += count;
        }
        self.traffic = self.traffic.and(other.traffic);
        self
    }

    fn lose(&mut self, cause: Cause) {
        *self.lost.entry(cause).or_default() += 1;
    }

    fn refuse(&mut self, refusal: packet::Refusal) {
        self.lose(match refusal {
            packet::Refusal::Malformed => Cause::MalformedPacket,
            packet::Refusal::Forged => Cause::ForgedPacket,
        });
    }
}

/// A number that nobody can guess, not 0.
pub(crate) fn entropy() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes).max(1))
}

/// What the thread that owns a [`Worker`] tells it.
enum Order {
    /// Finish in good order.
    Stop,
    /// Probe another address.
    Redirect,
    /// The owner is gone: end at once.
    Abandon,
}

/// Orders as bytes in the worker's pipe. That it is closed is the third.
const STOP: u8 = 1;
const REDIRECT: u8 = 2;

/// A thread of probes.
#[derive(Debug)]
struct Worker<T = Counts> {
    control: Option<PipeWriter>,
    thread: Option<JoinHandle<Result<T, ProbeError>>>,
}

impl<T: Send + 'static> Worker<T> {
    fn spawn(
        name: &str,
        run: impl FnOnce(PipeReader) -> Result<T, ProbeError> + Send + 'static,
    ) -> io::Result<Worker<T>> {
        let (reader, writer) = io::pipe()?;
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || run(reader))?;
        Ok(Worker { control: Some(writer), thread: Some(thread) })
    }

    fn stop(mut self) -> Result<T, ProbeError> {
        self.order(&Order::Stop);
        self.join()
    }

    fn order(&mut self, order: &Order) {
        let byte = match order {
            Order::Stop => STOP,
            Order::Redirect => REDIRECT,
            Order::Abandon => return self.control = None,
        };
        if let Some(control) = &mut self.control {
            // Fails only if the thread has ended, and then joining says why.
            let _ = control.write_all(&[byte]);
        }
    }

    /// Whether it has ended by itself, which only a failure makes it do.
    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(&mut self) -> Result<T, ProbeError> {
        let joined = self.thread.take().map(JoinHandle::join);
        self.control = None;
        match joined {
            Some(Ok(result)) => result,
            Some(Err(_)) | None => Err(ProbeError::Panicked),
        }
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        self.control = None;
        if let Some(thread) = self.thread.take() {
            // No reader is left for an error.
            let _ = thread.join();
        }
    }
}
