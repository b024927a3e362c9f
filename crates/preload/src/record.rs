//! What the library does, as events of `trace`: segments, timers, copies, and threads that wait.
//!
//! The call sites are registered when the first connection of a program is taken over that runs in a
//! recording. Everywhere else each costs one branch, and nothing is made for them.
//!
//! A hit comes from within the library ([`crate::inside`]): where it has to make a ring, the files
//! that are opened, written and closed for it are the kernel's, no handler of a signal runs, and
//! errno, cancellation and the mask of signals are kept by the trace's core.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libc::c_int;
use loopscope_engine::Observe;
use loopscope_stack::{Flags, Id, Outline, Segment, Timer};
use loopscope_time::source::read_counter;
use loopscope_trace::{describe, describe_group, event, event_at};

use crate::signals::outside;

loopscope_trace::register_later!();

describe_group!(
    "stack",
    "TCP of an accelerated program, by the user-mode stack. The id is the connection's number in its \
     process."
);
describe!(
    "stack",
    "taken",
    "",
    "The stack has the connection of descriptor `fd` from now on. `write_seq` and `copied_seq` are \
     the sequence numbers of the next byte that the program writes and reads, `snd_una`, `snd_nxt` \
     and `rcv_nxt` those of RFC 9293."
);
describe!(
    "stack",
    "returned",
    "",
    "The kernel has the connection again, for `reason`. The program has read `read` bytes from the \
     stack, and written `written`."
);
describe!(
    "stack",
    "write",
    "",
    "The program's `bytes` begin to be copied to the send queue; `offset` were so before, since the \
     connection was taken."
);
describe!(
    "stack",
    "read",
    "",
    "The program's call has copied `bytes` out of the receive queue; `offset` were so before, since \
     the connection was taken."
);
describe!(
    "stack",
    "segment_sent",
    "",
    "A segment is given to the device; or, where `segment` is not 0, several with so many bytes of \
     data each. `retransmission` is 1 if its data were sent before."
);
describe!("stack", "segment_received", "", "The stack takes a segment.");
describe!("stack", "timer", "", "The timer of this name has expired.");
describe!(
    "stack",
    "wait",
    "",
    "A call finds nothing, and waits: for a connection, or, with the id 0, for several descriptors. \
     `fd` is the one that it was given, or -1."
);
describe!("stack", "sleep", "", "A thread that waits gives its processor up.");
describe!("stack", "woken", "", "A thread that slept runs again; `cause` is what woke it.");
describe!("stack", "wake", "", "The thread wakes another one, of this number, for what came.");

/// By this the programs of a recording find where it is.
const RUNTIME_DIR: &str = "LOOPSCOPE_RUNTIME_DIR";

/// Whether the call sites are registered.
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
/// The number of the last connection. Only who has the lock changes it.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Registers the call sites, if the program runs in a recording. The caller has the lock.
pub(crate) fn begin() {
    if !is_registered() && std::env::var_os(RUNTIME_DIR).is_some() {
        loopscope_trace::register_here();
        IS_REGISTERED.store(true, Ordering::Relaxed);
    }
}

fn is_registered() -> bool {
    IS_REGISTERED.load(Ordering::Relaxed)
}

/// Makes what this thread records into, before the program goes on: what is opened for it later may
/// have the number of a descriptor that the program expects to get.
pub(crate) fn begin_thread() {
    if is_registered() {
        // Without it, its hits are counted as dropped.
        let _ = outside(loopscope_trace::thread_init);
    }
}

/// The counter, for an event that is recorded later; 0 where nobody records.
pub(crate) fn now() -> u64 {
    if is_registered() { read_counter().0 } else { 0 }
}

/// The number of this thread, for events; 0 where nobody records.
pub(crate) fn thread() -> u32 {
    if !is_registered() {
        return 0;
    }
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// A connection, as events have it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) number: u64,
    fd: c_int,
    /// The sequence numbers of the first byte that the program reads and writes by the stack.
    first: [u32; 2],
}

impl Recorded {
    /// The program has written bytes, since `began`.
    pub(crate) fn wrote(self, began: u64, bytes: usize, offset: u64) {
        let seq = self.first[1].wrapping_add(offset as u32);
        if bytes > 0 {
            event_at!(
                began,
                "stack",
                "write",
                self.number,
                seq = seq,
                bytes = bytes as u32,
                offset = offset
            );
        }
    }

    /// The program has read bytes.
    pub(crate) fn read(self, bytes: usize, offset: u64) {
        let seq = self.first[0].wrapping_add(offset as u32);
        if bytes > 0 {
            event!("stack", "read", self.number, seq = seq, bytes = bytes as u32, offset = offset);
        }
    }

