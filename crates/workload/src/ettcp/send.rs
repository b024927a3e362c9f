//! The sender: its settings, and its way through the phases.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use loopscope_phase::{Config, Phase, Session};

use super::content::Content;
use super::meter::{self, Job};
use super::report::{Report, Role};
use super::share::Share;
use super::socket::{self, Direction};
use super::tcp::Connection;
use super::udp;
use super::wire::{HEAD, Hello, VERSION};
use super::{Protocol, Stream};
use crate::cpu_time::CpuTime;
use crate::program::{NOT_CONNECTED, run};
use crate::quantity;
use crate::settings::Settings;
use crate::stop::{Background, Stop};
use crate::tcp::{Link, peer_addresses};

/// Largest block over TCP.
const BLOCK_LIMIT: usize = 16 << 20;

/// The block size of ttcp, in bytes.
const TCP_BLOCK: u64 = 8192;

/// Fits into a packet of the smallest usual MTU, unfragmented.
const UDP_BLOCK: u64 = 1400;

const KEYS: [&str; 14] = [
    "to",
    "protocol",
    "block-size",
    "blocks",
    "bytes",
    "duration",
    "rate",
    "streams",
    "random",
    "seed",
    "nodelay",
    "buffer",
    "congestion",
    "json",
];

/// Settings of the sender.
#[derive(Clone, Debug, clap::Args)]
pub struct SendArgs {
    /// Where to send: a component of the experiment, or host:port
    #[arg(long)]
    pub to: Option<String>,
    /// What carries the data
    #[arg(long, value_enum, default_value_t = Protocol::Tcp)]
    pub protocol: Protocol,
    /// Bytes of a write, for UDP of a packet; by default 8KiB, for UDP 1400B
    #[arg(long, value_parser = quantity::size)]
    pub block_size: Option<u64>,
    /// Blocks to send, all streams together
    #[arg(long)]
    pub blocks: Option<u64>,
    /// Bytes to send, all streams together, as in 1GiB
    #[arg(long, value_parser = quantity::size)]
    pub bytes: Option<u64>,
    /// How long to send, as in 10s
    #[arg(long, value_parser = quantity::duration)]
    pub duration: Option<Duration>,
    /// Rate of all streams together, as in 100Mbit, on average never above; by default unlimited
    #[arg(long, value_parser = quantity::rate)]
    pub rate: Option<u64>,
    /// Streams side by side
    #[arg(long, default_value_t = 1)]
    pub streams: u16,
    /// Send pseudo-random bytes instead of ttcp's printable characters
    #[arg(long)]
    pub random: bool,
    /// Seed of the random bytes
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// TCP: send small blocks at once (TCP_NODELAY)
    #[arg(long)]
    pub nodelay: bool,
    /// The socket's send buffer (SO_SNDBUF); by default the kernel's choice
    #[arg(long, value_parser = quantity::size)]
    pub buffer: Option<u64>,
    /// TCP: the congestion control, as in cubic or bbr; by default the kernel's choice
    #[arg(long)]
    pub congestion: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// The settings, laid over each other and checked.
struct Plan {
    to: String,
    protocol: Protocol,
    block: usize,
    bytes: Option<u64>,
    duration: Option<Duration>,
    rate: Option<u64>,
    streams: u16,
    seed: Option<u64>,
    nodelay: bool,
    buffer: Option<u64>,
    congestion: Option<String>,
    json: bool,
}

impl Plan {
    fn read(args: &SendArgs, settings: &Settings) -> Result<Plan> {
        let protocol = settings.choice("protocol", args.protocol)?;
        let udp = protocol == Protocol::Udp;
        let (default, least, most) =
            if udp { (UDP_BLOCK, HEAD, udp::LARGEST) } else { (TCP_BLOCK, 1, BLOCK_LIMIT) };
        let block = settings.size("block-size", args.block_size.unwrap_or(default), least, most)?;
        let blocks = match args.blocks.is_some() || settings.has("blocks") {
            true => Some(settings.number("blocks", args.blocks.unwrap_or(0), 1, 1 << 48)?),
            false => None,
        };
        let bytes = settings.optional("bytes", args.bytes, quantity::size)?;
        ensure!(bytes != Some(0), "`bytes` is 0 B; it must be at least 1 B");
        ensure!(
            blocks.is_none() || bytes.is_none(),
            "`blocks` and `bytes` both say how much to send; give one of them"
        );
        let of_blocks = blocks.map(|blocks| {
            blocks.checked_mul(block as u64).context("`blocks` are more than 2^64 B")
        });
        let bytes = bytes.or(of_blocks.transpose()?);
        let rate = settings.optional("rate", args.rate, quantity::rate)?;
        ensure!(rate != Some(0), "`rate` is 0 bit/s; it must be at least 1 bit/s");
        let random = settings.switch("random", args.random)?;
        let seed = settings.number("seed", args.seed, 0, i64::MAX as u64)?;
        let plan = Plan {
            to: settings
                .text("to", args.to.clone())?
                .context("there is no `to`: say where the data go, by --to or `with: {to}`")?,
            protocol,
            block,
            bytes,
            duration: settings.optional("duration", args.duration, quantity::duration)?,
            rate,
            streams: settings.number("streams", args.streams.into(), 1, 1000)? as u16,
            seed: random.then_some(seed),
            nodelay: settings.switch("nodelay", args.nodelay)?,
            buffer: settings.optional("buffer", args.buffer, quantity::size)?,
            congestion: settings.text("congestion", args.congestion.clone())?,
            json: settings.switch("json", args.json)?,
        };
        if udp && (plan.nodelay || plan.congestion.is_some()) {
            bail!("`nodelay` and `congestion` are TCP's; leave them out or say `protocol: tcp`");
        }
        Ok(plan)
    }

