//! Links, addresses, neighbours and routes of a network namespace, by messages to the kernel
//! (rtnetlink(7)): one process for all the hosts of a testbed, where `ip` would be one for each
//! namespace.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::Path;

use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NlaBuffer, NlasIterator,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, BridgeStpState, In6AddrGenMode, InfoBridge, InfoData, InfoKind,
    InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;

/// So many requests are sent before their answers are read: these have to fit into the socket's
/// buffer.
const AT_ONCE: usize = 64;

/// `struct nlmsghdr`, and the attribute that holds the kernel's words for an error
/// (linux/netlink.h).
const NETLINK_HEADER_LEN: usize = 16;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// A change, and what it is about, for an error.
#[derive(Debug)]
pub struct Change {
    what: String,
    flags: u16,
    message: RouteNetlinkMessage,
}

/// One end of a pair of links, other than the first.
#[derive(Debug)]
pub struct Peer<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its network namespace.
    pub namespace: BorrowedFd<'a>,
    /// Its Ethernet address; `None`: any.
    pub address: Option<[u8; 6]>,
}

/// What the kernel tells of a link.
#[derive(Debug, Default, PartialEq)]
pub struct Link {
    /// Bytes.
    pub mtu: Option<u32>,
    /// The name of its root queueing discipline.
    pub qdisc: Option<String>,
    /// Packets that wait at it by that of the kernel.
    pub queue: Option<u32>,
    /// Its Ethernet address.
    pub address: Option<Vec<u8>>,
}

/// The way to another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The number of the link.
    pub link: u32,
    /// Whether it does not leave this host.
    pub is_local: bool,
    /// Whether it leads to one host.
    pub is_unicast: bool,
}

/// A connection to the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    /// The number of the last request.
    sequence: u32,
}

impl Connection {
    /// Opens one.
    pub fn open() -> io::Result<Connection> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Errors with the kernel's words, and without the request.
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        Ok(Connection { socket, sequence: 0 })
    }

    /// Makes the changes one after another. The error of the first that fails says which it was;
    /// a few after it may have been made.
    pub fn make(&mut self, changes: Vec<Change>) -> io::Result<()> {
        let mut changes = changes.into_iter().peekable();
        while changes.peek().is_some() {
            let mut whats = vec![];
            let mut bytes = vec![];
            for Change { what, flags, message } in changes.by_ref().take(AT_ONCE) {
                whats.push(what);
                self.put(&mut bytes, NLM_F_ACK | flags, message);
            }
            self.socket.send(&bytes, 0)?;
            let first = self.sequence.wrapping_sub(whats.len() as u32 - 1);
            let mut failed = None;
            let mut answered = 0;
            while answered < whats.len() {
                for answer in self.answers()? {
                    let NetlinkPayload::Error(outcome) = answer.payload else { continue };
                    answered += 1;
                    if outcome.code.is_some() && failed.is_none() {
                        let place = answer.header.sequence_number.wrapping_sub(first) as usize;
                        let what = whats.get(place).map_or("a request", String::as_str);
                        failed = Some(refusal(what, &outcome));
                    }
                }
            }
            if let Some(failed) = failed {
                return Err(failed);
            }
        }
        Ok(())
    }

    /// The links of the namespace, by name.
    pub fn links(&mut self) -> io::Result<BTreeMap<String, Link>> {
        let mut found = BTreeMap::new();
        self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()), |message| {
            let RouteNetlinkMessage::NewLink(link) = message else { return };
            let (mut name, mut about) = (None, Link::default());
            for attribute in link.attributes {
                match attribute {
                    LinkAttribute::IfName(text) => name = Some(text),
                    LinkAttribute::Mtu(mtu) => about.mtu = Some(mtu),
                    LinkAttribute::Qdisc(text) => about.qdisc = Some(text),
                    LinkAttribute::TxQueueLen(packets) => about.queue = Some(packets),
                    LinkAttribute::Address(address) => about.address = Some(address),
                    _ => {}
                }
            }
            found.extend(name.map(|name| (name, about)));
        })?;
        Ok(found)
    }

    /// The queueing disciplines of the link of that number, except those that the kernel hides:
    /// what it has put below another one by itself.
    pub fn qdiscs(&mut self, link: u32) -> io::Result<Vec<TcMessage>> {
        let mut found = vec![];
        self.dump(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()), |message| {
            let RouteNetlinkMessage::NewQueueDiscipline(qdisc) = message else { return };
            found.extend((qdisc.header.index.cast_unsigned() == link).then_some(qdisc));
        })?;
        Ok(found)
    }

    /// Where the kernel sends what is for `to`, from its own address `from`.
    pub fn route(&mut self, from: IpAddr, to: IpAddr) -> io::Result<Route> {
        let mut message = RouteMessage::default();
        message.header.address_family =
            if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let bits = if to.is_ipv4() { 32 } else { 128 };
        message.header.destination_prefix_length = bits;
        message.header.source_prefix_length = bits;
        message.attributes =
            vec![RouteAttribute::Destination(to.into()), RouteAttribute::Source(from.into())];
        let mut bytes = vec![];
        self.put(&mut bytes, 0, RouteNetlinkMessage::GetRoute(message));
        self.socket.send(&bytes, 0)?;
        for answer in self.answers()? {
            match answer.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => {
                    let is_local = route.header.kind == RouteType::Local;
                    let is_unicast = route.header.kind == RouteType::Unicast;
                    let link = route.attributes.iter().find_map(|attribute| match attribute {
                        RouteAttribute::Oif(link) => Some(*link),
                        _ => None,
                    });
                    let link = link.ok_or_else(|| io::Error::from(Errno::ENETUNREACH))?;
                    return Ok(Route { link, is_local, is_unicast });
                }
                NetlinkPayload::Error(error) => return Err(refusal("route", &error)),
                _ => {}
            }
        }
        Err(io::Error::other("the kernel has not answered a question for a route"))
    }

    /// Hands over what the kernel answers to a request for all of a kind.
    fn dump(
        &mut self,
        request: RouteNetlinkMessage,
        mut take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        let mut bytes = vec![];
        self.put(&mut bytes, NLM_F_DUMP, request);
        self.socket.send(&bytes, 0)?;
        loop {
            for answer in self.answers()? {
                match answer.payload {
                    NetlinkPayload::InnerMessage(message) => take(message),
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    _ => {}
                }
            }
        }
    }

    fn put(&mut self, bytes: &mut Vec<u8>, flags: u16, message: RouteNetlinkMessage) {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let begin = bytes.len();
        // Messages begin at multiples of 4 bytes.
        bytes.resize(begin + message.buffer_len().next_multiple_of(4), 0);
        message.serialize(&mut bytes[begin..begin + message.buffer_len()]);
    }

    /// The messages of the next datagram.
    fn answers(&mut self) -> io::Result<Vec<NetlinkMessage<RouteNetlinkMessage>>> {
        let (bytes, _) = self.socket.recv_from_full()?;
        let mut messages = vec![];
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let length = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(length.max(1)..).unwrap_or_default();
            messages.push(message);
        }
        Ok(messages)
    }
}

