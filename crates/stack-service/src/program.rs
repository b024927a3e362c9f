//! A program and its connections.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use loopscope_divert::{Counts, RING};
use loopscope_engine::memory::Memory;
use loopscope_engine::wire::{Answer, Request, Status, Streams};
use loopscope_stack::Outline;
use loopscope_stack::packet::{Flow, Protocol};
use loopscope_takeover::{Frozen, Kept, Taken};

use crate::close::Closing;
use crate::datagrams::{Datagrams, forgotten};
use crate::error::MachineError;
use crate::machine::{Devices, Diverted, MARK, Machine};
use crate::undo::{give_back, not_given_back};

/// Bytes of a ring at most.
const MOST: usize = 1 << 24;

/// A connection that is the program's.
struct Held {
    diverted: Diverted,
    /// None: the kernel has it, and the program gives it what came meanwhile.
    frozen: Option<Frozen>,
    memory: Memory,
    /// What had come when it was given back.
    counts: Option<Counts>,
    /// The socket that has it in place of the program's, which is closed when it is forgotten.
    successor: Option<OwnedFd>,
}

/// A program that has devices.
pub(crate) struct Program {
    machine: Arc<Machine>,
    number: u64,
    connections: BTreeMap<u64, Held>,
    datagrams: Datagrams,
    /// None: they are gone.
    devices: Option<Devices>,
}

/// What is sent to a program: an answer, and descriptors.
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    pub(crate) files: Vec<OwnedFd>,
}

impl Reply {
    pub(crate) fn files(&self) -> Vec<BorrowedFd<'_>> {
        self.files.iter().map(OwnedFd::as_fd).collect()
    }
}

impl Program {
    /// Makes its devices, and what it is told of them.
    pub(crate) fn new(machine: Arc<Machine>) -> Result<(Program, Reply), MachineError> {
        let number = machine.program();
        let devices = machine.devices(number).inspect_err(|_| {
            // If the keeper has ended, there is nothing to tell.
            let _ = machine.keeper.gone(number);
        })?;
        let files =
            [devices.installed.as_fd(), devices.inlet.as_fd()].map(|fd| fd.try_clone_to_owned());
        let files = files.into_iter().collect::<Result<_, _>>().map_err(MachineError::Devices)?;
        let inlet = devices.inlet.name().to_owned();
        let reply = Reply { answer: Answer::Welcome { inlet, ring: RING as usize }, files };
        let (connections, datagrams) = (BTreeMap::new(), Datagrams::default());
        Ok((Program { machine, number, connections, datagrams, devices: Some(devices) }, reply))
    }

    /// Does what the program asks for.
    pub(crate) fn answer(&mut self, request: Request, files: Vec<OwnedFd>) -> Reply {
        let refused = |why: &str| Err(MachineError::Refused(why.to_owned()));
        let done = match request {
            Request::Begin { .. } | Request::Status => refused("it has devices already"),
            Request::Take { send, receive } => self.take(files, send, receive),
            Request::TakeDatagrams => self.take_datagrams(files),
            Request::GiveBack { connection, closing: _ } if self.datagrams.has(connection) => {
                self.datagrams.stop(&self.machine, connection).map(Reply::from)
            }
            Request::Forget { connection } if self.datagrams.has(connection) => {
                self.datagrams.forget(&self.machine, connection).map(Reply::from)
            }
            Request::GiveBack { connection, closing } => self.give_back(connection, closing),
            Request::Forget { connection } => self.forget(connection),
        };
        done.unwrap_or_else(|error| Answer::Refused(error.to_string()).into())
    }

