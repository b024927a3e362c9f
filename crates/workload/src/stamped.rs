//! Reading with the kernel's stamp of when it came (SO_TIMESTAMPNS: CLOCK_REALTIME as the packet
//! enters the stack).
//!
//! A run that cannot record the kernel's events asks for these stamps by `LOOPSCOPE_SOCKET_STAMPS=1`
//! in the environment. Then `socket:came` follows the event of each message that was received, in
//! the same thread and with the same id. Its fields, in nanoseconds: `ago_ns`, by how much before
//! that event the message's last packet came, and `within_ns`, the maximum error of that.

use std::env;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result};
use loopscope_trace::{describe, event};
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recv, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

use crate::deadline::realtime;

describe!("socket", "came", "", "When the message of the event before it came to its socket");

/// What one read has brought.
pub(crate) struct Read {
    /// Bytes that came, of a datagram also those that did not fit.
    pub(crate) length: usize,
    pub(crate) from: Option<SockaddrStorage>,
    /// Nanoseconds since 1970.
    pub(crate) stamp: Option<i64>,
    /// The kernel's count of datagrams that its buffer had no room for, if it tells.
    pub(crate) drops: Option<u32>,
}

/// Makes `socket` stamp what comes.
pub(crate) fn stamp(socket: &impl AsFd) -> Result<()> {
    setsockopt(socket, sockopt::ReceiveTimestampns, &true)
        .context("the kernel does not stamp what is received (SO_TIMESTAMPNS)")
}

/// Memory for the kernel's control messages.
pub(crate) fn control() -> Vec<u8> {
    // A socket whose departures are stamped has both kinds of stamp.
    nix::cmsg_space!(TimeSpec, [TimeSpec; 3], u32)
}

/// The next datagram's beginning, or bytes of a stream; `None`: nothing came for a while.
pub(crate) fn read(
    socket: &impl AsRawFd,
    buffer: &mut [u8],
    control: &mut [u8],
    flags: MsgFlags,
) -> Result<Option<Read>, Errno> {
    let mut parts = [IoSliceMut::new(buffer)];
    let message =
        match recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(control), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(error) => return Err(error),
        };
    let mut read = Read { length: message.bytes, from: message.address, stamp: None, drops: None };
    for part in message.cmsgs()? {
        match part {
            ControlMessageOwned::ScmTimestampns(stamp) => {
                read.stamp = i64::try_from(Duration::from(stamp).as_nanos()).ok();
            }
            ControlMessageOwned::RxqOvfl(drops) => read.drops = Some(drops),
            _ => {}
        }
    }
    Ok(Some(read))
}

/// Whether the run asks for stamps of what is received.
pub(crate) fn is_asked() -> bool {
    static ASKED: LazyLock<bool> =
        LazyLock::new(|| env::var_os("LOOPSCOPE_SOCKET_STAMPS").is_some_and(|asked| asked == "1"));
    *ASKED
}

/// Reads a socket, with stamps if the run asks for them.
pub(crate) struct Reader {
    /// `None`: nobody asks.
    control: Option<Vec<u8>>,
    /// The stamp of what was read last.
    stamp: Option<i64>,
}

impl Reader {
    /// Makes one for `socket`.
    pub(crate) fn new(socket: &impl AsFd) -> Result<Reader> {
        let asked = is_asked();
        if asked {
            stamp(socket)?;
        }
        Ok(Reader { control: asked.then(control), stamp: None })
    }

    /// What one call reads; an error of the kind `Interrupted` where it had nothing.
    pub(crate) fn read(&mut self, socket: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(control) = &mut self.control else {
            return Ok(recv(socket.as_raw_fd(), buffer, MsgFlags::empty())?);
        };
        let read = read(socket, buffer, control, MsgFlags::empty())?;
        let read = read.ok_or(io::ErrorKind::Interrupted)?;
        self.stamp = read.stamp;
        Ok(read.length)
    }

    /// Has `record` record that message `id` was received, and records when it came.
    pub(crate) fn received(&self, id: u64, record: impl FnOnce()) -> Result<()> {
        received(self.stamp, id, record)
    }
}

/// Has `record` record that message `id` was received, and records when it came if that was
/// stamped.
pub(crate) fn received(stamp: Option<i64>, id: u64, record: impl FnOnce()) -> Result<()> {
    let Some(stamp) = stamp else {
        record();
        return Ok(());
    };
    let ((), around) = Around::of(record)?;
    event!(
        "socket",
        "came",
        id,
        ago_ns = around.middle_ns.saturating_sub(stamp),
        within_ns = around.within_ns
    );
    Ok(())
}

/// When an event was recorded, by CLOCK_REALTIME.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around {
    /// Nanoseconds since 1970.
    pub(crate) middle_ns: i64,
    /// How far the event's own stamp is from that at most.
    pub(crate) within_ns: i64,
}

impl Around {
    /// What `record` returns, and when it recorded its last event.
    pub(crate) fn of<T>(record: impl FnOnce() -> T) -> Result<(T, Around)> {
        let before = realtime()?;
        let value = record();
        let within_ns = (realtime()?.saturating_sub(before) + 1) / 2;
        Ok((value, Around { middle_ns: before + within_ns, within_ns }))
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::thread::sleep;

    use super::*;

    #[test]
    fn a_stamp_tells_when_it_came_and_not_when_it_was_read() {
        let (from, to) = ("127.0.0.1:0", "127.0.0.1:0");
        let (sender, socket) = (UdpSocket::bind(from).unwrap(), UdpSocket::bind(to).unwrap());
        stamp(&socket).unwrap();
        let mut reader = Reader { control: Some(control()), stamp: None };
        let mut buffer = [0; 16];
        // The kernel may begin to stamp a moment after it was asked to.
        for _ in 0..3 {
            let before = realtime().unwrap();
            sender.send_to(b"abc", socket.local_addr().unwrap()).unwrap();
            let sent = realtime().unwrap();
            sleep(Duration::from_millis(20));
            assert_eq!(reader.read(&socket, &mut buffer).unwrap(), 3);
            let stamp = reader.stamp.unwrap();
            if (before..=sent).contains(&stamp) {
                return;
            }
        }
        panic!("no stamp is of when it came");
    }

    #[test]
    fn nobody_asks_for_stamps() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut reader = Reader::new(&socket).unwrap();
        socket.send_to(b"abc", socket.local_addr().unwrap()).unwrap();
        assert_eq!(reader.read(&socket, &mut [0; 16]).unwrap(), 3);
        assert_eq!(reader.stamp, None);
    }
}
