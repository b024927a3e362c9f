//! A device and a ring for the next program, made before it asks: to make them takes some milliseconds,
//! and longer while the kernel changes other devices, for which its first connection would stand still.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::MachineError;
use crate::machine::Machine;
use crate::program::{Program, Reply};
use crate::undo::Failed;

/// The kernel changes devices one after the other, and a program that has just got its devices has a
/// program put on the machine's for its first connection.
const REST: Duration = Duration::from_millis(300);

/// The devices of the next program, and what it will be told of them.
pub(crate) struct Spare {
    machine: Arc<Machine>,
    next: Mutex<Next>,
}

enum Next {
    Missing,
    Ready(Box<(Program, Reply)>),
    /// The service ends.
    Ended,
}

impl Spare {
    pub(crate) fn new(machine: Arc<Machine>) -> Spare {
        Spare { machine, next: Mutex::new(Next::Missing) }
    }

    /// Takes the devices that are ready, or makes some. It waits for those that are being made.
    pub(crate) fn take(&self) -> Result<(Program, Reply), MachineError> {
        let mut next = self.next();
        match std::mem::replace(&mut *next, Next::Missing) {
            Next::Ready(made) => Ok(*made),
            Next::Missing => Program::new(Arc::clone(&self.machine)),
            Next::Ended => {
                *next = Next::Ended;
                Err(MachineError::Refused("the service of the stack ends".into()))
            }
        }
    }

    /// Makes devices in a while, if none are ready.
    pub(crate) fn make(self: &Arc<Self>, failed: Failed) {
        let spare = Arc::clone(self);
        let make = move || {
            thread::sleep(REST);
            let mut next = spare.next();
            if matches!(*next, Next::Missing) {
                match Program::new(Arc::clone(&spare.machine)) {
                    Ok(made) => *next = Next::Ready(Box::new(made)),
                    Err(error) => failed(&format!("no devices for the next program: {error}")),
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("spare".into()).spawn(make) {
            failed(&format!("no devices for the next program: {error}"));
        }
    }

    /// Removes the devices that are ready; no more are made. Returns what could not be undone.
    pub(crate) fn end(&self) -> Vec<String> {
        match std::mem::replace(&mut *self.next(), Next::Ended) {
            Next::Ready(mut made) => made.0.return_all(false),
            Next::Missing | Next::Ended => vec![],
        }
    }

    fn next(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
