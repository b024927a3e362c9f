//! What epoll(7) of a program watches, of descriptors that the stack has or may get.
//!
//! The kernel watches a descriptor until its connection is taken over. Then it is removed there,
//! and put back when the connection comes back. A thread that waits in the kernel meanwhile is
//! woken by a descriptor of the library's own, the bell, that the kernel watches as well.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::{AsRawFd as _, OwnedFd};

use foldhash::{HashMap, HashMapExt as _};
use libc::{
    EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDNORM, EPOLLWRNORM, c_int,
};

use crate::descriptor::{self, Control};
use crate::sleepers::{new_event, signal};
use crate::table::{self, Kind};

/// What is told of the bell: no data of a program, because it is the address of this.
static BELL: u8 = 0;

/// What the program is told of the bell.
fn bell_data() -> u64 {
    std::ptr::from_ref(&BELL).addr() as u64
}

/// What is told of a socket of UDP that the kernel watches for the stack: the address of its place
/// here, which is no data of a program.
static TOKENS: [u8; 1 << 16] = [0; 1 << 16];

fn token(fd: c_int) -> u64 {
    (std::ptr::from_ref(&TOKENS).addr() as u64).wrapping_add(u64::from(fd.unsigned_abs()))
}

/// The descriptor that a token stands for.
fn of_token(data: u64) -> Option<c_int> {
    let place = data.checked_sub(token(0))?;
    (place < TOKENS.len() as u64).then_some(place as c_int)
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    /// Bytes that can be read, and all that ever came.
    pub(crate) readable: usize,
    pub(crate) came: u64,
    /// Whether the program can write, and whether it could not since it was told so.
    pub(crate) is_writable: bool,
    pub(crate) was_full: bool,
}

/// What the program wants to know of a descriptor.
#[derive(Clone, Copy, Debug)]
struct Interest {
    events: u32,
    data: u64,
    /// Whether the stack has its connection, and the kernel does not watch it.
    is_of_stack: bool,
    /// What the kernel has told of a socket of UDP that the stack has, and the program was not
    /// told.
    by_kernel: u32,
    /// With EPOLLONESHOT it is told once.
    is_armed: bool,
    /// With EPOLLET: bytes that had come when it was told last, and whether it was told at all.
    seen: u64,
    is_told: bool,
    /// Whether there was no room when it was looked at, or was written to, last.
    lacked_room: bool,
}

impl Interest {
    /// The events that it is told now, if any.
    fn ready(&self, status: Status) -> Option<u32> {
        let mut found = 0;
        if status.readable > 0 {
            found |= EPOLLIN | EPOLLRDNORM;
        }
        if status.is_writable {
            found |= EPOLLOUT | EPOLLWRNORM;
        }
        let always = (EPOLLERR | EPOLLHUP) as u32;
        let found = found as u32 & self.events | self.by_kernel & (self.events | always);
        let can = |event: c_int| found & event as u32 != 0;
        let has_come = can(EPOLLIN | EPOLLRDNORM) && (!self.is_told || status.came > self.seen);
        let has_room = can(EPOLLOUT | EPOLLWRNORM) && (!self.is_told || status.was_full);
        let has_edge = has_come || has_room || self.by_kernel != 0;
        let is_edge = self.events & EPOLLET as u32 == 0 || has_edge;
        (self.is_of_stack && self.is_armed && found != 0 && is_edge).then_some(found)
    }

    fn told(&mut self, status: Status) {
        self.seen = status.came;
        self.is_told = true;
        self.by_kernel = 0;
        self.is_armed = self.events & EPOLLONESHOT as u32 == 0;
    }

    /// What the kernel is told to watch.
    fn control(&self) -> Control {
        let private = (EPOLLET | EPOLLONESHOT) as u32;
        let events = if self.is_armed { self.events } else { self.events & private };
        Control { events, data: self.data }
    }

    /// What the kernel is told to watch of a socket of UDP that the stack has. It tells each event
    /// once where it need not be told again.
    fn watch(&self, fd: c_int) -> Control {
        let once = self.events & (EPOLLET | EPOLLONESHOT) as u32 != 0;
        let wanted = self.events & (EPOLLIN | EPOLLRDNORM) as u32;
        let events = wanted | if once { EPOLLET as u32 } else { 0 };
        Control { events, data: token(fd) }
    }
}

/// An instance of epoll.
#[derive(Debug)]
struct Epoll {
    interests: HashMap<c_int, Interest>,
    /// How many of them are of the stack.
    of_stack: usize,
    /// Those that may have something to tell: where there are many, the others are not asked.
    candidates: BTreeSet<c_int>,
    bell: OwnedFd,
    /// Descriptors up to this one come after the others.
    last: c_int,
}

