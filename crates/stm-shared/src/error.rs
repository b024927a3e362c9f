//! Why something cannot be done with shared channels.

use std::io;

use loopscope_stm as stm;
use thiserror::Error;

/// Why a channel's memory cannot be made or used.
#[derive(Debug, Error)]
pub enum FileError {
    /// The numbers are not such as they have to be, see [`crate::Options`].
    #[error("a channel has no room for so many slots, connections or processes")]
    Options,
    /// There is less memory than the channel takes.
    #[error("the channel takes {needed} bytes of memory, and {available} are available")]
    NoMemory {
        /// Bytes of the channel.
        needed: u64,
        /// Bytes that can be had.
        available: u64,
    },
    /// It is no memory of a channel, or of another version.
    #[error("it is no channel of this version of loopscope")]
    NoChannel,
    /// There are as many processes as there may be.
    #[error("as many processes use the channel as may")]
    TooManyProcesses,
    /// The system refuses.
    #[error("{what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it is refused.
        #[source]
        cause: io::Error,
    },
}

impl FileError {
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> FileError {
        move |cause| FileError::System { what, cause: cause.into() }
    }
}

/// Why a connection cannot be made.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// See [`stm::JoinError`].
    #[error(transparent)]
    Join(#[from] stm::JoinError),
    /// Items can be read here only.
    #[error("the memory of the channel can only be read here: it was not opened to put items")]
    ReadOnly,
    /// See [`Unusable`].
    #[error(transparent)]
    Unusable(#[from] Unusable),
}

/// Why no operation is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unusable {
    /// The process was forked from the one that opened the channel.
    #[error("the channel was opened by the process that forked this one; open it here, too")]
    Forked,
    /// The channel's memory does not make sense: some program has written into it.
    #[error("the memory of the channel is damaged")]
    Damaged,
}

/// Why an item was not put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PutError {
    /// See [`stm::LoanError`].
    #[error(transparent)]
    Loan(#[from] stm::LoanError),
    /// See [`stm::PutError`].
    #[error(transparent)]
    Put(#[from] stm::PutError),
    /// It has more bytes than a slot.
    #[error("the item has {bytes} bytes, and a slot has {room}")]
    TooLong {
        /// Bytes of the item.
        bytes: usize,
        /// Bytes of a slot.
        room: usize,
    },
    /// See [`Unusable`].
    #[error(transparent)]
    Unusable(#[from] Unusable),
}

/// Why a connection does not do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConnectionError {
    /// It has ended.
    #[error(transparent)]
    Ended(#[from] stm::LeaveError),
    /// See [`stm::ConsumeError`].
    #[error(transparent)]
    Consume(#[from] stm::ConsumeError),
    /// See [`Unusable`].
    #[error(transparent)]
    Unusable(#[from] Unusable),
}

/// Why there is no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GetError {
    /// See [`stm::GetError`].
    #[error(transparent)]
    Get(#[from] stm::GetError),
    /// See [`Unusable`].
    #[error(transparent)]
    Unusable(#[from] Unusable),
}
