//! Sockets of UDP of a program, whose datagrams go to it.
//!
//! The kernel's socket is not changed, so nothing has to be given back where the program or the
//! service ends: the flow is forgotten, and the kernel goes on.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use loopscope_divert::Counts;
use loopscope_engine::wire::{self, Answer};
use loopscope_stack::packet::{Flow, Protocol};
use loopscope_takeover::Holder;

use crate::error::MachineError;
use crate::machine::{Devices, Diverted, Machine};

/// A socket whose datagrams are the program's.
struct Held {
    diverted: Diverted,
    /// Without it the port could become another user's, and the datagrams with it. It ends after
    /// the flow is forgotten.
    _holder: Holder,
}

/// Those of a program, by their numbers.
#[derive(Default)]
pub(crate) struct Datagrams(BTreeMap<u64, Held>);

impl Datagrams {
    /// Has the datagrams of a socket go to a program from now on.
    pub(crate) fn take(
        &mut self,
        machine: &Machine,
        socket: &OwnedFd,
        devices: &Devices,
    ) -> Result<Answer, MachineError> {
        let flow = machine.flow_of(socket, Protocol::Udp)?;
        let device = machine.device_of(&flow, Protocol::Udp)?;
        let mtu = machine.mtu_of(socket, &device)?;
        // First: from here on no other user can have the port.
        let holder = Holder::of(socket, &flow, device.index)?;
        let diverted = machine.divert(flow, Protocol::Udp, socket, device, devices)?;
        let connection = machine.connection();
        self.0.insert(connection, Held { diverted, _holder: holder });
        let Flow { from, to } = flow;
        Ok(Answer::TakenDatagrams { connection, from, to, mtu })
    }

    /// Whether it is the number of one of them.
    pub(crate) fn has(&self, connection: u64) -> bool {
        self.0.contains_key(&connection)
    }

    /// Leaves what comes for a socket to the kernel again.
    pub(crate) fn stop(&self, machine: &Machine, connection: u64) -> Result<Answer, MachineError> {
        if let Some(held) = self.0.get(&connection) {
            machine.stop(&held.diverted.flow, Protocol::Udp)?;
        }
        Ok(Answer::GivenBack)
    }

    /// Nothing of a socket is the program's any more.
    pub(crate) fn forget(
        &mut self,
        machine: &Machine,
        connection: u64,
    ) -> Result<Answer, MachineError> {
        let Some(Held { diverted, _holder }) = self.0.remove(&connection) else {
            return Err(MachineError::Refused("no such socket is the program's".into()));
        };
        Ok(forgotten(machine.forget(diverted)?))
    }

    /// Forgets all. Returns what could not be done.
    pub(crate) fn forget_all(&mut self, machine: &Machine) -> Vec<String> {
        let mut failed = vec![];
        for (_, Held { diverted, _holder }) in std::mem::take(&mut self.0) {
            if let Err(error) = machine.forget(diverted) {
                failed.push(error.to_string());
            }
        }
        failed
    }

    /// What is diverted to the program.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Diverted> {
        self.0.values().map(|held| &held.diverted)
    }
}

/// What came of a flow that is forgotten.
pub(crate) fn forgotten(counts: Option<Counts>) -> Answer {
    let counts =
        counts.map(|Counts { packets, payload, lost }| wire::Counts { packets, payload, lost });
    Answer::Forgotten { counts }
}
