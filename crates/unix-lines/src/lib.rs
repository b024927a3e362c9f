//! What processes of a machine tell each other: lines of JSON on a Unix socket, with descriptors at the
//! first byte of a line.

mod address;

use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use address::{bind, connect, is_file};

/// Bytes of a line at most.
const MOST: usize = 1 << 26;
/// Descriptors with a line at most.
pub const FILES: usize = 3;

/// Sends a document, and descriptors with it.
pub fn send(
    stream: &UnixStream,
    document: &impl Serialize,
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut line = serde_json::to_vec(document)?;
    line.push(b'\n');
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("too many descriptors"));
    }
    let sent = sendmsg(stream, &[IoSlice::new(&line)], &mut control, SendFlags::NOSIGNAL)?;
    let mut stream = stream;
    stream.write_all(&line[sent..])
}

/// A document and its descriptors; None at the end of the stream.
pub fn receive<T: DeserializeOwned>(stream: &UnixStream) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    receive_within(stream, MOST)
}

/// The same, where a line of the other side has `most` bytes at most.
pub fn receive_within<T: DeserializeOwned>(
    stream: &UnixStream,
    most: usize,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let (mut line, mut files) = (vec![], vec![]);
    let mut part = vec![0; 1 << 16];
    while line.last() != Some(&b'\n') {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut part)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let bytes = match recvmsg(stream, &mut parts, &mut control, flags) {
            Err(Errno::INTR) => continue,
            received => received?.bytes,
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                files.extend(fds);
            }
        }
        if files.len() > FILES {
            return Err(io::Error::other("a line of the other side has too many descriptors"));
        }
        if bytes == 0 && line.is_empty() {
            return Ok(None);
        }
        if bytes == 0 || line.len() + bytes > most {
            return Err(io::Error::other("a line of the other side has no end"));
        }
        line.extend_from_slice(&part[..bytes]);
    }
    Ok(Some((serde_json::from_slice(&line)?, files)))
}

/// The next process that connects. None: there is something to read from `until`.
///
/// # Errors
/// No process can connect any more.
pub fn accept(listener: &UnixListener, until: impl AsFd) -> io::Result<Option<UnixStream>> {
    loop {
        let mut polled = [PollFd::new(&until, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        match poll(&mut polled, None) {
            Err(Errno::INTR) => continue,
            done => done?,
        };
        if !polled[0].revents().is_empty() {
            return Ok(None);
        }
        match listener.accept() {
            Ok((stream, _)) => return Ok(Some(stream)),
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                _ => return Err(error),
            },
        }
    }
}
