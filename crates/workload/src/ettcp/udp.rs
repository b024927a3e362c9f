//! Streams over UDP.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use loopscope_trace::event;
use nix::errno::Errno;

use super::Stream;
use super::clock::{Clock, GLANCE, LATE, Patience, waits};
use super::content::Content;
use super::meter::Meter;
use super::sequence::Sequence;
use super::share::Share;
use super::wire::{self, Account, HEAD, Hello, Message, Packet};
use crate::stop::Stop;

/// Between two of the same message that nobody has answered.
const REPEAT: Duration = Duration::from_millis(50);

/// How long a receiver may wait for stragglers.
pub(super) const LONGEST_LINGER: Duration = Duration::from_secs(4);

/// How long a sender waits for an answer to its end: longer than that.
const ANSWER: Duration = Duration::from_secs(5);

/// How long a receiver that has sent its account answers a sender that has not received it.
const FAREWELL: Duration = Duration::from_secs(1);

/// The largest packet over IPv4.
pub(super) const LARGEST: usize = 65_507;

/// The sender's end of a stream.
pub(super) struct Sender {
    socket: UdpSocket,
    peer: String,
    hello: Hello,
}

impl Sender {
    /// Says hello until the receiver answers.
    pub(super) fn greet(socket: UdpSocket, peer: String, hello: Hello) -> Result<Sender> {
        socket.set_read_timeout(Some(REPEAT))?;
        let sender = Sender { socket, peer, hello };
        let until = Instant::now() + LATE;
        let answer = sender.ask(&Message::Hello(sender.hello.clone()), || Instant::now() >= until);
        match answer? {
            Some(Message::Ready) => Ok(sender),
            Some(_) => bail!("{} does not answer as an ettcp receiver", sender.peer),
            None => bail!(
                "{} does not answer within {} s; is `ettcp receive --protocol udp` there?",
                sender.peer,
                LATE.as_secs()
            ),
        }
    }

    /// Repeats `message` until an answer comes; `None`: it was `over` before.
    fn ask(&self, message: &Message, mut over: impl FnMut() -> bool) -> Result<Option<Message>> {
        let packet = wire::packet(self.hello.stream, self.hello.token, message)?;
        let mut buffer = [0; LARGEST];
        loop {
            match self.socket.send(&packet) {
                Ok(_) => {}
                // The peer is not there yet; or it went away, and the timeout will end this.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error).with_context(|| self.lost()),
            }
            let again = Instant::now() + REPEAT;
            while Instant::now() < again {
                let got = match self.socket.recv(&mut buffer) {
                    Ok(got) => got,
                    Err(error) if waits(error.kind()) => continue,
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                        std::thread::sleep(again.saturating_duration_since(Instant::now()));
                        continue;
                    }
                    Err(error) => return Err(error).with_context(|| self.lost()),
                };
                let answer = Packet::read(&buffer[..got]);
                let ours = answer.filter(|answer| {
                    (answer.token, answer.stream) == (self.hello.token, self.hello.stream)
                });
                match ours.and_then(|answer| answer.message()) {
                    // One of several hellos was answered late.
                    Some(Message::Ready) if !matches!(message, Message::Hello(_)) => {}
                    Some(answer) => return Ok(Some(answer)),
                    None => {}
                }
            }
            if over() {
                return Ok(None);
            }
        }
    }

    /// Sends the stream's share and waits for the receiver's account.
    pub(super) fn send(
        self,
        share: &Share,
        content: &Content,
        meter: &Meter,
        stop: &Stop,
    ) -> Result<Stream> {
        self.socket.set_write_timeout(Some(GLANCE))?;
        let begin = Instant::now();
        let mut account = Account::default();
        let clock = Clock { begin, share, stop };
        let sent = self.send_packets(&clock, content, &mut account, meter)?;
        account.seconds = begin.elapsed().as_secs_f64();
        let mut patience = Patience::new(stop);
        let until = Instant::now() + ANSWER;
        let end = Message::End(sent);
        let answer = self.ask(&end, || patience.is_over() || Instant::now() >= until)?;
        let peer = match answer {
            Some(Message::Account(account)) => Some(account),
            Some(_) => bail!("{} sends something else than its account", self.peer),
            None => None,
        };
        if peer.is_some() {
            let bye = wire::packet(self.hello.stream, self.hello.token, &Message::Bye)?;
            // Saves the receiver its wait; it may be gone already.
            let _ = self.socket.send(&bye);
        }
        Ok(Stream { stream: self.hello.stream, account, peer, tcp: None })
    }

    /// Sends; returns how many packets.
    fn send_packets(
        &self,
        clock: &Clock,
        content: &Content,
        account: &mut Account,
        meter: &Meter,
    ) -> Result<u64> {
        let block = self.hello.block as usize;
        let mut packet = vec![0; block];
        let mut number = 1;
        loop {
            // The last packet has at least a head.
            let size = match clock.share.next(account.bytes, block) {
                0 => break,
                size => size.max(HEAD),
            };
            if !clock.wait(account.bytes)? {
                break;
            }
            let id = wire::id(self.hello.stream, number);
            packet[..HEAD].copy_from_slice(&wire::head(id, self.hello.token));
            let body = content.window(offset(number, block), size - HEAD);
            packet[HEAD..size].copy_from_slice(body);
            event!("ettcp", "write", id, bytes = size as u64, offset = account.bytes);
            account.calls += 1;
            match self.socket.send(&packet[..size]) {
                Ok(_) => {
                    number += 1;
                    account.bytes += size as u64;
                    meter.add(size);
                }
                // The kernel has no room just now.
                Err(error)
                    if waits(error.kind())
                        || error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {}
                // The other end was told to stop a little earlier.
                Err(_) if clock.stop.is_set() => break,
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    return Err(error).with_context(|| format!("{}: nobody receives", self.lost()));
                }
                Err(error) => return Err(error).with_context(|| self.lost()),
            }
        }
        Ok(number - 1)
    }

    fn lost(&self) -> String {
        format!("lost {} (stream {})", self.peer, self.hello.stream)
    }
}

