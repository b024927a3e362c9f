//! The program's connections that the stack has, and the threads that wait for them.

mod datagrams;
mod readiness;
mod settings;

pub(crate) use datagrams::Received;

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use libc::c_int;
use loopscope_engine::{Counts, Engine, EngineError, Returned};
use loopscope_stack::packet::Protocol;
use loopscope_stack::{Connection, End, Id};

use crate::asked::Asked;
use crate::descriptor;
use crate::epolls::Epolls;
use crate::explain::{self, CLOSED, Explain, NOT_CONNECTED};
use crate::helper::Helper;
use crate::record::{self, Recorded, Recorder};
use crate::sleepers;
use crate::sleepers::Sleepers;
use crate::table::{self, Kind};

/// A service that was not there is asked for again after so long.
const RETRY: Duration = Duration::from_secs(1);
/// After so many bytes were read the other end is told of the room at once.
const MUCH: usize = 1 << 13;

/// A connection, or a socket of UDP whose datagrams the stack has.
#[derive(Debug)]
enum Of {
    Stream(Id),
    Datagrams(datagrams::Socket),
}

/// What the stack has of a descriptor.
#[derive(Debug)]
struct Slot {
    of: Of,
    recorded: Recorded,
    is_nonblocking: bool,
    /// SO_RCVTIMEO and SO_SNDTIMEO.
    timeouts: [Option<Duration>; 2],
    /// Bytes that the program has read and written.
    bytes: [u64; 2],
    /// Whether the last write found too little room.
    was_full: bool,
}

impl Slot {
    fn id(&self) -> Option<Id> {
        match self.of {
            Of::Stream(id) => Some(id),
            Of::Datagrams(_) => None,
        }
    }
}

/// How a connection goes back to the kernel.
type Way = fn(&mut Engine<Recorder>, Id) -> Result<Option<Counts>, EngineError>;

/// How long a call may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Not at all.
    AtOnce,
    /// At most for so long, or for ever.
    Waits(Option<Duration>),
}

/// What the lock is for.
#[derive(Debug)]
pub(crate) struct State {
    engine: Option<Engine<Recorder>>,
    /// By descriptor.
    slots: Vec<Option<Slot>>,
    /// The descriptors of connections, by [`Id::place`].
    descriptors: Vec<c_int>,
    count: usize,
    pub(crate) sleepers: Sleepers,
    /// Turns so far.
    pub(crate) turns: u64,
    /// It is read when the program makes its first socket.
    asked: Option<Asked>,
    /// When to ask for the service again, and why it was not there.
    retry: Option<(Instant, String)>,
    /// Whether nothing is taken over any more, because the program ends or forks.
    pub(crate) is_ending: bool,
    /// Why nothing is taken over for as long as the program runs.
    pub(crate) leaves_all: Option<&'static str>,
    pub(crate) explain: Explain,
    pub(crate) epolls: Epolls,
    pub(crate) helper: Option<Helper>,
}

impl State {
    pub(crate) const fn new() -> State {
        State {
            engine: None,
            slots: vec![],
            descriptors: vec![],
            count: 0,
            sleepers: Sleepers::new(),
            turns: 0,
            asked: None,
            retry: None,
            is_ending: false,
            leaves_all: None,
            explain: Explain::new(),
            epolls: Epolls::new(),
            helper: None,
        }
    }

    /// A socket of TCP or UDP that nobody else has was made. Whether it is the first one.
    pub(crate) fn opened(&mut self, fd: c_int, protocol: Protocol) -> bool {
        let is_first = self.asked.is_none();
        if is_first {
            self.asked = Some(Asked::read());
            self.explain.begin(std::env::var_os("LOOPSCOPE_STACK_EXPLAIN").map(PathBuf::from));
        }
        let is_udp = protocol == Protocol::Udp;
        self.explain.opened(fd, is_udp);
        if !table::set(fd, Kind::Candidate) {
            self.explain.why(fd, "the number of its descriptor is too large");
        }
        table::set_datagrams(fd, is_udp);
        is_first
    }

