//! The connections of a program that are transferred here.

mod datagrams;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use loopscope_frames::Inlet;
use loopscope_frames::packets::{Packets, Summed};
use loopscope_stack::datagram;
use loopscope_stack::icmp::TooBig;
use loopscope_stack::packet::{Checksums, Flow, parse};
use loopscope_stack::{Config, Connection, Connections, End, Id, Leaving};
use loopscope_unix_lines as lines;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::datagrams::Datagrams;
use crate::devices::{Devices, ETHERNET, IP, give_kernel};
use crate::error::EngineError;
use crate::frozen::is_frozen;
use crate::observe::Observe;
use crate::shared::{Head, map_connection};
use crate::wire::{Answer, Counts, Request, VERSION};

/// Bytes of data that are sent at once.
const TRAIN: usize = 60_000;
/// Bytes of the largest packet of IP, without those that need an option for it (RFC 2675).
const LARGEST: usize = 65_535;
/// Frames that are taken from the ring before something is sent.
const BATCH: usize = 64;
/// To give a connection back takes less than a millisecond, and half a second for 4 GB.
const PATIENCE: Duration = Duration::from_secs(10);
/// Packets that are kept for the kernel, of a connection that it is to have.
const KEPT: usize = 64;
/// The engine's descriptors have numbers from here on, where there is room: those of the program stay
/// as they would be.
const ASIDE: i32 = 960;

/// What is known of a connection besides itself.
#[derive(Debug)]
struct Known {
    /// Its number at the service.
    number: u64,
    head: Head,
    /// Packets for the kernel, which it gets when it has the connection.
    kept: Vec<Vec<u8>>,
}

/// A program's connections over its devices. It transfers data in its calls, and does nothing between
/// them.
///
/// A connection that the other end closes, or that has failed, goes back to the kernel by itself
/// ([`Engine::turn`]), as do all when the service ends: from then on the program uses its socket again,
/// which has what was not read.
#[derive(Debug)]
pub struct Engine<O = ()> {
    stream: UnixStream,
    /// The service was there when it was looked at last.
    is_served: bool,
    connections: Connections<Known>,
    datagrams: Datagrams,
    devices: Devices,
    clock: Instant,
    data: Vec<u8>,
    observer: O,
    /// What [`Engine::turn`] has given back, until the program asks.
    returned: Vec<Returned>,
}

/// A connection that [`Engine::turn`] has given back.
#[derive(Clone, Copy, Debug)]
pub struct Returned {
    /// The connection.
    pub id: Id,
    /// Why.
    pub end: Option<End>,
    /// What [`Engine::give_back`] tells.
    pub counts: Option<Counts>,
}

impl Engine {
    /// Has the service at this path make devices for this program.
    pub fn connect(path: &Path) -> Result<Engine, EngineError> {
        Engine::observed(path, ())
    }
}

impl<O: Observe> Engine<O> {
    /// The same, and `observer` learns what passes.
    pub fn observed(path: &Path, observer: O) -> Result<Engine<O>, EngineError> {
        let no_service = |source| EngineError::NoService { path: path.to_owned(), source };
        let stream = lines::connect(path).map_err(no_service)?;
        let stream = UnixStream::from(aside(stream.into()));
        lines::send(&stream, &Request::Begin { version: VERSION }, &[])
            .map_err(EngineError::Service)?;
        let (answer, files) = receive(&stream)?;
        let Answer::Welcome { inlet, ring: size } = expect(answer)? else {
            return Err(unexpected());
        };
        let [ring, tap] = exactly(files)?;
        let devices = Devices {
            packets: Packets::map(ring, size).map_err(EngineError::Devices)?,
            inlet: Inlet::of(aside(tap), inlet),
            frame: vec![0; IP + LARGEST],
        };
        Ok(Engine {
            stream,
            is_served: true,
            connections: Connections::default(),
            datagrams: Datagrams::default(),
            devices,
            clock: Instant::now(),
            data: vec![0; TRAIN],
            observer,
            returned: vec![],
        })
    }

