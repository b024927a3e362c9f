//! The producer's connections.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result, bail, ensure};
use loopscope_messages::{MessageType, Transport};
use loopscope_phase::Phase;

use super::flow::{Flow, Part};
use super::series::{HEAD, Series};
use super::udp;
use crate::departures::{Departures, Sent};
use crate::tcp::Link;

/// A flow's way to its consumers.
pub(crate) enum Outlet {
    Streams(Vec<Stream>),
    Datagrams {
        socket: UdpSocket,
        departures: Departures,
        to: Vec<SocketAddr>,
        message: Vec<u8>,
        /// `None`: each message is a datagram.
        series: Option<Series>,
        /// To say at the end how many there were.
        links: Vec<Link>,
    },
}

/// A connection to a consumer, and the messages that it has not taken yet.
pub(crate) struct Stream {
    link: Link,
    size: usize,
    waiting: VecDeque<(u64, Option<Sent>)>,
    /// Bytes of the first that it has taken.
    taken: usize,
}

/// Connects every flow that the program sends to its consumers, and waits until they are ready.
pub(crate) fn connect(part: &Part, to: &[String], phase: &Phase) -> Result<Vec<(Flow, Outlet)>> {
    let addresses = addresses(to)?;
    let mut begun = Vec::new();
    for flow in part.produced()? {
        let each = part.message_type(flow);
        let mut links = Vec::new();
        for consumer in &each.consumers {
            let to = match addresses.get(consumer.as_str()) {
                Some(address) => address,
                None if phase.peers.is_empty() => {
                    bail!(
                        "where is `{consumer}`, a consumer of `{}`? Say it by --to {consumer}=HOST:PORT",
                        each.name
                    )
                }
                None => consumer.as_str(),
            };
            // The port of a UDP type is the one for its datagrams.
            let port = each.port.filter(|_| !each.transport.is_udp());
            let mut link = Link::connect_at(to, port, phase)?;
            let mut hello = flow.id(0).to_bits().to_le_bytes().to_vec();
            hello.extend(each.size.to_le_bytes());
            link.send(&hello, format_args!("the beginning of `{}`", each.name))?;
            links.push(link);
        }
        begun.push((flow, links));
    }
    // All connections stand before the first answer is awaited: a consumer takes them in its order.
    let outlet = |(flow, links)| Ok((flow, outlet(part.message_type(flow), links)?));
    begun.into_iter().map(outlet).collect()
}

fn outlet(each: &MessageType, mut links: Vec<Link>) -> Result<Outlet> {
    let mut to = Vec::new();
    for link in &mut links {
        let mut port = [0; 2];
        let got = link.receive(&mut port, format_args!("its answer for `{}`", each.name))?;
        ensure!(
            got == port.len(),
            "{} refused `{}`; what it says is the reason",
            link.peer,
            each.name
        );
        let peer = link.stream().peer_addr()?;
        to.push(SocketAddr::new(peer.ip(), u16::from_le_bytes(port)));
    }
    if each.transport.is_udp() {
        let local = links[0].stream().local_addr()?.ip();
        let looped =
            to.iter().any(|consumer| consumer.ip() == local || consumer.ip().is_loopback());
        if let Some(group) = each.group {
            to = vec![group.into()];
        }
        let series = Series::of(each);
        let message = vec![0; each.size.min(each.largest_datagram()) as usize];
        let socket = udp::sender(local, looped)?;
        let departures = Departures::new(&socket)?;
        Ok(Outlet::Datagrams { socket, departures, to, message, series, links })
    } else {
        let stream = |link: Link| -> Result<Stream> {
            link.stream().set_nodelay(each.transport == Transport::TcpNodelay)?;
            link.stream().set_nonblocking(true)?;
            Ok(Stream { link, size: each.size as usize, waiting: VecDeque::new(), taken: 0 })
        };
        Ok(Outlet::Streams(links.into_iter().map(stream).collect::<Result<_>>()?))
    }
}