    /// Takes the connection of a descriptor over, which the caller has claimed. `start` starts the
    /// helper.
    pub(crate) fn take(&mut self, fd: c_int, start: fn() -> Option<Helper>) {
        match self.try_to_take(fd, start) {
            Ok(true) => {}
            // It is not connected yet.
            Ok(false) => _ = table::set(fd, Kind::Candidate),
            Err(why) => {
                self.epolls.returned(fd);
                table::set(fd, Kind::Plain);
                self.explain.why(fd, &why);
            }
        }
    }

    fn try_to_take(&mut self, fd: c_int, start: fn() -> Option<Helper>) -> Result<bool, String> {
        let is_udp = table::is_datagrams(fd);
        let Some((here, there)) = descriptor::addresses(fd) else {
            return if is_udp { Err(NOT_CONNECTED.into()) } else { Ok(false) };
        };
        if self.is_ending {
            return Err("the program ends or forks".into());
        }
        if let Some(why) = self.leaves_all {
            return Err(why.into());
        }
        if descriptor::integer(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT) != Some(1) {
            return Err("SO_RCVLOWAT is set".into());
        }
        let asked = self.asked.get_or_insert_with(Asked::read);
        if let Some(why) = &asked.unreadable {
            return Err(why.clone());
        }
        if let Some(why) = asked.ports.refuses(here, there) {
            return Err(why.into());
        }
        if is_udp {
            return self.take_datagrams(fd, start);
        }
        let config = descriptor::config(fd, self.count, asked)?;
        let engine = self.engine()?;
        let id = match engine.take(descriptor::borrow(fd), config) {
            Ok(id) => id,
            Err(EngineError::Refused(why)) => return Err(why),
            Err(error) => {
                let why = error.to_string();
                self.fail(&why);
                return Err(why);
            }
        };
        let outline = engine.get(id).map(|connection| connection.outline(Duration::ZERO));
        let taken = |outline| engine.observer().taken(id, fd, (here, there), &outline);
        let recorded = outline.map(taken).unwrap_or_default();
        self.hold(fd, Of::Stream(id), recorded, start).inspect_err(|why| {
            let _ = self.engine.as_mut().map(|engine| engine.give_back(id));
            recorded.returned(why, [0; 2]);
        })?;
        Ok(true)
    }

    /// The stack has a descriptor from now on.
    fn hold(
        &mut self,
        fd: c_int,
        of: Of,
        recorded: Recorded,
        start: fn() -> Option<Helper>,
    ) -> Result<(), String> {
        if self.helper.is_none() {
            self.helper = start();
        }
        // Without it nobody would take what comes while the program computes.
        self.helper.as_mut().ok_or("no thread can be started")?.wake();
        let place = usize::try_from(fd).map_err(|_| "no descriptor")?;
        if self.slots.len() <= place {
            self.slots.resize_with(place + 1, || None);
        }
        if let Of::Stream(id) = of {
            let most = self.descriptors.len().max(id.place() + 1);
            self.descriptors.resize(most, -1);
            self.descriptors[id.place()] = fd;
        }
        let is_nonblocking = descriptor::is_nonblocking(fd);
        let (timeouts, bytes) = ([None; 2], [0; 2]);
        self.slots[place] =
            Some(Slot { of, recorded, is_nonblocking, timeouts, bytes, was_full: false });
        self.count += 1;
        self.read_timeouts(fd);
        self.explain.taken(fd);
        self.epolls.taken(fd);
        Ok(())
    }

    fn engine(&mut self) -> Result<&mut Engine<Recorder>, String> {
        if self.engine.is_none() {
            if let Some((retry, why)) = &self.retry
                && Instant::now() < *retry
            {
                return Err(why.clone());
            }
            let asked = self.asked.get_or_insert_with(Asked::read);
            match Engine::observed(&asked.service, Recorder::new()) {
                Ok(engine) => {
                    record::begin();
                    for fd in engine.descriptors() {
                        table::set(fd.as_raw_fd(), Kind::Own);
                    }
                    let [.., service] = engine.sources();
                    sleepers::set_service(service.as_raw_fd());
                    self.engine = Some(engine);
                }
                Err(error) => {
                    self.retry = Some((Instant::now() + RETRY, error.to_string()));
                    return Err(error.to_string());
                }
            }
        }
        self.engine.as_mut().ok_or_else(String::new)
    }

