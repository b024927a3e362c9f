//! How the services of two hosts reach each other: the key, TCP's settings, and how long they wait.

use std::io::{self, BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use loopscope_stm_shared::Spell;
use rustix::net::sockopt::set_tcp_congestion;

use crate::key::Key;

/// A host that is silent for so long is gone: what it wanted is collected, and what it put with ends.
pub(crate) const LEASE: Duration = Duration::from_secs(15);
/// Between two looks whether the other direction has ended.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a home and its mirrors need for their connections.
#[derive(Clone)]
pub struct Transport {
    pub(crate) key: Key,
    congestion: Option<String>,
}

impl Transport {
    /// Connections with a key. `congestion`: TCP's congestion control (tcp(7), TCP_CONGESTION), such as
    /// `reno`; `None`: the system's.
    ///
    /// # Errors
    /// The kernel has none of this name, or this user may not choose it.
    pub fn new(key: Key, congestion: Option<String>) -> io::Result<Transport> {
        let transport = Transport { key, congestion };
        // Tries the option on an unused socket, so that a wrong name is an error at the start.
        let tried = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        transport.control(&tried).map(|()| transport)
    }

    /// Sets a connection's options.
    pub(crate) fn prepare(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        self.control(stream)
    }

    fn control(&self, socket: impl std::os::fd::AsFd) -> io::Result<()> {
        let Some(name) = &self.congestion else { return Ok(()) };
        set_tcp_congestion(socket, name).map_err(|errno| {
            let list = match errno {
                rustix::io::Errno::PERM => {
                    "this user may choose: net.ipv4.tcp_allowed_congestion_control"
                }
                _ => "this kernel has: net.ipv4.tcp_available_congestion_control",
            };
            let what =
                format!("TCP's congestion control {name}: {errno}; sysctl tells what {list}");
            io::Error::new(io::Error::from(errno).kind(), what)
        })
    }
}

/// Waits until a message begins, if none has, or the connection ends.
pub(crate) fn await_bytes(
    reader: &mut BufReader<&TcpStream>,
    waits: impl FnOnce() -> Spell,
) -> io::Result<()> {
    if reader.buffer().is_empty() {
        let _waits = waits();
        reader.fill_buf()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::tcp_congestion;

    use super::*;

    fn transport(congestion: Option<&str>) -> io::Result<Transport> {
        Transport::new(Key::new(vec![7; 32]).unwrap(), congestion.map(str::to_owned))
    }

    #[test]
    fn connections_have_the_congestion_control_that_was_asked_for() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let systems = tcp_congestion(&stream).unwrap();
        transport(None).unwrap().prepare(&stream).unwrap();
        assert_eq!(tcp_congestion(&stream).unwrap(), systems);
        assert!(stream.nodelay().unwrap());
        // Every user may choose it on every Linux.
        transport(Some("reno")).unwrap().prepare(&stream).unwrap();
        assert_eq!(tcp_congestion(&stream).unwrap(), "reno");
    }

    #[test]
    fn one_that_the_kernel_does_not_have_is_told_at_once() {
        let told = transport(Some("none-such")).err().unwrap().to_string();
        assert!(told.starts_with("TCP's congestion control none-such: No such file"), "{told}");
        assert!(told.ends_with("net.ipv4.tcp_available_congestion_control"), "{told}");
    }
}
