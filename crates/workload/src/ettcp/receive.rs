//! The receiver: its settings, and its way through the phases.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use loopscope_phase::{Config, Phase, Session, Values};

use super::meter::{self, Job};
use super::report::{Report, Role};
use super::socket::{self, Direction};
use super::tcp::Connection;
use super::udp;
use super::{Protocol, Stream};
use crate::cpu_time::CpuTime;
use crate::program::{NOT_CONNECTED, run};
use crate::quantity;
use crate::settings::Settings;
use crate::stop::{Background, Stop};
use crate::tcp::{ACCEPT_TIMEOUT, LISTEN_KEYS, Link, ListenArgs, listen, listen_address};

/// Settings of the receiver.
#[derive(Clone, Debug, clap::Args)]
pub struct ReceiveArgs {
    /// Where to listen.
    #[command(flatten)]
    pub listen: ListenArgs,
    /// What carries the data
    #[arg(long, value_enum, default_value_t = Protocol::Tcp)]
    pub protocol: Protocol,
    /// Compare every byte with what the sender must have sent
    #[arg(long)]
    pub verify: bool,
    /// The socket's receive buffer (SO_RCVBUF); by default the kernel's choice
    #[arg(long, value_parser = quantity::size)]
    pub buffer: Option<u64>,
    /// TCP: the most that a stream may have on the way (TCP_WINDOW_CLAMP)
    #[arg(long, value_parser = quantity::size)]
    pub window: Option<u64>,
    /// UDP: how long after the end stragglers are waited for
    #[arg(long, default_value = "500ms", value_parser = quantity::duration)]
    pub linger: Duration,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// The settings, laid over each other and checked.
struct Plan {
    protocol: Protocol,
    verify: bool,
    buffer: Option<u64>,
    window: Option<u64>,
    linger: Duration,
    json: bool,
}

enum Socket {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

enum Streams {
    Tcp(Vec<Connection>),
    Udp(udp::Receiver),
}

impl Plan {
    fn read(args: &ReceiveArgs, settings: &Settings) -> Result<Plan> {
        let plan = Plan {
            protocol: settings.choice("protocol", args.protocol)?,
            verify: settings.switch("verify", args.verify)?,
            buffer: settings.optional("buffer", args.buffer, quantity::size)?,
            window: settings.optional("window", args.window, quantity::size)?,
            linger: settings.duration("linger", args.linger)?,
            json: settings.switch("json", args.json)?,
        };
        ensure!(
            plan.linger <= udp::LONGEST_LINGER,
            "`linger` is {:?}; it must be at most {:?}, for the sender waits little longer",
            plan.linger,
            udp::LONGEST_LINGER
        );
        if plan.protocol == Protocol::Udp && plan.window.is_some() {
            bail!("`window` is TCP's; leave it out or say `protocol: tcp`");
        }
        Ok(plan)
    }

    fn listen(
        &self,
        args: &ListenArgs,
        settings: &Settings,
        phase: &Phase,
        component: Option<&str>,
    ) -> Result<(Socket, Values)> {
        match self.protocol {
            Protocol::Tcp => {
                let (listener, values) = listen(args, settings, phase, component)?;
                // Before connections come: they take it over and scale their windows to it.
                self.set_buffer(&listener)?;
                if let Some(bytes) = self.window {
                    socket::set_window(&listener, bytes as usize)?;
                }
                Ok((Socket::Tcp(listener), values))
            }
            Protocol::Udp => {
                let address = listen_address(args, settings, phase, component)?;
                let socket = UdpSocket::bind(address)
                    .with_context(|| format!("cannot listen on {address} over UDP"))?;
                self.set_buffer(&socket)?;
                let bound = socket.local_addr()?;
                eprintln!("listening on {bound}");
                Ok((Socket::Udp(socket), vec![("port".to_owned(), bound.port().into())]))
            }
        }
    }

