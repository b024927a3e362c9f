//! What a running router is told by other threads.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TryRecvError, sync_channel};

use loopscope_time::MonotonicNs;
use nix::sys::eventfd::{EfdFlags, EventFd};
use serde_json::{Map, Value};

use crate::EmulateError;

/// What it is told.
#[derive(Debug)]
pub enum Command {
    /// The first measured phase began.
    Measured {
        /// When.
        at: MonotonicNs,
        /// Told once the links have begun anew, so that no later packet belongs to the time before.
        reply: Reply,
    },
    /// Change some of a link's settings.
    Set {
        /// Host.
        from: String,
        /// Host.
        to: String,
        /// Keys of [`crate::settings::Settings`].
        change: Map<String, Value>,
        /// Gets the settings in force.
        reply: Reply,
    },
    /// Tell what was achieved so far, as in links.json.
    Show {
        /// Gets it.
        reply: Reply,
    },
    /// Come to an end.
    End,
    /// Come to an end with this error.
    Abandon(String),
}

/// Where an answer goes. The error is for a person.
pub type Reply = SyncSender<Result<Value, String>>;

/// The thread's end that tells.
#[derive(Clone, Debug)]
pub struct Control {
    sender: Sender<Command>,
    wake: Arc<EventFd>,
}

/// The router's end.
#[derive(Debug)]
pub struct Commands {
    receiver: Receiver<Command>,
    pub(crate) wake: Arc<EventFd>,
}

/// Both ends.
pub fn channel() -> Result<(Control, Commands), EmulateError> {
    let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
    let wake = EventFd::from_value_and_flags(0, flags)
        .map_err(EmulateError::system("cannot make an event descriptor"))?;
    let wake = Arc::new(wake);
    let (sender, receiver) = mpsc::channel();
    Ok((Control { sender, wake: wake.clone() }, Commands { receiver, wake }))
}

impl Control {
    /// Tells; whether somebody is still there.
    pub fn tell(&self, command: Command) -> bool {
        let told = self.sender.send(command).is_ok();
        // Full means that it has been woken already.
        let _ = self.wake.write(1);
        told
    }

    /// [`Command::Set`] and its answer.
    pub fn set(&self, from: &str, to: &str, change: Map<String, Value>) -> Result<Value, String> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.ask(|reply| Command::Set { from, to, change, reply })
    }

    /// [`Command::Measured`] and its answer.
    pub fn measured(&self, at: MonotonicNs) -> Result<Value, String> {
        self.ask(|reply| Command::Measured { at, reply })
    }

    /// [`Command::Show`] and its answer.
    pub fn show(&self) -> Result<Value, String> {
        self.ask(|reply| Command::Show { reply })
    }

    fn ask(&self, command: impl FnOnce(Reply) -> Command) -> Result<Value, String> {
        let (reply, answer) = sync_channel(1);
        self.tell(command(reply));
        answer.recv().unwrap_or_else(|_| Err("the router has ended".into()))
    }
}

impl Commands {
    /// The next one, if any; the end once nobody can tell anything any more.
    pub fn next(&self) -> Option<Command> {
        match self.receiver.try_recv() {
            Ok(command) => Some(command),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Command::End),
        }
    }
}
