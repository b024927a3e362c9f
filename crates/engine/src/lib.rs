//! The stack of a program: its TCP connections, over devices that the machine's service has made for
//! it. The program needs no rights.
//!
//! The service (`crates/stack-service`) takes a connection over from the kernel and gives it back; in
//! between, an [`Engine`] transfers its data. Both have the memory of its streams, and of where they
//! are ([`memory`]), so that the service can give a connection back whose program was killed.
//!
//! The engine has the datagrams of a connected socket of UDP, while the kernel's socket stays as it
//! is ([`Engine::take_datagrams`]).

mod ahead;
mod datagrams;
mod devices;
mod engine;
mod error;
mod frozen;
pub mod memory;
mod observe;
mod shared;
pub mod wire;

pub use datagrams::{DatagramsId, Leftover, Sent};
pub use engine::{Engine, Returned};
pub use error::EngineError;
pub use observe::Observe;
pub use wire::Counts;