    fn set_buffer(&self, socket: &impl AsFd) -> Result<()> {
        match self.buffer {
            Some(size) => socket::set_buffer(socket, Direction::Receive, size as usize),
            None => Ok(()),
        }
    }

    fn connect(&self, socket: Socket, phase: &Phase, component: Option<&str>) -> Result<Streams> {
        match socket {
            Socket::Tcp(listener) => {
                let mut connections: Vec<Connection> = Vec::new();
                loop {
                    let link = Link::accept(&listener, phase, component)?;
                    let next = Connection::welcome(link)?;
                    let first = connections.first().map_or(&next.hello, |first| &first.hello);
                    ensure!(next.hello.token == first.token, "two senders came at once");
                    let streams = usize::from(next.hello.streams);
                    connections.push(next);
                    if connections.len() == streams {
                        return Ok(Streams::Tcp(connections));
                    }
                }
            }
            Socket::Udp(socket) => {
                let patience = component.map(|_| ACCEPT_TIMEOUT);
                Ok(Streams::Udp(udp::Receiver::welcome(socket, self.verify, patience)?))
            }
        }
    }

    fn receive(&self, streams: Streams, stop: &Stop) -> Result<()> {
        let before = CpuTime::of_process()?;
        let (verify, linger) = (self.verify, self.linger);
        let mut seen = None;
        let jobs = match streams {
            Streams::Tcp(connections) => {
                let job = |connection: Connection| -> Job<Stream> {
                    Box::new(move |meter| Ok(vec![connection.receive(verify, meter, stop)?]))
                };
                connections.into_iter().map(job).collect()
            }
            Streams::Udp(receiver) => {
                seen = Some(receiver.socket()?);
                let job: Job<Stream> = Box::new(move |meter| receiver.receive(linger, meter, stop));
                vec![job]
            }
        };
        let (streams, seconds) = meter::run(jobs, stop, !self.json)?;
        let cpu = CpuTime::of_process()?.since(before);
        let dropped = seen.and_then(|socket| socket::dropped(&socket));
        let protocol = self.protocol;
        Report { role: Role::Receive, protocol, streams, seconds, cpu, dropped }.print(self.json)
    }
}

pub(super) fn run_phases(session: Session, args: &ReceiveArgs, stop: &Arc<Stop>) -> Result<()> {
    let known =
        [&["protocol", "verify", "buffer", "window", "linger", "json"][..], &LISTEN_KEYS].concat();
    let component = session.component().map(str::to_owned);
    let component = component.as_deref();
    let mut listening = None;
    let mut connected = None;
    let mut background = None;
    let outcome = run(session, |phase: &Phase, config: &Config| {
        let settings = Settings::new(config, &known)?;
        match phase.name.as_str() {
            "listen" => {
                let plan = Plan::read(args, &settings)?;
                let (socket, values) = plan.listen(&args.listen, &settings, phase, component)?;
                listening = Some((plan, socket));
                return Ok(values);
            }
            "connect" => {
                let (plan, socket) = listening.take().context(NOT_CONNECTED)?;
                let streams = plan.connect(socket, phase, component)?;
                connected = Some((plan, streams));
            }
            _ => {
                let (plan, streams) = connected.take().context(NOT_CONNECTED)?;
                stop.heed_signals()?;
                if component.is_none() || !streams.are_endless() {
                    plan.receive(streams, stop)?;
                } else {
                    let heeded = Arc::clone(stop);
                    let work = move || plan.receive(streams, &heeded);
                    background = Some(Background::start(stop, work));
                }
            }
        }
        Ok(vec![])
    });
    let ended = background.map_or(Ok(()), Background::finish);
    outcome.and(ended)
}

impl Streams {
    fn are_endless(&self) -> bool {
        match self {
            Streams::Tcp(connections) => connections.iter().any(|each| each.hello.background),
            Streams::Udp(receiver) => receiver.background,
        }
    }
}
