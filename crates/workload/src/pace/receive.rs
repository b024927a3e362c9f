//! The receiver: its phases, its loops over datagrams and streams, and its report.

use std::io::ErrorKind;
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use loopscope_phase::{Config, Phase, Values};
use loopscope_trace::event;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, SockaddrStorage, sendto, setsockopt, sockopt};
use nix::sys::time::TimeVal;

use super::clocks::offset;
use super::options::Protocol;
use super::packet::{self, END, HEAD, Message, boot};
use super::received::Received;
use super::signals::Signals;
use super::text;
use crate::deadline::realtime;
use crate::program::NOT_CONNECTED;
use crate::quantity;
use crate::result::report;
use crate::settings::Settings;
use crate::stamped::{self, control};
use crate::tcp::{LISTEN_KEYS, ListenArgs, listen, listen_address};

/// What a socket's buffer should hold: more than a receiver sleeps through.
const BUFFER: usize = 8 << 20;

/// A read waits no longer than this, so that Ctrl-C is heeded.
const NAP: TimeVal = TimeVal::new(0, 100_000);

/// After the sender's end: how long nothing may come before what is missing is taken for lost.
const QUIET: Duration = Duration::from_millis(500);

/// A clock that moved this much against the other one was set.
const CLOCK_SET_NS: u64 = 5_000;

/// Settings of the receiver.
#[derive(Clone, Debug, clap::Args)]
pub struct ReceiveArgs {
    /// Where to listen.
    #[command(flatten)]
    pub listen: ListenArgs,
    /// How packets travel
    #[arg(long, value_enum, default_value = "udp")]
    pub protocol: Protocol,
    /// End after this time, if the sender's end does not come before
    #[arg(long, value_parser = quantity::duration)]
    pub duration: Option<Duration>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// What listens.
enum Inlet {
    Udp(UdpSocket),
    Tcp(TcpListener),
}

pub(super) fn receive(
    args: &ReceiveArgs,
    signals: &Signals,
    component: Option<&str>,
) -> impl FnMut(&Phase, &Config) -> Result<Values> {
    let known = [&["protocol", "duration"][..], &LISTEN_KEYS].concat();
    let mut ready = None;
    move |phase, config| {
        if phase.name == "listen" {
            let settings = Settings::new(config, &known)?;
            let duration = settings.optional("duration", args.duration, quantity::duration)?;
            let (inlet, values) = match settings.choice("protocol", args.protocol)? {
                Protocol::Udp => {
                    let own = listen_address(&args.listen, &settings, phase, component)?;
                    let socket =
                        UdpSocket::bind(own).with_context(|| format!("cannot listen on {own}"))?;
                    prepare(&socket)?;
                    let bound = socket.local_addr()?;
                    eprintln!("listening on {bound}");
                    (Inlet::Udp(socket), vec![("port".to_owned(), bound.port().into())])
                }
                Protocol::Tcp => {
                    let (listener, values) = listen(&args.listen, &settings, phase, component)?;
                    (Inlet::Tcp(listener), values)
                }
            };
            ready = Some((inlet, duration));
            return Ok(values);
        }
        let (inlet, duration) = ready.take().context(NOT_CONNECTED)?;
        let until = duration.map(|duration| Instant::now() + duration);
        let before = offset()?;
        signals.running();
        let mut received = Received::new();
        match inlet {
            Inlet::Udp(socket) => datagrams(&socket, &mut received, until, signals)?,
            Inlet::Tcp(listener) => streams(&listener, &mut received, until, signals)?,
        }
        signals.idle();
        let clock_set = before.abs_diff(offset()?) > CLOCK_SET_NS;
        let result = received.result(boot(), clock_set);
        report(args.json, &result, text::received(&result))?;
        Ok(vec![])
    }
}

fn over(until: Option<Instant>, signals: &Signals) -> bool {
    signals.stop() || until.is_some_and(|until| Instant::now() >= until)
}

fn datagrams(
    socket: &UdpSocket,
    received: &mut Received,
    until: Option<Instant>,
    signals: &Signals,
) -> Result<()> {
    let mut buffer = [0; 256];
    let mut control = control();
    let mut quiet_since = Instant::now();
    loop {
        // Only the beginning of longer datagrams is read.
        let read = stamped::read(socket, &mut buffer, &mut control, MsgFlags::MSG_TRUNC)
            .context("cannot receive")?;
        let Some(read) = read else {
            let quiet = quiet_since.elapsed() >= QUIET;
            if over(until, signals) || received.ended() && quiet {
                return Ok(());
            }
            continue;
        };
        quiet_since = Instant::now();
        if let Some(drops) = read.drops {
            received.socket_drops = drops.into();
        }
        let whole = &buffer[..read.length.min(buffer.len())];
        match packet::read(whole) {
            Some(Message::Packet(head)) if head.size as usize == read.length => {
                take(received, &head, read.stamp)?;
            }
            Some(Message::End(end)) if read.length == END => {
                if received.end(end)
                    && let Some(from) = read.from
                {
                    answer(socket, whole, &from);
                }
            }
            Some(Message::Hello) => {
                if let Some(from) = read.from {
                    answer(socket, whole, &from);
                }
            }
            _ => received.foreign += 1,
        }
        // Asked for seldom enough, and often enough for who never pauses.
        let asked = received.packets.is_multiple_of(1024) || received.ended();
        if asked && (over(until, signals) || received.complete()) {
            return Ok(());
        }
    }
}

/// Sends a message back; a sender that does not get it asks again.
fn answer(socket: &UdpSocket, message: &[u8], to: &SockaddrStorage) {
    let _ = sendto(socket.as_raw_fd(), message, to, MsgFlags::MSG_DONTWAIT);
}

/// Accounts for a packet that was read just now.
fn take(received: &mut Received, head: &packet::Head, stamp: Option<i64>) -> Result<()> {
    let at = match stamp {
        Some(stamp) => stamp,
        None => {
            received.unstamped += 1;
            realtime()?
        }
    };
    if !received.packet(head, at) {
        return Ok(());
    }
    stamped::received(stamp.filter(|_| stamped::is_asked()), head.number, || {
        event!(
            "pace",
            "received",
            head.number,
            delay_ns = at.saturating_sub(head.intended),
            size = head.size
        );
    })
}

/// Makes `socket` stamp, count its drops, and wake now and then.
fn prepare(socket: &impl AsFd) -> Result<()> {
    // More than a limit is for root, and what stands in the way of neither is not needed.
    if setsockopt(socket, sockopt::RcvBufForce, &BUFFER).is_err() {
        let _ = setsockopt(socket, sockopt::RcvBuf, &BUFFER);
    }
    stamped::stamp(socket)?;
    // A stream has no such count.
    let _ = setsockopt(socket, sockopt::RxqOvfl, &1);
    setsockopt(socket, sockopt::ReceiveTimeout, &NAP).context("cannot set a socket's timeout")
}

/// One process's connection.
struct Stream {
    socket: TcpStream,
    /// What came and is not taken yet.
    pending: Vec<u8>,
    /// Bytes of the packet being received that need not be looked at any more.
    skip: usize,
    /// The packet's head, once all of it is there.
    head: Option<packet::Head>,
    open: bool,
}

fn streams(
    listener: &TcpListener,
    received: &mut Received,
    until: Option<Instant>,
    signals: &Signals,
) -> Result<()> {
    let mut streams: Vec<Stream> = Vec::new();
    let mut buffer = vec![0; 256 << 10];
    let mut control = control();
    while !over(until, signals) {
        let mut polled = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        let open: Vec<usize> = (0..streams.len()).filter(|&at| streams[at].open).collect();
        polled.extend(
            open.iter().map(|&at| PollFd::new(streams[at].socket.as_fd(), PollFlags::POLLIN)),
        );
        match poll(&mut polled, PollTimeout::from(100_u8)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("cannot wait for the sender"),
        }
        let ready: Vec<bool> = polled.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        for (&at, _) in open.iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            streams[at].read(&mut buffer, &mut control, received)?;
        }
        if ready[0] {
            match listener.accept() {
                Ok((socket, _)) => streams.push(Stream::new(socket)?),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error).context("cannot accept a connection"),
            }
        }
        // A sender that broke off has closed its connection without an end.
        let closed = !streams.is_empty() && streams.iter().all(|stream| !stream.open);
        if received.ended() || closed && !received_more(listener)? {
            return Ok(());
        }
    }
    Ok(())
}