    /// The kernel has the connection again.
    pub(crate) fn returned(self, why: &str, [read, written]: [u64; 2]) {
        event!(
            "stack",
            "returned",
            self.number,
            reason = why,
            read = read,
            written = written,
            fd = self.fd
        );
    }
}

/// Records what an engine does.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Connections of the engines before it.
    before: u64,
    /// Those of which something came, and whether data did, until they are taken. Each may be there
    /// several times.
    came: RefCell<Vec<(Id, bool)>>,
}

impl Recorder {
    pub(crate) fn new() -> Recorder {
        Recorder { before: LAST.load(Ordering::Relaxed), came: RefCell::default() }
    }

    /// Takes the connections of which something came since the last time.
    pub(crate) fn take_came(&self, each: impl FnMut((Id, bool))) {
        self.came.borrow_mut().drain(..).for_each(each);
    }

    /// A connection was taken over, as `outline` has it.
    pub(crate) fn taken(
        &self,
        id: Id,
        fd: c_int,
        (here, there): (SocketAddr, SocketAddr),
        outline: &Outline,
    ) -> Recorded {
        let number = self.number(id);
        LAST.store(number, Ordering::Relaxed);
        let [written, read] = [outline.written, outline.read].map(|place| place.seq().0);
        let (local, remote) = (text(here), text(there));
        event!(
            "stack",
            "taken",
            number,
            local = local.as_str(),
            remote = remote.as_str(),
            write_seq = written,
            copied_seq = read,
            snd_una = outline.unacknowledged.seq().0,
            snd_nxt = outline.next.seq().0,
            rcv_nxt = outline.expected.seq().0,
            fd = fd
        );
        Recorded { number, fd, first: [read, written] }
    }

    fn number(&self, id: Id) -> u64 {
        self.before + id.number()
    }
}

/// An address as it is on the wire: that of IPv4 has one form.
fn text(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

impl Observe for Recorder {
    fn sends(&mut self, id: Id, segment: &Segment<'_>, size: usize, is_again: bool) {
        let bytes = segment.payload.len();
        event!(
            "stack",
            "segment_sent",
            self.number(id),
            seq = segment.seq.0,
            ack = segment.ack.map_or(0, |ack| ack.0),
            window = segment.window,
            bytes = bytes as u32,
            segment = if bytes > size { size as u16 } else { 0 },
            tcp_flags = tcp_flags(segment),
            retransmission = u8::from(is_again)
        );
    }

    fn received(&mut self, id: Id, segment: &Segment<'_>) {
        let (came, each) = (self.came.get_mut(), (id, !segment.payload.is_empty()));
        if came.last() != Some(&each) {
            came.push(each);
        }
        event!(
            "stack",
            "segment_received",
            self.number(id),
            seq = segment.seq.0,
            ack = segment.ack.map_or(0, |ack| ack.0),
            window = segment.window,
            bytes = segment.payload.len() as u32,
            tcp_flags = tcp_flags(segment)
        );
    }

    fn expired(&mut self, id: Id, timer: Timer) {
        event!("stack", "timer", self.number(id), timer = name(timer));
    }
}

/// The flags as they are in the header (RFC 9293 §3.1).
fn tcp_flags(segment: &Segment<'_>) -> u8 {
    let Flags { syn, fin, rst, push, urgent, marked, shrunk } = segment.flags;
    let flags = [fin, syn, rst, push, segment.ack.is_some(), urgent, marked, shrunk];
    flags.into_iter().rev().fold(0, |bits, is_set| bits << 1 | u8::from(is_set))
}

fn name(timer: Timer) -> &'static str {
    match timer {
        Timer::DelayedAck => "delayed_ack",
        Timer::Reordering => "reordering",
        Timer::TailLossProbe => "tail_loss_probe",
        Timer::Retransmission => "retransmission",
        Timer::Persist => "persist",
        Timer::KeepAlive => "keep_alive",
    }
}

/// What a thread waits for: a connection, or 0, and a descriptor, or -1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) connection: u64,
    pub(crate) fd: c_int,
}

impl Waiting {
    /// A call of this thread waits from now on. The caller has the lock, as in [`Waiting::sleeps`] and
    /// [`Waiting::wakes`].
    pub(crate) fn begins(self) {
        event!("stack", "wait", self.connection, fd = self.fd);
    }

    /// This thread is about to sleep.
    pub(crate) fn sleeps(self) {
        event!("stack", "sleep", self.connection, fd = self.fd);
    }

    /// This thread has slept. It may not have the lock.
    pub(crate) fn woken(self, cause: &str) {
        if is_registered() {
            outside(|| event!("stack", "woken", self.connection, cause = cause, fd = self.fd));
        }
    }

    /// This thread wakes another one.
    pub(crate) fn wakes(self, thread: u32) {
        event!("stack", "wake", self.connection, thread = thread, fd = self.fd);
    }
}
