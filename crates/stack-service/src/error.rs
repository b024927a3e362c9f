//! Why the service does not do something.

use std::io;

use loopscope_divert::DivertError;
use loopscope_takeover::TakeoverError;
use thiserror::Error;

/// Why the machine's part cannot be done.
#[derive(Debug, Error)]
pub enum MachineError {
    /// The programs in the kernel.
    #[error(transparent)]
    Divert(#[from] DivertError),
    /// The device of a program.
    #[error("the device of the program cannot be made: {0}")]
    Devices(io::Error),
    /// The memory of a connection.
    #[error("the memory of the connection: {0}")]
    Memory(io::Error),
    /// The keeper of the service is not told, without which nothing is taken over.
    #[error("what the service does cannot be kept safe: {0}")]
    Keeper(io::Error),
    /// The kernel does not say what is asked.
    #[error("{what}: {source}")]
    System {
        /// What was asked.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The connection cannot be taken over.
    #[error(transparent)]
    Takeover(#[from] TakeoverError),
    /// It stays with the kernel.
    #[error("the connection cannot be taken over: {0}")]
    Refused(String),
}
