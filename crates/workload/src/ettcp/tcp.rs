//! Streams over TCP.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use loopscope_trace::event;

use super::Stream;
use super::clock::{Clock, GLANCE, LATE, Patience, waits};
use super::content::Content;
use super::meter::Meter;
use super::share::Share;
use super::socket::TcpState;
use super::wire::{self, Account, Hello, Message};
use crate::stop::Stop;
use crate::tcp::Link;

/// A connection whose ends know each other.
pub(super) struct Connection {
    link: Link,
    pub(super) hello: Hello,
}

impl Connection {
    /// The sender's end.
    pub(super) fn greet(link: Link, hello: Hello) -> Result<Connection> {
        link.stream().set_read_timeout(Some(LATE))?;
        wire::send(link.stream(), &Message::Hello(hello.clone()))
            .with_context(|| format!("lost {}", link.peer))?;
        match wire::receive(link.stream()) {
            Ok(Message::Ready) => Ok(Connection { link, hello }),
            Ok(_) => bail!("{} does not answer as an ettcp receiver", link.peer),
            Err(error) => Err(error).with_context(|| {
                format!("{} does not answer; is `ettcp receive` there?", link.peer)
            }),
        }
    }

    /// The receiver's end.
    pub(super) fn welcome(link: Link) -> Result<Connection> {
        link.stream().set_read_timeout(Some(LATE))?;
        let message = wire::receive(link.stream());
        let message = message.with_context(|| format!("{} says no hello", link.peer))?;
        let Message::Hello(hello) = message else {
            bail!("{} is no ettcp sender", link.peer);
        };
        wire::check(&hello).with_context(|| link.peer.clone())?;
        wire::send(link.stream(), &Message::Ready)
            .with_context(|| format!("lost {}", link.peer))?;
        Ok(Connection { link, hello })
    }

    /// Sends the stream's share and waits for the receiver's account.
    pub(super) fn send(
        self,
        share: &Share,
        content: &Content,
        meter: &Meter,
        stop: &Stop,
    ) -> Result<Stream> {
        let stream = self.link.stream();
        stream.set_write_timeout(Some(GLANCE))?;
        let mut account = Account::default();
        let begin = Instant::now();
        self.send_blocks(share, content, &mut account, meter, &Clock { begin, share, stop })?;
        account.seconds = begin.elapsed().as_secs_f64();
        let tcp = TcpState::of(stream);
        let peer = match self.account(stop) {
            Err(_) if stop.is_set() => None,
            account => account?,
        };
        Ok(Stream { stream: self.hello.stream, account, peer, tcp })
    }

    fn send_blocks(
        &self,
        share: &Share,
        content: &Content,
        account: &mut Account,
        meter: &Meter,
        clock: &Clock,
    ) -> Result<()> {
        let mut stream = self.link.stream();
        for number in 1.. {
            let size = share.next(account.bytes, self.hello.block as usize);
            if size == 0 || !clock.wait(account.bytes)? {
                break;
            }
            let id = wire::id(self.hello.stream, number);
            let mut rest = content.window(account.bytes, size);
            event!("ettcp", "write", id, bytes = size as u64, offset = account.bytes);
            while !rest.is_empty() {
                match stream.write(rest) {
                    Ok(written) => {
                        rest = &rest[written..];
                        account.calls += 1;
                        account.bytes += written as u64;
                        meter.add(written);
                    }
                    Err(error) if waits(error.kind()) => {
                        if clock.is_over() {
                            return Ok(());
                        }
                    }
                    // The other end was told to stop a little earlier.
                    Err(_) if clock.stop.is_set() => return Ok(()),
                    Err(error) => {
                        return Err(error).with_context(|| self.lost("while sending"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends the stream. The receiver's account; `None` if it does not come in time after the order
    /// to stop.
    fn account(&self, stop: &Stop) -> Result<Option<Account>> {
        let stream = self.link.stream();
        stream.shutdown(Shutdown::Write).with_context(|| self.lost("at the end"))?;
        stream.set_read_timeout(Some(GLANCE))?;
        let mut patience = Patience::new(stop);
        loop {
            match stream.peek(&mut [0]) {
                Ok(0) => bail!(self.lost("before the receiver's account came")),
                Ok(_) => break,
                Err(error) if waits(error.kind()) => {
                    if patience.is_over() {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error).with_context(|| self.lost("at the end")),
            }
        }
        stream.set_read_timeout(Some(LATE))?;
        match wire::receive(stream).with_context(|| self.lost("at the end"))? {
            Message::Account(account) => Ok(Some(account)),
            _ => bail!("{} sends something else than its account", self.link.peer),
        }
    }

    /// Receives the stream to its end and gives account of it.
    pub(super) fn receive(self, verify: bool, meter: &Meter, stop: &Stop) -> Result<Stream> {
        let mut stream = self.link.stream();
        stream.set_read_timeout(Some(GLANCE))?;
        let block = u64::from(self.hello.block);
        let content = verify.then(|| Content::new(self.hello.seed(), block as usize));
        let mut buffer = vec![0; block as usize];
        let mut account = Account { verified: verify.then_some(0), ..Account::default() };
        let mut times: Option<(Instant, Instant)> = None;
        let mut patience = Patience::new(stop);
        loop {
            let got = match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(got) => got,
                Err(error) if waits(error.kind()) => {
                    if patience.is_over() {
                        break;
                    }
                    continue;
                }
                Err(_) if stop.is_set() => break,
                Err(error) => return Err(error).with_context(|| self.lost("while receiving")),
            };
            let now = Instant::now();
            times = Some((times.map_or(now, |(first, _)| first), now));
            let before = account.bytes;
            account.bytes += got as u64;
            account.calls += 1;
            // A read has at most a block, so it ends at most one.
            if before / block != account.bytes / block {
                self.read_event(account.bytes / block, block);
            }
            if let Some(content) = &content {
                let wrong = content.wrong_at(before, &buffer[..got]);
                account.wrong_at = account.wrong_at.or(wrong);
                account.verified = account.verified.map(|bytes| bytes + got as u64);
            }
            meter.add(got);
            if patience.is_over() {
                break;
            }
        }
        if !account.bytes.is_multiple_of(block) {
            self.read_event(account.bytes / block + 1, account.bytes % block);
        }
        account.seconds = times.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
        let told = wire::send(stream, &Message::Account(account.clone()));
        if !stop.is_set() {
            told.with_context(|| self.lost("at the end"))?;
        }
        Ok(Stream { stream: self.hello.stream, account, peer: None, tcp: None })
    }

    fn read_event(&self, block: u64, bytes: u64) {
        event!("ettcp", "read", wire::id(self.hello.stream, block), bytes = bytes);
    }

    fn lost(&self, when: &str) -> String {
        format!("lost {} {when} (stream {})", self.link.peer, self.hello.stream)
    }
}
