//! A UDP socket whose packets the kernel stamps.

use std::ffi::OsString;
use std::io::{self, IoSliceMut, PipeReader, Read as _};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStringExt as _;
use std::time::Instant;

use loopscope_time::Counter;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, TimestampingFlag, Timestamps, recvmsg,
    setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

use super::arrival::{Arrival, Stamp};
use super::faults::Injector;
use super::hardware::{Hardware, interface_of};
use super::packet::Stamped;
use super::{Cause, Counts, Order, ProbeError, REDIRECT, Side, packet};
use crate::Span;
use crate::anchor::{Anchor, ForeignClock, ForeignClocks};
use crate::phc::Phc;
use crate::record::Source;
use crate::stamp::{ClockStep, Placer, Reading, StampNs, Steering, ordered_counter, stamp_ns};

/// `SCM_TSTAMP_SND` of `linux/errqueue.h`: stamped as the packet went to the device.
const STAMPED_AT_DEVICE: u32 = 0;

/// Packets taken in at one go, so that a flood keeps nothing else from being done.
pub(super) const TURN: usize = 64;

/// What the probes are marked with on the network: Expedited Forwarding (RFC 3246), as what is
/// small and regular and spoilt by queues, and as PTP's events are by custom. What they may take of
/// a link is limited where they are sent.
pub const DSCP: u8 = 46;