/// Why the kernel refused what was asked.
fn refusal(what: &str, outcome: &ErrorMessage) -> io::Error {
    let error = outcome.to_io();
    let attributes = outcome.header.get(NETLINK_HEADER_LEN..).unwrap_or_default();
    let is_text = |attribute: &NlaBuffer<_>| attribute.kind() == NLMSGERR_ATTR_MSG;
    let text = NlasIterator::new(attributes).flatten().find(is_text);
    let why = text.map_or_else(String::new, |text| {
        let words = String::from_utf8_lossy(text.value()).into_owned();
        format!("{}: ", words.trim_end_matches('\0'))
    });
    io::Error::new(error.kind(), format!("{what}: {why}{error}"))
}

/// The number of the link `name` in the calling thread's namespace.
pub fn index(name: &str) -> io::Result<u32> {
    if_nametoindex(name).map_err(|errno| {
        let error = io::Error::from(errno);
        io::Error::new(error.kind(), format!("link {name}: {error}"))
    })
}

/// A bridge that adds no packets of its own and forwards from the first one: without spanning tree
/// and snooping.
pub fn bridge(name: &str) -> Change {
    let settings = vec![
        InfoBridge::StpState(BridgeStpState::Disabled),
        InfoBridge::ForwardDelay(0),
        InfoBridge::MulticastSnooping(false),
    ];
    let info = vec![LinkInfo::Kind(InfoKind::Bridge), LinkInfo::Data(InfoData::Bridge(settings))];
    let attributes = vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::LinkInfo(info)];
    new_link(format!("bridge {name}"), link(attributes))
}

/// The link `name` with its `peer`, of an MTU in bytes, at the bridge of that number if there is
/// one.
pub fn veth(name: &str, peer: &Peer<'_>, mtu: Option<u32>, bridge: Option<u32>) -> Change {
    let mtu = || mtu.map(LinkAttribute::Mtu);
    let mut far = vec![
        LinkAttribute::IfName(peer.name.to_owned()),
        LinkAttribute::NetNsFd(peer.namespace.as_raw_fd()),
    ];
    far.extend(mtu());
    far.extend(peer.address.map(|address| LinkAttribute::Address(address.to_vec())));
    let info = vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(link(far)))),
    ];
    let mut near = vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::LinkInfo(info)];
    near.extend(mtu());
    near.extend(bridge.map(LinkAttribute::Controller));
    new_link(format!("link {name} to {}", peer.name), link(near))
}

/// Has a link up. It is not given an IPv6 address, and so there are no solicitations and no
/// duplicate address detection in the middle of a measurement.
pub fn up(name: &str) -> Vec<Change> {
    let mut changes = vec![];
    if name != "lo" && Path::new("/proc/sys/net/ipv6").exists() {
        // In a message of its own: of one message, the kernel has the link up first.
        let quiet = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        let quiet = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![quiet])]);
        let message = link(vec![LinkAttribute::IfName(name.to_owned()), quiet]);
        changes.push(set_link(format!("link {name} without IPv6 address"), message));
    }
    let mut message = link(vec![LinkAttribute::IfName(name.to_owned())]);
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    changes.push(set_link(format!("link {name} up"), message));
    changes
}

