//! Phases that components are told to begin, and the peers that go with them.

use std::sync::PoisonError;

use super::{Host, HostError};
use crate::dialogue::Peers;
use crate::events::Moment;
use crate::proto::{EnterPhaseRequest, PhaseRefused, event::What};

impl Host {
    /// Tells a component to begin a phase. If it cannot be told, that is an event of the component.
    pub(crate) fn begin_phase(&self, request: EnterPhaseRequest) {
        let Err(error) = self.enter_phase(&request) else { return };
        let error = match error {
            HostError::Phase { source, .. } => format!("it {source}"),
            HostError::Invalid { what, .. } => what,
            other => other.to_string(),
        };
        let refused = PhaseRefused { phase: request.phase, error };
        self.events.sender(&request.component).send(What::PhaseRefused(refused));
    }

    fn enter_phase(&self, request: &EnterPhaseRequest) -> Result<(), HostError> {
        let component = self.component(&request.component)?;
        let invalid = |what| HostError::Invalid { component: request.component.clone(), what };
        let peers = match &request.peers_json {
            Some(json) => {
                let peers = self.peers(json);
                let peers = peers.map_err(|e| invalid(format!("the peers are not JSON: {e}")))?;
                component.keep_peers(peers.clone());
                peers
            }
            None => component.peers().ok_or_else(|| invalid("it has no peers yet".to_owned()))?,
        };
        let start_ns = match request.start_global_ns {
            Some(global_ns) => Some(self.monotonic_at(global_ns).ok_or_else(|| {
                invalid("its host's time is not known, so it cannot begin with others".to_owned())
            })?),
            None => None,
        };
        let entered = component.enter_phase(&request.phase, request.measured, &peers, start_ns);
        entered.map_err(|source| HostError::Phase { component: request.component.clone(), source })
    }

    /// The peers of a request, which components that get the same ones share.
    fn peers(&self, json: &str) -> serde_json::Result<Peers> {
        let mut last = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_str() != json {
            let peers: Peers = json.parse()?;
            if *last != peers {
                *last = peers;
            }
        }
        Ok(last.clone())
    }

    /// CLOCK_MONOTONIC at an instant of the global clock, which is near.
    fn monotonic_at(&self, global_ns: i64) -> Option<i64> {
        let global = self.clock.global();
        let counter = global.counter_at(global_ns)?;
        Some(Moment::now().monotonic_at(counter, global.frequency()))
    }
}
