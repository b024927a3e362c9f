//! The queues of a socket in repair mode.

use std::io;
use std::os::fd::BorrowedFd;

use libc::{IPPROTO_TCP, c_int, c_ulong};
use loopscope_stack::Seq;
use rustix::net::{RecvFlags, SendFlags};

use crate::options::{get, set, splice};

/// Requests of ioctl(2) for the bytes that can be read, that are not acknowledged and that were not
/// sent (tcp(7), linux/sockios.h).
pub(crate) const SIOCINQ: c_ulong = 0x541B;
pub(crate) const SIOCOUTQ: c_ulong = 0x5411;
pub(crate) const SIOCOUTQNSD: c_ulong = 0x894B;
/// The first buffer of the send queue may begin so far before the first unacknowledged byte: it is
/// that of a segment.
const BEFORE: usize = 1 << 18;
/// Bytes at once: a buffer of the receive queue is one block of memory.
const AT_ONCE: usize = 1 << 15;

/// Nothing is taken from a queue.
const PEEK: RecvFlags = RecvFlags::PEEK.union(RecvFlags::DONTWAIT);

/// The queue to which calls go in repair mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    None = 0,
    Receive = 1,
    Send = 2,
}

/// Chooses the queue of the calls that follow.
pub(crate) fn choose(fd: BorrowedFd<'_>, queue: Queue) -> io::Result<()> {
    set(fd, IPPROTO_TCP, libc::TCP_REPAIR_QUEUE, queue as c_int)
}

/// Chooses a queue. The number after the last byte of it.
pub(crate) fn seq(fd: BorrowedFd<'_>, queue: Queue) -> io::Result<Seq> {
    choose(fd, queue)?;
    get(fd, IPPROTO_TCP, libc::TCP_QUEUE_SEQ).map(Seq)
}

/// The last so many bytes of the chosen send queue, in which there may be more.
pub(crate) fn peek(fd: BorrowedFd<'_>, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count + BEFORE];
    let found = if count == 0 { 0 } else { rustix::net::recv(fd, &mut bytes[..], PEEK)?.0 };
    bytes.truncate(found);
    if found < count {
        return Err(io::Error::other(format!("it has {found} bytes, not {count}")));
    }
    bytes.drain(..found - count);
    Ok(bytes)
}

/// So many bytes of the chosen receive queue.
pub(crate) fn peek_received(fd: BorrowedFd<'_>, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    let found = if count == 0 { 0 } else { rustix::net::recv(fd, &mut bytes[..], PEEK)?.0 };
    if found != count {
        return Err(io::Error::other(format!("{found} of {count} bytes can be read")));
    }
    Ok(bytes)
}

/// Appends bytes to a queue. In the send queue they are marked as sent; none is.
pub(crate) fn append(fd: BorrowedFd<'_>, queue: Queue, bytes: &[u8]) -> io::Result<()> {
    choose(fd, queue)?;
    for mut piece in bytes.chunks(AT_ONCE) {
        while !piece.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let taken = rustix::net::send(fd, piece, flags)?;
            piece = &piece[taken..];
        }
    }
    choose(fd, Queue::None)
}

/// Takes so many bytes from the front of the receive queue. No other holder of the socket can read
/// them: only this call works in repair mode.
pub(crate) fn drain(fd: BorrowedFd<'_>, mut count: usize) -> io::Result<()> {
    if count == 0 {
        return Ok(());
    }
    let (reads, writes) = io::pipe()?;
    let nothing = std::fs::File::options().write(true).open("/dev/null")?;
    while count > 0 {
        let taken = splice(fd, &writes, count.min(AT_ONCE))?;
        if taken == 0 {
            return Err(io::Error::other(format!(
                "the receive queue ends {count} bytes too early"
            )));
        }
        let mut left = taken;
        while left > 0 {
            left -= splice(&reads, &nothing, left)?;
        }
        count -= taken;
    }
    Ok(())
}
