//! Established connections of the kernel, taken over and given back by `TCP_REPAIR`.
//!
//! [`Frozen::take`] freezes the socket of a connection and reads its state, from which
//! [`loopscope_stack::Connection`] goes on. [`Frozen::give_back`] advances the same socket to the
//! state that came of it. Descriptors of the socket stay as they are, in all processes. Where the
//! program closes the socket, a [`Successor`] can go on in its place. It needs CAP_NET_ADMIN.
//! docs/decisions/stack.md says why each step is there.

mod frozen;
mod give_back;
mod options;
mod queues;
mod refusal;
mod successor;

pub use frozen::{Frozen, Kept, Taken, TakeoverError, flow_of, namespace_of};
pub use give_back::Inject;
pub use refusal::Refusal;
pub use successor::Successor;
