//! Connections between the programs: who listens, who connects, and errors that name the peer.

use std::fmt::Display;
use std::io::{self, IoSlice, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use loopscope_phase::{Phase, Values};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::departures::{Departures, Sent};
use crate::settings::Settings;
use crate::stamped::Reader;

/// How long a program tries to connect to its peer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a program in an experiment waits for its peer to connect: longer than that peer tries.
pub(crate) const ACCEPT_TIMEOUT: Duration = Duration::from_secs(4);

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(20);

/// Where to listen.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ListenArgs {
    /// Port to listen on; 0: one that is free
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Address to listen on; in an experiment the host's data address, else any
    #[arg(long)]
    pub address: Option<IpAddr>,
}

/// The keys of [`ListenArgs`].
pub(crate) const LISTEN_KEYS: [&str; 2] = ["port", "address"];

/// Listens as settings and arguments say, on the data address of `component` where the experiment
/// knows it. Says on standard error where; returns the port to publish as well.
pub(crate) fn listen(
    args: &ListenArgs,
    settings: &Settings,
    phase: &Phase,
    component: Option<&str>,
) -> Result<(TcpListener, Values)> {
    let address = listen_address(args, settings, phase, component)?;
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    eprintln!("listening on {bound}");
    Ok((listener, vec![("port".to_owned(), bound.port().into())]))
}

/// Where settings and arguments say to listen.
pub(crate) fn listen_address(
    args: &ListenArgs,
    settings: &Settings,
    phase: &Phase,
    component: Option<&str>,
) -> Result<SocketAddr> {
    let port = settings.number("port", args.port.into(), 0, u16::MAX.into())? as u16;
    let address = match settings.text("address", args.address)? {
        Some(address) => address,
        None => match component.and_then(|component| phase.peers.get(component)) {
            Some(own) => own
                .address
                .parse()
                .with_context(|| format!("the data address of this host is `{}`", own.address))?,
            None => Ipv4Addr::UNSPECIFIED.into(),
        },
    };
    Ok(SocketAddr::new(address, port))
}

/// One end of a connection.
pub(crate) struct Link {
    stream: TcpStream,
    reader: Reader,
    departures: Departures,
    /// The peer, for people.
    pub(crate) peer: String,
}

impl Link {
    /// Waits for one peer; without an experiment (no `component`) as long as it takes.
    pub(crate) fn accept(
        listener: &TcpListener,
        phase: &Phase,
        component: Option<&str>,
    ) -> Result<Link> {
        let until = component.map(|_| Instant::now() + ACCEPT_TIMEOUT);
        let (stream, from) = loop {
            match listener.accept() {
                Ok(accepted) => break accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A peer that gave up before it was accepted; another may come.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("cannot accept a connection"),
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                bail!(
                    "no component connected within {} s; which one's `to` names this one?",
                    ACCEPT_TIMEOUT.as_secs()
                );
            }
            wait_readable(listener, left)?;
        };
        // Address and host are all that tells who it is: several components may share them.
        let host = phase.peers.values().find(|peer| peer.address == from.ip().to_string());
        let peer = match host {
            Some(host) => format!("the sender at {from} on {}", host.host),
            None => format!("the peer at {from}"),
        };
        Link::new(stream, peer)
    }

    /// Connects to `to`, a component that has published its port or else `host:port`. Tries again
    /// until the timeout.
    pub(crate) fn connect(to: &str, phase: &Phase) -> Result<Link> {
        Link::connect_at(to, None, phase)
    }

    /// The same; `port`, where it is given, instead of the peer's own.
    pub(crate) fn connect_at(to: &str, port: Option<u16>, phase: &Phase) -> Result<Link> {
        let (peer, mut addresses) = peer_addresses(to, phase)?;
        if let Some(port) = port {
            addresses.iter_mut().for_each(|address| address.set_port(port));
        }
        let until = Instant::now() + CONNECT_TIMEOUT;
        loop {
            let error = match connect_once(&addresses, until) {
                Ok(stream) => return Link::new(stream, peer),
                Err(error) => error,
            };
            if Instant::now() + RETRY >= until {
                let seconds = CONNECT_TIMEOUT.as_secs();
                return Err(error)
                    .with_context(|| format!("cannot connect to {peer} within {seconds} s"));
            }
            std::thread::sleep(RETRY);
        }
    }

    fn new(stream: TcpStream, peer: String) -> Result<Link> {
        // Messages leave as they are written, none waits for an earlier one's acknowledgement.
        stream.set_nodelay(true)?;
        let (reader, departures) = (Reader::new(&stream)?, Departures::new(&stream)?);
        Ok(Link { stream, reader, departures, peer })
    }

