//! What undoes the service's work: it does so itself, or its keeper.

use std::io;

use loopscope_engine::memory::Memory;
use loopscope_frames::Inlet;
use loopscope_netlink::{Connection, remove};
use loopscope_stack::State;
use loopscope_stack::packet::Flow;
use loopscope_takeover::{Frozen, TakeoverError};

use crate::error::MachineError;

const ETHERNET: usize = 14;

/// Told of what could not be done, and why.
pub type Failed = fn(&str);

/// Says that the kernel does not have a connection again.
pub(crate) fn not_given_back(flow: &Flow, error: &MachineError) -> String {
    format!("a connection was not given back: {} from {}: {error}", flow.to, flow.from)
}

/// Gives a connection back as the program has left it, and tells the program so. Where that is not
/// possible the connection ends: otherwise both ends would wait for ever.
pub(crate) fn give_back(
    frozen: &Frozen,
    memory: &Memory,
    flow: &Flow,
    inlet: &Inlet,
) -> Result<(), MachineError> {
    give_back_as(memory.take(), frozen, memory, flow, inlet)
}

/// The same of one that was taken from the program.
pub(crate) fn give_back_as(
    state: io::Result<State>,
    frozen: &Frozen,
    memory: &Memory,
    flow: &Flow,
    inlet: &Inlet,
) -> Result<(), MachineError> {
    let state = state.map_err(MachineError::Memory);
    let advanced = state.and_then(|state| advance(frozen, &state, flow, inlet));
    if advanced.is_err() {
        frozen.abandon()?;
    }
    memory.set_returned().map_err(MachineError::Memory)?;
    advanced
}

/// Advances a frozen socket, which the kernel then goes on with.
fn advance(frozen: &Frozen, state: &State, flow: &Flow, inlet: &Inlet) -> Result<(), MachineError> {
    Ok(frozen.give_back(state, flow, &mut injector(flow, inlet))?)
}

/// Gives the kernel packets of a flow as if they came.
pub(crate) fn injector(flow: &Flow, inlet: &Inlet) -> impl FnMut(&[u8]) -> io::Result<()> {
    // The kernel sets the addresses.
    let kind = if flow.to.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
    move |packet| {
        let mut frame = vec![0; ETHERNET + packet.len()];
        frame[ETHERNET - kind.len()..ETHERNET].copy_from_slice(&kind);
        frame[ETHERNET..].copy_from_slice(packet);
        inlet.write(&frame, None)
    }
}

/// Closes a connection whose flow a service has held that was killed. Its socket may be
/// disconnected: to advance it is not possible, because what is sent to it is dropped.
pub(crate) fn close_again(
    frozen: &Frozen,
    memory: &Memory,
    flow: &Flow,
) -> Result<(), MachineError> {
    let state = memory.take().map_err(MachineError::Memory)?;
    let close = || {
        let successor = frozen.successor(&state, flow)?;
        frozen.abandon()?;
        if let Some(successor) = successor {
            successor.connect(&state)?;
            successor.release(&state)?;
        }
        Ok(())
    };
    let closed = close();
    memory.set_returned().map_err(MachineError::Memory)?;
    match closed {
        // The service's socket was released, and the kernel ends the connection.
        Err(TakeoverError::System { source, .. })
            if source.kind() == io::ErrorKind::AddrNotAvailable =>
        {
            Ok(())
        }
        closed => Ok(closed?),
    }
}

/// Removes a device.
pub(crate) fn delete(name: &str) -> io::Result<()> {
    Connection::open()?.make(vec![remove(name)])
}
