//! AF_PACKET: a raw socket on each device. Works wherever namespaces do; a system call for a batch
//! of frames each way.

mod socket;
pub mod watch;

use std::os::fd::{AsFd as _, BorrowedFd};

use loopscope_time::MonotonicNs;
use loopscope_timer::now;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollTimeout};
use nix::time::{ClockId, clock_gettime};

use self::socket::{Buffers, Socket};
use super::{BATCH, Losses, Mover, readiness};
use crate::EmulateError;
use crate::frame::HEADER;
use crate::router::Departure;
use crate::settings::Port;

/// Bytes of a VLAN tag: a frame may be larger than its device's MTU by that.
const VLAN: usize = 4;
/// A send that the kernel interrupts is tried again so often.
const ATTEMPTS: u32 = 100;

/// A packet socket for each port.
#[derive(Debug)]
pub struct Packets {
    ports: Vec<PacketPort>,
    buffers: Buffers,
    epoll: Epoll,
    /// CLOCK_MONOTONIC less CLOCK_REALTIME, by which the kernel stamps frames.
    offset: i64,
}

#[derive(Debug)]
struct PacketPort {
    device: String,
    socket: Socket,
    /// Largest frame that the device sends.
    largest: usize,
    ready: bool,
    losses: Losses,
    /// Packets of the current batch that leave here.
    pending: Vec<usize>,
}

impl Packets {
    /// On these devices of the current network namespace.
    pub fn open(ports: &[Port]) -> Result<Packets, EmulateError> {
        let mut opened = Vec::new();
        for port in ports {
            let device = port.device.clone();
            let socket = Socket::open(&device)?;
            let largest = socket.mtu()? + HEADER + VLAN;
            let (losses, pending) = (Losses::default(), Vec::with_capacity(BATCH));
            opened.push(PacketPort { device, socket, largest, ready: true, losses, pending });
        }
        let epoll = readiness(opened.iter().map(|port| &port.socket))?;
        Ok(Packets { ports: opened, buffers: Buffers::new(), epoll, offset: 0 })
    }
}

impl Mover for Packets {
    fn look(&mut self) -> Result<(), EmulateError> {
        self.offset = realtime_offset();
        let mut events = [EpollEvent::empty(); BATCH];
        let ready = match self.epoll.wait(&mut events, EpollTimeout::ZERO) {
            Ok(ready) => ready,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(EmulateError::system("cannot look for frames")(error)),
        };
        for event in &events[..ready] {
            self.ports[event.data() as usize].ready = true;
        }
        Ok(())
    }

    fn receive(
        &mut self,
        port: usize,
        sink: &mut impl FnMut(Option<MonotonicNs>, &[u8]),
    ) -> Result<usize, EmulateError> {
        let port = &mut self.ports[port];
        if !std::mem::take(&mut port.ready) {
            return Ok(0);
        }
        let received = port.socket.receive(&mut self.buffers);
        let received = received.map_err(EmulateError::device(&port.device, "cannot receive"))?;
        for i in 0..received {
            let frame = self.buffers.frame(i);
            if frame.bytes.len() > port.largest {
                port.losses.oversize += 1;
                continue;
            }
            port.losses.unfinished += u64::from(frame.unfinished);
            let stamp = frame.real_ns.and_then(|ns| monotonic(ns, self.offset));
            sink(stamp, frame.bytes);
        }
        Ok(received)
    }

    fn transmit(&mut self, batch: &mut [Departure]) -> Result<(), EmulateError> {
        for (i, departure) in batch.iter().enumerate() {
            self.ports[departure.to].pending.push(i);
        }
        for i in 0..batch.len() {
            let port = &mut self.ports[batch[i].to];
            if !port.pending.is_empty() {
                port.send(batch)?;
            }
        }
        Ok(())
    }

    fn ready(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    fn losses(&mut self) -> Vec<Losses> {
        let each = |port: &mut PacketPort| {
            // Reading the kernel's counter sets it back.
            port.losses.full =
                port.losses.full.zip(port.socket.dropped()).map(|(before, more)| before + more);
            port.losses
        };
        self.ports.iter_mut().map(each).collect()
    }
}

impl PacketPort {
    fn send(&mut self, batch: &mut [Departure]) -> Result<(), EmulateError> {
        let mut sent = 0;
        let mut attempts = 0;
        while sent < self.pending.len() {
            let frames = self.pending[sent..].iter().map(|i| batch[*i].outcome.packet.bytes());
            match self.socket.send(frames) {
                Ok(count) => sent += count,
                Err(Errno::EAGAIN | Errno::EINTR) if attempts < ATTEMPTS => attempts += 1,
                Err(Errno::ENXIO | Errno::ENODEV) => {
                    let gone = Errno::ENODEV.into();
                    return Err(EmulateError::device(&self.device, "it is gone")(gone));
                }
                // The kernel's buffers are full, the receiver's are, or the device is down.
                Err(_) => {
                    batch[self.pending[sent]].lost = true;
                    sent += 1;
                    attempts = 0;
                }
            }
        }
        self.pending.clear();
        Ok(())
    }
}

fn realtime_offset() -> i64 {
    // Linux has this clock always; nothing else can fail, and a stamp that is absurd is not used.
    let real = clock_gettime(ClockId::CLOCK_REALTIME)
        .map_or(0, |time| time.tv_sec() * 1_000_000_000 + time.tv_nsec());
    now().0.cast_signed() - real
}

fn monotonic(real_ns: i64, offset: i64) -> Option<MonotonicNs> {
    Some(MonotonicNs(real_ns.checked_add(offset)?.max(0).cast_unsigned()))
}
