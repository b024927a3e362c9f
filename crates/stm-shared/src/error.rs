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
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it is refused.
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
    /// Items are put on another host, and there is no way there.
    #[error("items are put on the channel's home, another host: {0}")]
    Home(String),
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
    /// The home is on another host and does not answer: an item that was sent may be put, or not.
    #[error("{}", away(*.0))]
    Away(io::ErrorKind),
    /// See [`Unusable`].
    #[error(transparent)]
    Unusable(#[from] Unusable),
}

/// Why a connection to another host cannot be used any more.
fn away(kind: io::ErrorKind) -> String {
    let why = match kind {
        io::ErrorKind::UnexpectedEof => "it has ended the connection".to_owned(),
        io::ErrorKind::TimedOut => "it was silent for 15 s".to_owned(),
        _ => kind.to_string(),
    };
    format!(
        "the channel's home is away ({why}); make a new output connection, or open the channel anew"
    )
}

impl PutError {
    /// The length of an item, if a slot has so much room.
    pub(crate) fn length_of(bytes: usize, room: usize) -> Result<u32, PutError> {
        let length = u32::try_from(bytes).ok().filter(|_| bytes <= room);
        length.ok_or(PutError::TooLong { bytes, room })
    }

    /// Whether it may be possible later.
    pub fn may_end(&self) -> bool {
        matches!(self, PutError::Loan(stm::LoanError::NoSlot) | PutError::Put(stm::PutError::Full))
    }
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
    /// The home is on another host and does not answer.
    #[error("{}", away(*.0))]
    Away(io::ErrorKind),
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

/// What an error is about, for languages that tell errors apart by a number or a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is no such item yet.
    NotYet,
    /// The time was consumed or collected.
    Gone,
    /// The producers promised no item of this time.
    Never,
    /// Several items may be the nearest one.
    Ambiguous,
    /// Nobody may have an item of this time any more.
    Late,
    /// The channel has an item of this time.
    Exists,
    /// The channel is full.
    Full,
    /// All slots of the channel are in use.
    NoSlot,
    /// There are as many as there may be, of whatever was asked for.
    TooMany,
    /// The connection has ended.
    NotConnected,
    /// What was given cannot be.
    Invalid,
    /// Anything else.
    Failed,
}

impl From<&GetError> for Kind {
    fn from(error: &GetError) -> Kind {
        match error {
            GetError::Get(stm::GetError::NotConnected) => Kind::NotConnected,
            GetError::Get(stm::GetError::Gone) => Kind::Gone,
            GetError::Get(stm::GetError::Never) => Kind::Never,
            GetError::Get(stm::GetError::NotYet) => Kind::NotYet,
            GetError::Get(stm::GetError::Ambiguous) => Kind::Ambiguous,
            GetError::Get(stm::GetError::TooManyHolds) => Kind::TooMany,
            GetError::Unusable(_) => Kind::Failed,
        }
    }
}

impl From<&PutError> for Kind {
    fn from(error: &PutError) -> Kind {
        match error {
            PutError::Loan(stm::LoanError::NotConnected)
            | PutError::Put(stm::PutError::NotConnected) => Kind::NotConnected,
            PutError::Loan(stm::LoanError::TooManyLoans) => Kind::TooMany,
            PutError::Loan(stm::LoanError::NoSlot) => Kind::NoSlot,
            PutError::Put(stm::PutError::Late) => Kind::Late,
            PutError::Put(stm::PutError::Exists) => Kind::Exists,
            PutError::Put(stm::PutError::Full) => Kind::Full,
            PutError::Put(stm::PutError::OutOfRange) | PutError::TooLong { .. } => Kind::Invalid,
            PutError::Loan(stm::LoanError::NotLoaned)
            | PutError::Put(stm::PutError::NotLoaned)
            | PutError::Away(_)
            | PutError::Unusable(_) => Kind::Failed,
        }
    }
}

impl From<&ConnectionError> for Kind {
    fn from(error: &ConnectionError) -> Kind {
        match error {
            ConnectionError::Ended(_)
            | ConnectionError::Consume(stm::ConsumeError::NotConnected) => Kind::NotConnected,
            ConnectionError::Consume(stm::ConsumeError::TooManyAhead) => Kind::TooMany,
            ConnectionError::Consume(stm::ConsumeError::NotHeld)
            | ConnectionError::Away(_)
            | ConnectionError::Unusable(_) => Kind::Failed,
        }
    }
}

impl From<&ConnectError> for Kind {
    fn from(error: &ConnectError) -> Kind {
        match error {
            ConnectError::Join(_) => Kind::TooMany,
            ConnectError::Home(_) | ConnectError::ReadOnly | ConnectError::Unusable(_) => {
                Kind::Failed
            }
        }
    }
}

impl From<&Unusable> for Kind {
    fn from(_: &Unusable) -> Kind {
        Kind::Failed
    }
}
