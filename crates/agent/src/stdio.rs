//! An agent's connection over standard input and output, as a remote shell passes them on.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

/// How long the last answers may take to be written to standard output.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The other side of the connection, until all of it is written.
pub(crate) struct Stdio {
    written: Receiver<()>,
}

/// The connection, which ends when standard input or standard output does; `ends` is told.
pub(crate) fn connect(
    ends: UnboundedSender<&'static str>,
) -> io::Result<(tokio::net::UnixStream, Stdio)> {
    let (own, other) = UnixStream::pair()?;
    own.set_nonblocking(true)?;
    let connection = tokio::net::UnixStream::from_std(own)?;
    // Without the standard library's buffers, and with threads, because either end may be a file, a
    // pipe or a socket.
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let (mut to_agent, mut from_agent) = (other.try_clone()?, other);
    let read_ends = ends.clone();
    std::thread::spawn(move || {
        // An error is an end too: nothing more comes.
        let _ = pass_on(&mut input, &mut to_agent);
        let _ = to_agent.shutdown(Shutdown::Write);
        let _ = read_ends.send("end of standard input");
    });
    let (all, written) = channel();
    std::thread::spawn(move || {
        let _ = pass_on(&mut from_agent, &mut output);
        let _ = ends.send("end of standard output");
        let _ = all.send(());
    });
    Ok((connection, Stdio { written }))
}

/// Copies what comes as soon as it comes, to the end. `io::copy` would splice between pipes and
/// sockets, and requests stalled with that (Linux 6.18).
fn pass_on(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(size) => to.write_all(&buffer[..size])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Stdio {
    /// Waits until the last answers are written, once the connection is closed.
    pub(crate) fn finish(&self) {
        // A reader that does not read is not waited for.
        let _ = self.written.recv_timeout(LAST_ANSWERS);
    }
}