impl Epoll {
    fn insert(&mut self, fd: c_int, interest: Interest) {
        self.remove(fd);
        self.of_stack += usize::from(interest.is_of_stack);
        self.interests.insert(fd, interest);
        self.candidates.insert(fd);
    }

    fn remove(&mut self, fd: c_int) -> Option<Interest> {
        let removed = self.interests.remove(&fd)?;
        self.of_stack -= usize::from(removed.is_of_stack);
        self.candidates.remove(&fd);
        Some(removed)
    }
}

/// All that have, or had, a descriptor that may be the stack's.
#[derive(Debug)]
pub(crate) struct Epolls(BTreeMap<c_int, Epoll>);

impl Epolls {
    pub(crate) const fn new() -> Epolls {
        Epolls(BTreeMap::new())
    }

    /// epoll_ctl(2) for a descriptor that the stack has (`is_of_stack`) or may get.
    pub(crate) fn control(
        &mut self,
        (epoll, fd): (c_int, c_int),
        operation: c_int,
        asked: Control,
        is_of_stack: bool,
    ) -> Result<(), c_int> {
        if !is_of_stack {
            // The kernel says what is wrong.
            descriptor::control(epoll, operation, fd, asked)?;
        }
        let Control { events, data } = asked;
        let known = self.0.get(&epoll).is_some_and(|known| known.interests.contains_key(&fd));
        match operation {
            libc::EPOLL_CTL_DEL if known => {
                self.0.get_mut(&epoll).map(|known| known.remove(fd));
                if is_of_stack && table::is_datagrams(fd) {
                    descriptor::control(epoll, operation, fd, asked)?;
                }
                Ok(())
            }
            libc::EPOLL_CTL_ADD if known && is_of_stack => Err(libc::EEXIST),
            libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL if !known && is_of_stack => Err(libc::ENOENT),
            libc::EPOLL_CTL_DEL => Ok(()),
            _ => {
                let interest = Interest {
                    events,
                    data,
                    is_of_stack,
                    by_kernel: 0,
                    is_armed: true,
                    seen: 0,
                    is_told: false,
                    lacked_room: false,
                };
                self.known(epoll)?.insert(fd, interest);
                if is_of_stack && table::is_datagrams(fd) {
                    descriptor::control(epoll, operation, fd, interest.watch(fd))?;
                }
                Ok(())
            }
        }
    }

    fn known(&mut self, epoll: c_int) -> Result<&mut Epoll, c_int> {
        let place = match self.0.entry(epoll) {
            Entry::Occupied(known) => return Ok(known.into_mut()),
            Entry::Vacant(place) => place,
        };
        let bell = new_event().ok_or(libc::ENOMEM)?;
        let asked = Control { events: EPOLLIN as u32, data: bell_data() };
        let number = bell.as_raw_fd();
        descriptor::control(epoll, libc::EPOLL_CTL_ADD, number, asked).inspect_err(|_| {
            table::set(number, Kind::Plain);
        })?;
        table::set(epoll, Kind::Epoll);
        let (interests, candidates) = (HashMap::new(), BTreeSet::new());
        Ok(place.insert(Epoll { interests, of_stack: 0, candidates, bell, last: -1 }))
    }

    /// The stack has the connection of a descriptor.
    pub(crate) fn taken(&mut self, fd: c_int) {
        for (number, epoll) in &mut self.0 {
            if let Some(interest) = epoll.interests.get_mut(&fd) {
                let (operation, asked) = match table::is_datagrams(fd) {
                    true => (libc::EPOLL_CTL_MOD, interest.watch(fd)),
                    false => (libc::EPOLL_CTL_DEL, interest.control()),
                };
                // That it fails means that the kernel does not watch it.
                let _ = descriptor::control(*number, operation, fd, asked);
                epoll.of_stack += usize::from(!std::mem::replace(&mut interest.is_of_stack, true));
                epoll.candidates.insert(fd);
                signal(&epoll.bell);
            }
        }
    }

    /// The kernel has a descriptor for good, and watches it.
    pub(crate) fn returned(&mut self, fd: c_int) {
        for (number, epoll) in &mut self.0 {
            if let Some(interest) = epoll.remove(fd)
                && interest.is_of_stack
            {
                // That it fails means that the program has closed one of them.
                let operation = match table::is_datagrams(fd) {
                    true => libc::EPOLL_CTL_MOD,
                    false => libc::EPOLL_CTL_ADD,
                };
                let _ = descriptor::control(*number, operation, fd, interest.control());
            }
        }
    }

