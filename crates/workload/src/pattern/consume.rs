//! The consumer: accepts all producers, then receives until each has ended.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use loopscope_messages::Transport;
use loopscope_phase::{Config, Phase, Values};
use loopscope_trace::event;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::args::ConsumeArgs;
use super::flow::{Flow, Part, TABLE_KEYS};
use super::id::Id;
use super::receipts::Receipts;
use super::series::{Pieces, Series, Taken};
use super::{report, udp};
use crate::program::NOT_CONNECTED;
use crate::settings::Settings;
use crate::stamped::Reader;
use crate::stop::Stop;
use crate::tcp::{LISTEN_KEYS, Link, listen};

loopscope_trace::describe!("pattern", "received", "", "A message's last byte has arrived");

/// How much of a large message one call takes.
const CHUNK: usize = 256 << 10;

/// Stands for no socket: the order to stop.
const STOP: u64 = u64::MAX;

/// Sockets that one wait reports.
const READY: usize = 64;

pub(crate) fn phases(
    args: ConsumeArgs,
    component: Option<String>,
    stop: Arc<Stop>,
) -> impl FnMut(&Phase, &Config) -> Result<Values> {
    let mut listening = None;
    let mut connected = None;
    move |phase, config| {
        let known = [&TABLE_KEYS[..], &LISTEN_KEYS, &["linger"]].concat();
        let settings = Settings::new(config, &known)?;
        let component = component.as_deref();
        match phase.name.as_str() {
            "listen" => {
                let part = Part::read(&args.table, &settings, config, component)?;
                let linger = settings.duration("linger", args.linger)?;
                let (listener, values) = listen(&args.listen, &settings, phase, component)?;
                let listeners = listeners(&part, listener)?;
                listening = Some((part, listeners, linger));
                return Ok(values);
            }
            "connect" => {
                let (part, listeners, linger) = listening.take().context(NOT_CONNECTED)?;
                let accepted = accept(&part, &listeners, phase, component)?;
                connected = Some((part, accepted, linger));
            }
            _ => {
                let (part, accepted, linger) = connected.take().context(NOT_CONNECTED)?;
                stop.heed_signals()?;
                let mut run = Run::new(&part, accepted, linger, &stop)?;
                run.receive(&stop)?;
                let received = run.inlets.iter().map(|each| (each.flow, &each.receipts));
                report::received(&part, received, run.foreign)?;
            }
        }
        Ok(vec![])
    }
}

/// A listener and how many connections are to come to it.
struct Listener {
    socket: TcpListener,
    expected: usize,
}

/// The main one, and one for each further port of the table.
fn listeners(part: &Part, main: TcpListener) -> Result<Vec<Listener>> {
    let address = main.local_addr()?.ip();
    let mut found = vec![Listener { socket: main, expected: 0 }];
    let mut of_port: HashMap<Option<u16>, usize> = [(None, 0)].into();
    for flow in part.consumed()? {
        let each = part.message_type(flow);
        let port = each.port.filter(|_| !each.transport.is_udp());
        let place = match (of_port.get(&port), port) {
            (Some(place), _) => *place,
            (None, port) => {
                let address = SocketAddr::new(address, port.unwrap_or(0));
                let socket = TcpListener::bind(address)
                    .with_context(|| format!("cannot listen on {address}"))?;
                socket.set_nonblocking(true)?;
                of_port.insert(port, found.len());
                found.push(Listener { socket, expected: 0 });
                found.len() - 1
            }
        };
        found[place].expected += 1;
    }
    Ok(found)
}

/// What receives, before anything has come.
struct Accepted {
    links: HashMap<Flow, Link>,
    /// Sockets for datagrams: one for each group and for each UDP port.
    sockets: Vec<(UdpSocket, Reader)>,
}

fn accept(
    part: &Part,
    listeners: &[Listener],
    phase: &Phase,
    component: Option<&str>,
) -> Result<Accepted> {
    let flows = part.consumed()?;
    let mut links = HashMap::new();
    let mut sockets = Vec::new();
    let mut members: HashMap<u16, u16> = HashMap::new();
    let mut ports: HashMap<Option<u16>, u16> = HashMap::new();
    for listener in listeners {
        for _ in 0..listener.expected {
            let mut link = Link::accept(&listener.socket, phase, component)?;
            let flow = greet(part, &flows, &mut link)?;
            let each = part.message_type(flow);
            let local = link.stream().local_addr()?.ip();
            let port = match (each.transport, each.group) {
                (Transport::UdpMulticast, Some(group)) => {
                    if members.insert(flow.message_type, 0).is_none() {
                        let socket = udp::member(group, local)?;
                        let reader = Reader::new(&socket)?;
                        sockets.push((socket, reader));
                    }
                    0
                }
                (Transport::Udp, _) => match ports.get(&each.port) {
                    Some(port) => *port,
                    None => {
                        let address = SocketAddr::new(local, each.port.unwrap_or(0));
                        let socket = udp::receiver(address)?;
                        let port = socket.local_addr()?.port();
                        ports.insert(each.port, port);
                        let reader = Reader::new(&socket)?;
                        sockets.push((socket, reader));
                        port
                    }
                },
                _ => 0,
            };
            // The producer may send from here on.
            link.send(&port.to_le_bytes(), format_args!("the answer for `{}`", each.name))?;
            link.stream().set_nonblocking(true)?;
            if let Some(twice) = links.insert(flow, link) {
                bail!(
                    "producer {} of `{}` connected twice: {} and another; is one name played by \
                     two programs?",
                    flow.producer,
                    each.name,
                    twice.peer
                );
            }
        }
    }
    Ok(Accepted { links, sockets })
}

