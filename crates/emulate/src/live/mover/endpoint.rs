//! A host of its own at the beginning of its links: what its programs send to the other hosts goes
//! into a TAP device, and what comes out of the links leaves by the interface that has the host's
//! address. What it receives does not pass here.
//!
//! The device, and with it every route through it, is this process's: the kernel removes it when the
//! process ends, however that happens.

mod tap;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use loopscope_time::MonotonicNs;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::epoll::Epoll;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, sendto, setsockopt,
    socket, sockopt,
};

use self::tap::TapDevice;
use super::{BATCH, Losses, Mover, mtu, readiness};
use crate::EmulateError;
use crate::address::Address;
use crate::frame::{self, HEADER};
use crate::iproute;
use crate::router::Departure;
use crate::settings::{Document, Port};

/// What the programs may send before the mover looks, in packets.
const QUEUE: u32 = 10_000;
const SEND_BUFFER: usize = 16 << 20;
/// A send that the kernel interrupts is tried again so often.
const ATTEMPTS: u32 = 100;

/// The sending host's TAP device and its way out.
#[derive(Debug)]
pub struct Endpoint {
    tap: TapDevice,
    own: usize,
    /// By port: where packets to that host go.
    peers: Vec<SockaddrStorage>,
    addresses: Vec<Address>,
    out: OwnedFd,
    epoll: Epoll,
    buffer: Vec<u8>,
}

/// The Ethernet address that stands for a port on the TAP device.
#[must_use]
pub fn address(port: usize) -> Address {
    let [.., a, b, c, d] = (port as u64 + 1).to_be_bytes();
    Address([2, 0, a, b, c, d])
}

impl Endpoint {
    /// The device and the routes to the other hosts, in the current network namespace.
    pub fn open(document: &Document, sender: &str) -> Result<Endpoint, EmulateError> {
        let wrong = |what: String| EmulateError::Document(what);
        let ports = &document.ports;
        let own = ports.iter().position(|port| port.host == sender);
        let own = own.ok_or_else(|| wrong(format!("`sender`: no port is of {sender:?}")))?;
        let ip = |(number, port): (usize, &Port)| {
            port.ip.ok_or_else(|| wrong(format!("`ports[{number}]`: with `sender` it needs `ip`")))
        };
        let ips: Vec<IpAddr> = ports.iter().enumerate().map(ip).collect::<Result<_, _>>()?;
        let mine = ips[own];
        for (port, its) in ports.iter().zip(&ips).filter(|(port, _)| port.host != sender) {
            let other = &port.host;
            if its.is_ipv4() != mine.is_ipv4() {
                return Err(wrong(format!(
                    "the data addresses are of both kinds, IPv4 and IPv6: {mine} of {sender}, {its} \
                     of {other}; give all of them of one kind by `data` in `machines`"
                )));
            }
            if *its == mine {
                return Err(wrong(format!(
                    "{sender} and {other} have the same data address, {mine}: they are one machine, \
                     between whose programs no link can be emulated"
                )));
            }
        }
        let interface = interface(mine, sender)?;
        check_reverse_path(mine, &interface)?;
        let tap = TapDevice::make()?;
        let out = way_out(mine, &interface)?;
        let largest = mtu::of(out.as_fd(), &interface)?;
        let addresses: Vec<Address> = (0..ports.len()).map(address).collect();
        let others = ips.iter().copied().zip(addresses.iter().copied());
        let others: Vec<(IpAddr, Address)> = others.filter(|(other, _)| *other != mine).collect();
        let peers = ips.iter().map(|ip| SocketAddr::new(*ip, 0).into()).collect();
        let batch = batch(tap.name(), (mine, addresses[own]), &others, largest);
        let family = if mine.is_ipv4() { "-4" } else { "-6" };
        iproute::run("ip", &[family], &batch).map_err(|cause| EmulateError::Kernel {
            what: format!("cannot lead what goes to the other hosts through {}", tap.name()),
            cause,
        })?;
        let epoll = readiness([&tap].into_iter())?;
        let buffer = vec![0; HEADER + largest.max(1 << 16)];
        Ok(Endpoint { tap, own, peers, addresses, out, epoll, buffer })
    }
}

/// Has the device up with the host's routes to the others, whose Ethernet addresses are known.
fn batch(
    device: &str,
    (mine, address): (IpAddr, Address),
    others: &[(IpAddr, Address)],
    mtu: usize,
) -> String {
    let more = format!("address {address} mtu {mtu} txqueuelen {QUEUE}");
    let mut batch = iproute::up(device, &more);
    let length = if mine.is_ipv4() { 32 } else { 128 };
    for (other, address) in others {
        batch += &format!(
            "neighbour add {other} lladdr {address} dev {device} nud permanent\n\
             route add {other}/{length} dev {device} src {mine} metric 1\n"
        );
    }
    batch
}

/// The name of the interface that has this address.
fn interface(address: IpAddr, host: &str) -> Result<String, EmulateError> {
    let all = getifaddrs().map_err(EmulateError::system("cannot list the interfaces"))?;
    let has = |each: &nix::ifaddrs::InterfaceAddress| {
        let storage = each.address?;
        let v4 = storage.as_sockaddr_in().map(|found| IpAddr::from(found.ip()));
        v4.or(storage.as_sockaddr_in6().map(|found| IpAddr::from(found.ip())))
    };
    let found = all.into_iter().find(|each| has(each) == Some(address));
    let missing = || {
        EmulateError::Document(format!(
            "no interface of {host} has its data address {address}: give the one that it has itself \
             by `data` in `machines`"
        ))
    };
    found.map(|each| each.interface_name).ok_or_else(missing)
}