    fn hello(&self, stream: u16, token: u64) -> Hello {
        Hello {
            version: VERSION,
            token,
            stream,
            streams: self.streams,
            block: self.block as u32,
            seed: self.seed,
            background: self.is_endless(),
        }
    }

    fn is_endless(&self) -> bool {
        self.bytes.is_none() && self.duration.is_none()
    }

    fn connect(&self, phase: &Phase) -> Result<Streams> {
        let token = fastrand::u64(..);
        let hellos = (0..self.streams).map(|stream| self.hello(stream, token));
        match self.protocol {
            Protocol::Tcp => {
                let connections = hellos.map(|hello| {
                    let link = Link::connect(&self.to, phase)?;
                    let stream = link.stream();
                    stream.set_nodelay(self.nodelay)?;
                    if let Some(size) = self.buffer {
                        socket::set_buffer(stream, Direction::Send, size as usize)?;
                    }
                    if let Some(name) = &self.congestion {
                        socket::set_congestion(stream, name)?;
                    }
                    Connection::greet(link, hello)
                });
                Ok(Streams::Tcp(connections.collect::<Result<_>>()?))
            }
            Protocol::Udp => {
                let (peer, addresses) = peer_addresses(&self.to, phase)?;
                let senders = hellos.map(|hello| {
                    let socket =
                        connected(&addresses).with_context(|| format!("cannot send to {peer}"))?;
                    if let Some(size) = self.buffer {
                        socket::set_buffer(&socket, Direction::Send, size as usize)?;
                    }
                    udp::Sender::greet(socket, peer.clone(), hello)
                });
                Ok(Streams::Udp(senders.collect::<Result<_>>()?))
            }
        }
    }

    fn share(&self, stream: u16) -> Share {
        let which = (stream, self.streams);
        Share::of(which, self.block, self.bytes, self.duration, self.rate)
    }

    fn send(&self, streams: Streams, stop: &Stop) -> Result<()> {
        let before = CpuTime::of_process()?;
        let jobs = match streams {
            Streams::Tcp(connections) => {
                let job = |(stream, connection): (u16, Connection)| -> Job<Stream> {
                    let share = self.share(stream);
                    let content = Content::new(connection.hello.seed(), self.block);
                    Box::new(move |meter| Ok(vec![connection.send(&share, &content, meter, stop)?]))
                };
                (0..).zip(connections).map(job).collect()
            }
            Streams::Udp(senders) => {
                let job = |(stream, sender): (u16, udp::Sender)| -> Job<Stream> {
                    let share = self.share(stream);
                    let content = Content::new(self.hello(stream, 0).seed(), self.block);
                    Box::new(move |meter| Ok(vec![sender.send(&share, &content, meter, stop)?]))
                };
                (0..).zip(senders).map(job).collect::<Vec<_>>()
            }
        };
        let (streams, seconds) = meter::run(jobs, stop, !self.json)?;
        let cpu = CpuTime::of_process()?.since(before);
        let protocol = self.protocol;
        Report { role: Role::Send, protocol, streams, seconds, cpu, dropped: None }.print(self.json)
    }
}

enum Streams {
    Tcp(Vec<Connection>),
    Udp(Vec<udp::Sender>),
}

/// A socket of the right family, connected to the first address that can be.
fn connected(addresses: &[SocketAddr]) -> std::io::Result<UdpSocket> {
    let mut last = std::io::ErrorKind::AddrNotAvailable.into();
    for address in addresses {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        match socket.connect(address) {
            Ok(()) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

pub(super) fn run_phases(session: Session, args: &SendArgs, stop: &Arc<Stop>) -> Result<()> {
    let alone = session.component().is_none();
    let mut connected = None;
    let mut background = None;
    let outcome = run(session, |phase: &Phase, config: &Config| {
        let settings = Settings::new(config, &KEYS)?;
        match phase.name.as_str() {
            "connect" => {
                let plan = Plan::read(args, &settings)?;
                let streams = plan.connect(phase)?;
                connected = Some((plan, streams));
            }
            _ => {
                let (plan, streams) = connected.take().context(NOT_CONNECTED)?;
                stop.heed_signals()?;
                if alone || !plan.is_endless() {
                    plan.send(streams, stop)?;
                } else {
                    let heeded = Arc::clone(stop);
                    let work = move || plan.send(streams, &heeded);
                    background = Some(Background::start(stop, work));
                }
            }
        }
        Ok(vec![])
    });
    let ended = background.map_or(Ok(()), Background::finish);
    outcome.and(ended)
}
