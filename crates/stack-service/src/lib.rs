//! The machine's service of the stack: makes the devices of programs, takes their connections over
//! from the kernel, and gives them back.
//!
//! No packet passes through it. A program that ends, by whatever means, leaves its connections to the
//! kernel as the memory has them that it shares with the service: what it had written is sent, and the
//! stream is closed as that of any process. Of sockets of UDP it diverts the datagrams alone, and
//! holds their ports meanwhile. When the service ends it takes the connections of all
//! programs and gives them back; these go on with their sockets.

mod ask;
mod close;
mod datagrams;
mod error;
mod keeper;
mod machine;
mod program;
mod service;
mod spare;
mod undo;

pub use ask::status;
pub use error::MachineError;
pub use keeper::keep;
pub use loopscope_engine::wire::{Status, Streams};
pub use service::Service;
pub use undo::Failed;
