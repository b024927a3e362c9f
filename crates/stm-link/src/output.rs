//! The home's side of an output connection of another host: puts the items that it sends.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use loopscope_stm::{NewItem, Time};
use loopscope_stm_shared::{
    FromOutput, LocalLoan, LocalOutput, PutError, Relay, Shared, ToOutput, Until, Unusable, now_ns,
    waits_until,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
    set_tcp_user_timeout,
};
use rustix::time::Timespec;

use crate::transport::{LEASE, LOOK_EVERY, await_bytes};

/// Has the kernel end a connection whose other side has been silent for the lease, though neither side
/// has anything to send.
pub(crate) fn end_silent(stream: &TcpStream) -> io::Result<()> {
    let third = LEASE / 3;
    set_socket_keepalive(stream, true)?;
    set_tcp_keepidle(stream, third)?;
    set_tcp_keepintvl(stream, third)?;
    set_tcp_keepcnt(stream, 2)?;
    let lease_ms = u32::try_from(LEASE.as_millis()).map_err(io::Error::other)?;
    Ok(set_tcp_user_timeout(stream, lease_ms)?)
}

/// The connection, and what it has at home.
struct Remote<'a> {
    stream: &'a TcpStream,
    reader: BufReader<&'a TcpStream>,
    output: LocalOutput,
    /// Loans whose items could not be put.
    kept: BTreeMap<u32, Kept>,
    /// Bytes that an item may have, and loans that it may have.
    item_bytes: usize,
    loans: u32,
}

/// The bytes of an item that could not be put.
enum Kept {
    Slot(LocalLoan),
    /// There was no slot.
    Bytes(Vec<u8>),
}

/// An item that is to be put.
struct Wanted {
    number: u32,
    item: NewItem,
    has_bytes: bool,
    until: Until,
}

