//! The provisioning of local testbeds: the service that only a machine's agent has.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::machine::{Machine, MachineError};
use crate::machine_proto::{BuildTestbedReply, BuildTestbedRequest, machine_server};
use crate::testbed::TestbedError;

pub(crate) struct Provisioning {
    machine: Arc<Machine>,
}

impl Provisioning {
    pub(crate) fn new(machine: Arc<Machine>) -> Provisioning {
        Provisioning { machine }
    }
}

#[tonic::async_trait]
impl machine_server::Machine for Provisioning {
    async fn build_testbed(
        &self,
        request: Request<BuildTestbedRequest>,
    ) -> Result<Response<BuildTestbedReply>, Status> {
        Ok(Response::new(self.machine.build(request.get_ref()).await?))
    }
}

impl From<MachineError> for Status {
    fn from(error: MachineError) -> Status {
        let text = error.to_string();
        match error {
            MachineError::Testbed(TestbedError::Plan(_) | TestbedError::Network(_)) => {
                Status::invalid_argument(text)
            }
            MachineError::Twice => Status::already_exists(text),
            _ => Status::failed_precondition(text),
        }
    }
}