fn addresses(to: &[String]) -> Result<HashMap<&str, &str>> {
    let pair = |text| {
        let pair = str::split_once(text, '=');
        pair.with_context(|| format!("`{text}` is no NAME=HOST:PORT, as in c1=127.0.0.1:5000"))
    };
    to.iter().map(String::as_str).map(pair).collect()
}

impl Outlet {
    /// Hands a message to the kernel, as far as it takes it. `sent`: when that was recorded, where
    /// stamps are asked for. `zeros` are as many as the largest message of any stream.
    pub(crate) fn send(&mut self, id: u64, sent: Option<Sent>, zeros: &[u8]) -> Result<()> {
        match self {
            Outlet::Streams(streams) => {
                for stream in streams {
                    stream.waiting.push_back((id, sent));
                    stream.flush(zeros)?;
                }
            }
            Outlet::Datagrams { socket, departures, to, message, series, .. } => {
                let mut send = |datagram: &[u8], address: SocketAddr, is_last: bool| {
                    let taken = socket.send_to(datagram, address);
                    taken.with_context(|| format!("cannot send a datagram to {address}"))?;
                    departures.handed(1);
                    if is_last { departures.ended(socket, sent) } else { Ok(()) }
                };
                for address in to {
                    let Some(series) = series else {
                        message[..8].copy_from_slice(&id.to_le_bytes());
                        send(message, *address, true)?;
                        continue;
                    };
                    let count = series.count();
                    for place in 0..count {
                        message[..HEAD].copy_from_slice(&Series::head(id, place));
                        send(&message[..series.length(place)], *address, place + 1 == count)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Tells the consumers that there is no more, after `sent` messages.
    pub(crate) fn end(&mut self, sent: u32) -> Result<()> {
        let what = "the end of the messages";
        let is_udp = matches!(self, Outlet::Datagrams { .. });
        for link in self.links() {
            link.stream().set_nonblocking(false)?;
            if is_udp {
                link.send(&u64::from(sent).to_le_bytes(), what)?;
            }
            let ended = link.stream().shutdown(Shutdown::Write);
            ended.with_context(|| format!("lost {} at {what}", link.peer))?;
        }
        Ok(())
    }

    pub(crate) fn streams(&mut self) -> &mut [Stream] {
        match self {
            Outlet::Streams(streams) => streams,
            Outlet::Datagrams { .. } => &mut [],
        }
    }

    pub(crate) fn links(&mut self) -> Vec<&mut Link> {
        match self {
            Outlet::Streams(streams) => streams.iter_mut().map(|each| &mut each.link).collect(),
            Outlet::Datagrams { links, .. } => links.iter_mut().collect(),
        }
    }

    /// Records when messages left, as far as the kernel has told.
    pub(crate) fn record_departures(&mut self) -> Result<()> {
        match self {
            Outlet::Streams(streams) => {
                streams.iter_mut().try_for_each(|each| each.link.record_departures())
            }
            Outlet::Datagrams { socket, departures, .. } => departures.record(socket),
        }
    }

    /// Bytes of a message.
    pub(crate) fn stream_size(&self) -> Option<usize> {
        match self {
            Outlet::Streams(streams) => streams.first().map(|each| each.size),
            Outlet::Datagrams { .. } => None,
        }
    }
}

impl Stream {
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Hands to the kernel what it takes; whether nothing is left.
    pub(crate) fn flush(&mut self, zeros: &[u8]) -> Result<bool> {
        // Its error queue makes a connection look ready.
        self.link.record_departures()?;
        while let Some(&(id, sent)) = self.waiting.front() {
            let id = id.to_le_bytes();
            let head = &id[self.taken.min(id.len())..];
            let rest = &zeros[..self.size - self.taken.max(id.len())];
            match self.link.send_some(&[IoSlice::new(head), IoSlice::new(rest)]) {
                Ok(n) => self.taken += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("lost {}", self.link.peer));
                }
            }
            if self.taken == self.size {
                self.waiting.pop_front();
                self.taken = 0;
                self.link.ended(sent)?;
            }
        }
        Ok(true)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.stream().as_fd()
    }
}