/// Where a packet's body begins in the stream's content.
fn offset(number: u64, block: usize) -> u64 {
    (number - 1) * (block - HEAD) as u64
}

/// All streams that come in at a socket.
pub(super) struct Receiver {
    socket: UdpSocket,
    streams: BTreeMap<u16, Incoming>,
    token: u64,
    block: usize,
    pub(super) background: bool,
}

struct Incoming {
    from: SocketAddr,
    sequence: Sequence,
    content: Option<Content>,
    account: Account,
    times: Option<(Instant, Instant)>,
    /// The sender has sent so many.
    sent: Option<u64>,
    /// Time of the last message from it.
    heard: Instant,
    /// The account is fixed.
    over: bool,
    bye: bool,
}

impl Receiver {
    /// Waits until all streams of a sender have said hello; `None` for `patience`: as long as it
    /// takes.
    pub(super) fn welcome(
        socket: UdpSocket,
        verify: bool,
        patience: Option<Duration>,
    ) -> Result<Receiver> {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(GLANCE))?;
        let until = patience.map(|patience| Instant::now() + patience);
        let (streams, background) = (BTreeMap::new(), false);
        let mut receiver = Receiver { socket, streams, token: 0, block: 0, background };
        let mut buffer = [0; LARGEST];
        let mut expected = None;
        while expected != Some(receiver.streams.len()) {
            if until.is_some_and(|until| Instant::now() >= until) {
                bail!("no ettcp sender came; which one's `to` names this one, over UDP?");
            }
            let (got, from) = match receiver.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if waits(error.kind()) => continue,
                Err(error) => return Err(error).context("cannot receive"),
            };
            let Some(packet) = Packet::read(&buffer[..got]) else { continue };
            let Some(Message::Hello(hello)) = packet.message() else { continue };
            if expected.is_some() && packet.token != receiver.token {
                continue;
            }
            wire::check(&hello).with_context(|| format!("the sender at {from}"))?;
            expected = Some(usize::from(hello.streams));
            receiver.token = hello.token;
            receiver.block = hello.block as usize;
            receiver.background = hello.background;
            let block = receiver.block;
            receiver.streams.entry(hello.stream).or_insert_with(|| Incoming {
                from,
                sequence: Sequence::new(),
                content: verify.then(|| Content::new(hello.seed(), block)),
                account: Account { verified: verify.then_some(0), ..Account::default() },
                times: None,
                sent: None,
                heard: Instant::now(),
                over: false,
                bye: false,
            });
            receiver.say(hello.stream, from, &Message::Ready)?;
        }
        Ok(receiver)
    }

    fn say(&self, stream: u16, to: SocketAddr, message: &Message) -> Result<()> {
        let packet = wire::packet(stream, self.token, message)?;
        // It counts as lost on the way and will be requested again.
        let _ = self.socket.send_to(&packet, to);
        Ok(())
    }

    /// Receives until all streams have ended and their senders know that it is known. `linger`: for
    /// how long after the end stragglers are waited for.
    pub(super) fn receive(
        mut self,
        linger: Duration,
        meter: &Meter,
        stop: &Stop,
    ) -> Result<Vec<Stream>> {
        let mut buffer = vec![0; LARGEST];
        let mut patience = Patience::new(stop);
        self.socket.set_read_timeout(Some(linger.clamp(Duration::from_millis(1), GLANCE)))?;
        while !self.is_over() && !patience.is_over() {
            match self.socket.recv_from(&mut buffer) {
                Ok((got, _)) => self.take(&buffer[..got], meter)?,
                Err(error) if waits(error.kind()) => {}
                Err(error) => return Err(error).context("cannot receive"),
            }
            self.settle(linger)?;
        }
        Ok(self.streams.into_iter().map(|(stream, incoming)| incoming.end(stream)).collect())
    }

    /// The socket once more, to look at.
    pub(super) fn socket(&self) -> Result<UdpSocket> {
        self.socket.try_clone().context("cannot share the socket")
    }

    fn is_over(&self) -> bool {
        self.streams
            .values()
            .all(|incoming| incoming.over && (incoming.bye || incoming.heard.elapsed() >= FAREWELL))
    }

    fn take(&mut self, bytes: &[u8], meter: &Meter) -> Result<()> {
        let Some(packet) = Packet::read(bytes).filter(|packet| packet.token == self.token) else {
            return Ok(());
        };
        let Some(incoming) = self.streams.get_mut(&packet.stream) else { return Ok(()) };
        let now = Instant::now();
        incoming.heard = now;
        if packet.number != 0 {
            if bytes.len() > self.block {
                // No packet of ours is so long.
                return Ok(());
            }
            incoming.data(&packet, bytes.len(), self.block, now);
            meter.add(bytes.len());
            return Ok(());
        }
        match packet.message() {
            Some(Message::End(sent)) if !incoming.over => incoming.sent = Some(sent),
            Some(Message::End(_)) => {
                let (to, account) = (incoming.from, incoming.account.clone());
                self.say(packet.stream, to, &Message::Account(account))?;
            }
            Some(Message::Bye) => incoming.bye = true,
            Some(Message::Hello(_)) => {
                let to = incoming.from;
                self.say(packet.stream, to, &Message::Ready)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Fixes the accounts of streams that are complete, or whose stragglers have had their time.
    fn settle(&mut self, linger: Duration) -> Result<()> {
        let mut told = Vec::new();
        for (&stream, incoming) in &mut self.streams {
            let Some(sent) = incoming.sent.filter(|_| !incoming.over) else { continue };
            let last = incoming.times.map_or(Duration::MAX, |(_, last)| last.elapsed());
            if incoming.sequence.complete(sent) || last >= linger {
                incoming.close(Some(sent));
                told.push((stream, incoming.from, incoming.account.clone()));
            }
        }
        for (stream, to, account) in told {
            self.say(stream, to, &Message::Account(account))?;
        }
        Ok(())
    }
}

impl Incoming {
    fn data(&mut self, packet: &Packet, size: usize, block: usize, now: Instant) {
        if self.over {
            return;
        }
        self.account.calls += 1;
        self.times = Some((self.times.map_or(now, |(first, _)| first), now));
        let id = wire::id(packet.stream, packet.number);
        event!("ettcp", "read", id, bytes = size as u64);
        if !self.sequence.arrive(packet.number) {
            return;
        }
        self.account.bytes += size as u64;
        if let Some(content) = &self.content {
            let offset = offset(packet.number, block);
            let wrong = content.wrong_at(offset, packet.body);
            self.account.wrong_at = self.account.wrong_at.or(wrong);
            let verified = &mut self.account.verified;
            *verified = verified.map(|bytes| bytes + packet.body.len() as u64);
        }
    }

    fn close(&mut self, sent: Option<u64>) {
        self.account.arrivals = Some(self.sequence.arrivals(sent));
        self.account.seconds = self.times.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
        self.over = true;
    }

    fn end(mut self, stream: u16) -> Stream {
        if !self.over {
            self.close(self.sent);
        }
        Stream { stream, account: self.account, peer: None, tcp: None }
    }
}
