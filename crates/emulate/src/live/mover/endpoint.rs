//! A host of its own that emulates links, at their beginning or between their ends: what it sends to
//! the other hosts, or forwards to them, goes into a TAP device, and what comes out of the links
//! leaves by its interface to the receiver. What is for itself does not pass here.
//!
//! The device, and with it every route through it, is this process's: the kernel removes it when the
//! process ends, however that happens.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use loopscope_frames::Outlet;
use loopscope_time::MonotonicNs;
use loopscope_timer::now;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::epoll::Epoll;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, sendto, setsockopt,
    socket, sockopt,
};

use super::{BATCH, Losses, Mover, mtu, readiness};
use crate::EmulateError;
use crate::address::Address;
use crate::frame::{self, HEADER};
use crate::iproute;
use crate::router::Departure;
use crate::settings::{Document, Port};

/// The name of the device: the kernel puts a number for `%d`.
const TAP: &str = "lslink%d";
/// What the programs may send before the mover looks, in packets.
const QUEUE: u32 = 10_000;
const SEND_BUFFER: usize = 16 << 20;
/// A send that the kernel interrupts is tried again so often.
const ATTEMPTS: u32 = 100;

/// The host's TAP device and its ways out.
#[derive(Debug)]
pub struct Endpoint {
    tap: Outlet,
    own: usize,
    /// Whether it forwards what others send.
    forwards: bool,
    /// By port.
    peers: Vec<Peer>,
    /// By interface.
    out: Vec<OwnedFd>,
    epoll: Epoll,
    buffers: Vec<Vec<u8>>,
    /// What was read last, by the places of their buffers.
    arrived: Vec<Arrival>,
}

/// A host, and how packets go to it.
#[derive(Debug)]
struct Peer {
    ip: IpAddr,
    /// By which the device's packets to it are known.
    address: Address,
    to: SockaddrStorage,
    /// The place of its interface's socket.
    out: usize,
}

/// A frame that was read.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// `None`: for no other host, as what the kernel sends to a group.
    port: Option<usize>,
    at: MonotonicNs,
    length: usize,
}

/// A way of packets to another host.
#[derive(Debug)]
struct Way {
    to: IpAddr,
    address: Address,
    /// The source address of what this host itself sends.
    from: IpAddr,
}

/// The Ethernet address that stands for a port on the TAP device.
#[must_use]
pub fn address(port: usize) -> Address {
    let [.., a, b, c, d] = (port as u64 + 1).to_be_bytes();
    Address([2, 0, a, b, c, d])
}

impl Endpoint {
    /// The device and the routes to the other hosts, in the current network namespace of `host`,
    /// which sends or forwards.
    pub fn open(document: &Document, host: &str) -> Result<Endpoint, EmulateError> {
        let wrong = |what: String| EmulateError::Document(what);
        let (ports, forwards) = (&document.ports, document.router.is_some());
        let key = if forwards { "router" } else { "sender" };
        let own = ports.iter().position(|port| port.host == host);
        let own = own.ok_or_else(|| wrong(format!("`{key}`: no port is of {host:?}")))?;
        let ip = |(number, port): (usize, &Port)| {
            port.ip.ok_or_else(|| wrong(format!("`ports[{number}]`: with `{key}` it needs `ip`")))
        };
        let ips: Vec<IpAddr> = ports.iter().enumerate().map(ip).collect::<Result<_, _>>()?;
        let mine = ips[own];
        for (port, its) in ports.iter().zip(&ips).filter(|(port, _)| port.host != host) {
            check_addresses((host, mine), (&port.host, *its))?;
        }
        let mut interfaces = vec![interface(mine, host)?];
        let (mut ways, mut peers) = (vec![], vec![]);
        for (port, &ip) in ips.iter().enumerate() {
            let mut from = mine;
            let mut out = 0;
            if forwards && port != own {
                from = source_towards(ip)?;
                let name = interface(from, host)?;
                out = interfaces.iter().position(|known| *known == name).unwrap_or_else(|| {
                    interfaces.push(name);
                    interfaces.len() - 1
                });
            }
            let address = address(port);
            if port != own {
                ways.push(Way { to: ip, address, from });
            }
            peers.push(Peer { ip, address, to: SocketAddr::new(ip, 0).into(), out });
        }
        for interface in &interfaces {
            check_reverse_path(mine, interface)?;
            if forwards {
                check_forwarding(mine, interface, host)?;
            }
        }
        let tap = Outlet::make(TAP).map_err(refused)?;
        let open = |interface: &String| way_out(mine, interface);
        let out: Vec<OwnedFd> = interfaces.iter().map(open).collect::<Result<_, _>>()?;
        let mut largest = usize::MAX;
        for (socket, interface) in out.iter().zip(&interfaces) {
            largest = largest.min(mtu::of(socket.as_fd(), interface)?);
        }
        let batch = batch(tap.name(), peers[own].address, &ways, largest);
        let family = if mine.is_ipv4() { "-4" } else { "-6" };
        iproute::run("ip", &[family], &batch).map_err(|cause| EmulateError::Kernel {
            what: format!("cannot lead what goes to the other hosts through {}", tap.name()),
            cause,
        })?;
        let epoll = readiness([&tap].into_iter())?;
        let buffers = vec![vec![0; HEADER + largest.max(1 << 16)]; BATCH];
        Ok(Endpoint { tap, own, forwards, peers, out, epoll, buffers, arrived: vec![] })
    }

