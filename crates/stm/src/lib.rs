//! Space-time memory: a channel of items with a time, as data in a block of memory.
//!
//! `schema/stm.md` says what each operation does. There is no I/O here, and nothing waits: an
//! operation that would have to answers `NotYet`, `Full` or `NoSlot`. The block may be shared by
//! processes: the owner of its lock may operate on it, and what a process did not finish is undone.

mod channel;
mod collect;
mod get;
mod layout;
mod memory;
mod put;
mod remote;
mod ring;
mod status;
mod types;
mod words;

pub use channel::{Channel, Watch};
pub use remote::{Feed, Horizon, Mirror, ToHome, ToMirror};

pub use types::{
    Collected, Config, ConsumeError, Counts, From, Full, GetError, Got, InputCounts, InputId,
    InputStatus, ItemStatus, JoinError, LeaveError, LoanError, NewItem, Orphans, OutputId,
    OutputStatus, PutError, Slot, Time, Which,
};
pub use words::Words;