    fn take(
        &mut self,
        files: Vec<OwnedFd>,
        send: usize,
        receive: usize,
    ) -> Result<Reply, MachineError> {
        let socket = socket_of(files)?;
        let devices = self.devices()?;
        let flow = self.machine.flow_of(&socket, Protocol::Tcp)?;
        let kept = Kept::of(&socket)?;
        let (number, keeper) = (self.machine.connection(), &self.machine.keeper);
        // Whatever happens from here on, it knows how to undo it.
        keeper
            .begins(self.number, number, socket.as_fd(), kept, &flow)
            .map_err(MachineError::Keeper)?;
        let taken = self.freeze(number, flow, &socket, kept, devices, [send, receive]);
        let (held, file) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                keeper.returned(number).map_err(MachineError::Keeper)?;
                return Err(error);
            }
        };
        let Flow { from, to } = flow;
        let (send, receive) = (held.memory.send, held.memory.receive);
        self.connections.insert(number, held);
        let answer = Answer::Taken { connection: number, from, to, send, receive };
        Ok(Reply { answer, files: vec![file] })
    }

    fn take_datagrams(&mut self, files: Vec<OwnedFd>) -> Result<Reply, MachineError> {
        let socket = socket_of(files)?;
        let devices = self.devices.as_ref().ok_or_else(gone)?;
        self.datagrams.take(&self.machine, &socket, devices).map(Reply::from)
    }

    /// Takes over a connection that the keeper knows of. Where that fails, the kernel has it as before.
    fn freeze(
        &self,
        number: u64,
        flow: Flow,
        socket: &OwnedFd,
        kept: Kept,
        devices: &Devices,
        [send, receive]: [usize; 2],
    ) -> Result<(Held, OwnedFd), MachineError> {
        let device = self.machine.device_of(&flow, Protocol::Tcp)?;
        let diverted = self.machine.divert(flow, Protocol::Tcp, socket, device, devices)?;
        let taken = match Frozen::take(socket, kept, MARK) {
            Ok(taken) => taken,
            Err(error) => {
                self.machine.forget(diverted)?;
                return Err(error.into());
            }
        };
        let Taken { frozen, state, .. } = taken;
        let share = || {
            let memory = Memory::of(&state, send.min(MOST), receive.min(MOST))?;
            let file = memory.file.try_clone()?;
            self.machine.keeper.taken(number, &memory)?;
            Ok((memory, file.into()))
        };
        match share() {
            Ok((memory, file)) => {
                let frozen = Some(frozen);
                Ok((Held { diverted, frozen, memory, counts: None, successor: None }, file))
            }
            Err(error) => {
                frozen.thaw()?;
                self.machine.forget(diverted)?;
                Err(MachineError::Memory(error))
            }
        }
    }

    fn give_back(&mut self, connection: u64, closing: bool) -> Result<Reply, MachineError> {
        let held = self.connections.get_mut(&connection);
        let Some((held, frozen)) = held.and_then(|held| {
            let frozen = held.frozen.take()?;
            Some((held, frozen))
        }) else {
            return Err(MachineError::Refused("no such connection is taken over".into()));
        };
        let flow = held.diverted.flow;
        let devices = self.devices.as_ref().ok_or_else(gone)?;
        let Held { memory, .. } = held;
        let (machine, inlet) = (&*self.machine, &devices.inlet);
        let given = if closing {
            Closing { machine, number: connection, frozen: &frozen, memory, flow: &flow, inlet }
                .close()
        } else {
            give_back(&frozen, memory, &flow, inlet).map(|()| None)
        };
        machine.stop(&flow, Protocol::Tcp)?;
        held.counts = machine.counts(&held.diverted)?;
        machine.keeper.returned(connection).map_err(MachineError::Keeper)?;
        held.successor = given?;
        Ok(Answer::GivenBack.into())
    }

    fn forget(&mut self, connection: u64) -> Result<Reply, MachineError> {
        match self.connections.get(&connection) {
            Some(Held { frozen: None, .. }) => {}
            _ => return Err(MachineError::Refused("no such connection was given back".into())),
        }
        let held = self.connections.remove(&connection).expect("it was just found");
        // The other end may have reset the connection, which the kernel knows by now.
        let counts = self.machine.forget(held.diverted)?.or(held.counts);
        Ok(forgotten(counts).into())
    }

    /// Its connections; `process` and `user` are the program's.
    pub(crate) fn status(&self, process: Option<i32>, user: Option<u32>) -> Vec<Status> {
        let status = |diverted: &Diverted, streams: Option<Streams>| {
            let Flow { from, to } = diverted.flow;
            let counts = self.machine.counts(diverted).ok().flatten();
            Status {
                process,
                user,
                protocol: diverted.protocol.to_string(),
                local: to,
                peer: from,
                device: diverted.device().to_owned(),
                packets: counts.map(|counts| counts.packets),
                payload: counts.map(|counts| counts.payload),
                lost: counts.map(|counts| counts.lost),
                streams,
            }
        };
        let connections = self.connections.values().map(|held| {
            let outline = held.frozen.as_ref().and_then(|_| held.memory.look().ok().flatten());
            status(&held.diverted, outline.as_ref().map(streams))
        });
        let datagrams = self.datagrams.all().map(|diverted| status(diverted, None));
        connections.chain(datagrams).collect()
    }

    /// Whether connections are the program's.
    pub(crate) fn has_connections(&self) -> bool {
        !self.connections.is_empty()
    }

    /// Takes all connections from the program, gives them back to the kernel, and removes its devices.
    /// `closing`: the program has ended. Says which could not be given back.
    pub(crate) fn return_all(&mut self, closing: bool) -> Vec<String> {
        let mut failed = self.datagrams.forget_all(&self.machine);
        for (number, held) in std::mem::take(&mut self.connections) {
            let Held { diverted, frozen, memory, successor, .. } = held;
            let flow = diverted.flow;
            let back = || {
                let Some(frozen) = &frozen else { return Ok(successor) };
                let (machine, inlet) = (&*self.machine, &self.devices()?.inlet);
                let given = if closing {
                    let (memory, flow) = (&memory, &flow);
                    Closing { machine, number, frozen, memory, flow, inlet }.close()
                } else {
                    give_back(frozen, &memory, &flow, inlet).map(|()| None)
                };
                machine.keeper.returned(number).map_err(MachineError::Keeper)?;
                given
            };
            let given = back();
            // The sockets are closed after it: the answers to that are the kernel's.
            let done = self.machine.forget(diverted).map(drop).and(given.map(drop));
            if let Err(error) = done {
                failed.push(not_given_back(&flow, &error));
            }
        }
        if self.devices.take().is_some()
            && let Err(error) = self.machine.keeper.gone(self.number)
        {
            failed.push(error.to_string());
        }
        failed
    }

    fn devices(&self) -> Result<&Devices, MachineError> {
        self.devices.as_ref().ok_or_else(gone)
    }
}

fn socket_of(files: Vec<OwnedFd>) -> Result<OwnedFd, MachineError> {
    let why = "it comes with one descriptor, that of its socket";
    let [socket] =
        <[OwnedFd; 1]>::try_from(files).map_err(|_| MachineError::Refused(why.to_owned()))?;
    Ok(socket)
}

fn streams(outline: &Outline) -> Streams {
    let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
    Streams {
        unacknowledged: outline.written.since(outline.unacknowledged),
        unsent: outline.written.since(outline.next),
        unread: outline.expected.since(outline.read),
        windows: [outline.edge.since(outline.expected), outline.peer_window],
        segment: outline.segment,
        round_trip_us: outline
            .round_trip
            .map(|(trip, variation)| [trip, variation].map(microseconds)),
    }
}

fn gone() -> MachineError {
    MachineError::Refused("the service of the stack has ended".into())
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Reply {
        Reply { answer, files: vec![] }
    }
}
