//! A mirror's end of the way by datagrams: puts items that come whole before their deadlines, and tells of
//! those that do not.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loopscope_stm::{NewItem, Time, ToMirror};
use loopscope_stm_shared::{MirrorEnd, PeerClock, PutError, Relay, Room, Until, now_ns};
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::set_socket_recv_buffer_size;

use crate::datagrams::packet::{LONGEST, Part, write_acknowledged};
use crate::datagrams::receiver::{Receiver, Whole};
use crate::datagrams::{Door, await_any, next_datagram};

/// Bytes that the socket keeps until they are read; the system may allow fewer (net.core.rmem_max).
const RECEIVE_BUFFER: usize = 4 << 20;
/// It looks so often for deadlines, and whether there is room, while items are on their way or wait.
const LOOK_NS: i64 = 5_000_000;
const IDLE_NS: i64 = 50_000_000;
/// Items that are told of and do not come, before any has: then something keeps datagrams away.
const MISSED: u32 = 5;

/// A mirror's end of the datagrams of one connection.
pub(crate) struct Incoming<'a> {
    end: &'a MirrorEnd,
    clock: &'a Mutex<PeerClock>,
    door: &'a Door,
    lifespan_ns: i64,
    state: Mutex<State>,
}

struct State {
    receiver: Receiver,
    /// What the home has told, in its order, from the first item on that is not settled.
    order: VecDeque<Told>,
    /// Items that are whole, and wait for room.
    ready: VecDeque<Whole>,
    has_heard: bool,
    missed: u32,
}

impl State {
    /// For how long there is nothing to do if no datagram comes, ns.
    fn wait(&self, now: i64) -> i64 {
        let is_idle = self.order.is_empty() && self.ready.is_empty();
        let most = if is_idle { IDLE_NS } else { LOOK_NS };
        self.receiver.says_at().map_or(most, |at| at.saturating_sub(now).clamp(0, most))
    }
}

enum Told {
    Item { serial: u64, item: NewItem },
    Message(ToMirror),
}

/// Datagrams do not come, though items are sent.
#[derive(Debug)]
pub(crate) struct KeptAway;

impl std::fmt::Display for KeptAway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "its datagrams do not come here (a firewall?), so items come by TCP from now on",
        )
    }
}

impl std::error::Error for KeptAway {}

