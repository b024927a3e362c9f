//! How the services of two hosts reach each other: the key, and TCP's settings.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use rustix::net::sockopt::set_tcp_congestion;

use crate::key::Key;

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
