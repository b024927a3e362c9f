//! Space-time memory that the processes of a machine share.
//!
//! A channel of [`loopscope_stm`] in a file of memory, a lock for it that goes on where its owner is
//! killed, and waiting; a service that knows channels by their names; and events of what programs do.
//! `schema/stm.md` says what each operation does.

mod address;
mod attached;
mod channel;
mod channels;
mod client;
mod clock;
mod derive;
mod error;
mod events;
mod futex;
mod input;
mod lock;
mod mapping;
mod newest;
mod output;
mod parties;
mod remote;
mod room;
mod service;
mod wire;

pub use address::socket_path;
pub use attached::Until;
pub use channel::{Files, Options, Shared};
pub use channels::{Channels, Offered};
pub use client::{Client, ServiceError};
pub use error::{ConnectError, ConnectionError, FileError, GetError, Kind, PutError, Unusable};
pub use events::{Relay, Spell};
pub use input::{Input, Item, Look};
pub use output::{Loan, Output};
pub use remote::{HomeEnd, MirrorEnd, Room};
pub use service::{Opener, Service};
pub use wire::{Connected, Held, Listed, Settings};
