//! Established connections of the kernel, taken over and given back by `TCP_REPAIR`.
//!
//! [`Frozen::take`] freezes the socket of a connection and reads its state, from which
//! [`loopscope_stack::Connection`] goes on. [`Frozen::give_back`] advances the same socket to the
//! state that came of it. Descriptors of the socket stay as they are, in all processes. Where the
//! program closes the socket, a [`Successor`] can go on in its place. It needs CAP_NET_ADMIN. Of
//! sockets of UDP nothing is taken but their datagrams ([`datagrams_of`]), while a [`Holder`] holds
//! their ports. docs/decisions/stack.md says why each step is there.

mod datagrams;
mod frozen;
mod give_back;
mod options;
mod queues;
mod refusal;
mod successor;

pub use datagrams::{Holder, datagrams_of};
pub use frozen::{Frozen, Kept, Taken, TakeoverError, flow_of, namespace_of};
pub use give_back::Inject;
pub use options::mtu_of;
pub use refusal::Refusal;
pub use successor::Successor;
