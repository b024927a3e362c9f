//! Closing a connection in place of its program.
//!
//! To advance the program's socket takes as long as bytes were transferred, for which the program
//! would wait in close(2). So the service disconnects that socket, and has one of its own go on
//! where the stack came. The flow is held meanwhile, so no packet meets a kernel without a socket
//! for it.

use std::os::fd::OwnedFd;

use loopscope_engine::memory::Memory;
use loopscope_frames::Inlet;
use loopscope_stack::State;
use loopscope_stack::packet::{Flow, Protocol};
use loopscope_takeover::{Frozen, Successor};

use crate::error::MachineError;
use crate::machine::Machine;
use crate::undo::{give_back_as, injector};

/// A connection that the program uses no more.
pub(crate) struct Closing<'c> {
    pub(crate) machine: &'c Machine,
    /// Its number.
    pub(crate) number: u64,
    pub(crate) frozen: &'c Frozen,
    pub(crate) memory: &'c Memory,
    pub(crate) flow: &'c Flow,
    pub(crate) inlet: &'c Inlet,
}

impl Closing<'_> {
    /// Gives it back as [`crate::undo::give_back`] does, or to a socket of ours, which ends the
    /// connection when it is dropped. By then what came meanwhile has to be with the kernel, and
    /// the flow forgotten.
    pub(crate) fn close(&self) -> Result<Option<OwnedFd>, MachineError> {
        let Closing { frozen, memory, flow, inlet, .. } = self;
        let state = memory.take();
        if let Ok(state) = &state
            && let Some(successor) = self.prepare(state)
        {
            let replaced = self.replace(successor, state);
            memory.set_returned().map_err(MachineError::Memory)?;
            return replaced.map(Some);
        }
        give_back_as(state, frozen, memory, flow, inlet).map(|()| None)
    }

    /// A socket to go on with. None: the program's is advanced, which is possible whatever was in
    /// the way here.
    fn prepare(&self, state: &State) -> Option<Successor> {
        if !self.frozen.is_far_from(state).ok()? {
            return None;
        }
        let successor = self.frozen.successor(state, self.flow).ok()??;
        // From here on it knows what a disconnected socket means.
        self.machine.keeper.closes(self.number).ok()?;
        self.machine.hold(self.flow).ok()?.then_some(successor)
    }

    fn replace(&self, successor: Successor, state: &State) -> Result<OwnedFd, MachineError> {
        let Closing { machine, frozen, flow, inlet, .. } = self;
        let connect = || {
            frozen.abandon()?;
            successor.connect(state)?;
            machine.hand_over(flow, &frozen.socket, &successor)
        };
        if let Err(error) = connect() {
            machine.lose(flow)?;
            return Err(error);
        }
        // Where it fails, the kernel learns both by itself.
        let _ = successor.teach(state, &mut injector(flow, inlet));
        // What is sent now is answered, and the answers are the kernel's.
        machine.stop(flow, Protocol::Tcp)?;
        Ok(successor.release(state)?)
    }
}
