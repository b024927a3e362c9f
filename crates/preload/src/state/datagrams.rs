//! Sockets of UDP that the stack has the datagrams of.
//!
//! The kernel's socket is one that works, and gets what does not come by the stack: what came
//! before, fragments and errors. So it is looked at first until it has nothing more, and then now
//! and then.

use std::io::{IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use libc::c_int;
use loopscope_engine::{DatagramsId, EngineError, Leftover, Sent};
use loopscope_stack::datagram::{MOST_HEADERS, Waiting};

use super::{Of, State};
use crate::descriptor::{self, Name};
use crate::helper::Helper;
use crate::record::Recorded;
use crate::transfer::Outcome;

/// A call that waits looks at the kernel's socket so often.
const LOOK: Duration = Duration::from_micros(50);
/// A packet of so many bytes passes each path of the Internet in one piece. Of larger ones the
/// kernel is asked.
const SMALL: usize = 552;
/// Datagrams of a call at most (UDP_MAX_SEGMENTS before Linux 6.9), and bytes of them.
const MOST_SEGMENTS: usize = 64;
const LARGEST: usize = 65_507;
const ENDED: &str = "the service of the stack has ended";

/// A socket.
#[derive(Debug)]
pub(super) struct Socket {
    /// None: the service has ended.
    id: Option<DatagramsId>,
    /// What came before it ended.
    rest: Option<Waiting>,
    peer: Name,
    is_ipv6: bool,
    /// Whether the kernel's socket may have what came before the stack had the datagrams.
    reads_kernel: bool,
    /// UDP_SEGMENT: what a call sends becomes datagrams of so many bytes. 0: one.
    segment: usize,
    /// An error that the next call tells, as errno has it.
    owed: Option<c_int>,
    /// When the kernel's socket was looked at last, for datagrams and for errors.
    looked: Instant,
    asked: Instant,
}

impl Of {
    /// Whether it is the stack's for as long as the service is there.
    pub(super) fn needs_service(&self) -> bool {
        !matches!(self, Of::Datagrams(Socket { id: None, .. }))
    }
}

/// What receiving comes to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Received {
    /// A datagram: the bytes that had room, all, and where it is from.
    Datagram { copied: usize, length: usize, peer: Name },
    /// An error.
    Fails(c_int),
    /// None is there.
    Nothing,
    /// The kernel has the socket.
    NotHere,
}

impl State {
    /// Has the datagrams of a socket come to the stack.
    pub(super) fn take_datagrams(
        &mut self,
        fd: c_int,
        start: fn() -> Option<Helper>,
    ) -> Result<bool, String> {
        let peer = descriptor::peer(fd).ok_or("the kernel does not tell its other end")?;
        let engine = self.engine()?;
        let id = match engine.take_datagrams(descriptor::borrow(fd)) {
            Ok(id) => id,
            Err(EngineError::Refused(why)) => return Err(why),
            Err(error) => {
                let why = error.to_string();
                self.fail(&why);
                return Err(why);
            }
        };
        let now = Instant::now();
        let socket = Socket {
            id: Some(id),
            rest: None,
            peer,
            is_ipv6: descriptor::is_ipv6(fd),
            reads_kernel: true,
            segment: segment_of(fd),
            owed: None,
            looked: now,
            asked: now,
        };
        self.hold(fd, Of::Datagrams(socket), Recorded::default(), start).inspect_err(|_| {
            let _ = self.engine.as_mut().map(|engine| engine.give_datagrams_back(id));
        })?;
        Ok(true)
    }

    /// The socket of a descriptor whose datagrams the stack has.
    fn datagrams(&mut self, fd: c_int) -> Option<&mut Socket> {
        match &mut self.slot(fd)?.of {
            Of::Datagrams(socket) => Some(socket),
            Of::Stream(_) => None,
        }
    }

    /// Whether a descriptor is such a socket.
    pub(crate) fn has_datagrams(&self, fd: c_int) -> bool {
        let slot = usize::try_from(fd).ok().and_then(|place| self.slots.get(place)?.as_ref());
        slot.is_some_and(|slot| matches!(slot.of, Of::Datagrams(_)))
    }