/// Puts what comes on a connection, until it ends.
pub(crate) fn serve(stream: &TcpStream, channel: &Shared, output: LocalOutput) -> io::Result<()> {
    let reader = BufReader::with_capacity(1 << 16, stream);
    let (item_bytes, loans) = (channel.item_bytes(), channel.config().loans);
    let mut remote = Remote { stream, reader, output, kept: BTreeMap::new(), item_bytes, loans };
    loop {
        match remote.next() {
            Ok(()) => (),
            // Its program has left, or was killed while there was something for it.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
                ) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
}

impl Remote<'_> {
    /// Carries out the next message.
    fn next(&mut self) -> io::Result<()> {
        await_bytes(&mut self.reader, || self.output.relays(Relay::Waits))?;
        match FromOutput::receive(&mut self.reader)? {
            FromOutput::Put { loan: number, item, has_bytes, wait_ns } => {
                let until = waits_until(wait_ns);
                let done = self.put(&Wanted { number, item, has_bytes, until })?;
                let keeps = self.kept.contains_key(&number);
                self.answers(done, keeps, &[])
            }
            FromOutput::Asks => self.answers(Ok(()), false, &[]),
            FromOutput::AsksCollected(most) => {
                let collected = self.output.collected(most as usize).map_err(io::Error::other)?;
                self.answers(Ok(()), false, &collected)
            }
            other => self.carries_out(other),
        }
    }

    fn answers(
        &self,
        done: Result<(), PutError>,
        keeps: bool,
        collected: &[Time],
    ) -> io::Result<()> {
        let _sends = self.output.relays(Relay::Sends);
        let count = u32::try_from(collected.len()).map_err(io::Error::other)?;
        let mut message = vec![];
        ToOutput { done, keeps, at: now_ns(), collected: count }.send(&mut message)?;
        message.extend(collected.iter().flat_map(|time| time.to_le_bytes()));
        let mut stream = self.stream;
        stream.write_all(&message)
    }

    /// Carries out a message that has no answer.
    fn carries_out(&mut self, message: FromOutput) -> io::Result<()> {
        match message {
            FromOutput::GivesBack(loan) => {
                drop(self.kept.remove(&loan));
                Ok(())
            }
            FromOutput::Bound(time) => self.output.bound(time).map(drop).map_err(io::Error::other),
            FromOutput::Put { .. } | FromOutput::Asks | FromOutput::AsksCollected(_) => {
                let what = "it asks for something before it has the answer to what it asked before";
                Err(io::Error::new(io::ErrorKind::InvalidData, what))
            }
        }
    }

    /// Puts an item; the inner error is what the program is told.
    fn put(&mut self, wanted: &Wanted) -> io::Result<Result<(), PutError>> {
        let Wanted { number, item, has_bytes, until } = *wanted;
        let length = item.length as usize;
        if length > self.item_bytes || number >= self.loans {
            let what = format!("an item of {length} bytes in loan {number}, which cannot be");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        if has_bytes && !self.kept.contains_key(&number) && self.put_at_once(item) {
            return Ok(Ok(()));
        }
        let kept = self.kept.remove(&number);
        let filled = if has_bytes { Some(self.receive(kept, length)?) } else { kept };
        let mut loan = match filled {
            Some(Kept::Slot(loan)) => loan,
            Some(Kept::Bytes(bytes)) => match self.lend(&bytes, until)? {
                Ok(loan) => loan,
                Err(error) => {
                    self.kept.insert(number, Kept::Bytes(bytes));
                    return Ok(Err(error));
                }
            },
            None => {
                let what = format!("it has no loan {number} here");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        };
        loop {
            let (back, error) = match loan.relay(item, soon(until)) {
                Ok(()) => return Ok(Ok(())),
                Err(failed) => failed,
            };
            if !error.may_end() || is_over(until) {
                self.kept.insert(number, Kept::Slot(back));
                return Ok(Err(error));
            }
            loan = back;
            self.looks()?;
        }
    }

    /// Puts an item all of whose bytes have come, if it is small and there is room.
    fn put_at_once(&mut self, item: NewItem) -> bool {
        let Some(bytes) = self.reader.buffer().get(..item.length as usize) else { return false };
        let is_put = self.output.relay_copy(item, bytes);
        if is_put {
            self.reader.consume(item.length as usize);
        }
        is_put
    }

    /// Receives an item's bytes into the slot that it has or a new one. Where there is none, they are kept
    /// apart, because the messages behind them are to be seen meanwhile.
    fn receive(&mut self, kept: Option<Kept>, length: usize) -> io::Result<Kept> {
        let _receives = self.output.relays(Relay::Receives);
        let loan = match kept {
            Some(Kept::Slot(loan)) => Some(loan),
            _ => self.output.loan(Until::Now).ok(),
        };
        if let Some(mut loan) = loan {
            self.reader.read_exact(room(&mut loan, length)?)?;
            return Ok(Kept::Slot(loan));
        }
        let mut bytes = vec![0; length];
        self.reader.read_exact(&mut bytes)?;
        Ok(Kept::Bytes(bytes))
    }

    /// A slot with some bytes. Waits for it.
    fn lend(&mut self, bytes: &[u8], until: Until) -> io::Result<Result<LocalLoan, PutError>> {
        loop {
            match self.output.loan(soon(until)) {
                Ok(mut loan) => {
                    room(&mut loan, bytes.len())?.copy_from_slice(bytes);
                    return Ok(Ok(loan));
                }
                Err(error) if error.may_end() && !is_over(until) => self.looks()?,
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    /// Carries out what has come while a put waits for room: promises of other threads, and the end.
    fn looks(&mut self) -> io::Result<()> {
        while !self.reader.buffer().is_empty() || self.is_readable()? {
            let message = FromOutput::receive(&mut self.reader)?;
            self.carries_out(message)?;
        }
        Ok(())
    }

    fn is_readable(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(self.stream, PollFlags::IN)];
        Ok(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
    }
}

/// So many bytes of a slot.
fn room(loan: &mut LocalLoan, length: usize) -> io::Result<&mut [u8]> {
    loan.get_mut(..length).ok_or_else(|| io::Error::other(Unusable::Damaged))
}

/// Until when a wait goes on before it looks at the connection.
fn soon(until: Until) -> Until {
    let look = Instant::now() + LOOK_EVERY;
    match until {
        Until::Now => Until::Now,
        Until::Deadline(end) => Until::Deadline(end.min(look)),
        Until::Forever => Until::Deadline(look),
    }
}

fn is_over(until: Until) -> bool {
    match until {
        Until::Now => true,
        Until::Deadline(end) => end.saturating_duration_since(Instant::now()) == Duration::ZERO,
        Until::Forever => false,
    }
}