    /// A segment came of a descriptor that the stack has. One without data can make room.
    pub(crate) fn came(&mut self, fd: c_int, has_data: bool) {
        for epoll in self.0.values_mut() {
            if epoll.interests.get(&fd).is_some_and(|found| has_data || found.lacked_room) {
                epoll.candidates.insert(fd);
            }
        }
    }

    /// The program could not write to a descriptor that the stack has.
    pub(crate) fn lacks_room(&mut self, fd: c_int) {
        let watching = self.0.values_mut().filter_map(|epoll| epoll.interests.get_mut(&fd));
        watching.for_each(|interest| interest.lacked_room = true);
    }

    /// A descriptor is about to be closed: a watched one, or an instance.
    pub(crate) fn closing(&mut self, fd: c_int) {
        if let Some(epoll) = self.0.remove(&fd) {
            table::set(epoll.bell.as_raw_fd(), Kind::Plain);
        }
        for epoll in self.0.values_mut() {
            epoll.remove(fd);
        }
    }

    /// Ends with all. No connection is the stack's.
    pub(crate) fn clear(&mut self) {
        for (number, epoll) in std::mem::take(&mut self.0) {
            let asked = Control { events: 0, data: 0 };
            let bell = epoll.bell.as_raw_fd();
            let _ = descriptor::control(number, libc::EPOLL_CTL_DEL, bell, asked);
            table::set(bell, Kind::Plain);
            table::set(number, Kind::Plain);
        }
    }

    /// The descriptors that an instance watches.
    pub(crate) fn watched(&self, epoll: c_int) -> Vec<c_int> {
        let watched = self.0.get(&epoll).map(|epoll| epoll.interests.keys().copied().collect());
        watched.unwrap_or_default()
    }

    /// Whether the stack has one of them.
    pub(crate) fn is_of_stack(&self, epoll: c_int) -> bool {
        self.0.get(&epoll).is_some_and(|epoll| epoll.of_stack > 0)
    }

    /// Whether there is something to tell.
    pub(crate) fn is_ready(&self, epoll: c_int, status: impl Fn(c_int) -> Option<Status>) -> bool {
        self.0.get(&epoll).is_none_or(|epoll| {
            epoll.candidates.iter().any(|fd| {
                let known = epoll.interests.get(fd).zip(status(*fd));
                known.is_some_and(|(interest, status)| interest.ready(status).is_some())
            })
        })
    }

    /// Tells up to so many events, those first whose turn is next; the descriptors that were told.
    pub(crate) fn tell(
        &mut self,
        epoll: c_int,
        most: usize,
        status: impl Fn(c_int) -> Option<Status>,
    ) -> Vec<(c_int, Control)> {
        let Some(epoll) = self.0.get_mut(&epoll) else { return vec![] };
        let (after, before) = ((Excluded(epoll.last), Unbounded), ..=epoll.last);
        let order = epoll.candidates.range(after).chain(epoll.candidates.range(before));
        let order: Vec<c_int> = order.copied().collect();
        let mut told = vec![];
        for fd in order {
            if told.len() == most {
                break;
            }
            let Some(interest) = epoll.interests.get_mut(&fd) else { continue };
            let events = status(fd).and_then(|status| {
                interest.lacked_room = !status.is_writable;
                let events = interest.ready(status)?;
                interest.told(status);
                Some(events)
            });
            if let Some(events) = events {
                epoll.last = fd;
                told.push((fd, Control { events, data: interest.data }));
            } else if !table::is_datagrams(fd) {
                // It is one again when something comes. Of datagrams that is not told.
                epoll.candidates.remove(&fd);
            }
        }
        told
    }

    /// Takes the bell out of what the kernel has told, and what it has told of sockets of UDP for
    /// the stack.
    pub(crate) fn without_bell(&mut self, epoll: c_int, found: &mut Vec<Control>) {
        let mut epoll = self.0.get_mut(&epoll);
        found.retain(|found| {
            let is_bell = found.data == bell_data();
            if is_bell && let Some(epoll) = &epoll {
                let _ = rustix::io::read(&epoll.bell, &mut [0; 8]);
            }
            let fd = of_token(found.data);
            if let Some(fd) = fd
                && let Some(interest) = epoll.as_mut().and_then(|one| one.interests.get_mut(&fd))
            {
                interest.by_kernel |= found.events;
                let _ = epoll.as_mut().map(|one| one.candidates.insert(fd));
            }
            !is_bell && fd.is_none()
        });
    }
}