/// Packets and bytes that one side has put on the network, with the headers of IP and UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Traffic {
    /// With that of another side.
    #[must_use]
    pub fn and(self, other: Traffic) -> Traffic {
        Traffic { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

/// What a socket may hold that was not read yet, packets and stamps: of some thousand probes that
/// come at the same time none is lost. The kernel gives less where it is set to.
const HELD_BYTES: usize = 4 << 20;

/// The stamp of a packet that went out.
pub(super) struct Departure {
    /// The number that [`StampedSocket::send`] gave.
    pub(super) key: u32,
    pub(super) stamp: Stamp,
    /// The counter right after the stamp was fetched.
    pub(super) read: Counter,
}

/// A packet handed to the kernel.
pub(super) struct Sent {
    /// The kernel's number for it; `None` if the kernel does not stamp.
    pub(super) key: Option<u32>,
    /// The counter around the system call.
    pub(super) user: Span,
}

pub(super) struct StampedSocket {
    socket: UdpSocket,
    address: SocketAddr,
    kernel: Placer,
    interface: Option<Interface>,
    injector: Option<Injector>,
    control: Vec<u8>,
    stamping: bool,
    next_key: u32,
    traffic: Traffic,
}

/// An interface that stamps, and its clock.
struct Interface {
    /// Held for as long as it is to stamp.
    _stamping: Hardware,
    phc: Phc,
    placer: Placer,
}

impl Interface {
    fn open(side: &Side, socket: &UdpSocket, kernel: &mut Placer) -> Option<Interface> {
        let stamping = Hardware::of(side.address.ip(), socket, side.before_stamps.as_ref())?;
        let mut phc = Phc::open(stamping.phc())?;
        let reading = phc.read(kernel)?;
        // What steers it, and how often, is not known.
        let placer = Placer::new(side.identity.frequency, reading, Steering::Any);
        Some(Interface { _stamping: stamping, phc, placer })
    }
}

impl StampedSocket {
    /// At `side`'s address.
    pub(super) fn bind(side: &Side) -> Result<StampedSocket, ProbeError> {
        let error = |source| ProbeError::Address { address: side.address, source };
        let mut kernel = Placer::new(side.identity.frequency, Reading::take(), Steering::Monotone);
        let socket = UdpSocket::bind(side.address).map_err(error)?;
        socket.set_nonblocking(true).map_err(error)?;
        if side.own_interface {
            let own = interface_of(side.address.ip())
                .ok_or_else(|| error(io::ErrorKind::AddrNotAvailable.into()))?;
            let own = OsString::from_vec(own.into_bytes());
            setsockopt(&socket, sockopt::BindToDevice, &own)
                .map_err(|errno| error(errno.into()))?;
        }
        let class = i32::from(DSCP) << 2;
        match side.address {
            SocketAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4Tos, &class),
            SocketAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6TClass, &class),
        }
        .map_err(|errno| error(errno.into()))?;
        if setsockopt(&socket, sockopt::RcvBufForce, &HELD_BYTES).is_err() {
            // Without the right for that, as much as every program may have.
            let _ = setsockopt(&socket, sockopt::RcvBuf, &HELD_BYTES);
        }
        let address = socket.local_addr().map_err(error)?;
        let interface = Interface::open(side, &socket, &mut kernel);
        let mut stamped = StampedSocket {
            socket,
            address,
            kernel,
            interface,
            injector: side.faults.map(Injector::new),
            control: nix::cmsg_space!([TimeSpec; 3], libc::sock_extended_err, libc::sockaddr_in6),
            stamping: false,
            next_key: 0,
            traffic: Traffic::default(),
        };
        stamped.number_from_zero();
        Ok(stamped)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What was sent so far.
    pub(super) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Asks for stamps. The kernel numbers outgoing packets from zero when the option for it goes
    /// from off to on; a socket without stamps still works.
    fn number_from_zero(&mut self) {
        type Flag = TimestampingFlag;
        let mut stamps = Flag::SOF_TIMESTAMPING_TX_SOFTWARE
            | Flag::SOF_TIMESTAMPING_RX_SOFTWARE
            | Flag::SOF_TIMESTAMPING_SOFTWARE
            | Flag::SOF_TIMESTAMPING_OPT_TSONLY;
        if self.interface.is_some() {
            stamps |= Flag::SOF_TIMESTAMPING_TX_HARDWARE
                | Flag::SOF_TIMESTAMPING_RX_HARDWARE
                | Flag::SOF_TIMESTAMPING_RAW_HARDWARE;
        }
        let set = |flags| setsockopt(&self.socket, sockopt::Timestamping, &flags);
        self.stamping = set(stamps).and(set(stamps | Flag::SOF_TIMESTAMPING_OPT_ID)).is_ok();
        self.next_key = 0;
    }

    /// Sends. After an error the keys of packets still without a stamp are void.
    pub(super) fn send(&mut self, bytes: &[u8], to: SocketAddr) -> io::Result<Sent> {
        let lo = ordered_counter();
        let result = self.socket.send_to(bytes, to);
        let hi = ordered_counter();
        if let Err(error) = result {
            // Whether the kernel has counted this packet depends on where it gave up.
            self.number_from_zero();
            return Err(error);
        }
        let headers = if to.is_ipv4() { 20 + 8 } else { 40 + 8 };
        self.traffic.packets += 1;
        self.traffic.bytes += headers + bytes.len() as u64;
        let key = self.stamping.then_some(self.next_key);
        self.next_key = self.next_key.wrapping_add(1);
        Ok(Sent { key, user: Span { lo, hi } })
    }

    /// The next packet that waits, if any.
    pub(super) fn receive(&mut self) -> io::Result<Option<Arrival>> {
        let mut bytes = [0; packet::SIZE + 1];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let message = match recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut parts,
            Some(&mut self.control),
            MsgFlags::MSG_DONTWAIT,
        ) {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let read = ordered_counter();
        let from = message.address.and_then(|address| {
            let v4 = address.as_sockaddr_in().map(|a| SocketAddr::V4(SocketAddrV4::from(*a)));
            v4.or(address.as_sockaddr_in6().map(|a| SocketAddr::V6(SocketAddrV6::from(*a))))
        });
        let mut stamp = None;
        for part in message.cmsgs()? {
            if let ControlMessageOwned::ScmTimestampsns(stamps) = part {
                stamp = best(&stamps);
            }
        }
        let length = message.bytes;
        Ok(Some(Arrival { bytes, length, from, stamp, read }))
    }

    /// The next stamp of sending that waits, if any.
    pub(super) fn departure(&mut self) -> io::Result<Option<Departure>> {
        loop {
            let message = match recvmsg::<()>(
                self.socket.as_raw_fd(),
                &mut [],
                Some(&mut self.control),
                MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT,
            ) {
                Ok(message) => message,
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let read = ordered_counter();
            let (mut stamp, mut key) = (None, None);
            for part in message.cmsgs()? {
                match part {
                    ControlMessageOwned::ScmTimestampsns(stamps) => stamp = best(&stamps),
                    ControlMessageOwned::Ipv4RecvErr(error, _)
                    | ControlMessageOwned::Ipv6RecvErr(error, _)
                        if error.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING
                            && error.ee_info == STAMPED_AT_DEVICE =>
                    {
                        key = Some(error.ee_data);
                    }
                    _ => {}
                }
            }
            if let (Some(stamp), Some(key)) = (stamp, key) {
                return Ok(Some(Departure { key, stamp, read }));
            }
        }
    }

    /// [`Self::receive`]; a refusal of the system ends the turn and is counted.
    pub(super) fn next_arrival(&mut self, counts: &mut Counts) -> Option<Arrival> {
        if let Some(held) = self.injector.as_mut().and_then(Injector::released) {
            return Some(held);
        }
        loop {
            let received = self.receive();
            let arrival = counted(received, counts)?;
            match &mut self.injector {
                None => return Some(arrival),
                Some(injector) => match injector.arrival(arrival) {
                    None => {}
                    through => return through,
                },
            }
        }
    }

    /// The next departure whose stamp arrived; the others are counted in `counts`.
    pub(super) fn next_departure(&mut self, counts: &mut Counts) -> Option<Departure> {
        loop {
            let stamped = self.departure();
            let departure = counted(stamped, counts)?;
            if !self.injector.as_mut().is_some_and(Injector::loses_stamp) {
                return Some(departure);
            }
        }
    }

    /// The counter at a stamp that was just fetched; the program's own stamp `user` where there is
    /// none (counted as `missing`) or where it cannot be believed. `limits` bounds the instant
    /// without the stamping clock.
    pub(super) fn place(
        &mut self,
        stamp: Option<Stamp>,
        limits: Span,
        user: Span,
        missing: Cause,
        counts: &mut Counts,
    ) -> Stamped {
        let Some(stamp) = stamp else {
            counts.lose(missing);
            return Stamped { span: user, source: Source::User };
        };
        match self.placed(stamp, limits) {
            Ok(span) => Stamped { span, source: stamp.source },
            Err(ClockStep) => {
                counts.lose(Cause::ClockStep);
                Stamped { span: user, source: Source::User }
            }
        }
    }

    fn placed(&mut self, Stamp { ns, source }: Stamp, limits: Span) -> Result<Span, ClockStep> {
        match (&mut self.interface, source) {
            (Some(interface), Source::Hardware) => {
                if !interface.placer.covers(ns) {
                    let reading = interface.phc.read(&mut self.kernel).ok_or(ClockStep)?;
                    interface.placer.see(reading)?;
                }
                interface.placer.place(ns, limits)
            }
            _ => {
                let set_by = |ns| self.injector.as_ref().map_or(0, |injector| injector.set_by(ns));
                let ns = StampNs(ns.0 + set_by(ns.0));
                if !self.kernel.covers(ns) {
                    let reading = Reading::take();
                    self.kernel.see(reading.set(set_by(reading.clock.0)))?;
                }
                self.kernel.place(ns, limits)
            }
        }
    }

    /// Reads other people's clocks.
    pub(super) fn read_foreign(&mut self, clocks: &mut ForeignClocks) -> Vec<Anchor> {
        let mut anchors = clocks.read(&mut self.kernel);
        if let Some(injector) = &self.injector {
            for anchor in anchors.iter_mut().filter(|a| a.clock == ForeignClock::Realtime) {
                anchor.ns += injector.set_by(anchor.ns);
            }
        }
        anchors
    }
}

/// Waits for a packet or a stamp of any of these, for an order or `until`.
pub(super) fn wait(
    sockets: &[&StampedSocket],
    control: &mut PipeReader,
    until: Option<Instant>,
) -> io::Result<Option<Order>> {
    let timeout =
        until.map(|t| TimeSpec::from_duration(t.saturating_duration_since(Instant::now())));
    let ordered = {
        let sockets = sockets.iter().map(|stamped| stamped.socket.as_fd());
        let files = std::iter::once(control.as_fd()).chain(sockets);
        let mut polled: Vec<PollFd<'_>> =
            files.map(|file| PollFd::new(file, PollFlags::POLLIN)).collect();
        match ppoll(&mut polled, timeout, None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        polled[0].any().unwrap_or(false)
    };
    if !ordered {
        return Ok(None);
    }
    let mut order = [0];
    Ok(Some(match control.read(&mut order)? {
        0 => Order::Abandon,
        _ if order[0] == REDIRECT => Order::Redirect,
        _ => Order::Stop,
    }))
}

/// The interface's stamp where it gave one, else the kernel's.
fn best(stamps: &Timestamps) -> Option<Stamp> {
    let of = |stamp, source| stamp_ns(stamp).map(|ns| Stamp { ns, source });
    of(stamps.hw_raw, Source::Hardware).or(of(stamps.system, Source::Kernel))
}

fn counted<T>(taken: io::Result<Option<T>>, counts: &mut Counts) -> Option<T> {
    taken.unwrap_or_else(|_| {
        counts.lose(Cause::ReceiveFailed);
        None
    })
}

#[cfg(test)]
mod tests;