impl<'a> Incoming<'a> {
    pub(crate) fn new(
        end: &'a MirrorEnd,
        clock: &'a Mutex<PeerClock>,
        door: &'a Door,
        lifespan: Duration,
        item_bytes: usize,
    ) -> Incoming<'a> {
        // Where the system gives less, more is sent again.
        _ = set_socket_recv_buffer_size(&door.socket, RECEIVE_BUFFER);
        let state = State {
            receiver: Receiver::new(item_bytes),
            order: VecDeque::new(),
            ready: VecDeque::new(),
            has_heard: false,
            missed: 0,
        };
        let lifespan_ns = i64::try_from(lifespan.as_nanos()).unwrap_or(i64::MAX);
        Incoming { end, clock, door, lifespan_ns, state: Mutex::new(state) }
    }

    /// The home has told that an item comes in datagrams.
    pub(crate) fn announced(&self, serial: u64, item: NewItem) -> io::Result<()> {
        let mut state = self.locked();
        state.order.push_back(Told::Item { serial, item });
        self.settle(&mut state)
    }

    /// The home has told that it has given an item up.
    pub(crate) fn given_up(&self, serial: u64) -> io::Result<()> {
        let mut state = self.locked();
        let State { receiver, order, .. } = &mut *state;
        for told in order.iter() {
            if let Told::Item { serial: its, item } = told
                && *its == serial
                && !receiver.is_settled(serial)
            {
                receiver.give_up(serial);
                self.lose(item.time)?;
            }
        }
        self.settle(&mut state)
    }

    /// Carries out a message of the home, behind all items that were told before.
    pub(crate) fn receive(&self, message: ToMirror) -> io::Result<()> {
        let mut state = self.locked();
        state.order.push_back(Told::Message(message));
        self.settle(&mut state)
    }

    /// Takes datagrams until `over`.
    pub(crate) fn run(&self, over: &AtomicBool) -> io::Result<()> {
        let mut datagram = [0; LONGEST];
        let mut lent = None;
        while !over.load(Ordering::Relaxed) {
            let wait = self.locked().wait(now_ns());
            let waits = self.end.relays(Relay::Waits);
            let mut fds = [PollFd::new(&self.door.socket, PollFlags::IN)];
            await_any(&mut fds, wait)?;
            drop(waits);
            let receives = self.end.relays(Relay::Receives);
            let mut state = self.locked();
            let mut home = None;
            while let Some((length, from)) = next_datagram(&self.door.socket, &mut datagram)? {
                if self.arrives(&mut state, &datagram[..length])? {
                    home = from.or(home);
                }
            }
            drop(receives);
            self.expire(&mut state)?;
            self.put_all(&mut state, &mut lent)?;
            self.acknowledge(&mut state, home)?;
            self.settle(&mut state)?;
            if !state.has_heard && state.missed >= MISSED {
                return Err(io::Error::other(KeptAway));
            }
        }
        Ok(())
    }

    /// Takes a datagram; whether it is of this connection.
    fn arrives(&self, state: &mut State, datagram: &[u8]) -> io::Result<bool> {
        let Some((part, bytes)) = Part::read(self.door.token, datagram)? else { return Ok(false) };
        state.has_heard = true;
        let whole = state.receiver.arrives(now_ns(), &part, bytes);
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        state.ready.extend(whole.map_err(invalid)?);
        Ok(true)
    }

    fn acknowledge(&self, state: &mut State, home: Option<SocketAddr>) -> io::Result<()> {
        let mut known = self.door.home.lock().unwrap_or_else(PoisonError::into_inner);
        *known = home.or(*known);
        let Some(home) = *known else { return Ok(()) };
        let Some(ranges) = state.receiver.acknowledges(now_ns()) else { return Ok(()) };
        let _sends = self.end.relays(Relay::Sends);
        let told = write_acknowledged(self.door.token, &ranges);
        match self.door.socket.send_to(&told, home) {
            Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => Err(error),
            // The connection tells that nobody is there.
            _ => Ok(()),
        }
    }

    /// Puts what is whole, as far as there is room. `lent`: memory for an item, which one that could not be
    /// put has left.
    fn put_all<'b>(&'b self, state: &mut State, lent: &mut Option<Room<'b>>) -> io::Result<()> {
        while let Some(Whole { item, bytes, .. }) = state.ready.front() {
            let now = now_ns();
            let Some((put_ns, error)) = self.clock().here(item.put_ns, now) else { return Ok(()) };
            let mut room = match lent.take().map_or_else(|| self.end.room(Until::Now), Ok) {
                Ok(room) => room,
                Err(error) if error.may_end() => return Ok(()),
                Err(error) => return Err(io::Error::other(error)),
            };
            room[..bytes.len()].copy_from_slice(bytes);
            let put_error_ns = item.put_error_ns.saturating_add(error);
            let item = NewItem { put_ns, put_error_ns, ..*item };
            match self.end.put(&room, item, Until::Now) {
                Ok(()) => _ = state.ready.pop_front(),
                Err(error) => {
                    *lent = Some(room);
                    if PutError::may_end(&error) {
                        return Ok(());
                    }
                    return Err(io::Error::other(error));
                }
            }
        }
        Ok(())
    }

    /// Gives items up whose deadline has passed.
    fn expire(&self, state: &mut State) -> io::Result<()> {
        let now = now_ns();
        let late: Vec<_> =
            state.ready.iter().map(|whole| self.deadline(&whole.item, now) <= now).collect();
        for is_late in late {
            if let Some(whole) = state.ready.pop_front() {
                if is_late {
                    self.lose(whole.item.time)?;
                } else {
                    state.ready.push_back(whole);
                }
            }
        }
        let State { receiver, order, missed, .. } = state;
        for told in order.iter() {
            if let Told::Item { serial, item } = told
                && !receiver.is_settled(*serial)
                && self.deadline(item, now) <= now
            {
                receiver.give_up(*serial);
                *missed += 1;
                self.lose(item.time)?;
            }
        }
        Ok(())
    }

    /// Carries out what the home has told, up to the first item that may come still.
    fn settle(&self, state: &mut State) -> io::Result<()> {
        while let Some(told) = state.order.pop_front() {
            match told {
                Told::Message(message) => self.end.receive(message).map_err(io::Error::other)?,
                Told::Item { serial, .. } => {
                    let is_ready = state.ready.iter().any(|whole| whole.serial == serial);
                    if is_ready || !state.receiver.is_settled(serial) {
                        state.order.push_front(told);
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// An item is worthless after this instant.
    fn deadline(&self, item: &NewItem, now: i64) -> i64 {
        let put = self.clock().here(item.put_ns, now).map_or(now, |(put, _)| put);
        put.saturating_add(self.lifespan_ns)
    }

    fn lose(&self, time: Time) -> io::Result<()> {
        self.end.lose(time).map_err(io::Error::other)
    }

    fn clock(&self) -> MutexGuard<'_, PeerClock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
