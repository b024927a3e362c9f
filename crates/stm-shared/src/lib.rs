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
mod found;
mod futex;
mod input;
mod local_output;
mod lock;
mod mapping;
pub mod message;
mod newest;
mod output;
mod parties;
mod put_message;
mod remote;
mod remote_output;
mod room;
mod service;
mod wire;

pub use address::socket_path;
pub use attached::Until;
pub use channel::{Files, Options, Shared};
pub use channels::{Channels, Mirrored, Offered};
pub use client::{Client, ServiceError};
pub use clock::{PeerClock, now_ns};
pub use error::{ConnectError, ConnectionError, FileError, GetError, Kind, PutError, Unusable};
pub use events::{Relay, Spell};
pub use input::{Input, Item, Look};
pub use local_output::{LocalLoan, LocalOutput};
pub use output::{Loan, Output};
pub use put_message::{FromOutput, ToOutput, waits_until};
pub use remote::{HomeEnd, MirrorEnd, Room};
pub use service::{Elsewhere, Service};
pub use wire::{Connected, Held, Listed, Settings};