    /// Takes what came, sends what is due, and wakes those who waited for it.
    pub(crate) fn turn(&mut self) {
        self.look_for_service();
        let Some(engine) = &mut self.engine else { return };
        self.turns += 1;
        let done = engine.turn();
        let (epolls, descriptors) = (&mut self.epolls, &self.descriptors);
        // That of another that is there by now does no harm.
        engine.observer().take_came(|(id, has_data)| {
            let fd = descriptors.get(id.place());
            fd.into_iter().for_each(|fd| epolls.came(*fd, has_data));
        });
        for Returned { id, end, counts } in engine.take_returned() {
            let fd = self.descriptors.get(id.place()).copied().unwrap_or(-1);
            if self.slot(fd).is_some_and(|slot| slot.id() == Some(id)) {
                let why = end.map_or("the connection came back".into(), |end: End| end.to_string());
                self.forget(fd, &why, counts);
            }
        }
        if let Err(error) = done {
            self.fail(&error.to_string());
        }
        self.wake_ready();
    }

    /// Where the service has ended, all connections go back.
    pub(crate) fn look_for_service(&mut self) {
        if self.engine.is_some() && sleepers::service_has_ended() {
            self.fail("the service of the stack has ended");
        }
    }

    /// Reads. None: the kernel has the connection.
    pub(crate) fn read(&mut self, fd: c_int, parts: &mut [IoSliceMut<'_>]) -> Option<usize> {
        let mut done = 0;
        for part in parts {
            let id = self.slot(fd)?.id()?;
            let count = self.engine.as_mut()?.read(id, part);
            let Some(count) = self.moved(fd, count) else { return (done > 0).then_some(done) };
            done += count;
            let slot = self.slot(fd)?;
            slot.recorded.read(count, slot.bytes[0]);
            slot.bytes[0] += count as u64;
            if count < part.len() {
                break;
            }
        }
        if done >= MUCH {
            self.turn();
        }
        Some(done)
    }

    /// Writes, and sends it. None: the kernel has the connection.
    pub(crate) fn write(&mut self, fd: c_int, parts: &[IoSlice<'_>]) -> Option<usize> {
        let mut done = 0;
        for part in parts {
            let (id, began) = (self.slot(fd)?.id()?, record::now());
            let count = self.engine.as_mut()?.write(id, part);
            let Some(count) = self.moved(fd, count) else { return (done > 0).then_some(done) };
            done += count;
            let slot = self.slot(fd)?;
            slot.recorded.wrote(began, count, slot.bytes[1]);
            slot.bytes[1] += count as u64;
            if count < part.len() {
                slot.was_full = true;
                self.epolls.lacks_room(fd);
                break;
            }
        }
        if done > 0 {
            self.turn();
        }
        // What an acknowledgement lets go is not to wait until the program calls again.
        if self.connection(fd).is_some_and(|connection| connection.unsent() > 0)
            && let Some(helper) = &mut self.helper
        {
            helper.hurry();
        }
        Some(done)
    }

    /// Takes an engine's answer. None: the kernel has the connection.
    fn moved(&mut self, fd: c_int, count: Result<Option<usize>, EngineError>) -> Option<usize> {
        match count {
            Ok(Some(count)) => return Some(count),
            Ok(None) => self.forget(fd, "the service has ended", None),
            Err(error) => self.fail(&error.to_string()),
        }
        None
    }

    /// How long a call on a connection may wait. None: the kernel has it.
    pub(crate) fn patience(&mut self, fd: c_int, writes: bool) -> Option<Patience> {
        let slot = self.slot(fd)?;
        let most = slot.timeouts[usize::from(writes)];
        Some(if slot.is_nonblocking { Patience::AtOnce } else { Patience::Waits(most) })
    }

    /// The connection of a descriptor. None: the kernel has it.
    pub(crate) fn connection(&self, fd: c_int) -> Option<&Connection> {
        let slot = self.slots.get(usize::try_from(fd).ok()?)?.as_ref()?;
        self.engine.as_ref()?.get(slot.id()?)
    }

    /// Bytes that the program has read from the stack, and written to it. None: the kernel has the
    /// connection.
    pub(crate) fn bytes(&mut self, fd: c_int) -> Option<[u64; 2]> {
        Some(self.slot(fd)?.bytes)
    }

    /// Gives the connection of a descriptor back, if the stack has it, and leaves it to the kernel
    /// for good.
    pub(crate) fn release(&mut self, fd: c_int, why: &str) {
        self.hand_back(fd, why, false);
    }

    /// The same for a descriptor that the program then closes, and nobody else has.
    pub(crate) fn close(&mut self, fd: c_int) {
        if explain::is_asked_for() {
            self.turn();
            let streams = self.streams(fd);
            self.explain.counted(fd, streams);
        }
        self.hand_back(fd, CLOSED, true);
    }

    /// Bytes that came, and that were written, of a connection that the stack has.
    fn streams(&mut self, fd: c_int) -> Option<(u64, u64)> {
        let readable = self.connection(fd)?.readable() as u64;
        let [read, written] = self.bytes(fd)?;
        let (came, sent) = descriptor::streams(fd)?;
        // What waited in the kernel's socket was passed to the stack.
        let [passed, _] = descriptor::queued(fd);
        Some((came + read + readable - passed.min(came), sent + written))
    }

    fn hand_back(&mut self, fd: c_int, why: &str, closing: bool) {
        if self.has_datagrams(fd) {
            self.hand_datagrams_back(fd, why, closing);
            self.wake_ready();
            if self.has(fd) {
                // It is read to its end first.
                return;
            }
        }
        let way: Way = if closing { Engine::close } else { Engine::give_back };
        if let Some(id) = self.slot(fd).and_then(|slot| slot.id())
            && let Some(engine) = &mut self.engine
        {
            match way(engine, id) {
                Ok(counts) => self.forget(fd, why, counts),
                Err(error) => self.forget(fd, &format!("{why}: {error}"), None),
            }
            self.wake_ready();
        }
        if matches!(table::kind(fd), Kind::Candidate | Kind::Taken) {
            self.epolls.returned(fd);
            table::set(fd, Kind::Plain);
        }
        self.explain.why(fd, why);
    }

    /// Gives all back, and leaves those that could be taken over to the kernel as well if `leaves`
    /// says so.
    pub(crate) fn release_all(&mut self, why: &str, leaves: impl Fn(c_int) -> bool) {
        for place in 0..self.slots.len() {
            if self.slots[place].is_some() {
                self.release(place as c_int, why);
            }
        }
        for fd in table::all(Kind::Candidate).filter(|fd| leaves(*fd)).collect::<Vec<_>>() {
            self.release(fd, why);
        }
    }

    /// Ends with the service and its devices. All connections were given back.
    pub(crate) fn drop_engine(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.descriptors().iter().for_each(|fd| _ = table::set(fd.as_raw_fd(), Kind::Plain));
            sleepers::set_service(-1);
        }
        self.sleepers.forget_idle();
    }

    /// A process that was forked has no other threads.
    pub(crate) fn forget_threads(&mut self) {
        self.sleepers.forget_all();
        self.drop_engine();
        self.explain.forget();
    }

    fn slot(&mut self, fd: c_int) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(fd).ok()?)?.as_mut()
    }

    /// The kernel has the connection of a descriptor.
    fn forget(&mut self, fd: c_int, why: &str, counts: Option<Counts>) {
        let Some(slot) = self.slots.get_mut(fd as usize).and_then(Option::take) else { return };
        if slot.of.needs_service() {
            self.count -= 1;
        }
        if slot.id().is_some() {
            slot.recorded.returned(why, slot.bytes);
        }
        self.explain.returned(fd, slot.bytes, counts);
        self.explain.why(fd, why);
        self.epolls.returned(fd);
        table::set(fd, Kind::Plain);
    }

    /// The stack does not work: the kernel goes on with all.
    fn fail(&mut self, why: &str) {
        self.release_all(why, |_| false);
        self.drop_engine();
        self.wake_ready();
        self.retry = Some((Instant::now() + RETRY, why.to_owned()));
    }
}
