//! Reading with the kernel's stamp of when it came (SO_TIMESTAMPNS: CLOCK_REALTIME as the packet
//! enters the stack).

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::{TimeSpec, TimeVal};

/// What a socket's buffer should hold: more than a receiver sleeps through.
const BUFFER: usize = 8 << 20;

/// A read waits no longer than this, so that Ctrl-C is heeded.
const NAP: TimeVal = TimeVal::new(0, 100_000);

/// What one read has brought.
pub(super) struct Read {
    /// Bytes that came, of a datagram also those that did not fit.
    pub(super) length: usize,
    pub(super) from: Option<SockaddrStorage>,
    /// Nanoseconds since 1970.
    pub(super) stamp: Option<i64>,
    /// The kernel's count of datagrams that its buffer had no room for, if it tells.
    pub(super) drops: Option<u32>,
}

/// Makes `socket` stamp, count its drops, and wake now and then.
pub(super) fn prepare(socket: &impl AsFd) -> Result<()> {
    // More than a limit is for root, and what stands in the way of neither is not needed.
    if setsockopt(socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        let _ = setsockopt(socket, sockopt::RcvBuf, &BUFFER);
    }
    setsockopt(socket, sockopt::ReceiveTimestampns, &true)
        .context("the kernel does not stamp what is received (SO_TIMESTAMPNS)")?;
    // A stream has no such count.
    let _ = setsockopt(socket, sockopt::RxqOvfl, &1);
    setsockopt(socket, sockopt::ReceiveTimeout, &NAP).context("cannot set a socket's timeout")
}

/// Memory for the kernel's control messages.
pub(super) fn control() -> Vec<u8> {
    nix::cmsg_space!([TimeSpec; 3], u32)
}

/// The next datagram's beginning, or bytes of a stream; `None`: nothing came for a while.
pub(super) fn read(
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
