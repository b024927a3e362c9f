//! Connected sockets of UDP, by an engine.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsFd;

use loopscope_stack::datagram::{HEADER, Waiting};
use loopscope_stack::packet::Flow;
use rustix::net::sockopt::socket_recv_buffer_size;

use super::{Engine, unexpected};
use crate::datagrams::{DatagramsId, Held, Leftover, Sent};
use crate::error::EngineError;
use crate::observe::Observe;
use crate::wire::{Answer, Request};

impl<O: Observe> Engine<O> {
    /// Has the datagrams come here that come for a connected socket of UDP, which no other process
    /// has. The kernel's socket stays as it is; what came to it before is there, and so is what
    /// comes in other ways, such as fragments and errors.
    pub fn take_datagrams(&mut self, socket: impl AsFd) -> Result<DatagramsId, EngineError> {
        let fd = socket.as_fd();
        let room = socket_recv_buffer_size(fd).map_err(|why| EngineError::Devices(why.into()))?;
        let (answer, _) = self.ask(&Request::TakeDatagrams, &[fd])?;
        let Answer::TakenDatagrams { connection, from, to, mtu } = answer else {
            return Err(unexpected());
        };
        let ip = if to.is_ipv4() { 20 } else { 40 };
        let most = mtu.saturating_sub(ip + HEADER);
        let held = Held { comes: Flow { from, to }, most, waiting: Waiting::new(room) };
        self.datagrams.add(connection, held);
        Ok(DatagramsId(connection))
    }

    /// Sends a datagram whose payload is in `parts`, at once.
    pub fn send_datagram(
        &mut self,
        DatagramsId(number): DatagramsId,
        parts: &[IoSlice<'_>],
    ) -> Result<Sent, EngineError> {
        let Some(held) = self.datagrams.held.get(&number) else { return Ok(Sent::NotHere) };
        let length = parts.iter().map(|part| part.len()).sum();
        if length > held.most {
            return Ok(Sent::TooLarge);
        }
        let Flow { from, to } = held.comes;
        let sent = self.devices.send_datagram(&Flow { from: to, to: from }, parts);
        Ok(match sent.map_err(EngineError::Devices)? {
            true => Sent::Whole(length),
            false => Sent::NotHere,
        })
    }

    /// Takes the first datagram that came: the bytes that were copied to `parts`, and those of the
    /// datagram, of which the others are lost. None: none waits here. The kernel's socket may have
    /// one.
    pub fn receive_datagram(
        &mut self,
        DatagramsId(number): DatagramsId,
        parts: &mut [IoSliceMut<'_>],
    ) -> Option<(usize, usize)> {
        self.datagrams.held.get_mut(&number)?.waiting.pop(parts)
    }

    /// Bytes of the first datagram that came. None: none waits here.
    pub fn first_datagram(&self, DatagramsId(number): DatagramsId) -> Option<usize> {
        self.datagrams.held.get(&number)?.waiting.first()
    }

    /// How many datagrams came so far, those that were dropped not counted.
    pub fn datagrams_came(&self, DatagramsId(number): DatagramsId) -> u64 {
        self.datagrams.held.get(&number).map_or(0, |held| held.waiting.came())
    }

    /// Both ends of a socket: this one and the other.
    pub fn datagrams_ends(&self, id: DatagramsId) -> Option<(SocketAddr, SocketAddr)> {
        let Flow { from, to } = self.datagrams.held.get(&id.0)?.comes;
        Some((to, from))
    }

    /// Leaves the datagrams of a socket to the kernel, and gives it those that were not read.
    pub fn give_datagrams_back(&mut self, id: DatagramsId) -> Result<Leftover, EngineError> {
        let DatagramsId(number) = id;
        let request = Request::GiveBack { connection: number, closing: false };
        match self.ask(&request, &[])?.0 {
            Answer::GivenBack => {}
            _ => return Err(unexpected()),
        }
        let dropped = self.give_kernel_the_rest(number);
        // Whatever became of it: the port is held until then.
        let counts = self.ask_to_forget(number)?;
        Ok(Leftover { counts, dropped: dropped? })
    }

    /// Gives the kernel what came for a socket and was not read; how many datagrams had had no
    /// room.
    fn give_kernel_the_rest(&mut self, number: u64) -> Result<u64, EngineError> {
        // From here on nothing comes any more, but for what is under way.
        self.receive_all(self.clock.elapsed())?;
        let Some(mut held) = self.datagrams.remove(number) else { return Ok(0) };
        let mut payload = vec![0; usize::from(u16::MAX)];
        while let Some((length, _)) = held.waiting.pop(&mut [IoSliceMut::new(&mut payload)]) {
            let given = self.devices.give_datagram(&held.comes, &payload[..length]);
            given.map_err(EngineError::Devices)?;
        }
        // What came in the meantime goes to the kernel.
        self.receive_all(self.clock.elapsed())?;
        Ok(held.waiting.dropped())
    }

    /// The same for a socket that the program then closes: what was not read is lost with it.
    pub fn close_datagrams(
        &mut self,
        DatagramsId(number): DatagramsId,
    ) -> Result<Leftover, EngineError> {
        let dropped = self.datagrams.remove(number).map_or(0, |held| held.waiting.dropped());
        Ok(Leftover { counts: self.ask_to_forget(number)?, dropped })
    }

    /// Takes a socket's datagrams out that came before the service has ended, which cannot go back
    /// to the kernel any more; and how many had no room.
    pub fn keep_datagrams(&mut self, DatagramsId(number): DatagramsId) -> (Option<Waiting>, u64) {
        // That it fails is of the devices, which are gone.
        let _ = self.receive_all(self.clock.elapsed());
        let waiting = self.datagrams.remove(number).map(|held| held.waiting);
        let dropped = waiting.as_ref().map_or(0, Waiting::dropped);
        (waiting, dropped)
    }
}