    /// Takes the connection of a socket over, which no other process has. Nobody may use the socket
    /// itself from then on. Where that fails, the kernel goes on with it.
    pub fn take(&mut self, socket: impl AsFd, config: Config) -> Result<Id, EngineError> {
        let Config { send_buffer: send, receive_buffer: receive, .. } = config;
        let fd = socket.as_fd();
        let (answer, files) = match self.ask(&Request::Take { send, receive }, &[fd]) {
            // If it was killed with the connection in hand, its keeper gives that back.
            Err(EngineError::Service(error)) => {
                wait_until(|| !is_frozen(fd).unwrap_or(false))?;
                return Err(EngineError::Service(error));
            }
            answered => answered?,
        };
        let Answer::Taken { connection: number, from, to, send, receive } = answer else {
            return Err(unexpected());
        };
        let [memory] = exactly(files)?;
        let (head, sending, receiving) =
            map_connection(&File::from(memory), send, receive).map_err(EngineError::Devices)?;
        let (flow, now) = (Flow { from, to }, self.clock.elapsed());
        let outline = head.load();
        let connection =
            Connection::resume(&outline, config, now, Box::new(sending), Box::new(receiving));
        let connection = connection.ok_or_else(unexpected)?;
        let known = Known { number, head, kept: vec![] };
        self.connections.add(&flow, connection, known).ok_or_else(unexpected)
    }