/// Whether another connection waits to be accepted.
fn received_more(listener: &TcpListener) -> Result<bool> {
    let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::from(100_u8)).context("cannot wait for the sender")?;
    Ok(polled[0].any().unwrap_or(false))
}

impl Stream {
    fn new(socket: TcpStream) -> Result<Stream> {
        prepare(&socket)?;
        Ok(Stream { socket, pending: Vec::new(), skip: 0, head: None, open: true })
    }

    fn read(
        &mut self,
        buffer: &mut [u8],
        control: &mut [u8],
        received: &mut Received,
    ) -> Result<()> {
        let read = match stamped::read(&self.socket, buffer, control, MsgFlags::MSG_DONTWAIT) {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(()),
            Err(Errno::ECONNRESET) => {
                self.open = false;
                return Ok(());
            }
            Err(error) => return Err(error).context("cannot receive"),
        };
        if read.length == 0 {
            self.open = false;
            return Ok(());
        }
        self.pending.extend_from_slice(&buffer[..read.length]);
        let mut rest = 0;
        while let Some(used) = self.next(rest, read.stamp, received)? {
            rest += used;
        }
        self.pending.drain(..rest);
        Ok(())
    }

    /// Takes what is next of what has come from `at` on; `None` where there is too little.
    fn next(
        &mut self,
        at: usize,
        stamp: Option<i64>,
        received: &mut Received,
    ) -> Result<Option<usize>> {
        let there = &self.pending[at..];
        if let Some(head) = self.head {
            // The content alone; the packet is there with its last byte.
            let used = self.skip.min(there.len());
            self.skip -= used;
            if self.skip == 0 {
                self.head = None;
                take(received, &head, stamp)?;
            }
            return Ok((used > 0 || self.skip == 0).then_some(used));
        }
        if there.len() < HEAD {
            return Ok(None);
        }
        match packet::read(&there[..there.len().min(END)]) {
            Some(Message::Packet(head)) => {
                self.skip = head.size as usize - HEAD;
                self.head = Some(head);
                Ok(Some(HEAD))
            }
            Some(Message::End(end)) => {
                received.end(end);
                self.open = false;
                let _ = self.socket.shutdown(Shutdown::Both);
                Ok(Some(END))
            }
            // Either the beginning of an end or something else.
            Some(Message::Hello) | None => {
                ensure!(
                    there.len() < END,
                    "what connected sends something else than packets; is it `pace send`?"
                );
                Ok(None)
            }
        }
    }
}