/// Removes a link. Its peer, if it has one, goes with it.
pub fn remove(name: &str) -> Change {
    let message = link(vec![LinkAttribute::IfName(name.to_owned())]);
    let message = RouteNetlinkMessage::DelLink(message);
    Change { what: format!("removal of link {name}"), flags: 0, message }
}

/// Gives a link another MTU, in bytes.
pub fn set_mtu(name: &str, mtu: u32) -> Change {
    let attributes = vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::Mtu(mtu)];
    set_link(format!("mtu of {name}"), link(attributes))
}

/// Has so many packets wait at a link.
pub fn set_queue(name: &str, packets: u32) -> Change {
    let queue = LinkAttribute::TxQueueLen(packets);
    set_link(
        format!("txqueuelen of {name}"),
        link(vec![LinkAttribute::IfName(name.to_owned()), queue]),
    )
}

fn set_link(what: String, message: LinkMessage) -> Change {
    Change { what, flags: 0, message: RouteNetlinkMessage::SetLink(message) }
}

/// Gives the link of that number an address in a network of that prefix, with its broadcast
/// address.
pub fn address(link: u32, address: Ipv4Addr, prefix: u8) -> Change {
    let hosts = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = prefix;
    message.header.index = link;
    message.attributes = vec![
        AddressAttribute::Local(IpAddr::V4(address)),
        AddressAttribute::Address(IpAddr::V4(address)),
        AddressAttribute::Broadcast(Ipv4Addr::from_bits(address.to_bits() | hosts)),
    ];
    Change {
        what: format!("address {address}/{prefix}"),
        flags: NLM_F_CREATE | NLM_F_EXCL,
        message: RouteNetlinkMessage::NewAddress(message),
    }
}

/// Tells the link of that number the Ethernet address of `ip`, for good.
pub fn neighbour(link: u32, ip: Ipv4Addr, at: [u8; 6]) -> Change {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.ifindex = link;
    message.header.state = NeighbourState::Permanent;
    message.attributes = vec![
        NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)),
        NeighbourAttribute::LinkLayerAddress(at.to_vec()),
    ];
    Change {
        what: format!("neighbour {ip}"),
        flags: NLM_F_CREATE | NLM_F_EXCL,
        message: RouteNetlinkMessage::NewNeighbour(message),
    }
}

/// Puts a queueing discipline with its defaults and that handle at the root of the link of that
/// number.
pub fn add_qdisc(link: u32, kind: &str, handle: TcHandle) -> Change {
    let mut message = root_qdisc(link, handle);
    message.attributes = vec![TcAttribute::Kind(kind.to_owned())];
    Change {
        what: format!("queueing discipline {kind}"),
        flags: NLM_F_CREATE | NLM_F_REPLACE,
        message: RouteNetlinkMessage::NewQueueDiscipline(message),
    }
}

/// Removes the queueing discipline with that handle from there; the kernel puts its default there.
pub fn remove_qdisc(link: u32, handle: TcHandle) -> Change {
    Change {
        what: "its queueing discipline".to_owned(),
        flags: 0,
        message: RouteNetlinkMessage::DelQueueDiscipline(root_qdisc(link, handle)),
    }
}

fn root_qdisc(link: u32, handle: TcHandle) -> TcMessage {
    let mut message = TcMessage::with_index(link.cast_signed());
    message.header.handle = handle;
    message.header.parent = TcHandle::ROOT;
    message
}

fn link(attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = attributes;
    message
}

fn new_link(what: String, message: LinkMessage) -> Change {
    let flags = NLM_F_CREATE | NLM_F_EXCL;
    Change { what, flags, message: RouteNetlinkMessage::NewLink(message) }
}

#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    #[test]
    fn a_refusal_has_the_kernels_words() {
        let try_it = || {
            if unshare(CloneFlags::CLONE_NEWNET).is_err() {
                return skip::skipped("a network namespace needs root");
            }
            let kind = InfoKind::Other("ls-none".to_owned());
            let info = LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]);
            let attributes = vec![LinkAttribute::IfName("l0".to_owned()), info];
            let unknown = new_link("link l0".to_owned(), link(attributes));
            // More than are sent at once.
            let mut changes: Vec<Change> = (0..AT_ONCE).flat_map(|_| up("lo")).collect();
            changes.push(unknown);
            changes.extend(up("lo"));
            let error = Connection::open().unwrap().make(changes).unwrap_err();
            let wanted = "link l0: Unknown device type: Operation not supported";
            assert!(error.to_string().starts_with(wanted), "{error}");
            let missing = Connection::open().unwrap().make(up("l1")).unwrap_err();
            let missing = missing.to_string();
            let said = missing.starts_with("link l1 ") && missing.contains(": No such device");
            assert!(said, "{missing}");
        };
        std::thread::spawn(try_it).join().unwrap();
    }
}