    /// Takes what came, and sends what is due.
    pub fn turn(&mut self) -> Result<(), EngineError> {
        let now = self.clock.elapsed();
        self.receive(now).map_err(EngineError::Devices)?;
        self.connections.wake(now, |id, timer| self.observer.expired(id, timer));
        self.send(now)?;
        let mut outcome = Ok(());
        for id in self.connections.take_ended() {
            let end = self.get(id).and_then(Connection::end);
            match self.give_back(id) {
                Ok(counts) => self.returned.push(Returned { id, end, counts }),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// Connections that [`Engine::turn`] has given back since the last call.
    pub fn take_returned(&mut self) -> Vec<Returned> {
        std::mem::take(&mut self.returned)
    }

    /// A connection, to change how it behaves.
    pub fn change(&mut self, id: Id) -> Option<&mut Connection> {
        self.connections.change(id)
    }

    /// Reads what came of a connection, as far as `target` has room; the number of bytes. None: the
    /// kernel has it.
    pub fn read(&mut self, id: Id, target: &mut [u8]) -> Result<Option<usize>, EngineError> {
        if let Some((connection, known)) = self.connections.with(id)
            && connection.readable() == 0
            && !known.head.is_taken()
        {
            return Ok(Some(0));
        }
        self.use_it(id, |connection| connection.read(target))
    }

    /// Takes as many bytes as there is room for; their number. They are sent in the next turn. None:
    /// the kernel has the connection.
    pub fn write(&mut self, id: Id, bytes: &[u8]) -> Result<Option<usize>, EngineError> {
        self.use_it(id, |connection| connection.write(bytes))
    }

    /// A connection. None: the kernel has it.
    pub fn get(&self, id: Id) -> Option<&Connection> {
        self.connections.get(id)
    }

    /// What learns of segments and timers.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// How many connections are transferred here.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Sleeps until a frame comes, something is due, the service ends, or the time is over.
    /// [`Engine::turn`] comes after it.
    pub fn wait(&mut self, most: Duration) -> Result<(), EngineError> {
        let most = if self.rest() { most } else { Duration::ZERO };
        let waited = self.wait_for_sources(most);
        self.look();
        waited
    }

    fn wait_for_sources(&mut self, most: Duration) -> Result<(), EngineError> {
        let due = self.due().map_or(most, |due| due.min(most));
        let until = Timespec { tv_sec: due.as_secs() as i64, tv_nsec: due.subsec_nanos().into() };
        let mut polled = self.sources().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // That it has ended is told for ever.
        let wanted = if self.is_served { &mut polled[..] } else { &mut polled[..0] };
        match poll(wanted, Some(&until)) {
            Err(Errno::INTR) => return Ok(()),
            done => done.map_err(|errno| EngineError::Devices(errno.into()))?,
        };
        let [ring, service] = polled.map(|polled| !polled.revents().is_empty());
        if ring {
            self.devices.inlet.take().map_err(EngineError::Devices)?;
        }
        // It says nothing by itself.
        if !service {
            return Ok(());
        }
        self.is_served = false;
        let taken = self.connections.remove_all();
        taken.into_iter().try_for_each(|(_, known)| wait_for_return(&known.head))
    }

    /// How long [`Engine::turn`] can wait if no frame comes. None: for ever.
    pub fn due(&self) -> Option<Duration> {
        self.connections.deadline().map(|due| due.saturating_sub(self.clock.elapsed()))
    }

    /// A program that waits by itself calls [`Engine::rest`], and [`Engine::turn`] when one of these
    /// can be read: that by which the kernel wakes it, of which the program reads once for each time,
    /// and the connection to the service, which says nothing by itself unless it has ended.
    pub fn sources(&self) -> [BorrowedFd<'_>; 2] {
        [self.devices.inlet.as_fd(), self.stream.as_fd()]
    }

    /// Has the kernel wake who waits by [`Engine::sources`] when frames come, until
    /// [`Engine::look`]. False: one is there by now, and nobody may be woken before a turn.
    pub fn rest(&mut self) -> bool {
        self.devices.packets.rest()
    }

    /// Ends [`Engine::rest`]: the kernel wakes nobody, which takes less time.
    #[inline]
    pub fn look(&mut self) {
        self.devices.packets.look();
    }

    /// Whether frames came that no turn has taken.
    #[inline]
    pub fn has_frames(&self) -> bool {
        !self.devices.packets.is_empty()
    }

    /// All its descriptors, which the program must not close.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        self.sources()
    }

    /// Gives a connection back to the kernel, and what came for it meanwhile: the program uses its
    /// socket again. What came of it since it was taken over. None: the kernel had it already, or its socket was closed.
    pub fn give_back(&mut self, id: Id) -> Result<Option<Counts>, EngineError> {
        self.hand_back(id, false)
    }

    /// The same for a connection whose socket the program then closes, and does nothing else with.
    /// It takes no longer where much was transferred.
    pub fn close(&mut self, id: Id) -> Result<Option<Counts>, EngineError> {
        self.hand_back(id, true)
    }

    fn hand_back(&mut self, id: Id, closing: bool) -> Result<Option<Counts>, EngineError> {
        let now = self.clock.elapsed();
        let Some((connection, mut known)) = self.connections.remove(id) else { return Ok(None) };
        if !known.head.save(&connection.outline(now)) {
            return wait_for_return(&known.head).map(|()| None);
        }
        let Known { number, kept, head } = known;
        match self.ask(&Request::GiveBack { connection: number, closing }, &[]) {
            Ok((Answer::GivenBack, _)) => {}
            Ok(_) => return Err(unexpected()),
            // It has ended, or was killed: then its keeper does it.
            Err(EngineError::Service(_)) => return wait_for_return(&head).map(|()| None),
            Err(error) => return Err(error),
        }
        for packet in kept {
            self.devices.give_kernel(packet).map_err(EngineError::Devices)?;
        }
        self.receive_all(now)?;
        self.ask_to_forget(number)
    }

    /// Takes all that waits in the ring.
    fn receive_all(&mut self, now: Duration) -> Result<(), EngineError> {
        // Not for as long as more comes.
        for _ in 0..=self.devices.packets.most().div_ceil(BATCH) {
            if self.receive(now).map_err(EngineError::Devices)? < BATCH {
                break;
            }
        }
        Ok(())
    }

    /// Has the service forget a connection; what came of it.
    fn ask_to_forget(&self, connection: u64) -> Result<Option<Counts>, EngineError> {
        let (answer, _) = self.ask(&Request::Forget { connection }, &[])?;
        let Answer::Forgotten { counts } = answer else { return Err(unexpected()) };
        Ok(counts)
    }

    /// Does something to a connection. What it has done counts if it can be saved; otherwise the
    /// service has taken the connection before.
    fn use_it(
        &mut self,
        id: Id,
        act: impl FnOnce(&mut Connection) -> usize,
    ) -> Result<Option<usize>, EngineError> {
        let Some(connection) = self.connections.change(id) else { return Ok(None) };
        let count = act(connection);
        let Some((connection, known)) = self.connections.with(id) else { return Ok(None) };
        let is_held = match count {
            0 => !known.head.is_taken(),
            _ => known.head.save(&connection.outline(self.clock.elapsed())),
        };
        if !is_held {
            let taken = self.connections.remove(id);
            taken.map_or(Ok(()), |(_, known)| wait_for_return(&known.head))?;
        }
        Ok(is_held.then_some(count))
    }

    fn send(&mut self, now: Duration) -> Result<(), EngineError> {
        let Engine { devices, connections, data, observer, .. } = self;
        let (mut failed, mut taken) = (Ok(()), vec![]);
        connections.send(now, data, |leaving| {
            let Leaving { id, flow, segment, size, is_again, connection, of_user } = leaving;
            // First: the other end may take as settled what the segment says.
            if !of_user.head.save(&connection.outline(now)) {
                taken.push(id);
                return;
            }
            // Before the device has it: the other end may, before the device's call has returned.
            observer.sends(id, &segment, size, is_again);
            if let Err(error) = devices.send(flow, &segment, size) {
                failed = Err(error);
            }
        });
        for (_, known) in taken.into_iter().filter_map(|id| connections.remove(id)) {
            wait_for_return(&known.head)?;
        }
        failed.map_err(EngineError::Devices)
    }

    /// Takes up to [`BATCH`] frames from the ring; their number.
    fn receive(&mut self, now: Duration) -> io::Result<usize> {
        let Engine {
            devices: Devices { packets, inlet, frame: to_kernel },
            connections,
            datagrams,
            observer,
            ..
        } = self;
        let mut failed = Ok(());
        let count = packets.receive(BATCH, |frame| {
            let Some(packet) = frame.bytes.get(ETHERNET..) else { return };
            let checksums = match frame.summed {
                Summed::Unknown => Checksums::Whole,
                Summed::Right => Checksums::Right,
                Summed::Unfinished => Checksums::Unfinished,
            };
            if datagram::is_of(packet) {
                if !datagrams.receive(packet, checksums)
                    && let Err(error) = give_kernel(inlet, to_kernel, packet)
                {
                    failed = Err(error);
                }
                return;
            }
            if let Some(TooBig { flow, seq, most }) = TooBig::of(packet) {
                let found = connections.of(&flow).and_then(|id| connections.change(id));
                if let Some(connection) = found {
                    connection.too_big(seq, most);
                }
                return;
            }
            // Only packets of its flows come to a program, and of those that cannot be read nobody
            // can make use.
            let Ok((flow, segment)) = parse(packet, checksums) else { return };
            let Some((id, connection)) =
                connections.of(&flow).and_then(|id| Some((id, connections.change(id)?)))
            else {
                // It came for a connection that the kernel has by now.
                if let Err(error) = give_kernel(inlet, to_kernel, packet) {
                    failed = Err(error);
                }
                return;
            };
            if connection.end().is_none() {
                observer.received(id, &segment);
                connection.receive(now, &segment);
            }
            let ended = connection.end().is_some();
            if let Some((_, known)) = connections.with(id)
                && ended
                && known.kept.len() < KEPT
            {
                known.kept.push(packet.to_vec());
            }
        });
        failed.map(|()| count)
    }

    /// Asks the service, which answers within a millisecond or so.
    fn ask(
        &self,
        request: &Request,
        files: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Vec<OwnedFd>), EngineError> {
        lines::send(&self.stream, request, files).map_err(EngineError::Service)?;
        let (answer, files) = receive(&self.stream)?;
        Ok((expect(answer)?, files))
    }
}

/// The service gives back what it has taken. Until then the program must not use the socket.
fn wait_for_return(head: &Head) -> Result<(), EngineError> {
    wait_until(|| head.has_returned())
}

fn wait_until(done: impl Fn() -> bool) -> Result<(), EngineError> {
    let until = Instant::now() + PATIENCE;
    while !done() {
        if Instant::now() > until {
            return Err(EngineError::NotReturned);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

fn receive(stream: &UnixStream) -> Result<(Answer, Vec<OwnedFd>), EngineError> {
    let received = lines::receive(stream).map_err(EngineError::Service)?;
    received.ok_or_else(|| EngineError::Service(io::Error::other("it has ended")))
}

/// Takes a refusal for the error that it is.
fn expect(answer: Answer) -> Result<Answer, EngineError> {
    match answer {
        Answer::Refused(why) => Err(EngineError::Refused(why)),
        answer => Ok(answer),
    }
}

fn unexpected() -> EngineError {
    EngineError::Service(io::Error::other("it answers what was not asked"))
}

/// The same with a larger number, or as it is where there is none.
fn aside(fd: OwnedFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(&fd, ASIDE).unwrap_or(fd)
}

fn exactly<const N: usize>(files: Vec<OwnedFd>) -> Result<[OwnedFd; N], EngineError> {
    files.try_into().map_err(|_| unexpected())
}