/// What the other hosts send comes in by another device than what goes to them leaves by.
fn check_reverse_path(address: IpAddr, interface: &str) -> Result<(), EmulateError> {
    if address.is_ipv6() {
        return Ok(());
    }
    let read = |of: &str| {
        let path = format!("/proc/sys/net/ipv4/conf/{of}/rp_filter");
        let text = std::fs::read_to_string(&path)
            .map_err(EmulateError::device(interface, "cannot read its rp_filter"))?;
        Ok::<_, EmulateError>(text.trim().to_owned())
    };
    if read("all")?.max(read(interface)?) != "1" {
        return Ok(());
    }
    Err(EmulateError::Document(format!(
        "{interface} drops what comes from hosts to which the way leads through another device \
         (rp_filter 1); allow it: sysctl net.ipv4.conf.{interface}.rp_filter=2"
    )))
}

/// A socket for whole IP packets that go out by this interface, whatever the routes say.
fn way_out(address: IpAddr, interface: &str) -> Result<OwnedFd, EmulateError> {
    let error = |what| move |errno: Errno| EmulateError::device(interface, what)(errno.into());
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let out = socket(family, SockType::Raw, flags, SockProtocol::Raw)
        .map_err(error("cannot make a socket for IP packets"))?;
    setsockopt(&out, sockopt::BindToDevice, &interface.into())
        .map_err(error("cannot bind a socket to it"))?;
    setsockopt(&out, sockopt::SndBufForce, &SEND_BUFFER)
        .map_err(error("cannot set the size of a socket's buffer"))?;
    Ok(out)
}

impl Mover for Endpoint {
    fn look(&mut self) -> Result<(), EmulateError> {
        Ok(())
    }

    fn receive(
        &mut self,
        port: usize,
        sink: &mut impl FnMut(Option<MonotonicNs>, &[u8]),
    ) -> Result<usize, EmulateError> {
        if port != self.own {
            return Ok(0);
        }
        for received in 0..BATCH {
            let Some(length) = self.tap.read(&mut self.buffer)? else { return Ok(received) };
            let bytes = &self.buffer[..length];
            // The kernel's own, to a group, is of no program.
            if frame::destination(bytes).is_some_and(|to| self.addresses.contains(&to)) {
                sink(None, bytes);
            }
        }
        Ok(BATCH)
    }

    fn transmit(&mut self, batch: &mut [Departure]) -> Result<(), EmulateError> {
        for departure in batch {
            let packet = departure.outcome.packet.bytes().get(HEADER..).unwrap_or_default();
            let to = &self.peers[departure.to];
            let mut attempts = 0;
            departure.lost = loop {
                match sendto(self.out.as_raw_fd(), packet, to, MsgFlags::empty()) {
                    Ok(_) => break false,
                    Err(Errno::EAGAIN | Errno::EINTR) if attempts < ATTEMPTS => attempts += 1,
                    // Buffers are full, there is no way to the host, or the packet's own header
                    // was corrupted.
                    Err(_) => break true,
                }
            };
        }
        Ok(())
    }

    fn ready(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    fn losses(&mut self) -> Vec<Losses> {
        let mut losses = vec![Losses::default(); self.peers.len()];
        losses[self.own].full = self.tap.dropped().ok();
        losses
    }
}

impl Endpoint {
    /// The TAP device.
    #[must_use]
    pub fn device(&self) -> &str {
        self.tap.name()
    }
}

/// An error of the TAP device, with what to do about it.
fn refused(cause: io::Error) -> EmulateError {
    match cause.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => EmulateError::Document(
            "an emulated link of a machine needs rights over its network (CAP_NET_ADMIN): give \
             `become: sudo` or `user: root` in `machines`"
                .to_owned(),
        ),
        Some(Errno::ENOENT | Errno::ENODEV | Errno::ENXIO) => EmulateError::Document(
            "there is no /dev/net/tun, by which a link is emulated: modprobe tun".to_owned(),
        ),
        _ => EmulateError::System { what: "cannot make a TAP device", cause },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_host_has_a_route_and_a_known_address() {
        let (mine, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let batch = batch("lslink0", (mine, address(0)), &[(other, address(1))], 1400);
        assert!(batch.contains("link set dev lslink0 address 02:00:00:00:00:01 mtu 1400"));
        let lines: Vec<&str> = batch.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "neighbour add 10.0.0.2 lladdr 02:00:00:00:00:02 dev lslink0 nud permanent",
                "route add 10.0.0.2/32 dev lslink0 src 10.0.0.1 metric 1",
            ]
        );
    }

    #[test]
    fn an_address_of_another_machine_is_refused() {
        let error = interface("192.0.2.254".parse().unwrap(), "h1").unwrap_err().to_string();
        assert!(error.contains("no interface of h1") && error.contains("192.0.2.254"), "{error}");
        assert_eq!(interface("127.0.0.1".parse().unwrap(), "h1").unwrap(), "lo");
    }

    #[test]
    fn without_root_the_error_says_how_to_have_it() {
        let text = refused(Errno::EPERM.into()).to_string();
        assert!(text.contains("user: root"), "{text}");
    }
}
