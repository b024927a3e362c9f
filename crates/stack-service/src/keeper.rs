//! A process that outlives the service if that is killed: it gives the connections back, and removes
//! the devices of programs.
//!
//! It has descriptors of all that it needs. The programs on the devices of programs stay in the kernel
//! for as long as these are there, so what is sent by them is looked at meanwhile; that on the
//! machine's device ends with the service, so that packets go to the kernel's sockets, whose filters
//! drop them until they are advanced.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use loopscope_engine::memory::Memory;
use loopscope_frames::Inlet;
use loopscope_stack::packet::Flow;
use loopscope_takeover::{Frozen, Kept};
use loopscope_unix_lines::{receive, send};
use serde::{Deserialize, Serialize};

use crate::error::MachineError;
use crate::undo::{Failed, close_again, delete, give_back, not_given_back};

/// What the keeper is told. Connections and programs have numbers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
enum Told {
    /// A program has a device by which it sends, which comes with it.
    Inlet { program: u64, name: String },
    /// It is gone.
    Gone { program: u64 },
    /// A connection will be taken over. Its socket comes with it.
    Begins { program: u64, connection: u64, kept: Kept, from: SocketAddr, to: SocketAddr },
    /// It is taken over. Its memory comes with it.
    Taken { connection: u64, send: usize, receive: usize },
    /// The program closes it: its flow will be held, and its socket disconnected.
    Closes { connection: u64 },
    /// The kernel has it.
    Returned { connection: u64 },
}

/// What the keeper answers to each.
#[derive(Debug, Serialize, Deserialize)]
struct Noted {}

/// The service's end of the connection to its keeper.
pub(crate) struct Keeper(Option<Mutex<UnixStream>>);

impl Keeper {
    pub(crate) fn new(stream: Option<UnixStream>) -> Keeper {
        Keeper(stream.map(Mutex::new))
    }

    pub(crate) fn inlet(&self, program: u64, inlet: &Inlet) -> io::Result<()> {
        self.tell(&Told::Inlet { program, name: inlet.name().to_owned() }, &[inlet.as_fd()])
    }

    pub(crate) fn gone(&self, program: u64) -> io::Result<()> {
        self.tell(&Told::Gone { program }, &[])
    }

    pub(crate) fn begins(
        &self,
        program: u64,
        connection: u64,
        socket: BorrowedFd<'_>,
        kept: Kept,
        flow: &Flow,
    ) -> io::Result<()> {
        let Flow { from, to } = *flow;
        self.tell(&Told::Begins { program, connection, kept, from, to }, &[socket])
    }

    pub(crate) fn taken(&self, connection: u64, memory: &Memory) -> io::Result<()> {
        let Memory { file, send, receive } = memory;
        let told = Told::Taken { connection, send: *send, receive: *receive };
        self.tell(&told, &[file.as_fd()])
    }

    pub(crate) fn closes(&self, connection: u64) -> io::Result<()> {
        self.tell(&Told::Closes { connection }, &[])
    }

    pub(crate) fn returned(&self, connection: u64) -> io::Result<()> {
        self.tell(&Told::Returned { connection }, &[])
    }

    /// The service has nothing in hand any more.
    pub(crate) fn end(&self) {
        let Some(stream) = &self.0 else { return };
        let stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        // That it fails means that the keeper has ended.
        let _ = stream.shutdown(Shutdown::Both);
    }

    fn tell(&self, told: &Told, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let Some(stream) = &self.0 else { return Ok(()) };
        let stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        let told = send(&stream, told, files).and_then(|()| receive::<Noted>(&stream));
        let ended = || io::Error::other("the keeper of the service has ended");
        told?.map(drop).ok_or_else(ended)
    }
}

/// A connection that the kernel does not have.
struct Held {
    program: u64,
    frozen: Frozen,
    flow: Flow,
    /// None: it may not be frozen yet.
    memory: Option<Memory>,
    /// Whether the service may have held its flow, and disconnected its socket.
    closes: bool,
}

/// What there is to undo.
#[derive(Default)]
struct Left {
    /// The devices by which programs send.
    programs: BTreeMap<u64, Inlet>,
    connections: BTreeMap<u64, Held>,
}

/// Keeps what a service has in hand until that ends, and then undoes what it has left.
///
/// # Errors
/// The service says what it must not.
pub fn keep(service: &UnixStream, failed: Failed) -> io::Result<()> {
    let mut left = Left::default();
    let kept = left.listen(service);
    left.undo(failed);
    kept
}

impl Left {
    fn listen(&mut self, service: &UnixStream) -> io::Result<()> {
        // One that was killed may have said a part of a line.
        while let Ok(Some((told, files))) = receive::<Told>(service) {
            self.take(told, files)?;
            if send(service, &Noted {}, &[]).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn take(&mut self, told: Told, files: Vec<OwnedFd>) -> io::Result<()> {
        let mut files = files.into_iter();
        let mut file = || files.next().ok_or(io::Error::from(io::ErrorKind::InvalidData));
        match told {
            Told::Inlet { program, name } => {
                let inlet = Inlet::of(file()?, name);
                self.programs.insert(program, inlet);
            }
            Told::Gone { program } => drop(self.programs.remove(&program)),
            Told::Begins { program, connection, kept, from, to } => {
                let frozen = Frozen { socket: file()?, kept };
                let flow = Flow { from, to };
                let held = Held { program, frozen, flow, memory: None, closes: false };
                self.connections.insert(connection, held);
            }
            Told::Taken { connection, send, receive } => {
                let memory = Memory { file: File::from(file()?), send, receive };
                if let Some(held) = self.connections.get_mut(&connection) {
                    held.memory = Some(memory);
                }
            }
            Told::Closes { connection } => {
                if let Some(held) = self.connections.get_mut(&connection) {
                    held.closes = true;
                }
            }
            Told::Returned { connection } => drop(self.connections.remove(&connection)),
        }
        Ok(())
    }

    fn undo(self, failed: Failed) {
        for held in self.connections.into_values() {
            let flow = held.flow;
            let inlet = self.programs.get(&held.program);
            if let Err(error) = held.give_back(inlet) {
                failed(&not_given_back(&flow, &error));
            }
        }
        for inlet in self.programs.into_values() {
            // Programs may still have it. That it fails means that it is gone.
            let _ = delete(inlet.name());
        }
    }
}

impl Held {
    fn give_back(self, inlet: Option<&Inlet>) -> Result<(), MachineError> {
        let Held { frozen, flow, memory, closes, .. } = self;
        let Some((memory, inlet)) = memory.zip(inlet) else {
            return Ok(frozen.thaw()?);
        };
        // The service may have been killed before it could say so.
        if memory.has_returned().map_err(MachineError::Memory)? {
            return Ok(());
        }
        if closes {
            return close_again(&frozen, &memory, &flow);
        }
        give_back(&frozen, &memory, &flow, inlet)
    }
}
