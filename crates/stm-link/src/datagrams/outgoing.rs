//! A home's way to a mirror by datagrams.

use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loopscope_stm::NewItem;
use loopscope_stm_shared::{HomeEnd, now_ns};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};

use crate::datagrams::packet::{LONGEST, parts_of, read_acknowledged};
use crate::datagrams::sender::Sender;
use crate::datagrams::{Address, await_any, next_datagram, with_port};
use crate::transport::LOOK_EVERY;

/// The datagrams of one connection.
pub(crate) struct Outgoing<'a> {
    end: &'a HomeEnd,
    socket: UdpSocket,
    token: u64,
    lifespan_ns: i64,
    sender: Mutex<Sender>,
    /// An eventfd that wakes `run`, which has to be awake sooner than it knew.
    woken: OwnedFd,
}

impl<'a> Outgoing<'a> {
    /// To the mirror at the other end of a connection, which takes them at `to`, with so many items that
    /// wait at most.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn new(
        end: &'a HomeEnd,
        stream: &TcpStream,
        to: Address,
        lifespan: Duration,
        most_waiting: usize,
    ) -> io::Result<Outgoing<'a>> {
        let socket = UdpSocket::bind(with_port(stream.local_addr()?, 0))?;
        socket.connect(with_port(stream.peer_addr()?, to.port))?;
        let lifespan_ns = i64::try_from(lifespan.as_nanos()).unwrap_or(i64::MAX);
        let woken = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let sender = Mutex::new(Sender::new(most_waiting));
        Ok(Outgoing { end, socket, token: to.token, lifespan_ns, sender, woken })
    }

    /// Sends an item; its number, and that of one that is given up for it.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn send(&self, item: NewItem, bytes: &[u8]) -> io::Result<(u64, Option<u64>)> {
        let mut sender = self.locked();
        let was_idle = sender.wakes().is_none();
        let deadline = item.put_ns.saturating_add(self.lifespan_ns);
        let serial = sender.offer(item, bytes, deadline);
        self.send_all(&mut sender)?;
        if was_idle {
            rustix::io::write(&self.woken, &1_u64.to_ne_bytes())?;
        }
        Ok((serial, sender.gives_up()))
    }

    /// Sends what has to be sent again, until `over`.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn run(&self, over: &AtomicBool) -> io::Result<()> {
        let mut datagram = [0; LONGEST];
        while !over.load(Ordering::Relaxed) {
            let longest = i64::try_from(LOOK_EVERY.as_nanos()).unwrap_or(i64::MAX);
            let wakes = self.locked().wakes().map_or(longest, |at| at.saturating_sub(now_ns()));
            let mut fds =
                [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.woken, PollFlags::IN)];
            await_any(&mut fds, wakes.clamp(0, longest))?;
            _ = rustix::io::read(&self.woken, &mut [0; 8]);
            let mut sender = self.locked();
            while let Some((length, _)) = next_datagram(&self.socket, &mut datagram)? {
                if let Some(ranges) = read_acknowledged(self.token, &datagram[..length]) {
                    sender.acknowledged(now_ns(), &ranges);
                }
            }
            sender.timeout(now_ns());
            self.send_all(&mut sender)?;
        }
        Ok(())
    }

    fn send_all(&self, sender: &mut Sender) -> io::Result<()> {
        let mut datagram = Vec::with_capacity(LONGEST);
        while let Some((part, bytes)) = sender.next(now_ns()) {
            part.write(self.token, bytes, &mut datagram);
            let (item, length) = (part.item, datagram.len() as u32);
            self.end.sends_datagram(item.time, part.part, parts_of(item.length), length);
            match self.socket.send(&datagram) {
                Ok(_) => (),
                // Nobody is there, or there is no room: it is sent again as if it had been lost.
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionRefused
                        || error.raw_os_error()
                            == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn locked(&self) -> MutexGuard<'_, Sender> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