    /// Whether an address is that of a socket's other end.
    pub(crate) fn is_peer(&mut self, fd: c_int, given: &[u8]) -> bool {
        self.datagrams(fd).is_some_and(|socket| socket.peer.is(given))
    }

    /// Bytes of the first datagram that came to the stack.
    pub(crate) fn first_datagram(&self, fd: c_int) -> Option<usize> {
        let slot = self.slots.get(usize::try_from(fd).ok()?)?.as_ref()?;
        let Of::Datagrams(socket) = &slot.of else { return None };
        match (socket.id, &socket.rest) {
            (Some(id), _) => self.engine.as_ref()?.first_datagram(id),
            (None, rest) => rest.as_ref()?.first(),
        }
    }

    /// How many datagrams came to the stack.
    pub(super) fn datagrams_came(&self, fd: c_int) -> u64 {
        let slot = usize::try_from(fd).ok().and_then(|place| self.slots.get(place)?.as_ref());
        match slot.map(|slot| &slot.of) {
            Some(Of::Datagrams(Socket { id: Some(id), .. })) => {
                self.engine.as_ref().map_or(0, |engine| engine.datagrams_came(*id))
            }
            _ => 0,
        }
    }

    /// Receives a datagram to `parts`. `at_once`: the call does not wait.
    pub(crate) fn receive_datagram(
        &mut self,
        fd: c_int,
        parts: &mut [IoSliceMut<'_>],
        at_once: bool,
    ) -> Received {
        let Some(Socket { id, peer, reads_kernel, owed, looked, .. }) = self.datagrams(fd) else {
            return Received::NotHere;
        };
        let (id, peer, looked) = (*id, *peer, *looked);
        if let Some(why) = owed.take() {
            return Received::Fails(why);
        }
        if *reads_kernel {
            match of_kernel(fd, parts, peer) {
                Received::Nothing => {}
                found => return found,
            }
        }
        let found = match id {
            Some(id) => self.engine.as_mut().and_then(|engine| engine.receive_datagram(id, parts)),
            None => self.take_rest(fd, parts),
        };
        if let Some((copied, length)) = found {
            if let Some(slot) = self.slot(fd) {
                slot.bytes[0] += copied as u64;
            }
            self.set_read(fd, None);
            return Received::Datagram { copied, length, peer };
        }
        if id.is_none() {
            self.forget(fd, ENDED, None);
            return Received::NotHere;
        }
        let is_nonblocking = self.slot(fd).is_some_and(|slot| slot.is_nonblocking);
        if at_once || is_nonblocking || looked.elapsed() >= LOOK {
            self.set_read(fd, Some(Instant::now()));
            return of_kernel(fd, parts, peer);
        }
        Received::Nothing
    }

    /// The kernel's socket had nothing from before; it was looked at now.
    fn set_read(&mut self, fd: c_int, now: Option<Instant>) {
        if let Some(socket) = self.datagrams(fd) {
            socket.reads_kernel = false;
            socket.looked = now.unwrap_or(socket.looked);
        }
    }

    fn take_rest(&mut self, fd: c_int, parts: &mut [IoSliceMut<'_>]) -> Option<(usize, usize)> {
        self.datagrams(fd)?.rest.as_mut()?.pop(parts)
    }

    /// UDP_SEGMENT was set or not.
    pub(crate) fn read_segment(&mut self, fd: c_int) {
        if let Some(socket) = self.datagrams(fd) {
            socket.segment = segment_of(fd);
        }
    }

    /// The next call that receives tells an error. Of a connection the kernel knows it.
    pub(crate) fn owe(&mut self, fd: c_int, why: c_int) {
        if let Some(socket) = self.datagrams(fd) {
            socket.owed = Some(why);
        }
    }

    /// Sends a datagram, or several of `segment` bytes (None: as the socket has it).
    pub(crate) fn send_datagrams(
        &mut self,
        fd: c_int,
        parts: &[IoSlice<'_>],
        segment: Option<u16>,
    ) -> Outcome {
        let of_socket = self.datagrams(fd).map_or(0, |socket| socket.segment);
        let segment = segment.map_or(of_socket, usize::from);
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if segment == 0 || length <= segment {
            return self.send_datagram(fd, parts);
        }
        // The kernel says what is wrong with more.
        if length > MOST_SEGMENTS * segment || length > LARGEST {
            return Outcome::Once;
        }
        let whole: Vec<u8> = parts.iter().flat_map(|part| part.iter()).copied().collect();
        for one in whole.chunks(segment) {
            match self.send_datagram(fd, &[IoSlice::new(one)]) {
                Outcome::Done(_) => {}
                // The kernel sends all of them, some of which then come twice.
                other => return other,
            }
        }
        Outcome::Done(length)
    }

    fn send_datagram(&mut self, fd: c_int, parts: &[IoSlice<'_>]) -> Outcome {
        self.look_for_service();
        let Some(socket) = self.datagrams(fd) else { return Outcome::Kernel(0) };
        let Some(id) = socket.id else { return Outcome::Once };
        if socket.asked.elapsed() >= LOOK {
            socket.asked = Instant::now();
            // As the kernel does, it tells what became of an earlier one.
            match descriptor::integer(fd, libc::SOL_SOCKET, libc::SO_ERROR) {
                Some(0) | None => {}
                Some(why) => return Outcome::Fails(why),
            }
        }
        let is_ipv6 = socket.is_ipv6;
        let packet = MOST_HEADERS + parts.iter().map(|part| part.len()).sum::<usize>();
        if packet > SMALL {
            let headers = if is_ipv6 { MOST_HEADERS } else { MOST_HEADERS - 20 };
            let most = descriptor::path_mtu(fd, is_ipv6).unwrap_or(0);
            if packet - MOST_HEADERS + headers > most {
                return Outcome::Once;
            }
        }
        let Some(engine) = &mut self.engine else { return Outcome::Once };
        match engine.send_datagram(id, parts) {
            Ok(Sent::Whole(count)) => {
                if let Some(slot) = self.slot(fd) {
                    slot.bytes[1] += count as u64;
                }
                return Outcome::Done(count);
            }
            Ok(Sent::TooLarge) => {}
            Ok(Sent::NotHere) => self.fail(ENDED),
            Err(error) => self.fail(&error.to_string()),
        }
        Outcome::Once
    }

    /// Leaves the datagrams of a socket to the kernel. Where the service has ended, those that came
    /// are kept here until they are read.
    pub(super) fn hand_datagrams_back(&mut self, fd: c_int, why: &str, closing: bool) {
        let Some(id) = self.datagrams(fd).and_then(|socket| socket.id) else {
            return self.forget(fd, why, None);
        };
        let Some(engine) = &mut self.engine else { return self.forget(fd, why, None) };
        let back = match closing {
            true => engine.close_datagrams(id),
            false => engine.give_datagrams_back(id),
        };
        match back {
            Ok(Leftover { counts, dropped }) => {
                self.explain.dropped(fd, dropped);
                self.forget(fd, why, counts);
            }
            Err(_) if closing => self.forget(fd, why, None),
            Err(EngineError::Service(_)) => self.keep(fd, id, why),
            Err(error) => self.forget(fd, &format!("{why}: {error}"), None),
        }
    }

    /// Keeps what came of a socket that the kernel has again.
    fn keep(&mut self, fd: c_int, id: DatagramsId, why: &str) {
        let Some(engine) = &mut self.engine else { return };
        let (rest, dropped) = engine.keep_datagrams(id);
        self.explain.dropped(fd, dropped);
        if rest.as_ref().is_none_or(|rest| rest.first().is_none()) {
            return self.forget(fd, why, None);
        }
        self.explain.why(fd, why);
        // It is none of those that need the service.
        self.count -= 1;
        if let Some(socket) = self.datagrams(fd) {
            (socket.id, socket.rest) = (None, rest);
        }
    }
}

/// UDP_SEGMENT of a socket.
fn segment_of(fd: c_int) -> usize {
    let found = descriptor::integer(fd, libc::IPPROTO_UDP, libc::UDP_SEGMENT);
    found.and_then(|bytes| bytes.try_into().ok()).unwrap_or(0)
}

/// What the kernel's socket has.
fn of_kernel(fd: c_int, parts: &mut [IoSliceMut<'_>], peer: Name) -> Received {
    match descriptor::receive(fd, parts) {
        Ok(Some((copied, length))) => Received::Datagram { copied, length, peer },
        Ok(None) => Received::Nothing,
        Err(why) => Received::Fails(why),
    }
}
