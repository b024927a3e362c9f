//! AF_XDP in copy mode: frames cross in shared rings, without a system call to receive them.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use loopscope_frames::{Redirect, Socket, SocketError};
use loopscope_time::MonotonicNs;
use nix::sys::epoll::Epoll;

use super::{BATCH, Losses, Mover, mtu, readiness};
use crate::EmulateError;
use crate::frame::HEADER;
use crate::router::Departure;
use crate::settings::Port;

/// What bursts of all senders together may fill before the mover looks: at a million frames per
/// second 64 ms.
const RECEIVE_ALL: u32 = 1 << 16;
/// The most of these frames that one port has.
const RECEIVE_MOST: u32 = 8192;
const RECEIVE_LEAST: u32 = 1024;
/// Bytes of a VLAN tag: a frame may be larger than its device's MTU by that.
const VLAN: usize = 4;

/// An AF_XDP socket for each port, and a program that hands it the device's frames.
#[derive(Debug)]
pub struct Xdp {
    ports: Vec<XdpPort>,
    epoll: Epoll,
}

#[derive(Debug)]
struct XdpPort {
    // Taken off before the socket is closed.
    _redirect: Redirect,
    socket: Socket,
    device: String,
    /// Packets of the current batch that leave here.
    pending: Vec<usize>,
}

/// Whether the kernel takes an XDP program from this process, without any device.
pub fn try_out() -> io::Result<()> {
    loopscope_frames::try_out()
}

impl Xdp {
    /// On these devices of the current network namespace.
    pub fn open(ports: &[Port]) -> Result<Xdp, EmulateError> {
        let mut opened = Vec::new();
        let count = u32::try_from(ports.len().next_power_of_two()).unwrap_or(RECEIVE_ALL);
        let receive = (RECEIVE_ALL / count).clamp(RECEIVE_LEAST, RECEIVE_MOST);
        for Port { device, .. } in ports {
            let error = |what| EmulateError::device(device, what);
            let index = nix::net::if_::if_nametoindex(device.as_str())
                .map_err(|errno| error("there is no such device here")(errno.into()))?;
            let asking = std::net::UdpSocket::bind("0.0.0.0:0")
                .map_err(EmulateError::system("cannot make a socket"))?;
            let largest = mtu::of(asking.as_fd(), device)? + HEADER + VLAN;
            let socket = Socket::open(index, largest, receive)
                .map_err(|SocketError { what, source }| error(what)(source))?;
            let redirect = Redirect::attach(index, socket.as_fd())
                .map_err(error("cannot put an XDP program on it"))?;
            let (device, pending) = (device.clone(), Vec::with_capacity(BATCH));
            opened.push(XdpPort { _redirect: redirect, socket, device, pending });
        }
        let epoll = readiness(opened.iter().map(|port| &port.socket))?;
        Ok(Xdp { ports: opened, epoll })
    }
}

impl Mover for Xdp {
    fn look(&mut self) -> Result<(), EmulateError> {
        // The rings say it themselves.
        Ok(())
    }

    fn receive(
        &mut self,
        port: usize,
        sink: &mut impl FnMut(Option<MonotonicNs>, &[u8]),
    ) -> Result<usize, EmulateError> {
        let socket = &mut self.ports[port].socket;
        Ok(socket.receive(BATCH, |stamp, frame| {
            sink((stamp != 0).then_some(MonotonicNs(stamp)), frame);
        }))
    }

    fn transmit(&mut self, batch: &mut [Departure]) -> Result<(), EmulateError> {
        for (i, departure) in batch.iter_mut().enumerate() {
            let port = &mut self.ports[departure.to];
            if port.pending.is_empty() && port.socket.has_void() {
                let flushed = port.socket.flush(|_| {});
                flushed.map_err(EmulateError::device(&port.device, "cannot send"))?;
            }
            if port.socket.push(departure.outcome.packet.bytes()) {
                port.pending.push(i);
            } else {
                departure.lost = true;
            }
        }
        for i in 0..batch.len() {
            let port = &mut self.ports[batch[i].to];
            if port.pending.is_empty() {
                continue;
            }
            let flushed = port.socket.flush(|place| {
                if let Some(lost) = port.pending.get(place) {
                    batch[*lost].lost = true;
                }
            });
            flushed.map_err(EmulateError::device(&port.device, "cannot send"))?;
            port.pending.clear();
        }
        Ok(())
    }

    fn ready(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    fn losses(&mut self) -> Vec<Losses> {
        let full = |port: &XdpPort| Losses { full: port.socket.dropped(), ..Losses::default() };
        self.ports.iter().map(full).collect()
    }
}