/// Reads which producer of which type a connection is.
fn greet(part: &Part, flows: &[Flow], link: &mut Link) -> Result<Flow> {
    let mut hello = [0; 12];
    let got = link.receive(&mut hello, "its beginning")?;
    ensure!(got == hello.len(), "{} closed the connection at its beginning", link.peer);
    let (id, size) = hello.split_at(8);
    let id = Id::from_bits(u64::from_le_bytes(id.try_into()?));
    let size = u32::from_le_bytes(size.try_into()?);
    let flow = id.filter(|id| id.number == 0).map(Flow::from);
    let flow = flow.filter(|flow| flows.contains(flow)).with_context(|| {
        format!(
            "{} wants to send what {} does not consume; do both have the same table and scale?",
            link.peer, part.name
        )
    })?;
    let each = part.message_type(flow);
    ensure!(
        size == each.size,
        "{} has messages `{}` of {size} B, this one of {} B: give both the same table",
        link.peer,
        each.name,
        each.size
    );
    Ok(flow)
}

/// A flow as it arrives.
struct Inlet {
    flow: Flow,
    size: usize,
    is_udp: bool,
    /// Incomplete messages, where each is a series of datagrams; `None`: each is one datagram.
    pieces: Option<Pieces>,
    /// `None` when the flow has ended.
    link: Option<Link>,
    /// Bytes of the current message, or of the number of datagrams, that are here.
    got: usize,
    head: [u8; 8],
    receipts: Receipts,
    /// When its datagrams are given up.
    until: Option<Instant>,
}

struct Run {
    inlets: Vec<Inlet>,
    of_flow: HashMap<Flow, usize>,
    sockets: Vec<(UdpSocket, Reader)>,
    epoll: Epoll,
    linger: Duration,
    /// Datagrams that are none of the table's.
    foreign: u64,
    chunk: Vec<u8>,
}

impl Run {
    fn new(part: &Part, accepted: Accepted, linger: Duration, stop: &Stop) -> Result<Run> {
        let mut inlets = Vec::new();
        for (flow, link) in accepted.links {
            let each = part.message_type(flow);
            inlets.push(Inlet {
                flow,
                size: each.size as usize,
                is_udp: each.transport.is_udp(),
                pieces: Series::of(each).map(Pieces::new),
                link: Some(link),
                got: 0,
                head: [0; 8],
                receipts: Receipts::default(),
                until: None,
            });
        }
        // The reader may be late by a message, or more where several producers send at once.
        let room: usize =
            inlets.iter().filter_map(|each| each.pieces.as_ref()).map(Pieces::room).sum();
        if room > 0 {
            for (socket, _) in &accepted.sockets {
                udp::make_room(socket, 2 * room)?;
            }
        }
        inlets.sort_by_key(|each| (each.flow.message_type, each.flow.producer));
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("cannot make an epoll")?;
        let event = |place: usize| EpollEvent::new(EpollFlags::EPOLLIN, place as u64);
        for (place, inlet) in inlets.iter().enumerate() {
            if let Some(link) = &inlet.link {
                epoll.add(link.stream(), event(place))?;
            }
        }
        for (place, (socket, _)) in accepted.sockets.iter().enumerate() {
            epoll.add(socket, event(inlets.len() + place))?;
        }
        // Only to be woken: it hangs up, which is always reported.
        epoll.add(stop.fd(), EpollEvent::new(EpollFlags::empty(), STOP))?;
        let of_flow = inlets.iter().enumerate().map(|(place, each)| (each.flow, place)).collect();
        let sockets = accepted.sockets;
        Ok(Run { inlets, of_flow, sockets, epoll, linger, foreign: 0, chunk: vec![0; CHUNK] })
    }

    fn receive(&mut self, stop: &Stop) -> Result<()> {
        let mut ready = [EpollEvent::empty(); READY];
        while !stop.is_set() {
            let given_up = self.inlets.iter().filter_map(|each| each.until).min();
            if given_up.is_none() && self.inlets.iter().all(|each| each.link.is_none()) {
                return Ok(());
            }
            let n = match self.epoll.wait(&mut ready, timeout(given_up)) {
                Ok(n) => n,
                Err(Errno::EINTR) => 0,
                Err(error) => return Err(error).context("cannot wait for messages"),
            };
            for event in &ready[..n] {
                if event.data() == STOP {
                    continue;
                }
                let place = event.data() as usize;
                match place.checked_sub(self.inlets.len()) {
                    Some(socket) => self.take_datagrams(socket)?,
                    None => self.take(place)?,
                }
            }
            let now = Instant::now();
            for inlet in &mut self.inlets {
                inlet.end_if_over(now);
            }
        }
        Ok(())
    }

