//! Space-time memory that the processes of a machine share.
//!
//! A channel of [`loopscope_stm`] in a file of memory, a lock for it that goes on where its owner is
//! killed, and waiting; and a service that knows channels by their names. `schema/stm.md` says what each operation does.

mod attached;
mod channel;
mod client;
mod connection;
mod error;
mod futex;
mod lock;
mod mapping;
mod newest;
mod parties;
mod room;
mod service;
mod wire;

pub use attached::Until;
pub use channel::{Files, Options, Shared};
pub use client::{Client, ServiceError};
pub use connection::{Input, Item, Loan, Look, Output};
pub use error::{ConnectError, ConnectionError, FileError, GetError, Kind, PutError, Unusable};
pub use service::{Service, socket_path};
pub use wire::{Connected, Held, Listed};