    /// The port at which a frame from the device came in.
    fn port_of(&self, frame: &[u8]) -> Option<usize> {
        let to = frame::destination(frame)?;
        // The kernel's own, to a group, is of no program.
        self.peers.iter().find(|peer| peer.address == to)?;
        let by_source = || {
            let source = frame::source_ip(frame)?;
            self.peers.iter().position(|peer| peer.ip == source)
        };
        let forwarded = if self.forwards { by_source() } else { None };
        Some(forwarded.unwrap_or(self.own))
    }
}

fn check_addresses(
    (host, mine): (&str, IpAddr),
    (other, its): (&str, IpAddr),
) -> Result<(), EmulateError> {
    if its.is_ipv4() != mine.is_ipv4() {
        return Err(EmulateError::Document(format!(
            "the data addresses are of both kinds, IPv4 and IPv6: {mine} of {host}, {its} of \
             {other}; give all of them of one kind by `data` in `machines`"
        )));
    }
    if its == mine {
        return Err(EmulateError::Document(format!(
            "{host} and {other} have the same data address, {mine}: they are one machine, between \
             whose programs no link can be emulated"
        )));
    }
    Ok(())
}

/// Has the device up with the host's routes to the others, whose Ethernet addresses are known.
fn batch(device: &str, own: Address, ways: &[Way], mtu: usize) -> String {
    let more = format!("address {own} mtu {mtu} txqueuelen {QUEUE}");
    let mut batch = iproute::up(device, &more);
    for Way { to, address, from } in ways {
        let length = if to.is_ipv4() { 32 } else { 128 };
        batch += &format!(
            "neighbour add {to} lladdr {address} dev {device} nud permanent\n\
             route add {to}/{length} dev {device} src {from} metric 1\n"
        );
    }
    batch
}

/// The address from which the kernel sends to another one.
fn source_towards(to: IpAddr) -> Result<IpAddr, EmulateError> {
    let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
    let found = UdpSocket::bind(any)
        // No packet is sent. Any port will do.
        .and_then(|socket| socket.connect((to, 9)).and_then(|()| socket.local_addr()));
    found
        .map(|address| address.ip())
        .map_err(|error| EmulateError::Document(format!("there is no way to {to}: {error}")))
}

/// The kernel passes on what comes in by the interface for others.
fn check_forwarding(mine: IpAddr, interface: &str, host: &str) -> Result<(), EmulateError> {
    let (path, remedy) = if mine.is_ipv4() {
        (format!("/proc/sys/net/ipv4/conf/{interface}/forwarding"), "net.ipv4.ip_forward=1")
    } else {
        ("/proc/sys/net/ipv6/conf/all/forwarding".to_owned(), "net.ipv6.conf.all.forwarding=1")
    };
    let text = std::fs::read_to_string(&path)
        .map_err(EmulateError::device(interface, "cannot read whether it forwards"))?;
    if text.trim() == "1" {
        return Ok(());
    }
    Err(EmulateError::Document(format!(
        "{host} is the router, and forwards nothing that comes in by {interface}; allow it there: \
         sysctl {remedy}"
    )))
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
        self.arrived.clear();
        while self.arrived.len() < BATCH {
            let buffer = &mut self.buffers[self.arrived.len()];
            let found = self.tap.read(buffer);
            let error = EmulateError::device(self.tap.name(), "cannot receive");
            let Some(length) = found.map_err(error)? else { break };
            let port = self.port_of(&self.buffers[self.arrived.len()][..length]);
            if let Some(port) = port {
                // As if it came from its sender, and not from this host's kernel.
                let from = self.peers[port].address;
                frame::set_source(&mut self.buffers[self.arrived.len()], from);
            }
            self.arrived.push(Arrival { port, at: now(), length });
        }
        Ok(())
    }

    fn receive(
        &mut self,
        port: usize,
        sink: &mut impl FnMut(Option<MonotonicNs>, &[u8]),
    ) -> Result<usize, EmulateError> {
        let mut received = 0;
        for (arrival, buffer) in self.arrived.iter().zip(&self.buffers) {
            if arrival.port == Some(port) {
                sink(Some(arrival.at), &buffer[..arrival.length]);
                received += 1;
            }
        }
        Ok(received)
    }

    fn transmit(&mut self, batch: &mut [Departure]) -> Result<(), EmulateError> {
        for departure in batch {
            let packet = departure.outcome.packet.bytes().get(HEADER..).unwrap_or_default();
            let peer = &self.peers[departure.to];
            let out = self.out[peer.out].as_raw_fd();
            let mut attempts = 0;
            departure.lost = loop {
                match sendto(out, packet, &peer.to, MsgFlags::empty()) {
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
        let [mine, other] = ["10.0.0.1", "10.0.0.2"].map(|each| each.parse().unwrap());
        let ways = [Way { to: other, address: address(1), from: mine }];
        let batch = batch("lslink0", address(0), &ways, 1400);
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