    fn take(&mut self, place: usize) -> Result<()> {
        let inlet = &mut self.inlets[place];
        inlet.take(&mut self.chunk, self.linger)?;
        if let (Some(_), Some(link)) = (inlet.until, &inlet.link) {
            // All is said; what is left is its end, which would be reported for ever.
            self.epoll.delete(link.stream())?;
        }
        Ok(())
    }

    fn take_datagrams(&mut self, socket: usize) -> Result<()> {
        let (socket, reader) = &mut self.sockets[socket];
        let size = match reader.read(socket, &mut self.chunk) {
            Ok(size) => size,
            Err(error) if would_block(&error) => return Ok(()),
            Err(error) => return Err(error).context("cannot receive a datagram"),
        };
        let id = self.chunk[..size].first_chunk().map(|head| u64::from_le_bytes(*head));
        let id = id.and_then(Id::from_bits).filter(|id| id.number > 0);
        let place = id.and_then(|id| self.of_flow.get(&Flow::from(id)).copied());
        let inlet = place.map(|place| &mut self.inlets[place]).filter(|inlet| inlet.is_udp);
        let (Some(id), Some(inlet)) = (id, inlet) else {
            self.foreign += 1;
            return Ok(());
        };
        let taken = match &mut inlet.pieces {
            None if size == inlet.size => Taken::Last,
            None => Taken::Foreign,
            Some(_) if inlet.receipts.has(id.number) => Taken::Again,
            Some(pieces) => pieces.take(id.number, &self.chunk[..size]),
        };
        match taken {
            Taken::Last => {
                reader.received(id.to_bits(), || arrived(id))?;
                inlet.receipts.arrived(id.number);
            }
            Taken::Part => {}
            Taken::Again => inlet.receipts.again(),
            Taken::Foreign => self.foreign += 1,
        }
        Ok(())
    }
}

impl Inlet {
    /// Takes what the connection has of one message.
    fn take(&mut self, chunk: &mut [u8], linger: Duration) -> Result<()> {
        let Some(link) = &mut self.link else { return Ok(()) };
        // What a UDP type's connection carries: how many were sent.
        let size = if self.is_udp { 8 } else { self.size };
        while self.got < size {
            let most = (size - self.got).min(chunk.len());
            let n = match link.read(&mut chunk[..most]) {
                Ok(0) => return self.closed(),
                Ok(n) => n,
                Err(error) if would_block(&error) => return Ok(()),
                Err(error) => return Err(error).with_context(|| format!("lost {}", link.peer)),
            };
            let of_head = self.head.len().saturating_sub(self.got).min(n);
            self.head[self.got.min(8)..][..of_head].copy_from_slice(&chunk[..of_head]);
            self.got += n;
        }
        self.got = 0;
        let head = u64::from_le_bytes(self.head);
        if self.is_udp {
            self.receipts.ended(head);
            self.until = Some(Instant::now() + linger);
            return Ok(());
        }
        let expected = self.flow.id(self.receipts.received as u32 + 1);
        ensure!(
            head == expected.to_bits(),
            "{} sent {:?} where {expected:?} was due",
            link.peer,
            Id::from_bits(head)
        );
        link.received(expected.to_bits(), || arrived(expected))?;
        self.receipts.arrived(expected.number);
        Ok(())
    }

    fn closed(&mut self) -> Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        ensure!(
            self.got == 0,
            "{} closed the connection within a message, after {} of its {} bytes",
            link.peer,
            self.got,
            self.size
        );
        ensure!(
            !self.is_udp,
            "{} closed the connection before it said how many messages it sent",
            link.peer
        );
        self.receipts.ended(self.receipts.received);
        self.link = None;
        Ok(())
    }

    /// Closes the connection of datagrams that are all here or given up: the producer waits for it.
    fn end_if_over(&mut self, now: Instant) {
        if self.until.is_some_and(|until| now >= until || self.receipts.is_complete()) {
            self.until = None;
            self.link = None;
        }
    }
}

fn arrived(id: Id) {
    event!(
        "pattern",
        "received",
        id.to_bits(),
        message_type = id.message_type,
        producer = id.producer
    );
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Until `instant`, a fraction of a millisecond more; `None`: no limit.
fn timeout(instant: Option<Instant>) -> EpollTimeout {
    let Some(instant) = instant else { return EpollTimeout::NONE };
    let left = instant.saturating_duration_since(Instant::now()).as_millis() + 1;
    EpollTimeout::try_from(i32::try_from(left).unwrap_or(i32::MAX)).unwrap_or(EpollTimeout::NONE)
}
