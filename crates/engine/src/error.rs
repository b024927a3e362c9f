//! What can be wrong with an engine.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a connection is not, or no longer, transferred here.
#[derive(Debug, Error)]
pub enum EngineError {
    /// There is no service.
    #[error("no service of the stack answers at {path}: {source}")]
    NoService {
        /// Its socket.
        path: PathBuf,
        /// Why it cannot be reached.
        source: io::Error,
    },
    /// The kernel goes on with the connection.
    #[error("{0}")]
    Refused(String),
    /// The service has ended, or answers what it must not.
    #[error("the service of the stack: {0}")]
    Service(io::Error),
    /// The program's devices do not work.
    #[error("the devices of the stack: {0}")]
    Devices(io::Error),
    /// The service has taken a connection and not given it back: it was killed, and its keeper as well.
    #[error("the service of the stack has a connection, and does not give it back to the kernel")]
    NotReturned,
}
