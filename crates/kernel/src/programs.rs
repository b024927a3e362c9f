//! Events that programs in the kernel record (BPF, `bpf/`), in classes: TCP's ledger, the datagrams of
//! UDP, dropped packets, on what threads sleep, and their system calls.
//!
//! On the host, [`loaded`] has the kernel write a record for each and [`recorder`] puts them into
//! files. At the desk, [`transcode`] makes a stream of them: [`place`] finds where they are on the
//! counter, and [`record`] says what is in them.

pub mod histograms;
pub(crate) mod loaded;
pub(crate) mod place;
pub(crate) mod reasons;
pub(crate) mod record;
pub(crate) mod recorder;
pub(crate) mod symbols;
pub(crate) mod transcode;

/// What sockets of TCP send, receive and read, and the segments that carry it.
pub const TCP: &str = "tcp";
/// In which system call and function of the kernel a thread goes to sleep.
pub const SLEEP: &str = "sleep";
/// The datagrams of UDP, from the call that sends one to the one that reads it.
pub const UDP: &str = "udp";
/// The packets of TCP and UDP that the kernel drops.
pub const DROP: &str = "drop";
/// The system calls of measured threads.
pub const CALL: &str = "call";
/// The classes of events that programs record, and no tracepoints of tracefs.
pub const CLASSES: [&str; 5] = [SLEEP, TCP, UDP, DROP, CALL];
/// The event of a thread whose cgroup has used up its processor time. Not every kernel tells of it.
pub const THROTTLED: &str = "throttled";
/// The group of these events, as the others' is that of their tracepoints.
pub const GROUP: &str = "bpf";

pub use loaded::{Absent, Chosen, Length, Number, ProgramsError, check};
pub use recorder::Request;
