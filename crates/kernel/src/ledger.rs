//! The ledger of TCP: what sockets send, receive and read, and the segments that carry it.
//!
//! On the host, [`programs`] has the kernel write a record for each (`bpf/tcp.bpf.c`) and
//! [`recorder`] puts them into files. At the desk, [`transcode`] makes a stream of them: [`place`]
//! finds where they are on the counter, and [`record`] says what is in them.

pub(crate) mod place;
pub(crate) mod programs;
pub(crate) mod record;
pub(crate) mod recorder;
pub(crate) mod transcode;

/// The class of events that programs record, and no tracepoints of tracefs.
pub const CLASS: &str = "tcp";
/// The group of these events, as the others' is that of their tracepoints.
pub const GROUP: &str = "bpf";

pub use programs::{ProgramsError, check};
pub use recorder::Request;