    /// The socket, for what needs no name of the peer.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// What one call reads.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(&self.stream, buffer)
    }

    /// Has `record` record that message `id` was received; see [`crate::stamped`].
    pub(crate) fn received(&self, id: u64, record: impl FnOnce()) -> Result<()> {
        self.reader.received(id, record)
    }

    /// Fills `buffer` and returns its length; less where the peer closed the connection before.
    /// `what` is being received, for the error.
    pub(crate) fn receive(&mut self, buffer: &mut [u8], what: impl Display) -> Result<usize> {
        let mut got = 0;
        while got < buffer.len() {
            match self.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("lost {} while receiving {what}", self.peer));
                }
            }
        }
        Ok(got)
    }

    /// Hands all of `bytes` to the kernel.
    pub(crate) fn send(&mut self, bytes: &[u8], what: impl Display) -> Result<()> {
        self.stream
            .write_all(bytes)
            .with_context(|| format!("lost {} while sending {what}", self.peer))?;
        self.departures.handed(bytes.len());
        Ok(())
    }

    /// Has `record` record that message `id` is sent, and hands all of `bytes`, its last, to the
    /// kernel; see [`crate::departures`].
    pub(crate) fn send_message(
        &mut self,
        id: u64,
        record: impl FnOnce(),
        bytes: &[u8],
        what: impl Display,
    ) -> Result<()> {
        let ((), sent) = Departures::sending(id, record)?;
        self.send(bytes, what)?;
        self.departures.ended(&self.stream, sent)
    }

    /// Hands to the kernel what it takes without waiting; how many bytes these are.
    pub(crate) fn send_some(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let taken = (&self.stream).write_vectored(parts)?;
        self.departures.handed(taken);
        Ok(taken)
    }

    /// What was sent last is the end of a message.
    pub(crate) fn ended(&mut self, sent: Option<Sent>) -> Result<()> {
        self.departures.ended(&self.stream, sent)
    }

    /// Records when messages left, as far as the kernel has told.
    pub(crate) fn record_departures(&mut self) -> Result<()> {
        self.departures.record(&self.stream)
    }

    /// Ends what this side sends, and waits until the peer has taken everything and closed.
    pub(crate) fn finish(mut self, what: impl Display) -> Result<()> {
        self.stream
            .shutdown(Shutdown::Write)
            .with_context(|| format!("lost {} at {what}", self.peer))?;
        let got = self.receive(&mut [0], &what)?;
        ensure!(got == 0, "{} sent something where nothing was due, at {what}", self.peer);
        self.record_departures()
    }
}

/// Name and addresses of `to`: a component that has published its port, or `host:port`.
pub(crate) fn peer_addresses(to: &str, phase: &Phase) -> Result<(String, Vec<SocketAddr>)> {
    match phase.peers.get(to) {
        Some(component) => {
            let port = component.values.get("port").and_then(|port| port.as_u64());
            let port = port.and_then(|port| u16::try_from(port).ok()).with_context(|| {
                format!(
                    "component `{to}` has published no port; does it take part in a phase \
                     `listen` before `{}`?",
                    phase.name
                )
            })?;
            let address: IpAddr = component.address.parse().with_context(|| {
                format!("the data address of `{to}` is `{}`", component.address)
            })?;
            let address = SocketAddr::new(address, port);
            Ok((format!("{to} at {address}"), vec![address]))
        }
        None => Ok((to.to_owned(), resolve(to, phase)?)),
    }
}

fn resolve(to: &str, phase: &Phase) -> Result<Vec<SocketAddr>> {
    if !phase.peers.is_empty() && !to.contains(':') {
        let names: Vec<&str> = phase.peers.keys().map(String::as_str).collect();
        bail!("there is no component `{to}`; the experiment has {}", names.join(", "));
    }
    let addresses: Vec<SocketAddr> = to
        .to_socket_addrs()
        .with_context(|| format!("`{to}` is no address; write host:port, as in 127.0.0.1:5000"))?
        .collect();
    ensure!(!addresses.is_empty(), "`{to}` has no address");
    Ok(addresses)
}

fn connect_once(addresses: &[SocketAddr], until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::TimedOut);
    for address in addresses {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(address, left) {
            // No process listens: the kernel has given this socket the very port that it tries.
            Ok(stream) if stream.local_addr()? == stream.peer_addr()? => {
                last = io::ErrorKind::ConnectionRefused.into();
            }
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Waits until `socket` is readable, a signal comes or the time is over; `None`: no limit.
fn wait_readable(socket: &TcpListener, left: Option<Duration>) -> Result<()> {
    let timeout = match left {
        // A fraction of a millisecond more, so that the time is really over then.
        Some(left) => PollTimeout::try_from(left.as_millis() as i32 + 1)?,
        None => PollTimeout::NONE,
    };
    match poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for a connection"),
    }
}
